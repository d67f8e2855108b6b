"""The sweep beside other engines, but for its timing: cells, files, tables, who takes part."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pandas as pd
import pytest
from click.testing import CliRunner, Result

import bucketize
from benchmarks import bench, cell, eager, newshape, picture, report, side, start
from benchmarks.__main__ import main as benchmarks_main
from benchmarks.cell import COLUMNS, Cell, WrongOutputError, odd
from benchmarks.sheet import Sheet
from benchmarks.side import DISPATCHED, PEERS, TUNED, Sides, Ways
from bucketize import zoo
from bucketize.analysis import ENGINES, Session, session
from bucketize.analysis.benchmark import OURS, Measured
from bucketize.analysis.engines import Engine, Run
from bucketize.analysis.stream import Window
from bucketize.cli.command.bench import missing
from bucketize.errors import BucketizeError, EngineError
from bucketize.machine.host import host

Patch = pytest.MonkeyPatch
RIGHT, WRONG, ODD = (
    [np.array(values, np.float32)] for values in ([1.0, 2.0], [1.0, 3.0], [9.0, 2.0])
)


def fails(_: Mapping[str, Any]) -> Sequence[Any]:
    raise EngineError("b does not run it: too small")


def runs(result: Sequence[Any]) -> Run:
    return lambda inputs: result


@pytest.fixture
def ab(monkeypatch: Patch) -> None:
    """Peers a, b, c and absent, which is not installed, in place of the real ones."""
    for name in list(PEERS):
        monkeypatch.delitem(PEERS, name)  # type: ignore[arg-type]
    for name in ("a", "b", "c"):
        engine = Engine("json", "numpy", lambda model, threads: (runs(RIGHT), "as it is"))
        monkeypatch.setitem(PEERS, name, engine)  # type: ignore[arg-type]
    absent = Engine("no_such_module", "the-package", lambda *_: pytest.fail("started"))
    monkeypatch.setitem(PEERS, "absent", absent)  # type: ignore[arg-type]


def sides(refused: dict[str, str] | None = None, **results: Run) -> Sides:
    made = {name: Session(name, "1.0", "as it is", run) for name, run in results.items()}
    return Sides(made, refused or {})


# --- outputs ---


@pytest.mark.parametrize(
    ("results", "names"),
    [
        ({OURS: RIGHT}, set()),
        ({OURS: RIGHT, "a": RIGHT}, set()),
        ({OURS: RIGHT, "a": RIGHT, "b": WRONG}, {"b"}),
        ({OURS: RIGHT, "a": WRONG, "b": RIGHT, "c": ODD}, {"a", "c"}),
        ({OURS: RIGHT, TUNED: RIGHT, DISPATCHED: RIGHT, "a": RIGHT, "b": WRONG}, {"b"}),
    ],
)
def test_a_peer_that_most_disagree_with_is_left_out(results: Any, names: set[str]) -> None:
    found = odd(results)
    assert found.keys() == names
    for why in found.values():
        assert "its outputs are apart from those of bucketize" in why
        assert "relative error" in why


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ({OURS: WRONG, "a": RIGHT}, "bucketize: its outputs are apart from those of a: relative"),
        ({OURS: WRONG, "a": RIGHT, "b": RIGHT}, "bucketize: .* of a, b: relative error 5.0e-01"),
        ({OURS: ODD, "a": RIGHT, "b": WRONG}, "bucketize: its outputs are apart"),
        ({OURS: [RIGHT[0][:1]], "a": RIGHT, "b": RIGHT}, "bucketize: .* relative error inf"),
        ({OURS: RIGHT, TUNED: WRONG, "a": RIGHT}, "bucketize tuned: .* of bucketize: relative"),
        # its own ways do not outvote a peer
        (
            {OURS: WRONG, TUNED: WRONG, DISPATCHED: WRONG, "a": RIGHT},
            "bucketize: its outputs are apart from those of a",
        ),
    ],
)
def test_an_output_of_ours_that_is_wrong_ends_the_sweep(results: Any, message: str) -> None:
    with pytest.raises(WrongOutputError, match=message):
        odd(results)


# --- cells ---


def rows_of(
    monkeypatch: Patch, of: Sides, seconds: dict[str, list[float]] | None = None
) -> dict[str, dict[str, Any]]:
    def measured(calls: Mapping[str, Run], *_: Any, **__: Any) -> Measured:
        taken = {name: (seconds or {}).get(name, [1.0, 1.0, 1.0]) for name in calls}
        turns = {name: [Window((s,), s) for s in seconds] for name, seconds in taken.items()}
        return Measured(turns, dict.fromkeys(calls, 1e-6))

    monkeypatch.setattr(cell, "measured", measured)
    monkeypatch.setattr(cell, "peak_gflops", lambda threads: 100.0 * threads)
    rows = Cell("mlp", {"N": 2}, 2).rows(of, {}, 10**11, (1.0, 2))
    assert all(row.keys() <= set(COLUMNS) for row in rows)
    return {row["engine"]: row for row in rows}


def test_a_cell_is_held_against_the_best_peer(ab: None, monkeypatch: Patch) -> None:
    of = sides(bucketize=runs(RIGHT), a=runs(RIGHT), b=runs(RIGHT))
    # the machine was slow in the last round
    seconds = {OURS: [2.0, 2.0, 20.0], "a": [5.0, 5.0, 50.0], "b": [4.0, 4.0, 40.0]}
    rows = rows_of(monkeypatch, of, seconds)
    assert {name: row["ratio"] for name, row in rows.items()} == {OURS: 0.5, "a": 1.25, "b": 1.0}
    ours = rows[OURS]
    assert (ours["model"], ours["sizes"], ours["threads"]) == ("mlp", "N=2", 2)
    assert (ours["time_s"], ours["time_q1_s"], ours["time_q3_s"]) == (2, 2, 11)
    assert (ours["ratio_q1"], ours["ratio_q3"]) == (0.5, 0.5)
    assert (ours["flops"], ours["peak_gflops"], ours["of_peak"]) == (10**11, 200.0, 0.25)
    assert (ours["version"], ours["settings"], ours["cpu"]) == ("1.0", "as it is", host().name)


def test_engines_without_a_time_say_why(ab: None, monkeypatch: Patch) -> None:
    of = sides(
        {"absent": "absent is not installed: pip install it"},
        bucketize=runs(RIGHT),
        a=runs(RIGHT),
        b=fails,
        c=runs(ODD),
    )
    rows = rows_of(monkeypatch, of, {OURS: [3.0] * 3, "a": [4.0] * 3})
    assert rows[OURS]["ratio"] == 0.75
    assert rows["b"]["why"] == "b does not run it: too small"
    assert rows["c"]["why"].startswith("its outputs are apart from those of bucketize, a")
    assert rows["absent"]["why"] == "absent is not installed: pip install it"
    assert all("time_s" not in rows[name] for name in ("b", "c", "absent"))


def test_without_a_peer_there_is_no_ratio(ab: None, monkeypatch: Patch) -> None:
    rows = rows_of(monkeypatch, sides(bucketize=runs(RIGHT)))
    assert np.isnan(rows[OURS]["ratio"])


def test_an_error_of_ours_is_none_of_an_engine(ab: None) -> None:
    def broken(_: Mapping[str, Any]) -> Sequence[Any]:
        raise BucketizeError("no kernel")

    with pytest.raises(BucketizeError, match="no kernel"):
        Cell("mlp", {"N": 2}, 1).rows(sides(bucketize=broken), {}, 1, (1.0, 2))


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("mlp", {"N": 3}),
        ("bert-mini", {"B": 2, "S": 7}),
        ("mobilenetv2", {"N": 1, "H": 32, "W": 40}),
    ],
)
def test_flops_are_those_that_a_profile_counts(name: str, sizes: dict[str, int]) -> None:
    mod = bucketize.from_onnx(zoo.build(name), bounds=zoo.BOUNDS[name])
    exe = bucketize.compile(mod)
    frame = exe.profile(**zoo.inputs(name, sizes), repetitions=1)
    assert cell.flops(mod, sizes) == frame["flops"].sum()


# --- who takes part ---


@pytest.fixture
def net(tmp_path: Path) -> Path:
    onnx.save(zoo.build("mlp"), tmp_path / "mlp.onnx")
    return tmp_path / "mlp.onnx"


def test_all_that_take_part_are_opened_or_named(ab: None, net: Path, monkeypatch: Patch) -> None:
    def refuses(model: Path, threads: int) -> Any:
        raise ValueError(f"no {model.name} on {threads}")

    monkeypatch.setitem(PEERS, "b", Engine("json", "numpy", refuses))  # type: ignore[arg-type]
    real, clones = bucketize.compile, list[int]()

    def compiled(mod: bucketize.Module, **options: Any) -> bucketize.Executable:
        clones.append(len(mod.clones))
        return real(mod, **options)

    monkeypatch.setattr(bucketize, "compile", compiled)
    mod = bucketize.from_onnx(net, bounds={"N": (1, 8)})
    found = side.opened(mod, net, 2, Ways(dispatcher="log"))
    assert list(found.sessions) == [OURS, DISPATCHED, "a", "c"]
    assert clones == [0, 3]
    assert found.sessions[DISPATCHED].settings.endswith("dispatcher log")
    assert found.refused == {
        "b": "b does not take mlp.onnx: no mlp.onnx on 2",
        "absent": "absent is not installed: pip install the-package",
    }
    assert missing(PEERS) == "absent (pip install the-package)"
    inputs = zoo.inputs("mlp", {"N": 3})
    both = [found.sessions[name].run(inputs) for name in (OURS, DISPATCHED)]
    np.testing.assert_allclose(*both, rtol=1e-5)


def test_the_ways_that_are_asked_for() -> None:
    assert Ways().names == [OURS]
    assert Ways(log=Path("x")).names == [OURS, TUNED]
    assert Ways(log=Path("x"), dispatcher="log").names == [OURS, TUNED, DISPATCHED]


# --- torch ---


def parsed(body: str, more: str = "") -> onnx.GraphProto:
    text = f"""<ir_version: 8, opset_import: ["": 17]>
        net (float[N, 4] x) => (float[N, 4] y{more}) {{ {body} }}"""
    return onnx.parser.parse_model(text).graph


def test_a_node_without_a_function_is_named() -> None:
    graph = parsed("a = Relu(x)  b = Hardmax(a)  y = Celu(b)")
    with pytest.raises(EngineError, match=r"benchmarks/eager\.py has no Celu, Hardmax"):
        eager.steps(graph, {"Relu": np.abs})


def test_what_nobody_wants_any_more_is_let_go() -> None:
    graph = parsed("a = Relu(x)  s = Shape(a)  b = Neg(a)  t = Neg(s)  y = Mul(b, b)")
    known = {"Relu": lambda x: x, "Shape": np.shape, "Neg": np.negative, "Mul": np.multiply}
    made = eager.steps(graph, known)
    assert [s.of_shapes for s in made] == [False, True, False, True, False]
    assert [s.dead for s in made] == [["x"], [], ["a"], [], ["b"]]
    values: dict[str, Any] = {"x": np.ones(2)}
    for step in made:
        step.run(values)
    assert values.keys() == {"s", "t", "y"}
    first, *_ = eager.steps(parsed("a = Relu(x)  y = Neg(a)", ", float[N, 4] a"), known)[::-1]
    assert first.dead == []  # `a` is an output, too


def test_padding_is_the_same_at_both_ends() -> None:
    assert eager.symmetric([1, 2, 1, 2]) == [1, 2]
    with pytest.raises(EngineError, match=r"has no padding \[0, 0, 1, 1\]"):
        eager.symmetric([0, 0, 1, 1])


def test_ones_are_put_where_they_are_asked_for() -> None:
    assert eager.unsqueezed([2, 3], [0, -1]) == [1, 2, 3, 1]
    assert eager.unsqueezed([], [0]) == [1]


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["mlp", "bert-mini", "mobilenetv2", "resnet18"])
def test_torch_computes_the_same(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    onnx.save(zoo.build(name), tmp_path / "net.onnx")
    ours, theirs = (
        session(n, tmp_path / "net.onnx", engines=PEERS) for n in ("torch", "onnxruntime")
    )
    for size in (40, 33, 40):
        sizes = dict.fromkeys(zoo.BOUNDS[name], size) | {"N": 2, "B": 2}
        inputs = zoo.inputs(name, {s: sizes[s] for s in zoo.BOUNDS[name]})
        for a, b in zip(ours.run(inputs), theirs.run(inputs), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-4)


# --- new shapes and starts ---


def test_an_engine_that_fails_in_a_stream_is_named(monkeypatch: Patch) -> None:
    monkeypatch.setattr(newshape, "RANGES", {"mlp": {"N": (1, 16)}})
    calls: list[int] = []

    def weak(inputs: Mapping[str, Any]) -> Sequence[Any]:
        calls.append(1)
        return fails(inputs) if len(calls) == 20 else []

    taken, refused = newshape.steps({"good": runs([]), "weak": weak}, newshape.stream("mlp", 14))
    assert refused == {"weak": "b does not run it: too small"}
    assert len(calls) == 20
    assert taken.keys() == {"good"}
    assert len(taken["good"]) == 14 - newshape.LAG
    assert all(ratio > 0 for of in (1, 2) for ratio in newshape.ratios(taken["good"], of))


def job(name: str, net: Path, model: str = "mlp") -> str:
    told = {"name": name, "model": model, "path": str(net), "sizes": {"N": 2}, "threads": 1}
    return json.dumps({**told, "log": None, "dispatcher": None})


@pytest.mark.parametrize("name", [start.NOTHING, OURS, "onnxruntime"])
def test_a_start_is_told(
    name: str, net: Path, monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["start", job(name, net)])
    start.main()
    told = json.loads(capsys.readouterr().out)
    assert told["seconds"] > 0
    assert 10 < told["peak_mib"] < 100_000


def test_a_start_that_fails_says_why(
    ab: None, net: Path, monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["start", job("absent", net)])
    start.main()
    told = json.loads(capsys.readouterr().out)
    assert told == {"why": "absent is not installed: pip install the-package"}


def test_a_process_that_breaks_says_why(net: Path) -> None:
    why = start.started(start.NOTHING, "no-model", net, {"N": 2}, 1, Ways())["why"]
    assert "its process ended with 1 and said " in why
    assert "no zoo model named 'no-model'" in why


def test_a_start_is_measured_with_and_without_a_cache(net: Path, monkeypatch: Patch) -> None:
    caches: list[str] = []

    def process(job: Mapping[str, Any], cache: str) -> dict[str, float]:
        caches.append(cache)
        return {"seconds": 5.0 / len(caches), "peak_mib": 70.0}

    monkeypatch.setattr(start, "_process", process)
    asked = net, {"N": 2}, 1, Ways()
    ours = start.started(OURS, "mlp", *asked)
    assert ours == {"cold_s": 5.0, "warm_s": 2.5, "peak_mib": 70.0}
    assert len(set(caches)) == 1
    assert start.started("onnxruntime", "mlp", *asked)["warm_s"] == pytest.approx(5 / 3)
    assert start.started(start.NOTHING, "mlp", *asked) == {"peak_mib": 70.0}


# --- files ---


def sheet(path: Path) -> Sheet:
    return Sheet(path / "s.csv", ("model", "n", "why", "cpu"), ("model", "n"))


def row(n: int, **more: Any) -> dict[str, Any]:
    return {"model": "mlp", "n": n, "cpu": host().name, **more}


def test_a_sheet_is_gone_on_with(tmp_path: Path) -> None:
    one = sheet(tmp_path)
    assert not one.has(("mlp", 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one.add([row(1), row(1, why="no reason, at all")])
        one.add([row(2)])
    again = sheet(tmp_path)
    assert [again.has(("mlp", n)) for n in (1, 2, 3)] == [True, True, False]
    again.add([row(3)])
    assert list(pd.read_csv(tmp_path / "s.csv")["n"]) == [1, 1, 2, 3]
    assert sheet(tmp_path).frame["why"][1] == "no reason, at all"


def test_an_interruption_leaves_no_torn_sheet(tmp_path: Path, monkeypatch: Patch) -> None:
    one = sheet(tmp_path)
    one.add([row(1)])

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        one.add([row(2), row(2)])
    assert list(pd.read_csv(tmp_path / "s.csv")["n"]) == [1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "s.csv is no CSV: "),
        ('a,"b', "s.csv is no CSV: "),
        ("model,n\nmlp,1\n", "s.csv has the columns model, n, not model, n, why, cpu; name"),
        ("model,n,why,cpu\nmlp,1,,i486\n", "s.csv was measured on i486, this is .*; name"),
    ],
)
def test_a_sheet_of_something_else_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "s.csv").write_text(text)
    with pytest.raises(BucketizeError, match=message):
        sheet(tmp_path)


# --- tables ---


def cells() -> pd.DataFrame:
    """Two sizes of two models: at the second one peer has no time."""
    rows = []
    for model, n, ratio in (("mlp", 1, 0.5), ("mlp", 2, 2.0), ("mlp", 3, 1.0), ("bert", 1, 0.9)):
        same = {"model": model, "sizes": f"N={n}", "threads": 1, "cpu": "i486", "flops": 10}
        same |= {"time_s": 1e-3, "time_q1_s": 1e-3, "time_q3_s": 2e-3, "of_peak": 0.25}
        same |= {"error": 1e-6, "date": "2026-01-31T00:00", "version": "1"}
        spread = {"ratio_q1": ratio - 0.1, "ratio_q3": ratio + 0.1}
        rows += [same | spread | {"engine": OURS, "ratio": ratio}]
        rows += [same | {"engine": TUNED, "ratio": ratio / 2, "ratio_q1": 0.1, "ratio_q3": 3.0}]
        rows += [same | {"engine": "onnxruntime", "ratio": 1.0, "time_s": 2e-3}]
        same = {k: same[k] for k in (*cell.KEY, "cpu", "date")}
        rows += [same | {"engine": "mnn", "why": "mnn does not: so"}]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def test_means_are_geometric_and_the_worst_has_a_place() -> None:
    mlp = cells()[cells()["model"] == "mlp"]
    assert report.summary(mlp) == report.Summary(pytest.approx(1.0), 2.0, "N=2", 3)
    tuned = report.summary(mlp, TUNED)
    assert tuned is not None
    assert tuned.mean == pytest.approx(0.5)
    assert report.summary(mlp, DISPATCHED) is None
    assert report.summary(mlp.assign(ratio=np.nan)) is None


def test_the_table_of_a_model() -> None:
    mlp = cells()[cells()["model"] == "mlp"]
    head, *body = report.shown_cells(mlp).splitlines()
    assert head.split("  ")[0] == "sizes"
    assert "onnxruntime ms" in head
    assert "mnn" not in head
    figures = "N=1 1.000 2.000 0.50 0.25 0.40..0.60 25 % 1e-06"
    assert body[0].split() == figures.split()
    assert body[3:] == [
        "defaults by the best peer: 1.000 (geometric mean of 3), worst 2.00 at N=2",
        "tuned by the best peer: 0.500 (geometric mean of 3), worst 1.00 at N=2",
        "mnn, left out of 3: does not: so",
    ]


def test_the_table_of_all_models() -> None:
    head, mlp, bert = report.shown_summary(cells()).splitlines()
    assert mlp.split() == ["mlp", "1", "3", "1.000", "0.500", "-", "2.00", "at", "N=2"]
    assert bert.split() == ["bert", "1", "1", "0.900", "0.450", "-", "0.90", "at", "N=1"]
    assert "dispatched" in head


def test_without_peers_there_are_tables_too() -> None:
    alone = cells()[cells()["engine"] == OURS].assign(ratio=np.nan, ratio_q1=np.nan)
    assert "N=2" in report.shown_cells(alone)
    assert "best peer:" not in report.shown_cells(alone)
    assert report.shown_summary(alone).splitlines()[1].split() == ["mlp", "1", *"-----"]
    assert "no peer" in picture.title(alone)
    picture.figure(alone)


def test_the_picture_shows_each_model() -> None:
    figure = picture.figure(cells())
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert titles == ["mlp", "bert"]
    labels = figure.axes[0].get_legend_handles_labels()[1]
    assert labels == ["defaults, 1 thread: 1.00", "tuned, 1 thread: 0.50"]
    assert picture.title(cells()) == (
        "time by that of the best of onnxruntime 1 (i486, 2026-01-31)"
    )
    assert picture.short("N=1,H=480,W=360") == "1x480x360"
    assert picture.short("N=17") == "N=17"


# --- the command ---


@pytest.fixture
def small(ab: None, monkeypatch: Patch) -> None:
    """Little to measure, beside engines that compute what bucketize does; nothing started."""
    mod = bucketize.from_onnx(zoo.build("mlp"), bounds=zoo.BOUNDS["mlp"])
    exe = bucketize.compile(mod)
    for name in ("a", "b", "c"):
        same = Engine("json", "numpy", lambda *_: (lambda x: exe.run(**x), "as it is"))
        monkeypatch.setitem(PEERS, name, same)  # type: ignore[arg-type]
    monkeypatch.setattr(newshape, "RANGES", {"mlp": {"N": (1, 16)}})
    little = bench.Effort(bench.QUICK, 0.0, 2, {"mlp": 12})
    monkeypatch.setattr(bench, "FULL", little)
    monkeypatch.setattr(start, "started", lambda name, *_: {"cold_s": 2.0, "peak_mib": 9.0})


ASKED = ("bench", "-m", "mlp", "-t", "1", "--at", "N=2", "--at", "N=3")


def swept(out: Path, *more: str) -> Result:
    return CliRunner().invoke(benchmarks_main, [*ASKED, *more, "--out", str(out)])


def test_a_sweep_writes_tables_and_a_picture(small: None, tmp_path: Path) -> None:
    result = swept(tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "not installed, and not compared with: absent (pip install the-package)" in result.stderr
    assert "== mlp, 1 thread" in result.stdout
    assert "geometric mean of 2" in result.stdout
    assert "absent, left out of 2: is not installed: pip install the-package" in result.stdout
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert files == {"cells.csv", "streams.csv", "starts.csv", "bench.png"}
    cells, streams, starts = (pd.read_csv(tmp_path / "out" / f"{n}.csv") for n in FILES)
    assert tuple(cells.columns) == COLUMNS
    assert list(cells["engine"]) == 2 * [OURS, "a", "b", "c", "absent"]
    assert (cells["flops"] == cells["sizes"].map({"N=2": 7446528, "N=3": 11169792})).all()
    assert list(streams["engine"]) == [OURS, "a", "b", "c", "absent"]
    assert list(starts["engine"]) == [start.NOTHING, OURS, *PEERS]


FILES = ("cells", "streams", "starts")


def test_an_interrupted_sweep_goes_on(small: None, tmp_path: Path, monkeypatch: Patch) -> None:
    real, begun = Cell.rows, list[str]()

    def rows(self: Cell, *given: Any) -> Any:
        begun.append(self.key[1])
        if len(begun) == 2:
            raise KeyboardInterrupt
        return real(self, *given)

    monkeypatch.setattr(Cell, "rows", rows)
    result = swept(tmp_path)
    assert result.exit_code == 130
    assert f"interrupted; the same command with --out {tmp_path} goes on" in result.stderr
    assert "by the best peer" in result.stdout
    assert set(pd.read_csv(tmp_path / "cells.csv")["sizes"]) == {"N=2"}
    for _ in range(2):
        assert swept(tmp_path).exit_code == 0
    assert begun == ["N=2", "N=3", "N=3"]
    assert list(pd.read_csv(tmp_path / "cells.csv")["sizes"]) == 5 * ["N=2"] + 5 * ["N=3"]
    assert len(pd.read_csv(tmp_path / "streams.csv")) == 5


def test_a_wrong_output_is_an_error(small: None, tmp_path: Path, monkeypatch: Patch) -> None:
    def wrong(*_: Any) -> Any:
        return lambda inputs: [np.zeros((len(inputs["data"]), 10), np.float32)], "wrong"

    for name in ("a", "b", "c"):
        monkeypatch.setitem(PEERS, name, Engine("json", "numpy", wrong))  # type: ignore[arg-type]
    result = swept(tmp_path)
    assert result.exit_code == 2
    assert "error: bucketize: its outputs are apart from those of a, b, c" in result.stderr
    assert not (tmp_path / "cells.csv").exists()


@pytest.mark.filterwarnings("default:.*trials is confirmed|.* have no verdict")  # by the clock
def test_tuned_and_dispatched_take_part(small: None, tmp_path: Path) -> None:
    result = swept(tmp_path, "--tune", "1", "-d", "log")
    assert result.exit_code == 0, result.output
    engines = list(pd.read_csv(tmp_path / "cells.csv")["engine"])
    assert engines[:3] == [OURS, TUNED, DISPATCHED]
    assert (tmp_path / "trials.csv").exists()
    assert "dispatched by the best peer: " in result.stdout


def test_a_quick_sweep_has_no_stream_of_large_models(
    small: None, tmp_path: Path, monkeypatch: Patch
) -> None:
    assert set(bench.LITTLE.shapes) == {"mlp", "bert-mini", "mobilenetv2", "resnet18"}
    monkeypatch.setattr(bench, "LITTLE", replace(bench.FULL, shapes={}))
    assert swept(tmp_path, "--quick").exit_code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"cells.csv", "starts.csv", "bench.png"}


def test_the_sweep_is_of_what_models_take() -> None:
    for points in (bench.SWEEP, bench.QUICK):
        assert points.keys() == newshape.RANGES.keys()
        for model, every in points.items():
            for sizes in every:
                bounds = zoo.BOUNDS[model]
                assert sizes.keys() == bounds.keys()
                assert all(lo <= sizes[s] <= hi for s, (lo, hi) in bounds.items())
    assert set(ENGINES) < set(PEERS)


def test_benchmarks_are_commands() -> None:
    names = benchmarks_main.list_commands(None)  # type: ignore[arg-type]
    commands = [benchmarks_main.get_command(None, name) for name in names]  # type: ignore[arg-type]
    assert all(command is not None and command.help for command in commands)
    result = CliRunner().invoke(benchmarks_main, ["nope"])
    assert result.exit_code == 2
    assert "No such command 'nope'" in result.stderr
    assert CliRunner().invoke(benchmarks_main, ["bench", "-m", "vgg"]).exit_code == 2


def test_several_benchmarks_run_in_turn(monkeypatch: Patch) -> None:
    said: list[str] = []

    def main_of(name: str) -> Callable[[], None]:
        return lambda: said.append(name)

    for name in ("dispatch", "clones"):
        monkeypatch.setattr(f"benchmarks.{name}.main", main_of(name))
    result = CliRunner().invoke(benchmarks_main, ["clones", "dispatch"])
    assert (result.exit_code, said) == (0, ["clones", "dispatch"])
    assert result.stdout == "== clones\n== dispatch\n"
    monkeypatch.setattr("benchmarks.__main__.NAMES", ("dispatch",))
    assert CliRunner().invoke(benchmarks_main, []).exit_code == 0
    assert said[2:] == ["dispatch"]
