"""Profiles: which nodes kernels come from, what a kernel takes, and the bounds of the machine."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import bucketize
from bucketize import ops
from bucketize.errors import ArgumentError, ShapeError
from bucketize.inspect import profile as profile_module
from bucketize.inspect import roofline
from bucketize.inspect.profile import BETWEEN, Timed, TimedGroup, divided
from bucketize.inspect.roofline import Roofline
from bucketize.ir import Builder, Const, Module, Var
from bucketize.kernel.loops import cost as loop_cost
from bucketize.link import strip
from bucketize.link.memory import address
from bucketize.machine.host import host
from bucketize.program.instruction import Compute, RunSegment, instructions
from bucketize.types import Symbol, tensor
from dispatchers import log_dispatcher


def weight(name: str, *shape: int) -> onnx.TensorProto:
    value = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return numpy_helper.from_array(value, name)


def model(*names: str, bias: float = 0.5) -> onnx.ModelProto:
    """Two products, an elementwise op behind each; a node without a name is known by its output."""
    one, two, three, four = names or ("", "", "", "")
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"], one),
        helper.make_node("Relu", ["h"], ["r"], two),
        helper.make_node("MatMul", ["r", "b"], ["p"], three),
        helper.make_node("Add", ["p", "c"], ["y"], four),
    ]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 32])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["N", 16])
    c = numpy_helper.from_array(np.full(16, bias, np.float32), "c")
    weights = [weight("a", 32, 24), weight("b", 24, 16), c]
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def module(*names: str) -> Module:
    return bucketize.from_onnx(model(*names), bounds={"N": (1, 8)})


NAMES = ("fc1", "act", "fc2", "bias")
X = np.ones((3, 32), np.float32)
ROOF = Roofline(gflops=100.0, gbytes_s=10.0)  # measuring a real one takes a second


def origins(exe: bucketize.Executable) -> set[str]:
    steps = [i for r in exe.routines.values() for i in instructions(r.code)]
    native = [c.binding for i in steps if isinstance(i, RunSegment) for c in i.segment.calls]
    host = [i.binding for i in steps if isinstance(i, Compute)]
    return {"+".join(b.origin) for b in native + host}


# --- the nodes of the model that a kernel comes from ---


@pytest.mark.parametrize(
    ("names", "expected"), [(NAMES, {"fc1+act", "fc2+bias"}), ((), {"h+r", "p+y"})]
)
@pytest.mark.parametrize("policy", ["none", "exact", "pad"])
def test_kernels_know_the_nodes_that_they_come_from(
    names: tuple[str, ...], expected: set[str], policy: str, tmp_path: Path
) -> None:
    mod = module(*names)
    if policy != "none":
        mod = bucketize.dispatch(mod, log_dispatcher, policy=policy)
    exe = bucketize.compile(pickle.loads(pickle.dumps(mod)))
    exe.run(x=X)
    assert expected <= origins(exe)
    exe.save(tmp_path / "net.bkt")
    loaded = bucketize.load(tmp_path / "net.bkt")
    loaded.run(x=X)
    assert expected <= origins(loaded)


def test_nodes_change_neither_programs_nor_kernels() -> None:
    exe, other = (bucketize.compile(module(*names)) for names in (NAMES, ()))
    assert exe.program == other.program
    assert exe.kernels.keys() == other.kernels.keys()
    assert str(exe.module.main) == str(other.module.main)  # type: ignore[union-attr]


def test_ops_that_numpy_computes_and_convolutions_know_their_nodes() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["h"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["h"], ["r"], "act"),
        helper.make_node("NonZero", ["r"], ["p"], "where"),
        helper.make_node("Shape", ["p"], ["s"]),
        helper.make_node("Expand", ["one", "s"], ["y"], "spread"),  # static once they are counted
    ]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 4, "H", 8])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.INT64, [4, None])
    one = numpy_helper.from_array(np.ones(1, np.int64), "one")
    graph = helper.make_graph(nodes, "g", [x], [y], [weight("w", 8, 4, 3, 3), one])
    proto = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    exe = bucketize.compile(bucketize.from_onnx(proto))
    assert origins(exe) >= {
        "conv",
        "conv+act",
        "where",
        "spread",
    }  # its padding is a kernel of its own


def dynamic() -> onnx.ModelProto:
    """Extents told by values, by a tensor, by another's shape; a branch of two."""

    def value(name: str, type_: int, *shape: object) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, type_, shape)

    def branch(op: str, name: str) -> onnx.GraphProto:
        return helper.make_graph([helper.make_node(op, ["r"], ["b"], name)], name, [], [b])

    b = helper.make_tensor_value_info("b", onnx.TensorProto.FLOAT, None)
    branches = {"then_branch": branch("Neg", "minus"), "else_branch": branch("Exp", "power")}
    nodes = [
        helper.make_node("NonZero", ["x"], ["n"], "where"),
        helper.make_node("Cast", ["n"], ["f"], "float", to=onnx.TensorProto.FLOAT),
        helper.make_node("Reshape", ["f", "s"], ["r"], "flat"),
        helper.make_node("If", ["c"], ["y"], "choice", **branches),
        helper.make_node("Tile", ["y", "k"], ["z"], "tiled"),
        helper.make_node("Shape", ["x"], ["extent"], "shape"),
        helper.make_node("Expand", ["e", "extent"], ["w"], "grown"),
    ]
    floats, ints = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    inputs = [
        value("x", floats, "N"),
        value("c", onnx.TensorProto.BOOL),
        value("s", ints, 1),
        value("k", ints, 1),
        value("e", floats, 1),
    ]
    graph = helper.make_graph(
        nodes, "g", inputs, [value("z", floats, None), value("w", floats, "N")]
    )
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize("taken", [True, False])
def test_dynamic_models_know_their_nodes_and_are_profiled(taken: bool, tmp_path: Path) -> None:
    exe = bucketize.compile(bucketize.from_onnx(dynamic()))
    exe.save(tmp_path / "net.bkt")
    one, three = np.ones(1, np.float32), np.ones(3, np.float32)
    arrays = [three, np.array(taken), np.array([3]), np.array([2]), one]
    expected = ["where", "float", "flat", "minus" if taken else "power", "tiled", "grown"]
    for each in (exe, bucketize.load(tmp_path / "net.bkt")):
        frame = each.profile(*arrays, repetitions=2, roofline=ROOF)
        assert set(frame["name"]) == {*expected, BETWEEN}


