"""What a kernel takes: seconds of any workload under an implementation, at sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bucketize.errors import KernelError
from bucketize.kernel.emit.expression import operations
from bucketize.kernel.gemm.cost import cold_bytes as usual_bytes
from bucketize.kernel.loops.cost import FITTED, Counts, Steps, seconds_each
from bucketize.kernel.schedule import Implementation, Schedule
from bucketize.kernel.template import Cost
from bucketize.kernel.templates import TEMPLATES
from bucketize.kernel.work import FORK, FORK_S, work
from bucketize.kernel.workload import Workload
from bucketize.machine.speed import Floats
from bucketize.machine.target import Target
from bucketize.types import Dim, Points, Shape, Sizes, product


@dataclass(frozen=True)
class CostModel:
    """What the implementation of a workload takes, over dims."""

    cost: Cost
    schedule: Schedule
    work: Dim

    def seconds(
        self, sizes: Mapping[str, int], target: Target, cold_bytes: int = 0, threads: int = 1
    ) -> float:
        """Seconds at some sizes."""
        return float(self.seconds_at([sizes], target, cold_bytes, threads)[0])

    def seconds_at(
        self, points: Sequence[Sizes], target: Target, cold_bytes: int = 0, threads: int = 1
    ) -> Floats:
        """Seconds at each of many sizes, in order."""
        its = [self.schedule], Points(points), target, cold_bytes, threads
        return _taken(self.cost, self.work, *its)[:, 0]


def _taken(
    cost: Cost,
    done: Dim,
    schedules: Sequence[Schedule],
    points: Points,
    target: Target,
    cold_bytes: int,
    threads: int,
) -> Floats:
    """What schedules take: a row for each point; where there is much to do, threads share it."""
    alone = cost.seconds(schedules, points, target, cold_bytes)
    if threads == 1:
        return alone
    crowded = cost.seconds(schedules, points, target.crowded, cold_bytes) / threads + FORK_S
    is_shared = points.values(done).astype(float) >= FORK
    return np.where(is_shared[:, None], crowded, alone)


def model_of(workload: Workload, implementation: Implementation) -> CostModel:
    """The model of an implementation; `KernelError` where its template has none."""
    cost = _cost(workload, implementation.template)
    return CostModel(cost, implementation.schedule, work(workload).total)


def _cost(workload: Workload, template: str) -> Cost:
    cost = TEMPLATES[template].cost
    if cost is None:
        raise KernelError(f"{template} has no model of what it takes")
    its, slow = cost(workload), _slow(workload)
    return (
        Finished(its, slow, workload.result.shape) if slow and not isinstance(its, Steps) else its
    )


def _slow(workload: Workload) -> Counts:
    """By kind, operations for each element of the result that take more than to store it."""
    each = (operations(b.op.scalar) for b in workload.body.body if b.op.scalar)
    counts = sum(each, start=Counter[str]())
    return {kind: counts[kind] for kind in ("root", "exp", "log") if counts[kind]}


@dataclass(frozen=True)
class Finished:
    """A cost, and what it takes to compute the ops behind the anchor, by the vector.

    That of loop source has counted them.
    """

    cost: Cost
    counts: Counts
    shape: Shape
    """The shape of the result."""

    def seconds(
        self, schedules: Sequence[Schedule], points: Points, target: Target, cold_bytes: int = 0
    ) -> Floats:
        """Seconds of schedules at points."""
        each = seconds_each(FITTED[target.family], target.speed)
        of_vector = sum(n * each[kind] for kind, n in self.counts.items())
        vectors = points.values(product(self.shape)) / target.lanes
        alone = self.cost.seconds(schedules, points, target, cold_bytes)
        return alone + (vectors * of_vector)[:, None]


def seconds(
    workload: Workload,
    implementation: Implementation,
    sizes: Mapping[str, int],
    target: Target,
    cold_bytes: int = 0,
    threads: int = 1,
) -> float:
    """What the implementation of a workload takes on `target`.

    Args:
        workload: what is computed.
        implementation: a template that accepts it, and a schedule that is valid there.
        sizes: by the name of each symbol in the workload's types.
        target: the processor; one that was not measured is taken for another.
        cold_bytes: what passes through the caches between two runs of the kernel: those of the
            weights of all kernels that run in turn.
        threads: each on a core of its own; what is too little to share runs on one.

    Raises:
        KernelError: the template has no model.
        TypeRelError: a dim of the workload is not told by `sizes`.

    """
    return model_of(workload, implementation).seconds(sizes, target, cold_bytes, threads)


def seconds_over(
    workload: Workload,
    implementations: Sequence[Implementation],
    points: Points,
    target: Target,
    threads: int = 1,
) -> Floats:
    """What implementations take at many sizes: a row for each point, a column for each of them.

    Weights are as cold as defaults have it; otherwise as `seconds`.

    Raises:
        KernelError: a template has no model.
        TypeRelError: a dim of the workload has no value at a point.

    """
    taken = np.empty((len(points), len(implementations)))
    cold = usual_bytes(target)
    done = work(workload).total if threads > 1 else 0
    for template in dict.fromkeys(i.template for i in implementations):
        places = [k for k, i in enumerate(implementations) if i.template == template]
        cost = _cost(workload, template)
        schedules = [implementations[k].schedule for k in places]
        taken[:, places] = _taken(cost, done, schedules, points, target, cold, threads)
    return taken
