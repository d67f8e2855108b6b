"""Boxes of images: each a grid of cells, of which each is made of samples between pixels.

Samples lie in rows and columns, so that a pixel's weight is the product of two. Along either axis
the pixels that a cell sees are listed once a box; neighbouring samples see the same ones, whose
weights a mean adds up.
"""

from __future__ import annotations

import math

import numpy as np

from bucketize.ir import Binding
from bucketize.kernel.emit.expression import dtype_text
from bucketize.kernel.emit.writer import FLOAT_BYTES, WORD_BYTES
from bucketize.kernel.loops.cost import Counts, LoopCounts
from bucketize.kernel.loops.loop import (
    HALF,
    NONE,
    ONE,
    Source,
    argument_shapes,
    kernel_text,
    literal,
    loop_template,
    takes,
)
from bucketize.kernel.loops.reduce import BLOCK
from bucketize.kernel.template import REPORT, Launch, Shapes
from bucketize.kernel.workload import Workload
from bucketize.ops.resample.sampling import SAMPLES, roi_align
from bucketize.ops.window.image import planes
from bucketize.types import Dim
from bucketize.types.number import kind_of

USUAL = 2  # samples of a cell along an axis, where boxes tell
DIMS = ("images", "h", "w", "channels", "cells0", "cells1", "ratio", "room0", "room1")


def _accepts(b: Binding) -> bool:
    return all(kind_of(a.type.dtype) == "f" for a in b.args[:2])


def _is_max(workload: Workload) -> bool:
    return bool(workload.anchor.attrs["pool"] == "max")


def _source(workload: Workload) -> str:
    attrs, kind = workload.anchor.attrs, _kind(workload)
    s = Source()
    _memory(s, workload)
    with s.loops(i="begin, end"):
        s("image = int64(x2[i])")
        with s.block("if image < 0 or image >= images:"):
            s("wrong[0] = 1", "wrong[1] = image", "wrong[2] = images", "return")
        for k, size in enumerate("hw"):
            _ends(s, workload, k)
            _list(s, workload, k, size)
        s(f"share = {kind}({ONE}) / {kind}(greatest(count0 * count1, 1))")
        (_rows if attrs["layout"] == "NHWC" else _places)(s, workload)
    title = f"roi_align: {attrs['pool']}, {attrs['layout']}"
    return kernel_text(title, workload, s, DIMS, checked=True)


def _kind(workload: Workload) -> str:
    """The dtype of sums."""
    return dtype_text(np.result_type(workload.result.dtype, np.float32))


def _memory(s: Source, workload: Workload) -> None:
    """In the workspace: along either axis pixels, weights, and where the cells' begin."""
    if workload.anchor.attrs["layout"] == "NHWC":
        s(f"a = scratch({BLOCK}, {_kind(workload)})")
    s(f"space = block[{1 + len(workload.body.params)}] + {REPORT}")
    for k in range(2):
        s(f"first{k} = pointer(space, int64)", f"space += (cells{k} + 1) * {WORD_BYTES}")
        s(f"at{k} = pointer(space, int64)", f"space += room{k} * {WORD_BYTES}")
        s(f"weight{k} = pointer(space, float32)", f"space += room{k} * {FLOAT_BYTES}")


def _ends(s: Source, workload: Workload, k: int) -> None:
    """The lines for where a box begins along an axis, its cells' extent and their samples."""
    attrs = workload.anchor.attrs
    scale = literal(np.float32(attrs["scale"]))
    before = HALF if attrs["half_pixel"] else NONE
    for name, column in (("low", 1 - k), ("high", 3 - k)):
        s(f"{name} = float32(x1[4 * i + {column}]) * {scale} - {before}")
    extent = "high - low" if attrs["half_pixel"] else f"greatest(high - low, {ONE})"
    s(f"step = ({extent}) / float32(cells{k})", f"count{k} = ratio")
    with s.block("if ratio == 0 and step > 0:"):  # of NaN, none
        s(f"count{k} = int64(least(ceil(step), float32({SAMPLES})))")
    with s.block("if h * w == 0:"):
        s(f"count{k} = 0")


def _list(s: Source, workload: Workload, k: int, size: str) -> None:
    """The lines that list the pixels of each cell along an axis.

    Where float32 knows no halves of pixels more samples may lie in an image than there is room for.
    """
    s("u = 0", f"last = float32({size} - 1)")
    with s.loops(c=f"cells{k}"):
        s(f"first{k}[c] = u")
        with s.loops(t=f"count{k}"):
            s(f"place = low + float32(c) * step + (float32(t) + {HALF}) * step / float32(count{k})")
            seen = f"place >= {literal(np.float32(-1))} and place <= float32({size})"
            with s.block(f"if {seen} and u + 2 <= room{k} - 2 * cells{k}:"):
                s(f"place = least(greatest(place, {NONE}), last)", "below = floor(place)")
                s("rest = place - below", "p = int64(below)")
                _enter(s, workload, k, "p", f"{ONE} - rest")
                _enter(s, workload, k, f"least(p + 1, {size} - 1)", "rest")
            if _is_max(workload):  # what lies outside is 0, once a cell
                with s.block(f"elif u == first{k}[c] or weight{k}[u - 1] != {NONE}:"):
                    s(f"at{k}[u] = 0", f"weight{k}[u] = {NONE}", "u += 1")
    s(f"first{k}[cells{k}] = u")


