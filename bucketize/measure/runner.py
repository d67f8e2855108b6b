"""Where measurements are taken: by processes of this machine, or from a log; `cluster` has others.

A `Worker` is the parent of processes that run `measure.worker`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

from bucketize.errors import TuneError
from bucketize.ir import Module
from bucketize.kernel.build import is_built
from bucketize.kernel.schedule import Implementation
from bucketize.kernel.templates import TEMPLATES
from bucketize.kernel.workload import Workload
from bucketize.log.environment import Environment, here
from bucketize.log.outcome import COMPILED, Outcome
from bucketize.log.trial import KERNEL, Source, Trial, schedule_hash
from bucketize.machine.host import host
from bucketize.machine.target import Target, cores
from bucketize.measure.job import Job
from bucketize.measure.process import TIMEOUTS, Child, DeathError, Limits
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


@dataclass
class Worker:
    """Measures in processes of its own; a context manager that leaves none behind.

    Kernels are compiled by as many as there are cores, and timed by one of them while the others
    rest. `plugins` are modules that they import first, by name: the way to bring own templates,
    which such a module puts into `bucketize.kernel.templates.TEMPLATES`.
    """

    limits: Limits = field(default_factory=Limits)
    plugins: Sequence[str] = ()
    source: Source | None = None
    has_clock: bool = True
    _children: list[Child] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._children = [Child(self.limits, self.plugins) for _ in range(cores())]

    def __enter__(self) -> Self:
        """Have the processes start, which takes them a while, beside what comes next."""
        for child in self._children:
            child.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes, whatever they are doing."""
        for child in self._children:
            child.close()

    def measure(self, jobs: Sequence[Job]) -> Iterator[list[Outcome]]:
        """The outcomes of each job's implementations; whatever a kernel does is an outcome, too."""
        sources = [
            [(_source(job.workload, one), one.template) for one in job.implementations]
            for job in jobs
        ]
        built = self._build({s: hint for of in sources for s, hint in of if s})
        for job, of in zip(jobs, sources, strict=True):
            yield self._timed(job, [built.get(source, Outcome()) for source, _ in of])

    # --- compiling, on all cores -----------------------------------------------------------------

    def _build(self, sources: Mapping[str, str]) -> dict[str, Outcome]:
        """What came of compiling those of the kernels that are missing."""
        waiting = deque((s, hint) for s, hint in sources.items() if not is_built(s, hint))
        built: dict[str, Outcome] = {}

        def work(child: Child) -> None:
            try:
                while waiting:
                    source, hint = waiting.popleft()
                    built[source] = _built(child, source, hint)
            except IndexError:  # another took the last one
                return
            except BaseException:
                waiting.clear()
                raise

        others = self._children[1 : len(waiting)]
        with ThreadPoolExecutor(max(len(others), 1)) as threads:
            begun = [threads.submit(work, child) for child in others]
            try:
                work(self._children[0])
            except BaseException:
                self.close()  # an interrupt: nobody waits for what the others compile
                raise
            for one in begun:
                one.result()
        return built

    # --- timing, in one process ------------------------------------------------------------------

    def _timed(self, job: Job, outcomes: list[Outcome]) -> list[Outcome]:
        """The outcomes of those that did not fail yet, and the others' as they are."""
        left = [i for i, outcome in enumerate(outcomes) if not outcome.failed]
        if not left:
            return outcomes
        part = replace(job, implementations=tuple(job.implementations[i] for i in left))
        try:
            answer = self._children[0].ask({"job": part})
        except TuneError as e:
            raise TuneError(f"cannot measure {job.workload.hash}: {e}") from e
        except DeathError as death:
            return self._survived(job, outcomes, left, death)
        for i, fields in zip(left, answer["outcomes"], strict=True):
            fresh = Outcome(**{**fields, "seconds": tuple(fields["seconds"])})
            if outcomes[i].build:
                fresh = replace(fresh, build=COMPILED, compile_s=outcomes[i].compile_s)
            outcomes[i] = fresh
        return outcomes

    def _survived(
        self, job: Job, outcomes: list[Outcome], left: Sequence[int], death: DeathError
    ) -> list[Outcome]:
        """The outcomes when one of the implementations ended the child: it alone is to blame.

        What takes too long to prepare would do so for each of them alone, too.
        """
        if death.last["stage"] == "prepare" and death.kind == TIMEOUTS["prepare"]:
            for i in left:
                outcomes[i] = replace(outcomes[i], error_kind=death.kind, error=death.error)
            return outcomes
        culprit = death.last.get("implementation", 0 if len(left) == 1 else None)
        if culprit is not None:
            i = left[culprit]
            outcomes[i] = replace(outcomes[i], error_kind=death.kind, error=death.error)
            return self._timed(job, outcomes)
        for i in left:
            alone = replace(job, implementations=(job.implementations[i],))
            (outcomes[i],) = self._timed(alone, [outcomes[i]])
        return outcomes


def _source(workload: Workload, implementation: Implementation) -> str:
    """The text of a kernel; none for what is the timing child's to refuse."""
    template = TEMPLATES.get(implementation.template)
    if template is None or template.valid(workload, implementation.schedule, host()):
        return ""
    try:
        return template.source(workload, implementation.schedule, host())
    except Exception:  # whatever a template raises the child meets, too: there it is an outcome
        return ""


def _built(child: Child, source: str, hint: str) -> Outcome:
    try:
        answer = child.ask({"build": [source, hint]})
    except DeathError as death:
        return Outcome(error_kind=death.kind, error=death.error)
    if answer["error"]:
        return Outcome(error_kind="compile", error=answer["error"])
    return Outcome(build=COMPILED, compile_s=answer["compile_s"])


class Replay:
    """A measurer that looks outcomes up in the rows of a log; needs neither clock nor child."""

    source: Source | None = "replay"
    has_clock = False

    def __init__(self, trials: Iterable[Trial]) -> None:
        self._recorded = {
            (t.workload, t.template, t.schedule_hash, t.shape, t.threads): t
            for t in trials
            if t.level == KERNEL
        }

    def measure(self, jobs: Sequence[Job]) -> Iterator[list[Outcome]]:
        """The recorded outcomes of the same schedules at the same shapes; of several the last."""
        for job in jobs:
            yield [self._outcome(job, i) for i in job.implementations]

    def _outcome(self, job: Job, implementation: Implementation) -> Outcome:
        key = (
            *(job.workload.hash, implementation.template, schedule_hash(implementation.schedule)),
            *(job.shape, job.threads),
        )
        if key not in self._recorded:
            raise TuneError(
                f"the replayed log has no trial of {implementation} for workload "
                f"{job.workload.hash} at {job.shape} with {job.threads} thread(s)"
            )
        trial = self._recorded[key]
        return Outcome(
            error_kind=trial.error_kind,  # type: ignore[arg-type]
            error=trial.error,
            compile_s=trial.compile_s,
            max_rel_err=trial.max_rel_err,
            build=trial.build,
            packed_bytes=None if trial.packed_bytes is None else int(trial.packed_bytes),
            load=trial.load,
            seconds=() if trial.latency_median_s is None else (trial.latency_median_s,),
        )
