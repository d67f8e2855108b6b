"""What a session knows of implementations: the rows of its log, and what it has measured since."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from bucketize.kernel.schedule import Implementation
from bucketize.log.frame import trial_frame
from bucketize.log.trial import CLONE, KERNEL, Trial
from bucketize.log.verdict import Verdict, all_standing, geometric_mean, histories
from bucketize.tune.samples import is_product, product_of
from bucketize.tune.task import Point, Subject, Task

if TYPE_CHECKING:
    import pandas as pd

ByShape: TypeAlias = dict[str, Trial]


class Setting(NamedTuple):
    """Where implementations of one template are compared."""

    workload: str
    shape: str
    template: str


@dataclass
class Database:
    """What is known, whoever measured it for which model and bucket."""

    trials: dict[str, dict[object, ByShape]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(dict))
    )
    """By workload, implementation and shape."""
    learnt: int = 0
    """How many rows: the order of a log, which no clock tells."""
    searched: dict[tuple[str, str], int] = field(default_factory=dict)
    """The last row by which a workload was searched at a shape."""
    judged: dict[str, int] = field(default_factory=dict)
    """By clone, the last row by which it was judged."""
    raced: dict[str, list[Trial]] = field(default_factory=lambda: defaultdict(list))
    """By clone, the rows about it as a whole."""
    histories: dict[str, list[Verdict]] = field(default_factory=lambda: defaultdict(list))
    """By clone, the verdicts on it in their order."""
    places: dict[Setting, dict[object, Trial]] = field(default_factory=dict)
    """Trials by place, and there by implementation."""
    kin: dict[object, list[Setting]] = field(default_factory=lambda: defaultdict(list))
    """The places of each workload, and those of all products that differ by rows alone."""

    @classmethod
    def of(cls, trials: Iterable[Trial], threads: int) -> Database:
        """What the rows of a log tell of so many threads."""
        database = cls()
        for trial in trials:
            if trial.threads == threads:
                database.learn(trial)
        return database

    def learn(self, trial: Trial) -> None:
        """Take up a row, those before it in its log being known."""
        self.learnt += 1
        if trial.op == CLONE:
            self._judge(trial)
        elif trial.level == KERNEL and trial.template:
            key = Implementation(trial.template, json.loads(trial.schedule)).key
            self.trials[trial.workload][key][trial.shape] = trial
            self._place(trial)[key] = trial
            if trial.source != "confirm":
                self.searched[trial.workload, trial.shape] = self.learnt

    def _judge(self, trial: Trial) -> None:
        rows = self.raced[trial.clone]
        rows.append(trial)
        self.histories[trial.clone] = history = histories(rows)[trial.clone]
        if history and any(row is trial for row in history[-1].rows):
            self.judged[trial.clone] = self.learnt

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """By clone, what stands."""
        return all_standing(self.histories)

    def _place(self, trial: Trial) -> dict[object, Trial]:
        """What is known where a trial was made; a new place gets its kin."""
        place = Setting(trial.workload, trial.shape, trial.template)
        if place not in self.places:
            self.places[place] = {}
            self.kin[place.workload].append(place)
            if is_product(trial):
                self.kin[trial.template, *product_of(trial).kin].append(place)
        return self.places[place]

    # --- of a task -------------------------------------------------------------------------------

    def of_task(self, task: Task) -> Mapping[object, ByShape]:
        """The rows of a task's workload at any shape, by implementation."""
        return self.trials[task.workload.hash]

    def made(self, task: Task, key: object) -> ByShape:
        """Latencies of one implementation of it."""
        return self.trials[task.workload.hash][key]

    def at_points(self, task: Task) -> list[Trial]:
        """What is known at the points of a task."""
        return [
            by_shape[point.shape]
            for by_shape in self.of_task(task).values()
            for point in task.points
            if point.shape in by_shape
        ]

    def frame(self, tasks: Iterable[Task], model: str) -> pd.DataFrame:
        """The trials of every task, in the name of its function and bucket, with its weights.

        A workload that several functions share has its rows in each of them.
        """
        return trial_frame(
            replace(
                trial,
                model=model,
                function=task.function,
                bucket=task.bucket,
                layer=task.layer,
                weight=next(p.weight for p in task.points if p.shape == trial.shape),
            )
            for task in tasks
            for trial in self.at_points(task)
        )

    def takes(self, task: Task) -> float:
        """Seconds of a task on its default, at all its points."""
        return sum(point.weight * self.default_s(task, point) for point in task.points)

    def default_s(self, task: Task, point: Point) -> float:
        """Seconds of the default: measured, or else by the model."""
        trial = self.made(task, task.default.key).get(point.shape)
        if trial is not None and trial.latency_median_s is not None:
            return trial.latency_median_s
        return task.expected_s[point.shapes]

    def cost(self, task: Task, by_shape: ByShape) -> float | None:
        """Latency by the default's: the weighted geometric mean over the task's points.

        A row that another default stood beside counts by what this task's takes. None of what
        failed.
        """
        if failed(task, by_shape):
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

    def is_news(self, subject: Subject) -> bool:
        """Whether a clone is to be judged: never was, not at these sizes, or searched since."""
        history = self.histories[subject.clone]
        shapes = {subject.shape(sizes) for sizes, _ in subject.judged}
        if not history or history[-1].shapes != shapes:
            return True
        places = ((task.workload.hash, p.shape) for task in subject.tasks for p in task.points)
        return any(self.searched.get(p, 0) > self.judged[subject.clone] for p in places)


def failed(task: Task, by_shape: ByShape) -> bool:
    """Whether an implementation failed at any of the points."""
    tried = (by_shape.get(point.shape) for point in task.points)
    return any(trial is not None and trial.latency_median_s is None for trial in tried)
