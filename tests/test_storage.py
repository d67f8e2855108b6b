"""Memory: no two tensors that live at once share a byte, and constants are held once."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bucketize.runtime.storage import (
    ALIGNMENT,
    Arena,
    ConstantPool,
    Lifetime,
    address,
    aligned,
    plan_memory,
    round_up,
)

lifetimes = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 6)), max_size=24).map(
    lambda pairs: [Lifetime(size, i, i + extra) for i, (size, extra) in enumerate(pairs)]
)


@given(lifetimes)
def test_tensors_that_live_at_once_do_not_overlap(tensors: list[Lifetime]) -> None:
    offsets, total = plan_memory(tensors)
    for i, (a, p) in enumerate(zip(tensors, offsets, strict=True)):
        assert p % ALIGNMENT == 0
        assert p + a.size <= total
        for b, q in zip(tensors[:i], offsets[:i], strict=True):
            if b.last >= a.first:
                assert p + a.size <= q or q + b.size <= p or 0 in (a.size, b.size)


def test_a_chain_needs_two_buffers() -> None:
    chain = [Lifetime(640, i, i + 1) for i in range(50)]
    assert plan_memory(chain)[1] == 2 * 640


def test_round_up_and_aligned() -> None:
    assert [round_up(n) for n in (0, 1, 64, 65)] == [0, 64, 64, 128]
    odd = np.arange(12, dtype=np.float32).reshape(3, 4).T
    out = aligned(odd)
    assert out.flags.c_contiguous
    assert address(out) % ALIGNMENT == 0
    np.testing.assert_array_equal(out, odd)
    assert aligned(out) is out


def test_the_pool_packs_once_per_layout() -> None:
    pool, value, calls = ConstantPool(), np.ones((4, 4), np.float32), []

    def pack(v: np.ndarray) -> np.ndarray:
        calls.append(1)
        return v.T.copy()

    assert pool.packed(value, "t", pack) is pool.packed(value, "t", pack)
    assert len(calls) == 1
    assert pool.packed(value, "u", pack) is not pool.packed(value, "t", pack)
    assert pool.nbytes() == 2 * value.nbytes


def test_the_arena_moves_only_to_grow() -> None:
    arena = Arena()
    first = arena.reserve(1000)
    assert first % ALIGNMENT == 0
    assert arena.reserve(500) == first
    assert arena.generation == 1
    arena.reserve(10_000)
    assert (arena.generation, arena.nbytes) == (2, 10_000)
