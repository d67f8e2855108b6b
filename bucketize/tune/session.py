"""Sessions of `tune`: batches of trials until none is worth it, then what was found confirmed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bucketize.errors import LateError, warn
from bucketize.log.log import check_takes_verdicts
from bucketize.log.outcome import Outcome
from bucketize.log.trial import CLONE, Origin, Owner, Trial
from bucketize.lower.arrangement import Arrangement
from bucketize.measure.cluster import Site
from bucketize.measure.runner import LostError
from bucketize.tune.budget import Budget
from bucketize.tune.confirm import Confirmation
from bucketize.tune.database import Database, failed
from bucketize.tune.graph_tuning import Arranging, Known
from bucketize.tune.options import Options
from bucketize.tune.progress import WAITING, Progress
from bucketize.tune.recorder import Recorder
from bucketize.tune.residual import Forest
from bucketize.tune.samples import records, reference
from bucketize.tune.scheduler import Asked, TaskScheduler
from bucketize.tune.search import Proposal
from bucketize.tune.task import Point, Subject, Task

NAMED = 3  # of the clones that have no verdict


@dataclass
class TuningSession:
    """One run of `tune`: what is known of each implementation, and what this run has added."""

    subjects: Sequence[Subject]
    options: Options
    site: Site
    tell: Callable[[Progress], None]
    is_interrupted: bool = False
    recorder: Recorder = field(init=False)
    scheduler: TaskScheduler = field(init=False)
    budget: Budget = field(init=False)
    arrangements: Known = field(default_factory=dict)
    before: int = field(init=False)
    """How many implementations were known."""

    def __post_init__(self) -> None:
        """Take up what the log knows."""
        asked, here = self.options, self.site.environment
        log = Path(asked.log)
        model = log.stem if asked.model is None else asked.model
        origin = Origin(model, asked.threads, here, asked.search, asked.seed)
        self.recorder = Recorder(log, origin)
        trials = self.recorder.read()
        if log.exists() and self.site.has_clock:
            check_takes_verdicts(log)
        others = records(t for t in trials if t.host_cpu != here.host_cpu)
        learns = bool(others) and asked.search == "skopt"  # the others expect nothing
        learnt = Forest((*reference(), *others), self.site.target) if learns else None
        self.scheduler = TaskScheduler(self.subjects, self.database, asked, learnt)
        self.budget = Budget(math.inf if asked.seconds is None else asked.seconds, self.database)
        self.recorder.left = lambda: self.budget.left_s
        self.recorder.waits = lambda said: self.tell(self.waiting(said))
        self.before = self.scheduler.tried

    @property
    def database(self) -> Database:
        """All that is known of implementations."""
        return self.recorder.database

    @property
    def written(self) -> list[Trial]:
        """The rows of this session."""
        return self.recorder.written

    @property
    def tasks(self) -> Sequence[Task]:
        """Tasks of all clones."""
        return self.scheduler.tasks

    def known(self) -> list[Trial]:
        """What was timed of all tasks where they are judged, by earlier sessions, too."""
        return [trial for task in self.tasks for trial in self.database.at_points(task)]

    # --- searching -------------------------------------------------------------------------------

    def work(self) -> None:
        """Search while it is worth it and there is time; then confirm what was found.

        Where there is no time for all clones, for some of them first, and so on with the others.
        """
        self.scheduler.expect()
        self.budget.begin()
        waiting = list(self.subjects)
        while waiting and self.budget.left_s > 0:
            some = self.some(waiting)
            while self.search(some):
                pass
            promises = self.scheduler.promises(some)
            for subject in sorted(some, key=lambda s: promises[s], reverse=True):
                if self.has_time(subject):
                    self.confirm(subject)
            waiting = [subject for subject in waiting if subject not in some]

    def search(self, some: Sequence[Subject]) -> bool:
        """Time the next batch, in the session's turn; false if there is none, or no time."""
        try:
            with self.recorder.turn(self.budget.left_s) as news:
                self.scheduler.hear({trial.workload for trial in news})
                batch = self.batch(some)
                if batch:
                    self.run(batch, some)
        except LateError:
            return False
        return bool(batch)

    def some(self, waiting: Sequence[Subject]) -> Sequence[Subject]:
        """The clones to be tuned now: all, if there is time; those without a verdict first."""
        if not self.site.has_clock:
            return waiting
        return self.budget.within(waiting, self.database.verdicts)

    def batch(self, some: Sequence[Subject]) -> list[Asked]:
        """What to compile and time next; nothing if it is enough, or time to confirm.

        Half of the time left is spent at once: what comes next is chosen by what came of it. But
        however little it is, something is tried.
        """
        budget, lanes = self.budget, self.site.lanes
        afford_s = (budget.left_s - self.reserve(some)) / budget.pace * max(lanes, 1) / 2
        if afford_s <= 0:
            return []
        left = [task for subject in some for task in subject.tasks if self.scheduler.left(task)]
        if not self.written and left:
            afford_s = max(afford_s, min(map(self.price, left)))
        return self.scheduler.batch(lanes, some, self.price, afford_s)

    def price(self, task: Task) -> float:
        """Seconds that a trial of a task is expected to take."""
        return self.budget.of_trials(task, 1)

    def reserve(self, some: Sequence[Subject]) -> float:
        """Seconds that confirming what is found will take, where it can be confirmed at all.

        Half of all time at most, unless one clone takes more.
        """
        budget = self.budget
        if not budget.is_limited or not self.site.has_clock:
            return 0.0
        able = []
        for subject in some:
            confirming, least = self.confirm_s(subject), budget.of_races(subject)
            if max(confirming, least) <= (budget.grace_s if confirming else budget.left_s):
                able.append(max(confirming, least))
        return max(min(sum(able), self.budget.seconds / 2), max(able, default=0.0))

    def run(self, batch: Sequence[Asked], some: Sequence[Subject]) -> None:
        """Time proposals: at the first point all, at the others those that did not fail."""
        self.report(batch[0][0])
        reserve, begun = self.reserve(some), self.budget.clock()
        expected = sum(self.budget.of_trials(task, len(proposals)) for task, proposals in batch)
        for i in range(max(len(task.points) for task, _ in batch)):
            jobs: list[tuple[Task, Point, list[Proposal]]] = []
            asked: set[object] = set()
            for task, proposals in batch:
                left = self.unknown(task, i, proposals, asked)
                if left:
                    jobs.append((task, task.points[i], left))
            came = self.site.measured(
                [
                    task.job(point, [x.implementation for x in left], self.options.threads)
                    for task, point, left in jobs
                ],
                lambda: self.budget.left_s <= reserve,
            )
            for k, outcomes in came:
                self.record(*jobs[k], outcomes)
        self.budget.learn(expected / max(self.site.lanes, 1), self.budget.clock() - begun)
        self.scheduler.hear({task.workload.hash for task, _ in batch})

    def unknown(
        self, task: Task, i: int, proposals: Sequence[Proposal], asked: set[object]
    ) -> list[Proposal]:
        """Proposals not measured at the i-th point of a task, not failed at another, nor asked."""
        if i >= len(task.points) or self.scheduler.is_broken(task):
            return []
        name, shape = task.workload.hash, task.points[i].shape
        left = []
        for proposal in proposals:
            key = proposal.implementation.key
            of = self.database.made(task, key)
            if shape not in of and not failed(task, of) and (name, key, shape) not in asked:
                asked.add((name, key, shape))
                left.append(proposal)
        return left

    def record(
        self, task: Task, point: Point, asked: Sequence[Proposal], outcomes: Sequence[Outcome]
    ) -> None:
        """A row for each proposal, and one for the default, which is timed beside them all.

        Without outcomes there is no row, and this session does not try it again.
        """
        if not outcomes:
            self.give_up(task, point, asked)
            return
        default, *rest = outcomes
        others = [proposal for proposal in asked if proposal.implementation.key != task.default.key]
        timed = list(zip(others, rest, strict=True))
        if point.shape not in self.database.made(task, task.default.key):
            timed.insert(0, (Proposal(task.default, "default"), default))
        for proposal, outcome in timed:
            self.write(task, point, proposal, outcome, default)
        self.scheduler.refresh(task)
        self.report(task)

    def give_up(self, task: Task, point: Point, asked: Sequence[Proposal]) -> None:
        """Leave to later sessions what was lost with those who measured it."""
        for proposal in asked:
            self.scheduler.searches[task].tell(proposal.implementation, None)
        _warn(
            f"{len(asked)} trials of {task.workload.hash} at {point.shape} were lost with workers"
        )

    # --- confirming ------------------------------------------------------------------------------

    def confirm_s(self, subject: Subject) -> float:
        """Seconds that confirming what was found for a clone is expected to take."""
        candidates = self.scheduler.candidates(subject)
        return self.budget.of_verdict(subject, candidates) * max(self.budget.pace, 1.0)

    def has_time(self, subject: Subject) -> bool:
        """Whether a clone can be confirmed; not if nothing was tried that may be worth it."""
        if not self.budget.is_limited:
            return True
        if self.budget.left_s <= 0 or self.confirm_s(subject) > self.budget.grace_s:
            return False
        tried = any(self.scheduler.searches[task].tried for task in subject.tasks)
        return tried or not self.scheduler.batch(1, [subject], self.price, math.inf)

    @property
    def unreached(self) -> list[Subject]:
        """The clones on which there is no verdict for want of time."""
        verdicts, broken = self.database.verdicts, self.scheduler.broken
        subjects = self.subjects if self.site.has_clock and self.budget.is_limited else ()
        return [s for s in subjects if s.clone not in verdicts and s not in broken]

    def shortfall(self) -> str:
        """Which clones were not reached; empty if all were."""
        names = [subject.function for subject in self.unreached]
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        named = f"{', '.join(names[:NAMED])}{more}"
        of = f"{len(names)} of {len(self.subjects)} clones"
        return f"{of} have no verdict yet: {named}" if names else ""

    def confirm(self, subject: Subject) -> None:
        """Time what was found for a clone again, if there is anything new, and say what stays."""
        self.heed()
        try:
            with self.recorder.turn(self.budget.grace_s) as news:
                self.scheduler.hear({trial.workload for trial in news})
                self.judge(subject)
        except LateError:
            return  # it is one of the unreached
        except LostError as e:
            _warn(f"nothing is confirmed for {subject.function}: {e}")

    def judge(self, subject: Subject) -> None:
        """Confirm what was found, or what else stays, if there is anything new."""
        if not self.database.is_news(subject):
            return
        if not self.site.has_clock or subject in self.scheduler.broken:
            return
        self.tell(self.progress(subject, CLONE, subject.clone))
        Confirmation(
            subject=subject,
            candidates=self.scheduler.candidates(subject),
            arrangement=self.arrangement(subject),
            recorder=self.recorder,
            site=self.site,
            budget=self.budget,
        ).run()

    def arrangement(self, subject: Subject) -> Arrangement:
        """What a clone may be faster in; kernels that tell it apart from the usual are timed."""

        def measure(asked: Sequence[tuple[Task, Point]]) -> None:
            jobs = [task.job(point, [], self.options.threads) for task, point in asked]
            for k, outcomes in self.site.measured(jobs, self.budget.is_over):
                task, point = asked[k]
                for default in outcomes:
                    self.write(task, point, Proposal(task.default, "default"), default, default)

        target, database = self.site.target, self.database
        return Arranging(subject, target, database, self.arrangements, measure).run()

    def write(
        self, task: Task, point: Point, proposal: Proposal, outcome: Outcome, default: Outcome
    ) -> None:
        """Add a row about a proposal, and about the default beside it."""
        about = proposal.implementation, outcome, default, self.site.source or proposal.source
        row = Trial.of_kernel(self.recorder.origin, task.at(point), *about)
        ratio, gain = proposal.expected_ratio, proposal.expected_gain
        self.recorder.add(replace(row, expected_ratio=ratio, expected_gain=gain))

    def heed(self) -> None:
        """End here if it was interrupted, and that was lost."""
        if self.is_interrupted:
            raise KeyboardInterrupt

    def report(self, task: Task) -> None:
        """Tell how far things are, unless it was interrupted."""
        self.heed()
        best = self.scheduler.searches[task].best
        self.tell(self.progress(task, task.op, task.workload.hash, best[1] if best else None))

    def progress(self, of: Owner, op: str, workload: str, best: float | None = None) -> Progress:
        """How far things are."""
        done = self.scheduler.tried - self.before
        return Progress(
            function=of.function,
            bucket=of.bucket,
            op=op,
            workload=workload,
            best=best,
            done=done,
            total=done + sum(map(self.scheduler.left, self.tasks)),
            left_s=self.budget.left_s if self.budget.is_limited else None,
        )

    def waiting(self, said: str) -> Progress:
        """How far things are while another session has its turn."""
        return self.progress(self.subjects[0], WAITING, said)


def _warn(message: str) -> None:
    warn(f"{message}; the same call tries again")
