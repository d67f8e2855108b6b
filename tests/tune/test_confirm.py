"""What was found is timed again, in its place and all together; with pretended clocks."""

from __future__ import annotations

import csv
import itertools
import math
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from choosing import chosen, configuration_of, implementations_of
from citing import parse_cited

from bucketize.compiler import logged
from bucketize.errors import BucketizeWarning, LogError
from bucketize.ir import Builder, Const, Module, Var
from bucketize.kernel.schedule import Implementation
from bucketize.log.log import LogWarning, rows
from bucketize.log.maintain import merge
from bucketize.log.outcome import Outcome
from bucketize.log.trial import CLONE, COLUMNS, KERNEL, PLACE, Trial, schedule_json
from bucketize.log.verdict import Verdict, verdicts
from bucketize.lower.cost import Weighted
from bucketize.measure import race
from bucketize.measure import runner as site
from bucketize.measure.job import Job
from bucketize.measure.race import WHOLE, Pair, Race, is_hopeless
from bucketize.ops import matmul
from bucketize.program.configuration import Configuration
from bucketize.program.instruction import AGREED, DEFAULT, LOGGED
from bucketize.tune.api import tune
from bucketize.tune.budget import ROUNDS
from bucketize.tune.task import Task, subjects_of, tasks_of
from bucketize.types import Symbol, tensor

TRIALS = 3  # the default and two others
NOISE = tuple(1 + 0.01 * i for i in (-3, 2, -1, 3, 1, -2, 0) * 3)


def model() -> Module:
    """Two products, a task each."""
    x = Var("x", tensor("float32", Symbol("N", 1, 16), 8))
    out = Builder()
    first = out.emit(matmul, x, Const(np.ones((8, 32), np.float32)))
    second = out.emit(matmul, first, Const(np.ones((32, 16), np.float32)))
    return Module({"main": out.function("main", [x], [second])})


Ratio = Callable[[Job, Implementation], float]


@dataclass
class Clock:
    """A measurer: `ratio` is latency by the default's, `failing` an outcome in place of some."""

    ratio: Ratio
    failing: Callable[[Job, Implementation], bool] = lambda *_: False
    again: Ratio | None = None  # when what was found is timed anew
    source = None
    has_clock = True
    jobs: list[Job] = field(default_factory=list)

    def measure(self, jobs: Sequence[Job]) -> Iterator[list[Outcome]]:
        for job in jobs:
            self.jobs.append(job)
            default, *others = job.implementations
            yield [self.outcome(job, default, 1.0), *(self.other(job, one) for one in others)]

    def other(self, job: Job, made: Implementation) -> Outcome:
        ratio = self.again if self.again and job.rounds == ROUNDS else self.ratio
        return self.outcome(job, made, ratio(job, made))

    def outcome(self, job: Job, made: Implementation, ratio: float) -> Outcome:
        if self.failing(job, made):
            return Outcome(error_kind="crash", error="it crashed")
        return Outcome(seconds=seconds(ratio))


def seconds(ratio: float) -> tuple[float, ...]:
    """Rounds of which the default's take a millisecond each; where equal, half are slower."""
    return tuple(1e-3 * ratio * (x if 0.95 < ratio < 1.05 and ratio != 1 else 1.0) for x in NOISE)


@dataclass
class Track:
    """A race in which workloads take what `places` says, and all of them what `together` says."""

    load = None

    places_: Mapping[str, float]
    together: Callable[[Configuration], float]
    asked: list[tuple[str, Mapping[str, Implementation]]] = field(default_factory=list)

    def __call__(self, *_: object) -> Track:
        return self

    def places(self, configuration: Configuration, judged: Weighted) -> list[dict[str, Pair]]:
        self.asked.append((PLACE, implementations_of(configuration)))
        made = implementations_of(configuration)
        return [{w: pair(self.places_.get(w, 0.8)) for w in made} for _ in judged]

    def whole(self, configuration: Configuration, judged: Weighted) -> list[Pair]:
        self.asked.append((CLONE, implementations_of(configuration)))
        return [pair(self.together(configuration)) for _ in judged]


def pair(ratio: float) -> Pair:
    return list(seconds(ratio)), list(seconds(1.0))


