"""`tune`: the tasks of a module, searched one after the other, every trial written to the log."""

from __future__ import annotations

import json
import math
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, TypeAlias

import pandas as pd
from numba import config

from bucketize.errors import TuneError
from bucketize.ir import Module, check_module
from bucketize.kernel.template import Implementation
from bucketize.kernel.templates import TEMPLATES
from bucketize.progress import shown
from bucketize.text import constants, show
from bucketize.tune.environment import here
from bucketize.tune.frame import trial_frame
from bucketize.tune.log import (
    ERROR_LENGTH,
    Schedule,
    Source,
    Trial,
    append,
    rows,
    schedule_hash,
    schedule_json,
    select,
)
from bucketize.tune.measure import Job, Outcome, Worker
from bucketize.tune.progress import Progress, tuning_bar
from bucketize.tune.search import Proposal
from bucketize.tune.search import search as explore
from bucketize.tune.task import Point, Task, Traffic, tasks_of

NEIGHBOURS = 2  # whose best schedules are tried early


class Measurer(Protocol):
    """What turns a job into an outcome: a `Worker`, or a `Replay`."""

    source: Source | None
    """Written to the log in place of the proposal's own, if given."""

    def measure(self, job: Job) -> Outcome: ...


def tune(  # noqa: PLR0913  (a session has that many choices, nearly all with a default)
    mod: Module,
    *,
    log: str | Path,
    trials: int = 64,
    search: str = "skopt",
    seed: int = 0,
    threads: int = 1,
    sizes: str | Traffic = "middle",
    seconds: float | None = None,
    model: str | None = None,
    measurer: Measurer | None = None,
    progress: Callable[[Progress], None] | bool | None = None,
) -> pd.DataFrame:
    """Search a schedule for every distinct workload of every clone; each trial is a row of the log.

    Trials that the log already has, from this host and these versions, are not repeated: a session
    that was interrupted, even killed, goes on where it stopped.

    Args:
        mod: the module, dispatched or not.
        log: the CSV file that trials are added to; made if there is none.
        trials: schedules to try per task, those of earlier sessions included.
        search: "skopt", "random" or "grid".
        seed: of the search; with the same measurements it makes the same proposals.
        threads: that a kernel runs on.
        sizes: where schedules are judged: "middle" or "bounds" of each bucket, or a list of sizes
            met in practice, such as `[{"N": 1}, {"N": 8}]` or, weighted, `[({"N": 1}, 0.9), ...]`.
        seconds: an end to the session, shared out fairly among the tasks; a trial that has begun is
            finished.
        model: the name in the log; by default that of the log's file.
        measurer: a `Worker` with time limits and plugins of your own, or a `Replay` of another log.
        progress: called before each task and after each trial; True shows a bar on stderr.

    Returns:
        The rows of this session.

    Raises:
        TuneError: arguments that allow no session, or a measuring process that does not start.
        LogError: a log that cannot be read or written.

    """
    with opened(
        mod,
        log=log,
        trials=trials,
        search=search,
        seed=seed,
        threads=threads,
        sizes=sizes,
        seconds=seconds,
        model=model,
        measurer=measurer,
        progress=progress,
    ) as session:
        session.work()
    return trial_frame(session.written)


@contextmanager
def opened(  # noqa: PLR0913  (those of `tune`)
    mod: Module,
    *,
    log: str | Path,
    trials: int,
    search: str,
    seed: int,
    threads: int,
    sizes: str | Traffic,
    seconds: float | None,
    model: str | None,
    measurer: Measurer | None,
    progress: Callable[[Progress], None] | bool | None,
) -> Iterator[Session]:
    """The session of `tune` with these arguments, ready to work; `tune` has what they mean."""
    check_module(mod)
    _check(trials, threads, seconds)
    with ExitStack() as stack:
        tell = stack.enter_context(shown(progress, tuning_bar("tuning")))
        session = Session(
            tasks=tasks_of(mod, sizes),
            log=Path(log),
            model=Path(log).stem if model is None else model,
            trials=trials,
            strategy=search,
            seed=seed,
            threads=threads,
            seconds=math.inf if seconds is None else seconds,
            measurer=measurer or stack.enter_context(Worker()),
            tell=tell or (lambda _: None),
        )
        stack.enter_context(_kept(session))
        yield session


