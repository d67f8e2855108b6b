"""Convolutions of any numbers, by weights known or not: what the vector code declines.

For each place in the window a convolution is a matrix product. In NHWC the rows are pixels of a
line of the result and the columns its channels, along which the weights must lie: each thread
packs them first, unless they are constant. In NCHW the rows are channels and the columns pixels.
Where each channel has weights of its own, NHWC pixels are multiplied channel by channel. Pads are
places where no product is added, unless weights are infinite or NaN: 0 times them is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from bucketize.ir import Binding
from bucketize.kernel.emit.expression import dtype_text
from bucketize.kernel.loops.cost import Counts, LoopCounts
from bucketize.kernel.loops.loop import Source, argument_shapes, kernel_text, loop_template, takes
from bucketize.kernel.loops.product import (
    COLUMNS,
    ROWS,
    STRIP,
    LoopProduct,
    block_counts,
    scratch_sums,
    sums,
)
from bucketize.kernel.schedule import Schedule
from bucketize.kernel.template import Launch, Packing, Shapes
from bucketize.kernel.workload import Workload
from bucketize.op import Array
from bucketize.ops import conv2d
from bucketize.ops.window.image import planes
from bucketize.types.number import kind_of

IMAGE = ("h", "w", "channels", "oh", "ow")
WINDOW = ("groups", "outer", "inner", "kh", "kw", "sh", "sw", "dh", "dw", "top", "left")


CHANNELS = LoopProduct("x0", "sw * channels", "1", "b", "outer", "t", "inner", "n")


def _is_nhwc(workload: Workload) -> bool:
    return bool(workload.anchor.attrs["layout"] == "NHWC")


def _weights(workload: Workload) -> int | None:
    """Which parameter the weights are, if they are known and thus packed beforehand."""
    params, weights = workload.body.params, workload.anchor.args[1]
    is_constant = weights in params and workload.constant[params.index(weights)]
    return params.index(weights) if is_constant and _is_nhwc(workload) else None


def _is_depthwise(workload: Workload) -> bool:
    weights = workload.anchor.args[1].type.shape
    return _is_nhwc(workload) and weights[:2] == (workload.anchor.attrs["groups"], 1)


def _source(workload: Workload) -> str:
    s = Source()
    scratch_sums(s, dtype_text(workload.result.dtype))
    (_pixels if _is_nhwc(workload) else _lines)(s, workload)
    kind = " depthwise" if _is_depthwise(workload) else ""
    title = f"conv2d: {workload.anchor.attrs['layout']}{kind}"
    return kernel_text(title, workload, s, (*IMAGE, *WINDOW))


def _columns(first: str, step: str) -> tuple[str, str]:
    """The first and the last pixel, from `first` on, that see the image at `o` from their place."""
    return f"greatest(-(o // {step}) - {first}, 0)", f"-((o - w) // {step}) - {first}"


@contextmanager
def _taps(s: Source, line: str) -> Iterator[None]:
    """The lines of the context for each place u, v of the window that lies on a line `iy`.

    On a line of pads, of which `seen` is 0, too, where some weight is not finite.
    """
    with s.loops(u="kh"):
        s(f"iy = {line} * sh - top + u * dh", "seen = iy >= 0 and iy < h")
        with s.block("if seen or blind:"), s.loops(v="kw"):
            s("o = v * dw - left")
            yield


def _sees_pads(workload: Workload) -> bool:
    """Whether products of pads may be others than 0."""
    is_padded = any(p != 0 for p in workload.anchor.attrs["pads"])
    return is_padded and kind_of(workload.result.dtype) == "f"


def _look(s: Source, workload: Workload, weights: str) -> None:
    """Whether some weight is not finite: less itself that is NaN."""
    if not _sees_pads(workload):
        s("blind = False")
        return
    s("strange = 0")
    with s.loops(t="groups * outer * inner * kh * kw"):
        s(f"strange |= int64({weights}[t] - {weights}[t] != 0)")
    s("blind = strange != 0")


def _range(s: Source, low: str, high: str, count: str) -> None:
    """The range low..high of `count` pixels that see the image."""
    s(f"low = {low} if seen else 0")
    s(f"high = greatest(least({high}, {count}), low) if seen else 0")


def _products_of_pads(s: Source, workload: Workload, weight: str, pixel: str) -> None:
    """Add what pads give to the sums of the rows whose pixel is not in low..high."""
    if not _sees_pads(workload):
        return
    outside = f"if {pixel} < low or {pixel} >= high:"
    with s.block("if blind:"), s.loops(r="m", k="inner", t="n"), s.block(outside):
        s(f"total[r * {COLUMNS} + t] += {weight} - {weight}")


# --- NHWC ----------------------------------------------------------------------------------------


def _pixels(s: Source, workload: Workload) -> None:
    """A strip of the pixels of a line of the result at a time."""
    kind, packed = dtype_text(workload.result.dtype), _weights(workload)
    if _is_depthwise(workload):  # all channels as one group
        s("groups = 1", "outer = channels")
    if packed is None:
        _pack_here(s, workload, kind)
    else:
        s(f"b = pointer(block[{packed + 1}], {kind})")
    _look(s, workload, "b")
    with s.pieces(["_", "oh", "ow"], STRIP), s.loops(g="groups", c=f"0, outer, {COLUMNS}"):
        s(f"n = least(outer - c, {COLUMNS})")
        with sums(s, "m", "n", "y[((i + r) * groups + g) * outer + c + t]", kind), _taps(s, "c1"):
            _range(s, *_columns("j", "sw"), "m")
            s("p = ((c0 * h + iy) * w + j * sw + o) * channels + g * inner")
            s("q = ((g * kh + u) * kw + v) * inner * outer + c")
            _products_of_pads(s, workload, "b[q + k * outer + t]", "r")
            if _is_depthwise(workload):
                _each_channel(s)
            else:
                CHANNELS.write(s, "low", "high")


def _each_channel(s: Source) -> None:
    with s.loops(r="low, high", t="n"):
        at, pixel = f"r * {COLUMNS} + t", "x0[p + r * sw * channels + c + t]"
        s(f"total[{at}] = multiply_add({pixel}, b[q + t], total[{at}])")


def _pack_here(s: Source, workload: Workload, kind: str) -> None:
    """The weights as [group, height, width, channel in, channel out] in the thread's workspace."""
    s(f"b = pointer(block[{len(workload.body.params) + 1}], {kind})", "taps = kh * kw")
    with s.loops(g="groups", x="taps", k="inner", t="outer"):
        at = "((g * outer + t) * inner + k) * taps + x"
        s(f"b[((g * taps + x) * inner + k) * outer + t] = x1[{at}]")