@dataclass
class Scene:
    """A log, the model's two tasks, and what they are raced on."""

    log: Path
    patch: pytest.MonkeyPatch
    first: Task
    second: Task

    def tuned(
        self,
        clock: Clock,
        places: Mapping[str, float] | None = None,
        together: Callable[[Configuration], float] = lambda _: 0.9,
        **options: object,
    ) -> Track:
        track = Track(places or {}, together)
        self.patch.setattr(site, "Race", track)
        asked = {"trials": TRIALS, "search": "grid", "sizes": "bounds", "measurer": clock}
        tune(model(), log=self.log, **{**asked, **options})
        return track

    @property
    def rows(self) -> list[Trial]:
        return rows(self.log)

    @property
    def verdict(self) -> Verdict:
        return verdicts(self.rows, 1)[self.first.clone]

    def levels(self) -> Counter[str]:
        """How many rows confirm, by level."""
        return Counter(row.level for row in self.rows if row.source == "confirm")

    def others(self, task: Task) -> list[Implementation]:
        """Those that are tried beside the default."""
        default = task.default.key
        points = [made for made in task.space.points if made.key != default]
        return points[: TRIALS - 1]

    def all(self, number: int) -> Mapping[str, Implementation]:
        """Of both tasks the how-manieth of the others."""
        both = (self.first, self.second)
        return {task.workload.hash: self.others(task)[number] for task in both}


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(tmp_path / "log.csv", monkeypatch, *tasks_of(model(), "bounds"))


def steady(ratio: float) -> Clock:
    return Clock(lambda *_: ratio)


def best_first(scene: Scene, best: float = 0.5, next_: float = 0.7) -> Ratio:
    """The first of the others is the fastest, the second comes next."""
    fast = {made.key for made in scene.all(0).values()}
    return lambda _, made: best if made.key in fast else next_


def by_task(scene: Scene) -> dict[Task, Implementation]:
    """The first of the others of each task."""
    return {task: scene.others(task)[0] for task in (scene.first, scene.second)}


def faster_than(
    former: Mapping[str, Implementation], ratio: float
) -> Callable[[Configuration], float]:
    """That it takes 0.9 by these implementations, and `ratio` by others."""
    return lambda configuration: 0.9 if implementations_of(configuration) == former else ratio


# --- the way to a verdict -------------------------------------------------------------------------


def test_what_is_faster_every_time_is_chosen_and_every_measurement_is_a_row(scene: Scene) -> None:
    track = scene.tuned(Clock(best_first(scene)))
    best = scene.all(0)
    assert implementations_of(scene.verdict.configuration) == best
    assert [what for what, _ in track.asked] == [PLACE, CLONE]
    assert all(made == best for _, made in track.asked)
    points, candidates_ = 3, TRIALS - 1
    assert scene.levels() == {KERNEL: 2 * candidates_ * points, PLACE: 2 * points, CLONE: points}
    confirming = [row for row in scene.rows if row.source == "confirm"]
    assert {row.clone for row in confirming} == {scene.first.clone}
    assert {row.model for row in confirming} == {"log"}
    assert [row.trial for row in scene.rows] == list(range(len(scene.rows)))
    in_place = [row for row in confirming if row.level == PLACE]
    assert [row.ratio_high for row in in_place] == pytest.approx([0.8] * 6)
    assert {row.workload for row in in_place} == set(best)
    assert {row.flops for row in in_place} == {None}  # the shapes are the clone's
    assert [row.shape for row in scene.verdict.rows] == ["1x8", "4x8", "16x8"]
    assert sum(row.weight for row in scene.verdict.rows) == pytest.approx(1)


def test_compile_reads_the_verdict_as_tuning_told_it(scene: Scene) -> None:
    scene.tuned(Clock(best_first(scene)))
    for task in (scene.first, scene.second):
        assert chosen(model(), scene.log, task) == (scene.others(task)[0], LOGGED)


def test_the_fastest_at_the_first_time_need_not_be_at_the_second(scene: Scene) -> None:
    again = best_first(scene, 0.9, 0.8)
    scene.tuned(Clock(best_first(scene), again=again))
    assert implementations_of(scene.verdict.configuration) == scene.all(1)


