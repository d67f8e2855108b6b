"""What trials say of a machine: laws of the speed that is learnt, and what is kept of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bucketize.cli.command.calibrate import shown
from bucketize.errors import BucketizeWarning, KernelError
from bucketize.kernel.schedule import Schedule
from bucketize.log.environment import here
from bucketize.machine.calibration import Calibration, stored, write
from bucketize.machine.host import host, machine_of
from bucketize.machine.speed import TYPICAL, Speed
from bucketize.machine.target import Target
from bucketize.tune import refine
from bucketize.tune.observation import Observation
from bucketize.tune.refine import BOUND, Judgement, TaughtKernel, refined, teach
from bucketize.types import Points


class Simple:
    """A cost of multiply-adds and bytes from the third cache, one after the other."""

    def __init__(self, work: float, moved: float) -> None:
        self.work, self.moved = work, moved

    def seconds(
        self, schedules: Sequence[Schedule], points: Points, target: Target, cold_bytes: int = 0
    ) -> Any:
        its, blocks = target.speed, np.array([s["block"] for s in schedules])
        cycles = self.work * blocks / its.fma + self.moved / blocks / its.l3
        return (cycles / (its.ghz * 1e9))[None, :]


SCHEDULES = [{"block": block} for block in (1, 2, 4, 8)]


def timed(speed: Speed, noise: float = 0.0, count: int = 24) -> list[TaughtKernel]:
    """Kernels as a machine of this speed takes them."""
    dice, target, kernels = np.random.default_rng(1), replace(host(), speed=speed), []
    for i in range(count):
        cost = Simple(*np.exp(dice.uniform(10, 15, 2)))
        seconds = cost.seconds(SCHEDULES, Points([{}]), target)[0]
        seconds = seconds * np.exp(noise * dice.standard_normal(len(seconds)))
        side = Observation("simple", f"w{i}", cost, Points([{}]), 0, SCHEDULES, list(seconds))
        kernels.append(TaughtKernel(f"w{i}", [side]))
    return kernels


SLOW = replace(TYPICAL, l3=4.0)  # whose neighbours fill the third cache


def test_trials_of_another_speed_move_towards_it_and_choices_of_others_follow() -> None:
    start = replace(host(), speed=TYPICAL)
    speed = refined(start, timed(SLOW, 0.05), TYPICAL)
    assert speed != TYPICAL
    assert speed.ghz * speed.fma == pytest.approx(TYPICAL.ghz * TYPICAL.fma, rel=0.07)
    assert speed.ghz * speed.l3 < TYPICAL.ghz * TYPICAL.l3 * 0.6
    assert (speed.exp, speed.root, speed.memory) == (TYPICAL.exp, TYPICAL.root, TYPICAL.memory)
    others = timed(SLOW, count=40)[24:]
    before, after = Judgement.of(others, start), Judgement.of(others, replace(start, speed=speed))
    assert np.mean(after.errors) < np.mean(before.errors) / 4
    assert np.mean(after.regrets) <= np.mean(before.regrets)


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.3])
def test_noise_moves_nothing(noise: float) -> None:
    assert refined(replace(host(), speed=TYPICAL), timed(TYPICAL, noise), TYPICAL) == TYPICAL


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_trials_beside_other_work_move_nothing(share: float) -> None:
    """A core that did so much for the probes can do it."""
    hindered = replace(TYPICAL, ghz=share * TYPICAL.ghz)
    assert refined(replace(host(), speed=TYPICAL), timed(hindered), TYPICAL) == TYPICAL
    faster = refined(replace(host(), speed=hindered), timed(TYPICAL), hindered)
    assert faster.ghz * faster.fma > hindered.ghz * hindered.fma  # the probes may have been, too


@pytest.mark.parametrize("count", [0, refine.WORKLOADS - 1])
def test_few_workloads_say_nothing(count: int) -> None:
    assert refined(replace(host(), speed=TYPICAL), timed(SLOW, count=count), TYPICAL) == TYPICAL


def test_no_figure_leaves_its_bounds() -> None:
    far = replace(TYPICAL, l3=TYPICAL.l3 * 10)
    its = refined(replace(host(), speed=TYPICAL), timed(far), TYPICAL)
    assert its != TYPICAL
    speed = asdict(its)
    assert all(1 / BOUND <= speed[n] / v <= BOUND for n, v in asdict(TYPICAL).items())


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Calibration]:
    """This machine as if it were measured as a typical one."""
    monkeypatch.setenv("BUCKETIZE_CACHE", str(tmp_path))
    monkeypatch.setenv("BUCKETIZE_CALIBRATE", "1")
    host.cache_clear()
    here.cache_clear()
    its = Calibration(machine_of(host()), TYPICAL, TYPICAL, "AMD", 2, 0.0, "2026-01-01")
    write(its)
    host.cache_clear()
    yield its
    host.cache_clear()
    here.cache_clear()


def test_what_is_learnt_is_kept_beside_what_was_measured(
    mine: Calibration, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(refine, "kernels_of", lambda *_: timed(SLOW))
    teach([], [])
    assert capsys.readouterr().err.startswith("24 kernels refine what was measured of this machine")
    its = stored(mine.machine)
    assert its is not None
    assert its.refined is not None
    assert replace(its, refined=None) == mine
    assert host().speed == its.refined
    assert here().speed == str(TYPICAL)  # rows from before and after are of one machine
    write(mine)  # as measuring again does
    host.cache_clear()
    assert host().speed == TYPICAL


def test_trials_that_say_nothing_keep_nothing(
    mine: Calibration, capsys: pytest.CaptureFixture[str]
) -> None:
    teach([], [])
    assert stored(mine.machine) == mine
    assert capsys.readouterr().err == ""


def test_a_machine_that_was_not_measured_is_taught_nothing(
    mine: Calibration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUCKETIZE_CALIBRATE", "0")
    monkeypatch.setattr(refine, "kernels_of", lambda *_: timed(SLOW))
    host.cache_clear()
    teach([], [])
    assert stored(mine.machine) == mine


def test_what_cannot_be_kept_is_told(
    mine: Calibration, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(_: Calibration) -> None:
        raise KernelError("no space left")

    monkeypatch.setattr(refine, "kernels_of", lambda *_: timed(SLOW))
    monkeypatch.setattr(refine, "write", full)
    with pytest.warns(BucketizeWarning, match="what trials say .* is lost: no space left"):
        teach([], [])
    assert capsys.readouterr().err == ""
    assert host().speed == mine.alone


def test_trials_of_a_machine_of_another_speed_do_not_count(
    mine: Calibration, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(
        refine, "kernels_of", lambda _, trials: asked.append([t.speed for t in trials]) or []
    )
    speeds = [str(mine.alone), str(SLOW), ""]
    teach([], [SimpleNamespace(speed=speed) for speed in speeds])  # type: ignore[list-item]
    assert asked == [speeds[:1]]


def test_what_trials_made_of_a_figure_stands_beside_it(mine: Calibration) -> None:
    lines = shown(replace(mine, refined=SLOW)).splitlines()
    assert lines[2].split() == ["alone", "all", "2", "refined"]
    assert lines[3].split() == ["ghz", *(f"{s.ghz:g}" for s in (TYPICAL, TYPICAL, SLOW)), "GHz"]
    assert "refined" not in shown(mine)
