"""The template of rows: softmax, norms and reductions of the last axis, and what is around them.

One row after the other, each in passes over what then lies in the first cache: see `loops`.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

from bucketize.kernel.emit import expression
from bucketize.kernel.loops.cost import Counts, LoopCounts, Steps
from bucketize.kernel.rows.loops import source
from bucketize.kernel.rows.pattern import FOLDS, SQUARES, SUM, rows_of
from bucketize.kernel.schedule import Schedule
from bucketize.kernel.template import Launch, Shapes, Template
from bucketize.kernel.workload import Workload, accepted
from bucketize.machine.target import Target
from bucketize.types import Dim, product

GRAIN = 16  # rows of one number each: two threads should not write to one cache line


def _launch(workload: Workload, _: Schedule, shapes: Shapes, _target: Target) -> Launch:
    """Over the rows of what is brought together."""
    *arguments, out = shapes
    row = workload.anchor.args[0].type.shape[-1]
    dims: list[Dim] = [_extent(workload, shapes)]
    for shape, param in zip(arguments, workload.body.params, strict=True):
        last = shape[-1] if shape else 1
        dims += [last * param.type.dtype.itemsize, product(shape[:-1])]
    wide = workload.result.shape[-1] == row
    return Launch(tuple(dims), product(out[:-1]), 1 if wide else GRAIN)


def _extent(workload: Workload, shapes: Shapes) -> Dim:
    """The elements of a row: those of the argument that has them, or of the result."""
    row = workload.anchor.args[0].type.shape[-1]
    params = (*workload.body.params, *workload.body.results)
    pairs = zip(params, shapes, strict=True)
    return next(s[-1] for p, s in pairs if p.type.shape and p.type.shape[-1] == row)


def _counts(workload: Workload, _: Schedule, at: LoopCounts) -> Counts:
    """What the passes do."""
    rows, size = accepted(rows_of(workload)), at.extent * at.dims[0]
    counts: Counter[str] = Counter({"row": at.extent if rows.is_wide(rows.result) else 0})
    for computed in rows.computed():
        for ref in computed:
            step = rows.step(ref)
            assert step is not None
            for kind, times in expression.operations(step.how).items():
                counts[kind] += times * size
    for step in rows.steps:
        if step.how in FOLDS:
            counts["fold"] += at.extent
            counts["simple" if step.how in (SUM, SQUARES) else "choose"] += size
    return counts


TEMPLATE = Template(
    name="rows",
    accepts=lambda workload: rows_of(workload) is not None,
    source=lambda workload, _, target: source(
        accepted(rows_of(workload, in_order=target.in_order)), target
    ),
    launch=_launch,
    cost=partial(Steps, _launch, _counts),
)
