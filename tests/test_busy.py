"""A busy machine is noticed: by injected readings, never by what this machine does just now."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import benchmarks.__main__
import bucketize
from bucketize import analysis, busy, zoo
from bucketize.busy import Counters, Machine, Watch, busiest, watched
from bucketize.cli.group import main
from bucketize.errors import BusyWarning
from bucketize.log.log import rows
from bucketize.measure.runner import Replay
from bucketize.tune.api import tune

Readings = Callable[..., None]
TRUE_READING, TRUE_GROUPS = busy.reading, busy.groups_of  # before conftest takes them away


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> Readings:
    """What the system counts: a second passes from one reading to the next, on two processors."""

    def inject(others: float, ours: float = 1.0, step_s: float = 1.0) -> None:
        at = [0]

        def reading() -> Counters:
            at[0] += 1
            used, mine = (others + ours) * step_s * at[0], ours * step_s * at[0]
            return Counters(at[0] * step_s, load=others + ours, machine_s=used, ours_s=mine)

        monkeypatch.setattr(busy, "reading", reading)

    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    return inject


@pytest.mark.parametrize(("others", "is_busy"), [(0.0, False), (0.19, False), (0.3, True)])
def test_what_others_take_makes_a_machine_busy_and_what_we_take_does_not(
    readings: Readings, others: float, is_busy: bool
) -> None:
    readings(others, ours=2.0)
    with Watch() as watch:
        pass
    assert watch.machine.others == pytest.approx(others)
    assert watch.machine.load == pytest.approx(others + 2.0)
    assert watch.machine.is_busy == is_busy


def test_a_warning_says_by_how_much(readings: Readings) -> None:
    readings(1.8)
    told = (
        r"the machine is busy: other processes take 1\.8 of 2 processors \(load average 2\.8\): t"
    )
    with pytest.warns(BusyWarning, match=told), watched():
        pass
    readings(0.0)
    with watched() as watch:  # nothing is said, or it is an error
        pass
    assert watch.machine.doubts == []


def test_a_warning_points_at_the_line_that_called_the_package(readings: Readings) -> None:
    readings(1.8)
    with pytest.warns(BusyWarning) as told, ExitStack() as stack:
        stack.enter_context(watched())
    assert told[0].filename == __file__


def test_what_is_too_short_to_tell_is_watched_on(
    readings: Readings, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr("time.sleep", waited.append)
    readings(1.0, step_s=0.125)
    with Watch() as watch:
        pass
    assert waited == [busy.LEAST_S - 0.125]
    assert watch.machine.others == pytest.approx(1.0)


@pytest.mark.parametrize("found", [None, Counters(1.0, 9.0, machine_s=0.0, ours_s=0.0)])
def test_where_the_system_does_not_tell_nothing_is_claimed(
    monkeypatch: pytest.MonkeyPatch, found: Counters | None
) -> None:
    monkeypatch.setattr(busy, "reading", lambda: found)
    monkeypatch.setattr("time.sleep", lambda _: None)
    with Watch() as watch:
        pass
    assert (watch.machine.others, watch.machine.is_busy) == (None, False)


STAT = "cpu  100 10 40 5000 77 3 2 45 {} 0\ncpu0 1 1 1\n"
FAMILY = {  # pid: parent, ticks
    "{me}": (1, 30),
    "70001": ("{me}", 5),
    "70002": (70001, 6),
    "70003": (1, 50),
    "70004": (70003, 9),
}


def test_the_system_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stat").write_text(STAT.format(0))
    for pid, (parent, ticks) in FAMILY.items():
        folder = tmp_path / pid.format(me=os.getpid())
        folder.mkdir()
        above = str(parent).format(me=os.getpid())
        cells = ["S", above, *"123456789", str(ticks), "1", "1", "1", "20", "0"]
        (folder / "stat").write_text(f"{folder.name} (a) (name) {' '.join(cells)}\n")
    (tmp_path / "70005").mkdir()  # it has just ended
    monkeypatch.setattr(busy, "PROC", tmp_path)
    found = TRUE_READING()
    assert found is not None
    ticks_s = os.sysconf("SC_CLK_TCK")
    assert found.machine_s * ticks_s == pytest.approx(100 + 10 + 40 + 3 + 2 + 45)  # stolen, too
    assert found.ours_s * ticks_s == pytest.approx(30 + 5 + 6 + 3 * 3)
    (tmp_path / "stat").write_text("intr 0\n")
    assert TRUE_READING() is None
    (tmp_path / "stat").unlink()
    assert TRUE_READING() is None


def test_this_system_is_read() -> None:
    """Of the true one: a child's time is ours while it runs and when it has ended."""
    script = "import time\nwhile time.process_time() < 0.2: pass"
    before = TRUE_READING()
    subprocess.run([sys.executable, "-S", "-c", script], check=True)
    after = TRUE_READING()
    assert before is not None
    assert after is not None
    assert after.ours_s - before.ours_s >= 0.15
    assert after.machine_s - before.machine_s >= 0.15


# --- rounds --------------------------------------------------------------------------------------


def drawn(kind: str, count: int) -> list[float]:
    dice = np.random.default_rng(7)
    noise = 1e-3 * np.exp(0.05 * dice.standard_normal(count))
    slow = {
        "one": np.zeros(count, bool),
        "stray": np.arange(count) < count // 10,
        "two": np.arange(count) % 5 < 2,
        "early": np.arange(count) < count // 2,
    }[kind]
    return [float(s) for s in np.where(slow, 1.9 * noise, noise)]


