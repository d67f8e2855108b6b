"""One cell of every benchmark: what is news, what is skipped, and what a machine's figures are."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from benchmarks import quick
from benchmarks.__main__ import LONG, NAMES, main
from benchmarks.figure import EXACT, Figure, SkippedError, needs, needs_cores, of_cell
from benchmarks.quick import CHANCE, Moved, Told, accept, accepted, cell, compared, measured
from bucketize.errors import BucketizeError

Patch = pytest.MonkeyPatch


def figure(median: float, half: float = 0.0, unit: str = "s", name: str = "a call") -> Figure:
    """With its quartiles this far from the median, by the median."""
    return Figure(name, unit, median, median * (1 - half), median * (1 + half))


@pytest.mark.parametrize(
    ("before", "now", "moved"),
    [
        (figure(1.0), figure(1.04), False),  # as two processes may differ
        (figure(1.0), figure(1.06), True),
        (figure(1.0), figure(1 / 1.06), True),  # faster is news, too
        (figure(1.0, 0.1), figure(1.14), False),
        (figure(1.0), figure(1.14, 0.1), False),
        (figure(1.0, 0.1), figure(1.24, 0.1), False),
        (figure(1.0, 0.1), figure(1.3, 0.1), True),
        (figure(1806, unit=EXACT), figure(1805, unit=EXACT), True),
        (figure(1806, unit=EXACT), figure(1806, unit=EXACT), False),
        (figure(0, unit=EXACT), figure(1, unit=EXACT), True),
        (figure(1, unit=EXACT), figure(0, unit=EXACT), True),
        (figure(0, unit=EXACT), figure(0, unit=EXACT), False),
        (None, figure(1.0), False),
    ],
)
def test_what_moved_by_more_than_its_noise(before: Figure | None, now: Figure, moved: bool) -> None:
    assert Moved("clones", now, before).moved is moved


def test_the_spread_is_that_of_the_quartiles() -> None:
    found = Figure.of("x", "s", [1, 2, 3, 4, 100])
    assert (found.low, found.median, found.high) == (2, 3, 4)
    assert found.spread == pytest.approx(1 / 3)
    assert Figure.of("x", "s", [0]).spread == 0
    assert Moved("b", found, figure(3)).noise == pytest.approx(CHANCE + 1 / 3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "quick.csv"


def test_figures_of_a_machine_are_compared_with_its_own(path: Path, monkeypatch: Patch) -> None:
    old = [Told("clones", (figure(4.0), figure(2.0, name="b"))), Told("load", (figure(1.0),))]
    accept(path, accepted(path), old)
    other = {"cpu": "z80", "cores": 1}
    with monkeypatch.context() as there:
        there.setattr(quick, "here", lambda: other)
        assert [m.before for m in compared(old, accepted(path))] == [None] * 3
        accept(path, accepted(path), [Told("clones", (figure(99.0),))])
    now = [Told("clones", (figure(24.0), figure(2.01, name="b"), figure(1.0, name="c")))]
    first, *rest = compared([*now, Told("load", (figure(1.0),))], accepted(path))
    assert (first.benchmark, first.moved, first.ratio) == ("clones", True, 6.0)
    assert (rest[0].figure.name, rest[0].moved) == ("c", False)  # new, then the others
    assert len(rest) == 3
    accept(path, accepted(path), [*now, Told("load", why="not installed: torch")])
    known = accepted(path).set_index(["cpu", "benchmark", "name"])["median"]
    assert known["z80", "clones", "a call"] == 99
    mine = known[str(quick.here()["cpu"])]
    assert mine.to_dict() == {  # what was not measured stays
        ("clones", "a call"): 24.0,
        ("clones", "b"): 2.01,
        ("clones", "c"): 1.0,
        ("load", "a call"): 1.0,
    }
    assert not any(m.moved for m in compared(now, accepted(path)))


def test_another_file_is_refused(path: Path) -> None:
    path.write_text("time,seconds\n1,2\n")
    with pytest.raises(BucketizeError, match=r"quick\.csv has time, seconds, not cpu, cores, ben"):
        accepted(path)


# --- cells ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*NAMES, *LONG])
def test_every_benchmark_has_a_cell(name: str) -> None:
    assert callable(importlib.import_module(f"benchmarks.{name}").quick)


def failing(error: Exception) -> Callable[[], list[Figure]]:
    def cell_() -> list[Figure]:
        raise error

    return cell_


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda: needs("no_such", "sys", "nor_this"), "not installed: no_such, nor_this"),
        (lambda: needs_cores(10**6), "it needs 1000000 cores, here is "),
        (failing(ModuleNotFoundError("no", name="torch")), "not installed: torch"),
        (failing(BucketizeError("it is\nwrong")), "it is wrong"),
    ],
)
def test_a_cell_that_cannot_be_measured_says_why(
    monkeypatch: Patch, made: Callable[[], object], why: str
) -> None:
    monkeypatch.setitem(sys.modules, "benchmarks.made", SimpleNamespace(quick=made))
    told = cell("made")
    assert not told.figures
    assert told.why.startswith(why)


def test_needs_that_are_met() -> None:
    needs("numpy")
    needs_cores(1)
    with pytest.raises(SkippedError):
        needs("no_such")


def test_a_cell_of_the_sweep_has_times_and_the_ratio_of_ours() -> None:
    same = {"model": "mlp", "sizes": "N=1", "time_s": 2.0, "time_q1_s": 1.0, "time_q3_s": 3.0}
    ours = {**same, "engine": "bucketize", "ratio": 0.5, "ratio_q1": 0.4, "ratio_q3": 0.6}
    rows = [
        ours,
        {**ours, "engine": "onnxruntime"},
        {"model": "mlp", "sizes": "N=1", "engine": "b"},
    ]
    assert of_cell(rows) == [
        Figure("mlp N=1, bucketize", "s", 2.0, 1.0, 3.0),
        Figure("mlp N=1, bucketize by best", "", 0.5, 0.4, 0.6),
        Figure("mlp N=1, onnxruntime", "s", 2.0, 1.0, 3.0),
    ]


def test_a_cell_is_measured_in_a_process_that_ends_with_its_limit(monkeypatch: Patch) -> None:
    assert measured("dispatch", 0.0) == Told("dispatch", why="it takes longer than 0 s")
    told = measured("no_such", 900.0)  # a fault of ours, which is not to be taken for a lack
    assert told == Told("no_such", why="its process ended with 1")
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    assert measured("dispatch", 900.0) == Told("dispatch", why="its process ended with 1")


# --- commands ------------------------------------------------------------------------------------


@pytest.fixture
def two(monkeypatch: Patch, path: Path) -> Path:
    """A benchmark that measures and one that cannot, in this process."""
    found = {
        "dispatch": Told("dispatch", (figure(0.75, name="6561 buckets"),)),
        "clones": Told("clones", why="not installed: psutil"),
    }
    monkeypatch.setattr(quick, "measured", lambda name, limit: found[name])
    monkeypatch.setattr(quick, "ACCEPTED", path)
    monkeypatch.setattr(quick.run, "__kwdefaults__", {"path": path})
    monkeypatch.setattr("benchmarks.__main__.NAMES", tuple(found))
    monkeypatch.setattr("benchmarks.__main__.LONG", ())
    return path


def test_all_of_them_are_measured_and_accepted(two: Path) -> None:
    first = CliRunner().invoke(main, ["all", "--quick", "--accept"])
    assert first.exit_code == 0, first.output
    assert "0 of 1 figures moved beyond their noise; 2 benchmarks" in first.stdout
    assert "not measured: clones: not installed: psutil\n" in first.stdout
    assert "new  dispatch   6561 buckets  0.75" in first.stdout
    assert f"accepted in {two}" in first.stderr
    accept(two, accepted(two), [Told("dispatch", (figure(0.15, name="6561 buckets"),))])
    again = CliRunner().invoke(main, ["all", "--quick"])
    assert "1 of 1 figures moved" in again.stdout
    assert "moved  dispatch   6561 buckets  0.75  0.15    s     5.00       0.05" in again.stdout


def test_what_is_late_is_not_begun(two: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(quick, "WHOLE_S", 0.0)
    told = CliRunner().invoke(main, ["all", "--quick"]).stdout
    for name in ("dispatch", "clones"):
        assert f"not measured: {name}: the 0 s of all are over" in told


def test_figures_are_accepted_of_quick_cells_alone() -> None:
    result = CliRunner().invoke(main, ["all", "--accept"])
    assert result.exit_code == 2
    assert "--accept is for --quick, which is not used" in result.output


@pytest.mark.parametrize("name", ["replay", "conformance"])  # with and without options
def test_the_cell_of_one_is_printed(name: str, monkeypatch: Patch) -> None:
    module = importlib.import_module(f"benchmarks.{name}")
    monkeypatch.setattr(module, "quick", lambda: [Figure.of("trials", EXACT, [7])])
    told = CliRunner().invoke(main, [name, "--quick"]).stdout
    assert told.startswith(f"== {name}\nfigure  median  low  high  unit\ntrials  7")
    monkeypatch.setattr(module, "quick", lambda: needs("no_such"))
    assert (
        "not measured: not installed: no_such" in CliRunner().invoke(main, [name, "--quick"]).stdout
    )
