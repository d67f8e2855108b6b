"""Where measurements are taken: on this machine, or on others (`cluster`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bucketize.errors import TuneError
from bucketize.ir import Module
from bucketize.log.environment import Environment, here
from bucketize.log.outcome import Outcome
from bucketize.log.trial import Source
from bucketize.lower.cost import Weighted
from bucketize.machine.target import Target, cores, host
from bucketize.measure.job import Job
from bucketize.measure.race import Pair, Race
from bucketize.program.configuration import Strategy

MOST_THREADS = cores()


def never() -> bool:
    """Of what has no end."""
    return False


class LostError(TuneError):
    """What measured was lost, and what was tried in its place, too."""


class Measurer(Protocol):
    """What turns jobs into outcomes: a `Worker`, a `Replay` or a `Cluster`."""

    @property
    def source(self) -> Source | None:
        """Written to the log in place of the proposal's own, if given."""

    @property
    def has_clock(self) -> bool:
        """Whether it can tell what a clone takes as a whole."""

    def measure(self, jobs: Sequence[Job]) -> Iterable[list[Outcome]]:
        """What came of each implementation of each job."""


class Racer(Protocol):
    """What times a clone against itself: a `Race`, here or elsewhere."""

    @property
    def load(self) -> float | None:
        """Of the machine that does, if it is known."""

    def places(self, strategy: Strategy, judged: Weighted) -> list[dict[str, Pair]]:
        """At each size the seconds of its workloads between their neighbours."""

    def whole(self, strategy: Strategy, judged: Weighted) -> list[Pair]:
        """At each size the seconds of the whole clone."""


class Site(Protocol):
    """The processors of one kind that measure for a session."""

    source: Source | None
    has_clock: bool
    environment: Environment
    """What the rows tell of where they come from."""
    target: Target
    """What implementations are made for."""
    threads: int
    """That a kernel can run on at most."""

    @property
    def lanes(self) -> int:
        """How many jobs are measured at once."""

    def measured(
        self, jobs: Sequence[Job], is_late: Callable[[], bool] = never
    ) -> Iterable[tuple[int, list[Outcome]]]:
        """As they come: the number of a job, and its outcomes; none if it was lost.

        When it is late no job begins; those that have begun are finished.
        """

    def race(self, module: Module, function: str, threads: int) -> Racer:
        """What times a clone here."""


@dataclass
class Bench:
    """The site that is this machine, and its measurer."""

    measurer: Measurer
    environment: Environment = field(default_factory=here)
    target: Target = field(default_factory=host)
    threads: int = MOST_THREADS
    lanes: int = 1

    def __post_init__(self) -> None:
        self.source, self.has_clock = self.measurer.source, self.measurer.has_clock

    def measured(
        self, jobs: Sequence[Job], is_late: Callable[[], bool] = never
    ) -> Iterator[tuple[int, list[Outcome]]]:
        """In the order of the jobs; a measurer begins one when it is asked for what comes of it."""
        came = iter(self.measurer.measure(jobs))
        for i in range(len(jobs)):
            if is_late():
                return
            yield i, next(came)

    def race(self, module: Module, function: str, threads: int) -> Racer:
        """In this process."""
        return Race(module, function, threads)