# --- the time of each kernel ---


@pytest.mark.parametrize("policy", ["none", "exact", "pad"])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_profile_has_a_row_for_each_kernel_and_one_for_the_rest(
    policy: str, threads: int
) -> None:
    mod = module(*NAMES)
    if policy != "none":
        mod = bucketize.dispatch(mod, log_dispatcher, policy=policy)
    exe = bucketize.compile(mod, threads=threads)
    before = exe.run(x=X)
    frame = exe.profile(x=X, repetitions=3, roofline=ROOF)
    kernels = list(frame["name"])
    assert [n for n in kernels if n in ("fc1+act", "fc2+bias")] == ["fc1+act", "fc2+bias"]
    assert kernels[-1] == BETWEEN
    assert kernels.count(BETWEEN) == 1
    assert frame["share"].sum() == pytest.approx(1)
    assert (frame["time_s"] >= 0).all()
    assert frame["time_s"].sum() >= 0.999 * frame.attrs["whole_s"]
    assert frame.attrs["roofline"] == ROOF
    np.testing.assert_array_equal(exe.run(x=X)[0], before[0])


def ticks(call: Callable[[], object]) -> float:
    """A clock that says 1 of nothing and 3 of everything else."""
    call()
    return 1.0 if call.__name__ == "_nothing" else 3.0


