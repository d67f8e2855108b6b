"""Where elements are not zero, in their order: a row of indices for each."""

from __future__ import annotations

import math
from contextlib import ExitStack

from bucketize.ir import Binding
from bucketize.kernel.loops.cost import Counts, LoopCounts
from bucketize.kernel.loops.loop import Source, argument_shapes, kernel_text, loop_template, takes
from bucketize.kernel.template import Launch, Shapes
from bucketize.kernel.workload import Workload
from bucketize.ops import nonzero_rows


def _source(workload: Workload) -> str:
    s, rank = Source(), len(workload.anchor.args[0].type.shape)
    s("if begin >= end:", "    return", "total = 0", "at = 0")
    with ExitStack() as loops:
        for axis in range(rank):
            loops.enter_context(s.loops(**{f"i{axis}": f"n{axis}"}))
        with s.block("if x0[at] != 0 and total < count:"):
            s(*(f"y[total * {rank} + {axis}] = i{axis}" for axis in range(rank)), "total += 1")
        s("at += 1")
    with s.loops(t=f"total * {rank}, count * {rank}"):
        s("y[t] = 0")
    return kernel_text("nonzero", workload, s, [*(f"n{axis}" for axis in range(rank)), "count"])


def _launch(workload: Workload, shapes: Shapes) -> Launch:
    (x,) = argument_shapes(workload, shapes)
    return Launch((*x, workload.anchor.attrs["count"]), 1)


def _counts(_: Workload, at: LoopCounts) -> Counts:
    return {"lone": 2 * math.prod(at.dims[:-1])}


def _is_plain(b: Binding) -> bool:
    """Whether elements are of a kind that loops compare as they are."""
    return b.args[0].type.dtype.kind in "biuf" and b.args[0].type.dtype != "float16"


NONZERO = loop_template("nonzero", takes(nonzero_rows, where=_is_plain), _source, _launch, _counts)
