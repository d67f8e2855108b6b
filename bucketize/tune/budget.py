"""The time of a session: when it is up, and what is expected to fit before.

What measurements take is not known before; the expectations are corrected by what those of the
session took, which other machines, and others on the machine, make longer.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from bucketize.errors import LateError
from bucketize.kernel.build import BUILD_S
from bucketize.kernel.schedule import Implementation
from bucketize.measure.job import SEARCHING, Repeats
from bucketize.measure.race import ENOUGH_S, LEAST
from bucketize.tune.database import Database
from bucketize.tune.task import Point, Subject, Task

GRACE = 0.2  # of the time: what was begun to be confirmed may take that much more
JOB_S = 0.05  # of any job
BYTE_S = 1.5e-8  # of a job for each byte of its kernel: made, computed by the reference, compared
LINKS = 1  # of a clone beside those for its races: on defaults
LINK_S, PACK_S = 1.0, 3e-9  # of each, and for each byte of weights that are laid out
RACES, RUNS = 2, 4  # in place, and as a whole: of each round two on either side
AGAIN = 1  # race more of a clone that has what it ran by before
PRIOR_S = 1.0  # of what was expected, and came true: a single job is no rule


ROUNDS = Repeats(least=15, most=60, enough_s=0.06)  # of what is confirmed


@dataclass
class Budget:
    """The time of a session; infinite, if it has no limit."""

    seconds: float
    database: Database
    clock: Callable[[], float] = time.monotonic
    end: float = math.inf
    spent_s: float = PRIOR_S
    """By what took longer or less than expected,"""
    expected_s: float = PRIOR_S
    """which was this."""

    def begin(self) -> None:
        """The time runs from now on."""
        self.end = self.clock() + self.seconds

    @property
    def is_limited(self) -> bool:
        """Whether there is an end at all."""
        return self.seconds < math.inf

    @property
    def left_s(self) -> float:
        """Seconds until the end; below 0 after it."""
        return self.end - self.clock()

    @property
    def grace_s(self) -> float:
        """Seconds until what was begun before the end is given up."""
        return self.left_s + (GRACE * self.seconds if self.is_limited else 0.0)

    def is_over(self) -> bool:
        """Whether even what was begun in time has to end."""
        return self.grace_s <= 0

    def heed(self) -> None:
        """Raise a LateError if it is over."""
        if self.is_over():
            raise LateError(f"the {self.seconds:g} s of the session are over")

    def learn(self, expected_s: float, spent_s: float) -> None:
        """Take up how long something took."""
        self.expected_s += expected_s
        self.spent_s += spent_s

    @property
    def pace(self) -> float:
        """How much longer things take than expected."""
        return self.spent_s / self.expected_s

    # --- what is expected ------------------------------------------------------------------------

    def of_job(self, task: Task, point: Point, count: int, rounds: Repeats) -> float:
        """Seconds of timing so many implementations of a task, its default included."""
        once = self.database.default_s(task, point)
        timing = max(min(rounds.enough_s, rounds.most * once), rounds.least * once)
        return JOB_S + BYTE_S * (task.bytes(point) or 0) + count * (2 * once + timing)

    def of_trials(self, task: Task, count: int) -> float:
        """Seconds of so many trials of a task beside its default, at all its points."""
        jobs = sum(self.of_job(task, point, count + 1, SEARCHING) for point in task.points)
        return jobs + count * BUILD_S

    def of_verdict(self, subject: Subject, best: Mapping[Task, Sequence[Implementation]]) -> float:
        """Seconds of confirming what was found for a clone."""
        jobs = (
            self.of_job(task, point, len(implementations) + 1, ROUNDS)
            for task, implementations in best.items()
            for point in task.points
        )
        return sum(jobs) + (self.of_races(subject) if best else 0.0)

    def of_races(self, subject: Subject) -> float:
        """Seconds of racing a clone against itself."""
        sizes = len(subject.judged)
        runs = sum(map(self.database.takes, subject.tasks)) * sizes / subject.weight
        weights = max((task.weight_bytes for task in subject.tasks), default=0)
        races = RACES + (AGAIN if self.database.histories[subject.clone] else 0)
        links = (LINKS + races) * (LINK_S + PACK_S * weights)
        return links + races * max(ENOUGH_S * sizes, RUNS * LEAST * runs)

    def of_clone(self, subject: Subject) -> float:
        """Seconds of a verdict on a clone after a trial of each of its tasks."""
        trials = sum(self.of_trials(task, 1) for task in subject.tasks)
        return trials + self.of_verdict(subject, {t: [t.default] for t in subject.tasks})

    def within(self, subjects: Collection[Subject], judged: Collection[str]) -> list[Subject]:
        """The clones that can be tuned in the time left, as many as possible, but at least one.

        Args:
            subjects: all that are left.
            judged: the identities of those that have a verdict, which come last.

        """
        if not self.is_limited:
            return list(subjects)
        takes = {subject: self.of_clone(subject) for subject in subjects}
        left = self.left_s / self.pace
        chosen: list[Subject] = []
        for subject in sorted(subjects, key=lambda s: (s.clone in judged, takes[s] / s.weight)):
            left -= takes[subject]
            if chosen and left < 0:
                break
            chosen.append(subject)
        return chosen
