"""What logs tell of any kernel: the seconds that it took under some schedules, at sizes."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from bucketize.kernel.schedule import Schedule
from bucketize.kernel.template import Cost
from bucketize.kernel.templates import candidates
from bucketize.log.trial import KERNEL, Trial
from bucketize.machine.host import host
from bucketize.machine.speed import Floats
from bucketize.tune.samples import CLOCK
from bucketize.tune.task import Point, Task
from bucketize.types import Points

C = TypeVar("C", bound=Cost)

SHORT = 4e-7  # seconds


@dataclass(frozen=True, eq=False)
class Observation(Generic[C]):
    """A kernel at sizes on a quiet machine, and what it took under some schedules of a template."""

    label: str
    workload: str
    cost: C
    points: Points
    """One, the sizes of the kernel."""
    cold_bytes: int
    schedules: list[Schedule]
    seconds: list[float]

    @property
    def logs(self) -> Floats:
        """Logarithms of the seconds."""
        return np.asarray(np.log(self.seconds), float)


def observations(
    tasks: Iterable[Task], trials: Iterable[Trial], kind: type[Any] = object
) -> list[Observation[Any]]:
    """What some trials on one thread tell of tasks, by the templates whose cost is of this kind.

    As everywhere a latency is a ratio to the default's of the same job, times the default's in the
    best of all jobs; what was measured in a larger model, whose weights are colder, stands
    by itself. What is too short for the clock is left out, and what has knobs that are gone: it was
    another kernel.
    """
    by_place: dict[tuple[str, str, str], dict[float | None, dict[str, Trial]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for t in trials:
        if t.level == KERNEL and t.threads == 1 and t.latency_median_s and t.baseline_s:
            by_place[t.workload, t.shape, t.template][t.graph_bytes][t.schedule] = t
    observed = [
        _observation(task, point, template.name, cost, mine)
        for task in tasks
        for template in candidates(task.workload, host())
        if template.cost and isinstance(cost := template.cost(task.workload), kind)
        for knobs in [template.knobs(task.workload, host()).keys()]
        for point in task.points
        for same in by_place.get((task.workload.hash, point.shape, template.name), {}).values()
        if (mine := _known(same, knobs))
    ]
    return [one for one in observed if min(one.seconds) > SHORT]


def _known(trials: Mapping[str, Trial], knobs: Iterable[str]) -> list[Trial]:
    """Seconds by schedules that have no other knobs."""
    return [t for schedule, t in trials.items() if json.loads(schedule).keys() <= set(knobs)]


def _observation(
    task: Task, point: Point, name: str, cost: C, trials: Sequence[Trial]
) -> Observation[C]:
    quiet = min(t.baseline_s or math.inf for t in trials)
    clock, cold = CLOCK.get(trials[0].host_cpu, 0.0), trials[0].graph_bytes
    ratios = [(t.latency_median_s or math.inf) / (t.baseline_s or math.inf) for t in trials]
    return Observation(
        f"{name} {task.op} {point.shape}",
        task.workload.hash,
        cost,
        Points([point.sizes]),
        task.weight_bytes if cold is None else int(cold),
        [json.loads(t.schedule) for t in trials],
        [quiet * ratio - clock for ratio in ratios],
    )