@pytest.mark.parametrize(
    ("whole", "between", "shares"), [(9.0, 5.0, [2 / 9, 2 / 9, 5 / 9]), (3.0, 0.0, [0.5, 0.5, 0])]
)
def test_looking_at_the_clock_is_left_out(
    monkeypatch: pytest.MonkeyPatch, whole: float, between: float, shares: list[float]
) -> None:
    def taken(calls: Mapping[str, Callable[[], object]], **_: object) -> dict[str, list[float]]:
        for call in calls.values():
            call()
            call()
        return {"": [1.0], "whole": [whole]}

    monkeypatch.setattr(profile_module, "stopwatch", lambda threads: ticks)
    monkeypatch.setattr(profile_module, "interleaved", taken)
    frame = bucketize.compile(module(*NAMES)).profile(x=X, roofline=ROOF)
    assert list(frame["time_s"]) == [2.0, 2.0, between]  # 3 by the clock, 1 for nothing
    assert list(frame["share"]) == pytest.approx(shares)


# --- groups that run in strips ---


@pytest.fixture
def strips(monkeypatch: pytest.MonkeyPatch) -> None:
    """A strip moves 2 KiB, whatever it reads of constants."""
    monkeypatch.setattr(strip, "SHARE", 2048 / host().l2)
    monkeypatch.setattr(strip, "CONSTANT", 1e6)


def images(threads: int) -> bucketize.Executable:
    """Two groups of convolutions, and what is no image behind them."""
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["p"], "wide"),
        helper.make_node("Conv", ["p", "b"], ["q"], "deep", pads=[1, 1, 1, 1], group=16),
        helper.make_node("Conv", ["q", "c"], ["r"], "narrow"),
        helper.make_node("Conv", ["r", "a"], ["s"], "wide2"),
        helper.make_node("Conv", ["s", "c"], ["t"], "narrow2"),
        helper.make_node("GlobalAveragePool", ["t"], ["y"], "mean"),
    ]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 8, "H", 24])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 8, 1, 1])
    weights = [weight("a", 16, 8, 1, 1), weight("b", 16, 1, 3, 3), weight("c", 8, 16, 1, 1)]
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    proto = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    return bucketize.compile(bucketize.from_onnx(proto), threads=threads)


