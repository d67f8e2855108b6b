"""Columns added up to images: each row of an image gathers what windows have of it."""

from __future__ import annotations

import math

import numpy as np

from bucketize.ir import Binding
from bucketize.kernel.emit.expression import dtype_text
from bucketize.kernel.loops.cost import Counts, LoopCounts
from bucketize.kernel.loops.loop import GRAIN, Source, kernel_text, loop_template, takes
from bucketize.kernel.template import Launch, Shapes
from bucketize.kernel.workload import Workload
from bucketize.ops import col2im
from bucketize.ops.window.column import blocks
from bucketize.types import product

PER_AXIS = ("e", "k", "b", "s", "d", "p")
"""Words of each axis: image, window, how many windows, their stride, dilation, the pad before."""


def _source(workload: Workload) -> str:
    axes = len(workload.anchor.attrs["image"])
    last, kind = axes - 1, dtype_text(workload.result.dtype)
    s = Source()
    with s.pieces(["_", *(f"e{a}" for a in range(axes))]):
        with s.loops(t="m"):
            s(f"y[i + t] = {kind}(0)")
        s("first = c0")
        _taps(s, 0, last)
    names = [f"{name}{a}" for name in PER_AXIS for a in range(axes)]
    return kernel_text("col2im", workload, s, names)


def _taps(s: Source, axis: int, last: int) -> None:
    """The places in a window along an axis and those behind it, where one begins on a window.

    `f{axis}` counts the places in the windows of all channels so far; `w{axis}` windows.
    """
    before, at = f"f{axis - 1}" if axis else "first", f"u{axis}"
    with s.loops(**{at: f"k{axis}"}):
        s(f"f{axis} = {before} * k{axis} + {at}")
        if axis == last:
            _row(s, last)
            return
        s(f"o{axis} = c{axis + 1} + p{axis} - {at} * d{axis}")
        inside = f"o{axis} >= 0 and o{axis} % s{axis} == 0 and o{axis} // s{axis} < b{axis}"
        with s.block(f"if {inside}:"):
            s(f"w{axis} = {f'w{axis - 1} * b{axis} + ' if axis else ''}o{axis} // s{axis}")
            _taps(s, axis + 1, last)


def _row(s: Source, last: int) -> None:
    """A place in the window along a piece of a row."""
    windows = "*".join(f"b{a}" for a in range(last))
    row = f"w{last - 1}" if last else "0"
    s(f"o = j + p{last} - u{last} * d{last}")
    s(f"low = greatest(-(-o // s{last}), 0)", f"high = least(-(-(o + m) // s{last}), b{last})")
    s(f"q = (f{last} * {windows or 1} + {row}) * b{last}")
    with s.loops(t="low, high"):
        s(f"y[i + t * s{last} - o] += x0[q + t]")


def _launch(workload: Workload, shapes: Shapes) -> Launch:
    attrs = workload.anchor.attrs
    window = {name: attrs[name] for name in ("strides", "pads", "dilations")}
    image, kernel = attrs["image"], attrs["kernel"]
    windows = blocks(image, kernel, **window)
    before = attrs["pads"][: len(image)]
    dims = (*image, *kernel, *windows, *attrs["strides"], *attrs["dilations"], *before)
    return Launch(dims, product(shapes[-1]), GRAIN)


def _counts(workload: Workload, at: LoopCounts) -> Counts:
    """Each element is added once, in rows of windows."""
    axes = len(workload.anchor.attrs["image"])
    dims = dict(zip(PER_AXIS, zip(*[iter(at.dims)] * axes, strict=True), strict=True))
    rows = at.extent / max(dims["e"][-1], 1) * math.prod(dims["k"])
    return {"row": rows, "apart": rows * dims["b"][-1]}


def _accepts(b: Binding) -> bool:
    """Sums of float16 would be rounded at each step."""
    return b.out.type.dtype.kind in "iuf" and b.out.type.dtype != np.float16


COL2IM = loop_template("col2im", takes(col2im, where=_accepts), _source, _launch, _counts)
