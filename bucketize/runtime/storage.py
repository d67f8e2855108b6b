"""Where tensors live: aligned arrays, packed constants shared by clones, and the arena."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

import numpy as np

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


def round_up(size: int) -> int:
    """`size` in whole cache lines."""
    return -(-size // ALIGNMENT) * ALIGNMENT


@dataclass
class ConstantPool:
    """Constants as kernels want them, one copy for all who want the same."""

    _held: dict[Hashable, tuple[Array, Array]] = field(default_factory=dict)

    def plain(self, value: Array) -> Array:
        """The constant in its own layout."""
        return self._get((id(value), ""), value, aligned)

    def packed(self, value: Array, key: str, pack: object) -> Array:
        """The constant in the layout that `key` names, made by `pack` when first asked for."""
        assert callable(pack)
        return self._get((id(value), key), value, lambda v: aligned(pack(v)))

    def _get(self, key: Hashable, value: Array, make: object) -> Array:
        assert callable(make)
        if key not in self._held:
            self._held[key] = (value, make(value))  # `value` is kept: its id must stay its own
        return self._held[key][1]

    def nbytes(self) -> int:
        """Bytes of all copies, originals that are used as they are included."""
        return sum(a.nbytes for a in {id(a): a for _, a in self._held.values()}.values())


class Arena:
    """Memory that all plans of an executable share; it moves when it has to grow."""

    def __init__(self) -> None:
        self.generation = 0
        self._bytes = empty_bytes(0)
        self._base = address(self._bytes)

    def reserve(self, size: int) -> int:
        """The address of at least `size` bytes."""
        if size > self._bytes.nbytes:
            self._bytes = empty_bytes(size)
            self._base = address(self._bytes)
            self.generation += 1
        return self._base

    @property
    def nbytes(self) -> int:
        """Bytes reserved so far."""
        return int(self._bytes.nbytes)


@dataclass(frozen=True)
class Lifetime:
    """A tensor of `size` bytes that is made in step `first` and last read in step `last`."""

    size: int
    first: int
    last: int


def plan_memory(tensors: Iterable[Lifetime]) -> tuple[list[int], int]:
    """An offset for each tensor such that no two that live at once overlap; and the total.

    Best fit in the order of the steps, which are the order of the tensors.
    """
    free: list[tuple[int, int]] = []  # (offset, size), by offset, never adjacent
    ending: dict[int, list[tuple[int, int]]] = {}
    offsets: list[int] = []
    total = step = 0
    for tensor in tensors:
        while step < tensor.first:
            for block in ending.pop(step, ()):
                _release(free, block)
            step += 1
        size = round_up(tensor.size)
        offset, total = _take(free, size, total)
        offsets.append(offset)
        ending.setdefault(tensor.last, []).append((offset, size))
    return offsets, total


def _take(free: list[tuple[int, int]], size: int, total: int) -> tuple[int, int]:
    fitting = [(s, i) for i, (_, s) in enumerate(free) if s >= size]
    if fitting:
        _, i = min(fitting)
        offset, available = free.pop(i)
        if available > size:
            free.insert(i, (offset + size, available - size))
        return offset, total
    if free and sum(free[-1]) == total:  # grow the last hole
        offset, _ = free.pop()
        return offset, offset + size
    return total, total + size


def _release(free: list[tuple[int, int]], block: tuple[int, int]) -> None:
    offset, size = block
    if not size:
        return
    i = next((k for k, (o, _) in enumerate(free) if o > offset), len(free))
    if i < len(free) and offset + size == free[i][0]:
        size += free.pop(i)[1]
    if i and sum(free[i - 1]) == offset:
        before, extra = free.pop(i - 1)
        offset, size, i = before, extra + size, i - 1
    free.insert(i, (offset, size))
