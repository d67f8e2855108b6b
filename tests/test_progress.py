"""Progress: what its meter says as time passes, the bar on a terminal, the lines elsewhere."""

from __future__ import annotations

import io
import math
import os
import subprocess
import sys
from contextlib import nullcontext

import pytest
from rich.console import Console
from rich.spinner import Spinner

from bucketize import progress
from bucketize.errors import ArgumentError
from bucketize.progress import Meter, write_lines
from bucketize.tune import progress as tuning


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        """As of an event that is set after half a minute."""
        self.now += seconds
        return self.now > 130.0


@pytest.fixture(autouse=True)
def unhurried() -> None:
    """Lines are wanted here, after two seconds of the clock that a test has."""


@pytest.fixture
def clock() -> Clock:
    return Clock()


# (seconds passed, done, total, left_s), then what the counters say
COURSES = [
    ([], "0:00:00 so far"),
    ([(5, 0, 40, None)], "0/40  0:00:05 so far"),
    ([(5, 0, 40, None), (10, 20, 40, None)], "20/40  2.0/s  0:00:10 left"),
    ([(5, 0, 40, None), (60, 4, 40, None)], "4/40  4.0/min  0:09:00 left"),
    ([(0, 0, 400, 15.0), (10, 20, 400, 5.0)], "20/400  2.0/s  0:00:05 left"),  # the limit is nearer
    ([(0, 0, 1, None), (20, 0, 10, None), (5, 5, 10, None)], "5/10  1.0/s  0:00:05 left"),
    ([(20, 30, 40, None)], "30/40  0:00:20 so far"),  # not of this run
    ([(20, 30, 40, None), (5, 35, 40, None)], "35/40  1.0/s  0:00:05 left"),
    ([(0, 0, 9, 1e15)], "0/9  over 99 days left"),
    ([(0, 0, 9, math.inf)], "0/9  over 99 days left"),
    ([(0, 0, 40, 99.0), (10, 20, 40, 89.0)], "20/40  2.0/s  0:00:10 left"),
    ([(0, 0, 9, None), (9, 9, 9, None), (1, 0, 4, None), (1, 1, 4, None)], "1/4  1.0/s  0:00:03 l"),
    ([(0, 0, 0, None)], "0/0  0:00:00 so far"),
    ([(0, 0, 40, 9.0), (12, 2, 40, -3.0)], "2/40  10.0/min  0:00:03 over"),
]


@pytest.mark.parametrize(("course", "counters"), COURSES)
def test_counters(clock: Clock, course: list[tuple], counters: str) -> None:
    meter = Meter("compiling", clock)
    for passed, done, total, left_s in course:
        clock.now += passed
        meter.tell("kernel matmul", done, total, left_s=left_s)
    assert meter.counters().startswith(counters)


def test_the_time_left_runs_between_two_steps(clock: Clock) -> None:
    meter = Meter("tuning", clock)
    meter.tell("", 0, 40)
    clock.now += 10
    meter.tell("", 20, 40)
    clock.now += 4
    assert meter.left_s == 6
    clock.now += 6
    assert meter.left_s is None  # it takes longer than was expected: nobody knows
    assert meter.counters() == "20/40  2.0/s  0:00:20 so far"


def test_pieces_that_are_not_alike_are_estimated_by_who_knows_them(clock: Clock) -> None:
    meter = Meter("comparing", clock)
    meter.tell("a", 0, 4, expected_s=math.inf)
    clock.now += 10
    meter.tell("b", 1, 4, expected_s=math.inf)
    assert meter.counters() == "1/4  0:00:10 so far"
    meter.tell("c", 2, 4, expected_s=30.0)
    clock.now += 10
    assert meter.counters() == "2/4  0:00:20 left"
    clock.now += 25
    assert meter.counters() == "2/4  0:00:45 so far"
    meter.tell("d", 3, 4, left_s=7.0, expected_s=9.0)
    assert meter.counters() == "3/4  0:00:07 left"
    meter.tell("d", 3, 4, left_s=7.0, expected_s=2.0)
    clock.now += 3
    assert meter.counters() == "3/4  0:00:04 left"  # the limit alone tells now


