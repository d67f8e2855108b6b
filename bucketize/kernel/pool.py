"""Pooling: windows over planes, all sizes at run time.

In NHWC a block of channels is accumulated over the window, in order of memory; in NCHW one element
of the result after the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from bucketize.ir import Binding
from bucketize.kernel.expression import dtype_text
from bucketize.kernel.loop import (
    GRAIN,
    Source,
    argument_shapes,
    kernel_text,
    literal,
    loop_template,
    takes,
)
from bucketize.kernel.reduce import BLOCK, lowest
from bucketize.kernel.template import Launch, Shapes, Workload
from bucketize.ops import avg_pool2d, max_pool2d

PLANE = ("h", "w", "c", "oh", "ow")
WINDOW = ("kh", "kw", "sh", "sw", "dh", "dw", "top", "left", "bottom", "right")


def _accepts(b: Binding) -> bool:
    return b.out.type.dtype.kind in ("f" if b.op is avg_pool2d else "iuf")


def _source(workload: Workload) -> str:
    attrs, dtype = workload.anchor.attrs, workload.result.dtype
    s = Source()
    if attrs["layout"] == "NHWC":
        s(f"a = scratch({BLOCK}, {dtype_text(dtype)})")
        with s.pieces(["_", "oh", "ow", "c"], BLOCK):
            _blocks(s, workload)
    else:
        with s.pieces(["_", "oh", "ow"]), s.loops(t="m"):
            _element(s, workload)
    counted = "with pads" if attrs.get("count_include_pad") else ""
    return kernel_text(
        f"{workload.anchor.op.name}: {attrs['layout']} {counted}", workload, s, (*PLANE, *WINDOW)
    )


def _blocks(s: Source, workload: Workload) -> None:
    with s.loops(t="m"):
        s(f"a[t] = {_start(workload)}")
    with _taps(s, workload, "c1", "c2"):
        s("p = ((c0 * h + iy) * w + ix) * c + j")
        with s.loops(t="m"):
            s(f"a[t] = {_step(workload)}(a[t], x0[p + t])")
    with s.loops(t="m"):
        s(f"y[i + t] = {_finished(workload, 'a[t]')}")


def _element(s: Source, workload: Workload) -> None:
    s(f"a = {_start(workload)}")
    with _taps(s, workload, "c1", "(j + t)"):
        s(f"a = {_step(workload)}(a, x0[(c0 * h + iy) * w + ix])")
    s(f"y[i + t] = {_finished(workload, 'a')}")


def _start(workload: Workload) -> str:
    dtype = workload.result.dtype
    return literal(lowest(dtype) if workload.anchor.op is max_pool2d else dtype.type(0))


def _step(workload: Workload) -> str:
    return "greatest" if workload.anchor.op is max_pool2d else "plus"


def _finished(workload: Workload, total: str) -> str:
    if workload.anchor.op is max_pool2d:
        return total
    return f"{total} / {dtype_text(workload.result.dtype)}(count)"


@contextmanager
def _taps(s: Source, workload: Workload, row: str, column: str) -> Iterator[None]:
    """The places (iy, ix) of a window that lie in the plane; `count` is what a mean divides by."""
    with_pads = workload.anchor.attrs.get("count_include_pad")
    s("count = 0")
    with s.loops(u="kh", v="kw"):
        s(f"iy = {row} * sh - top + u * dh", f"ix = {column} * sw - left + v * dw")
        if with_pads:
            with s.block("if iy < h + bottom and ix < w + right:"):
                s("count += 1")
        with s.block("if iy >= 0 and iy < h and ix >= 0 and ix < w:"):
            s(*["count += 1"][: not with_pads])
            yield


def _launch(workload: Workload, shapes: Shapes) -> Launch:
    (x,), out, attrs = argument_shapes(workload, shapes), shapes[-1], workload.anchor.attrs
    c, h, w = (3, 1, 2) if attrs["layout"] == "NHWC" else (1, 2, 3)
    window = (*attrs["kernel"], *attrs["strides"], *attrs["dilations"], *attrs["pads"])
    return Launch((x[h], x[w], x[c], out[h], out[w], *window), math.prod(out), GRAIN)


POOL = loop_template("pool", takes(max_pool2d, avg_pool2d, where=_accepts), _source, _launch)
