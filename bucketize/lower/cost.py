"""The price of a function's kernels at the sizes that count: measured, or as the model has it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from bucketize.errors import TypeRelError
from bucketize.ir import Const, Function, all_bindings
from bucketize.kernel.cost import CostModel, model_of
from bucketize.kernel.gemm.cost import cold_bytes
from bucketize.kernel.template import Implementation, Template
from bucketize.kernel.templates import TEMPLATES, candidates
from bucketize.kernel.typical import points
from bucketize.kernel.workload import Workload
from bucketize.machine.target import Target
from bucketize.types import ANY, Dim, Sizes, evaluate, symbols

LESS = 0.9  # of the time: models of different templates are off by as much

Weighted: TypeAlias = Sequence[tuple[Sizes, float]]
Seconds: TypeAlias = Callable[[Workload, Sizes], float]
"""What a workload takes at sizes, known or expected."""


@dataclass(frozen=True)
class Predicted:
    """What the models expect of workloads on their defaults."""

    target: Target
    cold_bytes: int
    threads: int
    _models: dict[str, CostModel | None] = field(default_factory=dict)

    @classmethod
    def of(cls, fn: Function, target: Target, threads: int) -> Predicted:
        """What is expected of a function's workloads, whose weights all pass through the caches."""
        atoms = (a for b in all_bindings(fn) for a in b.args if isinstance(a, Const))
        sizes = {id(a.value): a.value.nbytes for a in atoms}
        return cls(target, sum(sizes.values()), threads)

    def __call__(self, workload: Workload, sizes: Sizes) -> float:
        """Seconds; none where the sizes do not tell its shapes, or its template has no model."""
        model = self._model(workload)
        if model is None or not is_known(workload, sizes):
            return 0.0
        return model.seconds(sizes, self.target, self.cold_bytes, self.threads)

    def _model(self, workload: Workload) -> CostModel | None:
        if workload.key not in self._models:
            default = default_of(workload, candidates(workload), self.target)
            able = TEMPLATES[default.template].cost is not None
            self._models[workload.key] = model_of(workload, default) if able else None
        return self._models[workload.key]


def default_of(workload: Workload, able: Sequence[Template], target: Target) -> Implementation:
    """What runs where nothing is known: the first of the templates that take it, on its default.

    Or another one, if it is expected to take less within the bounds of the symbols.
    """
    first, *others = able
    usual = Implementation(first.name, first.default(workload, target))
    at = typical(workload) if others and first.cost is not None else []
    if not at:
        return usual
    chosen = usual
    try:
        least = _mean_log(workload, first, usual, at, target) + math.log(LESS)
        for template in (t for t in others if t.cost is not None):
            implementation = Implementation(template.name, template.default(workload, target))
            log = _mean_log(workload, template, implementation, at, target)
            if log < least:
                chosen, least = implementation, log
    except TypeRelError:  # shapes have a value there, and something that they lead to has none
        return usual
    return chosen


def _mean_log(
    workload: Workload,
    template: Template,
    implementation: Implementation,
    points: Sequence[Sizes],
    target: Target,
) -> float:
    """The mean logarithm of seconds, with weights as cold as where many kernels run in turn."""
    assert template.cost is not None
    cost, schedules, cold = template.cost(workload), [implementation.schedule], cold_bytes(target)
    taken = [float(cost.seconds(schedules, sizes, target, cold)[0]) for sizes in points]
    return sum(map(math.log, taken)) / len(points)


def typical(workload: Workload) -> list[Sizes]:
    """All symbols at their ends and in the middle, where they tell shapes and none is empty.

    No model need be legal there: a table of positions ends where the bounds of a length do not.
    """
    dims = _dims(workload)
    if ANY in dims:
        return []
    sizes = [point.sizes for point in points(workload)]
    distinct = sizes if sizes[0] else sizes[:1]
    return [s for s in distinct if all(_has_elements(d, s) for d in dims)]


def _has_elements(dim: Dim, sizes: Sizes) -> bool:
    try:
        return evaluate(dim, sizes) > 0
    except TypeRelError:
        return False


def is_known(workload: Workload, sizes: Sizes) -> bool:
    """Whether the sizes tell the shapes of a workload."""
    dims = _dims(workload)
    return ANY not in dims and all(s.name in sizes for d in dims for s in symbols(d))


def _dims(workload: Workload) -> list[Dim]:
    """The extents of what a workload reads and of what it makes."""
    return [d for a in (*workload.body.params, *workload.body.results) for d in a.type.shape]


class Prices:
    """What kernels take by what the whole of a usual function takes, each size by its weight."""

    def __init__(self, usual: Iterable[Workload], sizes: Weighted, seconds: Seconds) -> None:
        """`usual` are the kernels whose price together is 1."""
        self._seconds = seconds
        self._known: dict[str, list[float]] = {}
        self._sizes = [size for size, _ in sizes]
        self._shares = [1.0] * len(sizes)
        each = zip(*map(self._each, usual), strict=True)
        whole = [sum(column) for column in each] or [1.0] * len(sizes)
        total = sum(weight for _, weight in sizes)
        self._shares = [w / total / (s or 1.0) for (_, w), s in zip(sizes, whole, strict=True)]

    def _each(self, workload: Workload) -> list[float]:
        """Seconds at each of the sizes; what has no kernel counts nothing."""
        if workload.key not in self._known:
            able = bool(candidates(workload))
            self._known[workload.key] = [
                self._seconds(workload, size) if able else 0.0 for size in self._sizes
            ]
        return self._known[workload.key]

    def of(self, workload: Workload) -> float:
        """What a kernel takes."""
        return sum(a * b for a, b in zip(self._shares, self._each(workload), strict=True))