@pytest.mark.parametrize("ratio", [1.01, 0.999, 1.2])
def test_what_is_not_faster_beyond_the_noise_at_the_second_time_is_not_raced(
    scene: Scene, ratio: float
) -> None:
    track = scene.tuned(Clock(lambda *_: 0.5, again=lambda *_: ratio))
    assert track.asked == []
    assert scene.levels() == {KERNEL: 12, CLONE: 3}
    assert [row.ratio_low for row in scene.verdict.rows] == [None] * 3
    assert chosen(model(), scene.log, scene.first) == (scene.first.default, AGREED)


def test_nothing_better_than_the_defaults_is_a_verdict_too(scene: Scene) -> None:
    track = scene.tuned(steady(1.5))
    assert track.asked == []
    assert scene.levels() == {CLONE: 3}
    assert implementations_of(scene.verdict.configuration) == {}


@pytest.mark.parametrize("ratio", [1.01, 1.3])
def test_who_wins_alone_and_loses_in_its_place_is_dropped(scene: Scene, ratio: float) -> None:
    track = scene.tuned(Clock(best_first(scene)), {scene.first.workload.hash: ratio})
    left = {scene.second.workload.hash: scene.others(scene.second)[0]}
    assert implementations_of(scene.verdict.configuration) == left
    assert [made for what, made in track.asked if what == CLONE] == [left]
    assert scene.levels()[PLACE] == 2 * 3  # what was dropped has its rows


def test_winners_that_lose_together_are_all_taken_back(scene: Scene) -> None:
    track = scene.tuned(Clock(best_first(scene)), together=lambda _: 1.1)
    assert [what for what, _ in track.asked] == [PLACE, CLONE]
    assert implementations_of(scene.verdict.configuration) == {}
    assert scene.levels()[CLONE] == 3
    lost = [row for row in scene.rows if row.level == CLONE][:3]
    assert [row.ratio_low for row in lost] == pytest.approx([1.1] * 3)
    assert all(len(row.schedule) > 2 for row in lost)


def test_a_candidate_that_fails_at_the_second_time_is_out(scene: Scene) -> None:
    best = {made.key for made in scene.all(0).values()}
    crashing = Clock(best_first(scene))
    crashing.failing = lambda job, made: job.rounds == ROUNDS and made.key in best
    scene.tuned(crashing)
    assert implementations_of(scene.verdict.configuration) == scene.all(1)
    failed = [row for row in scene.rows if row.status == "failed"]
    assert {(row.source, row.level, row.error) for row in failed} == {
        ("confirm", KERNEL, "it crashed")
    }
    assert len(failed) == 2 * 3


def test_a_measurer_without_a_clock_confirms_nothing(scene: Scene) -> None:
    clock = Clock(best_first(scene))
    clock.has_clock = False
    assert scene.tuned(clock).asked == []
    assert scene.levels() == {}


# --- resuming -------------------------------------------------------------------------------------


def test_the_same_call_again_measures_and_confirms_nothing(scene: Scene) -> None:
    scene.tuned(Clock(best_first(scene)))
    before, again = scene.log.read_bytes(), steady(0.1)
    assert scene.tuned(again).asked == []
    assert again.jobs == []
    assert scene.log.read_bytes() == before


def test_after_new_trials_it_is_confirmed_again(scene: Scene) -> None:
    scene.tuned(Clock(best_first(scene)))
    former, known = (
        scene.all(0),
        {o.key for t in (scene.first, scene.second) for o in scene.others(t)},
    )
    clock = best_first(scene)
    newest = Clock(lambda job, made: clock(job, made) if made.key in known else 0.3)
    track = scene.tuned(newest, together=faster_than(former, 0.8), trials=TRIALS + 1)
    assert [what for what, _ in track.asked] == [PLACE, CLONE, CLONE]
    assert track.asked[1] == (CLONE, former)  # takes part
    new = {made.key for made in track.asked[2][1].values()}
    assert len({row.run_id for row in scene.rows}) == 2
    assert new - known  # what was found since
    assert {made.key for made in implementations_of(scene.verdict.configuration).values()} == new


def cited_rows(scene: Scene, text: str) -> list[Trial]:
    known = {(row.run_id, row.trial): row for row in scene.rows}
    return [known[where] for where in parse_cited(text)]


