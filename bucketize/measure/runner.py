"""Where measurements are taken: on this machine; on others by `cluster`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bucketize.errors import TuneError
from bucketize.ir import Module
from bucketize.log.environment import Environment, here
from bucketize.log.outcome import Outcome
from bucketize.log.trial import Source
from bucketize.machine.target import Target, cores, host
from bucketize.measure.job import Job
from bucketize.measure.race import Race

MOST_THREADS = cores()


def never() -> bool:
    """A clock of what has no end."""
    return False


class LostError(TuneError):
    """What measured was lost, and what was tried in its place, too."""


class Measurer(Protocol):
    """A source of outcomes of jobs on this machine: a `Worker` or a `Replay`."""

    @property
    def source(self) -> Source | None:
        """Written to the log in place of the proposal's own, if given."""

    @property
    def has_clock(self) -> bool:
        """Whether it can tell what a clone takes as a whole."""

    def measure(self, jobs: Sequence[Job]) -> Iterable[list[Outcome]]:
        """What came of each implementation of each job."""


@dataclass
class LocalRunner:
    """Where a session measures with a measurer of its own: on this machine."""

    measurer: Measurer
    environment: Environment = field(default_factory=here)
    """Columns of rows: where they come from."""
    target: Target = field(default_factory=host)
    """The machine that implementations are made for."""
    threads: int = MOST_THREADS
    """The most that a kernel can run on."""
    lanes: int = 1
    """How many jobs are measured at once."""

    def __post_init__(self) -> None:
        self.source, self.has_clock = self.measurer.source, self.measurer.has_clock

    def measured(
        self, jobs: Sequence[Job], is_late: Callable[[], bool] = never
    ) -> Iterator[tuple[int, list[Outcome]]]:
        """The number of each job, in their order, and its outcomes; when it is late none begins.

        A measurer begins one when it is asked for what comes of it.
        """
        came = iter(self.measurer.measure(jobs))
        for i in range(len(jobs)):
            if is_late():
                return
            yield i, next(came)

    def race(self, module: Module, function: str, threads: int) -> Race:
        """A race of a clone against itself, in this process."""
        return Race(module, function, threads)
