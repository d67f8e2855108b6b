"""The scheduler of a session: of which task to try what next, and when it is enough."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

from bucketize.errors import warn
from bucketize.kernel.schedule import Implementation
from bucketize.tune.database import Database, failed
from bucketize.tune.options import Options
from bucketize.tune.residual import Forest
from bucketize.tune.search import Proposal, Search, Space
from bucketize.tune.task import Subject, Task, believed
from bucketize.tune.transfer import Transfer

TOGETHER = 4  # proposals of a task that are timed in turns with the default
BATCH = 16  # proposals that are compiled before any is timed, more where there are many tasks
SHARE = 8  # of which a batch has a proposal for one in so many
NEIGHBOURS = 4  # whose best are tried early
FEW = 3  # of the best of a task are confirmed

Asked: TypeAlias = tuple[Task, list[Proposal]]
Price: TypeAlias = Callable[[Task], float]


@dataclass
class TaskScheduler:
    """The searches of all tasks, and what of the latency each may still save."""

    subjects: Sequence[Subject]
    database: Database
    options: Options
    learnt: Forest | None = None
    """What other logs than those that come with the project say, too."""
    searches: dict[Task, Search] = field(init=False)
    transfer: Transfer = field(init=False)
    broken: set[Subject] = field(default_factory=set)
    """Subjects that fail on defaults: there is nothing to hold other implementations against."""

    def __post_init__(self) -> None:
        """Tell the searches what is known."""
        how = self.options.search, self.options.seed
        self.searches = {task: Search(self._space(task), *how) for task in self.tasks}
        self.transfer = Transfer(self.database, self.learnt)
        for task in self.tasks:
            self.refresh(task)

    @cached_property
    def owners(self) -> dict[Task, Subject]:
        """The subject of each task."""
        return {task: subject for subject in self.subjects for task in subject.tasks}

    @cached_property
    def families(self) -> dict[object, list[Task]]:
        """Tasks by what those have in common whose implementations are worth a try."""
        tasks_of: dict[object, list[Task]] = defaultdict(list)
        for task in self.tasks:
            tasks_of[task.family].append(task)
        return tasks_of

    @property
    def tasks(self) -> Sequence[Task]:
        """Tasks of all clones."""
        return list(self.owners)

    @property
    def tried(self) -> int:
        """Implementations that are known, of all tasks."""
        return sum(len(search.tried) for search in self.searches.values())

    # --- what is next ----------------------------------------------------------------------------

    def batch(
        self, lanes: int, subjects: Sequence[Subject], price: Price, afford_s: float
    ) -> list[Asked]:
        """What to compile and time next: most of it where most is expected; nothing if enough.

        What was asked is taken to turn out as expected. It is enough when the next trials of all
        tasks that may have more are worth less than `until` together.

        Args:
            lanes: how many jobs are measured at once.
            subjects: whose tasks are asked for.
            price: seconds that a trial of a task takes.
            afford_s: what all of them may take.

        """
        shares = self.shares(subjects)
        later = {task: self.heard(task) for task in shares if self.left(task)}
        worth = {task: self.worth(search, shares[task]) for task, search in later.items()}
        asked: dict[Task, list[Proposal]] = {}
        lanes = max(lanes, 1)
        room = max(BATCH, TOGETHER * lanes, len(later) // SHARE)
        together = TOGETHER * math.ceil(lanes / max(len(worth), 1))  # that no lane is idle
        until = self.options.until
        dear = 0.0  # the worth of what cannot be afforded now
        while worth and room and (self.is_blind or sum(worth.values()) + dear >= until):
            task = max(worth, key=lambda t: worth[t])
            most = min(together, self.left(task))
            count = int(min(most if self.is_blind else 1, room, afford_s / price(task)))
            if not count:
                dear += worth.pop(task)
                continue
            mine = asked.setdefault(task, [])
            proposals = later[task].ask(count)
            mine += proposals
            room -= len(proposals)
            afford_s -= len(proposals) * price(task)
            later[task] = later[task].expecting(proposals)
            worth[task] = self.worth(later[task], shares[task])
            if len(mine) == most:
                del worth[task]
        return [
            (task, mine[i : i + TOGETHER])
            for task, mine in asked.items()
            for i in range(0, len(mine), TOGETHER)
        ]

    def heard(self, task: Task) -> Search:
        """The search of a task, told what is known elsewhere by now."""
        search = self.searches[task]
        if not self.is_blind:
            self.transfer.tell(task, search)
        if self.is_blind or task.space.believed is None:  # else a model knows what to try first
            search.transfer = self.elsewhere(task)
        return search

    @property
    def is_blind(self) -> bool:
        """Whether the strategy expects nothing."""
        return self.options.search != "skopt"

    def _space(self, task: Task) -> Space:
        """The implementations of a task, and what is believed of them by all that was learnt."""
        if self.learnt is None:
            return task.space
        return replace(task.space, believed=believed(task, task.space, self.learnt))

    def expect(self) -> None:
        """Compute what is believed where something may be tried, before the time runs."""
        for task, search in self.searches.items():
            if search.believes and self.left(task):
                _ = search.space.surrogate

    def left(self, task: Task) -> int:
        """How many implementations of a task may be tried yet; the default is one of them."""
        if self.is_broken(task):
            return 0
        most, search = min(self.options.trials, len(task.space.points)), self.searches[task]
        return max(most - max(len(search.tried), int(search.believes)), 0)

    def worth(self, search: Search, share: float) -> float:
        """What of all latency the next trial of a task of this share of it is expected to save.

        Blind, by turns.
        """
        if self.is_blind:
            return 1.0 / (1 + len(search.tried))
        return search.gain() * share

    def shares(self, subjects: Sequence[Subject]) -> dict[Task, float]:
        """What tasks take of all latency: of their clones', and these by the weight of sizes."""
        weights = sum(subject.weight for subject in subjects)
        shares: dict[Task, float] = {}
        for subject in subjects:
            takes = {task: self.database.takes(task) for task in subject.tasks}
            whole = sum(takes.values())
            shares |= {t: s / whole * (subject.weight / weights) for t, s in takes.items()}
        return shares

    def promises(self, subjects: Sequence[Subject]) -> dict[Subject, float]:
        """The share of all latency that the best of each clone's tasks would save."""
        shares = self.shares(subjects)
        promises = {}
        for subject in subjects:
            best = {task: self.searches[task].best for task in subject.tasks}
            saved = (shares[t] * max(1 - b[1], 0) for t, b in best.items() if b is not None)
            promises[subject] = sum(saved)
        return promises

    def promise(self) -> float:
        """The share of all latency that the next trial of every task is expected to save."""
        if self.is_blind:
            return 0.0
        shares = self.shares(self.subjects)
        return sum(self.worth(self.heard(task), shares[task]) for task in shares if self.left(task))

    def candidates(self, subject: Subject) -> dict[Task, list[Implementation]]:
        """The best few of each task, if there are any better than its default."""
        return {t: best for t in subject.tasks if (best := self.searches[t].better(FEW))}

    def elsewhere(self, task: Task) -> list[Implementation]:
        """What is best for tasks of the same family, and better than their defaults."""
        bests = [
            best
            for other in self.families[task.family]
            if other is not task and (best := self.searches[other].best) is not None and best[1] < 1
        ]
        bests.sort(key=lambda best: best[1])
        return [implementation for implementation, _ in bests[:NEIGHBOURS]]

    # --- what came of it -------------------------------------------------------------------------

    def hear(self, workloads: Collection[str]) -> None:
        """Refresh the searches of these workloads."""
        for task in self.tasks:
            if task.workload.hash in workloads:
                self.refresh(task)

    def refresh(self, task: Task) -> None:
        """Tell the search of a task what is known."""
        search = self.searches[task]
        self.judge(task)
        for key, by_shape in self.database.of_task(task).items():
            whole = all(point.shape in by_shape for point in task.points)
            if key in task.space.index and (whole or failed(task, by_shape)):
                implementation = task.space.points[task.space.index[key]]
                search.tell(implementation, self.database.cost(task, by_shape))

    def judge(self, task: Task) -> None:
        """Give the clone up if the default of a task failed, and say so."""
        subject = self.owners[task]
        by_shape = self.database.made(task, task.default.key)
        if subject in self.broken or not failed(task, by_shape):
            return
        self.broken.add(subject)
        error = next(t.error for t in by_shape.values() if t.latency_median_s is None)
        reason = f"the default of {task.workload.key} fails: {error}"
        warn(f"{task.function} is not tuned: {reason}")

    def is_broken(self, task: Task) -> bool:
        """Whether its clone was given up."""
        return self.owners[task] in self.broken