@pytest.mark.parametrize("threads", [1, 2])
def test_kernels_of_a_group_take_what_the_group_takes(
    strips: None, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setattr(profile_module, "stopwatch", lambda threads: ticks)
    one = loop_cost.FITTED["Intel"]
    monkeypatch.setattr(loop_cost, "FITTED", dict.fromkeys(loop_cost.FITTED, one))  # in NHWC
    exe = images(threads)
    x = np.random.default_rng(0).standard_normal((1, 8, 40, 24), dtype=np.float32)
    (before,) = exe.run(x=x)
    frame = exe.profile(x=x, repetitions=3, roofline=ROOF)
    np.testing.assert_array_equal(exe.run(x=x)[0], before)
    rows = frame[frame["name"] != BETWEEN]
    told = [
        "" if np.isnan(number) else f"group {number:.0f}, {lines:.0f} line{'s' * (lines > 1)}"
        for number, lines in zip(rows["group"], rows["lines"], strict=True)
    ]
    steps = [step["strip"].removesuffix(" at a time") for step in exe.explain(H=40).steps]
    assert told == steps
    grouped = rows.groupby("group")["time_s"]
    assert len(grouped) >= 2
    assert list(grouped.sum()) == pytest.approx([2.0] * len(grouped))  # by the clock, as one call
    assert (rows.loc[rows["group"].isna(), "time_s"] == 2.0).all()
    assert rows["group"].isna().any()
    args = [e["args"] for e in bucketize.analysis.chrome_trace({"": frame})["traceEvents"]]
    assert [a["group"] for a in args if "group" in a] == list(rows["group"].dropna())


def test_without_strips_there_is_no_group() -> None:
    exe, told = images(1), list[str]()
    x = np.zeros((1, 8, 1, 24), np.float32)
    progress = lambda what, *_: told.append(what)  # noqa: E731
    frame = exe.profile(x=x, repetitions=1, roofline=ROOF, progress=progress)
    assert frame["group"].isna().all()
    assert "kernels of groups one by one" not in told


def test_parts_of_a_group_are_those_that_its_kernels_take_alone() -> None:
    what = next(
        i.segment.calls[0]
        for i in instructions(bucketize.compile(module()).routines["main"].code)
        if isinstance(i, RunSegment)
    )

    def timed(seconds: float, group: TimedGroup | None = None) -> Timed:
        return Timed(what, {}, None, seconds, group)

    one, two = TimedGroup(1, 4), TimedGroup(1, 4)  # of two segments, so they are not the same
    places = [one, one, None, two, two]
    layers = [(timed(float(i), g), timed(10.0, g)) for i, g in enumerate(places, 1)]
    alone = [(timed(s), timed(s)) for s in (1.0, 3.0, 5.0, 0.0, 0.0)]
    parts = [tuple(t.seconds for t in runs) for runs in divided(layers, alone)]
    assert parts[0] == pytest.approx((0.25 * 1, 0.25 * 10))
    assert parts[1] == pytest.approx((0.75 * 2, 0.75 * 10))
    assert parts[2] == (3, 10)
    assert parts[3:] == [pytest.approx((2, 5)), pytest.approx((2.5, 5))]  # too short for the clock


def test_work_is_that_of_the_actual_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile_module, "stopwatch", lambda threads: ticks)
    exe = bucketize.compile(module(*NAMES))
    rows = exe.profile(X, repetitions=1, roofline=ROOF).set_index("name")
    first = rows.loc["fc1+act"]
    assert (first["op"], first["shape"], first["why"]) == ("matmul+relu", (3, 24), "default")
    assert first["flops"] == 2 * 3 * 32 * 24
    assert first["bytes"] == 4 * (3 * 32 + 32 * 24 + 3 * 24)
    assert first["intensity"] == first["flops"] / first["bytes"]
    least = max(first["flops"] / 100e9, first["bytes"] / 10e9)
    assert first["roofline"] == pytest.approx(least / first["time_s"])
    assert first["gflops"] == pytest.approx(first["flops"] / first["time_s"] / 1e9)
    assert first["bound"] == "memory"
    assert rows.loc[BETWEEN, ["flops", "gflops", "roofline", "bound"]].isna().all()


def test_of_a_table_only_the_rows_that_are_read_count() -> None:
    x = Var("x", tensor("int64", 3))
    b = Builder()
    table = Const(np.zeros((1000, 8), np.float32))
    exe = bucketize.compile(
        Module({"main": b.function("main", [x], [b.emit(ops.gather, table, x, axis=0)])})
    )
    frame = exe.profile(np.zeros(3, np.int64), repetitions=1, roofline=ROOF)
    assert frame["bytes"][0] == 3 * 8 + 2 * 3 * 8 * 4


@pytest.mark.usefixtures("by_numpy")
def test_what_numpy_computes_is_a_row_without_work() -> None:
    x = Var("x", tensor("float32", Symbol("N")))
    b = Builder()
    y = b.emit(ops.relu, b.emit_all(ops.unique, b.emit(ops.neg, x), axis=0)[0])
    exe = bucketize.compile(Module({"main": b.function("main", [x], [y])}))
    frame = exe.profile(np.array([0, 1, 1], np.float32), repetitions=2, roofline=ROOF)
    assert list(frame["name"]) == ["neg", "unique", "relu", BETWEEN]
    host = frame.iloc[1]
    assert (host["kernel"], host["shape"]) == ("numpy", (2,))
    assert np.isnan(host["flops"])
    assert host["time_s"] > 0


