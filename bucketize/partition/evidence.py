"""What trials say of kernels beside their models, and which ones were tried."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from bucketize.call import bind_shapes
from bucketize.errors import ShapeError, TypeRelError
from bucketize.kernel.cost import seconds
from bucketize.kernel.select import Select
from bucketize.kernel.template import Implementation
from bucketize.kernel.templates import TEMPLATES, candidates
from bucketize.kernel.workload import Workload
from bucketize.log.cell import parse_shapes
from bucketize.log.trial import KERNEL, Trial
from bucketize.machine.speed import Floats
from bucketize.machine.target import Target
from bucketize.program.decide import completed
from bucketize.tune.samples import kernel_seconds
from bucketize.types import evaluate

Point: TypeAlias = tuple[float, float]
"""The logarithms of a workload's size, and of measured seconds by those of the model."""
Tried: TypeAlias = dict[Hashable, tuple[Implementation, list[Point]]]
"""By its key an implementation, and where it was measured."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """The trials of a log that were made on a target, with so many threads."""

    target: Target
    threads: int
    trials: dict[str, list[Trial]] = field(default_factory=lambda: defaultdict(list))
    """By the hash of the workload."""
    _points: dict[Workload, Tried] = field(default_factory=dict)

    @classmethod
    def of(cls, trials: Iterable[Trial], target: Target, threads: int) -> Evidence:
        """What those of a log say of kernels by themselves."""
        its = cls(target, threads)
        for t in trials:
            mine = t.host_cpu == target.name and t.threads == threads and t.level == KERNEL
            if mine and t.latency_median_s and t.template in TEMPLATES:
                its.trials[t.workload].append(t)
        return its

    def implementations(self, workload: Workload) -> list[Implementation]:
        """The ones that were measured."""
        return [implementation for implementation, _ in self._of(workload).values()]

    def corrected(
        self, workload: Workload, each: Sequence[Implementation], sizes: Floats, taken: Floats
    ) -> Floats:
        """What implementations take, as their models have it times what trials say of these.

        Between sizes that were measured the factor is interpolated, on a logarithmic scale. Of an
        implementation that was not it is the mean of those that were.

        Args:
            workload: of the kernels.
            each: a column of `taken` each.
            sizes: the workload's `size` for each row.
            taken: seconds by the models.

        """
        points = self._of(workload)
        if not points:
            return taken
        at = np.log(np.maximum(sizes, 1))
        curves: dict[Hashable, Floats] = {
            key: _curve(mine, at) for key, (_, mine) in points.items()
        }
        mean: Floats = np.mean(list(curves.values()), axis=0)
        logs = np.stack([curves.get(i.key, mean) for i in each], axis=1)
        return np.asarray(taken * np.exp(logs))

    def _of(self, workload: Workload) -> Tried:
        if workload not in self._points:
            trials = self.trials.get(workload.hash, ())
            latest = {(t.template, t.schedule, t.shape): t for t in trials}
            tried: Tried = {}
            for implementation, point in self._measured(workload, latest.values()):
                tried.setdefault(implementation.key, (implementation, []))[1].append(point)
            self._points[workload] = tried
        return self._points[workload]

    def _measured(
        self, workload: Workload, trials: Iterable[Trial]
    ) -> Iterator[tuple[Implementation, Point]]:
        """What was measured of implementations that are legal here, at sizes that are."""
        able = candidates(workload, self.target)
        for t in trials:
            one = Select((Implementation(t.template, json.loads(t.schedule)),))
            legal = completed(one, workload, able, self.target)
            if legal is None or TEMPLATES[t.template].cost is None:
                continue
            (implementation,) = legal.implementations
            with suppress(ShapeError, TypeRelError):  # of another model's bounds
                sizes = bind_shapes(workload.body.params, parse_shapes(t.shape))
                cold = int(t.graph_bytes or 0)
                how = sizes, self.target, cold, self.threads
                ratio = kernel_seconds(t) / seconds(workload, implementation, *how)
                size = max(evaluate(workload.size, sizes), 1)
                yield implementation, (math.log(size), math.log(ratio))


def _curve(points: Sequence[Point], at: Floats) -> Floats:
    """Between points, and level beyond them; of several at one place their mean."""
    places, number = np.unique([x for x, _ in points], return_inverse=True)
    means = np.bincount(number, [y for _, y in points]) / np.bincount(number)
    return np.interp(at, places, means)
