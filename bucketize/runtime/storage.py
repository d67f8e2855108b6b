"""Where tensors live: aligned arrays, and the arena of a context."""

from __future__ import annotations

import numpy as np

from bucketize.errors import ShapeError
from bucketize.op import Array

ALIGNMENT = 64  # bytes: a cache line, and the widest vector


def address(array: Array) -> int:
    """The address of an array's first element."""
    pointer: int = array.__array_interface__["data"][0]
    return pointer


def empty_bytes(size: int) -> Array:
    """An aligned array of bytes that holds anything."""
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -address(raw) % ALIGNMENT
    return raw[start : start + size]


def aligned(array: Array) -> Array:
    """The array itself if it is contiguous and aligned, else a copy that is."""
    if array.flags.c_contiguous and address(array) % ALIGNMENT == 0:
        return array
    out = empty_bytes(array.nbytes).view(array.dtype).reshape(array.shape)
    out[...] = array
    return out


def empty_result(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
    """Memory for a result; a ShapeError that names its size where there is not enough."""
    try:
        return np.empty(shape, dtype)
    except (MemoryError, ValueError) as e:
        raise ShapeError(f"no memory for a result of {dtype}{list(shape)}") from e


def contiguous(array: Array) -> Array:
    """A copy of an input without gaps; a ShapeError that names it where there is not enough."""
    try:
        return np.ascontiguousarray(array)
    except MemoryError as e:
        raise ShapeError(f"no memory for a copy of {array.dtype}{list(array.shape)}") from e


class Arena:
    """Memory that all kernels of a context share; it moves when it has to grow."""

    def __init__(self) -> None:
        self._bytes = empty_bytes(0)
        self.base = address(self._bytes)

    def reserve(self, size: int) -> int:
        """The address of at least `size` bytes.

        It at least doubles when it moves, so that growing sizes move it seldom: what is not
        touched costs no memory.
        """
        if size > self._bytes.nbytes:
            self._bytes = self._grown(size)
            self.base = address(self._bytes)
        return self.base

    def _grown(self, size: int) -> Array:
        for wanted in (max(size, 2 * self.nbytes), size):
            try:
                return empty_bytes(wanted)
            except (MemoryError, ValueError) as e:
                error = e
        raise ShapeError(f"no memory for the {size:,} bytes between the kernels") from error

    @property
    def nbytes(self) -> int:
        """Bytes reserved so far."""
        return int(self._bytes.nbytes)
