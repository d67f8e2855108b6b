"""Pooling: windows over planes, all sizes at run time.

A block of the result is accumulated over the window: of channels in NHWC, of a row in NCHW.
"""

from __future__ import annotations

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
from bucketize.kernel.loops.reduce import BLOCK, lowest
from bucketize.kernel.template import Launch, Shapes
from bucketize.kernel.workload import Workload
from bucketize.ops import avg_pool2d, max_pool2d
from bucketize.ops.window.image import planes
from bucketize.types import Dim, product
from bucketize.types.number import kind_of

PLANE = ("h", "w", "c", "oh", "ow")
WINDOW = ("kh", "kw", "sh", "sw", "dh", "dw", "top", "left", "bottom", "right")


def _accepts(b: Binding) -> bool:
    return kind_of(b.out.type.dtype) in ("f" if b.op is avg_pool2d else "iuf")


def _source(workload: Workload) -> str:
    attrs, kind = workload.anchor.attrs, dtype_text(workload.result.dtype)
    s = Source()
    s(f"a = scratch({BLOCK}, {kind})")
    if attrs["layout"] == "NHWC":
        with s.pieces(["_", "oh", "ow", "c"], BLOCK):
            _channels(s, workload)
        title = "NHWC"
    else:
        s(f"count = scratch({BLOCK}, {kind})")
        with s.pieces(["_", "oh", "ow"], BLOCK):
            _row(s, workload, attrs["strides"][1])
        title = f"NCHW, every {attrs['strides'][1]}"
    title = f"{workload.anchor.op.name}: {title}{', pads count' if counts_pads(workload) else ''}"
    return kernel_text(title, workload, s, (*PLANE, *WINDOW))


def counts_pads(workload: Workload) -> bool:
    """Whether a mean is over the pads, too."""
    return bool(workload.anchor.attrs.get("count_include_pad"))


def is_mean(workload: Workload) -> bool:
    """Whether the mean of a window is wanted; else its greatest element."""
    return workload.anchor.op is avg_pool2d


def _start(workload: Workload) -> str:
    dtype = workload.result.dtype
    return literal(dtype.type(0) if is_mean(workload) else lowest(dtype))


def _step(workload: Workload) -> str:
    return "plus" if is_mean(workload) else "greatest"


def _channels(s: Source, workload: Workload) -> None:
    """A block of channels at one place of the result: row c1, column c2."""
    with s.loops(t="m"):
        s(f"a[t] = {_start(workload)}")
    s("count = 0")
    with s.loops(u="kh", v="kw"):
        s("iy = c1 * sh - top + u * dh", "ix = c2 * sw - left + v * dw")
        if counts_pads(workload):
            with s.block("if iy < h + bottom and ix < w + right:"):
                s("count += 1")
        with s.block("if iy >= 0 and iy < h and ix >= 0 and ix < w:"):
            s(*["count += 1"][: not counts_pads(workload)], "p = ((c0 * h + iy) * w + ix) * c + j")
            with s.loops(t="m"):
                s(f"a[t] = {_step(workload)}(a[t], x0[p + t])")
    divided = f" / {dtype_text(workload.result.dtype)}(count)" if is_mean(workload) else ""
    with s.loops(t="m"):
        s(f"y[i + t] = a[t]{divided}")


def _row(s: Source, workload: Workload, stride: int) -> None:
    """A block of a row of the result: row c1, columns from j on; the stride is part of the code."""
    mean, pads = is_mean(workload), counts_pads(workload)
    counted = ["count[t] += 1"][:mean]
    with s.loops(t="m"):
        s(f"a[t] = {_start(workload)}", *["count[t] = 0"][:mean])
    with s.loops(u="kh", v="kw"):
        s("iy = c1 * sh - top + u * dh", "o = v * dw - left")
        if pads:
            with s.block("if iy < h + bottom:"), s.loops(t=_columns("0", "w + right", stride)):
                s(*counted)
        with s.block("if iy >= 0 and iy < h:"):
            s(f"p = (c0 * h + iy) * w + o + j * {stride}")
            with s.loops(t=_columns(f"greatest(-(o // {stride}) - j, 0)", "w", stride)):
                s(f"a[t] = {_step(workload)}(a[t], x0[p + t * {stride}])", *counted[: not pads])
    with s.loops(t="m"):
        s(f"y[i + t] = a[t]{' / count[t]' if mean else ''}")


def _columns(first: str, width: str, stride: int) -> str:
    """The columns of the block whose window, moved by o, begins before `width`."""
    return f"{first}, least(-((o - ({width})) // {stride}) - j, m)"


def dims_of(workload: Workload, shapes: Shapes) -> tuple[Dim, ...]:
    """Dims that `PLANE` and `WINDOW` name."""
    (x,), out, attrs = argument_shapes(workload, shapes), shapes[-1], workload.anchor.attrs
    c, h, w = planes(attrs["layout"])
    window = (*attrs["kernel"], *attrs["strides"], *attrs["dilations"], *attrs["pads"])
    return (x[h], x[w], x[c], out[h], out[w], *window)


def _launch(workload: Workload, shapes: Shapes) -> Launch:
    return Launch(dims_of(workload, shapes), product(shapes[-1]), GRAIN)


def _counts(workload: Workload, at: LoopCounts) -> Counts:
    """Every tap of a window is a loop over a block of the result, whose sums lie in memory."""
    dims = dict(zip((*PLANE, *WINDOW), at.dims, strict=True))
    taps = at.extent * dims["kh"] * dims["kw"]
    if workload.anchor.attrs["layout"] == "NHWC":
        return {"row": 2 * taps / min(max(dims["c"], 1), BLOCK), _joined(workload): taps}
    apart = taps if dims["sw"] > 1 else 0
    return {
        "row": 2 * taps / min(max(dims["ow"], 1), BLOCK),
        _joined(workload): taps,
        "apart": apart,
    }


def _joined(workload: Workload) -> str:
    return "simple" if is_mean(workload) else "choose"


POOL = loop_template(
    "pool", takes(max_pool2d, avg_pool2d, where=_accepts), _source, _launch, _counts
)
