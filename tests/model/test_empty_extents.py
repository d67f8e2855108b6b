"""Extents of 0: taken where nobody gave a symbol bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import bucketize
from bucketize.errors import BucketizeError, ShapeError, TypeRelError
from bucketize.interpret import evaluate_module
from bucketize.ir import Builder, Module, Var
from bucketize.onnx import from_onnx
from bucketize.onnx.front import _begun
from bucketize.ops import reshape
from bucketize.text import show
from bucketize.tune.task import subjects_of
from bucketize.types import Symbol, tensor
from dispatchers import from_traffic, log_dispatcher, per_symbol

HEAD = '<ir_version: 8, opset_import: ["" : 17]> g '
PAST = (
    "(float[B, P, 4] past, float[B, S, 4] x) => (float[B, T, 4] y) "
    "{ k = Concat <axis = 1> (past, x) t = Transpose <perm = [0, 2, 1]> (k) "
    "s = MatMul (x, t) p = Softmax (s) y = MatMul (p, k) }"
)
HEADS = (  # as exporters write it: 0 would copy an axis
    "(float[B, S, 8] x) => (float[B, S, 2, 4] y) <int64[1] at0 = {0}, int64[1] at1 = {1}, "
    "int64[1] two = {2}, int64[1] left = {-1}> { all = Shape (x) b = Gather (all, at0) "
    "s = Gather (all, at1) n = Mul (b, s) flat = Concat <axis = 0> (n, left) "
    "rows = Reshape (x, flat) to = Concat <axis = 0> (b, s, two, left) y = Reshape (rows, to) }"
)


def imported(graph: str, **bounds: tuple[int, int | None]) -> Module:
    return from_onnx(onnx.parser.parse_model(HEAD + graph), bounds=bounds)


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


@pytest.mark.parametrize("dispatched", [False, True])
@pytest.mark.parametrize(("b", "p", "s"), [(2, 0, 3), (0, 2, 3), (0, 0, 1), (2, 3, 1)])
def test_an_empty_past_and_an_empty_batch_run(b: int, p: int, s: int, dispatched: bool) -> None:
    mod = imported(PAST)
    if dispatched:
        mod = bucketize.dispatch(mod, per_symbol({"P": log_dispatcher}))
    arrays = floats(b, p, 4), floats(b, s, 4)
    (got,) = bucketize.compile(mod, lazy=True).run(*arrays)
    (expected,) = evaluate_module(mod, *arrays)
    assert got.shape == (b, s, 4)
    np.testing.assert_allclose(got, expected, rtol=1e-4)


def test_open_symbols_begin_at_0_and_those_with_bounds_where_they_say() -> None:
    mod = imported(PAST, S=(1, None))
    assert mod.main.symbols() == {"B": Symbol("B"), "P": Symbol("P"), "S": Symbol("S", 1)}
    assert "where S >= 1" in show(mod)
    with pytest.raises(ShapeError, match=r"'x', axis 1: expected S in \[1, \.\.\.\], got 0"):
        bucketize.compile(mod).run(floats(2, 1, 4), floats(2, 0, 4))


def test_bounds_from_0_on_leave_and_come_back() -> None:
    back = from_onnx(bucketize.to_onnx(imported(PAST, S=(1, None), B=(0, 9))))
    assert back.main.symbols() == {"B": Symbol("B", 0, 9), "P": Symbol("P"), "S": Symbol("S", 1)}


def test_what_windows_refuse_begins_where_they_fit() -> None:
    graph = (
        "(float[N, 3, H, W] x) => (float[N, 4, Y, X] y) "
        f"<float[4, 3, 3, 3] w = {{{', '.join(['1'] * 108)}}}> {{ y = Conv (x, w) }}"
    )
    symbols = imported(graph).main.symbols()
    assert symbols == {"N": Symbol("N"), "H": Symbol("H", 3), "W": Symbol("W", 3)}
    assert imported(graph, H=(0, None)).main.symbols()["H"] == Symbol("H", 0)


def test_windows_over_windows_leave_no_clone_that_refuses_every_run() -> None:
    """Of 7, then of 2 in steps of 2, twice; behind buckets no warning, an error here, is given."""
    graph = (
        "(float[1, 1, H, 12] x) => (float[1, 1, Y, 1] y) "
        "{ a = AveragePool <kernel_shape = [7, 1]> (x) "
        "b = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (a) "
        "y = MaxPool <kernel_shape = [2, 6], strides = [2, 1]> (b) }"
    )
    mod = imported(graph)
    assert mod.main.symbols() == {"H": Symbol("H", 10)}
    mod = bucketize.dispatch(mod, log_dispatcher)
    assert next(iter(mod.clones)) == "main[H=10..15]"
    exe = bucketize.compile(mod)
    (y,) = exe.run(floats(1, 1, 10, 12))
    assert y.shape == (1, 1, 1, 1)
    with pytest.raises(ShapeError, match=r"expected H in \[10, \.\.\.\], got 9"):
        exe.run(floats(1, 1, 9, 12))


def test_what_another_symbol_has_no_part_in_is_judged_by_the_one() -> None:
    n, m = Symbol("N"), Symbol("M")
    x = Var("x", tensor("float32", n, m))
    main = Builder().function("main", [x], [x])
    for to, first in ((n // 2, 0), (n // 2 + 1, 1), (n // 2 + 9, 17), (2 * n + 1, 1)):
        begun = _begun(main, [(">=", m + n, m + to)], {}).symbols()  # 0 of 0 is enough; none is
        assert (begun["N"].lo, begun["M"].lo) == (first, 0)


def test_what_only_a_branch_relies_on_bounds_no_symbol() -> None:
    graph = (
        "(bool c, float[N, 2] x) => (float[M, 2] y) <int64[1] one = {1}, int64[2] to = {-1, 2}> "
        "{ y = If (c) <then_branch = t () => (float[M, 2] u) { n = Shape (x) d = Div (n, n) "
        "e = Expand (x, d) u = Identity (e) }, else_branch = e () => (float[M, 2] v) "
        "{ v = Identity (x) }> }"
    )
    assert imported(graph).main.symbols() == {"N": Symbol("N")}


def test_a_division_by_an_extent_bounds_it() -> None:
    graph = "(float[N, 2] x) => (int64[2] y) { n = Shape (x) y = Div (n, n) }"
    assert imported(graph).main.symbols() == {"N": Symbol("N", 1)}


@pytest.mark.parametrize(("b", "s"), [(0, 3), (2, 3)])
def test_reshapes_that_exporters_write_stay_native(b: int, s: int) -> None:
    exe = bucketize.compile(imported(HEADS))
    assert [r.executor for r in exe.routines.values()] == ["vm"]
    assert "dyn" not in str(exe.program)
    x = floats(b, s, 8)
    np.testing.assert_array_equal(exe.run(x)[0], x.reshape(b, s, 2, 4))


def test_a_reshape_where_0_would_copy_what_is_not_empty_is_refused() -> None:
    """onnxruntime refuses it, too: there would be other elements."""
    mod, x = imported(HEADS), floats(2, 0, 8)
    with pytest.raises(
        BucketizeError, match=r"expected S in \[1, \.\.\.\], got 0|S must be at least"
    ):
        bucketize.compile(mod).run(x)
    with pytest.raises(TypeRelError, match=r"the 0 at 1 of \[2, 0\] copies none of \[0, 8\]"):
        reshape.compute(np.empty((0, 8)), newshape=(2, 0), allow_zero=False)
    assert reshape.compute(np.empty((0, 8)), newshape=(2, 0)).shape == (2, 0)


def test_a_fallback_for_0_alone_is_not_tuned() -> None:
    mod = bucketize.dispatch(imported(PAST), per_symbol({"P": log_dispatcher}))
    assert "main[fallback]" in mod.functions
    assert {s.function for s in subjects_of(mod, "bounds")} == set(mod.clones)


def test_a_fallback_is_tuned_beyond_the_buckets() -> None:
    def two(_: Any) -> Any:
        return {"x": {1: [(1, 50)]}}

    mod = bucketize.dispatch(imported(PAST, B=(1, 2), P=(1, 2)), two)
    (subject,) = (s for s in subjects_of(mod, "bounds") if s.function == "main[fallback]")
    assert [sizes["S"] for sizes, _ in subject.judged] == [100]


def test_requests_of_size_0_are_in_the_first_bucket() -> None:
    mod = bucketize.dispatch(imported(PAST), from_traffic({"P": {0: 9, 1: 1, 2: 1}}, count=2))
    assert list(mod.clones) == ["main[P=0]", "main[P=1..2]", "main[P=3..]"]
