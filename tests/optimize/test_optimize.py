"""`bucketize.optimize`: an executable for a traffic that serves all sizes, and honest figures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import bucketize
from bucketize import zoo
from bucketize.analysis.engines import ENGINES, Run
from bucketize.cli.group import main
from bucketize.errors import ArgumentError, BucketizeWarning, ShapeError
from bucketize.ir import Builder, Module, Var
from bucketize.log.log import rows
from bucketize.ops import relu
from bucketize.optimize import optimize as home
from bucketize.optimize.optimize import Latency, Optimized, optimize, quantiles
from bucketize.partition.value import Frontier, Partition
from bucketize.traffic.value import Traffic
from bucketize.tune.options import Options
from bucketize.types import Symbol, tensor


def mlp() -> Module:
    return bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, 64)})


def traffic(*sizes: int) -> Traffic:
    return Traffic(("N",), np.array(sizes)[:, None], np.ones(len(sizes), int))


def test_it_serves_the_traffic_and_all_else(tmp_path: Path) -> None:
    log = tmp_path / "t.csv"
    its = optimize(mlp(), traffic(2, 3, 3, 4), log=log, seconds=1)
    plain = bucketize.compile(mlp())
    for n in (1, 3, 64):
        x = np.random.default_rng(n).random((n, 784), np.float32)
        np.testing.assert_allclose(its.executable(x)[0], plain(x)[0], rtol=1e-5, atol=1e-6)
    assert its.executable.explain(N=3).clone == "main[N=2..4]"
    assert its.executable.explain(N=5).clone == "main[fallback]"
    assert [each.engine for each in its.latencies] == ["optimized", "untuned"]
    assert its.latencies[0].ratio == 1
    assert {row.bucket for row in rows(log)} == {"N=2..4"}
    again = optimize(mlp(), traffic(3), log=log, seconds=1)
    assert again.executable.explain(N=3).clone == "main[N=3]"


def latency(engine: str, ratio: float) -> Latency:
    return Latency(engine, 0.002 * ratio, 0.001, 0.004, ratio, ratio - 0.1, ratio + 0.1)


@pytest.mark.parametrize(
    ("promise", "waiting", "last"),
    [
        (0.004, 0, "this is it"),
        (0.05, 0, "save 5.0%: go on"),
        (0.004, 2, "2 clones not confirmed for want of time: go on"),
    ],
)
def test_one_figure_what_was_chosen_and_whether_to_go_on(
    promise: float, waiting: int, last: str
) -> None:
    bucket = Frontier(({"N": (1, 9)},), 1e-3, 2e-3, 1.0, 3, 0)
    chosen = Partition(bucket, (bucket,), 1e-3, 10)
    both = latency("optimized", 1.0), latency("onnxruntime", 1.5)
    its = Optimized(None, chosen, both, "4 measurements, 1 clone faster", promise, 7.0, waiting)  # type: ignore[arg-type]
    first, peer, buckets, schedules, end = str(its).splitlines()
    assert first == (
        "2.000 ms a request in the mean, 500 requests a second (p50 1.000 ms, p95 4.000 ms)"
    )
    assert peer.startswith("  onnxruntime: 3.000 ms, 1.50 times as long (1.40 to 1.60; ")
    assert buckets.startswith("buckets: 1 clone is enough, ")
    assert schedules == "schedules: 4 measurements, 1 clone faster"
    assert end.startswith("7 s; ")
    assert end.endswith(last)


def test_quantiles_stand_for_equally_many_requests() -> None:
    mine = Traffic(("N",), np.array([[1], [8], [64]]), np.array([5, 3, 2]))
    assert [point["N"] for point in quantiles(mine, 10)] == 5 * [1] + 3 * [8] + 2 * [64]


@pytest.mark.parametrize("name", ["chunks", "recommender", "prompts", "queries"])
def test_percentiles_are_those_of_calls_of_all_requests(name: str) -> None:
    """By a clock that takes a second for each row, and now and then twice as long."""
    its = zoo.traffic(name).without_times()
    sizes = [point[its.symbols[0]] for point in quantiles(its, home.SIZES)]
    rounds = [[[n * 1.0, n * 1.0, n * slow] for n in sizes] for slow in (1.0, 1.0, 2.0)]
    both = home._latency("ours", [{"ours": each, home.OURS: each} for each in rounds[:2]])
    assert both.p95_s == its.quantiles(its.symbols[0], [0.95])[0]
    assert both.p50_s == pytest.approx(its.quantiles(its.symbols[0], [0.5])[0], rel=0.02)
    slow = home._latency("slow", [{"slow": each, home.OURS: rounds[0]} for each in rounds])
    assert slow.mean_s == pytest.approx(both.mean_s * 10 / 9)
    assert (slow.ratio, slow.ratio_low, slow.ratio_high) == (1, 1, 1)
    assert slow.p95_s >= both.p95_s


@pytest.mark.parametrize(("threads", "wait"), [(1, 0.0), (2, 0.02)])
def test_threads_of_the_one_before_come_to_rest_beside_onnxruntime(
    threads: int, wait: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[float, set[str]] = {}

    def timed(runs: dict[str, Run], _inputs: object, _end: float, pause_s: float) -> object:
        asked.setdefault(pause_s, set()).update(runs)
        return ()

    monkeypatch.setattr(home, "_timed", timed)
    model = mlp_file(tmp_path)
    optimize(mlp(), traffic(3), log=tmp_path / "t.csv", seconds=1, model=model, threads=threads)
    assert asked == {wait: {"optimized", "untuned", "onnxruntime"}}


def test_a_pause_comes_before_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    run: Run = lambda _: [np.zeros(1, np.float32)]  # noqa: E731
    home._timed({home.OURS: run, home.UNTUNED: run}, [{}], 0.0, 0.5)
    assert slept == [0.5] * 2 * home.ROUNDS * home.PASSES


def test_the_command_writes_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("r.csv").write_text("N,requests\n2,3\n5,1\n")
    call = ["optimize", "zoo:mlp", "--traffic", "r.csv", "--seconds", "1", "--json"]
    result = CliRunner().invoke(main, call, catch_exceptions=False)
    facts = json.loads(result.stdout)
    assert facts["buckets"] == [{"N": [2, 6]}]
    assert (facts["written"], facts["log"]) == ("mlp.bkt", "mlp.csv")
    loaded = bucketize.load("mlp.bkt")
    assert loaded(np.zeros((1, 784), np.float32))[0].shape == (1, 10)


def mlp_file(folder: Path) -> Path:
    path = folder / "mlp.onnx"
    onnx.save(zoo.build("mlp"), path)
    return path


def test_without_onnxruntime_the_rest_is_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = replace(ENGINES["onnxruntime"], module="a_module_that_is_not_there")
    monkeypatch.setitem(ENGINES, "onnxruntime", absent)
    model = mlp_file(tmp_path)
    its = optimize(mlp(), traffic(3), log=tmp_path / "t.csv", seconds=1, model=model)
    assert [each.engine for each in its.latencies] == ["optimized", "untuned"]


@pytest.mark.parametrize("fails", ["at the start", "in a run"])
def test_what_onnxruntime_does_not_run_is_timed_without_it(
    fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Any:
        raise ValueError("no kernel for this")

    start = fail if fails == "at the start" else lambda *_: (fail, "settings")
    monkeypatch.setitem(ENGINES, "onnxruntime", replace(ENGINES["onnxruntime"], start=start))
    model = mlp_file(tmp_path)
    with pytest.warns(BucketizeWarning, match=r"^not timed beside onnxruntime: .* no kernel for"):
        its = optimize(mlp(), traffic(3), log=tmp_path / "t.csv", seconds=1, model=model)
    assert [each.engine for each in its.latencies] == ["optimized", "untuned"]


def test_who_interrupts_it_is_told_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def interrupted(_module: Module, how: Options) -> None:
        asked.append(how.trials)
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(home, "opened", interrupted)
    Path("r.csv").write_text("N,requests\n2,3\n")
    for more, trials in ([], Options.trials), (["--trials", "3"], 3):
        result = CliRunner().invoke(main, ["optimize", "zoo:mlp", "--traffic", "r.csv", *more])
        assert (result.exit_code, asked.pop()) == (130, trials)
    last = "interrupted: mlp.csv keeps what was timed; the same command goes on"
    assert result.stderr.splitlines()[-1] == last
    assert not Path("mlp.bkt").exists()


def test_symbols_that_the_model_has_not_are_passed_by(tmp_path: Path) -> None:
    both = Traffic(("N", "T"), np.array([[2, 7], [3, 9]]), np.array([1, 1]))
    its = optimize(mlp(), both, log=tmp_path / "t.csv", seconds=1)
    assert its.executable.explain(N=3).clone == "main[N=2..3]"


def test_symbols_that_the_traffic_lacks_keep_their_bounds(tmp_path: Path) -> None:
    out, x = Builder(), Var("x", tensor("float32", Symbol("N", 1, 64), Symbol("M", 1, 16)))
    mod = Module({"main": out.function("main", [x], [out.emit(relu, x)])})
    its = optimize(mod, traffic(2, 3), log=tmp_path / "t.csv", seconds=1)
    assert its.executable.explain(N=3, M=16).clone == "main[N=2..3,M=1..16]"


def test_what_no_traffic_is_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "t.csv"
    with pytest.raises(ArgumentError, match=r"^expected a Traffic, got \{'N': 3\}: Traffic\.read"):
        optimize(mlp(), {"N": 3}, log=log)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"^seconds: expected a number from 1, got 0$"):
        optimize(mlp(), traffic(3), log=log, seconds=0)
    with pytest.raises(ShapeError, match=r"^traffic: N=65 is out of its bounds \[1, 64\]$"):
        optimize(mlp(), traffic(3, 65), log=log)
    assert not log.exists()
