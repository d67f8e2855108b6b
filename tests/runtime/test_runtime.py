"""Executables: both executors against the reference meaning of the ops, and what they refuse."""

from __future__ import annotations

import gc
import json
import os
import re
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_model import parse

import bucketize
from bucketize import ops
from bucketize.dispatch.tree import dispatch
from bucketize.errors import (
    ArgumentError,
    BucketizeError,
    BucketizeWarning,
    CompileError,
    NoBucketError,
    ShapeError,
    TypeRelError,
    UnknownNameError,
)
from bucketize.interpret import evaluate_module, run_function
from bucketize.ir import CALL, IF, Builder, Const, Function, Module, Var
from bucketize.link.memory import Arena
from bucketize.link.plan import PASSES
from bucketize.log.log import LogWarning, append, rows
from bucketize.log.trial import CLONE
from bucketize.ops.dyn.shape import dyn_broadcast_to, dyn_full, dyn_tile
from bucketize.runtime.serving import Serving
from bucketize.tune.task import tasks_of
from bucketize.types import ANY, Profile, Symbol, broadcast, tensor
from dispatchers import log_dispatcher

N = Symbol("N", 1, 16)
M = Symbol("M", 1, 16)
LATER = "9999-01-01T00:00:00+00:00"
RNG = np.random.default_rng(0)


def weight(*shape: int) -> Const:
    return Const(RNG.standard_normal(shape).astype(np.float32))


