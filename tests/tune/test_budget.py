"""The time of a session, by a clock that stands still but for what is measured."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bucketize.cli.command.tune import Report
from bucketize.dispatch.tree import dispatch
from bucketize.errors import BucketizeWarning, LateError
from bucketize.ir import Builder, Const, Module, Var
from bucketize.log.log import rows
from bucketize.log.outcome import Outcome
from bucketize.log.trial import KERNEL
from bucketize.lower.cost import Weighted
from bucketize.measure import runner as site
from bucketize.measure.job import Job
from bucketize.measure.race import Pair
from bucketize.measure.runner import LocalRunner
from bucketize.ops import matmul
from bucketize.program.configuration import Configuration
from bucketize.tune import session as session_module
from bucketize.tune.api import opened, tune
from bucketize.tune.budget import GRACE, ROUNDS, Budget
from bucketize.tune.database import Database
from bucketize.tune.options import Options
from bucketize.tune.progress import Progress
from bucketize.tune.session import TuningSession
from bucketize.tune.task import subjects_of
from bucketize.types import Symbol, tensor

SECONDS = 20.0
CLONES = 6
NOISE = tuple(1 + 0.001 * i for i in range(-7, 8))


def model() -> Module:
    """Two products behind several buckets."""
    x = Var("x", tensor("float32", Symbol("N", 1, 1 << CLONES), 8))
    out = Builder()
    first = out.emit(matmul, x, Const(np.ones((8, 32), np.float32)))
    second = out.emit(matmul, first, Const(np.ones((32, 16), np.float32)))
    mod = Module({"main": out.function("main", [x], [second])})
    cuts = [*((1 << i, 2 << i) for i in range(CLONES - 1)), (1 << (CLONES - 1), None)]
    return dispatch(mod, lambda _: {"x": {0: cuts}})


@dataclass
class World:
    """A measurer and a racer to whom everything takes so many seconds of a clock of theirs."""

    load = None

    job_s: float
    race_s: float
    now: float = 1000.0
    jobs: list[tuple[float, Job]] = field(default_factory=list)
    """When each began."""
    races: list[float] = field(default_factory=list)
    source = None
    has_clock = True

    def clock(self) -> float:
        return self.now

    def measure(self, jobs: Sequence[Job]) -> Iterator[list[Outcome]]:
        for job in jobs:
            self.jobs.append((self.now, job))
            self.now += self.job_s
            yield [outcome(1.0), *(outcome(0.8) for _ in job.implementations[1:])]

    def __call__(self, *_: object) -> World:
        return self

    def places(self, configuration: Configuration, judged: Weighted) -> list[dict[str, Pair]]:
        return [
            dict.fromkeys(configuration.implementations, pair) for pair in self.whole(None, judged)
        ]

    def whole(self, _: object, judged: Weighted) -> list[Pair]:
        self.races.append(self.now)
        self.now += self.race_s
        return [([8e-4 * x for x in NOISE], [1e-3 * x for x in NOISE]) for _ in judged]


def outcome(ratio: float) -> Outcome:
    return Outcome(seconds=tuple(1e-3 * ratio * x for x in NOISE))


@dataclass
class Scene:
    """Sessions on one log; they differ in their world."""

    log: Path
    patch: pytest.MonkeyPatch

    def options(self, world: World, seconds: float | None, **more: Any) -> dict[str, Any]:
        self.patch.setattr(site, "Race", world)
        self.patch.setattr(session_module, "Budget", partial(Budget, clock=world.clock))
        fixed = {"search": "skopt", "trials": 4, "sizes": "bounds", "seed": 0, "threads": 1}
        return {
            **fixed,
            "until": 0.0,
            "log": self.log,
            "measurer": world,
            "seconds": seconds,
            **more,
        }

    def worked(self, world: World, seconds: float | None = SECONDS, **more: Any) -> TuningSession:
        with opened(model(), Options(**self.options(world, seconds, **more))) as session:
            session.work()
        return session


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(tmp_path / "log.csv", monkeypatch)


# --- the limit ------------------------------------------------------------------------------------


@pytest.mark.sweep
@pytest.mark.parametrize("job_s", [0.01, 0.7, 7.0, 100.0])
@pytest.mark.parametrize("race_s", [0.1, 4.0, 100.0])
def test_nothing_begins_after_the_end(scene: Scene, job_s: float, race_s: float) -> None:
    """However far what is expected is from what things take; what has begun is finished."""
    world = World(job_s, race_s)
    begin = world.now
    scene.worked(world)
    assert world.jobs
    end, grace = begin + SECONDS, begin + SECONDS * (1 + GRACE)
    assert all(at < (grace if job.rounds == ROUNDS else end) for at, job in world.jobs)
    assert all(at < grace for at in world.races[:-1])
    assert world.now < grace + max(job_s, 2 * race_s)  # an arrangement may be raced once more
    searched = [job for _, job in world.jobs if job.rounds != ROUNDS]
    written = [t for t in rows(scene.log) if t.source != "confirm"]
    assert {(t.workload, t.shape) for t in written} == {
        (j.workload.hash, j.shape) for j in searched
    }


def test_without_a_limit_all_clones_are_reached(scene: Scene) -> None:
    session = scene.worked(World(3.0, 5.0), None)
    assert (session.unreached, session.shortfall()) == ([], "")
    assert session.database.verdicts.keys() == {s.clone for s in session.subjects}


def test_a_limit_that_is_long_changes_nothing(scene: Scene, tmp_path: Path) -> None:
    asked = []
    for name, seconds in (("none.csv", None), ("long.csv", 1e6)):
        scene.log = tmp_path / name
        world = World(0.1, 1.0)
        scene.worked(world, seconds)
        asked.append(sorted((job.workload.hash, job.shape) for _, job in world.jobs))
    assert asked[0] == asked[1]


def test_a_session_too_short_for_all_clones_has_verdicts_on_some(scene: Scene) -> None:
    session = scene.worked(World(0.05, 2.5))
    told = [s for s in session.subjects if s.clone in session.database.verdicts]
    assert 0 < len(told) < len(session.subjects)
    assert all(session.database.verdicts[s.clone].pays for s in told)
    names = [s.function for s in session.unreached]
    assert session.shortfall().startswith(
        f"{len(names)} of {CLONES} clones have no verdict yet: {names[0]}"
    )


def test_sessions_too_short_reach_all_clones_in_the_end_and_repeat_no_trial(scene: Scene) -> None:
    reached = []
    for _ in range(3 * CLONES):
        session = scene.worked(World(0.05, 2.5))
        reached.append(CLONES - len(session.unreached))
        if not session.unreached:
            break
    assert reached == sorted(reached)
    assert reached[-1] == CLONES
    tried = [
        (t.workload, t.template, t.schedule, t.shape)
        for t in rows(scene.log)
        if t.source != "confirm" and t.level == KERNEL
    ]
    assert len(set(tried)) == len(tried)


def test_a_clone_of_which_nothing_was_tried_gets_no_verdict(scene: Scene) -> None:
    """A verdict says that the defaults are best, where nothing is known of others."""
    session = scene.worked(World(0.05, 2.5))
    tried = {t.clone for t in session.written if t.source != "confirm"}
    assert session.database.verdicts.keys() <= tried


def test_one_trial_is_begun_however_short_the_time(scene: Scene) -> None:
    world = World(50.0, 1.0)
    scene.worked(world, 1e-3)
    assert len(world.jobs) == 1
    again = World(50.0, 1.0)
    scene.worked(again, 1e-3)
    assert len(again.jobs) == 1
    first, second = (each.jobs[0][1] for each in (world, again))
    told = [(job.workload.hash, job.shape, job.implementations) for job in (first, second)]
    assert told[0] != told[1]


def test_no_confirmation_begins_that_would_take_much_longer_than_is_left(scene: Scene) -> None:
    world = World(0.01, 1.0)
    with opened(model(), Options(**scene.options(world, SECONDS))) as session:
        scene.patch.setattr(Budget, "of_races", lambda *_: 10 * SECONDS)
        session.work()
    assert world.races == []
    assert len(session.unreached) == CLONES


# --- what is told ---------------------------------------------------------------------------------


def test_who_calls_is_warned_of_what_was_not_reached(scene: Scene) -> None:
    said = rf"\d of {CLONES} clones have no verdict yet: main.* and \d more; the same call goes on"
    with pytest.warns(BucketizeWarning, match=said):
        tune(model(), **scene.options(World(0.05, 2.5), 10.0))
    tune(model(), **scene.options(World(0.05, 2.5), None))


@pytest.mark.parametrize("interrupted", [False, True])
def test_the_summary_names_what_was_not_reached_and_how_to_go_on(
    scene: Scene, *, interrupted: bool
) -> None:
    session = scene.worked(World(0.05, 2.5))
    report = Report(session, SECONDS, interrupted)
    first, second, third = report.summary().splitlines()
    assert first.startswith("interrupted: ") is interrupted
    assert second == session.shortfall()
    assert third == "the same command goes on from there"
    names = [subject.function for subject in session.unreached]
    assert json.loads(report.json())["unreached"] == names
    whole = Report(scene.worked(World(0.05, 2.5), None), 1.0, False)
    assert len(whole.summary().splitlines()) == 1
    vars(whole)["searched"] = report.searched[:1]
    assert whole.summary().startswith("1 trial in 1 s, 0 failed, ")


def test_progress_tells_the_time_left_and_what_is_confirmed(scene: Scene) -> None:
    told: list[Progress] = []
    scene.worked(World(0.5, 1.0), progress=told.append)
    left = [p.left_s for p in told]
    assert left == sorted(left, reverse=True)
    assert {p.op for p in told} == {"matmul", "clone"}


def test_an_interrupt_while_a_clone_is_confirmed_keeps_what_was_measured(scene: Scene) -> None:
    world = World(0.05, 2.5)

    def interrupt(*_: object) -> list[Pair]:
        raise KeyboardInterrupt

    with ExitStack() as stack:
        session = stack.enter_context(opened(model(), Options(**scene.options(world, SECONDS))))
        scene.patch.setattr(world, "whole", interrupt, raising=False)
        with pytest.raises(KeyboardInterrupt):
            session.work()
    assert len(session.unreached) == CLONES
    assert len(rows(scene.log)) == len(session.written) > 0
    again = scene.worked(World(0.05, 2.5))
    assert len(again.unreached) < CLONES


# --- the budget -----------------------------------------------------------------------------------


def budget(seconds: float, world: World) -> Budget:
    made = Budget(seconds, Database.of([], 1), world.clock)
    made.begin()
    return made


def test_time_that_is_over_ends_what_has_begun_after_a_grace() -> None:
    world = World(0, 0)
    made = budget(10.0, world)
    world.now += 11.9
    made.heed()
    world.now += 0.2
    with pytest.raises(LateError, match="the 10 s of the session are over"):
        made.heed()
    endless = budget(math.inf, world)
    world.now += 1e9
    endless.heed()


def test_what_takes_longer_than_expected_is_expected_to() -> None:
    made = budget(10.0, World(0, 0))
    assert made.pace == 1.0
    made.learn(1.0, 9.0)
    assert made.pace == 5.0
    subjects = subjects_of(model(), "bounds")
    slow, quick = (
        len(made.within(subjects, ())),
        len(budget(10.0, World(0, 0)).within(subjects, ())),
    )
    assert 1 <= slow <= quick < len(subjects)


def test_clones_without_a_verdict_come_first() -> None:
    subjects = subjects_of(model(), "bounds")
    made = budget(SECONDS, World(0, 0))
    first = made.within(subjects, ())
    rest = made.within(subjects, {s.clone for s in first})
    assert rest[0] not in first
    assert made.within(subjects, {s.clone for s in subjects}) == first
    assert len(budget(math.inf, World(0, 0)).within(subjects, ())) == len(subjects)


def test_no_job_is_asked_of_a_measurer_when_it_is_late() -> None:
    world = World(1.0, 0.0)
    jobs: Any = [SimpleNamespace(implementations=[None])] * 3
    end = world.now + 1.5
    came = list(LocalRunner(world).measured(jobs, lambda: world.now > end))
    assert [number for number, _ in came] == [0, 1]
    assert len(world.jobs) == 2
    assert not list(LocalRunner(world).measured(jobs, lambda: True))
    assert len(list(LocalRunner(world).measured(jobs))) == 3


def test_what_cannot_be_afforded_does_not_end_the_search_of_what_can(scene: Scene) -> None:
    """Whether it is enough is told by all that is worth anything."""
    with opened(model(), Options(**scene.options(World(0, 0), None))) as session:
        subjects, scheduler = session.subjects, session.scheduler
        shares = scheduler.shares(subjects)
        worth = {t: scheduler.worth(scheduler.heard(t), shares[t]) for t in session.tasks}
        dear = max(worth, key=lambda task: worth[task])
        until = sum(worth.values()) - worth[dear] / 2
        scheduler.options = replace(scheduler.options, until=until)
        every = scheduler.batch(1, subjects, lambda _: 1.0, math.inf)
        some = scheduler.batch(1, subjects, lambda task: 1e6 if task is dear else 1.0, 3.0)
    assert every[0][0] is dear
    assert some
    assert dear not in {task for task, _ in some}
