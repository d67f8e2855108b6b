"""Plans: native code gives dims their values, memory its places, and notices what cannot be."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bucketize
from bucketize import ops
from bucketize.errors import ShapeError, TypeRelError
from bucketize.ir import Builder, Function, Module, Var
from bucketize.kernel.build import build
from bucketize.program.code import DimCode, table
from bucketize.program.plan import FILL
from bucketize.runtime.link import core_source
from bucketize.runtime.native import function_at
from bucketize.runtime.storage import address
from bucketize.types import (
    FUNCTIONS,
    Dim,
    Symbol,
    broadcast,
    evaluate,
    maximum,
    minimum,
    tensor,
)

N, M = Symbol("N"), Symbol("M", 0)
LINE = 64
STATUS, INDEX, TOTAL = map(FILL.index, ("status", "index", "arena_bytes"))


def filled(
    initial: Sequence[int],
    code: Any = (),
    checks: Any = (),
    tensors: Any = (),
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The block, the registers and the tensors' offsets after a fill."""
    fill = function_at(build(core_source("fill"), name_hint="fill").address)
    registers = np.array(initial, np.int64)
    scratch = np.zeros((3, len(tensors) + 1), np.int64)
    held = {"code": table(code, 4), "checks": table(checks, 3), "tensors": table(tensors, 4)}
    held |= {"words": table([], 2), "parts": table([], 4), "pointers": table([], 4)}
    words = {name: address(a) for name, a in held.items()}
    words |= {f"n_{name}": len(a) for name, a in held.items()}
    words |= {"registers": address(registers), "threads": 1}
    pairs = zip(("offsets", "strides", "live"), scratch, strict=True)
    words |= {name: address(row) for name, row in pairs}
    block = np.array([words.get(name, 0) for name in FILL], np.int64)
    fill(address(block))
    return block, registers, scratch[0][: len(tensors)]


dims = st.recursive(
    st.sampled_from([N, M]) | st.integers(-3, 9),
    lambda inner: st.builds(
        lambda f, a, b: f(a, b),
        st.sampled_from([
            lambda a, b: a + b,
            lambda a, b: a * b,
            lambda a, b: a - b,
            lambda a, _: a // 3,
            lambda a, _: a % 4,
            lambda a, _: a // (N + 1),
            minimum,
            maximum,
        ]),
        inner,
        inner,
    ),
    max_leaves=8,
)  # fmt: skip


@given(st.lists(dims, min_size=1, max_size=5), st.integers(1, 40), st.integers(0, 40))
def test_native_code_gives_dims_the_values_that_they_have(
    wanted: list[Dim], n: int, m: int
) -> None:
    code = DimCode(["M", "N"])
    places = [code.register(d) for d in wanted]
    initial, rows = code.arrays()
    initial[:2] = m, n
    block, registers, _ = filled(initial, rows)
    assert block[STATUS] == 0
    assert [registers[p] for p in places] == [evaluate(d, {"N": n, "M": m}) for d in wanted]