def random(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def scalar(value: float) -> Const:
    return Const(np.asarray(value, np.float32))


def mlp(n: Any = N) -> Function:
    x = Var("data", tensor("float32", n, 12))
    b = Builder()
    h = b.emit(ops.relu, b.emit(ops.add, b.emit(ops.matmul, x, weight(12, 20)), weight(20)))
    return b.function("main", [x], [b.emit(ops.matmul, h, weight(20, 5))])


def same(exe: bucketize.Executable, *args: Any) -> None:
    pairs = zip(exe.run(*args), evaluate_module(exe.module, *args), strict=True)
    for got, want in pairs:
        assert got.shape == want.shape
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_dispatched_module_equals_the_reference(threads: int) -> None:
    mod = dispatch(Module({"main": mlp()}), log_dispatcher)
    exe = bucketize.compile(mod, threads=threads)
    for size in (1, 2, 3, 4, 7, 8, 15, 16):
        same(exe, random(size, 12))
    assert exe.explain(N=1).executor == "graph"
    assert exe.explain(data=(5, 12)).clone == "main[N=4..7]"
    assert "main[N=4..7] (vm executor)" in str(exe.explain(N=5))


def test_two_threads_agree_on_work_worth_splitting() -> None:
    x = Var("x", tensor("float32", N, 256))
    b = Builder()
    fn = b.function("main", [x], [b.emit(ops.matmul, x, weight(256, 512))])
    exe = bucketize.compile(Module({"main": fn}), threads=2)
    for size in (1, 2, 3, 16):
        same(exe, random(size, 256))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forking here")
@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_child_of_a_process_with_threads_starts_its_own() -> None:
    x = Var("x", tensor("float32", N, 256))
    b = Builder()
    fn = b.function("main", [x], [b.emit(ops.matmul, x, weight(256, 512))])
    exe, given = bucketize.compile(Module({"main": fn}), threads=2), random(16, 256)
    (before,) = exe.run(given)
    child = os.fork()
    if child == 0:
        (after,) = exe.run(given)
        os._exit(0 if np.array_equal(before, after) else 3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_results_belong_to_the_caller() -> None:
    exe = bucketize.compile(Module({"main": mlp()}))
    first, x = exe.run(random(4, 12))[0], random(4, 12)
    kept = first.copy()
    exe.run(x)
    np.testing.assert_array_equal(first, kept)


def test_results_that_no_kernel_makes() -> None:
    x = Var("x", tensor("float32", N, 4))
    b = Builder()
    y = b.emit(ops.relu, x)
    z = b.emit(ops.reshape, y, newshape=(N, 2, 2))
    flat = b.emit(ops.reshape, x, newshape=(N * 4,))
    n = b.emit(ops.from_dims, dims=(N + 1,), scalar=True)
    fn = b.function("main", [x], [y, z, flat, x, weight(3), n, y])
    same(bucketize.compile(Module({"main": fn})), random(3, 4))


def test_no_result_shares_memory_with_an_input_a_weight_or_another() -> None:
    x = Var("x", tensor("float32", N, 4))
    ones = Const(np.ones(3, np.float32))
    b = Builder()
    y = b.emit(ops.relu, x)
    fn = b.function("main", [x], [y, y, x, ones])
    for mod in (
        Module({"main": fn}),
        dispatch(Module({"main": fn}), lambda _: {"x": {0: [(2, 3)]}}),
    ):
        exe = bucketize.compile(mod)
        for size in (2, 3):
            given = random(size, 4)
            results = exe.run(given)
            for i, r in enumerate(results):
                assert not any(np.shares_memory(r, o) for o in (given, *results[:i]))
                r[...] = 77
            same(exe, random(size, 4))


def test_an_op_without_a_template_runs_on_the_host_and_is_counted() -> None:
    x, y = Var("x", tensor(bool, N, 4)), Var("y", tensor(bool, 4, N))
    b = Builder()
    out = b.emit(ops.logical_not, b.emit(ops.matmul, x, y))
    exe = bucketize.compile(Module({"main": b.function("main", [x, y], [out])}))
    same(exe, RNG.random((3, 4)) < 0.3, RNG.random((4, 3)) < 0.3)
    assert "on the host, for want of a template: 1 x matmul" in str(exe.counts)


def test_a_decision_that_a_branch_reads() -> None:
    x = Var("x", tensor("float32", N, 4))
    b = Builder()
    small = b.emit(ops.dim_less, dim=N, than=4)
    halves = []
    for op in (ops.exp, ops.neg):
        inner = Builder()
        chosen = inner.emit(ops.where, small, x, inner.emit(op, x))
        halves.append(inner.function("", (), [chosen]))
    fn = b.function("main", [x], b.emit_all(IF, small, then=halves[0], orelse=halves[1]))
    exe = bucketize.compile(Module({"main": fn}))
    for size in (3, 4):
        same(exe, random(size, 4))


def test_a_call_is_checked_against_what_the_caller_was_told() -> None:
    fn = mlp()
    inner = Function("inner", fn.params, fn.body, fn.results)
    x = Var("x", tensor("float32", N, 12))
    b = Builder()
    (y,) = b.emit_all(CALL, x, callee="inner", types=(tensor("float32", 7, 5),))
    main = b.function("main", [x], [b.emit(ops.add, y, weight(7, 5))])
    exe = bucketize.compile(Module({"main": main, "inner": inner}))
    same(exe, random(7, 12))
    with pytest.raises(ShapeError, match="result '0', axis 0: expected 7, got 2"):
        exe.run(random(2, 12))


def test_a_bucket_where_the_model_is_not_legal_names_the_clone() -> None:
    x = Var("x", tensor("float32", 1, 3, Symbol("H"), 8))
    b = Builder()
    fn = b.function("main", [x], [b.emit(ops.conv2d, x, weight(4, 3, 3, 3))])
    mod = dispatch(Module({"main": fn}), lambda _: [{"H": (1, 2)}, {"H": (2, None)}])
    with pytest.warns(BucketizeWarning, match=r"^1 of 2 clones refuse every run: main\[H=1\] is"):
        exe = bucketize.compile(mod)
    same(exe, random(1, 3, 5, 8))
    wanted = r"^main\[H=1\] is not legal: a window of 3 .* over 1\+0\+0, in conv2d\(.*\)"
    for attempt in (lambda: exe.run(random(1, 3, 1, 8)), lambda: exe.explain(H=1)):
        with pytest.raises(TypeRelError, match=wanted):
            attempt()


@pytest.mark.parametrize("inside", [False, True])
def test_a_branch_that_no_size_makes_legal_is_refused_when_it_is_taken(inside: bool) -> None:
    """An extent known only when made has a name once code is cut: `any1` is never `any1 + 1`."""
    x, taken = Var("x", tensor("float32", Symbol("N", 0))), Var("taken", tensor("bool"))
    b, then, orelse = Builder(), Builder(), Builder()
    makes = then if inside else b
    found = makes.emit(ops.unsqueeze, makes.emit_all(ops.unique, x, axis=0)[1], axes=(0,))
    wider = makes.emit(ops.pad, found, pads=((0, 0), (0, 1)))
    other = orelse.emit(ops.nonzero, x)
    blocks = {
        "then": then.function("", (), [then.emit(ops.concat, found, wider, axis=0)]),
        "orelse": orelse.function("", (), [orelse.emit(ops.concat, other, other, axis=0)]),
    }
    fn = b.function("main", [x, taken], [b.emit(IF, taken, **blocks)])
    exe = bucketize.compile(Module({"main": fn}))
    (got,) = exe.run(np.array([0, 1, 2], np.float32), np.array(False))
    assert got.tolist() == [[1, 2], [1, 2]]
    with pytest.raises(TypeRelError, match=r"differ: (any\d) and \1 \+ 1, in concat\("):
        exe.run(np.array([0, 1, 2], np.float32), np.array(True))


def test_illegal_clones_are_named_in_one_warning() -> None:
    x = Var("x", tensor("float32", Symbol("N", 1, 8), 3, Symbol("H", 1, 8), 8))
    b = Builder()
    fn = b.function("main", [x], [b.emit(ops.conv2d, x, weight(4, 3, 3, 3))])
    heights = (1, 2), (2, 6)
    cuts = [{"N": (n, n + 1), "H": height} for n in range(1, 6) for height in heights]
    mod = dispatch(Module({"main": fn}), lambda _: cuts)
    told = r"5 of 10 clones refuse every run: main\[N=1,H=1\] is .* equal want one symbol$"
    with pytest.warns(BucketizeWarning, match=told) as warned:
        exe = bucketize.compile(mod)
    assert len(warned) == 1
    exe.warm_up()
    bucketize.compile(mod, lazy=True)  # nothing is decided, and nothing said


def test_warming_up_finds_legal_sizes_and_goes_on_where_there_are_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = Var("x", tensor("float32", 1, 3, Symbol("H", 1, 9), 8))
    b = Builder()
    fn = b.function("main", [x], [b.emit(ops.conv2d, x, weight(4, 3, 3, 3))])
    exe = bucketize.compile(
        dispatch(Module({"main": fn}), lambda _: [{"H": (1, 3)}, {"H": (3, 9)}])
    )
    ran: list[tuple[int, ...]] = []
    gated = Serving.gated

    def watched(serving: Serving, name: str, inputs: list[Any]) -> list[Any]:
        ran.append(inputs[0].shape)
        return gated(serving, name, inputs)

    monkeypatch.setattr(Serving, "gated", watched)
    with pytest.warns(BucketizeWarning, match=r"^main\[H=1..2\] stays cold: .*at the least: a win"):
        exe.warm_up()
    assert [shape[2] for shape in ran] == [1, 2, 3, 1, 2, 4]


def test_a_branch_that_is_not_legal_in_a_bucket_is_refused_where_it_is_taken() -> None:
    x, y = Var("x", tensor("float32", N, 4)), Var("y", tensor("float32", M, 4))
    then, orelse, b = Builder(), Builder(), Builder()
    halves = {
        "then": then.function("", (), [then.emit(ops.add, x, y)]),
        "orelse": orelse.function("", (), [orelse.emit(ops.neg, x)]),
    }
    positive = b.emit(ops.greater, b.emit(ops.reduce_max, x, axes=(0, 1)), scalar(0))
    fn = b.function("main", [x, y], [b.emit(IF, positive, **halves)])
    cuts = {"x": {0: [(2, 3), (3, 4)]}, "y": {0: [(3, 4)]}}
    exe = bucketize.compile(dispatch(Module({"main": fn}), lambda _: cuts))
    ones = np.ones((3, 4), np.float32)
    for sign in (1, -1):
        same(exe, sign * ones, ones)
    same(exe, -ones[:2], ones)
    with pytest.raises(TypeRelError, match=r"extents differ: 2 and 3, in add\("):
        exe.run(ones[:2], ones)


def test_extents_that_must_broadcast_are_checked_inside_groups_and_among_dims() -> None:
    x = Var("x", tensor("float32", N, 1, 3))
    b = Builder()
    where = b.emit(ops.nonzero, x)
    chosen = b.emit(ops.where, b.emit(ops.less, where, where), x, x)
    exe = bucketize.compile(Module({"main": b.function("main", [x], [b.emit(ops.neg, chosen)])}))
    ones = np.ones((2, 1, 3), np.float32)
    same(exe, np.where([True, False, False], ones[:1], 0).astype(np.float32))
    same(exe, ones[:1])
    with pytest.raises(BucketizeError, match=r"does not hold|extents differ"):
        exe.run(ones)
    y, b = Var("y", tensor("float32", N, M)), Builder()
    told = b.emit(ops.from_dims, dims=(broadcast(N, M), 3))
    cuts = {"y": {0: [(1, 2), (2, 3), (3, None)]}}
    mod = dispatch(Module({"main": b.function("main", [y], [told])}), lambda _: cuts)
    exe = bucketize.compile(mod)
    same(exe, random(1, 7))
    for size in (2, 3):
        with pytest.raises(BucketizeError, match=r"does not hold|extents differ"):
            exe.run(random(size, 7))


def test_fused_ops_round_one_by_one() -> None:
    """x*x - x*x is 0: a product that is fused into the difference would not be rounded."""
    x, y = Var("x", tensor("float32", N, 64)), Var("y", tensor("float32", N, 64))
    b = Builder()
    out = b.emit(ops.sub, b.emit(ops.mul, x, x), b.emit(ops.mul, y, y))
    exe = bucketize.compile(Module({"main": b.function("main", [x, y], [out])}))
    given = random(16, 64)
    assert not exe.run(given, given.copy())[0].any()


def test_a_shape_seen_before_takes_the_short_cut_to_the_same_results() -> None:
    b_, a = Var("b", tensor("float32", N, 4)), Var("a", tensor("float32", 4, N))
    b = Builder()
    fn = b.function("main", [b_, a], [b.emit(ops.matmul, b_, b.emit(ops.relu, a))])
    exe = bucketize.compile(dispatch(Module({"main": fn}), log_dispatcher_on("b", 0)))
    for size in (3, 5, 3, 5, 3):
        same(exe, random(size, 4), random(4, size))
    with pytest.raises(ShapeError, match="expected float32, got float64"):
        exe.run(np.zeros((3, 4)), random(4, 3))


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (1, 1), (1,)])
def test_the_short_cut_gives_results_in_the_order_of_the_function(order: tuple[int, ...]) -> None:
    x = Var("x", tensor("float32", N, 4))
    b = Builder()
    made = [b.emit(ops.relu, x), b.emit(ops.softmax, x, axis=1)]
    fn = b.function("main", [x], [made[i] for i in order])
    exe = bucketize.compile(dispatch(Module({"main": fn}), log_dispatcher))
    for size in (3, 5, 5):
        same(exe, random(size, 4))
    (context,) = exe._serving.idle
    assert context._seen[exe.program.routines["main"]].route is not None


