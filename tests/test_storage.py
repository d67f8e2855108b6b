"""Memory: arrays that are aligned, arenas that move only to grow."""

from __future__ import annotations

import numpy as np
import pytest

from bucketize.errors import ShapeError
from bucketize.runtime.storage import ALIGNMENT, Arena, address, aligned, empty_result

TOO_MUCH = 1 << 60


def test_aligned_copies_only_what_is_not() -> None:
    odd = np.arange(12, dtype=np.float32).reshape(3, 4).T
    out = aligned(odd)
    assert out.flags.c_contiguous
    assert address(out) % ALIGNMENT == 0
    np.testing.assert_array_equal(out, odd)
    assert aligned(out) is out


def test_the_arena_moves_only_to_grow() -> None:
    arena = Arena()
    first = arena.reserve(1000)
    assert first % ALIGNMENT == 0
    assert arena.reserve(10) == first
    assert arena.nbytes == 1000
    arena.reserve(1001)
    assert arena.nbytes == 2000  # twice what it was: the next size does not move it
    arena.reserve(10_000)
    assert arena.nbytes == 10_000


def test_too_much_memory_is_an_error_that_says_how_much() -> None:
    with pytest.raises(ShapeError, match="no memory for the 1,152,921,504,606,846,976 bytes"):
        Arena().reserve(TOO_MUCH)
    with pytest.raises(ShapeError, match=rf"no memory for a result of float32\[{TOO_MUCH}\]"):
        empty_result((TOO_MUCH,), np.dtype(np.float32))
