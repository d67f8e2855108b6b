"""What a search found is timed again before it counts: by itself, in its place, and all of it.

The best of many noisy measurements is better than it will ever be again. So the best few are timed
anew beside the default, in turns; an implementation is kept only if the whole interval of its ratio
is below 1. What wins by itself may lose between its neighbours, and what wins there, one by one,
may lose together: each time the default comes back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bucketize.kernel.template import Implementation
from bucketize.lower.arrangement import Arrangement
from bucketize.program.strategy import Strategy
from bucketize.tune.choice import Interval, Verdict
from bucketize.tune.interval import of_median, ratios
from bucketize.tune.measure import Job, Outcome, Rounds
from bucketize.tune.race import Pair
from bucketize.tune.site import LostError, Racer
from bucketize.tune.task import Point, Subject, Task
from bucketize.tune.trial import CLONE, PLACE, Trial
from bucketize.types import Sizes

ROUNDS = Rounds(least=15, most=60, enough_s=0.06)
Write = Callable[..., Trial]


@dataclass(frozen=True, eq=False)
class Confirmation:
    """The way of a clone's candidates to a verdict; every measurement is a row."""

    subject: Subject
    candidates: Mapping[Task, Sequence[Implementation]]
    """The best few of each task that has any better than the default."""
    arrangement: Arrangement
    """The one that is expected to be the best."""
    measured: Callable[[Sequence[Job]], Iterable[tuple[int, list[Outcome]]]]
    heed: Callable[[], None]
    """Called between measurements; ends all by an error, if it has to end."""
    job: Callable[[Task, Point, Sequence[Implementation], Rounds], Job]
    race: Racer
    write: Write

    def run(self) -> Verdict:
        """Measure; what stays."""
        alone = self.alone()
        placed = self.in_place(alone)
        self.heed()
        return self.together(placed)

    # --- by itself -------------------------------------------------------------------------------

    def alone(self) -> dict[Task, Implementation]:
        """Of each task the candidate that is the fastest, if it is faster beyond the noise."""
        asked = [(task, point) for task in self.candidates for point in task.points]
        jobs = [self.job(t, p, self.candidates[t], ROUNDS) for t, p in asked]
        came: dict[Task, dict[str, list[Outcome]]] = defaultdict(dict)
        for k, outcomes in self.measured(jobs):
            task, point = asked[k]
            if not outcomes:
                raise LostError(f"what measured {task.workload.hash} was lost")
            default, *others = outcomes
            for one, outcome in zip(self.candidates[task], others, strict=True):
                self.write(task=task, point=point, made=one, outcome=outcome, default=default)
            came[task][point.shape] = outcomes
        self.heed()  # else all came
        winners = {}
        for task, made in self.candidates.items():
            found = {i: _interval(task, came[task], i) for i in range(1, len(made) + 1)}
            winning = {i: f for i, f in found.items() if f is not None and f.high < 1}
            if winning:
                winners[task] = made[min(winning, key=lambda i: winning[i].median) - 1]
        return winners

    # --- in its place ----------------------------------------------------------------------------

    def in_place(self, made: Mapping[Task, Implementation]) -> dict[Task, Implementation]:
        """Those that are faster beyond the noise inside the running clone, too."""
        if not made:
            return {}
        asked = Strategy({task.workload.hash: one for task, one in made.items()})
        by_size = self.race.places(asked, self.subject.judged)
        weights = [weight for _, weight in self.subject.judged]
        kept = {}
        for task, one in made.items():
            pairs = [places[task.workload.hash] for places in by_size]
            for (sizes, weight), pair in zip(self.subject.judged, pairs, strict=True):
                self.write(
                    task=task,
                    point=task.points[0],
                    made=one,
                    **self.where(sizes, weight, PLACE),
                    **_timed(pair),
                )
            found = of_median(ratios(pairs, weights))
            if found is not None and found.high < 1:
                kept[task] = one
        return kept

    def where(self, sizes: Sizes, weight: float, level: str) -> dict[str, Any]:
        """What a row tells of the clone's inputs; not the work, which is that of a point."""
        shape = self.subject.shape(sizes)
        return {"level": level, "shape": shape, "weight": weight, "flops": None, "bytes": None}

    # --- all together ----------------------------------------------------------------------------

    def together(self, made: Mapping[Task, Implementation]) -> Verdict:
        """All of them, if the clone is faster by them beyond the noise; else the defaults.

        Arranged otherwise it must be faster still. The last rows are the verdict, and `Verdict`
        reads them as `compile` will.
        """
        named = {task.workload.hash: one for task, one in made.items()}
        asked, arranged = Strategy(named), Strategy(named, self.arrangement)
        first = self.verdict(arranged) if arranged != asked else None
        told = self.verdict(asked)
        if first is not None and first.beats(told):
            asked, told = arranged, self.verdict(arranged)
        return self.verdict(Strategy()) if asked and not told.pays else told

    def verdict(self, strategy: Strategy) -> Verdict:
        """Time the clone under a strategy, at each of its sizes; its defaults need no timing."""
        rows = []
        judged = self.subject.judged
        pairs = self.race.whole(strategy, judged) if strategy else [_UNTIMED] * len(judged)
        for (sizes, weight), pair in zip(judged, pairs, strict=True):
            row = self.write(
                made=strategy.words,
                **self.where(sizes, weight / self.subject.weight, CLONE),
                **_timed(pair),
            )
            rows.append(row)
        return Verdict(tuple(rows))


_UNTIMED: Pair = [], []


def _timed(pair: Pair) -> dict[str, Outcome]:
    ours, theirs = pair
    return {"outcome": Outcome(seconds=tuple(ours)), "default": Outcome(seconds=tuple(theirs))}


def _interval(task: Task, came: Mapping[str, Sequence[Outcome]], i: int) -> Interval | None:
    """Of the i-th implementation by the first, over the points of a task; None if one failed."""
    pairs = [(of[i].seconds, of[0].seconds) for of in (came[p.shape] for p in task.points)]
    if not all(ours and theirs for ours, theirs in pairs):
        return None
    return of_median(ratios(pairs, [point.weight for point in task.points]))
