"""Partitions: what clones are expected to take, which are chosen, and what is said of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest

import bucketize
from bucketize import ops, zoo
from bucketize.dispatch.tree import dispatch
from bucketize.errors import (
    ArgumentError,
    BucketizeWarning,
    CompileError,
    DispatchError,
    LogError,
    ShapeError,
    UnboundedError,
    UnknownNameError,
)
from bucketize.ir import Builder, Module, Var
from bucketize.kernel.cost import seconds
from bucketize.kernel.gemm.cost import cold_bytes
from bucketize.kernel.schedule import Implementation
from bucketize.kernel.templates import candidates
from bucketize.kernel.typical import Box
from bucketize.kernel.workload import Workload
from bucketize.lower.cost import default_of
from bucketize.machine.named import named
from bucketize.ops import add, concat, unique
from bucketize.partition import partition as home
from bucketize.partition.drift import drift
from bucketize.partition.expectation import Expectation, expectation, routine_of, workloads
from bucketize.partition.merge import merge
from bucketize.partition.partition import partition, requests_of
from bucketize.traffic.value import Traffic
from bucketize.types import Sizes, Symbol, evaluate, tensor
from dispatchers import auto, from_file

TARGET = "x86-64-v4"


def mlp(**bounds: tuple[int, int | None]) -> Module:
    return bucketize.from_onnx(zoo.build("mlp"), bounds=bounds or {"N": (1, 64)})


def traffic(sizes: Iterable[int], requests: Iterable[int] | None = None) -> Traffic:
    """Requests of one symbol, each size once if it is not told."""
    rows = np.array([*sizes])[:, None]
    return Traffic(("N",), rows, np.array([*(requests or [1] * len(rows))]))


@pytest.mark.parametrize("threads", [1, 2])
def test_a_clone_takes_what_its_kernels_do(threads: int) -> None:
    target, points = named(TARGET), [{"N": n} for n in (1, 7, 64)]
    calls = workloads(routine_of(mlp(), "main", target, threads), target)
    box = (Symbol("N", 1, 64),)
    its = expectation(calls, [box], points, np.ones(3), target=target, threads=threads)
    for sizes, mine in zip(points, its.seconds[0], strict=True):
        each = 0.0
        for workload, times in calls.items():
            chosen = default_of(workload, candidates(workload), target)
            one = chosen.at(evaluate(workload.size, sizes))
            cold = cold_bytes(target)
            each += times * seconds(workload, one, sizes, target, cold, threads)
        assert mine == pytest.approx(each)
    assert (its.least <= its.seconds[0]).all()


def test_sizes_without_elements_cost_what_those_of_one_do() -> None:
    """Their products are no 0 / 0, of which numpy warns, and by which chance decides."""
    columns = partition(mlp(N=(0, 2)), traffic(range(3)), target=TARGET).by_size
    assert columns["N"].tolist() == [0, 1, 2]
    assert (columns["oracle_s"] > 0).all()


def any_kernel() -> tuple[Workload, Implementation]:
    """One without weights."""
    target = named(TARGET)
    mine = module((Symbol("N", 1, 64), 4), (Symbol("N", 1, 64), 4))
    workload, *_ = workloads(routine_of(mine, "main", target, 1), target)
    return workload, default_of(workload, candidates(workload), target).implementations[0]


def faked(monkeypatch: pytest.MonkeyPatch, change: int) -> None:
    """Costs of 1, or 2 for clones that serve sizes on both sides of a change."""

    def expected(
        _calls: object, boxes: Sequence[Box], points: Sequence[Sizes], *_: object, **_how: object
    ) -> Expectation:
        lows, highs = ([(s.lo, s.hi or 10**6)[k] for (s,) in boxes] for k in (0, 1))
        is_wide = (np.array(lows) < change) & (np.array(highs) >= change)
        taken = np.repeat(np.where(is_wide, 2.0, 1.0)[:, None], len(points), axis=1)
        kernels = [
            frozenset({int(low >= change), int(high >= change)})
            for low, high in zip(lows, highs, strict=True)
        ]
        return Expectation(taken, np.ones(len(points)), kernels, [any_kernel()] * 2)

    monkeypatch.setattr(home, "expectation", expected)


def test_buckets_begin_where_kernels_change(monkeypatch: pytest.MonkeyPatch) -> None:
    faked(monkeypatch, 17)
    its = partition(mlp(), traffic(range(1, 25)), target=TARGET)
    assert its.chosen.buckets == ({"N": (1, 17)}, {"N": (17, 65)})
    assert [(f.clones, f.kernels) for f in its.frontier] == [(1, 2), (2, 2)]
    assert [f.seconds for f in its.frontier] == pytest.approx([2.0, 1.0])
    assert (its.saved, its.loss, its.oracle) == pytest.approx((0.5, 0.0, 1.0))
    assert its.requests == 24
    assert str(its) == (
        "2 clones save 50.0% of one's time, 0.0% above the best kernels for each size "
        "(N=1..16, N=17..64)"
    )


def test_a_clone_has_to_be_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    faked(monkeypatch, 17)
    its = partition(mlp(), target=TARGET, worth=0.6)
    assert its.chosen.clones == 1
    assert str(its) == "1 clone is enough, 100.0% above the best kernels for each size (N=1..64)"
    few = partition(mlp(), target=TARGET, budget=1)
    assert [f.clones for f in few.frontier] == [1]


def test_one_clone_is_enough_where_it_chooses_by_size() -> None:
    its = partition(mlp(), target=TARGET)
    assert its.chosen.clones == 1
    assert its.loss < 0.01
    assert str(its).startswith("1 clone is enough, ")


def test_open_bounds_go_as_far_as_kernels_take_them() -> None:
    its = partition(mlp(N=(1, None)), target=TARGET)
    assert its.chosen.buckets[0]["N"][0] == 1
    assert its.chosen.buckets[-1]["N"][1] is None
    assert re.search(r"\(N=1\.\.; judged at N=1\.\.\d+\)$", str(its))


def test_of_many_symbols_three_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """And there are not so many boxes as products of them all."""
    symbols = [Symbol(f"S{i}", 1, 10 * (i + 1)) for i in range(8)]
    out = Builder()
    params = [Var(s.name.lower(), tensor("float32", s)) for s in symbols]
    mine = Module({"main": out.function("main", params, [out.emit(add, p, p) for p in params])})
    tried: list[int] = []

    def expected(
        _calls: object, boxes: Sequence[Box], points: Sequence[Sizes], *_: object, **_how: object
    ) -> Expectation:
        tried.append(len(boxes))
        assert len(points) <= home.DRAWN
        wide = np.array([[float(s.lo != s.hi) for s in box] for box in boxes]).sum(axis=1) + 1
        taken = np.repeat(wide[:, None], len(points), axis=1)
        kernels = [frozenset({0})] * len(boxes)
        return Expectation(taken, np.ones(len(points)), kernels, [any_kernel()])

    monkeypatch.setattr(home, "expectation", expected)
    its = partition(mine, target=TARGET)
    assert tried[1] <= 6**3
    last = its.frontier[-1].buckets
    assert {n for n in last[0] if len({b[n] for b in last}) > 1} <= {"S5", "S6", "S7"}


def test_requests_weigh() -> None:
    rare, often = (traffic([1, 64], [a, b]) for a, b in ((1, 9), (9, 1)))
    means = [partition(mlp(), its, target=TARGET).chosen.seconds for its in (rare, often)]
    assert means[0] > means[1]


def test_many_sizes_are_sampled() -> None:
    sizes, times = range(1, 5001), [1 + n % 3 for n in range(1, 5001)]
    mine = mlp(N=(1, 5000))
    its = partition(mine, traffic(sizes, times), target=TARGET)
    target = named(TARGET)
    calls = workloads(routine_of(mine, "main", target, 1), target)
    points = [{"N": n} for n in sizes]
    box = (Symbol("N", 1, 5000),)
    every = expectation(calls, [box], points, np.ones(5000), target=target, threads=1)
    mean = np.average(every.seconds[0], weights=times)
    assert its.chosen.seconds == pytest.approx(mean, rel=1e-3)
    assert its.requests == sum(times)


def test_a_partition_is_a_dispatcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faked(monkeypatch, 17)
    its = partition(mlp(), traffic(range(1, 25)), target=TARGET)
    names = list(dispatch(mlp(), its).clones)
    assert names == ["main[N=1..16]", "main[N=17..64]"]
    its.write(tmp_path / "b.yaml")
    assert (tmp_path / "b.yaml").read_text().startswith(f"# {its}\n")
    assert list(dispatch(mlp(), from_file(tmp_path / "b.yaml")).clones) == names
    with pytest.raises(DispatchError, match=r"^cannot write .*: Is a directory$"):
        its.write(tmp_path)


def test_an_axis_without_a_symbol_has_its_place_for_a_name() -> None:
    shape = tensor("float32", bucketize.ANY, 3)
    out, x = Builder(), Var("x", shape)
    mine = Module({"main": out.function("main", [x], [out.emit(add, x, x)])})
    assert list(dispatch(mine, auto.with_options(target=TARGET)).clones) == ["main[x_0=0..]"]


def test_auto_makes_one_clone_where_one_is_enough() -> None:
    assert list(dispatch(mlp(), auto.with_options(target=TARGET)).clones) == ["main[N=1..64]"]


def test_auto_says_what_it_cannot_use() -> None:
    with pytest.raises(DispatchError, match=r"^auto goes by the model: pass it to dispatch\(mod, "):
        auto({"data": (Symbol("N"), 3)})
    with pytest.raises(DispatchError, match=r"^auto has no option 'step'; it has: budget, "):
        auto.with_options(step=4)
    assert repr(auto.with_options(budget=2)) == "<dispatcher auto(budget=2)>"


def test_what_is_no_question_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"^budget: expected at least 1 clone, got 0$"):
        partition(mlp(), budget=0)
    with pytest.raises(ArgumentError, match=r"^budget: expected at least 1 clone, got 'x'$"):
        dispatch(mlp(), auto.with_options(budget="x"))
    with pytest.raises(ArgumentError, match=r"^worth: expected a share of time from 0, below 1, "):
        partition(mlp(), worth=1)
    with pytest.raises(UnknownNameError, match=r"^no objective named 'median'"):
        partition(mlp(), objective="median")
    with pytest.raises(LogError, match=r"no-log\.csv"):
        partition(mlp(), log="no-log.csv", target=TARGET)
    with pytest.raises(DispatchError, match=r"^no axis is dynamic: there is nothing to partition$"):
        partition(mlp(N=(3, 3)))
    with pytest.raises(DispatchError, match=r"^main is dispatched already; a partition is of the "):
        partition(dispatch(mlp(), auto.with_options(target=TARGET)))
    with pytest.raises(ShapeError, match=r"^traffic: N=65 is out of its bounds \[1, 64\]$"):
        partition(mlp(), traffic([65]), target=TARGET)
    with pytest.raises(CompileError):
        partition(mlp(), threads=0)
    with pytest.raises(UnknownNameError, match="no target named 'z80'"):
        partition(mlp(), target="z80")


def module(*shapes: tuple[int | Symbol, ...]) -> Module:
    """The sum of two inputs, and where its rows are first, times two."""
    out = Builder()
    x, y = (Var(n, tensor("float32", *s)) for n, s in zip("xy", shapes, strict=True))
    total = out.emit(add, x, y)
    places = out.emit_all(unique, total, axis=0)[1]
    return Module({"main": out.function("main", [x, y], [total, out.emit(add, places, places)])})


def test_sizes_that_are_not_legal_together_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = module((Symbol("N", 1, 64), 4), (Symbol("M", 1, 64), 4))  # alike, or one of them is 1
    its = partition(mine, target=TARGET)
    assert list(dispatch(mine, its).clones) == ["main[N=1..64,M=1..64]"]
    assert its.oracle > 0
    monkeypatch.setattr(home, "is_legal", lambda _workload, _sizes: False)
    with pytest.raises(DispatchError, match=r"^kernels are legal at none of the sizes tried; "):
        partition(mine, target=TARGET)


def test_requests_that_the_model_refuses_are_left_out_and_told() -> None:
    """Extents are legal, but what the types leave to run time does not hold."""
    x, y = (Var(n, tensor("float32", Symbol(s, 1, 64), 4)) for n, s in (("x", "H"), ("y", "W")))
    out = Builder()
    mine = Module({"main": out.function("main", [x, y], [out.emit(concat, x, y, axis=1)])})
    requests = Traffic(("H", "W"), np.array([[3, 5], [4, 4]]), np.array([900, 100]))
    with pytest.warns(BucketizeWarning) as told:
        its = partition(mine, requests, target=TARGET)
    (warning,) = told
    assert str(warning.message) == (
        "traffic: the model refuses 900 of 1000 requests, which are left out, the first at "
        "H=3, W=5: H and W must be equal, got 3 and 5"
    )
    assert its.requests == 100
    assert its.by_size["H"].tolist() == [4]


@pytest.mark.usefixtures("by_numpy")
def test_what_a_run_alone_tells_counts_nothing() -> None:
    mine = module((Symbol("N", 1, 64), 4), (Symbol("N", 1, 64), 4))
    routine = routine_of(mine, "main", named(TARGET), 1)
    assert len(workloads(routine, named(TARGET))) == 1
    assert partition(mine, target=TARGET).chosen.clones == 1


def pair(top: int | None, step: int = 1) -> Module:
    n, m = Symbol("N", 1, 64), Symbol("M", 0 if step > 1 else 1, top, step)
    return module((n, m), (n, m))


def test_what_a_traffic_lacks_comes_from_bound_to_bound_in_turns() -> None:
    """So that all requests are counted once, and those of one size meet all of them."""
    its = requests_of(pair(64, 8).main, traffic([3, 5, 7], [6, 1, 1]))
    assert its.symbols == ("N", "M")
    rows = [*zip(*its.sizes.T.tolist(), its.requests.tolist(), strict=True)]
    assert rows == [(3, 8, 1), (3, 16, 1), (3, 32, 2), (3, 64, 2), (5, 16, 1), (7, 8, 1)]


def test_a_traffic_of_some_symbols_is_enough_where_the_others_are_bounded() -> None:
    some = traffic([3, 60])
    clones = dispatch(pair(16), lambda _: [{"N": (1, 8)}, {"N": (8, 65)}])
    its = partition(pair(16), some, target=TARGET)
    assert (its.requests, sorted(set(its.by_size["M"].tolist()))) == (2, [6, 16])
    assert merge(clones, some, target=TARGET).partition.requests == 2
    assert drift(clones, some, some, target=TARGET).loss < 0.1


def test_what_nothing_tells_the_sizes_of_is_an_error() -> None:
    with pytest.raises(
        UnboundedError,
        match=r"^traffic: it has no sizes of M, only of N; bound what it lacks, or hold it to a "
        r"size, bounds=\{'M': \(1, 1\)\}$",
    ) as told:
        partition(pair(None), traffic([3]), target=TARGET)
    assert told.value.symbols == ["M"]
    with pytest.raises(UnboundedError, match=r"^traffic: it has no sizes of N, only of S; "):
        partition(mlp(), Traffic(("S",), np.array([[1]]), np.array([1])), target=TARGET)


def test_a_size_below_what_an_op_takes_is_told_with_the_op() -> None:
    x, b = Var("x", tensor("float32", 1, 1, Symbol("H", 5), 8)), Builder()
    y = b.emit(ops.max_pool2d, x, kernel=(5, 5))
    fn = b.function("main", [x], [y])
    with pytest.raises(ShapeError, match=r"^traffic: H=3 is out of its bounds") as caught:
        requests_of(fn, Traffic(("H",), np.array([[3]]), np.array([1])))
    why, where = caught.value.notes
    assert why == "the model takes no other: at H=3 a window of 5 (dilated by 1) over 3+0+0"
    assert where.startswith("in max_pool2d(")
