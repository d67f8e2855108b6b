"""Benchmarks beside other engines: adapters, cross-checks, paired ratios; no timing is asserted."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from bucketize.analysis import ENGINES, bench, benchmark, session, stream
from bucketize.analysis import engines as engines_module
from bucketize.analysis.benchmark import Effort, cross_checked, percentile
from bucketize.analysis.engines import Engine, engine_of
from bucketize.analysis.stream import Window, window, windows
from bucketize.errors import ArgumentError, EnergyError, EngineError, UnknownNameError
from bucketize.machine.energy import energy

INSTALLED = [name for name, engine in ENGINES.items() if engine.is_installed]


@pytest.fixture
def net(tmp_path: Path) -> Path:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17]>
        net (float[N, 4] x, float[N, 1] y) => (float[N, 4] s, float[N, 4] d) {
            s = Add(x, y)  d = Sub(x, y)
        }
    """)
    onnx.save(model, tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


# --- adapters ---


@pytest.mark.parametrize("name", INSTALLED)
@pytest.mark.parametrize("threads", [1, 2])
def test_an_engine_runs_a_model_at_any_size(
    net: Path, name: str, threads: int, capfd: pytest.CaptureFixture[str]
) -> None:
    made = session(name, net, threads)
    assert made.engine == name
    assert made.version[0].isdigit()
    assert made.settings.startswith(f"{threads} thread")
    for n in (1, 5):
        x, y = (np.random.default_rng(n).random((n, k), np.float32) for k in (4, 1))
        s, d = made.run({"y": y, "x": x})  # named, and results in the model's order
        np.testing.assert_allclose(s, x + y, rtol=1e-6)
        np.testing.assert_allclose(d, x - y, rtol=1e-6, atol=1e-6)
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("name", INSTALLED)
def test_what_an_engine_refuses_is_an_error_that_names_it(net: Path, name: str) -> None:
    (net.parent / "torn.onnx").write_bytes(net.read_bytes()[:-20])
    with pytest.raises(EngineError, match=f"{name} does not take torn.onnx: "):
        session(name, net.parent / "torn.onnx")
    with pytest.raises(EngineError, match=f"{name} does not run net.onnx: "):
        session(name, net).run({"z": np.zeros((2, 4), np.float32)})


def test_an_engine_that_is_not_there_says_how_to_get_it(
    net: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = Engine("no_such_module", "the-package", lambda model, threads: pytest.fail("started"))
    monkeypatch.setitem(ENGINES, "absent", absent)
    for ask in (engine_of, lambda name: session(name, net)):
        with pytest.raises(EngineError, match="absent is not installed: pip install the-package"):
            ask("absent")
        with pytest.raises(UnknownNameError, match="no adapter for an engine named 'tvm'; known:"):
            ask("tvm")


def test_others_than_the_known_engines_may_be_asked(
    net: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def loud(model: Path, threads: int) -> Any:
        os.write(1, b"from native code\n")
        if threads == 2:
            raise ValueError("no threads")
        return (lambda inputs: [], "as it is")

    own = {"own": Engine("json", "numpy", loud)}
    assert session("own", net, engines=own).settings == "1 thread, as it is"
    assert capfd.readouterr() == ("", "")
    with pytest.raises(EngineError, match=r"own does not take net\.onnx: no threads"):
        session("own", net, 2, engines=own)
    assert capfd.readouterr() == ("", "from native code\n")  # it may say why
    with pytest.raises(UnknownNameError, match="named 'onnxruntime'; known: own"):
        session("onnxruntime", net, engines=own)


class Expr:
    """As much of MNN.expr as the adapter uses."""

    float, int, NCHW, NC4HW4 = "float", "int", "NCHW", "NC4HW4"

    class Placeholder:
        data_format = "NC4HW4"

        def write(self, array: Any) -> None:
            self.array = array

        def read(self) -> Any:
            return self.array

    def placeholder(self, shape: Sequence[int], layout: str, kind: str) -> Any:
        made = self.Placeholder()
        made.shape, made.kind = shape, kind  # type: ignore[attr-defined]
        return made

    def convert(self, variable: Any, layout: str) -> Any:
        variable.data_format = layout
        return variable


@pytest.mark.parametrize(
    ("array", "kind", "dtype"),
    [
        (np.ones((2, 3), np.float32), "float", "float32"),
        (np.ones(2, np.int64), "int", "int32"),
        (np.ones(2, np.bool_), "int", "int32"),
    ],
)
def test_arrays_for_mnn_are_of_what_it_has(array: Any, kind: str, dtype: str) -> None:
    expr = Expr()
    variable = engines_module._mnn_variable(expr, array)
    assert (variable.kind, variable.shape) == (kind, list(array.shape))
    back = engines_module._mnn_array(expr, variable)
    assert (back.dtype, variable.data_format) == (dtype, "NCHW")
    np.testing.assert_array_equal(back, array)
    with pytest.raises(EngineError, match="it has no float64"):
        engines_module._mnn_variable(expr, array.astype(np.float64))


# --- measuring ---


def test_engines_take_turns_and_are_held_against_the_first() -> None:
    calls: list[str] = []

    def run(name: str, seconds: float) -> Any:
        def call(inputs: Mapping[str, Any]) -> list[Any]:
            calls.append(name)
            time.sleep(seconds)
            return [inputs["x"]]

        return call

    runs = {"first": run("a", 0.002), "second": run("b", 0.0)}
    told: list[tuple[str, int, int]] = []
    x = np.ones(3, np.float32)
    frame = bench(runs, {"x": x}, rounds=5, progress=lambda *at: told.append(at))
    assert [(i, of) for _, i, of in told] == [(i, 16) for i in range(16)]
    engines = [name for name, _, _ in told]
    assert all(
        {*pair} == {"first", "second"} for pair in zip(engines[::2], engines[1::2], strict=True)
    )
    rounds = "".join(calls[6:])  # after the check, and two rounds that warm up
    assert len(rounds) == 2 * 2 * 5
    assert {rounds[i : i + 4] for i in range(0, 20, 4)} <= {"aabb", "bbaa"}
    assert list(frame["engine"]) == ["first", "second"]
    assert (frame["time_q1_s"] <= frame["time_s"]).all()
    assert (frame["time_s"] <= frame["time_q3_s"]).all()
    assert np.isnan(frame["ratio"][0])
    assert frame["ratio_q1"][1] <= frame["ratio"][1] <= frame["ratio_q3"][1]
    assert frame["error"].sum() == 0


def test_threads_of_the_engine_before_come_to_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []

    def run(inputs: Mapping[str, Any]) -> list[Any]:
        happened.append("call")
        return [np.ones(1)]

    monkeypatch.setattr(benchmark.time, "sleep", lambda s: happened.append(f"{s:g}"))
    assert [benchmark.pause(threads) for threads in (1, 2)] == [0, 0.02]
    bench({"a": run, "b": run}, {}, rounds=3, pause_s=0.5)
    assert happened == 6 * ["0.5", "call"] + 6 * ["0.5", "call", "call"]


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: bench({}, {}, 3), "runs: expected at least one engine, as in"),
        (lambda: bench({"a": lambda _: []}, {}, 3, progress=7), "progress: expected True, None or"),
        (lambda: session("onnxruntime", b"x"), "model: expected a path, got bytes; give the path"),
        (lambda: session("onnxruntime", "x", progress=7), "progress: expected True, None or"),
    ],
)
def test_arguments_of_another_kind_are_refused(ask: Callable[[], object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        ask()


def test_a_path_may_be_text() -> None:
    with pytest.raises(EngineError, match=r"onnxruntime does not take x\.onnx: "):
        session("onnxruntime", "no/x.onnx")


def test_ratios_are_those_of_each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"a": [1.0, 2.0, 30.0], "b": [2.0, 4.0, 60.0]}  # the machine was slow in the last round
    monkeypatch.setattr("bucketize.analysis.benchmark.interleaved", lambda calls, **_: times)
    runs = dict.fromkeys(times, lambda inputs: [np.ones(1, np.float32)])
    with pytest.raises(ArgumentError, match="rounds: expected at least 1, got 0"):
        bench(runs, {}, rounds=0)
    row = bench(runs, {}, rounds=3).iloc[1]
    assert (row["time_s"], row["time_q1_s"], row["time_q3_s"]) == (4, 3, 32)
    assert (row["ratio"], row["ratio_q1"], row["ratio_q3"]) == (0.5, 0.5, 0.5)


@pytest.mark.parametrize(
    ("other", "error"),
    [([1.0, 2.0], 0.0), ([1.0, 2.001], 0.001), ([1.0, 3.0], 0.5), ([1.0, 2.0, 3.0], np.inf)],
)
def test_outputs_are_held_against_each_other(other: list[float], error: float) -> None:
    same = [np.array([1.0, 2.0], np.float32)]
    results = {"one": same, "two": same, "odd": [np.array(other, np.float32)]}
    if error > 0.01:
        with pytest.warns(RuntimeWarning, match="the outputs of .* and odd are apart"):
            worst = cross_checked(results)
    else:
        worst = cross_checked(results)
    assert worst == {name: pytest.approx(error, rel=0.6) for name in results}


def test_no_engine_is_imported_before_it_is_asked_for() -> None:
    modules = [engine.module for engine in ENGINES.values()]
    script = f"import sys, bucketize.analysis; print([m for m in {modules} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


# --- several callers ---


def test_a_thread_that_cannot_be_had_ends_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Thread.start
    begun: list[Thread] = []

    def start(self: Thread) -> None:
        if len(begun) == 2:
            raise RuntimeError("can't start new thread")
        begun.append(self)
        begin(self)

    monkeypatch.setattr(Thread, "start", start)
    with pytest.raises(EngineError, match="9 streams need as many threads: can't start new thread"):
        window([lambda: None] * 9, 0.0)


def test_callers_of_an_engine_call_side_by_side() -> None:
    inside, most = [0], [0]

    def call() -> None:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.005)
        inside[0] -= 1

    taken = window([call] * 3, 0.02)
    assert most == [3]
    assert len(taken.latencies) >= 3
    assert min(taken.latencies) >= 0.005
    assert taken.seconds >= max(taken.latencies)
    assert taken.per_call_s == taken.seconds / len(taken.latencies)