def channels_out_last(value: Array, groups: int) -> Array:
    """Weights OIHW as [group, height, width, channel in, channel out]: a view."""
    out, *others = value.shape
    return value.reshape(groups, out // groups, *others).transpose(0, 3, 4, 2, 1)


def _packing(workload: Workload, _: Schedule, index: int) -> Packing | None:
    if index != _weights(workload):
        return None
    groups = 1 if _is_depthwise(workload) else int(workload.anchor.attrs["groups"])
    dtype = _summed(workload)
    return Packing(
        f"channels out last in {groups} groups",
        lambda value: np.ascontiguousarray(channels_out_last(value, groups), dtype),
    )


# --- NCHW ----------------------------------------------------------------------------------------


def _lines(s: Source, workload: Workload) -> None:
    """All channels of a line of the result at a time; the stride is part of the code."""
    kind, stride = dtype_text(workload.result.dtype), workload.anchor.attrs["strides"][1]
    column = "t" if stride == 1 else f"t * {stride}"
    product = LoopProduct(
        "x1", "inner * kh * kw", "kh * kw", "x0", "h * w", column, "inner", "low, high"
    )
    _look(s, workload, "x1")
    with s.loops(i="begin, end"):
        s("image = i // oh", "line = i % oh")
        with s.loops(g="groups", f=f"0, outer, {STRIP}", c=f"0, ow, {COLUMNS}"):
            s(f"m = least(outer - f, {STRIP})", f"n = least(ow - c, {COLUMNS})")
            s("at = (image * groups + g) * outer + f")
            result = "y[((at + r) * oh + line) * ow + c + t]"
            with sums(s, "m", "n", result, kind), _taps(s, "line"):
                _range(s, *_columns("c", str(stride)), "n")
                s("p = ((g * outer + f) * inner * kh + u) * kw + v")
                s("plane = image * channels + g * inner")
                s(f"q = (plane * h + iy) * w + o + c * {stride}")
                weight = "x1[p + (r * inner + k) * kh * kw]"
                _products_of_pads(s, workload, weight, "t")
                product.write(s, "0", "m")


# --- launching -----------------------------------------------------------------------------------


def _launch(workload: Workload, shapes: Shapes) -> Launch:
    (x, weights), out = argument_shapes(workload, shapes), shapes[-1]
    attrs = workload.anchor.attrs
    c, h, w = planes(attrs["layout"])
    groups, (top, left, _, _) = attrs["groups"], attrs["pads"]
    window = (groups, weights[0] // groups, *weights[1:])
    steps = (*attrs["strides"], *attrs["dilations"], top, left)
    dims = (x[h], x[w], x[c], out[h], out[w], *window, *steps)
    if not _is_nhwc(workload):
        return Launch(dims, out[0] * out[h])
    space = 0 if _weights(workload) is not None else math.prod(weights)
    return Launch(dims, math.prod(out[:3]), ROWS, space * _summed(workload).itemsize)


def _summed(workload: Workload) -> np.dtype[Any]:
    """The dtype of the sums, in which packed weights lie."""
    return np.dtype(dtype_text(workload.result.dtype))


def _sums(b: Binding) -> bool:
    return kind_of(b.out.type.dtype) in "iuf"


def _counts(workload: Workload, at: LoopCounts) -> Counts:
    dims = dict(zip((*IMAGE, *WINDOW), at.dims, strict=True))
    channels = dims["groups"] * dims["outer"]
    taps = channels * dims["inner"] * dims["kh"] * dims["kw"]
    if not _is_nhwc(workload):
        return block_counts(at.extent * dims["ow"] * taps, dims["ow"])
    return block_counts(at.extent * taps, channels if _is_depthwise(workload) else dims["outer"])


CONV_LOOPS = replace(
    loop_template("conv2d_loops", takes(conv2d, where=_sums), _source, _launch, _counts),
    packing=_packing,
)
