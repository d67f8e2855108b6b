"""`tune`: tasks searched, each as long as it is worth it, what was found confirmed, all logged."""

from __future__ import annotations

import itertools
import json
import math
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd

from bucketize.errors import ArgumentError, BucketizeWarning, TuneError
from bucketize.ir import Module, check_module
from bucketize.kernel.template import Implementation
from bucketize.kernel.templates import TEMPLATES
from bucketize.progress import shown
from bucketize.text import constants, show
from bucketize.tune.choice import Verdict, geometric_mean, verdicts
from bucketize.tune.cluster import Cluster, GoneError
from bucketize.tune.confirm import Confirmation
from bucketize.tune.frame import trial_frame
from bucketize.tune.journal import Journal
from bucketize.tune.log import (
    KERNEL,
    Trial,
    check_takes_verdicts,
    rows,
    select,
)
from bucketize.tune.measure import Job, Outcome, Rounds, Worker
from bucketize.tune.progress import Progress, tuning_bar
from bucketize.tune.search import Proposal, Search
from bucketize.tune.site import Bench, LostError, Measurer, Site
from bucketize.tune.task import Point, Subject, Task, Traffic, subjects_of

TOGETHER = 4  # proposals of a task that are timed in turns with the default
BATCH = 16  # proposals that are compiled before any is timed
NEIGHBOURS = 4  # whose best are tried early
FEW = 3  # of the best of a task are confirmed
UNTIL = 0.01  # of the whole latency: if all next trials are expected to save less, it is enough
CONFIRM_S, CONFIRM_RUNS = 1.0, 60  # what confirming a clone takes: seconds, and runs of it
GUESS_S = 2e-11  # of a float operation or a byte, before anything is known