def log_dispatcher_on(name: str, axis: int) -> Any:
    return lambda shapes: {name: {axis: log_dispatcher(shapes)[name][axis]}}


def test_inputs_that_are_not_contiguous() -> None:
    same(bucketize.compile(Module({"main": mlp()})), random(12, 7).T)


def test_shapes_that_depend_on_values() -> None:
    x = Var("x", tensor("float32", N, 4))
    b = Builder()
    rows, *_ = b.emit_all(ops.unique, b.emit(ops.relu, x), axis=0)
    taken = b.emit(ops.gather, rows, Const(np.asarray(0)), axis=1)
    fn = b.function("main", [x], [b.emit(ops.exp, taken), rows])
    exe = bucketize.compile(Module({"main": fn}))
    for size in (1, 5):
        same(exe, random(size, 4))
    same(exe, -np.ones((2, 4), np.float32))
    assert re.search(r"(?m)^exp +\(any\d\) ", str(exe.explain(N=5)))


def test_a_shape_that_only_numpy_finds_says_why() -> None:
    graph = (
        "(float[N, 4, 2] x, int64[2] axes) => (y) "
        "{ s = ReduceSum<keepdims = 0>(x, axes) y = Neg(s) }"
    )
    exe = bucketize.compile(bucketize.from_onnx(parse(graph)))
    same(exe, random(5, 4, 2), np.array([2, 0]))
    told = str(exe.explain(N=5))
    assert re.search(r"(?m)^s +dyn.reduce_sum +\(any\d\) +numpy +its shape depends on values", told)


