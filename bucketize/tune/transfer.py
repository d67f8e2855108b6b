"""Transfer: what is known elsewhere of the implementations that a task may have."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from bucketize.kernel.gemm.cost import ProductCost
from bucketize.kernel.schedule import Implementation
from bucketize.kernel.templates import TEMPLATES
from bucketize.log.trial import Trial
from bucketize.machine.speed import Floats
from bucketize.tune.database import Database, Setting
from bucketize.tune.residual import Forest, forest
from bucketize.tune.samples import is_product, product_of
from bucketize.tune.search import Search, Space
from bucketize.tune.surrogate import Neighbour
from bucketize.tune.task import Task

NEAREST = 6  # places that a search hears of

Trials = Mapping[object, Trial]


@dataclass
class Transfer:
    """What is known of a task's workload at other sizes, and of products that differ by rows."""

    database: Database
    learnt: Forest | None = None
    """What is believed, where it is not what comes with the project."""
    _sizes: dict[Task, float] = field(default_factory=dict)
    """Logarithms of the work at a task's points, their means."""
    _heard: dict[Task, tuple[tuple[Setting, int], ...]] = field(default_factory=dict)

    def tell(self, task: Task, search: Search) -> None:
        """Let the search of a task hear of its kin, those nearest by size, if there is news."""
        near = sorted(self._kin(task, search), key=lambda one: abs(one[1]))[:NEAREST]
        heard = tuple((place, len(trials)) for place, _, trials in near)
        if heard != self._heard.get(task, ()):
            self._heard[task] = heard
            search.hear(self._neighbours(task, search.space, near))

    def _kin(self, task: Task, search: Search) -> Iterator[tuple[Setting, float, Trials]]:
        """Where else about the same was measured, how far away, and what the task does not know."""
        own = {(task.workload.hash, point.shape) for point in task.points}
        if task not in self._sizes:
            own_sizes = [math.log(_size(task.flops(p), task.bytes(p))) for p in task.points]
            self._sizes[task] = sum(own_sizes) / len(own_sizes)
        for place in dict.fromkeys(
            p for key in _keys(task) for p in self.database.kin.get(key, ())
        ):
            trials: Trials = self.database.places[place]
            one = next(iter(trials.values()))
            if place[:2] in own:  # a task judged at several sizes may know some of them only
                tried, index = search.tried, search.space.index
                trials = {key: t for key, t in trials.items() if index.get(key) not in tried}
            if trials:
                yield place, math.log(_size(one.flops, one.bytes)) - self._sizes[task], trials

    def _neighbours(
        self, task: Task, space: Space, near: Sequence[tuple[Setting, float, Trials]]
    ) -> list[Neighbour]:
        beliefs = self._believed(task, space, [next(iter(trials.values())) for *_, trials in near])
        neighbours = [
            Neighbour(away, _beyond(space, trials, believed))
            for (_, away, trials), believed in zip(near, beliefs, strict=True)
        ]
        return [neighbour for neighbour in neighbours if neighbour.beyond]

    def _believed(self, task: Task, space: Space, firsts: Sequence[Trial]) -> Floats:
        """Logarithms of latency that are believed where trials were made: a row for each.

        Where no product tells the size, schedules are believed to compare as at the task's own.
        """
        here = np.zeros(len(space.points)) if space.believed is None else np.array(space.believed)
        logs = np.tile(here, (len(firsts), 1))
        for name in {t.template for t in firsts if is_product(t) and space.believed is not None}:
            asked = [k for k, t in enumerate(firsts) if t.template == name and is_product(t)]
            mine = [i for i, one in enumerate(space.points) if one.template == name]
            trees = self.learnt or forest(task.target)
            schedules = [space.points[i].schedule for i in mine]
            products = [product_of(firsts[k]) for k in asked]
            logs[np.ix_(asked, mine)] = trees.expected(products, schedules)
        return logs


def _keys(task: Task) -> Iterator[object]:
    """Under which the places are known that are kin to a task."""
    yield task.workload.hash
    for name in dict.fromkeys(implementation.template for implementation in task.space.points):
        model = TEMPLATES[name].cost
        if model and isinstance(cost := model(task.workload), ProductCost):
            yield name, *cost.product([task.points[0].sizes]).kin


def _size(flops: float | None, moved: float | None) -> float:
    """The size of the work, to compare what is alike."""
    return flops or moved or 1.0


def _beyond(space: Space, trials: Trials, believed: Floats) -> dict[int, float]:
    """Log latencies by the default's that stood beside, less what was believed, by point."""
    logs = {}
    for key, trial in trials.items():
        at, base = space.index.get(key), space.index.get(_key(trial.baseline))
        if at is None or base is None or not trial.latency_median_s or not trial.baseline_s:
            continue
        log = math.log(trial.latency_median_s / trial.baseline_s)
        logs[at] = log - float(believed[at] - believed[base])
    return logs


@cache
def _key(text: str) -> object:
    """The key of the implementation that a row names; None where it names none."""
    try:
        return Implementation.parse(text).key
    except ValueError:
        return None