def test_a_dim_is_evaluated_once() -> None:
    code = DimCode(["M", "N"])
    first = code.register((N + 1) // 2 * M)
    assert code.register((N + 1) // 2 * M) == first
    before = len(code.rows)
    code.register((N + 1) // 2 * M + 1)
    assert len(code.rows) == before + 1


@pytest.mark.parametrize(
    ("fn", "a", "b", "status"),
    [
        ("*", 3_000_000_000, 3_000_000_000, 2),
        ("+", 2**62, 2**62, 2),
        ("//", 3, 0, 3),
        ("%", 3, 0, 3),
        ("broadcast", 3, 2, 1),
        ("broadcast", 3, 1, 0),
        ("broadcast", 1, 4, 0),
        ("broadcast", 0, 1, 0),
    ],
)
def test_a_dim_without_a_value_is_noticed(fn: str, a: int, b: int, status: int) -> None:
    number = {"+": 0, "*": 1}[fn] if fn in "+*" else FUNCTIONS[fn].code
    block, registers, _ = filled([a, b, -7], [(2, number, 0, 1)])
    assert block[STATUS] == status
    if not status:
        assert registers[2] == broadcast(a, b)


@pytest.mark.parametrize(
    ("relation", "a", "b", "holds"),
    [
        *((0, 3, 3, True), (0, 3, 1, False)),
        *((1, 3, 1, True), (1, 3, 3, True), (1, 3, 2, False)),
        *((2, 0, 0, True), (2, -1, 0, False)),
    ],
)
def test_relations_are_checked(relation: int, a: int, b: int, holds: bool) -> None:
    block, _, _ = filled([a, b], checks=[(0, 0, 0), (relation, 0, 1)])
    assert (block[STATUS] == 0) == holds
    if not holds:
        assert block[INDEX] == 1


tensors = st.lists(
    st.tuples(st.integers(0, 1000), st.integers(0, 6), st.integers(1, 2)), max_size=24
)


@given(tensors)
def test_tensors_that_live_at_once_do_not_overlap(drawn: list[tuple[int, int, int]]) -> None:
    rows = [(i, i, i + more, copies) for i, (_, more, copies) in enumerate(drawn)]
    block, _, offsets = filled([size for size, _, _ in drawn] or [0], tensors=rows)
    spans = [(o, -(-s // LINE) * LINE * c) for o, (s, _, c) in zip(offsets, drawn, strict=True)]
    for i, (start, size) in enumerate(spans):
        assert start % LINE == 0
        assert start + size <= block[TOTAL]
        for j in range(i):
            other, extent = spans[j]
            if rows[j][2] >= i:
                assert start + size <= other or other + extent <= start or 0 in (size, extent)


def test_more_memory_than_there_are_addresses_is_noticed() -> None:
    assert filled([2**61], tensors=[(0, 0, 0, 8)])[0][STATUS] == 2
    assert filled([2**61], tensors=[(0, i, 9, 1) for i in range(4)])[0][STATUS] == 2


def test_a_chain_needs_two_buffers() -> None:
    chain = [(0, i, i + 1, 1) for i in range(50)]
    assert filled([640], tensors=chain)[0][TOTAL] == 2 * 640


# --- plans of segments ---------------------------------------------------------------------------


def run(fn: Function, *arrays: np.ndarray) -> list[np.ndarray]:
    return bucketize.compile(Module({"main": fn})).run(*arrays)


def test_an_extent_below_zero_is_an_error_before_a_byte_is_touched() -> None:
    x = Var("x", tensor("float32", N))
    b = Builder()
    room = b.emit(ops.full, shape=(64 - N, 2), value=0.0, dtype="float32")
    fn = b.function("main", [x], [b.emit(ops.relu, room)])
    assert run(fn, np.zeros(60, np.float32))[0].shape == (4, 2)
    assert run(fn, np.zeros(64, np.float32))[0].shape == (0, 2)
    with pytest.raises(TypeRelError, match=r"a negative extent in \[-1, 2\]") as e:
        run(fn, np.zeros(65, np.float32))
    assert e.value.__notes__[-1] == "at N=65: -N + 64 must be at least 0, got -1 and 0"


@pytest.mark.parametrize(
    ("emit", "note"),
    [
        (lambda b, x, y: b.emit(ops.concat, x, y, axis=1), "N and M must be equal, got 3 and 2"),
        (
            lambda b, x, y: b.emit(ops.add, b.emit(ops.pad, x, pads=((2, 0), (0, 0))), y),
            r"N \+ 2 and M must be equal, or the latter 1, got 5 and 2",
        ),
    ],
)
def test_extents_that_disagree_are_named(emit: Any, note: str) -> None:
    x, y = Var("x", tensor("float32", N, 4)), Var("y", tensor("float32", Symbol("M", 1), 4))
    b = Builder()
    fn = b.function("main", [x, y], [emit(b, x, y)])
    with pytest.raises(TypeRelError, match="extents differ") as e:
        run(fn, np.zeros((3, 4), np.float32), np.zeros((2, 4), np.float32))
    assert re.search(note, e.value.__notes__[-1])


def test_a_tensor_that_no_memory_holds_is_an_error() -> None:
    x = Var("x", tensor("float32", N))
    b = Builder()
    room = b.emit(ops.full, shape=(N * 10**9, N * 10**9, N), value=0.0, dtype="float32")
    fn = b.function("main", [x], [b.emit(ops.reduce_sum, room, axes=(0, 1, 2))])
    with pytest.raises(ShapeError, match="at N=3: a tensor is too large"):
        run(fn, np.zeros(3, np.float32))


def test_broadcasting_that_types_leave_open_is_checked_at_run_time() -> None:
    x, y = Var("x", tensor("float32", N, 3)), Var("y", tensor("float32", Symbol("K"), 3))
    b = Builder()
    fn = b.function("main", [x, y], [b.emit(ops.relu, b.emit(ops.add, x, y))])
    exe = bucketize.compile(Module({"main": fn}))
    for n, k in ((4, 4), (4, 1), (1, 4), (1, 1)):
        a, c = np.ones((n, 3), np.float32), np.full((k, 3), 2, np.float32)
        np.testing.assert_array_equal(exe.run(a, c)[0], a + c)
    with pytest.raises(TypeRelError, match="extents differ: 4 and 3") as e:
        exe.run(np.ones((4, 3), np.float32), np.ones((3, 3), np.float32))
    assert "at K=3, N=4" in e.value.__notes__
    np.testing.assert_array_equal(
        exe.run(*[np.ones((2, 3), np.float32)] * 2)[0], np.full((2, 3), 2)
    )
