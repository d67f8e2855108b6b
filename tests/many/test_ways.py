"""Which way requests share calls: by the models, within limits, on one thread or side by side."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from onnx_model import parse
from test_many import ENCODER, check, request_of

import bucketize
from bucketize import ops
from bucketize.dispatch.tree import dispatch
from bucketize.errors import (
    ArgumentError,
    BucketizeWarning,
    LateError,
    NoBucketError,
    RequestsError,
    ShapeError,
)
from bucketize.executable import Executable
from bucketize.inspect.predict import predictions
from bucketize.ir import CALL, Builder, Const, Module, Var
from bucketize.many import batched, packed
from bucketize.many.costs import WAITING, Costs
from bucketize.many.deliver import Delivery
from bucketize.many.fitting import Fitting
from bucketize.many.many import Many
from bucketize.many.plan import LANE_S, CallPlan, PlannedCall, Row, makespan
from bucketize.many.together import Together
from bucketize.runtime.serving import Serving
from bucketize.types import Sizes, Symbol, tensor
from dispatchers import log_dispatcher

pytestmark = pytest.mark.usefixtures("few_registers")

POOLED = ENCODER.replace("=> (y, first)", "=> (first)")
WIDTH = 8


def layers(rows: Symbol | None = None) -> Module:
    """Two products, each row by itself."""
    x, b = Var("x", tensor("float32", rows or Symbol("N", 1), WIDTH)), Builder()
    y = b.emit(ops.matmul, x, Const(np.eye(WIDTH, dtype=np.float32)))
    y = b.emit(ops.matmul, b.emit(ops.relu, y), Const(np.ones((WIDTH, 2), np.float32)))
    return Module({"main": b.function("main", [x], [y])})


def rows_of(counts: list[int]) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [{"x": rng.standard_normal((n, WIDTH)).astype(np.float32)} for n in counts]


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[str, Sizes, int], float]], None]:
    """Has what calls take be what a function says, by name, sizes and how many run at once."""

    def take(seconds: Callable[[str, Sizes, int], float]) -> None:
        def told(_: Costs, function: str, points: list[Sizes], lanes: int) -> list[float]:
            return [seconds(function, sizes, lanes) for sizes in points]

        monkeypatch.setattr(Costs, "seconds", told)
        for module in (batched, packed):
            monkeypatch.setattr(module, "OVERHEAD_S", 0.0)

    return take


def tokens_s(tokens: float, others: float) -> Callable[[str, Sizes, int], float]:
    """A millisecond for so many packed tokens, and what else a call takes."""

    def seconds(function: str, sizes: Sizes, lanes: int) -> float:
        return 1e-3 * sizes["tokens"] / tokens if function == "main[ragged]" else others

    return seconds


# --- packed, of a module that nobody made ragged ------------------------------------------------


@pytest.mark.parametrize("buckets", [False, True])
def test_what_can_be_packed_is(costs: Callable, buckets: bool) -> None:
    costs(tokens_s(1000, 1.0))
    mod = bucketize.from_onnx(parse(ENCODER), bounds={"B": (1, 8), "S": (1, 64)})
    exe = bucketize.compile(dispatch(mod, log_dispatcher) if buckets else mod)
    rng = np.random.default_rng(0)
    requests = [request_of(rng, n) for n in (3, 17, 40, 3)]
    plan = exe.plan_many(requests, tokens=512)
    assert [str(call) for call in plan.calls] == ["4 rows of 4 requests, packed: 63 tokens"]
    for request, got in zip(requests, exe.run_many(requests), strict=True):
        check(got, exe.run(**request), request["mask"])
    assert "main[ragged]" not in exe.program.routines
    assert "many requests: packed, whatever their lengths" in str(exe.explain(B=1, S=3))


def test_results_of_hidden_tokens_are_those_of_each_alone(costs: Callable) -> None:
    costs(tokens_s(1000, 1.0))
    rng = np.random.default_rng(0)
    hidden = [request_of(rng, 9, seen=5), request_of(rng, 7)]
    exe = bucketize.compile(bucketize.from_onnx(parse(ENCODER)))
    assert str(exe.plan_many(hidden).calls[0]) == (
        "request 0 as it is: its mask hides tokens, and only a ragged module has zeros for results "
        "of these"
    )
    for request, got in zip(hidden, exe.run_many(hidden), strict=True):
        np.testing.assert_allclose(got[0], exe.run(**request)[0], atol=1e-5)
    pooled = bucketize.compile(bucketize.from_onnx(parse(POOLED)))
    assert pooled.plan_many(hidden, tokens=512).calls[0].tokens == 12
    for request, got in zip(hidden, pooled.run_many(hidden), strict=True):
        np.testing.assert_allclose(got[0], pooled.run(**request)[0], atol=1e-5)


def test_what_rows_have_in_common_has_one_shape(costs: Callable) -> None:
    costs(tokens_s(1000, 1.0))
    mod = bucketize.from_onnx(
        parse("(float[B, S, 1, 1] x, float[K, L] w) => (y) { y = Mul(x, w) }")
    )
    exe = bucketize.compile(bucketize.ragged(mod, axis="S"))
    w = np.arange(6, dtype=np.float32)
    shapes = [((1, 3, 1, 1), (2, 3)), ((1, 5, 1, 1), (3, 2))]
    requests = [{"x": np.ones(x, np.float32), "w": w.reshape(v)} for x, v in shapes]
    for request, got in zip(requests, exe.run_many(requests), strict=True):
        np.testing.assert_array_equal(got[0], exe.run(**request)[0])
    free = bucketize.from_onnx(parse("(float[B, S, D] x, int64[B, S] mask) => (y) { y = Relu(x) }"))
    exe = bucketize.compile(free)
    arrays = [np.ones((1, 3, d), np.float32) for d in (4, 6, 4)]
    requests = [{"x": a, "mask": np.ones((1, 3), np.int64)} for a in arrays]
    assert [r[0].shape for r in exe.run_many(requests, tokens=99)] == [a.shape for a in arrays]
    assert [call.requests for call in exe.plan_many(requests, tokens=99).calls] == [(0, 2), (1,)]


def test_only_what_main_was_is_packed(costs: Callable) -> None:
    """Another function is dispatched: its original is not that of `main`."""
    costs(tokens_s(1000, 1.0))
    shape = Symbol("N", 1), Symbol("S", 1), WIDTH
    x, b = Var("x", tensor("float32", *shape)), Builder()
    callee = b.function("g", [x], [b.emit(ops.relu, x)])
    x, b = Var("x", tensor("float32", *shape)), Builder()
    (y,) = b.emit_all(CALL, x, callee="g", types=(tensor("float32", *shape),))
    y = b.emit(ops.sub, y, b.emit(ops.reduce_sum, y, axes=(0, 1), keepdims=True))
    mod = Module({"main": b.function("main", [x], [y]), "g": callee})
    by = dispatch(mod, lambda _: {"x": {1: [(1, 4), (4, None)]}}, function="g")
    exe = bucketize.compile(by)
    rng = np.random.default_rng(0)
    requests = [{"x": rng.standard_normal((1, n, WIDTH)).astype(np.float32)} for n in range(1, 9)]
    for request, got in zip(requests, exe.run_many(requests), strict=True):
        np.testing.assert_allclose(got[0], exe.run(**request)[0], atol=1e-5)


def test_to_explain_decides_nothing() -> None:
    exe = bucketize.compile(bucketize.from_onnx(parse(ENCODER)))
    before = str(exe.program), exe.counts
    assert "many requests: packed" in str(exe.explain(B=1, S=3))
    assert (str(exe.program), exe.counts) == before


def test_of_a_strict_executable_nothing_is_packed_late() -> None:
    exe = bucketize.compile(bucketize.from_onnx(parse(ENCODER)), lazy=True, strict=True)
    assert "its rows are not packed: to compile what is packed is forbidden" in str(exe._many())
    rng = np.random.default_rng(0)
    requests = [request_of(rng, n) for n in (3, 5)]
    assert [call.rows for call in exe.plan_many(requests).calls] == [(), ()]


def test_what_cannot_be_packed_says_why() -> None:
    exe = bucketize.compile(layers())
    assert str(exe._many()) == (
        "as batches of equal shapes; its rows are not packed: no input is called a mask, or has "
        "tokens behind its batch"
    )
    padded = dispatch(layers(Symbol("N", 1, 8)), log_dispatcher, policy="pad", fallback=False)
    why = "it is dispatched to clones that are padded, and has no original"
    assert why in str(bucketize.compile(padded)._many())
    x, b = Var("x", tensor("float32", Symbol("N", 1), Symbol("S", 1))), Builder()
    y = b.emit(ops.reduce_sum, x, axes=(0, 1), keepdims=False)
    exe = bucketize.compile(Module({"main": b.function("main", [x], [y])}))
    told = str(exe._many())
    assert told.startswith("each as it is; its rows are not known to keep apart: ")
    assert "; its rows are not packed: reduce_sum: " in told


def test_an_axis_is_one_of_tokens_where_that_is_proved(costs: Callable) -> None:
    costs(tokens_s(1000, 1.0))
    x, b = Var("x", tensor("float32", Symbol("N", 1), Symbol("S", 1), WIDTH)), Builder()
    y = b.emit(ops.matmul, x, Const(np.ones((WIDTH, 2), np.float32)))
    exe = bucketize.compile(Module({"main": b.function("main", [x], [y])}))
    arrays = [np.full((1, n, WIDTH), n, np.float32) for n in (2, 5)]
    assert len(exe.plan_many([{"x": a} for a in arrays], tokens=512).calls) == 1
    for array, got in zip(arrays, exe.run_many([{"x": a} for a in arrays]), strict=True):
        np.testing.assert_array_equal(got[0], exe.run(array)[0])


def test_packing_is_left_where_models_say_that_it_costs(costs: Callable) -> None:
    exe = bucketize.compile(bucketize.from_onnx(parse(ENCODER)))
    rng = np.random.default_rng(0)
    requests = [request_of(rng, n) for n in (3, 17, 40)]
    costs(tokens_s(1, 1e-3))
    assert [len(c.rows) for c in exe.plan_many(requests).calls] == [0, 0, 0]
    costs(tokens_s(1, 58e-3 / 3))  # 3 % more than packed: the usual way, in doubt
    assert [call.tokens for call in exe.plan_many(requests).calls] != [0, 0, 0]


# --- how many share a call ----------------------------------------------------------------------


def test_calls_have_the_fewest_tokens_that_cost_next_to_nothing_more(costs: Callable) -> None:
    exe = bucketize.compile(bucketize.ragged(bucketize.from_onnx(parse(ENCODER))))
    rng = np.random.default_rng(0)
    requests = [request_of(rng, 16) for _ in range(64)]
    costs(lambda _, sizes, lanes: 1e-6 * (sizes["tokens"] + 0.5))
    assert {call.tokens for call in exe.plan_many(requests).calls} == {64}
    costs(lambda _, sizes, lanes: 1e-6 * (sizes["tokens"] + 2))
    assert {call.tokens for call in exe.plan_many(requests).calls} == {256}
    costs(lambda _, sizes, lanes: 1e-6 * (sizes["tokens"] + 1e6))
    assert [call.tokens for call in exe.plan_many(requests).calls] == [1024]
    assert max(c.tokens for c in exe.plan_many(requests, tokens=40).calls) == 32


def test_a_batch_is_cut_where_that_is_cheapest(costs: Callable) -> None:
    exe = bucketize.compile(layers())
    taken = {1: 1.0, 2: 2.0, 3: 3.0, 4: 2.0, 5: 4.0}
    costs(lambda _, sizes, lanes: taken.get(sizes["N"], 9.0))
    plan = exe.plan_many(rows_of([1] * 5))
    assert [(len(call.rows), call.seconds) for call in plan.calls] == [(4, 2.0), (1, 1.0)]
    assert plan.seconds == 3.0
    plan = exe.plan_many([*rows_of([5]), *rows_of([3])])
    assert [len(call.rows) for call in plan.calls] == [4, 4]
    costs(lambda _, sizes, lanes: float(sizes["N"]))  # nothing to gain
    assert [call.requests for call in exe.plan_many(rows_of([1] * 3)).calls] == [(0,), (1,), (2,)]
    costs(lambda _, sizes, lanes: 1.0)
    assert [len(call.rows) for call in exe.plan_many(rows_of([1] * 100)).calls] == [100]
    for request, got in zip(rows_of([1] * 5), exe.run_many(rows_of([1] * 5)), strict=True):
        np.testing.assert_allclose(got[0], exe.run(**request)[0], atol=1e-6)


def test_of_very_many_rows_most_go_in_calls_that_cost_least_a_row() -> None:
    seconds = {1: 1.0, 2: 1.5, 100: 50.0, 4096: 1e3, 1_000_000: 1e6}
    parts = batched._cheapest(1_000_003, [*seconds], seconds)
    assert parts == [4096] * 244 + [100] * 5 + [2] * 39 + [1]
    assert sum(parts) == 1_000_003
    assert batched._cheapest(2_100, [700, 1_500], {700: 2.0, 1_500: 3.0}) == [700] * 3
    assert batched._cheapest(2_101, [700, 1_500], {700: 2.0, 1_500: 3.0}) is None


def test_a_batch_keeps_its_bounds(costs: Callable) -> None:
    exe = bucketize.compile(layers(Symbol("N", 2, 6)))
    costs(lambda _, sizes, lanes: 1.0)
    plan = exe.plan_many(rows_of([2] * 5))
    assert [len(call.rows) for call in plan.calls] == [6, 4]
    assert [r[0].shape for r in exe.run_many(rows_of([2] * 5))] == [(2, 2)] * 5


# --- limits -------------------------------------------------------------------------------------


def test_calls_that_share_end_as_soon_as_they_shall(costs: Callable) -> None:
    rng = np.random.default_rng(0)
    exe = bucketize.compile(bucketize.ragged(bucketize.from_onnx(parse(ENCODER))))
    costs(lambda _, sizes, lanes: 1e-3 * (1000 + sizes["tokens"]))
    requests = [request_of(rng, 10) for _ in range(10)]
    assert [c.tokens for c in exe.plan_many(requests, first_s=1.05).calls] == [50, 50]
    assert len(exe.plan_many(requests, first_s=0.01).calls) == 10
    batches = bucketize.compile(layers())
    costs(lambda _, sizes, lanes: 1.0 + 0.01 * sizes["N"])
    plan = batches.plan_many(rows_of([1] * 8), first_s=1.045)
    assert [len(call.rows) for call in plan.calls] == [4, 4]


def test_what_would_end_too_late_is_not_begun(costs: Callable) -> None:
    exe = bucketize.compile(layers())
    costs(lambda _, sizes, lanes: 100.0)
    requests = [*rows_of([2]), *rows_of([3])]
    with pytest.raises(RequestsError, match="2 of 2 requests failed: request 0: not begun") as e:
        exe.run_many(requests, all_s=50)
    assert all(isinstance(r, LateError) for r in e.value.results)
    assert "s are left, and it is expected to take 100" in str(e.value.results[1])
    assert len(exe.run_many(requests, all_s=500)) == 2


def test_time_that_is_up_is_up_without_a_model(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    bucketize.compile(layers()).save(tmp_path / "m.bkt")
    exe = bucketize.load(tmp_path / "m.bkt")
    run = Serving.run
    monkeypatch.setattr(Serving, "run", lambda *a: (time.sleep(0.2), run(*a))[1])
    done = dict(exe.stream_many(rows_of([1, 2, 3]), all_s=0.1))
    assert [isinstance(done[i], list) for i in range(3)] == [True, False, False]
    assert str(done[1]).startswith("not begun: 0 s are left")


def test_memory_of_a_call_is_bounded() -> None:
    exe = bucketize.compile(bucketize.ragged(bucketize.from_onnx(parse(ENCODER))))
    rng = np.random.default_rng(0)
    requests = [request_of(rng, 10) for _ in range(8)]
    (whole,) = exe.plan_many(requests).calls
    many = exe._many()
    inputs = {i: many._arranged(r) for i, r in enumerate(requests)}
    fitting = Fitting(many.ways[0].together, many.params, many.memory, inputs, 0)
    taken = fitting.bytes_of(whole)
    assert taken is not None
    assert len(exe.plan_many(requests, bytes=taken).calls) == 1
    halves = exe.plan_many(requests, bytes=taken - 1).calls
    assert [len(call.rows) for call in halves] == [4, 4]
    for request, got in zip(requests, exe.run_many(requests, bytes=taken // 2), strict=True):
        check(got, exe.run(**request), request["mask"])
    with pytest.raises(RequestsError, match=r"it takes [\d,]+ bytes, and a call may take 100") as e:
        exe.run_many(requests, bytes=100)
    assert all(isinstance(r, ShapeError) for r in e.value.results)


def test_a_request_of_many_rows_is_cut_to_fit() -> None:
    exe = bucketize.compile(layers())
    (request,) = rows_of([64])
    most = exe.memory(N=20).of_call + 20 * WIDTH * 4
    calls = exe.plan_many([request], bytes=most).calls
    assert [len(call.rows) for call in calls] == [16] * 4
    np.testing.assert_allclose(
        exe.run_many([request], bytes=most)[0][0], exe.run(**request)[0], atol=1e-6
    )


def test_limits_that_are_none() -> None:
    exe = bucketize.compile(layers())
    for name in ("tokens", "bytes"):
        for wrong in (0, -1, True, 2.5, "1"):
            with pytest.raises(ArgumentError, match=f"{name}: expected a number from 1"):
                exe.run_many([], **{name: wrong})
    for name in ("first_s", "all_s"):
        for wrong in (0, -1.0, True, "1", float("nan")):
            with pytest.raises(ArgumentError, match=f"{name}: expected seconds above 0"):
                exe.stream_many([], **{name: wrong})


def test_a_request_that_is_too_large_takes_no_other_with_it() -> None:
    exe = bucketize.compile(bucketize.ragged(bucketize.from_onnx(parse(ENCODER))))
    rng = np.random.default_rng(0)
    small, large = request_of(rng, 3), request_of(rng, 400, rows=2)
    large["mask"][0, 3:] = 0
    with pytest.raises(RequestsError, match="1 of 2 requests failed: request 1: it takes") as e:
        exe.run_many([small, large], bytes=16_000)
    check(e.value.results[0], exe.run(**small), small["mask"])


def test_what_fits_alone_is_run_alone() -> None:
    exe = bucketize.compile(layers())
    requests = rows_of([1] * 3)
    plan = exe.plan_many(requests, bytes=exe.memory(N=1).of_call)
    assert [call.rows for call in plan.calls] == [()] * 3
    assert plan.errors == {}


def test_calls_that_do_not_fit_side_by_side_run_one_after_the_other(costs: Callable) -> None:
    exe = threaded(layers())
    costs(lambda _, sizes, lanes: float(sizes["N"]))
    requests = [*rows_of([200]), *rows_of([150])]
    assert exe.plan_many(requests).lanes == 2
    plan = exe.plan_many(requests, bytes=exe.memory(N=200).of_call)
    assert (plan.lanes, plan.errors) == (1, {})


def test_halves_keep_the_bounds_of_a_batch() -> None:
    exe = bucketize.compile(layers(Symbol("N", 16, 64)))
    (request,) = rows_of([64])
    most = exe.memory(N=30).of_call + 30 * WIDTH * 4
    assert [len(c.rows) for c in exe.plan_many([request], bytes=most).calls] == [16] * 4
    too_few = exe.memory(N=16).of_call - 1
    plan = exe.plan_many([request], bytes=too_few)
    assert (plan.calls, list(plan.errors)) == ((), [0])


def test_parts_that_nothing_serves_are_no_way_to_fit() -> None:
    mod = dispatch(layers(), lambda _: {"x": {0: [(48, 65)]}}, fallback=False)
    exe = bucketize.compile(mod)
    plan = exe.plan_many(rows_of([64]), bytes=exe.memory(N=64).of_call - 1)
    assert plan.calls == ()
    assert str(plan.errors[0]).startswith("no part of it that nothing refuses takes")


def test_what_nothing_serves_costs_the_others_no_time() -> None:
    mod = dispatch(layers(Symbol("N", 1, 256)), lambda _: {"x": {0: [(1, 41)]}}, fallback=False)
    exe = bucketize.compile(mod)
    done = dict(exe.stream_many(rows_of(list(range(1, 100))), all_s=60))
    assert [type(done[i]) for i in range(99)] == [list] * 40 + [NoBucketError] * 59


def test_requests_that_are_refused_alone_are_refused_among_others(costs: Callable) -> None:
    mod = dispatch(layers(), lambda _: {"x": {0: [(8, 65)]}}, fallback=False)
    exe = bucketize.compile(mod)
    costs(lambda _, sizes, lanes: 1.0 if sizes["N"] >= 8 else np.inf)
    requests = [*rows_of([4] * 4), *rows_of([8] * 3)]
    assert [len(call.rows) for call in exe.plan_many(requests).calls] == [0] * 4 + [24]
    with pytest.raises(RequestsError, match="4 of 7 requests failed"):
        exe.run_many(requests)


def test_time_begins_when_the_list_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    exe = bucketize.compile(layers())
    planned = Many._planned

    def slow(*args: object) -> object:
        time.sleep(0.15)
        return planned(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(Many, "_planned", slow)
    with pytest.raises(RequestsError, match="not begun"):
        exe.run_many(rows_of([1]), all_s=0.1)


def test_sequences_are_asked_for_by_all_their_elements() -> None:
    graph = "(seq(float[N, 4]) xs) => (y) { y = ConcatFromSequence<axis = 0>(xs) }"
    exe = threaded(bucketize.from_onnx(parse(graph)))
    ones = [np.ones((n, 4), np.float32) for n in (2, 3)]
    results = exe.run_many([{"xs": ones[:1] * 2}, {"xs": ones}, {"xs": ones[1:]}])
    assert [r[0].shape for r in results] == [(4, 4), (5, 4), (3, 4)]


# --- as they come, and side by side -------------------------------------------------------------


def test_requests_come_as_their_calls_end_and_no_other_is_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exe = bucketize.compile(bucketize.ragged(bucketize.from_onnx(parse(ENCODER))))
    rng = np.random.default_rng(0)
    requests = [request_of(rng, 4) for _ in range(4)]
    requests[1]["ids"] = requests[1]["ids"] + 99
    ran: list[str] = []
    run = Serving.run
    monkeypatch.setattr(Serving, "run", lambda self, *a: (ran.append(a[0]), run(self, *a))[1])
    coming = exe.stream_many(requests, tokens=4)
    i, first = next(coming)
    assert (i, ran) == (0, ["main[ragged]"])
    check(first, exe.run(**requests[0]), requests[0]["mask"])
    done = dict(coming)
    assert [isinstance(done[i], list) for i in (1, 2, 3)] == [False, True, True]


def test_what_was_served_is_counted_and_nothing_else() -> None:
    exe = bucketize.compile(layers())
    coming = exe.stream_many(rows_of([1, 2, 3, 4]))
    next(coming)
    coming.close()  # type: ignore[attr-defined]  # a generator
    assert exe.traffic is not None
    assert exe.traffic.histogram("N") == {1: 1}
    assert [bucket.requests for bucket in exe.report().buckets] == [1]


def test_no_memory_to_put_rows_together(costs: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    exe = bucketize.compile(layers())
    costs(lambda _, sizes, lanes: 1.0)

    def full(*_: object) -> None:
        raise MemoryError

    for name in ("arguments", "deal"):
        with monkeypatch.context() as patch:
            patch.setattr(f"bucketize.many.together.Together.{name}", full)
            if name == "arguments":
                with pytest.warns(BucketizeWarning, match="no memory to put 2 rows together"):
                    assert len(exe.run_many(rows_of([1, 1]))) == 2
            else:
                with pytest.raises(RequestsError, match="no memory for the results of requests"):
                    exe.run_many(rows_of([1, 1]))


def threaded(mod: Module) -> Executable:
    return bucketize.compile(mod, threads=2)


def test_calls_run_side_by_side_where_that_is_sooner(
    costs: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    exe = threaded(bucketize.ragged(bucketize.from_onnx(parse(ENCODER))))
    rng = np.random.default_rng(0)
    requests = [request_of(rng, int(n)) for n in rng.integers(1, 30, 40)]
    costs(lambda _, sizes, lanes: 1e-3 * sizes["tokens"] * (1.0 if lanes == 1 else 1.2))
    plan = exe.plan_many(requests)
    assert (plan.lanes, len(plan.calls) % 2) == (2, 0)
    assert "2 calls at a time, a thread each" in str(plan)
    assert abs(plan.calls[0].tokens - plan.calls[-1].tokens) < 30
    for request, got in zip(requests, exe.run_many(requests), strict=True):
        check(got, exe.run(**request), request["mask"])
    costs(lambda _, sizes, lanes: 1e-3 * sizes["tokens"] * (1.0 if lanes == 1 else 1.95))
    assert exe.plan_many(requests).lanes == 1
    assert exe.plan_many(requests[:1]).lanes == 1
    costs(lambda _, sizes, lanes: 1e-3 * sizes["tokens"])
    assert exe.plan_many(requests).lanes == 2
    monkeypatch.setattr("bucketize.many.many.cores", lambda: 1)  # it was loaded on fewer
    assert exe.plan_many(requests).lanes == 1


def test_side_by_side_no_request_is_lost_with_another(costs: Callable) -> None:
    exe = threaded(bucketize.ragged(bucketize.from_onnx(parse(ENCODER))))
    rng = np.random.default_rng(0)
    requests = [request_of(rng, 5) for _ in range(12)]
    requests[7]["ids"] = requests[7]["ids"] + 99
    costs(lambda _, sizes, lanes: 1e-3 * sizes["tokens"])
    assert exe.plan_many(requests, tokens=10).lanes == 2
    with pytest.raises(RequestsError, match="1 of 12 requests failed: request 7") as e:
        exe.run_many(requests, tokens=10)
    for i in (*range(7), *range(8, 12)):
        check(e.value.results[i], exe.run(**requests[i]), requests[i]["mask"])
    coming = exe.stream_many(requests, tokens=10)
    next(coming)
    coming.close()  # type: ignore[attr-defined]  # a generator
    assert not [t for t in threading.enumerate() if t.name.startswith("bucketize requests")]


def test_side_by_side_each_call_has_one_thread(
    costs: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    exe = threaded(layers())
    costs(lambda _, sizes, lanes: float(sizes["N"]))
    ran: list[bool] = []
    run = Serving.run

    def noted(self: Serving, *args: Any) -> Any:
        ran.append(args[3])
        return run(self, *args)

    monkeypatch.setattr(Serving, "run", noted)
    exe.run_many([*rows_of([20]), *rows_of([15])])
    assert ran == [True, True]


def test_models_are_asked_for_calls_as_they_run() -> None:
    program = threaded(layers()).program
    costs = Costs(program, True)
    sizes = {"N": 100_000}
    shared = predictions(program, [sizes])[0].seconds
    assert costs.seconds("main", [sizes], 1) == [pytest.approx(WAITING * shared)]
    alone = predictions(replace(program, target=program.target.crowded), [sizes], threads=1)
    assert costs.seconds("main", [sizes], 2) == [alone[0].seconds]
    single = bucketize.compile(layers()).program
    assert Costs(single, True).seconds("main", [sizes], 1) == [
        predictions(single, [sizes])[0].seconds
    ]


def test_costs_that_are_forgotten_are_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bucketize.many.costs.MOST", 2)
    costs = Costs(bucketize.compile(layers()).program, True)
    points = [{"N": n} for n in (1, 2, 3, 4000)]
    first = costs.seconds("main", points, 1)
    assert first == costs.seconds("main", points, 1) == sorted(first)


def test_one_thread_computes_what_all_do() -> None:
    mod = bucketize.from_onnx(bucketize.zoo.build("mlp"))
    exe = threaded(mod)
    x = np.random.default_rng(0).standard_normal((700, 784)).astype(np.float32)
    np.testing.assert_allclose(
        exe._serving.run("main", [x], one_thread=True)[0], exe.run(x)[0], rtol=1e-5, atol=1e-6
    )


def test_when_the_last_call_ends() -> None:
    assert makespan([3, 1, 1, 1], 2) == 3
    assert makespan([1, 1, 1, 3], 2) == 4
    calls = tuple(PlannedCall((), (i,), "", 1.0) for i in range(4))
    assert CallPlan(calls, {}, 1).seconds == 4.0
    assert CallPlan(calls, {}, 2).seconds == pytest.approx(2.0 + 4 * LANE_S)
    assert CallPlan((*calls, PlannedCall((), (4,), ""))).seconds is None


def test_a_request_that_was_run_apart_keeps_its_results_and_is_counted_once() -> None:
    """Its rows lie in two calls, of which the first fails."""
    first = PlannedCall((Row(0, 0, 1), Row(1, 0, 1)), (0, 1), "")
    second = PlannedCall((Row(1, 1, 1), Row(2, 0, 1)), (1, 2), "")
    counted = []

    def deal(rows: tuple[Row, ...], outs: list[str], _: Any, results: dict[int, list[str]]) -> None:
        for row in rows:
            results[row.request] = outs

    def run(name: str, inputs: Any, is_counted: bool, _: bool) -> Any:
        if inputs is first.rows:
            raise ShapeError("the first call fails")
        counted.extend(inputs if is_counted else [])
        return [name]

    shared = SimpleNamespace(
        function="shared", arguments=lambda rows, _: rows, clone=lambda _: "shared", deal=deal
    )
    inputs: Any = {i: [i] for i in range(3)}
    delivery = Delivery(CallPlan((first, second)), cast("Together", shared), inputs, run, None)
    with pytest.warns(BucketizeWarning, match="none of which fails alone: the first call fails"):
        each = dict(delivery.each())
    assert each == {0: ["main"], 1: ["main"], 2: ["shared"]}
    assert (counted, [*delivery.shared]) == ([0, 1], [2])
