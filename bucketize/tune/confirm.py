"""What a search found is timed again before it counts: by itself, in its place, and all of it.

The best of many noisy measurements is better than it will ever be again. So the best few are timed
anew beside the default, in turns; an implementation is kept only if the whole interval of its ratio
is below 1. What wins by itself may lose between its neighbours, and what wins there, one by one,
may lose together: each time the default comes back, or what the clone ran by before. That takes
part again, and stays unless it is beaten.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from bucketize.kernel.schedule import Implementation
from bucketize.kernel.select import Select
from bucketize.log.cell import cited
from bucketize.log.confidence import Interval, of_median, ratios
from bucketize.log.outcome import Outcome
from bucketize.log.trial import PLACE, KernelAt, Trial
from bucketize.log.verdict import Verdict, standing
from bucketize.lower.arrangement import Arrangement
from bucketize.measure.cluster import Site
from bucketize.measure.race import Pair
from bucketize.measure.runner import LostError
from bucketize.program.configuration import Configuration
from bucketize.tune.budget import ROUNDS, Budget
from bucketize.tune.recorder import Recorder
from bucketize.tune.task import Subject, Task
from bucketize.types import Sizes


@dataclass(eq=False)
class Confirmation:
    """The way of a clone's candidates to a verdict; every measurement is a row."""

    subject: Subject
    candidates: Mapping[Task, Sequence[Implementation]]
    """The best few of each task that has any better than the default."""
    arrangement: Arrangement
    """The one that is expected to be the best."""
    recorder: Recorder
    site: Site
    budget: Budget
    evidence: dict[tuple[str, str], list[Trial]] = field(default_factory=lambda: defaultdict(list))
    """The rows of this session about an implementation of a workload."""

    def run(self) -> None:
        """Measure; the rows tell what stays."""
        implementations = self.in_place(self.alone())
        self.budget.heed()
        self.together(implementations)

    def __post_init__(self) -> None:
        self.before = standing(self.history)
        self.former = Configuration() if self.before is None else self.before.configuration
        of = self.subject
        self.race = self.site.race(of.module, of.function, of.program.threads)

    @property
    def history(self) -> Sequence[Verdict]:
        """The verdicts on the clone so far."""
        return self.recorder.database.histories[self.subject.clone]

    def incumbent(self, task: Task) -> Implementation | None:
        """What a task ran on before, if that is not its default, nor illegal by now."""
        former = self.former.implementations.get(task.workload.hash)
        if former is None or former.thresholds != task.select.thresholds:
            return None
        mine = former.implementations[task.part]
        return mine if mine.key in task.legal.index and mine != task.default else None

    @cached_property
    def contested(self) -> dict[Task, list[Implementation]]:
        """The candidates of the tasks that have new ones, first of all what they ran on before."""
        tasks = {}
        for task, best in self.candidates.items():
            now = self.incumbent(task)
            others = [one for one in best if now is None or one.key != now.key]
            if others:
                tasks[task] = [now, *others] if now else others
        return tasks

    # --- by itself -------------------------------------------------------------------------------

    def alone(self) -> dict[Task, Implementation | None]:
        """What of each task should change, and to what; None is the default."""
        asked = [(task, point) for task in self.contested for point in task.points]
        threads = self.subject.program.threads
        jobs = [task.job(p, self.contested[task], threads, ROUNDS) for task, p in asked]
        came: dict[Task, dict[str, list[Outcome]]] = defaultdict(dict)
        for k, outcomes in self.site.measured(jobs, self.budget.is_over):
            task, point = asked[k]
            if not outcomes:
                raise LostError(f"what measured {task.workload.hash} was lost")
            default, *others = outcomes
            for one, outcome in zip(self.contested[task], others, strict=True):
                self.write(task, one, task.at(point), outcome, default)
            came[task][point.shape] = outcomes
        self.budget.heed()  # else all came
        won = {task: self.winner(task, came[task]) for task in self.contested}
        return {task: one for task, one in won.items() if one != self.incumbent(task)}

    def winner(self, task: Task, came: Mapping[str, Sequence[Outcome]]) -> Implementation | None:
        """The fastest that is faster than the default; what runs now, unless beaten or slower."""
        contestants = self.contested[task]
        intervals = {i: _interval(task, came, i) for i in range(1, len(contestants) + 1)}
        winning = {i: f for i, f in intervals.items() if f is not None and f.high < 1}
        best = min(winning, key=lambda i: winning[i].median, default=None)
        now, stands = self.incumbent(task), intervals[1]
        if now is not None and stands is not None and stands.low <= 1:
            return contestants[best - 1] if best and winning[best].high < stands.low else now
        return contestants[best - 1] if best else None

    # --- in its place ----------------------------------------------------------------------------

    def in_place(self, changed: Mapping[Task, Implementation | None]) -> Mapping[str, Select]:
        """By workload what ran before, with those changes that are faster in the running clone."""
        new = {task: one for task, one in changed.items() if one is not None}
        back = dict.fromkeys((task for task, one in changed.items() if one is None), None)
        kept = with_parts(self.former.implementations, back)
        asked = Configuration(with_parts(kept, new))
        by_size = self.race.places(asked, self.subject.judged) if new else []
        for task, one in new.items():
            at = [i for i, (sizes, _) in enumerate(self.subject.judged) if task.runs_at(sizes)]
            judged = [self.subject.judged[i] for i in at]
            pairs = [by_size[i][task.workload.hash] for i in at]
            for (sizes, weight), pair in zip(judged, pairs, strict=True):
                self.write(task, one, self.place(task, sizes, weight), *self.timed(pair))
            interval = of_median(ratios(pairs, [weight for _, weight in judged]))
            if interval is not None and interval.high < 1:
                kept = with_parts(kept, {task: one})
        return kept

    def write(
        self, task: Task, one: Implementation, at: KernelAt, outcome: Outcome, default: Outcome
    ) -> None:
        """Add a row about an implementation."""
        row = Trial.of_kernel(self.recorder.origin, at, one, outcome, default, "confirm")
        self.evidence[task.workload.hash, str(one)].append(self.recorder.add(row))

    def place(self, task: Task, sizes: Sizes, weight: float) -> KernelAt:
        """A task between its neighbours, at the clone's inputs: the work is that of a point."""
        shape, at = self.subject.shape(sizes), task.at(task.points[0])
        return replace(at, level=PLACE, shape=shape, weight=weight, flops=None, bytes=None)

    def timed(self, pair: Pair) -> tuple[Outcome, Outcome]:
        """The outcomes of a race: ours, and that of the defaults."""
        ours, theirs = pair
        load = self.race.load
        return Outcome(seconds=tuple(ours), load=load), Outcome(seconds=tuple(theirs))

    # --- all together ----------------------------------------------------------------------------

    def together(self, implementations: Mapping[str, Select]) -> None:
        """Time the clone by what it ran by before, and by what may be better.

        Arranged otherwise it must be faster still; that there is nothing to time is a row, too.
        """
        arranged = (self.former.arrangement, self.arrangement)
        asked: list[Configuration] = []
        for configuration in (self.former, *(Configuration(implementations, a) for a in arranged)):
            if configuration and configuration not in asked:
                asked.append(configuration)
        for configuration in asked or [Configuration()]:
            self.verdict(configuration)

    def verdict(self, configuration: Configuration) -> None:
        """Time the clone under a configuration at each of its sizes; defaults need no timing."""
        judged = self.subject.judged
        pairs = (
            self.race.whole(configuration, judged) if configuration else [_UNTIMED] * len(judged)
        )
        grounds = cited((row.run_id, row.trial) for row in self.grounds(configuration))
        rows = [
            Trial.of_clone(
                self.recorder.origin,
                self.subject.at(sizes, weight),
                configuration.words,
                *self.timed(pair),
                rests_on=grounds,
            )
            for (sizes, weight), pair in zip(judged, pairs, strict=True)
        ]
        replaces = cited((row.run_id, row.trial) for row in self.replaced(Verdict(tuple(rows))))
        for row in rows:
            self.recorder.add(replace(row, replaces=replaces))

    def replaced(self, verdict: Verdict) -> Sequence[Trial]:
        """The rows of the verdict in whose place this one stands."""
        before = standing(self.history)
        stands = standing([*self.history, verdict]) is verdict
        return before.rows if before is not None and stands else ()

    def grounds(self, configuration: Configuration) -> Iterator[Trial]:
        """The rows that led to a configuration: of this session, and those it stood by before."""
        implementations = configuration.implementations
        for (workload, name), rows in self.evidence.items():
            select = implementations.get(workload)
            runs = [] if select is None else [str(i) for i in select.implementations]
            if not configuration or name in runs:
                yield from rows
        kept = any(self.former.implementations.get(w) == one for w, one in implementations.items())
        if self.before is not None and (kept or configuration == self.former):
            yield from self.before.rows


def with_parts(
    selects: Mapping[str, Select], parts: Mapping[Task, Implementation | None]
) -> dict[str, Select]:
    """What workloads run, by hash, with other implementations in parts; None is the default."""
    changed = dict(selects)
    for task, one in parts.items():
        name, select = task.workload.hash, task.select
        before = changed.get(name, select)
        if before.thresholds != select.thresholds:  # the model of cost cuts otherwise by now
            before = select
        changed[name] = before.replaced(task.part, one or task.default)
        if changed[name] == select:
            del changed[name]
    return changed


_UNTIMED: Pair = [], []


def _interval(task: Task, came: Mapping[str, Sequence[Outcome]], i: int) -> Interval | None:
    """The interval of the i-th implementation by the first over a task's points, or None."""
    pairs = [(of[i].seconds, of[0].seconds) for of in (came[p.shape] for p in task.points)]
    if not all(ours and theirs for ours, theirs in pairs):
        return None
    return of_median(ratios(pairs, [point.weight for point in task.points]))
