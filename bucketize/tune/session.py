"""`tune`: tasks searched, each as long as it is worth it, what was found confirmed, all logged."""

from __future__ import annotations

import itertools
import math
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pandas as pd

from bucketize.errors import ArgumentError, BucketizeWarning, TuneError
from bucketize.ir import Module, check_module
from bucketize.kernel.template import Implementation
from bucketize.kernel.templates import TEMPLATES
from bucketize.lower.arrangement import Arrangement
from bucketize.progress import shown
from bucketize.text import constants, show
from bucketize.tune.agenda import Agenda, Asked
from bucketize.tune.arrangement import Arranging, Known
from bucketize.tune.cluster import Cluster, GoneError
from bucketize.tune.confirm import Confirmation
from bucketize.tune.forest import Forest
from bucketize.tune.frame import trial_frame
from bucketize.tune.journal import Journal
from bucketize.tune.knowledge import Knowledge, failed
from bucketize.tune.log import check_takes_verdicts, rows, select
from bucketize.tune.measure import Job, Outcome, Rounds, Worker
from bucketize.tune.progress import Progress, tuning_bar
from bucketize.tune.record import records, reference
from bucketize.tune.search import Proposal
from bucketize.tune.site import Bench, LostError, Measurer, Site
from bucketize.tune.task import Point, Subject, Task, Traffic, subjects_of
from bucketize.tune.trial import Trial

UNTIL = 0.01  # of the whole latency: if all next trials are expected to save less, it is enough
CONFIRM_S, CONFIRM_RUNS = 1.0, 60  # what confirming a clone takes: seconds, and runs of it


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
        stack.enter_context(_heard(session))
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


@contextmanager
def _heard(session: Session) -> Iterator[None]:
    """Ctrl-C is remembered: what it raises is lost where an object is just being collected."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return

    def hear(number: int, frame: FrameType | None) -> None:
        session.is_interrupted = True
        before(number, frame)

    signal.signal(signal.SIGINT, hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


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
    is_interrupted: bool = False
    knowledge: Knowledge = field(init=False)
    agenda: Agenda = field(init=False)
    arrangements: Known = field(default_factory=dict)
    before: int = field(init=False)
    """How many implementations were known."""

    def __post_init__(self) -> None:
        """Take up what the log knows."""
        log = self.journal.log
        known = rows(log, TEMPLATES) if log.exists() else []
        trials = select(known, environment=self.site.environment)
        if log.exists() and self.site.has_clock:
            check_takes_verdicts(log)
        self.knowledge = Knowledge.of(trials, self.threads)
        others = records(t for t in known if t.host_cpu != self.site.environment.host_cpu)
        self.agenda = Agenda(
            subjects=self.subjects,
            knowledge=self.knowledge,
            strategy=self.strategy,
            seed=self.seed,
            trials=self.trials,
            until=self.until,
            learnt=Forest((*reference(), *others), self.site.target) if others else None,
        )
        self.before = self.agenda.tried

    @property
    def written(self) -> list[Trial]:
        """The rows of this session."""
        return self.journal.written

    @property
    def tasks(self) -> Sequence[Task]:
        """Of all clones."""
        return self.agenda.tasks

    # --- searching -------------------------------------------------------------------------------

    def work(self) -> None:
        """Search while it is worth it and there is time; then confirm what was found."""
        self.end = time.monotonic() + self.seconds
        while batch := self.batch():
            self.run(batch)
        promises = self.agenda.promises()
        for subject in sorted(self.subjects, key=lambda s: promises[s], reverse=True):
            if time.monotonic() < self.end:
                self.confirm(subject)

    def batch(self) -> list[Asked]:
        """What to compile and time next; nothing if it is enough, or time to confirm."""
        on_time = time.monotonic() < self.end - self.reserve()
        return self.agenda.batch(self.site.lanes) if on_time else []

    def reserve(self) -> float:
        """Seconds that confirming will take; none where there is no clock."""
        if self.seconds == math.inf or not self.site.has_clock:
            return 0.0
        runs = sum(map(self.knowledge.takes, self.tasks))
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
                self.agenda.refresh(task)

    def unknown(
        self, task: Task, i: int, proposals: Sequence[Proposal], asked: set[object]
    ) -> list[Proposal]:
        """Those not measured at the i-th point of a task, not failed at another, nor yet asked."""
        if i >= len(task.points) or self.agenda.is_broken(task):
            return []
        name, shape = task.workload.hash, task.points[i].shape
        left = []
        for proposal in proposals:
            key = proposal.implementation.key
            of = self.knowledge.made(task, key)
            if shape not in of and not failed(task, of) and (name, key, shape) not in asked:
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
        self.agenda.refresh(task)
        self.report(task)

    def give_up(self, task: Task, point: Point, asked: Sequence[Proposal]) -> None:
        """Leave to later sessions what was lost with those who measured it."""
        for proposal in asked:
            self.agenda.searches[task].tell(proposal.implementation, None)
        _warn(
            f"{len(asked)} trials of {task.workload.hash} at {point.shape} were lost with workers"
        )

    # --- confirming ------------------------------------------------------------------------------

    def confirm(self, subject: Subject) -> None:
        """Time what was found for a clone again, if there is anything new, and say what stays."""
        shapes = {subject.shape(sizes) for sizes, _ in subject.judged}
        told = self.knowledge.verdicts.get(subject.clone)
        if told is not None and not self.knowledge.is_news(subject, told) and told.shapes == shapes:
            return
        if not self.site.has_clock or subject in self.agenda.broken:
            return
        confirmation = Confirmation(
            subject=subject,
            candidates=self.agenda.candidates(subject),
            arrangement=self.arrangement(subject),
            measured=self.site.measured,
            job=self.job,
            race=self.site.race(subject),
            write=partial(self.write, subject=subject, source="confirm"),
        )
        try:
            self.knowledge.verdicts[subject.clone] = confirmation.run()
        except LostError as e:
            _warn(f"nothing is confirmed for {subject.function}: {e}")

    def arrangement(self, subject: Subject) -> Arrangement:
        """What a clone may be faster in; kernels that tell it apart from the usual are timed."""

        def measure(asked: Sequence[tuple[Task, Point]]) -> None:
            jobs = [self.job(task, point, [], Rounds()) for task, point in asked]
            for k, outcomes in self.site.measured(jobs):
                task, point = asked[k]
                for default in outcomes:
                    about = {"task": task, "point": point, "made": task.default}
                    self.write(**about, outcome=default, default=default, source="default")

        target, knowledge = self.site.target, self.knowledge
        return Arranging(subject, target, knowledge, self.arrangements, measure).run()

    def write(self, **about: Any) -> Trial:
        """Add a row, and learn it; as `Journal.write`."""
        trial = self.journal.write(**about)
        self.knowledge.learn(trial)
        return trial

    def report(self, task: Task) -> None:
        """Tell how far things are, unless it was interrupted."""
        if self.is_interrupted:
            raise KeyboardInterrupt
        search = self.agenda.searches[task]
        known = search.best
        done = self.agenda.tried - self.before
        self.tell(
            Progress(
                function=task.function,
                bucket=task.bucket,
                op=task.op,
                workload=task.workload.hash,
                best=known[1] if known else None,
                done=done,
                total=done + sum(map(self.agenda.left, self.tasks)),
                left_s=None if self.end == math.inf else max(self.end - time.monotonic(), 0.0),
            )
        )


def _warn(message: str) -> None:
    warnings.warn(f"{message}; the same call tries again", BucketizeWarning, stacklevel=2)