def test_each_caller_calls_once_untimed_and_once_at_least() -> None:
    calls: list[str] = []
    taken = window([lambda: calls.append("a"), lambda: calls.append("b")], 0.0)
    assert sorted(calls) == ["a", "a", "b", "b"]
    assert len(taken.latencies) == 2


def test_what_a_caller_raises_stops_the_others() -> None:
    def fail() -> None:
        raise EngineError("x does not run y")

    for order in ([fail, lambda: None], [lambda: None, fail]):
        with pytest.raises(EngineError, match="x does not run y"):
            window(order, 60.0)


def test_windows_of_all_engines_are_equally_long(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, float]] = []

    def instead(calls: Sequence[Any], seconds: float, energy: object) -> Window:
        asked.append((len(calls), seconds))
        return Window((0.5, 0.1) if len(asked) == 2 else (0.1,), 1.0)

    monkeypatch.setattr(stream, "window", instead)
    callers = {"a": [lambda: None] * 2, "b": [lambda: None] * 2}
    happened: list[str] = []
    before = {name: partial(happened.append, name) for name in callers}
    some = windows(callers, before, warmup=2)
    next(some)
    assert next(some).keys() == {"a", "b"}
    assert asked == 4 * [(2, 0.0)] + 4 * [(2, stream.CALLS * 0.5)]
    assert sorted(happened) == ["a"] * 4 + ["b"] * 4