def test_a_branch_that_depends_on_values() -> None:
    x = Var("x", tensor("float32", N, 4))
    b = Builder()
    total = b.emit(ops.reduce_sum, x, axes=(0, 1), keepdims=False)
    positive = b.emit(ops.greater, total, Const(np.float32(0).reshape(())))
    halves = []
    for op in (ops.exp, ops.neg):
        inner = Builder()
        halves.append(inner.function("", (), [inner.emit(op, inner.emit(ops.relu, x))]))
    (y,) = b.emit_all(IF, positive, then=halves[0], orelse=halves[1])
    exe = bucketize.compile(Module({"main": b.function("main", [x], [b.emit(ops.relu, y)])}))
    same(exe, np.ones((3, 4), np.float32))
    same(exe, -np.ones((3, 4), np.float32))
    assert "a branch that depends on values" in str(exe.explain(N=3))


def test_a_branch_that_sizes_decide_is_explained_and_predicted_as_it_is_taken() -> None:
    graph = (
        "(float[A, B] x) => (y) <int64 at0 = {0}, int64 at1 = {1}> "
        "{ s = Shape(x) a = Gather(s, at0) b = Gather(s, at1) c = Greater(a, b) "
        "h = If(c) <then_branch = t () => (float[A, B] u) { u = Softmax(x) }, "
        "else_branch = e () => (float[A, B] v) { k = CumSum(x, at1) v = Neg(k) }> y = Relu(h) }"
    )
    exe = bucketize.compile(bucketize.from_onnx(parse(graph)))
    for a, ops_ in ((3, ["greater", "softmax"]), (1, ["greater", "cumsum", "neg"])):
        its = exe.explain(A=a, B=2)
        assert [step["op"] for step in its.steps] == [*ops_, "relu"]
        assert its.headline == f"A={a}, B=2: main (vm executor)"
        assert len(its.seconds) == len(its.steps)
        assert exe.memory(A=a, B=2).results == a * 2 * 4
        same(exe, random(a, 2))


def test_of_the_segment_of_a_condition_only_what_it_is_made_of_is_run_to_explain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = (
        "(float[A, B] x) => (y) <int64 at0 = {0}, int64 at1 = {1}> "
        "{ s = Shape(x) z = ConstantOfShape(s) a = Gather(s, at0) b = Gather(s, at1) "
        "c = Greater(a, b) h = If(c) <then_branch = t () => (float[A, B] u) { u = Exp(z) }, "
        "else_branch = e () => (float[A, B] w) { w = Neg(z) }> y = Add(h, x) }"
    )
    exe = bucketize.compile(bucketize.from_onnx(parse(graph)))
    run: list[str] = []

    def watched(fn: Function, args: Any, **known: Any) -> Any:
        run.extend(b.op.name for b in fn.body)
        return run_function(fn, args, **known)

    monkeypatch.setattr("bucketize.program.path.run_function", watched)
    assert [step["op"] for step in exe.explain(A=3, B=2).steps] == ["full", "greater", "exp", "add"]
    assert set(run) == {"from_dims", "greater"}


def test_calls_between_functions() -> None:
    fn = mlp()
    inner = Function("inner", fn.params, fn.body, fn.results)
    x = Var("x", tensor("float32", N, 12))
    b = Builder()
    (y,) = b.emit_all(CALL, x, callee="inner", types=(tensor("float32", ANY, 5),))
    main = b.function("main", [x], [b.emit(ops.relu, y)])
    same(bucketize.compile(Module({"main": main, "inner": inner})), random(3, 12))


@pytest.mark.parametrize("reduced", [ops.reduce_max, ops.reduce_min, ops.reduce_prod], ids=str)
def test_each_reader_of_padding_finds_the_value_that_it_leaves_out(reduced: Any) -> None:
    """Inputs are padded with 0, which is no element that leaves a maximum or a product as it is."""
    x = Var("data", tensor("float32", N, 4))
    b = Builder()
    results = [b.emit(op, x, axes=(0,)) for op in (ops.reduce_sum, reduced, ops.reduce_sum)]
    mod = Module({"main": b.function("main", [x], [*results, b.emit(ops.relu, x)])})
    exe = bucketize.compile(dispatch(mod, log_dispatcher, policy="pad"))
    for size in (3, 5, 11):
        for sign in (1, -1):
            given = sign * (np.abs(random(size, 4)) + 0.5)
            for got, want in zip(exe.run(given), evaluate_module(mod, given), strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-4)


@pytest.mark.parametrize("given", [(ANY, ANY), (Symbol("N"), 10), (Symbol("N"), Symbol("M"))])
@pytest.mark.parametrize("taken", [(10, 10), (Symbol("K"), Symbol("K")), (Symbol("K", 1, 12), 10)])
def test_a_function_checks_what_its_caller_could_not_tell(given: Any, taken: Any) -> None:
    p, x = Var("p", tensor("float32", *taken)), Var("x", tensor("float32", *given))
    b = Builder()
    inner = b.function("inner", [p], [b.emit(ops.relu, p)])
    b = Builder()
    (y,) = b.emit_all(CALL, x, callee="inner", types=(p.type,))
    mod = Module({"main": b.function("main", [x], [y]), "inner": inner})
    exe = bucketize.compile(mod)
    same(exe, random(10, 10))
    for run in (exe.run, lambda a: evaluate_module(mod, a)):
        with pytest.raises(ShapeError, match=r"'[px]', axis [01]: expected"):
            run(random(9, 11))