def tune(  # noqa: PLR0913  (a session has that many choices, nearly all with a default)
    mod: Module | Iterable[Module],
    *,
    log: str | Path,
    trials: int = 64,
    search: str = "skopt",
    seed: int = 0,
    threads: int = 1,
    sizes: str | Traffic = "bounds",
    seconds: float | None = None,
    until: float = UNTIL,
    model: str | None = None,
    measurer: Measurer | None = None,
    client: Any = None,
    progress: Callable[[Progress], None] | bool | None = None,
) -> pd.DataFrame:
    """Search an implementation for every distinct workload of every clone, and confirm it there.

    Each trial is a row of the log. Time goes where the next trial is expected to save most of the
    latency, each size counting by its weight, relative to its own latency. What is found is timed
    again beside the default, by itself, then in the running clone, then all of a clone together;
    `compile` uses what was faster every time. Trials that the log already has, from this host and
    these versions, are not repeated: a session that was interrupted, even killed, goes on where it
    stopped.

    Args:
        mod: the module, dispatched or not; or several, which share what they have in common.
        log: the CSV file that trials are added to; made if there is none.
        trials: implementations to try per task at most, those of earlier sessions included.
        search: "skopt", "random" or "grid".
        seed: of the search; with the same measurements it makes the same proposals.
        threads: that a kernel runs on.
        sizes: where schedules are judged: "middle" or "bounds" of each bucket, or a list of sizes
            met in practice, such as `[{"N": 1}, {"N": 8}]` or, weighted, `[({"N": 1}, 0.9), ...]`.
        seconds: an end to the session; a measurement that has begun is finished.
        until: the share of the latency that a trial must be expected to save to be worth it; 0
            goes on until `trials` or `seconds`. Only "skopt" expects anything.
        model: the name in the log; by default that of the log's file.
        measurer: a `Worker` with time limits and plugins of your own, a `Replay` of another log, or
            a `Cluster`.
        client: a `distributed.Client`: measure on the workers of its cluster, as docs/cluster.md
            says. The rows are theirs, and `compile` uses them on machines like theirs.
        progress: called before a batch is compiled, and after some were timed in turns; True shows
            a bar on stderr.

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
        until=until,
        model=model,
        measurer=measurer,
        client=client,
        progress=progress,
    ) as session:
        session.work()
    return trial_frame(session.written)


@contextmanager
def opened(  # noqa: PLR0913  (those of `tune`)
    mod: Module | Iterable[Module],
    *,
    log: str | Path,
    trials: int,
    search: str,
    seed: int,
    threads: int,
    sizes: str | Traffic,
    seconds: float | None,
    until: float,
    model: str | None,
    measurer: Measurer | None,
    client: Any,
    progress: Callable[[Progress], None] | bool | None,
) -> Iterator[Session]:
    """The session of `tune` with these arguments, ready to work; `tune` has what they mean."""
    mods = list(mod) if isinstance(mod, Iterable) and not isinstance(mod, str) else [mod]
    if not mods:
        raise ArgumentError("expected a Module or several, got none")
    for each in mods:
        check_module(each)
    _check(trials, seconds, until)
    with ExitStack() as stack:
        site = _site(measurer, client, stack)
        _check_threads(threads, site.threads)
        subjects = (subjects_of(each, sizes, threads, site.target) for each in mods)
        where = f" on {site.lanes} workers" if isinstance(site, Cluster) else ""
        tell = stack.enter_context(shown(progress, tuning_bar(f"tuning{where}")))
        name = Path(log).stem if model is None else model
        session = Session(
            subjects=_distinct(itertools.chain.from_iterable(subjects)),
            journal=Journal(Path(log), name, threads, site.environment),
            trials=trials,
            strategy=search,
            seed=seed,
            threads=threads,
            seconds=math.inf if seconds is None else seconds,
            until=until,
            site=site,
            tell=tell or (lambda _: None),
        )
        stack.enter_context(_kept(session))
        yield session


def _site(measurer: Measurer | None, client: Any, stack: ExitStack) -> Site:
    """Where the session measures."""
    if client is not None:
        if measurer is not None:
            raise TuneError("give a measurer or a client, not both: Cluster(client) is a measurer")
        return Cluster(client)
    if isinstance(measurer, Cluster):
        return measurer
    return Bench(measurer or stack.enter_context(Worker()))


def _distinct(subjects: Iterable[Subject]) -> list[Subject]:
    """Each clone once, however many modules have it."""
    return list({subject.clone: subject for subject in subjects}.values())


@contextmanager
def _kept(session: Session) -> Iterator[None]:
    """Who interrupts the session, or takes its cluster away, is told what it leaves."""
    try:
        yield
    except (KeyboardInterrupt, GoneError) as e:
        kept = f"{session.journal.log} keeps the {len(session.written)} trials of this session"
        e.add_note(f"{kept}; the same call goes on from there")
        raise


def _check(trials: int, seconds: float | None, until: float) -> None:
    if not isinstance(trials, int) or trials < 1:
        raise TuneError(f"trials: expected at least 1, got {trials!r}")
    if seconds is not None and not (isinstance(seconds, int | float) and 0 < seconds < math.inf):
        raise TuneError(f"seconds: expected a finite number above 0, or None, got {seconds!r}")
    if not isinstance(until, int | float) or not 0 <= until < 1:
        raise TuneError(f"until: expected a share of the latency, from 0 to 1, got {until!r}")


def _check_threads(threads: int, most: int) -> None:
    if not isinstance(threads, int) or not 1 <= threads <= most:
        raise TuneError(f"threads: expected 1 to {most}, got {threads!r}")


ByShape: TypeAlias = dict[str, Trial]
Asked: TypeAlias = tuple[Task, list[Proposal]]


@dataclass
class Session:
    """One run of `tune`: what is known of each implementation, and what this run has added."""

    subjects: Sequence[Subject]
    journal: Journal
    trials: int
    strategy: str
    seed: int
    threads: int
    seconds: float
    until: float
    site: Site
    tell: Callable[[Progress], None]
    end: float = math.inf
    known: dict[str, dict[object, ByShape]] = field(init=False)
    """By workload, implementation and shape."""
    searched: dict[tuple[str, str], str] = field(default_factory=dict)
    """When a workload was last searched at a shape."""
    verdicts: dict[str, Verdict] = field(init=False)
    """By clone, those of earlier sessions."""
    searches: dict[Task, Search] = field(init=False)
    broken: set[Subject] = field(default_factory=set)
    """Those that fail on defaults: there is nothing to hold other implementations against."""
    before: int = field(init=False)
    """How many implementations were known."""

    def __post_init__(self) -> None:
        """Take up what the log knows."""
        log = self.journal.log
        known = rows(log, TEMPLATES) if log.exists() else []
        trials = select(known, environment=self.site.environment)
        if log.exists() and self.site.has_clock:
            check_takes_verdicts(log)
        self.known = defaultdict(lambda: defaultdict(dict))
        for trial in trials:
            if trial.threads == self.threads:
                self._learn(trial)
        self.verdicts = verdicts(trials, self.threads)
        self.searches = {t: Search(t.space, self.strategy, self.seed) for t in self.tasks}
        for task in self.tasks:
            self.refresh(task)
        self.before = self.tried

    @property
    def written(self) -> list[Trial]:
        """The rows of this session."""
        return self.journal.written

    @property
    def tried(self) -> int:
        """Implementations that are known, of all tasks."""
        return sum(len(search.tried) for search in self.searches.values())

    def _learn(self, trial: Trial) -> None:
        if trial.level == KERNEL and trial.template:
            key = Implementation(trial.template, json.loads(trial.schedule)).key
            self.known[trial.workload][key][trial.shape] = trial
            if trial.source != "confirm":
                last = self.searched.get((trial.workload, trial.shape), "")
                self.searched[trial.workload, trial.shape] = max(trial.timestamp, last)

    @cached_property
    def owners(self) -> dict[Task, Subject]:
        """Whose each task is."""
        return {task: subject for subject in self.subjects for task in subject.tasks}

    @property
    def tasks(self) -> Sequence[Task]:
        """Of all clones."""
        return list(self.owners)

    def trials_of(self, task: Task) -> list[Trial]:
        """What is known at the points of a task, whoever measured it for which model and bucket."""
        return [
            by_shape[point.shape]
            for by_shape in self.known[task.workload.hash].values()
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
                model=self.journal.model,
                function=task.function,
                bucket=task.bucket,
                layer=task.layer,
                weight=next(p.weight for p in task.points if p.shape == trial.shape),
            )
            for task in self.tasks
            for trial in self.trials_of(task)
        )

    # --- searching -------------------------------------------------------------------------------

    def work(self) -> None:
        """Search while it is worth it and there is time; then confirm what was found."""
        self.end = time.monotonic() + self.seconds
        while batch := self.batch():
            self.run(batch)
        for subject in sorted(self.subjects, key=self.promise, reverse=True):
            if time.monotonic() < self.end:
                self.confirm(subject)

    def batch(self) -> list[Asked]:
        """What to compile and time next: most of it where most is expected; nothing if enough."""
        if time.monotonic() >= self.end - self.reserve():
            return []
        worth = {task: self.worth(task) for task in self.tasks if self.left(task)}
        order = sorted(worth, key=lambda t: worth[t], reverse=True)
        rest = list(itertools.accumulate(worth[task] for task in reversed(order)))
        chosen: list[Asked] = []
        lanes = max(self.site.lanes, 1)
        room = max(BATCH, TOGETHER * lanes)
        together = TOGETHER * math.ceil(lanes / max(len(worth), 1))  # that no lane is idle
        for task in order:
            if self.strategy == "skopt" and rest.pop() < self.until:  # it, and all worth less
                break
            self.searches[task].transfer = self.elsewhere(task)
            asked = self.searches[task].ask(min(together, room, self.left(task)))
            parts = range(0, len(asked), TOGETHER)
            chosen += [(task, asked[i : i + TOGETHER]) for i in parts]
            room -= len(asked)
        return chosen

    def left(self, task: Task) -> int:
        """How many implementations of a task may be tried yet."""
        if self.owners[task] in self.broken:
            return 0
        most = min(self.trials, len(task.space.points))
        return max(most - len(self.searches[task].tried), 0)

    def worth(self, task: Task) -> float:
        """The share of all latency that the next trial is expected to save; blind, by turns."""
        search = self.searches[task]
        if self.strategy != "skopt":
            return 1.0 / (1 + len(search.tried))
        return search.gain() * self.share(task)

    def share(self, task: Task) -> float:
        """What a task takes of all latency: of its clone's, and that by the weight of its sizes."""
        subject = self.owners[task]
        whole = sum(map(self.takes, subject.tasks))
        return self.takes(task) / whole * subject.weight / sum(s.weight for s in self.subjects)

    def takes(self, task: Task) -> float:
        """Seconds of a task on its default, at all its points."""
        return sum(point.weight * self.default_s(task, point) for point in task.points)

    def default_s(self, task: Task, point: Point) -> float:
        """Seconds of the default: measured, or else by the work."""
        known = self.known[task.workload.hash][task.default.key].get(point.shape)
        if known is not None and known.latency_median_s is not None:
            return known.latency_median_s
        return ((task.flops(point) or 0) + (task.bytes(point) or 0) + 1) * GUESS_S

    def reserve(self) -> float:
        """Seconds that confirming will take; none where there is no clock."""
        if self.seconds == math.inf or not self.site.has_clock:
            return 0.0
        runs = sum(self.takes(task) for task in self.tasks)
        return min(CONFIRM_S * len(self.subjects) + CONFIRM_RUNS * runs, self.seconds / 2)

    def run(self, batch: Sequence[Asked]) -> None:
        """Time proposals: at the first point all, at the others those that did not fail."""
        self.report(batch[0][0])
        for i in range(max(len(task.points) for task, _ in batch)):
            jobs: list[tuple[Task, Point, list[Proposal]]] = []
            asked: set[object] = set()
            for task, proposals in batch:
                left = self.unknown(task, i, proposals, asked)
                if left:
                    jobs.append((task, task.points[i], left))
            came = self.site.measured(
                [self.job(t, p, [x.implementation for x in left], Rounds()) for t, p, left in jobs]
            )
            for k, outcomes in came:
                self.record(*jobs[k], outcomes)
        for task in self.tasks:
            if any(task.workload.hash == other.workload.hash for other, _ in batch):
                self.refresh(task)

    def unknown(
        self, task: Task, i: int, proposals: Sequence[Proposal], asked: set[object]
    ) -> list[Proposal]:
        """Those not measured at the i-th point of a task, not failed at another, nor yet asked."""
        if i >= len(task.points) or self.owners[task] in self.broken:
            return []
        name, shape = task.workload.hash, task.points[i].shape
        left = []
        for proposal in proposals:
            key = proposal.implementation.key
            of = self.known[name][key]
            if shape not in of and not _failed(task, of) and (name, key, shape) not in asked:
                asked.add((name, key, shape))
                left.append(proposal)
        return left

    def job(self, task: Task, point: Point, made: Sequence[Implementation], rounds: Rounds) -> Job:
        """The implementations beside the default, which comes first."""
        others = [one for one in made if one.key != task.default.key]
        return Job(
            workload=task.workload.hash,
            shape=point.shape,
            body=show(task.workload.body),
            table=tuple(constants(task.workload.body)),
            constant=task.workload.constant,
            implementations=(task.default, *others),
            sizes=point.sizes,
            threads=self.threads,
            weight_bytes=task.weight_bytes,
            rounds=rounds,
        )

    def record(
        self, task: Task, point: Point, asked: Sequence[Proposal], outcomes: Sequence[Outcome]
    ) -> None:
        """A row for each proposal; the first outcome is the default's.

        Without outcomes there is no row, and this session does not try it again.
        """
        if not outcomes:
            self.give_up(task, point, asked)
            return
        default, *rest = outcomes
        others = iter(rest)
        for proposal in asked:
            mine = proposal.implementation.key == task.default.key
            self.write(
                task=task,
                point=point,
                made=proposal.implementation,
                outcome=default if mine else next(others),
                default=default,
                source=self.site.source or proposal.source,
            )
        self.refresh(task)
        self.report(task)

    def give_up(self, task: Task, point: Point, asked: Sequence[Proposal]) -> None:
        """Leave to later sessions what was lost with those who measured it."""
        for proposal in asked:
            self.searches[task].tell(proposal.implementation, None)
        _warn(
            f"{len(asked)} trials of {task.workload.hash} at {point.shape} were lost with workers"
        )

    def refresh(self, task: Task) -> None:
        """Tell the search of a task what is known."""
        search = self.searches[task]
        self.judge(task)
        for key, by_shape in self.known[task.workload.hash].items():
            whole = all(point.shape in by_shape for point in task.points)
            if key in task.space.index and (whole or _failed(task, by_shape)):
                made = task.space.points[task.space.index[key]]
                search.tell(made, self.cost(task, by_shape))

    def cost(self, task: Task, by_shape: ByShape) -> float | None:
        """Latency by the default's: the weighted geometric mean over the task's points.

        A row that another default stood beside counts by what this task's takes.
        """
        if _failed(task, by_shape):
            return None
        rows = []
        for point in task.points:
            row = by_shape[point.shape]
            beside = row.baseline in ("", str(task.default))
            base = row.baseline_s if beside else self.default_s(task, point)
            if base is None:
                return None
            rows.append(replace(row, weight=point.weight, baseline_s=base))
        return geometric_mean(rows)

    def judge(self, task: Task) -> None:
        """Give the clone up if the default of a task failed, and say so."""
        subject = self.owners[task]
        by_shape = self.known[task.workload.hash][task.default.key]
        if subject in self.broken or not _failed(task, by_shape):
            return
        self.broken.add(subject)
        error = next(t.error for t in by_shape.values() if t.latency_median_s is None)
        reason = f"the default of {task.workload.key} fails: {error}"
        warnings.warn(f"{task.function} is not tuned: {reason}", BucketizeWarning, stacklevel=2)

    def elsewhere(self, task: Task) -> list[Implementation]:
        """What is best for tasks of the same family, and better than their defaults."""
        found = [
            best
            for other, search in self.searches.items()
            if other is not task
            and other.family == task.family
            and (best := search.best) is not None
            and best[1] < 1
        ]
        found.sort(key=lambda best: best[1])
        return [made for made, _ in found[:NEIGHBOURS]]

    # --- confirming ------------------------------------------------------------------------------

    def confirm(self, subject: Subject) -> None:
        """Time what was found for a clone again, if there is anything new, and say what stays."""
        shapes = {subject.shape(sizes) for sizes, _ in subject.judged}
        told = self.verdicts.get(subject.clone)
        if told is not None and not self.is_news(subject, told) and told.shapes == shapes:
            return
        if not self.site.has_clock or subject in self.broken:
            return
        confirmation = Confirmation(
            subject=subject,
            candidates={t: best for t in subject.tasks if (best := self.searches[t].better(FEW))},
            measured=self.site.measured,
            job=self.job,
            race=self.site.race(subject),
            write=partial(self.write, subject=subject, source="confirm"),
        )
        try:
            self.verdicts[subject.clone] = confirmation.run()
        except LostError as e:
            _warn(f"nothing is confirmed for {subject.function}: {e}")

    def promise(self, subject: Subject) -> float:
        """The share of all latency that the best of its tasks would save."""
        best = {task: self.searches[task].best for task in subject.tasks}
        return sum(self.share(t) * max(1 - b[1], 0) for t, b in best.items() if b is not None)

    def is_news(self, subject: Subject, told: Verdict) -> bool:
        """Whether any of its tasks was searched since, by this session or one that was stopped."""
        places = ((task.workload.hash, p.shape) for task in subject.tasks for p in task.points)
        return any(self.searched.get(place, "") > told.timestamp for place in places)

    def write(self, **about: Any) -> Trial:
        """Add a row, and learn it; as `Journal.write`."""
        trial = self.journal.write(**about)
        self._learn(trial)
        return trial

    def report(self, task: Task) -> None:
        """Tell how far things are."""
        search = self.searches[task]
        known = search.best
        done = self.tried - self.before
        self.tell(
            Progress(
                function=task.function,
                bucket=task.bucket,
                op=task.op,
                workload=task.workload.hash,
                best=known[1] if known else None,
                done=done,
                total=done + sum(map(self.left, self.tasks)),
                left_s=None if self.end == math.inf else max(self.end - time.monotonic(), 0.0),
            )
        )


def _warn(message: str) -> None:
    warnings.warn(f"{message}; the same call tries again", BucketizeWarning, stacklevel=2)


def _failed(task: Task, by_shape: ByShape) -> bool:
    tried = (by_shape.get(point.shape) for point in task.points)
    return any(trial is not None and trial.latency_median_s is None for trial in tried)