def _enter(s: Source, workload: Workload, k: int, pixel: str, weight: str) -> None:
    """The line that lists a pixel, or adds to its weight: samples are in order."""
    lines = (f"at{k}[u] = {pixel}", f"weight{k}[u] = {weight}", "u += 1")
    if _is_max(workload):
        s(*lines)
        return
    s(f"q = {pixel}")
    with s.block(f"if u > first{k}[c] and at{k}[u - 1] == q:"):
        s(f"weight{k}[u - 1] += {weight}")
    with s.block(f"elif u > first{k}[c] + 1 and at{k}[u - 2] == q:"):
        s(f"weight{k}[u - 2] += {weight}")
    with s.block("else:"):
        s(*lines)


# --- cells ---------------------------------------------------------------------------------------


def _start(workload: Workload) -> str:
    """What a cell begins with; one without samples is 0."""
    kind = _kind(workload)
    if not _is_max(workload):
        return f"{kind}(0)"
    return f"{kind}(0) if count0 * count1 == 0 else {kind}(-math.inf)"


def _joined(workload: Workload, total: str, pixel: str) -> str:
    x, weight = f"{_kind(workload)}({pixel})", "f"
    if _is_max(workload):
        return f"{total} = greatest({total}, {x} * {weight})"
    return f"{total} = multiply_add({x}, {weight}, {total})"


def _rows(s: Source, workload: Workload) -> None:
    """A block of channels at a time, all lying together."""
    s(f"start = {_start(workload)}")
    with s.loops(c="cells0", d="cells1", j=f"0, channels, {BLOCK}"):
        s(f"m = least(channels - j, {BLOCK})")
        with s.loops(t="m"):
            s("a[t] = start")
        with s.loops(u="first0[c], first0[c + 1]", v="first1[d], first1[d + 1]"):
            s(f"f = {_kind(workload)}(weight0[u] * weight1[v])")
            s("p = ((image * h + at0[u]) * w + at1[v]) * channels + j")
            with s.loops(t="m"):
                s(_joined(workload, "a[t]", "x0[p + t]"))
        s("q = ((i * cells0 + c) * cells1 + d) * channels + j")
        with s.loops(t="m"):
            s(f"y[q + t] = a[t]{_shared(workload)}")


def _places(s: Source, workload: Workload) -> None:
    """A channel at a time."""
    with s.loops(j="channels", c="cells0", d="cells1"):
        s(f"total = {_start(workload)}")
        with s.loops(u="first0[c], first0[c + 1]", v="first1[d], first1[d + 1]"):
            s(f"f = {_kind(workload)}(weight0[u] * weight1[v])")
            s("p = ((image * channels + j) * h + at0[u]) * w + at1[v]")
            s(_joined(workload, "total", "x0[p]"))
        q = "((i * channels + j) * cells0 + c) * cells1 + d"
        s(f"y[{q}] = total{_shared(workload)}")


def _shared(workload: Workload) -> str:
    return "" if _is_max(workload) else " * share"


# --- launching -----------------------------------------------------------------------------------


def _launch(workload: Workload, shapes: Shapes) -> Launch:
    x, rois, _ = argument_shapes(workload, shapes)
    attrs = workload.anchor.attrs
    channels, *plane = (x[a] for a in planes(attrs["layout"]))
    cells, ratio = attrs["size"], attrs["ratio"]
    rooms = [_room(n, size, ratio) for n, size in zip(cells, plane, strict=True)]
    space = REPORT + sum(
        (n + 1) * WORD_BYTES + room * (WORD_BYTES + FLOAT_BYTES)
        for n, room in zip(cells, rooms, strict=True)
    )
    dims = (x[0], *plane, channels, *cells, ratio, *rooms)
    return Launch(dims, rois[0], workspace=space, checked=True)


def _room(cells: int, size: Dim, ratio: int) -> Dim:
    """Pixels that a list may have to hold: two a sample, and those outside twice a cell.

    As many samples as a cell has pixels lie more than half a pixel apart, if they are not alone.
    """
    seen = ratio * cells if ratio else 2 * (size + 2) + 2 * cells
    return 2 * seen + 2 * cells + 2


def _counts(workload: Workload, at: LoopCounts) -> Counts:
    """Two pixels a sample along either axis, most of them seen by the next one, too."""
    dims = dict(zip(DIMS, at.dims, strict=True))
    cells = at.extent * dims["cells0"] * dims["cells1"]
    pixels = cells * ((dims["ratio"] or USUAL) + 1) ** 2
    if workload.anchor.attrs["layout"] == "NCHW":
        return {"lone": pixels * dims["channels"]}
    blocks = math.ceil(dims["channels"] / BLOCK)
    return {"row": pixels * blocks, "multiply": pixels * dims["channels"]}


ROI_ALIGN = loop_template("roi_align", takes(roi_align, where=_accepts), _source, _launch, _counts)
