"""Transfer: what is known elsewhere of the implementations that a task may have."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

from bucketize.kernel.gemm.cost import Extents
from bucketize.kernel.template import TEMPLATES, Implementation
from bucketize.tune.forest import Forest, forest
from bucketize.tune.knowledge import Knowledge, Place
from bucketize.tune.record import is_product, product_of
from bucketize.tune.search import Search, Space
from bucketize.tune.surrogate import Neighbour
from bucketize.tune.task import Task
from bucketize.tune.trial import Trial

NEAREST = 6  # places that a search hears of

Trials = Mapping[object, Trial]
Floats = NDArray[np.float64]


@dataclass
class Transfer:
    """What is known of a task's workload at other sizes, and of products that differ by rows."""

    knowledge: Knowledge
    learnt: Forest | None = None
    """What is believed, where it is not what comes with the project."""
    _heard: dict[Task, tuple[tuple[Place, int], ...]] = field(default_factory=dict)
    _believed: dict[tuple[Task, Place], Floats] = field(default_factory=dict)

    def tell(self, task: Task, search: Search) -> None:
        """Let the search of a task hear of its kin, those nearest by size, if there is news."""
        near = sorted(self._kin(task, search), key=lambda one: abs(one[1]))[:NEAREST]
        told = tuple((place, len(trials)) for place, _, trials in near)
        if told != self._heard.get(task, ()):
            self._heard[task] = told
            search.hear(self._neighbours(task, search.space, near))

    def _kin(self, task: Task, search: Search) -> Iterator[tuple[Place, float, Trials]]:
        """Where else about the same was measured, how far away, and what the task does not know."""
        own = {(task.workload.hash, point.shape) for point in task.points}
        here = np.mean([math.log(_size(task.flops(p), task.bytes(p))) for p in task.points])
        for place in dict.fromkeys(
            p for key in _keys(task) for p in self.knowledge.kin.get(key, ())
        ):
            trials: Trials = self.knowledge.places[place]
            one = next(iter(trials.values()))
            if place[:2] in own:  # a task judged at several sizes may know some of them only
                tried, index = search.tried, search.space.index
                trials = {key: t for key, t in trials.items() if index.get(key) not in tried}
            if trials:
                yield place, math.log(_size(one.flops, one.bytes)) - float(here), trials

    def _neighbours(
        self, task: Task, space: Space, near: Sequence[tuple[Place, float, Trials]]
    ) -> list[Neighbour]:
        self._believe(task, space, [place for place, *_ in near])
        told = [
            Neighbour(away, _beyond(space, trials, self._believed[task, place]))
            for place, away, trials in near
        ]
        return [neighbour for neighbour in told if neighbour.beyond]

    def _believe(self, task: Task, space: Space, places: Sequence[Place]) -> None:
        """Ask, of all places at once, for logarithms of latency: a number for each point.

        Where no product tells the size, schedules are believed to compare as at the task's own.
        """
        here = np.zeros(len(space.points)) if space.believed is None else np.array(space.believed)
        for name in {place.template for place in places}:
            mine = [i for i, made in enumerate(space.points) if made.template == name]
            new = [p for p in places if p.template == name and (task, p) not in self._believed]
            firsts = [next(iter(self.knowledge.places[place].values())) for place in new]
            logs = np.tile(here, (len(new), 1))
            if space.believed is not None and new and all(map(is_product, firsts)):
                schedules = [space.points[i].schedule for i in mine]
                known = self.learnt or forest(task.target)
                logs[:, mine] = known.expected([product_of(t) for t in firsts], schedules)
            self._believed |= {(task, place): row for place, row in zip(new, logs, strict=True)}


def _keys(task: Task) -> Iterator[object]:
    """Under which the places are known that are kin to a task."""
    yield task.workload.hash
    for name in {made.template for made in task.space.points}:
        model = TEMPLATES[name].cost
        if model and isinstance(cost := model(task.workload), Extents):
            yield name, *cost.product([task.points[0].sizes]).kin


def _size(flops: float | None, moved: float | None) -> float:
    """Of the work, to compare what is alike."""
    return flops or moved or 1.0


def _beyond(space: Space, trials: Trials, believed: Floats) -> dict[int, float]:
    """Log latencies by the default's that stood beside, less what was believed, by point."""
    found = {}
    for key, trial in trials.items():
        at, base = space.index.get(key), space.index.get(_key(trial.baseline))
        if at is None or base is None or not trial.latency_median_s or not trial.baseline_s:
            continue
        log = math.log(trial.latency_median_s / trial.baseline_s)
        found[at] = log - float(believed[at] - believed[base])
    return found


@cache
def _key(text: str) -> object:
    """Of the implementation that a row names; None of what names none."""
    try:
        return Implementation.parse(text).key
    except ValueError:
        return None