def test_the_pad_policy_runs_static_clones() -> None:
    x = Var("data", tensor("float32", N, 8))
    b = Builder()
    scores = b.emit(ops.matmul, x, b.emit(ops.transpose, x, axes=(1, 0)))
    out = b.emit(ops.matmul, b.emit(ops.softmax, scores, axis=1), x)
    mod = Module({"main": b.function("main", [x], [out])})
    exe = bucketize.compile(dispatch(mod, log_dispatcher, policy="pad"))
    for size in (1, 2, 3, 5, 8, 11, 16):
        given = random(size, 8)
        want = evaluate_module(mod, given)[0]
        np.testing.assert_allclose(exe.run(given)[0], want, rtol=1e-4, atol=1e-5)
    assert exe.explain(N=11).executor == "graph"


def test_profiles_by_size_and_by_name() -> None:
    boxes = [
        Profile({"data": (1, 12)}, {"data": (2, 12)}, {"data": (8, 12)}, "small"),
        Profile({"data": (4, 12)}, {"data": (16, 12)}, {"data": (16, 12)}, "big"),
    ]
    exe = bucketize.compile(dispatch(Module({"main": mlp()}), lambda shapes: boxes))
    x = random(6, 12)
    assert exe.explain(N=6).clone == "main[small:N=1..8]"
    np.testing.assert_allclose(exe.run_clone("big", x)[0], exe.run(x)[0], rtol=1e-5, atol=1e-5)
    with pytest.raises(ShapeError, match=r"expected N in \[4, 16\], got 2"):
        exe.run_clone("big", random(2, 12))
    with pytest.raises(UnknownNameError, match="no clone named 'huge'; known: main, main"):
        exe.run_clone("huge", x)


def test_lazy_and_strict() -> None:
    mod = dispatch(Module({"main": mlp()}), log_dispatcher)
    exe = bucketize.compile(mod, lazy=True)
    assert list(exe.routines) == ["main"]
    exe.run(random(3, 12))
    assert list(exe.routines) == ["main", "main[N=2..3]"]
    exe = bucketize.compile(mod, lazy=True, strict=True)
    with pytest.raises(CompileError, match=r"main\[N=2..3\] is not compiled"):
        exe.run(random(3, 12))


def test_warm_up_runs_every_clone() -> None:
    seen: list[str] = []
    exe = bucketize.compile(dispatch(Module({"main": mlp()}), log_dispatcher), lazy=True)
    exe.warm_up(progress=lambda name, done, total: seen.append(f"{name} {done}/{total}"))
    assert len(exe.routines) == 5
    assert seen[1] == "main[N=2..3] 1/4"
    exe.warm_up(progress=True)
    with pytest.raises(ArgumentError, match="progress: expected True, None or a function"):
        exe.warm_up(progress=7)


def test_the_counts_say_what_was_compiled() -> None:
    exe = bucketize.compile(Module({"main": mlp()}))
    assert (exe.counts.found, exe.counts.defaults) == (0, 2)
    assert str(exe.counts).startswith(
        "2 kernel calls: 0 with schedules from the log, 2 on defaults"
    )
    assert exe.constant_bytes() > 0


def test_a_logged_schedule_of_other_knobs_is_no_schedule(tmp_path: Path) -> None:
    log, mod = tmp_path / "trials.csv", Module({"main": mlp(3)})
    bucketize.tune(mod, log=log, trials=1)
    (verdict,) = [row for row in rows(log) if row.level == CLONE]
    made = {task.workload.hash: str(task.default) for task in tasks_of(mod)}
    faster = {"run_id": "later", "timestamp": LATER, "ratio_low": 0.8, "ratio_high": 0.9}
    append(log, replace(verdict, schedule=json.dumps(made), **faster))
    assert bucketize.compile(mod, log=log).counts.found == 2
    log.write_text(log.read_text().replace("mr=", "rm="))
    told = "main was tuned to matmul .*rm=.*, which is not legal any more: its default stays"
    with pytest.warns(BucketizeWarning, match=told):
        assert bucketize.compile(mod, log=log).counts.found == 0


def test_bad_rows_of_a_log_end_neither_compile_nor_tune(tmp_path: Path) -> None:
    log, mod = tmp_path / "trials.csv", Module({"main": mlp(3)})
    bucketize.tune(mod, log=log, trials=1)
    good = rows(log)
    for change in ({"schedule": "[1]"}, {"weight": 0.0}, {"shape": "x"}, {"template": "none"}):
        append(log, replace(good[0], **change))
    first = rf"left out 4 bad row\(s\), the first in line {len(good) + 2}: schedule"
    with pytest.warns(LogWarning, match=first):
        assert bucketize.compile(mod, log=log).counts.found == 2
    with pytest.warns(LogWarning, match="left out 4"):
        assert bucketize.tune(mod, log=log, trials=1).empty


