"""Images looked at where a grid says: a run of places at a time.

The neighbours of its places, and their weights, are found once for all channels, in float32 and
step by step as the op does.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from bucketize.ir import Binding
from bucketize.kernel.emit.expression import dtype_text
from bucketize.kernel.loops.cost import Counts, LoopCounts
from bucketize.kernel.loops.loop import (
    GRAIN,
    HALF,
    NONE,
    ONE,
    Source,
    argument_shapes,
    kernel_text,
    loop_template,
    takes,
)
from bucketize.kernel.loops.reduce import BLOCK
from bucketize.kernel.template import IMAGE, Launch, Shapes
from bucketize.kernel.workload import Workload
from bucketize.op import Attrs
from bucketize.ops.resample.sampling import grid_sample
from bucketize.ops.window.image import planes
from bucketize.types import product
from bucketize.types.number import kind_of

TAPS = {"linear": 2, "nearest": 1}
"""Along an axis, by mode."""


def _accepts(b: Binding) -> bool:
    flat = len(b.args[0].type.shape) == IMAGE and b.attrs["mode"] in TAPS
    return flat and all(kind_of(a.type.dtype) == "f" for a in b.args)


def _source(workload: Workload) -> str:
    attrs, count = workload.anchor.attrs, _taps(workload)
    s = Source()
    s(f"at = scratch({count * BLOCK}, int64)", f"weight = scratch({count * BLOCK}, float32)")
    for k, size in enumerate("hw"):
        s(f"last{k} = float32({size} - 1)")
        aligned = attrs["align_corners"]
        s(f"low{k} = {NONE if aligned else f'-{HALF}'}", f"high{k} = last{k} - low{k}")
    with s.pieces(["_", "places"], BLOCK):
        with s.loops(t="m"):
            for k, size in enumerate("hw"):
                _neighbours(s, attrs, k, size)
            for r, (a, b) in enumerate(itertools.product(range(TAPS[attrs["mode"]]), repeat=2)):
                s(f"at[{r * BLOCK} + t] = i0_{a} * w + i1_{b}")
                s(f"weight[{r * BLOCK} + t] = w0_{a} * w1_{b}")
        (_channels if attrs["layout"] == "NHWC" else _columns)(s, workload)
    words = [attrs["mode"], attrs["padding"], attrs["layout"]]
    words += ["corners aligned"][: attrs["align_corners"]]
    title = f"grid_sample: {', '.join(words)}"
    return kernel_text(title, workload, s, ["h", "w", "channels", "places"])


def _taps(workload: Workload) -> int:
    return TAPS[workload.anchor.attrs["mode"]] ** 2


# --- along an axis -------------------------------------------------------------------------------


def _neighbours(s: Source, attrs: Attrs, k: int, size: str) -> None:
    """The lines for i{k}_{t} and w{k}_{t}, the neighbours of a place and their weights."""
    s(f"g = float32(x1[2 * (i + t) + {1 - k}]) + {ONE}")
    scaled = f"g * {HALF} * last{k}" if attrs["align_corners"] else None
    s(f"c = {scaled or f'(g * float32({size}) - {ONE}) * {HALF}'}")
    if attrs["mode"] == "nearest":
        s("c = round_even(c)")
    if attrs["padding"] == "border":
        with s.block(f"if c < low{k} or c > high{k}:"):
            s(f"c = least(greatest(c, {NONE}), last{k})")
    elif attrs["padding"] == "reflection":
        _mirror(s, k, "c")
    s("b = floor(c)", "rest = c - b")
    weights = [f"{ONE} - rest", f"{ONE} - ({ONE} - rest)"] if attrs["mode"] == "linear" else [ONE]
    for t, weight in enumerate(weights):
        s(f"w{k}_{t} = {weight}", f"e = b + float32({t})", f"i{k}_{t} = 0")
        if attrs["padding"] == "reflection":
            _mirror(s, k, "e")
        elif attrs["padding"] == "zeros":
            with s.block(f"if not (e >= {NONE} and e <= last{k}):"):  # so is NaN
                s(f"w{k}_{t} = {NONE}")
        with s.block(f"if e > {NONE}:"):
            s(f"i{k}_{t} = int64(least(e, last{k}))")


def _mirror(s: Source, k: int, place: str) -> None:
    """The lines that reflect a place at the ends as often as it takes."""
    low, high = f"low{k}", f"high{k}"
    with s.block(f"if {high} == {low}:"):
        s(f"{place} = {low}")
    with s.block(f"elif {place} < {low} or {place} > {high}:"):
        s(f"span = {high} - {low}", f"under = {place} < {low}")
        s(f"beyond = {low} - {place} if under else {place} - {high}")
        s("turns = floor(beyond / span)", "beyond = beyond - turns * span")
        s(f"even = floor(turns * {HALF}) * float32(2.0) == turns")
        s(f"{place} = {low} + beyond if under == even else {high} - beyond")


# --- sums ----------------------------------------------------------------------------------------


def _columns(s: Source, workload: Workload) -> None:
    """A channel at a time, along the places."""
    with s.loops(c="channels"):
        s("p = (c0 * channels + c) * h * w", "q = (c0 * channels + c) * places + j")
        entries = [f"{r * BLOCK} + t" for r in range(_taps(workload))]
        with s.loops(t="m"):
            _sum(s, workload, "q + t", [(f"p + at[{e}]", f"weight[{e}]") for e in entries])


def _channels(s: Source, workload: Workload) -> None:
    """A place at a time, whose channels lie together."""
    count = _taps(workload)
    with s.loops(t="m"):
        for r in range(count):
            s(f"p{r} = (c0 * h * w + at[{r * BLOCK} + t]) * channels")
            s(f"f{r} = weight[{r * BLOCK} + t]")
        s("q = (i + t) * channels")
        with s.loops(c="channels"):
            _sum(s, workload, "q + c", [(f"p{r} + c", f"f{r}") for r in range(count)])


def _sum(s: Source, workload: Workload, to: str, taps: Sequence[tuple[str, str]]) -> None:
    kind = dtype_text(np.result_type(workload.result.dtype, np.float32))
    s(f"y[{to}] = {' + '.join(f'{kind}(x0[{p}]) * {weight}' for p, weight in taps)}")


# --- launching -----------------------------------------------------------------------------------


def _launch(workload: Workload, shapes: Shapes) -> Launch:
    x, grid = argument_shapes(workload, shapes)
    channels, *plane = (x[a] for a in planes(workload.anchor.attrs["layout"]))
    return Launch((*plane, channels, product(grid[1:-1])), product(grid[:-1]), GRAIN)


def _counts(workload: Workload, at: LoopCounts) -> Counts:
    """Places by themselves, then what they are made of."""
    channels = at.dims[2]
    read = at.extent * channels * _taps(workload)
    if workload.anchor.attrs["layout"] == "NHWC":
        return {"lone": at.extent * _taps(workload), "row": at.extent, "multiply": read}
    return {"lone": at.extent * _taps(workload), "apart": read}


GRID_SAMPLE = loop_template(
    "grid_sample", takes(grid_sample, where=_accepts), _source, _launch, _counts
)