def test_only_a_bar_hears_of_times() -> None:
    told: list[tuple[str, int, int]] = []
    with progress.estimated(lambda *said: told.append(said), "comparing") as tell:
        tell("a", 1, 2, expected_s=3.0)
    with progress.estimated(None, "comparing") as tell:
        tell("a", 1, 2, expected_s=3.0)
    assert told == [("a", 1, 2)]
    with (
        pytest.raises(ArgumentError, match="progress: expected True"),
        progress.estimated(7, "comparing"),  # type: ignore[arg-type]
    ):
        pass


def test_a_bar_shows_the_work_or_the_time_whichever_is_further(clock: Clock) -> None:
    meter = Meter("tuning", clock)
    clock.now += 50
    meter.tell("", 10, 40)
    assert meter.share == 0.25
    meter.tell("", 10, 40, left_s=20.0)  # the time runs from here
    assert meter.share == 0.25
    clock.now += 15
    assert meter.share == 0.75
    meter.tell("", 36, 40, left_s=5.0)
    assert meter.share == 0.9
    clock.now += 10
    assert meter.share == 1.0


def test_lines_come_after_two_seconds_and_every_ten(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    meter = Meter("compiling", clock)
    meter.tell("kernel matmul", 0, 40)
    write_lines(meter, clock.wait)
    assert capsys.readouterr().err.splitlines() == [
        f"compiling:  0/40  0:00:{seconds} so far  kernel matmul" for seconds in ("02", "12", "22")
    ]


@pytest.mark.parametrize(
    ("progress_", "lines"), [(True, ["compiling:  1/2"]), (False, []), (None, [])]
)
def test_true_is_a_bar(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    progress_: bool | None,
    lines: list[str],
) -> None:
    monkeypatch.setattr(progress, "FIRST_S", 0.01)
    with progress.shown(progress_, progress.progress_bar("compiling")) as tell:
        if tell:
            tell("kernel matmul", 1, 2)
            while not (said := capsys.readouterr().err):
                pass
            assert said.startswith(lines[0])
    assert capsys.readouterr().err == ""
    assert (tell is not None) == bool(lines)


def test_a_function_is_told_itself() -> None:
    told: list[str] = []
    bar = progress.progress_bar("compiling")
    with progress.shown(lambda what, done, total: told.append(what), bar) as tell:
        assert tell is not None
        tell("kernels", 0, 1)
    assert told == ["kernels"]


@pytest.mark.parametrize("progress_", [1, "yes", [print]])
def test_what_is_no_function_is_refused(progress_: object) -> None:
    with (
        pytest.raises(ArgumentError, match="progress: expected True, None or a function, got "),
        progress.shown(progress_, nullcontext()),
    ):
        pass


def test_who_draws_nothing_does_not_load_rich() -> None:
    code = "import sys, bucketize.compiler; print([m for m in sys.modules if 'rich' in m])"
    command = [sys.executable, "-P", "-c", code]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.check_output(command, text=True, env=environment).strip() == "[]"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_bar_is_one_line_and_only_the_name_is_cut(clock: Clock, width: int) -> None:
    meter = Meter("tuning", clock)
    meter.tell("", 0, 1000)
    clock.now += 10
    meter.tell("best 0.83 of default, matmul 0123abcd N=1;H=32..63;W=32..63", 100, 1000)
    text = io.StringIO()
    console = Console(file=text, width=width, force_terminal=True, color_system=None)
    console.print(progress._picture(meter, Spinner("dots")))
    (line,) = text.getvalue().splitlines()
    assert len(line) <= width
    assert "100/1000  10.0/s  0:01:30 left" in line
    assert ("…" in line) == (width < 120)


def test_the_bar_of_tuning_tells_trials_and_the_best(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    meter = Meter("tuning", clock)
    monkeypatch.setattr(tuning, "metered", lambda title: nullcontext(meter))
    told_ = {"function": "main", "bucket": "", "op": "matmul", "workload": "0123456789"}
    told_ |= {"done": 1, "total": 3}
    with tuning.tuning_bar("tuning") as told:
        told(tuning.Progress(**told_, best=0.834, left_s=7.0))
        line = "tuning:  1/3  0:00:07 left  best 0.83 of default, matmul 01234567 main"
        assert meter.line() == line
        told_ |= {"op": tuning.WAITING, "workload": "process 7"}
        told(tuning.Progress(**told_, best=None, left_s=7.0))
    assert meter.line() == "tuning:  1/3  0:00:07 left  another session measures: process 7"