def test_the_graph_executor_takes_static_functions_only() -> None:
    with pytest.raises(CompileError, match=r"input 'data', axis 0 is N; first in fused"):
        bucketize.compile(Module({"main": mlp()}), executor="graph")
    same(bucketize.compile(Module({"main": mlp(4)}), executor="graph"), random(4, 12))
    x = Var("x", tensor("float32", 2, 4))
    b = Builder()
    fn = b.function("main", [x], [b.emit(ops.nonzero, x)])
    with pytest.raises(CompileError, match=r"the shape of dyn\.nonzero_rows depends on values"):
        bucketize.compile(Module({"main": fn}), executor="graph")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e: e.run(random(17, 12)), r"input 'data', axis 0: expected N in \[1, 16\], got 17"),
        (lambda e: e.run(random(2, 13)), "input 'data', axis 1: expected 12, got 13"),
        (lambda e: e.run(random(2, 3, 4)), "expected rank 2 .* got 3"),
        (
            lambda e: e.run(np.zeros((2, 12))),
            r"expected float32, got float64; \.astype\(numpy\.float32\) converts it$",
        ),
        (lambda e: e.run(np.zeros((2, 12), bool).astype("U1")), "expected float32, got <U1$"),
        (lambda e: e.run(), "expected the inputs data; missing: data"),
        (lambda e: e.run(random(2, 12), random(2, 12)), "expected the inputs data; got 2"),
        (lambda e: e.run(random(2, 12), data=random(2, 12)), "given twice"),
    ],
)
def test_illegal_inputs(call: Any, message: str) -> None:
    exe = bucketize.compile(dispatch(Module({"main": mlp()}), log_dispatcher), lazy=True)
    with pytest.raises(ShapeError, match=message):
        call(exe)


def test_what_types_leave_open_is_checked_at_run_time() -> None:
    k, j = Symbol("K"), Symbol("J")
    x, y = Var("x", tensor("float32", 2, k)), Var("y", tensor("float32", j, 3))
    b = Builder()
    product = Module({"main": b.function("main", [x, y], [b.emit(ops.matmul, x, y)])})
    exe = bucketize.compile(product)
    same(exe, random(2, 5), random(5, 3))
    with pytest.raises(TypeRelError, match="extents differ: 5 and 4") as e:
        exe.run(random(2, 5), random(4, 3))
    assert "in matmul(float32[2, 5], float32[4, 3])" in e.value.notes[0]
    b = Builder()
    view = b.function("main", [x], [b.emit(ops.relu, b.emit(ops.reshape, x, newshape=(4, 3)))])
    exe = bucketize.compile(Module({"main": view}))
    same(exe, random(2, 6))
    with pytest.raises(TypeRelError, match=r"\[2, 5\] has 10 elements, not 12 as \[4, 3\]") as e:
        exe.run(random(2, 5))
    assert e.value.notes == (
        "in reshape(float32[2, 5]) {'newshape': (4, 3), 'allow_zero': True}",
        "at K=5: 2*K and 12 must be equal, got 10 and 12",
    )


def test_sizes_are_explained_by_name() -> None:
    exe = bucketize.compile(Module({"main": mlp()}), lazy=True)
    with pytest.raises(ArgumentError, match=r"by name, as in explain\(.*\), got 77"):
        exe.explain(77)
    with pytest.raises(ShapeError, match="axis 0: expected N=5, got 3"):
        exe.explain(data=(3, 12), N=5)


def test_illegal_calls() -> None:
    mod = Module({"main": mlp()})
    exe = bucketize.compile(mod)
    with pytest.raises(UnknownNameError, match="no input named 'dota'; known: data"):
        exe.run(dota=random(2, 12))
    with pytest.raises(UnknownNameError, match="no input or symbol named 'M'"):
        exe.explain(M=3)
    with pytest.raises(ShapeError, match="the size of N is missing"):
        exe.explain()
    with pytest.raises(ShapeError, match=r"expected N in \[1, 16\], got 77"):
        exe.explain(N=77)
    for wrong in ("a", 1.5):
        with pytest.raises(ShapeError, match=f"N: expected an integer, got {wrong!r}"):
            exe.explain(N=wrong)
    with pytest.raises(ShapeError, match=r"input 'data': expected a shape, .* got 3"):
        exe.explain(data=3)
    for given in ({"N": 2, "data": (3, 12)}, {"data": (3, 12), "N": 2}):
        with pytest.raises(ShapeError, match="input 'data', axis 0: expected N=2, got 3"):
            exe.explain(**given)
    for run in (exe.run, exe.run_named, partial(evaluate_module, mod)):
        with pytest.raises(ArgumentError, match=r"got a mapping; unpack it: run\(\*\*inputs\), or"):
            run({"data": random(2, 12)})
        with pytest.raises(
            ArgumentError, match="input 1: expected an array, got a mapping; unpack"
        ):
            run(None, {"data": random(2, 12)})
    with pytest.raises(ShapeError, match=r"input 'data': expected an array: .*inhomogeneous"):
        exe.run([[1.0], [1.0, 2.0]])
    x, y = Var("x", tensor("float32", 2)), Var("y", tensor("float32", 2))
    b = Builder()
    two = bucketize.compile(Module({"main": b.function("main", [x, y], [b.emit(ops.add, x, y)])}))
    with pytest.raises(ArgumentError, match="input 'x': expected an array, got a mapping; unpack"):
        two.run({"x": random(2), "y": random(2)})
    with pytest.raises(CompileError, match=r"threads: expected 1 to \d+, got '2'"):
        bucketize.compile(mod, threads="2")  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match="no executor named 'gpu'"):
        bucketize.compile(mod, executor="gpu")
    with pytest.raises(CompileError, match="threads: expected 1 to"):
        bucketize.compile(mod, threads=99)


def only(op: Any, *types: Any, **attrs: Any) -> bucketize.Executable:
    """An executable of one op."""
    params = [Var(f"x{i}", t) for i, t in enumerate(types)]
    b = Builder()
    return bucketize.compile(
        Module({"main": b.function("main", params, b.emit_all(op, *params, **attrs))})
    )