def test_a_call_that_fails_fails_in_a_profile_too() -> None:
    exe = bucketize.compile(module())
    with pytest.raises(ArgumentError, match="repetitions: expected at least 1, got 0"):
        exe.profile(x=X, repetitions=0, roofline=ROOF)
    with pytest.raises(ShapeError, match="expected N in"):
        exe.profile(x=np.ones((9, 32), np.float32), roofline=ROOF)


def test_a_profile_tells_of_every_run() -> None:
    told: list[tuple[str, int, int]] = []
    exe = bucketize.compile(module())
    exe.profile(X, repetitions=2, roofline=ROOF, progress=lambda *at: told.append(at))
    assert [(i, of) for _, i, of in told] == [(i, 5) for i in range(5)]
    *runs, last = (what for what, _, _ in told)
    assert Counter(runs[:2]) == Counter(runs[2:]) == Counter(["whole runs", "kernel by kernel"])
    assert last == "what the machine could do"
    with pytest.raises(ArgumentError, match="progress: expected True, None or a function"):
        exe.profile(X, roofline=ROOF, progress=7)


def test_a_trace_draws_the_call_around_its_kernels() -> None:
    exe = bucketize.compile(module(*NAMES))
    frame = exe.profile(x=X, repetitions=1, roofline=ROOF)
    trace = json.loads(json.dumps(bucketize.analysis.chrome_trace({"N=3": frame, "again": frame})))
    mine = [e for e in trace["traceEvents"] if e["pid"] == 1]
    head, whole, *kernels = mine
    assert (head["ph"], head["args"]) == ("M", {"name": "N=3"})
    assert [e["name"] for e in kernels] == list(frame["name"])
    assert {e["ph"] for e in (whole, *kernels)} == {"X"}
    for event, following in pairwise(kernels):
        assert event["ts"] + event["dur"] == pytest.approx(following["ts"])
    assert whole["ts"] + whole["dur"] == pytest.approx(kernels[-1]["ts"] + kernels[-1]["dur"])
    assert kernels[0]["args"]["shape"] == [3, 24]
    assert "NaN" not in json.dumps(trace)


# --- what the machine does at most ---


def test_a_roof_is_the_lower_of_two() -> None:
    assert ROOF.ridge == 10
    assert ROOF.seconds(flops=100e9, moved=1) == 1
    assert ROOF.seconds(flops=1, moved=20e9) == 2
    assert str(ROOF) == "100.0 GFLOP/s, 10.0 GB/s, ridge at 10.0 FLOP/byte"


def test_the_kernels_that_measure_it_do_what_they_count(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STEPS", "SHORT_ROUNDS", "LONG_ROUNDS"):
        monkeypatch.setattr(roofline, name, 2)
    monkeypatch.setattr(roofline, "arrays_bytes", lambda _: 3 * 4096 * 4)
    roof = roofline.measured.__wrapped__(2)
    assert roof.gflops > 0
    assert roof.gbytes_s > 0
    lanes = host().lanes
    a, b, c = (np.full(4 * lanes + 1, value, np.float32) for value in (2, 3, 7))
    block = np.array([4 * lanes, *map(address, (a, b, c))], np.int64)
    roofline.probe("triad", lanes=lanes)(address(block))
    assert (c[:-1] == 4).all()
    assert c[-1] == 7
    x = np.array([0.5, 1, *np.zeros(2 * lanes - 2)], np.float32)
    block = np.array([2, address(x)], np.int64)
    roofline.probe("multiply", lanes=lanes, chains=2)(address(block))
    first, second = (((i * 0.5 + 1) * 0.5 + 1) * 0.5 + 1 for i in range(2))
    assert x.tolist() == [first] * lanes + [second] * lanes


@pytest.mark.parametrize(
    ("l2", "l3", "mib"), [(1 << 20, 0, 96), (1 << 20, 128 << 20, 256), (1 << 20, 1 << 30, 768)]
)
def test_the_arrays_do_not_fit_the_last_cache(l2: int, l3: int, mib: int) -> None:
    target = replace(host(), l2=l2, l3=l3)
    assert roofline.arrays_bytes(target) == mib << 20