def test_a_verdict_names_the_rows_that_it_rests_on_and_those_that_it_replaces(scene: Scene) -> None:
    scene.tuned(Clock(best_first(scene)))
    first = scene.verdict
    assert {row.replaces for row in first.rows} == {""}
    (grounds,) = {row.rests_on for row in first.rows}
    found = cited_rows(scene, grounds)
    assert Counter(row.level for row in found) == {KERNEL: 2 * 3, PLACE: 2 * 3}
    assert {f"{row.template} {row.schedule}" for row in found} == {
        f"{one.template} {schedule_json(one.schedule)}" for one in by_task(scene).values()
    }
    assert {row.workload for row in found} == set(scene.all(0))
    former, known = (
        scene.all(0),
        {o.key for t in (scene.first, scene.second) for o in scene.others(t)},
    )
    newest = Clock(lambda _, made: 0.5 if made.key in known else 0.3)
    scene.tuned(newest, together=faster_than(former, 0.8), trials=TRIALS + 1)
    again, last = [row for row in scene.rows if row.level == CLONE][3:6], scene.verdict
    assert all(set(parse_cited(r.replaces)) < set(parse_cited(r.rests_on)) for r in again)
    assert [cited_rows(scene, row.replaces) for row in again] == [list(first.rows)] * 3
    assert [cited_rows(scene, row.replaces) for row in last.rows] == [again] * 3
    assert {row.run_id for row in cited_rows(scene, last.rows[0].rests_on)} == {last.rows[0].run_id}


def test_what_does_not_stand_replaces_nothing(scene: Scene) -> None:
    scene.tuned(Clock(best_first(scene)))
    scene.tuned(steady(2.0), together=lambda _: 1.01, trials=TRIALS + 1)
    assert [row.replaces for row in scene.rows if row.level == CLONE][3:] == [""] * 3


@pytest.mark.parametrize("ratio", [0.9, 0.97, 1.0, 1.3])
def test_what_a_clone_ran_by_takes_part_and_stays_unless_beaten(scene: Scene, ratio: float) -> None:
    """What was found since is faster by itself and in its place, and not all together."""
    scene.tuned(Clock(best_first(scene)))
    former, known = (
        scene.all(0),
        {o.key for t in (scene.first, scene.second) for o in scene.others(t)},
    )
    newest = Clock(lambda _, made: 0.5 if made.key in known else 0.3)
    track = scene.tuned(newest, together=faster_than(former, ratio), trials=TRIALS + 1)
    assert [what for what, _ in track.asked] == [PLACE, CLONE, CLONE]
    assert implementations_of(scene.verdict.configuration) == former
    assert scene.tuned(newest, trials=TRIALS + 1).asked == []  # judged, though nothing changed


def test_a_clock_that_was_set_back_changes_nothing(scene: Scene) -> None:
    scene.tuned(Clock(best_first(scene)))
    year = scene.rows[0].timestamp[:5]
    scene.log.write_text(scene.log.read_text().replace(f",{year}", ",2999-"))
    former, known = (
        scene.all(0),
        {o.key for t in (scene.first, scene.second) for o in scene.others(t)},
    )
    newest = Clock(lambda _, made: 0.5 if made.key in known else 0.3)
    assert scene.tuned(newest, together=faster_than(former, 0.8), trials=TRIALS + 1).asked
    found = {made.key for made in implementations_of(scene.verdict.configuration).values()}
    assert not found & known


@pytest.mark.parametrize("again", [0.999, 1.01])
def test_noise_never_takes_away_what_was_confirmed(scene: Scene, again: float) -> None:
    scene.tuned(Clock(best_first(scene)))
    scene.tuned(steady(2.0), together=lambda _: again, trials=TRIALS + 1)
    assert implementations_of(scene.verdict.configuration) == scene.all(0)


def test_what_is_shown_to_be_slower_than_the_defaults_goes(scene: Scene) -> None:
    scene.tuned(Clock(best_first(scene)))
    scene.tuned(steady(2.0), together=lambda _: 1.2, trials=TRIALS + 1)
    assert scene.verdict.configuration == Configuration()


def test_a_task_keeps_what_it_ran_on_unless_that_is_beaten_by_itself(scene: Scene) -> None:
    """What is new for the one is not held back by what is not for the other."""
    scene.tuned(Clock(best_first(scene)))
    known = {o.key for t in (scene.first, scene.second) for o in scene.others(t)}
    mine = scene.first.workload.hash

    def newest(job: Job, made: Implementation) -> float:
        return 0.5 if made.key in known else 0.3 if job.workload.hash == mine else 0.51

    former = scene.all(0)
    scene.tuned(Clock(newest), together=faster_than(former, 0.8), trials=TRIALS + 1)
    found = implementations_of(scene.verdict.configuration)
    assert found[mine].key not in known
    other = scene.second.workload.hash
    assert found[other] == former[other]


