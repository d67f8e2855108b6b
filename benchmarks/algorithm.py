"""Which algorithm defaults choose for convolutions, held against the grid "filters"."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from typing import TypeAlias

from benchmarks.excess import Excess
from benchmarks.grids import LOGS, filters, narrow
from bucketize.kernel.schedule import Implementation
from bucketize.kernel.templates import candidates
from bucketize.log.log import rows
from bucketize.lower.cost import default_of
from bucketize.machine.target import Target
from bucketize.tune.task import tasks_of
from bucketize.types import evaluate

Key: TypeAlias = tuple[str, object]
Taken: TypeAlias = Mapping[str, Mapping[Key, float]]
"""By the shapes of a kernel: seconds of its implementations."""


@cache
def taken_by(processor: str) -> Taken:
    """What a recorded grid says that implementations took, all templates beside each other."""
    found: dict[str, dict[Key, float]] = defaultdict(dict)
    for trial in rows(LOGS / f"{processor}-filters.csv"):
        if trial.latency_median_s:
            made = Implementation(trial.template, json.loads(trial.schedule))
            found[trial.shape][made.key] = trial.latency_median_s
    return found


@cache
def defaults(target: Target, *, wide: bool) -> Mapping[str, Implementation]:
    """Defaults of the grid's kernels, by shapes: of just these sizes, or of all within bounds."""
    found = {}
    for task in tasks_of(*filters(), fixed=True):
        for point in task.points if task.op == "conv2d" else ():
            workload = task.workload if wide else narrow(task.workload, point)
            select = default_of(workload, candidates(workload), target)
            found[point.shape] = select.at(evaluate(workload.size, point.sizes) if wide else 1)
    return found


def seconds_of(made: Implementation, took: Mapping[Key, float]) -> float:
    """What it took; where just these knobs were not recorded, the best of its template."""
    alike = [s for (template, _), s in took.items() if template == made.template]
    return took.get(made.key) or min(alike)


def chosen(target: Target) -> Excess:
    """How much slower the default of just its sizes is than the best recorded."""
    took = taken_by(target.name)
    mine = defaults(target, wide=False)
    return Excess(tuple(seconds_of(m, took[s]) / min(took[s].values()) for s, m in mine.items()))


def chosen_by_wide(target: Target) -> Excess:
    """How much slower it is than the default of all sizes."""
    took = taken_by(target.name)
    mine, usual = (defaults(target, wide=wide) for wide in (False, True))
    return Excess(tuple(seconds_of(mine[s], took[s]) / seconds_of(usual[s], took[s]) for s in mine))
