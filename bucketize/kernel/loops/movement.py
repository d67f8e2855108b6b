"""Ops that move elements along strides: their kernels know sizes of elements, not dtypes.

One loop nest serves them all. `launch` collapses its axes as far as the sizes at hand allow and
puts axes of extent 1 in front, so that a kernel depends on the rank alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from bucketize.kernel.loops.cost import Counts, LoopCounts
from bucketize.kernel.loops.elementwise import OPEN, RUNS, STANDS, axes_of, run_time_strides
from bucketize.kernel.loops.loop import (
    GRAIN,
    Source,
    argument_shapes,
    joined,
    kernel_text,
    loop_template,
    strides_of,
    takes,
)
from bucketize.kernel.template import Launch, Shapes, pitch_of
from bucketize.kernel.workload import Workload
from bucketize.ops import broadcast_to, concat, strided_slice, tile
from bucketize.ops.rules import slice_ends
from bucketize.types import Dim, product


def nest_text(workload: Workload, rank: int, inner: str) -> str:
    """A copy of x0, read at `base` along strides; on the last axis it runs, stands, or neither."""
    s = Source()
    rank = max(rank, 1)
    step = {RUNS: "1", STANDS: "0", OPEN: f"s{rank - 1}"}[inner]
    along = ["base", *(f"s{a}" for a in range(rank - 1)), step]
    with s.pieces([f"e{a}" for a in range(rank)], places={"p": along}):
        if inner == RUNS:
            s("copied(y, i, x0, p, m)")
        else:
            with s.loops(t="m"):
                at = "p" if inner == STANDS else f"p + t * {step}"
                s(f"y[i + t] = x0[{at}]")
    names = [*(f"e{a}" for a in range(rank)), "base", *(f"s{a}" for a in range(rank))]
    return kernel_text("copy", workload, s, names, moved=(0,))


def nest_launch(extents: Sequence[Dim], strides: Sequence[Dim], base: Dim = 0) -> Launch:
    """The dims of a nest, as few axes as it takes and axes of extent 1 in front of them."""
    axes = collapsed_axes(extents, strides)
    axes = [(1, 0)] * (max(len(extents), 1) - len(axes)) + axes
    dims = (*(e for e, _ in axes), base, *(s for _, s in axes))
    return Launch(dims, product(extents), GRAIN)


def collapsed_axes(extents: Sequence[Dim], strides: Sequence[Dim]) -> list[tuple[Dim, Dim]]:
    """Extents and strides when axes that follow each other in memory become one."""
    *outer, last = list(zip(extents, strides, strict=True)) or [(1, 1)]
    # a last axis of one element stays: whether it runs or stands, the kernel knows by itself
    kept = [*(a for a in outer if a[0] != 1), last]
    runs = joined(kept, lambda a, b: b[0] != 1 and a[1] == b[0] * b[1])
    return [(product(extent for extent, _ in run), run[-1][1]) for run in runs]


def _broadcast_source(workload: Workload) -> str:
    x, out = workload.anchor.args[0].type.shape, workload.result.shape
    along = axes_of([x, workload.anchor.attrs["shape"]], out)
    return nest_text(workload, len(out), along[-1][0] if along else RUNS)


def _broadcast_launch(workload: Workload, shapes: Shapes) -> Launch:
    (x,) = argument_shapes(workload, shapes)
    return nest_launch(shapes[-1], run_time_strides(x, shapes[-1]))


def _slice_source(workload: Workload) -> str:
    rank = len(workload.result.shape)
    steps = dict(zip(workload.anchor.attrs["axes"], workload.anchor.attrs["strides"], strict=True))
    return nest_text(workload, rank, RUNS if steps.get(rank - 1, 1) == 1 else OPEN)


def _slice_launch(workload: Workload, shapes: Shapes) -> Launch:
    (x,) = argument_shapes(workload, shapes)
    attrs, strides = workload.anchor.attrs, list(strides_of(x))
    base: Dim = 0
    ends = zip(attrs["axes"], attrs["begin"], attrs["end"], attrs["strides"], strict=True)
    for axis, begin, end, step in ends:
        first, _ = slice_ends(x[axis], begin, end, step)
        base += first * strides[axis]
        strides[axis] *= step
    return nest_launch(shapes[-1], strides, base)


def _tile_source(workload: Workload) -> str:
    return nest_text(workload, 2 * len(workload.result.shape), RUNS)


def _tile_launch(workload: Workload, shapes: Shapes) -> Launch:
    (x,) = argument_shapes(workload, shapes)
    pairs = zip(workload.anchor.attrs["repeats"], x, strict=True)
    strides = [s for stride in strides_of(x) for s in (0, stride)]
    return nest_launch([e for pair in pairs for e in pair], strides)


def nest_counts(_: Workload, at: LoopCounts) -> Counts:
    """What a nest does."""
    rank = len(at.dims) // 2
    apart = at.extent if abs(at.dims[-1]) > 1 else 0
    return {"row": math.prod(at.dims[: rank - 1]), "apart": apart}


BROADCAST = loop_template(
    "broadcast_to", takes(broadcast_to), _broadcast_source, _broadcast_launch, nest_counts
)
SLICE = loop_template(
    "strided_slice",
    takes(strided_slice),
    _slice_source,
    _slice_launch,
    nest_counts,
    pitched=lambda _: frozenset({0}),
)
TILE = loop_template("tile", takes(tile), _tile_source, _tile_launch, nest_counts)


# --- concat --------------------------------------------------------------------------------------


def _concat_source(workload: Workload) -> str:
    """The result as rows of `row` elements, to which argument k brings a part of `l{k}`.

    The rows of the result lie `pitch` apart, its own `p{k}`, or 0 where they are there already.
    """
    count = len(workload.anchor.args)
    s = Source()
    with s.pieces(["_", "row"]):
        s("left = 0", "first = c0 * pitch")
        for k in range(count):
            s(f"right = left + l{k}")
            with s.block(f"if p{k} != 0:"):
                s("t = greatest(left, j)", "n = least(right, j + m) - t")
                s(f"copied(y, first + t, x{k}, c0 * p{k} - left + t, n)")
            s("left = right")
    names = ["row", "pitch", *(f"{name}{k}" for name in "lp" for k in range(count))]
    return kernel_text("concat", workload, s, names, moved=range(count))


def _concat_launch(workload: Workload, shapes: Shapes) -> Launch:
    axis, out = workload.anchor.attrs["axis"], shapes[-1]
    arguments = argument_shapes(workload, shapes)
    parts = [product(x[axis:]) for x in arguments]
    pitch, *pitches = (product((*x[axis:-1], pitch_of(x))) for x in (out, *arguments))
    return Launch((sum(parts, start=0), pitch, *parts, *pitches), product(out), GRAIN)


def _concat_counts(_workload: Workload, at: LoopCounts) -> Counts:
    row, _, *parts = at.dims
    return {"row": at.extent / max(row, 1) * (len(parts) // 2)}


def _concat_pitched(workload: Workload) -> frozenset[int]:
    """Along the last axis all of them may."""
    last = len(workload.result.shape) - 1
    places = range(-1, len(workload.body.params))
    return frozenset(places if workload.anchor.attrs["axis"] == last else ())


CONCAT = loop_template(
    "concat", takes(concat), _concat_source, _concat_launch, _concat_counts, pitched=_concat_pitched
)