def test_a_task_goes_back_to_its_default_where_that_is_faster_by_itself(scene: Scene) -> None:
    scene.tuned(Clock(best_first(scene)))
    former, mine = scene.all(0), scene.first.workload.hash
    fast = {made.key for made in former.values()}

    def again(job: Job, made: Implementation) -> float:
        return 0.9 if made.key in fast and job.workload.hash != mine else 1.1

    scene.tuned(
        Clock(lambda *_: 0.9, again=again), together=faster_than(former, 0.8), trials=TRIALS + 1
    )
    other = scene.second.workload.hash
    assert implementations_of(scene.verdict.configuration) == {other: former[other]}


def test_at_other_sizes_it_is_confirmed_again(scene: Scene) -> None:
    scene.tuned(Clock(best_first(scene)))
    track = scene.tuned(Clock(best_first(scene)), sizes=[{"N": 1}, {"N": 16}])
    assert track.asked == [(CLONE, scene.all(0))]
    assert [row.shape for row in scene.verdict.rows] == ["1x8", "16x8"]


@pytest.mark.filterwarnings("ignore:.*trials is confirmed")
def test_a_session_killed_in_the_midst_of_a_verdict_goes_on_and_chooses_nothing_till_then(
    scene: Scene,
) -> None:
    scene.tuned(Clock(best_first(scene)))
    *most, _ = scene.log.read_text().splitlines(keepends=True)
    scene.log.write_text("".join(most))
    task = scene.first
    assert chosen(model(), scene.log, task) == (task.default, DEFAULT)
    again = Clock(best_first(scene))
    assert scene.tuned(again).asked
    assert {job.rounds for job in again.jobs} == {ROUNDS}  # no trial is repeated
    assert scene.verdict.pays


def test_a_log_of_trials_alone_is_confirmed_without_any_new(scene: Scene) -> None:
    silent = Clock(best_first(scene))
    silent.has_clock = False
    scene.tuned(silent)
    with pytest.warns(LogWarning, match="none of its 18 trials is confirmed"):
        logged(model(), scene.log, 1)
    again = Clock(best_first(scene))
    assert scene.tuned(again).asked
    assert {job.rounds for job in again.jobs} == {ROUNDS}


def test_a_log_without_the_columns_of_verdicts_is_refused_until_it_is_merged(scene: Scene) -> None:
    """What is written to it would be no verdict, after all the time that it took."""
    scene.tuned(Clock(best_first(scene)))
    lines = list(csv.reader(scene.log.read_text().splitlines()))
    with scene.log.open("w", newline="") as file:
        first, level = COLUMNS.index("clone"), COLUMNS.index("level")
        kernels = [line[:first] for line in lines if line[level] not in (CLONE, PLACE)]
        csv.writer(file, lineterminator="\n").writerows(kernels)
    again = Clock(best_first(scene))
    advice = re.escape(f"`bucketize log merge {scene.log} -o {scene.log}` adds what is new")
    with pytest.raises(LogError, match=f"lacks clone, level, ratio_low, ratio_high: {advice}"):
        scene.tuned(again)
    assert again.jobs == []
    merge([scene.log], scene.log)
    assert scene.tuned(again).asked
    assert scene.verdict.pays


def test_a_log_with_a_torn_header_is_begun_anew(scene: Scene) -> None:
    scene.log.write_text("schema_ver")
    with pytest.warns(LogWarning) as warned:
        scene.tuned(Clock(best_first(scene)))
    assert [str(w.message).split(": ")[1][:14] for w in warned] == [
        "skipped a torn",
        "removed a torn",
    ]
    assert scene.verdict.pays


# --- defaults that fail ---------------------------------------------------------------------------


