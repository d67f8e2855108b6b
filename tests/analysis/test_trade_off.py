"""A trade-off measured in pieces: what is left, what is kept when it is stopped, what it says."""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas as pd
import pytest
from click.testing import CliRunner, Result
from onnx_model import parse

from bucketize import analysis
from bucketize.analysis import Case, measure_trade_off, plot_trade_off, trade_off, versus_oracle
from bucketize.analysis.piece import Piece, Pieces
from bucketize.analysis.tradeoff import FEWEST, Survey
from bucketize.busy import Machine
from bucketize.cli import table as tables
from bucketize.cli.compare import (
    HOW,
    distinct,
    shown_cost,
    shown_latency,
    shown_oracle,
    shown_trade,
)
from bucketize.cli.group import main
from bucketize.cli.parameter import weighted_sizes
from bucketize.dispatch.tree import dispatch
from bucketize.errors import ArgumentError, BucketizeWarning, LateError
from bucketize.ir import Module
from bucketize.onnx import from_onnx
from bucketize.tune.api import tune
from dispatchers import exact_dispatcher, log_dispatcher


@pytest.fixture(autouse=True)
def compiled_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs are those of a warm cache: they are told sooner."""
    monkeypatch.setattr("bucketize.analysis.cost._empty_cache", nullcontext)


class Clock:
    """Time that passes when told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def passing(self, seconds: float) -> Callable[[], None]:
        def passes() -> None:
            self.now += seconds

        return passes


# --- pieces --------------------------------------------------------------------------------------


def pieces_of(clock: Clock, *told: tuple[str, float, float], seconds: float = math.inf) -> Pieces:
    """Pieces of a kind, that take some seconds, of some weight."""
    every = [Piece(k, f"{k}{i}", clock.passing(s), w) for i, (k, s, w) in enumerate(told)]
    return Pieces(every, lambda *_, **__: None, seconds, clock)


def test_what_is_left_follows_from_what_each_kind_has_taken() -> None:
    clock, said = Clock(), list[tuple[str, int, float]]()
    pieces = pieces_of(clock, ("a", 4, 1), ("b", 10, 1), ("a", 6, 1), ("b", 30, 3), ("b", 20, 2))
    pieces.tell = lambda what, done, total, **more: said.append((what, done, more["expected_s"]))
    pieces.work()
    assert said == [
        ("a0", 0, math.inf),
        ("b1", 1, math.inf),
        ("a2", 2, 4 + 30 + 20),
        ("b3", 3, 30 + 20),
        ("b4", 4, 20),
    ]
    assert pieces.expected_s == 0.0


def test_what_has_passed_of_a_piece_is_not_left() -> None:
    clock, left = Clock(), list[float]()
    pieces = pieces_of(clock, ("a", 10, 1), ("a", 10, 1), ("a", 10, 1))

    def long() -> None:
        for _ in range(3):
            clock.now += 6
            left.append(pieces.expected_s)

    pieces.pieces = [pieces.pieces[0], Piece("a", "long", long), pieces.pieces[2]]
    pieces.work()
    assert left == [14.0, 10.0, 10.0]  # it takes longer than expected, but the last is still to do


def test_no_piece_begins_after_its_time() -> None:
    clock = Clock()
    pieces = pieces_of(clock, *3 * [("a", 10.0, 1.0)], seconds=15.0)
    pieces.work()
    assert (pieces.done, clock.now) == (2, 20.0)
    with pytest.raises(LateError):
        pieces.say("more")


# --- surveys -------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model."""
    path = tmp_path_factory.mktemp("model") / "net.onnx"
    made = parse("(float[N, 16] x) => (float[N, 8] y) { y = MatMul(x, w) }", 17)
    weights = onnx.numpy_helper.from_array(np.ones((16, 8), np.float32), "w")
    made.graph.initializer.append(weights)
    onnx.save(made, path)
    return path


@pytest.fixture(scope="session")
def log(model: Path) -> Path:
    """A log of what the log dispatcher makes of it."""
    path = model.parent / "t.csv"
    mod = dispatch(from_onnx(model, bounds={"N": (1, 8)}), log_dispatcher)
    tune(mod, log=path, trials=1)
    return path


