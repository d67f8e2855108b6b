"""Rows as one kernel: norms and softmax, however spelled, with what stands around them."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from kernel_call import launch_at
from test_attention import kinds
from test_vector_templates import TARGETS, Case, check, run

import bucketize
from bucketize import ops
from bucketize.interpret import evaluate_module, run_function
from bucketize.ir import Atom, Builder, Const, Function, Module, Var
from bucketize.kernel.rows.pattern import CYCLE, EACH, SAME, rows_of
from bucketize.kernel.rows.template import TEMPLATE
from bucketize.kernel.templates import candidates
from bucketize.kernel.workload import Workload, workload_of
from bucketize.lower.cost import default_of
from bucketize.machine.host import host
from bucketize.types import ANY, Dim, Symbol, tensor

N, S, C = Symbol("N"), Symbol("S"), Symbol("C")
ROWS = (N, S, C)
WIDTHS = (1, 3, 16, 17, 64, 100, 257)
SIZES = tuple({"N": 2, "S": 3, "C": c} for c in WIDTHS)


def number(value: float) -> Const:
    return Const(np.asarray(value, np.float32))


def mean(b: Builder, x: Atom) -> Var:
    return b.emit(ops.reduce_mean, x, axes=(len(x.type.shape) - 1,), keepdims=True)


def rms(b: Builder, x: Atom, scale: Atom) -> Var:
    """As torch exports it."""
    least = b.emit(ops.add, mean(b, b.emit(ops.mul, x, x)), number(1e-6))
    factor = b.emit(ops.reciprocal, b.emit(ops.sqrt, least))
    return b.emit(ops.mul, scale, b.emit(ops.mul, x, factor))


def spelled(b: Builder, x: Atom, scale: Atom, bias: Atom) -> Var:
    """A layer norm of before there was an operator of that name."""
    centred = b.emit(ops.sub, x, mean(b, x))
    square = mean(b, b.emit(ops.mul, centred, centred))
    deviation = b.emit(ops.sqrt, b.emit(ops.add, square, number(1e-5)))
    y = b.emit(ops.mul, b.emit(ops.div, centred, deviation), scale)
    return b.emit(ops.add, y, bias)


def normed(b: Builder, x: Atom, residual: Atom, scale: Atom, bias: Atom) -> Var:
    """A residual before a norm, an activation behind it."""
    y = b.emit(ops.layer_norm, b.emit(ops.add, x, residual), scale, bias, axis=2)
    return b.emit(ops.gelu, y)


def weights(b: Builder, x: Atom, mask: Atom) -> Var:
    scores = b.emit(ops.add, b.emit(ops.mul, x, number(0.125)), mask)
    return b.emit(ops.softmax, scores, axis=2)


def alone(b: Builder, x: Atom, *, op: Any, **attrs: Any) -> Var:
    return b.emit(op, x, **attrs)


def reduced(b: Builder, x: Atom, *, op: Any) -> Var:
    """One number a row, and what is made of it."""
    return b.emit(ops.mul, b.emit(op, x, axes=(2,), keepdims=True), number(0.5))


def spread(b: Builder, x: Atom) -> Var:
    """Two folds in one pass."""
    most, least = (
        b.emit(op, x, axes=(2,), keepdims=True) for op in (ops.reduce_max, ops.reduce_min)
    )
    return b.emit(ops.div, x, b.emit(ops.add, b.emit(ops.sub, most, least), number(1)))


CASES = {
    "rms": (rms, ROWS, (C,)),
    "spelled": (spelled, ROWS, (C,), (1, 1, C)),
    "normed": (normed, ROWS, ROWS, (C,), (1,)),
    "normed, rows that come again": (normed, ROWS, (1, S, C), (C,), (C,)),
    "softmax": (weights, ROWS, (S, C)),
    "softmax of numbers a row": (weights, ROWS, (N, S, 1)),
    "log_softmax": (partial(alone, op=ops.log_softmax, axis=2), ROWS),
    "spread": (spread, ROWS),
    **{
        op.name: (partial(reduced, op=op), ROWS)
        for op in (ops.reduce_sum, ops.reduce_mean, ops.reduce_max, ops.reduce_min)
    },
}


def case(name: str) -> Case:
    make, *types = CASES[name]
    return Case(TEMPLATE, make, tuple(types), SIZES)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: f"lanes{t.lanes}")
@pytest.mark.parametrize("name", CASES)
def test_a_kernel_is_its_group(name: str, target: Any) -> None:
    check(case(name), {}, target)


def computed(load: Workload, *args: Any, **sizes: int) -> Any:
    return run(TEMPLATE, load, {}, list(args), TARGETS[0], sizes)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "reduce_max", "reduce_min", "rms"])
def test_infinities_and_nan_are_those_of_the_op(name: str) -> None:
    x = np.random.default_rng(0).standard_normal((1, 6, 70)).astype(np.float32)
    x[0, 0, 3:] = -np.inf
    x[0, 1] = -np.inf
    x[0, 2, 65] = np.nan
    x[0, 3, 5] = np.inf
    x[0, 4, 0] = np.nan
    load, sizes = case(name).workload(), {"N": 1, "S": 6, "C": 70}
    others = [np.ones(p.type.substitute(sizes).shape, np.float32) for p in load.body.params[1:]]
    with np.errstate(all="ignore"):
        (want,) = run_function(load.body, [x, *others])
    got = computed(load, x, *others, **sizes)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_a_norm_of_a_large_mean_keeps_its_variance() -> None:
    load = case("normed").workload()
    x = (np.random.default_rng(0).standard_normal((1, 5, 768)) + 1000).astype(np.float32)
    zero, one = np.zeros_like(x), np.ones(768, np.float32)
    (want,) = run_function(load.body, [a.astype(np.float64) for a in (x, zero, one, one[:1])])
    got = computed(load, x, zero, one, one[:1], N=1, S=5, C=768)
    np.testing.assert_allclose(got, want, atol=5e-4)  # what the mean's last bit is worth


def test_truths_choose_before_a_softmax() -> None:
    params = [Var("x", tensor("float32", N, C)), Var("t", tensor("bool", N, C))]
    params += [Var("r", tensor("bool", N, 1))]
    b = Builder()
    scores = b.emit(ops.where, params[1], params[0], number(-math.inf))
    scores = b.emit(ops.where, params[2], scores, number(0))
    load = Workload(b.function("", params, [b.emit(ops.softmax, scores, axis=1)]), (False,) * 3)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((9, 37)).astype(np.float32)
    truths, rows = rng.random((9, 37)) < 0.5, rng.random((9, 1)) < 0.5
    (want,) = run_function(load.body, [x, truths, rows])
    got = computed(load, x, truths, rows, N=9, C=37)
    np.testing.assert_allclose(got, want, atol=1e-6)


def test_nothing_is_done_where_there_is_nothing() -> None:
    none = Symbol("Z", 0)
    for shape in ((none, 3), (3, none), (none, none)):
        b, x = Builder(), Var("x", tensor("float32", *shape))
        load = Workload(b.function("", [x], [b.emit(ops.softmax, x, axis=1)]), (False,))
        launch = launch_at(TEMPLATE, load, {}, (shape, shape), {"Z": 0}, TARGETS[0])
        empty = np.zeros([0 if d is none else 3 for d in shape], np.float32)
        assert launch.extent == len(empty)
        assert computed(load, empty, Z=0).shape == empty.shape


def test_what_takes_long_is_computed_once() -> None:
    """The exponentials of a softmax wait in the result; what is added before it, nowhere."""
    found = rows_of(case("softmax").workload())
    assert found is not None
    assert [len(each) for each in found.computed()] == [2, 3, 1]
    assert found.steps[int(found.kept() or 0) - len(found.arguments)].how == "exp(x0 - x1)"
    norm = rows_of(case("rms").workload())
    assert norm is not None
    assert norm.kept() is None


def test_arguments_lie_as_their_shapes_tell() -> None:
    for shape, rows in ((ROWS, EACH), ((1, S, C), CYCLE), ((C,), SAME), ((1, 1, C), SAME)):
        found = rows_of(Case(TEMPLATE, weights, (ROWS, shape), ()).workload())
        assert found is not None
        assert found.arguments[1] == (rows, True, "floats")


# --- what is declined ----------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(N, 1, C), (N, 1, 1), (S, ANY), (ANY, 1)])
def test_arguments_that_lie_otherwise_are_declined(shape: tuple[Dim, ...]) -> None:
    assert rows_of(Case(TEMPLATE, weights, (ROWS, shape), ()).workload()) is None


@pytest.mark.parametrize(
    "make",
    [
        partial(alone, op=ops.softmax, axis=1),
        partial(alone, op=ops.reduce_sum, axes=(2,), keepdims=False),
        partial(alone, op=ops.reduce_sum, axes=(1, 2), keepdims=True),
        partial(alone, op=ops.reduce_prod, axes=(2,), keepdims=True),
        partial(alone, op=ops.argmax, axis=2),
    ],
)
def test_other_axes_and_ops_are_declined(make: Any) -> None:
    assert rows_of(Case(TEMPLATE, make, (ROWS,), ()).workload()) is None


def test_doubles_and_other_functions_are_declined() -> None:
    for dtype, op in (("float64", ops.exp), ("float32", ops.sin)):
        b, x = Builder(), Var("x", tensor(dtype, *ROWS))
        y = b.emit(ops.softmax, b.emit(op, x), axis=2)
        assert rows_of(Workload(b.function("", [x], [y]), (False,))) is None


# --- where they are found ------------------------------------------------------------------------


def function(make: Any, *types: tuple[Dim, ...], shared: Any = ()) -> Function:
    """Its values of the ops `shared` are results, too."""
    params = [Var(f"p{i}", tensor("float32", *t)) for i, t in enumerate(types)]
    b = Builder()
    y = make(b, *params)
    return b.function("main", params, [y, *(m.out for m in b.body if m.op in shared)])


@pytest.mark.parametrize("name", CASES)
def test_fuse_takes_a_group_whole(name: str) -> None:
    make, *types = CASES[name]
    fn = function(make, *types)
    assert kinds(fn) == ["+".join(b.op.name for b in fn.body)]
    module, rng = Module({"main": fn}), np.random.default_rng(0)
    exe = bucketize.compile(module)
    for sizes in SIZES[2:4]:
        shapes = [p.type.substitute(sizes).shape for p in fn.params]
        args = [rng.standard_normal(s).astype(np.float32) for s in shapes]  # type: ignore[arg-type]
        (got,), (want,) = exe.run(*args), evaluate_module(module, *args)
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


def test_fuse_leaves_out_what_others_read() -> None:
    square = function(rms, ROWS, (C,), shared=(ops.sqrt,))
    assert kinds(square) == ["mul+reduce_mean+add+sqrt", "reciprocal", "mul+mul"]
    assert kinds(function(weights, ROWS, (S, C), shared=(ops.add,))) == ["mul+add", "softmax"]


def test_what_is_apart_leaves_a_row() -> None:
    fn = function(rms, ROWS, (C,))
    assert kinds(fn, 1) == ["mul", "reduce_mean+add+sqrt+reciprocal+mul+mul"]
    assert kinds(fn, 2) == ["mul+reduce_mean", "add+sqrt+reciprocal", "mul+mul"]


@pytest.mark.parametrize("name", [*CASES])
def test_loops_of_single_ops_are_no_default(name: str) -> None:
    """By the models, which are those of the same loops."""
    load = case(name).workload()
    assert default_of(load, candidates(load), host()).at(1).template == TEMPLATE.name
    lone = {m.op: m for m in load.body.body if m.op.scalar is None}
    for b in lone.values():
        alone, _ = workload_of(b)
        assert default_of(alone, candidates(alone), host()).at(1).template == TEMPLATE.name