def test_a_clone_that_fails_on_defaults_is_told_of_and_left(scene: Scene) -> None:
    """There is nothing to hold others against; running the clone would fail as the kernel did."""
    default = scene.second.default.key
    clock = Clock(lambda *_: 0.5)
    clock.failing = lambda job, made: (
        job.workload.hash == scene.second.workload.hash and made.key == default
    )
    failing = r"main is not tuned: the default of .*matmul.* fails: it crashed"
    with pytest.warns(BucketizeWarning, match=failing) as warned:
        track = scene.tuned(clock, trials=99)
    assert len(warned) == 1
    assert track.asked == []
    assert scene.levels() == {}
    mine = [row for row in scene.rows if row.workload == scene.second.workload.hash]
    assert len({row.shape for row in mine}) == 1  # not tried at a second
    assert {row.baseline_s for row in mine} == {None}
    again = replace(clock, jobs=[])
    with pytest.warns(BucketizeWarning, match=failing):
        scene.tuned(again, trials=99)
    assert again.jobs == []


# --- the race ------------------------------------------------------------------------------------


@dataclass
class Given:
    """A runner that takes what it is given, side after side of each size."""

    ratios: Iterator[float]

    def __post_init__(self) -> None:
        self.given = next(self.ratios)
        self.seconds: dict[str, float] = {}

    def __call__(self) -> None:
        self.seconds = {WHOLE: self.given}


@pytest.mark.parametrize(
    ("at_sizes", "rounds"),
    [
        ([0.9, 0.9], race.MOST),  # goes on while there is time
        ([1.0, 1.0], race.LEAST),
        ([0.9, 1.2], race.LEAST),  # loses more than it wins
        ([0.8, 1.2], race.MOST),
    ],
)
def test_a_race_that_is_lost_so_far_is_given_up(
    monkeypatch: pytest.MonkeyPatch, at_sizes: Sequence[float], rounds: int
) -> None:
    (subject,) = subjects_of(model())
    taken = itertools.chain.from_iterable((ratio, 1.0) for ratio in at_sizes)
    monkeypatch.setattr(race, "ENOUGH_S", math.inf)
    found = Race(subject.module, subject.function, subject.program.threads).raced(
        lambda *_: Given(taken),  # type: ignore[arg-type]
        Configuration(),
        [({"N": 1}, 1.0), ({"N": 4}, 1.0)],
        [WHOLE],
    )
    for pairs, ratio in zip(found, at_sizes, strict=True):
        assert pairs == {WHOLE: ([ratio] * rounds, [1.0] * rounds)}


@pytest.mark.parametrize(
    ("found", "is_it"),
    [
        ([{"a": ([2.0], [1.0]), "b": ([1.0], [1.0])}], True),
        ([{"a": ([2.0], [1.0]), "b": ([0.9], [1.0])}], False),  # one is worth going on for
        ([{"a": ([2.0, 0.9, 0.9], [1.0] * 3)}], False),  # more than half are faster
        ([{"a": ([0.5, 1.1, 1.1], [1.0] * 3)}], True),
    ],
)
def test_what_is_faster_in_half_of_the_rounds_only_is_hopeless(
    found: Sequence[Mapping[str, Pair]], is_it: bool
) -> None:
    assert is_hopeless(found, [1.0]) is is_it


def test_a_race_times_kernels_in_their_places_and_the_whole() -> None:
    (subject,) = subjects_of(model(), "bounds")
    made = configuration_of({task.workload.hash: task.default for task in subject.tasks})
    raced = Race(subject.module, subject.function, subject.program.threads)
    for places, (ours, theirs) in zip(
        raced.places(made, subject.judged), raced.whole(made, subject.judged), strict=True
    ):
        assert places.keys() == made.implementations.keys()
        assert len(ours) == len(theirs) >= race.LEAST
        for mine, default in places.values():
            assert len(mine) == len(default) >= race.LEAST
            assert min(mine + ours) > 0


def test_an_interruption_that_was_lost_ends_the_session_at_the_next_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a signal raises is ignored where an object is being collected; no traceback is shown."""

    class Collected:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    class Faulty:
        def __del__(self) -> None:
            raise ValueError

    told: list[object] = []
    shown: list[type] = []

    def lose(progress: object) -> None:
        told.append(progress)
        if len(told) == 1:
            Collected()
            Faulty()

    def show(lost: sys.UnraisableHookArgs) -> None:
        shown.append(lost.exc_type)

    monkeypatch.setattr(sys, "unraisablehook", show)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        tune(model(), log=tmp_path / "t.csv", search="grid", measurer=steady(0.9), progress=lose)
    assert len(told) == 1
    assert shown == [ValueError]
    assert (signal.getsignal(signal.SIGINT), sys.unraisablehook) == (before, show)
