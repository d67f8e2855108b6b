"""What trials say of kernels beside their models, and which ones were tried."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from bucketize.call import bind_shapes
from bucketize.errors import ShapeError, TypeRelError
from bucketize.kernel.cost import seconds
from bucketize.kernel.schedule import Implementation
from bucketize.kernel.select import Select
from bucketize.kernel.templates import TEMPLATES, candidates
from bucketize.kernel.workload import Workload
from bucketize.log.cell import parse_shapes
from bucketize.log.trial import KERNEL, Trial
from bucketize.machine.speed import Floats
from bucketize.machine.target import Target
from bucketize.program.decide import completed
from bucketize.tune.samples import kernel_seconds, without_clock
from bucketize.tune.surrogate import DOUBT, NEIGHBOUR, NOISE, SPREAD
from bucketize.types import evaluate

LOCAL = NEIGHBOUR * SPREAD
"""How far log latencies are from models at one size alone, as the tuner has it."""

Beside: TypeAlias = tuple[str, float | None, str]
"""Where trials compare: their shape, how cold weights were, and the default beside them."""


@dataclass(frozen=True)
class Place:
    """What was measured of implementations at one size, beside one default."""

    size: float
    """The logarithm of the workload's."""
    default: float
    """The logarithm of the default's seconds by those of its model."""
    key: Hashable
    """The default's."""
    tried: Mapping[Hashable, tuple[Implementation, float]]
    """By its key an implementation, and the logarithm of its latency by the default's, less that of
    the models."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """The trials of a log that were made on a target, with so many threads."""

    target: Target
    threads: int
    trials: dict[str, list[Trial]] = field(default_factory=lambda: defaultdict(list))
    """By the hash of the workload."""
    _places: dict[Workload, list[Place]] = field(default_factory=dict)

    @classmethod
    def of(cls, trials: Iterable[Trial], target: Target, threads: int) -> Evidence:
        """What those of a log say of kernels by themselves."""
        its = cls(target, threads)
        for t in trials:
            mine = t.host_cpu == target.name and t.threads == threads and t.level == KERNEL
            if mine and t.latency_median_s and t.baseline_s and t.template in TEMPLATES:
                its.trials[t.workload].append(t)
        return its

    def implementations(self, workload: Workload) -> list[Implementation]:
        """The ones that were measured."""
        return list(self._tried(workload).values())

    def corrected(
        self, workload: Workload, each: Sequence[Implementation], sizes: Floats, taken: Floats
    ) -> Floats:
        """What implementations take, as their models have it times what trials say of these.

        Trials tell how far the default is from its model, in the best of all jobs, and how others
        compare with it in the same job. The least of many that are noisy is less than the truth,
        so what they tell beyond the models counts as far as it is no noise; an implementation that
        was not measured is the mean of those that were. Between sizes that were measured the
        factor is interpolated, on a logarithmic scale.

        Args:
            workload: of the kernels.
            each: a column of `taken` each.
            sizes: the workload's `size` for each row.
            taken: seconds by the models.

        """
        places = self._of(workload)
        if not places:
            return taken
        points = {i.key: i for i in (*each, *self.implementations(workload))}
        logs = np.array(
            [[p.tried[key][1] if key in p.tried else np.nan for key in points] for p in places]
        )
        itself = np.array([[key == p.key for key in points] for p in places])  # no trial: exactly 0
        logs = np.where(itself, 0, _denoised(np.where(itself, np.nan, logs)))[:, : len(each)]
        logs = logs + np.array([p.default for p in places])[:, None]
        at = np.log(np.maximum(sizes, 1))
        return np.asarray(taken * np.exp(_between([p.size for p in places], logs, at)))

    def _tried(self, workload: Workload) -> dict[Hashable, Implementation]:
        return {key: one for p in self._of(workload) for key, (one, _) in p.tried.items()}

    def _of(self, workload: Workload) -> list[Place]:
        if workload not in self._places:
            beside: dict[Beside, list[Trial]] = defaultdict(list)
            for t in self.trials.get(workload.hash, ()):
                beside[t.shape, t.graph_bytes, t.baseline].append(t)
            places = [self._place(workload, trials) for trials in beside.values()]
            self._places[workload] = [place for place in places if place]
        return self._places[workload]

    def _place(self, workload: Workload, trials: Sequence[Trial]) -> Place | None:
        """What trials beside one default tell; None where it is not legal, or the sizes are not."""
        first = trials[0]
        default = self._legal(workload, _named(first.baseline))
        try:
            sizes = bind_shapes(workload.body.params, parse_shapes(first.shape))
        except (ShapeError, TypeRelError):  # of another model's bounds
            return None
        if default is None:
            return None
        how = sizes, self.target, int(first.graph_bytes or 0), self.threads
        base = math.log(seconds(workload, default, *how))
        tried: dict[Hashable, tuple[Implementation, float]] = {}
        for t in {(t.template, t.schedule): t for t in trials}.values():  # the latest
            one = self._legal(workload, Implementation(t.template, json.loads(t.schedule)))
            if one is not None:
                beyond = _ratio(t) - (math.log(seconds(workload, one, *how)) - base)
                tried[one.key] = one, beyond
        size = math.log(max(evaluate(workload.size, sizes), 1))
        quiet = math.log(min(map(_baseline, trials)))
        return Place(size, quiet - base, default.key, {**tried, default.key: (default, 0.0)})

    def _legal(self, workload: Workload, one: Implementation | None) -> Implementation | None:
        """An implementation with all its knobs; None where it is not legal, or has no model."""
        if one is None or one.template not in TEMPLATES or TEMPLATES[one.template].cost is None:
            return None
        able = candidates(workload, self.target)
        legal = completed(Select((one,)), workload, able, self.target)
        return None if legal is None else legal.implementations[0]


def _named(text: str) -> Implementation | None:
    """The implementation that a row names, if it does."""
    try:
        return Implementation.parse(text)
    except ValueError:
        return None


def _baseline(trial: Trial) -> float:
    return without_clock(trial.baseline_s or math.nan, trial.host_cpu)


def _ratio(trial: Trial) -> float:
    """The logarithm of its latency by the default's of the same rounds."""
    return math.log(kernel_seconds(trial) / _baseline(trial))


