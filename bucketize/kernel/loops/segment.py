"""Sums and maxima of segments of an axis, each summed as `reduce` sums one that is alone."""

from __future__ import annotations

import math

from bucketize.ir import Binding
from bucketize.kernel.emit.expression import dtype_text
from bucketize.kernel.loops.cost import Counts, LoopCounts
from bucketize.kernel.loops.loop import (
    GRAIN,
    Source,
    argument_shapes,
    kernel_text,
    literal,
    loop_template,
    takes,
)
from bucketize.kernel.loops.reduce import BLOCK, ROW_GRAIN, STEPS, row_total
from bucketize.kernel.template import Launch, Shapes
from bucketize.kernel.workload import Workload
from bucketize.ops import reduce_max, reduce_sum, segment_max, segment_sum
from bucketize.types import product
from bucketize.types.number import kind_of

WHOLE = {segment_sum: reduce_sum, segment_max: reduce_max}
"""By op, what it is to an axis that is one segment."""


def _is_last(workload: Workload) -> bool:
    b = workload.anchor
    return bool(b.attrs["axis"] == len(b.args[0].type.shape) - 1)


def _source(workload: Workload, lanes: int = 0) -> str:
    """An array is [outer, n, inner] around the axis; `ends` that no array has are cut."""
    step, start = STEPS[WHOLE[workload.anchor.op]]
    nothing, s = literal(start(workload.result.dtype)), Source()
    if _is_last(workload):
        with s.pieces(["_", "segments"]), s.loops(t="m"):
            _ends(s, "(j + t)")
            row_total(s, workload, step, nothing, ("c0 * n + first", "c0 * n + last"), lanes)
            s("y[i + t] = a")
    else:
        s(f"a = scratch({BLOCK}, {dtype_text(workload.result.dtype)})")
        with s.pieces(["_", "segments", "inner"], BLOCK):
            _ends(s, "c1")
            with s.loops(t="m"):
                s(f"a[t] = {nothing}")
            with s.loops(k="first, last"):
                s("q = (c0 * n + k) * inner + j")
                with s.loops(t="m"):
                    s(f"a[t] = {step}(a[t], x0[q + t])")
            with s.loops(t="m"):
                s("y[i + t] = a[t]")
    return kernel_text(workload.anchor.op.name, workload, s, ["n", "segments", "inner"])


def _ends(s: Source, segment: str) -> None:
    """The lines for `first` and `last`, where a segment begins and ends."""
    s("first = 0", f"last = least(x1[{segment}], n)")
    with s.block(f"if {segment} > 0:"):
        s(f"first = greatest(x1[{segment} - 1], 0)")


def _launch(workload: Workload, shapes: Shapes) -> Launch:
    x, ends = argument_shapes(workload, shapes)
    axis, grain = workload.anchor.attrs["axis"], ROW_GRAIN if _is_last(workload) else GRAIN
    return Launch((x[axis], ends[0], product(x[axis + 1 :])), product(shapes[-1]), grain)


def _counts(workload: Workload, at: LoopCounts) -> Counts:
    """Steps of the loops: those of `reduce`, row by row."""
    n, segments, inner = at.dims
    size = math.prod((n, at.extent)) / max(segments, 1)
    kind = "choose" if workload.anchor.op is segment_max else "simple"
    if _is_last(workload):
        return {"row": at.extent, kind: size, "fold": at.extent}
    return {"row": size / min(max(inner, 1), BLOCK), kind: 2 * size}


def _accepts(b: Binding) -> bool:
    return kind_of(b.out.type.dtype) in "iuf"


SEGMENT = loop_template(
    "segment", takes(*WHOLE, where=_accepts), _source, _launch, _counts, ordered=_source
)