def test_a_benchmark_of_several_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "WINDOW_S", 0.01)
    calls = {"slow": 0, "fast": 0}

    def run(name: str, seconds: float) -> Any:
        def call(inputs: Mapping[str, Any]) -> list[Any]:
            calls[name] += 1
            time.sleep(seconds)
            return [inputs["x"]]

        return call

    runs = {"slow": [run("slow", 0.004)] * 2, "fast": [run("fast", 0.001)] * 2}
    frame = bench(runs, {"n": np.array(1), "x": np.ones((3, 2))}, 4).set_index("engine")
    assert frame.loc["fast", "ratio"] > 1.5
    assert (frame["calls"] >= 2 * 4).all()
    assert all(
        frame.loc[name, "calls"] < count for name, count in calls.items()
    )  # some were not timed
    ordered = ["min_s", "time_q1_s", "time_s", "time_q3_s"]
    assert all(list(row) == sorted(row) for row in frame[ordered].to_numpy())
    assert frame["rows_s"].tolist() == [3 * rate for rate in frame["calls_s"]]
    assert frame.loc["slow", "calls_s"] < 2 / 0.004


@pytest.mark.parametrize("second", [[], [lambda _: []] * 3])
def test_engines_have_as_many_callers(second: list[Any]) -> None:
    with pytest.raises(ArgumentError, match="runs: expected as many callers of each engine, got"):
        bench({"a": [lambda _: []] * 2, "b": second}, {}, 3)