def test_an_axis_that_may_be_1_is_broadcast_to_a_greater_one() -> None:
    exe = only(ops.broadcast_to, tensor("float32", N), shape=(2, 5))
    same(exe, random(1))
    same(exe, random(5))
    with pytest.raises(TypeRelError, match="extents differ: 3 and 5"):
        exe.run(random(3))
    same(exe, random(1))


EMPTY = tensor("float32", Symbol("E", 0, 9), 4)


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        (ops.reduce_max, {"axes": (0,)}),
        (ops.reduce_min, {"axes": (0,), "keepdims": True}),
        (ops.softmax, {"axis": 0}),
        (ops.log_softmax, {"axis": 0}),
        (ops.reshape, {"newshape": (Symbol("E", 0, 9) * 4,)}),
    ],
)
def test_an_axis_of_no_elements(op: Any, attrs: dict[str, Any]) -> None:
    exe = only(op, EMPTY, **attrs)
    for size in (3, 0, 2):
        same(exe, random(size, 4))


@pytest.mark.parametrize(
    ("op", "attrs", "message"),
    [
        (ops.argmax, {"axis": 0}, r"axis 0 of \[0, 4\] has no elements"),
        (ops.pad, {"pads": ((1, 0), (0, 0)), "mode": "edge"}, "an axis of no elements has no edge"),
        (ops.pad, {"pads": ((0, 1), (0, 0)), "mode": "wrap"}, "an axis of no elements has no wrap"),
    ],
)
def test_an_axis_of_no_elements_that_needs_one(op: Any, attrs: Any, message: str) -> None:
    exe = only(op, EMPTY, **attrs)
    same(exe, random(2, 4))
    with pytest.raises(TypeRelError, match=message):
        exe.run(random(0, 4))
    same(exe, random(3, 4))


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_a_window_that_does_not_fit_at_run_time(stride: int) -> None:
    image = tensor("float32", 1, 2, Symbol("H"), 8)
    steps = {"strides": (stride, 1)}
    for exe, *more in (
        (only(ops.max_pool2d, image, kernel=(3, 1), **steps),),
        (only(ops.conv2d, image, tensor("float32", 2, 2, 3, 1), **steps), random(2, 2, 3, 1)),
    ):
        same(exe, random(1, 2, 4, 8), *more)
        for height in (1, 2):
            with pytest.raises(TypeRelError, match="a window of 3"):
                exe.run(random(1, 2, height, 8), *more)
        same(exe, random(1, 2, 3, 8), *more)


def test_what_numpy_refuses_on_the_host_is_an_error_of_the_input() -> None:
    exe = only(ops.dyn_reshape, tensor("float32", N, 4), tensor("int64", 2))
    same(exe, random(2, 4), np.array([4, 2]))
    for run in (exe.run, partial(evaluate_module, exe.module)):
        with pytest.raises(TypeRelError, match=r"8 elements, not 9 as \[3, 3\]"):
            run(random(2, 4), np.array([3, 3]))
    exe = only(ops.dyn_full, tensor("int64", 1), value=1.0, dtype="float32")
    with pytest.raises(ShapeError, match=r"in dyn.full: a negative extent in \[-1\]"):
        exe.run(np.array([-1]))


def test_a_bucket_that_no_size_of_is_legal_compiles_and_refuses() -> None:
    x = Var("x", tensor("float32", N, 12))
    b = Builder()
    tail = b.emit(ops.pad, x, pads=((-4, 0), (0, 0)))
    fn = b.function("main", [x], [b.emit(ops.matmul, tail, weight(12, 5))])
    exe = bucketize.compile(
        dispatch(Module({"main": fn}), lambda _: [{"N": (1, 3)}, {"N": (3, None)}])
    )
    same(exe, random(7, 12))
    with pytest.raises(ShapeError, match="cut more than there is"):
        exe.run(random(2, 12))
    same(exe, random(4, 12))


def test_inputs_of_extents_without_names() -> None:
    """They are named, so that kernels serve them like any other."""
    x, y = Var("x", tensor("float32", N, 4)), Var("y", tensor("float32", ANY, ANY))
    b = Builder()
    total = b.emit(ops.add, b.emit(ops.tanh, x), y)
    fn = b.function("main", [x, y], [total, b.emit(ops.transpose, y, axes=(1, 0))])
    exe = bucketize.compile(Module({"main": fn}), executor="vm")
    assert not exe.counts.host
    for shape in ((3, 4), (1, 4), (3, 1), (1, 1)):
        same(exe, random(3, 4), random(*shape))
    with pytest.raises(TypeRelError, match="extents differ"):
        exe.run(random(3, 4), random(2, 4))
    assert exe.explain(x=(3, 4), y=(1, 4)).steps[0]["kernel"] == "elementwise"
    with pytest.raises(ShapeError, match="the size of y_0, y_1 is missing"):
        exe.explain(N=3)


def test_a_run_without_memory_leaves_the_table_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    exe = bucketize.compile(Module({"main": mlp()}))
    same(exe, random(2, 12))

    def full(shape: tuple[int, ...], _dtype: Any) -> Any:
        raise ShapeError(f"no memory for {shape}")

    with monkeypatch.context() as patched:
        patched.setattr("bucketize.runtime.state.empty_result", full)
        with pytest.raises(ShapeError, match="no memory"):
            exe.run(random(16, 12))
    same(exe, random(16, 12))


