"""The choice among measured schedules: which one a bucket should run."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bucketize.tune.cells import Shape, parse_shapes
from bucketize.tune.log import Schedule, Trial
from bucketize.types import ANY, Dim, TensorType, bounds


@dataclass(frozen=True)
class Choice:
    """The best schedule of some trials, and what it costs relative to the default."""

    template: str  # empty where the log does not tell
    schedule: Schedule
    relative: float  # weighted geometric mean over the shapes of latency / baseline
    trials: tuple[Trial, ...]  # the measurements it rests on, one per shape


def best_choice(trials: Iterable[Trial]) -> Choice | None:
    """The schedule with the least geometric mean latency over the shapes that were measured.

    The geometric mean gives every shape its weight whatever its absolute time. Latencies count
    relative to the default's in the same run, so that runs of a busy and of a quiet machine
    compare. Only schedules measured at as many shapes as any are compared; one that failed at a
    shape is out; of repeated measurements the last counts.
    """
    measured: dict[tuple[str, str], dict[str, Trial]] = defaultdict(dict)
    for trial in trials:
        measured[trial.template, trial.schedule_hash][trial.shape] = trial
    whole = [
        tuple(by_shape.values())
        for by_shape in measured.values()
        if all(trial.latency_median_s is not None for trial in by_shape.values())
    ]
    most = max(map(len, whole), default=0)
    choices = [
        Choice(group[0].template, json.loads(group[0].schedule), geometric_mean(group), group)
        for group in whole
        if len(group) == most
    ]
    return min(choices, key=lambda choice: choice.relative, default=None)


def geometric_mean(trials: Sequence[Trial]) -> float:
    """The weighted geometric mean of latency relative to the baseline (1 s where there is none)."""
    total = sum(trial.weight for trial in trials)
    logs = (
        trial.weight * math.log((trial.latency_median_s or math.inf) / (trial.baseline_s or 1.0))
        for trial in trials
    )
    return math.exp(sum(logs) / total)


class Choices:
    """The trials of a log, asked for the best schedule of a workload in a bucket."""

    def __init__(self, trials: Iterable[Trial], threads: int) -> None:
        self._by_workload: dict[str, list[Trial]] = defaultdict(list)
        for trial in trials:
            if trial.threads == threads:
                self._by_workload[trial.workload].append(trial)

    def best(self, workload: str, types: Sequence[TensorType]) -> Choice | None:
        """The best schedule for parameters of these types; None when no measured shape fits them.

        Args:
            workload: the hash of the workload.
            types: of its parameters, with the bounds of the bucket; trials outside do not count.

        """
        trials = self._by_workload.get(workload, [])
        return best_choice(trial for trial in trials if admits(types, parse_shapes(trial.shape)))


def admits(types: Sequence[TensorType], shapes: Sequence[Shape]) -> bool:
    """Whether arrays of these shapes may be given where these types are asked for."""
    sizes: dict[Dim, int] = {}
    return len(types) == len(shapes) and all(
        len(type_.shape) == len(shape)
        and all(_fits(dim, size, sizes) for dim, size in zip(type_.shape, shape, strict=True))
        for type_, shape in zip(types, shapes, strict=True)
    )


def _fits(dim: Dim, size: int, sizes: dict[Dim, int]) -> bool:
    lo, hi = bounds(dim)
    inside = lo <= size and (hi is None or size <= hi)
    return inside and (dim == ANY or sizes.setdefault(dim, size) == size)
