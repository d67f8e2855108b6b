"""What clones are expected to take over sizes: the kernels that each would run, by their models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bucketize.ir import Module
from bucketize.kernel.cost import seconds_over
from bucketize.kernel.select import Select
from bucketize.kernel.template import Implementation
from bucketize.kernel.templates import TEMPLATES, candidates
from bucketize.kernel.typical import Box
from bucketize.kernel.workload import Workload
from bucketize.lower.cost import is_known, selects_of
from bucketize.machine.speed import Floats
from bucketize.machine.target import Target
from bucketize.program.configuration import defaults
from bucketize.program.decide import decide
from bucketize.types import Points, Sizes


@dataclass(frozen=True, eq=False)
class Expectation:
    """What clones of boxes take at points, a row for each box, and what their kernels are."""

    seconds: Floats
    """Of one call at each point by the clone of each box."""
    least: Floats
    """At each point, by the best of all the kernels that any box would choose."""
    kernels: Sequence[frozenset[int]]
    """Of each box, numbered: boxes that share one have the same number."""


def expectation(
    calls: Mapping[Workload, int],
    boxes: Sequence[Box],
    points: Sequence[Sizes],
    *,
    target: Target,
    threads: int,
) -> Expectation:
    """What the clones of boxes are expected to take, at all points, on their defaults.

    The graph is that of the original, also where a box has a single size. What has no model, or
    what a run alone tells the sizes of, counts nothing.

    Args:
        calls: of each workload, as `workloads` has them.
        boxes: of all symbols that are to be cut.
        points: sizes of all symbols of the module.
        target: where the clones run.
        threads: that share each kernel.

    """
    at = Points(points)
    seconds, least = np.zeros((len(boxes), len(points))), np.zeros(len(points))
    kernels: list[set[int]] = [set() for _ in boxes]
    numbers: dict[object, int] = {}
    for workload, times in calls.items():
        selects = selects_of(workload, candidates(workload), target, tuple(boxes))
        each = list({i.key: i for s in selects for i in s.implementations}.values())
        if any(TEMPLATES[i.template].cost is None for i in each):
            continue
        taken = times * seconds_over(workload, each, at, target, threads)
        least += taken.min(axis=1)
        sizes = at.values(workload.size).astype(float)
        distinct = {str(s): s for s in selects}
        columns = {text: _by(s, each, taken, sizes) for text, s in distinct.items()}
        seconds += np.array([columns[str(s)] for s in selects])
        for mine, select in zip(kernels, selects, strict=True):
            keys = [(workload.key, i.key) for i in select.implementations]
            mine.update(numbers.setdefault(key, len(numbers)) for key in keys)
    return Expectation(seconds, least, [frozenset(k) for k in kernels])


def workloads(module: Module, function: str, target: Target, threads: int) -> dict[Workload, int]:
    """The workloads of a function that have kernels, and how often each is called.

    Those whose shapes only a run can tell are left out.
    """
    program = decide(module, defaults, target=target, threads=threads, executor="auto")
    routine = program.decide(function)
    calls = [call.workload for segment in routine.segments() for call in segment.every]
    symbols = dict.fromkeys(routine.fn.symbols(), 1)
    times: dict[Workload, int] = {}
    for workload in calls:
        if is_known(workload, symbols) and candidates(workload):
            times[workload] = times.get(workload, 0) + 1
    return times


def _by(
    select: Select, each: Sequence[Implementation], taken: Floats, sizes: NDArray[np.float64]
) -> Floats:
    """What a select takes at each point, where the columns of `taken` are of implementations."""
    places = np.array([each.index(i) for i in select.implementations])
    chosen = np.searchsorted(np.array(select.thresholds, float), sizes, side="right")
    by: Floats = taken[np.arange(len(taken)), places[chosen]]
    return by