@contextmanager
def _kept(session: Session) -> Iterator[None]:
    """Who interrupts the session is told what it leaves."""
    try:
        yield
    except KeyboardInterrupt as e:
        kept = f"{session.log} keeps the {len(session.written)} trials of this session"
        e.add_note(f"{kept}; the same call goes on from there")
        raise


def _check(trials: int, threads: int, seconds: float | None) -> None:
    if not isinstance(trials, int) or trials < 1:
        raise TuneError(f"trials: expected at least 1, got {trials!r}")
    most = int(config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
    if not isinstance(threads, int) or not 1 <= threads <= most:
        raise TuneError(f"threads: expected 1 to {most}, got {threads!r}")
    if seconds is not None and not (isinstance(seconds, int | float) and 0 < seconds < math.inf):
        raise TuneError(f"seconds: expected a finite number above 0, or None, got {seconds!r}")


ByShape: TypeAlias = dict[str, Trial]


@dataclass
class Session:
    """One run of `tune`: what is known of each schedule, and what this run has added."""

    tasks: Sequence[Task]
    log: Path
    model: str
    trials: int
    strategy: str
    seed: int
    threads: int
    seconds: float
    measurer: Measurer
    tell: Callable[[Progress], None]
    agenda: Sequence[int] = ()
    """How many schedules are left to try, by task, when the session begins."""
    end: float = math.inf
    tried: int = 0
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    written: list[Trial] = field(default_factory=list)
    known: dict[tuple[str, str], dict[str, ByShape]] = field(init=False)
    """Workload and template -> schedule -> shape -> trial."""
    best: dict[object, list[Schedule]] = field(default_factory=lambda: defaultdict(list))
    """Family of tasks -> their best schedules, the latest last."""

    def __post_init__(self) -> None:
        """Take up what the log knows."""
        self.known = defaultdict(lambda: defaultdict(dict))
        for trial in select(rows(self.log, TEMPLATES)) if self.log.exists() else ():
            if trial.threads == self.threads:
                self._learn(trial)

    def _learn(self, trial: Trial) -> None:
        self.known[trial.workload, trial.template][trial.schedule_hash][trial.shape] = trial

    def work(self) -> None:
        """Run all tasks, one after the other, each with its share of the time that is left."""
        self.agenda = [self.left(task) for task in self.tasks]
        self.end = time.monotonic() + self.seconds
        for i, task in enumerate(self.tasks):
            now = time.monotonic()
            self.run(task, (i, len(self.tasks)), now + (self.end - now) / (len(self.tasks) - i))

    def trials_of(self, task: Task) -> list[Trial]:
        """What is known at the points of a task, whoever measured it for which model and bucket."""
        return [
            by_shape[point.shape]
            for by_shape in self._tried(task).values()
            for point in task.points
            if point.shape in by_shape
        ]

    def known_by_task(self) -> pd.DataFrame:
        """The trials of every task, in the name of its function and bucket, with its weights.

        A workload that several functions share has its rows in each of them.
        """
        return trial_frame(
            replace(
                trial,
                model=self.model,
                function=task.function,
                bucket=task.bucket,
                layer=task.layer,
                weight=next(p.weight for p in task.points if p.shape == trial.shape),
            )
            for task in self.tasks
            for trial in self.trials_of(task)
        )

    def _tried(self, task: Task) -> dict[str, ByShape]:
        return self.known[task.workload.hash, task.template.name]

    def left(self, task: Task) -> int:
        """How many schedules of a task are to be tried that the log does not have."""
        return max(task.space.count(self.trials) - len(self._history(task)), 0)

    def run(self, task: Task, place: tuple[int, int], end: float) -> None:
        """Try schedules for a task until it has had its trials or its time."""
        history = self._history(task)
        found = explore(
            task.space,
            lambda proposal: self._cost(task, proposal),
            self.trials,
            strategy=self.strategy,
            seed=self.seed,
            transfer=self.best[task.family][: -NEIGHBOURS - 1 : -1],
            history=tuple(history),
        )
        self._report(task, place, history)
        while time.monotonic() < end and (tried := next(found, None)):
            proposal, cost = tried
            history.append((proposal.schedule, cost))
            self.tried += 1
            self._report(task, place, history)
        schedule, cost = min(history, key=lambda h: h[1] or math.inf, default=({}, None))
        if cost is not None:
            self.best[task.family].append(schedule)

    def _history(self, task: Task) -> list[tuple[Schedule, float | None]]:
        """The schedules whose cost follows from trials that the log has."""
        tried = self._tried(task).values()
        return [
            (json.loads(next(iter(by_shape.values())).schedule), _cost(task, by_shape))
            for by_shape in tried
            if _failed(task, by_shape) or all(point.shape in by_shape for point in task.points)
        ]

    def _cost(self, task: Task, proposal: Proposal) -> float | None:
        """Measure what is not known yet of a schedule, up to its first failure."""
        by_shape = self._tried(task)[schedule_hash(proposal.schedule)]
        for point in task.points:
            if point.shape not in by_shape:
                self._measure(task, point, proposal)
            if by_shape[point.shape].latency_median_s is None:
                return None
        return _cost(task, by_shape)

    def _measure(self, task: Task, point: Point, proposal: Proposal) -> None:
        outcome = self.measurer.measure(self._job(task, point, proposal.schedule))
        baseline = outcome.latency_median_s
        if Implementation(task.template.name, proposal.schedule) != task.baseline:
            baseline = self._baseline(task, point)
        trial = Trial(
            run_id=self.run_id,
            trial=len(self.written),
            timestamp=datetime.now(UTC).isoformat(timespec="seconds"),
            **asdict(here()),
            threads=self.threads,
            model=self.model,
            function=task.function,
            bucket=task.bucket,
            shape=point.shape,
            weight=point.weight,
            op=task.op,
            template=task.template.name,
            workload=task.workload.hash,
            schedule=schedule_json(proposal.schedule),
            schedule_hash=schedule_hash(proposal.schedule),
            source=self.measurer.source or proposal.source,
            status="ok" if outcome.error_kind == "none" else "failed",
            **{**asdict(outcome), "error": outcome.error[:ERROR_LENGTH]},
            baseline_s=baseline,
            layer=task.layer,
            flops=task.flops(point),
            bytes=task.bytes(point),
        )
        append(self.log, trial)
        self.written.append(trial)
        self._learn(trial)

    def _baseline(self, task: Task, point: Point) -> float | None:
        tried = self.known[task.workload.hash, task.baseline.template]
        by_shape = tried[schedule_hash(task.baseline.schedule)]
        return by_shape[point.shape].latency_median_s if point.shape in by_shape else None

    def _job(self, task: Task, point: Point, schedule: Schedule) -> Job:
        workload = task.workload
        return Job(
            workload=workload.hash,
            shape=point.shape,
            body=show(workload.body),
            table=tuple(constants(workload.body)),
            constant=workload.constant,
            template=task.template.name,
            schedule=schedule,
            sizes=point.sizes,
            threads=self.threads,
            weight_bytes=task.weight_bytes,
        )

    def _report(
        self, task: Task, place: tuple[int, int], history: list[tuple[Schedule, float | None]]
    ) -> None:
        costs = {schedule_hash(schedule): cost for schedule, cost in history}
        default = costs.get(schedule_hash(task.space.default))
        best = min((cost for cost in costs.values() if cost is not None), default=None)
        trials = max(len(history), task.space.count(self.trials))
        ahead = trials - len(history) + sum(self.agenda[place[0] + 1 :])
        left_s = None if self.end == math.inf else max(self.end - time.monotonic(), 0.0)
        self.tell(
            Progress(
                *place,
                function=task.function,
                bucket=task.bucket,
                op=task.op,
                workload=task.workload.hash,
                tried=len(history),
                trials=trials,
                best=best / default if best and default else None,
                done=self.tried,
                total=self.tried + ahead,
                left_s=left_s,
            )
        )


def _failed(task: Task, by_shape: ByShape) -> bool:
    tried = (by_shape.get(point.shape) for point in task.points)
    return any(trial is not None and trial.latency_median_s is None for trial in tried)


def _cost(task: Task, by_shape: ByShape) -> float | None:
    """The weighted geometric mean latency of a schedule at the task's points."""
    if _failed(task, by_shape):
        return None
    total = sum(point.weight for point in task.points)
    logs = (
        point.weight * math.log(by_shape[point.shape].latency_median_s or math.inf)
        for point in task.points
    )
    return math.exp(sum(logs) / total)