@pytest.mark.parametrize("name", INSTALLED)
@pytest.mark.parametrize("threads", [1, 2])
def test_an_engine_runs_for_several_callers(net: Path, name: str, threads: int) -> None:
    made = session(name, net, threads, streams=2)
    assert made.settings.startswith(f"2 streams of {threads} thread")
    assert len(made.callers) == 2
    x, y = np.ones((3, 4), np.float32), np.ones((3, 1), np.float32)

    def call(i: int) -> None:
        s, _ = made.callers[i]({"x": x * i, "y": y})
        np.testing.assert_array_equal(s, x * i + y)

    window([partial(call, 0), partial(call, 1)], 0.02)


def test_an_engine_without_streams_is_started_for_each_caller(net: Path) -> None:
    started: list[int] = []

    def start(model: Path, threads: int) -> Any:
        started.append(threads)
        return (lambda inputs: [np.array(len(started))], "own")

    own = {"own": Engine("json", "numpy", start)}
    assert len(session("own", net, 2, streams=3, engines=own).callers) == 3
    assert started == [2, 2, 2]


# --- what calls come to ---


def test_a_percentile_needs_calls_beyond_it() -> None:
    values = np.arange(1.0, 101.0)
    assert percentile(values, 99) == pytest.approx(99.01)
    assert np.isnan(percentile(values[:99], 99))
    assert percentile(values[:10], 90) == pytest.approx(9.1)
    assert np.isnan(percentile(values[:9], 90))


def test_a_benchmark_goes_on_for_its_duration() -> None:
    def run(inputs: Mapping[str, Any]) -> list[Any]:
        time.sleep(0.001)
        return [np.ones(())]

    frame = bench({"a": run}, {}, 2, effort=Effort(warmup=0, duration_s=0.1))
    assert frame["calls"][0] > 10
    assert frame["calls_s"][0] == pytest.approx(1 / frame["mean_s"][0])
    assert np.isnan(frame["rows_s"][0])  # no input has an axis
    assert "joules" not in frame


# --- energy ---


def zone(powercap: Path, number: str, name: str, joules: float, most: float = 1000.0) -> Path:
    folder = powercap / f"intel-rapl:{number}"
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{name}\n")
    (folder / "energy_uj").write_text(f"{int(joules * 1e6)}\n")
    (folder / "max_energy_range_uj").write_text(f"{int(most * 1e6)}\n")
    return folder


def test_packages_and_their_memory_are_counted_once(tmp_path: Path) -> None:
    zone(tmp_path, "0", "package-0", 10)
    zone(tmp_path, "0:0", "core", 5)  # a part of the package
    zone(tmp_path, "0:1", "dram", 3)
    zone(tmp_path, "1", "psys", 20)  # all of the platform
    counters = energy(tmp_path)
    assert counters.names == "package-0, dram"
    assert counters.read() == [10_000_000, 3_000_000]
    assert counters.joules([1_000_000, 0], [3_500_000, 500_000]) == pytest.approx(3.0)


def test_a_counter_that_begins_anew_has_gone_on(tmp_path: Path) -> None:
    zone(tmp_path, "0", "package-0", 2, most=1000)
    begin = [999_000_000]
    assert energy(tmp_path).joules(begin, energy(tmp_path).read()) == pytest.approx(3.0)


def test_a_machine_that_tells_no_energy_says_why(tmp_path: Path) -> None:
    with pytest.raises(EnergyError, match="has no RAPL counter of a package; virtual machines mo"):
        energy(tmp_path)
    zone(tmp_path, "0:0", "core", 5)
    with pytest.raises(EnergyError, match="has no RAPL counter"):
        energy(tmp_path)
    (zone(tmp_path, "0", "package-0", 10) / "energy_uj").write_text("")
    with pytest.raises(EnergyError, match=r"the energy counters cannot be read: .*; root may read"):
        energy(tmp_path)


@pytest.mark.parametrize("callers", [1, 2])
def test_joules_are_those_of_timed_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, callers: int
) -> None:
    """A machine that takes 2 J for a call of one engine, and 6 J for one of the other."""
    monkeypatch.setattr(stream, "WINDOW_S", 0.002)
    counter = zone(tmp_path, "0", "package-0", 9990, most=10**4) / "energy_uj"
    lock = Lock()

    def run(joules: int) -> Any:
        def call(inputs: Mapping[str, Any]) -> list[Any]:
            with lock:
                counter.write_text(str((int(counter.read_text()) + joules * 10**6) % 10**10))
            time.sleep(0.001)
            return [np.ones(1)]

        return call

    runs = {"a": [run(2)] * callers, "b": [run(6)] * callers}
    frame = bench(runs, {}, 1, effort=Effort(energy=energy(tmp_path)))
    assert frame["joules"].tolist() == [pytest.approx(2), pytest.approx(6)]
