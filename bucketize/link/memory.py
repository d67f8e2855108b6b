"""Where tensors live: aligned arrays, the pool of an image's constants, the arena of a context.

What is large lies on huge pages, where the system gives them: small ones are scattered, which costs
some time, and how much depends on luck.
"""

from __future__ import annotations

import mmap
import sys
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

import numpy as np

from bucketize.call import has_memory, no_memory
from bucketize.errors import ShapeError
from bucketize.machine.target import LINE
from bucketize.op import Array

HUGE_PAGE = 1 << 21  # bytes, of x86-64 and most kernels of aarch64
CHUNK = 1 << 23  # bytes that a pool takes at least
SMALL = 1 << 12  # bytes; no pool is begun for less


def address(array: Array) -> int:
    """The address of an array's first element."""
    pointer: int = array.__array_interface__["data"][0]
    return pointer


def empty_bytes(size: int) -> Array:
    """An aligned array of bytes that holds anything.

    Raises:
        MemoryError: there is not enough.

    """
    raw, boundary = (_mapped, HUGE_PAGE) if size >= HUGE_PAGE else (_allocated, LINE)
    array = raw(size + boundary)
    start = -address(array) % boundary
    return array[start : start + size]


def _allocated(size: int) -> Array:
    return np.empty(size, np.uint8)


def _mapped(size: int) -> Array:
    """Fresh pages: memory that was freed before may lie on small ones."""
    if not has_memory(size):
        raise MemoryError(f"no {size:,} bytes")
    try:
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as e:
        raise MemoryError(f"no {size:,} bytes") from e
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without huge pages: it stays on small ones
            pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, np.uint8)


def aligned(array: Array) -> Array:
    """The array itself if it is contiguous and aligned, else a copy that is."""
    if array.flags.c_contiguous and address(array) % LINE == 0:
        return array
    return _copied(array, empty_bytes(array.nbytes))


def _copied(array: Array, memory: Array) -> Array:
    out = memory.view(array.dtype).reshape(array.shape)
    out[...] = array
    return out


def empty_result(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
    """Memory for a result; a ShapeError that names its size where there is not enough."""
    try:
        return np.empty(shape, dtype)
    except (MemoryError, ValueError) as e:
        raise no_memory(shape, dtype) from e


def contiguous(array: Array) -> Array:
    """A copy of an input without gaps; a ShapeError that names it where there is not enough."""
    try:
        return np.ascontiguousarray(array)
    except MemoryError as e:
        raise ShapeError(f"no memory for a copy of {array.dtype}{list(array.shape)}") from e


class Pool:
    """Memory for arrays that stay, one after the other."""

    def __init__(self) -> None:
        self._left = empty_bytes(0)
        self.nbytes = 0
        """Given so far."""

    def empty_bytes(self, size: int) -> Array:
        """An aligned array of bytes that holds anything."""
        room = -(-size // LINE) * LINE
        self.nbytes += room
        if room > self._left.nbytes:
            if size < SMALL:
                return empty_bytes(size)
            self._left = empty_bytes(max(room, CHUNK))
        taken, self._left = self._left[:size], self._left[room:]
        return taken

    def copy(self, array: Array) -> Array:
        """A copy of an array, contiguous and aligned."""
        return _copied(array, self.empty_bytes(array.nbytes))


class Arena:
    """Memory that all kernels of a call share; it moves when it has to grow."""

    def __init__(self) -> None:
        self._bytes = empty_bytes(0)
        self.base = address(self._bytes)
        self.most = 0
        """The most bytes that were asked for since `settle`; at least as many are there."""
        self.calls = 0
        """Since it was looked at what they needed."""
        self.rested = False
        """Whether nobody has borrowed it since the pool was swept."""
        self._since = monotonic()

    def reserve(self, size: int) -> int:
        """The address of at least `size` bytes.

        It at least doubles when it moves, so that growing sizes move it seldom: what is not
        touched costs no memory.
        """
        if size > self._bytes.nbytes:
            self._bytes = self._grown(size)
            self.base = address(self._bytes)
        self.most = max(self.most, size)
        return self.base

    def _grown(self, size: int) -> Array:
        for wanted in (max(size, 2 * self.nbytes), size):
            try:
                return empty_bytes(wanted)
            except MemoryError as e:
                error = e
        raise ShapeError(f"no memory for the {size:,} bytes between the kernels") from error

    def settle(self, now: float) -> None:
        """Give back what was asked for by no call of late."""
        if now - self._since < KEPT_S:
            return
        if self.nbytes > HUGE_PAGE and self.nbytes > 2 * self.most:
            self._bytes = empty_bytes(0)
            self.base = address(self._bytes)
        self.most, self._since = 0, now

    @property
    def nbytes(self) -> int:
        """Bytes reserved so far."""
        return int(self._bytes.nbytes)


@dataclass(slots=True, eq=False)
class Lent:
    """What a context and its states have for as long as a call lasts: an arena, and room."""

    arena: Arena
    room: int = sys.maxsize
    """Bytes that a limit leaves to the call."""


class ArenaPool:
    """Arenas that no call uses, lent to the call that comes next: of all that a process runs.

    There are as many as ever ran at once; each is as large as what ran in it of late.
    """

    def __init__(self) -> None:
        self._idle: deque[Arena] = deque()
        self._swept = monotonic()

    def lend(self) -> Arena:
        """An arena for a call: what was given back last lies in caches."""
        try:
            arena = self._idle.pop()
        except IndexError:
            return Arena()
        arena.rested = False
        return arena

    def take_back(self, arena: Arena) -> None:
        """Keep an arena for others."""
        arena.calls += 1
        if arena.calls >= LOOKED_AT:
            arena.calls = 0
            self._settle(arena, monotonic())
        self._idle.append(arena)

    def _settle(self, arena: Arena, now: float) -> None:
        """Let go what was not used of late: of this arena, and of those that nobody borrows."""
        arena.settle(now)
        if now - self._swept >= KEPT_S:
            self._swept = now
            for other in self._all():
                if not other.rested:
                    other.rested = True
                    self._idle.append(other)

    @property
    def nbytes(self) -> int:
        """Bytes of the arenas that nobody borrows."""
        return sum(arena.nbytes for arena in list(self._idle))

    def trim(self) -> int:
        """Let go all of it; how many bytes that was."""
        return sum(arena.nbytes for arena in self._all())

    def _all(self) -> list[Arena]:
        """Take out all that are idle, those first that were given back first."""
        arenas = []
        with suppress(IndexError):
            while True:
                arenas.append(self._idle.popleft())
        return arenas


KEPT_S = 10.0
"""How often it is looked at what calls needed since: memory that none did goes back, after ten to
twenty seconds. To touch it anew takes a millisecond for 9 MiB (Zen 4, huge pages)."""
LOOKED_AT = 64  # calls: the clock is not asked at each


class _Unlent(Arena):
    """What a context has between two calls."""

    def reserve(self, size: int) -> int:
        raise AssertionError(f"no arena was lent to a call that needs {size} bytes")


UNLENT: Arena = _Unlent()
ARENAS = ArenaPool()
"""What executables of this process lend each other."""