@pytest.mark.parametrize("count", [10, 30, 300])
@pytest.mark.parametrize(
    ("kind", "is_two"), [("one", False), ("stray", False), ("two", True), ("early", True)]
)
def test_rounds_that_fall_into_two_groups_are_noticed(kind: str, count: int, is_two: bool) -> None:
    found = TRUE_GROUPS(drawn(kind, count))
    assert (found is not None) == is_two
    if found is not None:
        assert found == pytest.approx((1e-3, 1.9e-3), rel=0.06)


def test_few_or_equal_rounds_are_no_groups() -> None:
    assert TRUE_GROUPS(drawn("two", 9)) is None
    assert TRUE_GROUPS([1e-3] * 50) is None
    assert TRUE_GROUPS([0.0] * 50) is None
    assert TRUE_GROUPS([1.00e-3, 1.05e-3] * 10) is None  # apart, but not by much


def test_normal_noise_is_no_group() -> None:
    dice = np.random.default_rng(1)
    draws = [list(np.exp(0.1 * dice.standard_normal(15))) for _ in range(200)]
    assert sum(TRUE_GROUPS(draw) is not None for draw in draws) <= 4


def test_groups_are_told_by_name(readings: Readings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(busy, "groups_of", TRUE_GROUPS)
    readings(0.0)
    told = r"^the rounds of log fall into two groups, around 0\.977 and 1\.89 ms: times may"
    with pytest.warns(BusyWarning, match=told), watched() as watch:
        watch.rounds({"log": drawn("two", 30), "none": drawn("one", 30)})
    assert list(watch.machine.groups) == ["log"]


def test_groups_of_many_are_one_line() -> None:
    groups = dict.fromkeys("abc", (0.001, 0.002))
    assert Machine(groups=groups).doubts == [
        "the rounds of a fall into two groups, around 1 and 2 ms",
        "so do those of 2 more",
    ]


def test_of_several_the_busiest_is_told_and_the_groups_of_all() -> None:
    several = [Machine(0.1, 1.0, 2, {"a": (1.0, 2.0)}), Machine(1.5, 2.0, 2), Machine(groups={})]
    assert busiest(several) == Machine(1.5, 2.0, 2, {"a": (1.0, 2.0)})
    assert busiest([]).doubts == []


# --- whatever is timed says so -------------------------------------------------------------------

BUSY = "other processes take 1.8 of 2 processors"


@pytest.fixture
def crowded(readings: Readings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    readings(1.8)


@pytest.mark.filterwarnings("always:the machine is busy")
@pytest.mark.parametrize(
    ("command", "machine"),
    [
        ("run zoo:mlp --at N=1 --at N=2 --repeat 1 --json", lambda told: told[0]["machine"]),
        ("profile zoo:mlp --at N=1 --repeat 1 --json", lambda told: told[0]["machine"]),
        ("bench zoo:mlp --at N=1 --rounds 1 --json", lambda told: told["points"][0]["machine"]),
        ("tune zoo:mlp --dim N=1 --log t.csv --trials 1 --json", None),
    ],
)
def test_commands_that_time_say_that_the_machine_is_busy(
    crowded: None, command: str, machine: Callable[[object], dict[str, object]] | None
) -> None:
    result = CliRunner().invoke(main, command.split())
    assert result.exit_code == 0, result.output
    (line,) = [line for line in result.stderr.splitlines() if BUSY in line]
    assert line.startswith("warning: the machine is busy: ")
    if machine is not None:
        told = machine(json.loads(result.stdout))
        assert told["others"] == pytest.approx(1.8)
        assert told["cores"] == 2


@pytest.mark.filterwarnings("always:the machine is busy")
def test_a_table_of_runs_has_its_unit_at_each_time_and_nothing_of_the_machine(
    crowded: None,
) -> None:
    result = CliRunner().invoke(main, ["run", "zoo:mlp", "--at", "N=1", "--repeat", "1"])
    head, row = result.stdout.splitlines()
    assert head.split() == ["sizes", "clone", "executor", "latency", "outputs"]
    assert " ms " in row


def test_frames_carry_what_the_machine_did(crowded: None) -> None:
    mod = bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, 2)})
    exe, inputs = bucketize.compile(mod), zoo.inputs("mlp", {"N": 2})
    calls = {"a": lambda inputs: exe.run(**inputs)}
    with pytest.warns(BusyWarning, match=BUSY):
        benched = analysis.bench(calls, inputs, 1)
    with pytest.warns(BusyWarning, match=BUSY):
        profiled = exe.profile(**inputs, repetitions=1)
    for frame in (benched, profiled):
        assert isinstance(frame, pd.DataFrame)
        assert frame.attrs["machine"].others == pytest.approx(1.8)


def test_tuning_here_says_so_and_a_replay_does_not(crowded: None, tmp_path: Path) -> None:
    mod = bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, 1)})
    with pytest.warns(BusyWarning, match=BUSY):
        tune(mod, log=tmp_path / "a.csv", trials=1)
    replay = Replay(rows(tmp_path / "a.csv"))
    tune(mod, log=tmp_path / "b.csv", trials=1, measurer=replay)


@pytest.mark.filterwarnings("always:the machine is busy")
def test_every_benchmark_says_so(crowded: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.dispatch.main", lambda: None)
    result = CliRunner().invoke(benchmarks.__main__.main, ["dispatch"])
    assert BUSY in result.stderr
