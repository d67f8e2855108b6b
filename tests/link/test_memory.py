"""Memory: arrays that are aligned, arenas that move only to grow."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from bucketize.errors import ShapeError
from bucketize.link.memory import (
    HUGE_PAGE,
    Arena,
    Pool,
    address,
    aligned,
    empty_bytes,
    empty_result,
)
from bucketize.machine.target import LINE

TOO_MUCH = 1 << 60


def test_aligned_copies_only_what_is_not() -> None:
    odd = np.arange(12, dtype=np.float32).reshape(3, 4).T
    out = aligned(odd)
    assert out.flags.c_contiguous
    assert address(out) % LINE == 0
    np.testing.assert_array_equal(out, odd)
    assert aligned(out) is out


@pytest.mark.parametrize(
    ("size", "boundary"),
    [(1, LINE), (100, LINE), (HUGE_PAGE, HUGE_PAGE), (3 * HUGE_PAGE + 1, HUGE_PAGE)],
)
def test_what_is_large_begins_at_a_huge_page(size: int, boundary: int) -> None:
    memory = empty_bytes(size)
    assert memory.nbytes == size
    assert address(memory) % boundary == 0
    memory[...] = 7  # all of it can be written
    assert memory.sum(dtype=np.int64) == 7 * size


def test_what_a_pool_gives_is_aligned_and_apart() -> None:
    pool = Pool()
    sizes = [5, 4096, 1, 100_000, 64, 20 << 20, 3, 8 << 20, 65]
    given = [pool.empty_bytes(size) for size in sizes]
    assert [memory.nbytes for memory in given] == sizes
    assert all(address(memory) % LINE == 0 for memory in given)
    spans = sorted((address(memory), address(memory) + memory.nbytes) for memory in given)
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))
    assert all(address(a) + 4096 == address(b) for a, b in [(given[1], given[2])])


def test_a_pool_copies_what_lies_anyhow() -> None:
    odd = np.arange(12, dtype=np.float16).reshape(3, 4).T
    for like in (odd, np.zeros((0, 3)), np.ones((700, 9), np.int64)[:, ::2]):
        out = Pool().copy(like)
        assert out.flags.c_contiguous
        assert out.dtype == like.dtype
        np.testing.assert_array_equal(out, like)


def test_the_arena_moves_only_to_grow() -> None:
    arena = Arena()
    first = arena.reserve(1000)
    assert first % LINE == 0
    assert arena.reserve(10) == first
    assert arena.nbytes == 1000
    arena.reserve(1001)
    assert arena.nbytes == 2000  # twice what it was: the next size does not move it
    arena.reserve(10_000)
    assert arena.nbytes == 10_000


def test_too_much_memory_is_an_error_that_says_how_much() -> None:
    with pytest.raises(ShapeError, match="no memory for the 1,152,921,504,606,846,976 bytes"):
        Arena().reserve(TOO_MUCH)
    for size in (TOO_MUCH, 1 << 70):
        with pytest.raises(MemoryError, match=f"no {size + HUGE_PAGE:,} bytes"):
            empty_bytes(size)
    with pytest.raises(ShapeError, match=rf"no memory for a result of float32\[{TOO_MUCH}\]"):
        empty_result((TOO_MUCH,), np.dtype(np.float32))