@pytest.fixture
def net(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The model in an empty directory."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(model, "net.onnx")
    return "net.onnx"


@pytest.fixture
def modules(net: str) -> dict[str, Module]:
    mod = from_onnx(net, bounds={"N": (1, 8)})
    exact = exact_dispatcher.with_options(sizes=[2, 5])
    return {"log": dispatch(mod, log_dispatcher), "none": mod, "oracle": dispatch(mod, exact)}


def cases(modules: dict[str, Module]) -> list[Case]:
    mod = modules["none"]
    return [Case.of(mod, w, x=np.ones((n, 16), np.float32)) for n, w in ((2, 0.25), (5, 0.75))]


def survey(modules: dict[str, Module], tell: Callable[..., None], seconds: float = 60.0) -> Survey:
    return Survey(modules, cases(modules), None, 1, "net", seconds, tell)


def test_what_is_late_keeps_what_was_measured(modules: dict[str, Module]) -> None:
    clock = Clock()

    def tell(what: str, *_: int, **__: float) -> None:
        if what == "measuring N=5":
            clock.now += 100.0

    of = survey(modules, tell)
    of.pieces.clock, of.pieces.begin = clock, 0.0
    of.work()
    assert of.shortfall == "not compiled for its cost: log"
    assert of.latency.groupby("shape")["round"].nunique()["N=5"] == FEWEST
    assert list(of.cost["dispatcher"]) == ["log", "none"]
    assert of.cost["clones"].tolist() == [3, 1]
    assert of.cost["kernels"].isna().tolist() == [True, False]
    trade = trade_off(of.latency, of.cost)
    assert trade["mean_slowdown"].notna().all()
    plot_trade_off(trade)
    assert shown_cost(of.cost.iloc[0]) == {"compile": None, "tuned": None}
    assert "log" in shown_trade(untuned(of.latency), of.cost)


def untuned(latency: pd.DataFrame) -> pd.DataFrame:
    return latency.replace({"dispatcher": {"none": "untuned"}})


@pytest.mark.parametrize("where", ["measuring N=5", "compiling log for N=5", "the ops' own resul"])
def test_what_is_interrupted_keeps_what_was_measured(
    modules: dict[str, Module], where: str
) -> None:
    def tell(what: str, *_: int, **__: float) -> None:
        if what.startswith(where) and what.endswith("N=5"):
            raise KeyboardInterrupt

    of = survey(modules, tell)
    with pytest.raises(KeyboardInterrupt):
        of.work()
    assert of.shortfall == "not measured: N=5; not compiled for its cost: log"
    assert set(of.latency["shape"]) == {"N=2"}
    assert list(versus_oracle(of.latency)["dispatcher"]) == ["log", "none", "oracle"]


@pytest.mark.parametrize(("rounds", "kept"), [(FEWEST - 1, 0), (FEWEST, 3 * FEWEST)])
def test_rounds_before_an_interrupt_are_kept_if_they_have_a_spread(
    modules: dict[str, Module], monkeypatch: pytest.MonkeyPatch, rounds: int, kept: int
) -> None:
    def fill(_: Survey, found: list[dict[str, float]], __: Case) -> None:
        found += rounds * [dict.fromkeys(modules, 1.0)]
        raise KeyboardInterrupt

    monkeypatch.setattr(Survey, "_fill", fill)
    of = survey(modules, lambda *_, **__: None)
    with pytest.raises(KeyboardInterrupt):
        of.work()
    assert len(of.calls) == kept


def test_a_limit_is_kept_inside_of_a_long_compilation(modules: dict[str, Module]) -> None:
    clock = Clock()

    def tell(what: str, *_: int, **__: float) -> None:
        clock.now += 100.0 * what.startswith("cost of none: deciding")

    of = survey(modules, tell)
    of.pieces.clock, of.pieces.begin = clock, 0.0
    of.work()
    assert of.costs == {}
    assert of.pieces.done == 0


def test_python_warns_of_what_was_not_reached(modules: dict[str, Module]) -> None:
    with pytest.warns(BucketizeWarning, match="not measured: N=2; N=5; not compiled for its cost"):
        latency, cost = measure_trade_off(modules, cases(modules), seconds=1e-9)
    assert latency.empty
    assert list(cost["dispatcher"]) == ["log", "none"]


def test_rows_tell_weights_and_what_the_machine_did(
    modules: dict[str, Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bucketize.analysis.tradeoff.ENOUGH_S", 0.0)
    monkeypatch.setattr("bucketize.busy.Watch._machine", lambda _: Machine(0.125, 3.0, 2))
    latency, cost = measure_trade_off(modules, cases(modules))
    assert set(latency[["shape", "weight"]].itertuples(index=False, name=None)) == {
        ("N=2", 0.25), ("N=5", 0.75),
    }  # fmt: skip
    assert set(latency["others"]) == {0.125}
    assert set(latency["load"]) == {3.0}
    assert list(latency["dispatcher"].unique()) == list(modules)
    beside = versus_oracle(latency).set_index(["dispatcher", "shape"])
    mean = 0.25 * beside.loc[("log", "N=2"), "latency_s"]
    mean += 0.75 * beside.loc[("log", "N=5"), "latency_s"]
    assert trade_off(latency, cost)["mean_s"][0] == pytest.approx(mean)


@pytest.mark.parametrize("weight", [0.0, -1.0, math.nan, math.inf])
def test_a_weight_that_is_none_is_refused(modules: dict[str, Module], weight: float) -> None:
    with pytest.raises(ArgumentError, match="weight: expected a finite number above 0, got "):
        Case.of(modules["none"], weight, x=np.ones((2, 16), np.float32))


# --- the command ---------------------------------------------------------------------------------


def run(*args: str) -> Result:
    result = CliRunner().invoke(main, args)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


ASKED = ("analyze", "t.csv", "--model", "net.onnx", "--dim", "N=1..8", "-d", "log")
SAY = pytest.mark.filterwarnings("always:the log knows nothing of the oracle")


@pytest.fixture
def quick(net: str, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rounds, and a log of the log dispatcher."""
    monkeypatch.setattr("bucketize.analysis.tradeoff.ENOUGH_S", 0.0)
    shutil.copy(log, "t.csv")


@SAY
def test_an_oracle_that_was_not_tuned_is_told_with_the_command_that_does(quick: None) -> None:
    first = run(*ASKED, "--at", "N=1", "--at", "N=5*2")
    note = (
        "oracle: a static clone for exactly the shape, tuned at N=1, on default schedules at N=5."
    )
    assert note in " ".join(first.stdout.split())  # the log dispatcher has a bucket of N=1
    said = re.search(r"nothing of the oracle at N=5, so .*:\n  bucketize (.*)\n", first.stderr)
    assert said is not None
    assert said[1] == "tune net.onnx --dim N=1..8 -d oracle --at N=5 --log t.csv"
    assert run(*shlex.split(said[1]), "--trials", "1").exit_code == 0
    again = run(*ASKED, "--at", "N=1", "--at", "N=5*2")
    assert "nothing of the oracle" not in again.stderr
    assert "shape, tuned." in " ".join(again.stdout.split())


@SAY
@pytest.mark.filterwarnings("always:.*tune with threads=2, too")
def test_the_command_has_what_must_be_the_same(quick: None) -> None:
    more = ("--weights", "int8", "--precision", "exact", "--threads", "2")
    said = run(*ASKED[:4], "--dim", "N=1..", "-d", "none", *more, "--at", "N=5", "--seconds", "60")
    told = "net.onnx --dim N=1.. -d oracle --at N=5 --precision exact --weights int8 --threads 2"
    assert f"bucketize tune {told} --log t.csv" in said.stderr


@SAY
def test_an_interrupt_prints_and_writes_what_there_is(
    quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = Survey._measure

    def interrupted(of: Survey, case: Case) -> None:
        if case.shape == "N=5":
            raise KeyboardInterrupt
        measure(of, case)

    monkeypatch.setattr(Survey, "_measure", interrupted)
    result = run(*ASKED, "--at", "N=3", "--at", "N=5", "--csv", "o.csv", "--plot", "o.png")
    assert result.exit_code == 130
    told = "interrupted; not measured: N=5; not compiled for its cost: log\n"
    assert told in result.stderr
    assert result.stdout.startswith("ms ")
    assert "\nN=3 " in result.stdout
    assert set(pd.read_csv("o.csv")["shape"]) == {"N=3"}
    assert Path("o.png").exists()
    nothing = run(*ASKED, "--at", "N=5")
    assert (nothing.exit_code, nothing.stdout) == (130, "")
    assert nothing.stderr.endswith("interrupted\n")


def test_a_limit_that_lets_nothing_begin_is_an_error(net: str) -> None:
    Path("t.csv").touch()
    result = run(*ASKED, "--at", "N=3", "--seconds", "1e-9")
    assert result.exit_code == 2
    told = "error: not measured: N=3; not compiled for its cost: untuned, log in 1e-09 s; give more"
    assert told in result.stderr


@SAY
def test_a_limit_stops_it_and_says_what_is_lacking(
    quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = Survey._measure

    def late(of: Survey, case: Case) -> None:
        measure(of, case)
        of.pieces.seconds = 0.0

    monkeypatch.setattr(Survey, "_measure", late)
    result = run(*ASKED, "--at", "N=3", "--at", "N=5", "--seconds", "1000", "--json")
    assert result.exit_code == 0
    assert "stopped after 1000 s; not measured: N=5; not compiled for its cost: log" in (
        result.stderr
    )
    rows = json.loads(result.stdout)
    assert {row["shape"] for row in rows} == {"N=3"}
    assert [row["compile_s"] is None for row in rows] == [False, True, True]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("N=4", ({"N": 4}, 1.0)),
        ("N=4,H=224*0.3", ({"N": 4, "H": 224}, 0.3)),
        (" N=4 * 2e1", ({"N": 4}, 20.0)),
    ],
)
def test_sizes_may_have_a_weight(text: str, expected: tuple[dict[str, int], float]) -> None:
    assert weighted_sizes(text) == expected


@pytest.mark.parametrize("weight", ["", "0", "-1", "nan", "inf", "x", "2*3"])
def test_what_is_no_weight_is_an_error(net: str, weight: str) -> None:
    result = run(*ASKED, "--at", f"N=4*{weight}")
    assert result.exit_code == 2
    assert f"{weight!r} is no weight; write N=4,H=224*0.3" in result.stderr


@pytest.mark.parametrize(
    ("log", "told"),
    [("no.csv", "cannot read the tuning log no.csv: No such"), ("net.onnx", "is no tuning log: ")],
)
def test_what_is_no_log_is_said_before_anything_is_compiled(
    net: str, monkeypatch: pytest.MonkeyPatch, log: str, told: str
) -> None:
    monkeypatch.setattr(Survey, "work", lambda _: pytest.fail("something is compiled"))
    result = run("analyze", log, *ASKED[2:], "--at", "N=3")
    assert result.exit_code == 2
    assert told in result.stderr


def test_what_is_given_twice_is_as_likely_as_both() -> None:
    given = [{"N": 1, "H": 2}, {"N": 3}, {"H": 2, "N": 1}]
    assert distinct(given, [0.5, 1.0, 0.25]) == [({"N": 1, "H": 2}, 0.75), ({"N": 3}, 1.0)]


def test_a_saved_program_is_no_log(net: str) -> None:
    run("compile", "net.onnx", "--dim", "N=1", "-o", "x.bkt")
    result = run("analyze", "x.bkt")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: x.bkt is no tuning log: its first line is no text, a l")
    assert result.stderr.isascii()


# --- tables --------------------------------------------------------------------------------------


def frames(dispatchers: int, shapes: int, rounds: int = 5) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What encoders of two symbols come to behind some dispatchers."""
    names = ["untuned", *(f"uniform:count={i}" for i in range(dispatchers)), "oracle"]
    every: list[dict[str, Any]] = [
        {"dispatcher": name, "shape": f"batch={i},sequence={37 * i}", "round": r}
        | {"latency_s": 1e-3 * (1 + k + r), "clone_tuned": i % 2 == 0, "weight": 0.5 + i}
        for k, name in enumerate(names)
        for i in range(shapes)
        for r in range(rounds)
    ]
    costs = [
        {"dispatcher": name, "clones": 64, "compile_s": 123.4}
        | {"tasks": 1234, "searched": 1234, "tuned": 1234}
        for name in names[:-1]
    ]
    return pd.DataFrame(every), pd.DataFrame(costs)


@pytest.mark.parametrize(("dispatchers", "shapes"), [(1, 2), (3, 3), (4, 2), (2, 12), (8, 9)])
def test_tables_are_no_wider_than_80_columns_and_lack_nothing(
    dispatchers: int, shapes: int
) -> None:
    latency, cost = frames(dispatchers, shapes)
    lines = [*shown_latency(latency).splitlines(), *shown_trade(latency, cost).splitlines()]
    assert max(map(len, lines)) <= 80, max(lines, key=len)
    told = "\n".join(lines)
    for name in latency["dispatcher"].unique():
        assert name in told
    for shape in latency["shape"].unique():
        assert shape in told
    assert told.count("±") == (dispatchers + 2) * shapes + 2 * (dispatchers + 1)
    assert "1234/1234/1234" in told
    assert "123.4 s" in told


def test_a_wide_terminal_has_the_table_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    latency, _ = frames(4, 2)
    assert shown_latency(latency).splitlines()[0].split()[:2] == ["ms", "batch=0,sequence=0"]
    monkeypatch.setattr(tables, "terminal_width", lambda: 200)
    assert shown_latency(latency).splitlines()[0].split()[:2] == ["ms", "untuned"]


def test_the_oracle_is_what_it_is() -> None:
    latency, _ = frames(1, 3)
    told = "oracle: a static clone for exactly the shape, "
    assert shown_oracle(latency) == (
        f"{told}tuned at batch=0,sequence=0; batch=2,sequence=74, "
        "on default schedules at batch=1,sequence=37."
    )
    assert shown_oracle(latency.assign(clone_tuned=True)) == f"{told}tuned."
    assert shown_oracle(latency.assign(clone_tuned=False)) == f"{told}on default schedules."
    assert "tuned for exactly" not in HOW


def test_the_survey_is_loaded_by_who_asks_for_it() -> None:
    assert analysis.measure_trade_off is measure_trade_off
