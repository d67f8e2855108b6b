"""Watching a session by its log: rows that come meanwhile, torn ones, and none at all."""

from __future__ import annotations

import io
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from test_log import trial

from bucketize.analysis.course import course
from bucketize.cli.command import top as command
from bucketize.cli.command.top import View, follow
from bucketize.cli.group import main
from bucketize.log.cell import encoded
from bucketize.log.frame import trial_frame
from bucketize.log.log import Tail, append
from bucketize.log.trial import COLUMNS, Trial

BEGIN = datetime(2026, 1, 1, 12, tzinfo=UTC)


def row(after_s: float, **changes: object) -> Trial:
    """A row that was written so long after the begin of a session of 100 seconds."""
    at = BEGIN + timedelta(seconds=after_s)
    usual = {"run_id": "mine", "left_s": 100 - after_s, "layer": "/fc", "baseline_s": 1e-4}
    return trial(**{"timestamp": at.isoformat(), "search": "skopt", **usual, **changes})


FAILED = {
    "status": "failed",
    "error_kind": "crash",
    "latency_median_s": None,
    "schedule_hash": "c",
    "error": "signal 11",
}


def once(*args: object) -> Result:
    result = CliRunner().invoke(main, ["top", *map(str, args)], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "t.csv"


def view_at(log: Path, after_s: float) -> View:
    view = View(Tail(log), now=lambda: BEGIN + timedelta(seconds=after_s))
    view.look()
    return view


def test_a_log_that_is_missing_or_empty_is_waited_for(log: Path) -> None:
    waits = "waiting for a session of `bucketize tune`\n"
    assert once(log, "--once").stdout == f"{log} is not there yet: {waits}"
    log.touch()
    assert once(log, "--once").stdout == f"{log} has no trial yet: {waits}"
    log.write_bytes(encoded(COLUMNS)[:40])  # its header is being written
    assert once(log, "--once").output == f"{log} has no trial yet: {waits}"


def test_what_is_no_log_is_an_error(log: Path) -> None:
    log.write_text("a,b\n1,2\n")
    result = CliRunner().invoke(main, ["top", str(log), "--once"])
    assert result.exit_code == 2
    assert "is no tuning log: its first line begins with 'a,b'" in result.output


def test_a_session_is_told_by_its_rows(log: Path) -> None:
    append(log, row(0))
    append(log, row(2, schedule_hash="b", latency_median_s=5e-5))
    append(log, row(3, **FAILED))
    append(log, row(4, source="confirm", schedule_hash="b", latency_median_s=5e-5))
    lines = view_at(log, 10).text.splitlines()
    assert re.fullmatch(rf"{log}: model=mlp, host_cpu=.*, search=skopt, run_id=mine", lines[0])
    assert lines[1] == (
        "3 trials of 1 task, 1 failed; 1 measurement to confirm; "
        "0:00:10 so far, the last row 0:00:06 ago, 0:01:30 left"
    )
    assert lines[2] == "kernels at their best so far, each once: 0.500 of the defaults' time"
    assert lines[3].split() == ["function", "layer", "op", "tried", "failed", "best", "share"]
    assert lines[4].split() == ["main", "/fc", "matmul", "3", "1", "0.50", "1.00"]
    assert lines[5:] == ["failed 12:00:03 main /fc matmul: crash: signal 11"]


def test_a_row_that_is_being_written_is_taken_when_it_is_whole(log: Path) -> None:
    append(log, row(0))
    append(log, row(1, schedule_hash="b"))
    whole = log.read_bytes()
    log.write_bytes(whole[:-20])
    view = view_at(log, 5)
    assert view.line.startswith("1 trial of 1 task, ")
    with log.open("ab") as file:
        file.write(whole[-20:])
    view.look()
    assert view.line.startswith("2 trials of 1 task, ")
    log.unlink()
    append(log, row(0))  # `log merge` puts another file in its place
    view.look()
    assert view.line.startswith("1 trial of 1 task, ")


def test_the_tasks_that_take_most_are_shown_first(log: Path) -> None:
    for i in range(13):
        append(log, row(i, workload=f"w{i}", baseline_s=1e-4 * (i + 1), latency_median_s=1e-4))
    text = view_at(log, 20).text
    shares = [float(line.split()[-1]) for line in text.splitlines()[4:14]]
    assert shares == sorted(shares, reverse=True)
    assert text.endswith("\nand 3 tasks that take less")


def test_trials_of_earlier_sessions_count_for_the_best_but_not_as_its_own() -> None:
    earlier = row(-50, run_id="before", schedule_hash="b", latency_median_s=2e-5)
    other = row(-40, run_id="before", workload="other")
    its = course(trial_frame([earlier, other, row(0)]))
    assert its is not None
    assert (its.trials, its.reached, len(its.tasks)) == (1, 1, 1)
    assert its.gain == pytest.approx(0.2)


def test_a_watch_ends_when_the_session_is_over(log: Path) -> None:
    append(log, row(0))
    seconds = [50.0]
    view = View(Tail(log), now=lambda: BEGIN + timedelta(seconds=seconds[0]))
    view.look()
    looks: list[float] = []

    def wait(s: float) -> None:
        looks.append(seconds[0])
        seconds[0] += 20
        if seconds[0] == 110:
            append(log, row(105, schedule_hash="b"))  # of what was begun in time

    follow(view, wait)
    assert looks == [50, 70, 90, 110][: len(looks)]
    assert seconds[0] == 130
    assert view.line.endswith(
        "over: 0:01:45 from its first row to its last, the last row 0:00:25 ago"
    )


def test_rows_of_a_clock_that_is_ahead_are_of_now(log: Path) -> None:
    append(log, row(10))
    line = view_at(log, -3600).line
    assert "0:00:00 so far, the last row 0:00:00 ago, 0:01:30 left" in line


def test_what_was_begun_in_time_may_take_longer(log: Path) -> None:
    append(log, row(95))
    assert view_at(log, 103).line.endswith("the last row 0:00:08 ago, 0:00:03 over")


def test_of_a_session_without_a_limit_nobody_knows_the_end(log: Path) -> None:
    append(log, row(0, left_s=None))
    view = view_at(log, 1e6)
    assert not view.is_over
    assert view.line.endswith("no limit of time")


def test_a_watch_ends_at_an_interrupt(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(log, row(0, left_s=None))

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "follow", lambda view: follow(view, interrupt))
    lines = once(log).stdout.splitlines()
    assert lines[0].startswith("1 trial of 1 task, 0 failed")  # at once, without a terminal
    assert lines[1].startswith(f"{log}: model=mlp")


def test_on_a_terminal_the_view_is_drawn_anew(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    append(log, row(0, layer="/\x1b[2J"))
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with command.shown(view_at(log, 10)):
        pass
    shown = terminal.getvalue()
    assert "1 trial of 1 task" in shown
    assert re.search(
        r"\n *main +\S+ +matmul +1 +0 +1.00 +1.00 *\r?\n", shown.replace("\x1b[2K", "")
    )
    assert "\x1b[2J" not in terminal.getvalue()  # nobody's text is obeyed