def _denoised(logs: Floats) -> Floats:
    """What is expected of implementations where logarithms were measured: rows are places.

    All of a place share how far the default's model is wrong there: their mean, which is kept. From
    it an implementation is apart everywhere, and at one place from what it is elsewhere. Both are
    shrunk by what noise makes of them, and how much that is follows from how far apart all are
    (Efron and Morris, 1973); NaN is what was not measured.
    """
    if not np.isfinite(logs).any():
        return np.zeros(logs.shape)
    shared = _means(logs, axis=1)[:, None]
    logs = logs - shared
    count = np.isfinite(logs).sum(axis=0)
    own, tried, count = _means(logs, axis=0), count > 0, count[count > 0]
    free = (count - 1).sum() - (np.isfinite(logs).any(axis=1).sum() - 1)  # of means by row, too
    local = _variance(LOCAL, np.nansum((logs - own) ** 2), NOISE**2, max(free, 0))
    error = (local + NOISE**2) / count
    apart = own[tried] - own[tried].mean()
    between = _variance(SPREAD, (apart**2).sum(), error.mean(), len(apart) - 1)
    own[tried] -= error / (between + error) * apart
    return shared + own + local / (local + NOISE**2) * np.nan_to_num(logs - own)


def _means(logs: Floats, axis: int) -> Floats:
    """Means of what was measured; where nothing was, the mean of the others."""
    count = np.isfinite(logs).sum(axis=axis)
    means = np.nansum(logs, axis=axis) / np.maximum(count, 1)
    return np.asarray(np.where(count > 0, means, means[count > 0].mean()))


def _variance(assumed: float, squares: float, noise: float, free: int) -> float:
    """The variance behind noisy numbers: squares beyond what noise alone may make of them.

    If they are many they outweigh what is assumed.
    """
    chance = noise * (free + 2 * math.sqrt(2 * free))  # two deviations
    return (DOUBT * assumed**2 + max(squares - chance, 0.0)) / (DOUBT + free)


def _between(places: Sequence[float], logs: Floats, at: Floats) -> Floats:
    """Columns between places, and level beyond them; of several at one place their mean."""
    distinct, number = np.unique(places, return_inverse=True)
    means = np.array([logs[number == k].mean(axis=0) for k in range(len(distinct))])
    return np.stack([np.interp(at, distinct, column) for column in means.T], axis=1)