def test_without_fallback_the_error_names_size_and_buckets() -> None:
    mod = Module({"main": mlp()})
    mod = dispatch(mod, lambda shapes: {"data": {0: [(2, 4), (4, 8)]}}, fallback=False)
    exe = bucketize.compile(mod, lazy=True)
    for attempt in (lambda: exe.run(random(1, 12)), lambda: exe.explain(N=1)):
        with pytest.raises(NoBucketError, match=r"covers N=1; buckets: N=2..3, 4..7"):
            attempt()


def test_extents_that_a_tensor_tells_are_read_and_the_op_runs_natively() -> None:
    x = Var("x", tensor("float32", N, 1))
    shape, repeats = Var("shape", tensor("int64", 2)), Var("repeats", tensor("int64", 2))
    b = Builder()
    wide = b.emit(ops.relu, b.emit(dyn_broadcast_to, x, shape))
    tiled = b.emit(dyn_tile, wide, repeats)
    twos = b.emit(ops.neg, b.emit(dyn_full, shape, value=2.0, dtype="float32"))
    exe = bucketize.compile(
        Module({"main": b.function("main", [x, shape, repeats], [tiled, twos])})
    )
    assert exe.counts.host == {}
    for extents, times in (([3, 4], [2, 1]), ([1, 7], [1, 3]), ([3, 1], [0, 1])):
        same(exe, random(3, 1), np.array(extents), np.array(times))
    with pytest.raises(TypeRelError, match="extents differ: 3 and 2") as e:
        exe.run(random(3, 1), np.array([2, 4]), np.array([1, 1]))
    assert "at N=3, any1=2, any2=4" in e.value.notes
    with pytest.raises(ShapeError, match=r"in dyn.broadcast_to: a negative extent in \[-3, 4\]"):
        exe.run(random(3, 1), np.array([-3, 4]), np.array([1, 1]))


@pytest.mark.parametrize(
    ("graph", "inputs", "told"),
    [
        (
            "(int64[2] s, float[1] v) => (y) { [grown] a = Expand(v, s) y = Relu(a) }",
            [np.array([1 << 31, 1 << 30]), random(1)],
            "at axis 0 of the result of 'grown'=2147483648, axis 1 of the result of "
            f"'grown'=1073741824: {PASSES}",
        ),
        (
            "(float[N] x, float[C] y) => (z) "
            "{ p = NonZero(x) q = Cast<to = 1>(p) [sum] z = Add(q, y) }",
            [random(6), random(4)],
            "at C=4, N=6, axis 1 of the result of 'p'=6",
        ),
    ],
)
def test_extents_without_names_are_told_by_a_node_and_an_axis(
    graph: str, inputs: list[np.ndarray], told: str
) -> None:
    exe = bucketize.compile(bucketize.from_onnx(parse(graph)))
    with pytest.raises(BucketizeError) as e:
        exe.run(*inputs)
    assert told in (e.value.message, *e.value.notes)


def test_contexts_of_one_executable_run_side_by_side() -> None:
    exe = bucketize.compile(Module({"main": mlp()}))
    inputs = [random(n, 12) for n in range(1, 17)]
    want = [exe.run(x)[0] for x in inputs]
    contexts = [exe.context() for _ in range(3)]
    runs = [*contexts, exe.run, exe.run, exe.run]

    def check(k: int) -> None:
        for _ in range(30):
            for i in dice(k).permutation(len(inputs)):
                np.testing.assert_array_equal(runs[k](data=inputs[i])[0], want[i])

    with ThreadPoolExecutor(len(runs)) as pool:
        list(pool.map(check, range(len(runs))))


def dice(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_a_call_inside_which_a_call_is_made_has_its_own_memory() -> None:
    """What a context holds is not lent twice, even when its call has failed."""
    exe = bucketize.compile(Module({"main": mlp()}))
    with pytest.raises(ShapeError):
        exe.run(random(17, 12))
    same(exe, random(3, 12))
    assert len(exe._serving.idle) == 1


def test_an_interrupt_in_the_midst_of_a_run_leaves_no_stale_pointers() -> None:
    exe = bucketize.compile(Module({"main": mlp()}))
    same(exe, random(2, 12))
    (context,) = exe._serving.idle
    (state,) = context._states.values()
    walk = state.walk

    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    context.lent.arena = Arena()
    state.prepare((3,))
    state.walk = interrupted
    with pytest.raises(KeyboardInterrupt):
        exe.run(random(3, 12))
    state.walk = walk
    same(exe, random(3, 12))
    assert len(exe._serving.idle) == 1


def test_explaining_what_fails_keeps_the_context() -> None:
    mod = dispatch(Module({"main": mlp()}), lambda _: {"data": {0: [(1, 4)]}}, fallback=False)
    exe = bucketize.compile(mod)
    exe.run(random(2, 12))
    with pytest.raises(NoBucketError):
        exe.explain(N=9)
    assert len(exe._serving.idle) == 1


@pytest.mark.parametrize("way", ["eager", "lazy", "loaded"])
def test_the_last_reference_frees_an_executable(way: str, tmp_path: Path) -> None:
    """Weights are not kept until a collection of cycles, which may be long in coming."""
    exe = bucketize.compile(dispatch(Module({"main": mlp()}), log_dispatcher), lazy=way == "lazy")
    if way == "loaded":
        exe.save(tmp_path / "m.bkt")
        exe = bucketize.load(tmp_path / "m.bkt")
    exe.run(random(3, 12))
    assert exe.explain(N=3).steps
    kept = [weakref.ref(part) for part in (exe.image, exe.image.supply, exe.program.routines)]
    gc.collect()
    gc.disable()
    try:
        del exe
        assert [part() for part in kept] == [None, None, None]
    finally:
        gc.enable()
