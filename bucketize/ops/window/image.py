"""Operators that slide a window over the two last axes (or the two middle ones, for NHWC)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from bucketize.errors import TypeRelError
from bucketize.op import FREE, UNSAFE, Array, Fill, Op, Padding, op
from bucketize.ops.rules import check_bytes, limits, same
from bucketize.ops.window.rules import (
    PRECISIONS,
    check_channels,
    check_precision,
    check_rank,
    conv_extents,
    conv_work,
    convolved,
    greatest,
    mean,
    pool_extents,
    reaches_end,
)
from bucketize.types import Dim, Shape
from bucketize.types.number import DType

__all__ = ["avg_pool2d", "conv2d", "conv2d_integer", "max_pool2d"]

Pair = tuple[int, int]
Pads = tuple[Dim, Dim, Dim, Dim]

LAYOUTS = ("NCHW", "NHWC")


def planes(layout: str) -> tuple[int, int, int]:
    """The positions of channels, height and width."""
    if layout not in LAYOUTS:
        raise TypeRelError(f"no layout {layout!r}; known: {', '.join(LAYOUTS)}")
    return (1, 2, 3) if layout == "NCHW" else (3, 1, 2)


def arrange(layout: str, batch: Dim, channels: Dim, height: Dim, width: Dim) -> Shape:
    """The shape of images in a layout."""
    return (
        (batch, channels, height, width) if layout == "NCHW" else (batch, height, width, channels)
    )


def _reaches_end(at: int, layout: str, pads: Pads, fill: Padding) -> Padding:
    """What must hold behind the true end of a plane: `fill`, if windows reach there at all."""
    lo, hi = (pads[0], pads[2]) if at == planes(layout)[1] else (pads[1], pads[3])
    return reaches_end(lo, hi, fill)


def to_nchw(x: Array, layout: str) -> Array:
    """Images in NCHW, a view."""
    return x if layout == "NCHW" else x.transpose(0, 3, 1, 2)


def from_nchw(x: Array, layout: str) -> Array:
    """Images that were in NCHW."""
    return x if layout == "NCHW" else np.ascontiguousarray(x.transpose(0, 2, 3, 1))


# --- convolution ---------------------------------------------------------------------------------


def _conv_shape(
    x: Shape, w: Shape, *, groups: int, layout: str, precision: str, **window: Any
) -> Shape:
    check_precision(precision)
    check_rank("conv2d", x, 2)
    check_rank("conv2d", w, 2)
    c, *plane = planes(layout)
    check_channels(x[c], w, groups)
    height, width = conv_extents(tuple(x[at] for at in plane), w[2:], **window)
    return arrange(layout, x[0], w[0], height, width)


def _conv_padding(
    arg: int, at: int, x: Shape, w: Shape, *, pads: Pads, groups: int, layout: str, **_: Any
) -> Padding:
    channels = planes(layout)[0]
    if arg == 0 and at not in (0, channels):
        return _reaches_end(at, layout, pads, Fill(0))
    if arg == 0 and at == 0:
        return FREE
    if groups > 1 or (arg == 1 and at > 1):
        return UNSAFE
    if arg == 1 and at == 0:
        return FREE
    return Fill(0) if same(x[channels], w[1]) else UNSAFE


@op(
    shape=_conv_shape,
    padding=_conv_padding,
    work=conv_work,
    example="float32[N, C, H+2, W+2], float32[O, C, 3, 2] {pads=(1, 0, 1, 1)}; "
    "float32[N, H+4, W+4, C], float32[O, C, 3, 3] "
    "{strides=(2, 1), dilations=(1, 2), layout='NHWC'}; "
    "float32[N, 2*C, H, W], float32[2*O, C, 1, 1] {groups=2}; "
    "float32[1, 3, H+K, W+4], float32[2, 3, K, 2] {pads=(0, 1, 0, 0)}; "
    "float32[1, 3, H+4, 4], float32[2, 3, 3, 2] {pads=(H, 0, 1, 0)}; "
    "float32[N, 3, H+3, W+3], float32[6, 1, 3, 3] {groups=3, pads=(0, 1, 2, 1), strides=(2, 2)}",
)
def conv2d(  # noqa: PLR0913 ONNX has as many
    x: Array,
    w: Array,
    *,
    strides: Pair = (1, 1),
    pads: Pads = (0, 0, 0, 0),
    dilations: Pair = (1, 1),
    groups: int = 1,
    layout: str = "NCHW",
    precision: str = "default",
) -> Array:
    """Images convolved with `w` (OIHW); zeros pad the top, left, bottom, right (ONNX Conv).

    By `precision` "exact" a kernel adds up the products of the definition, in any order; by
    "default" it may find the sums otherwise, within 1e-4 of the largest.
    """
    del precision
    window: dict[str, Any] = {"strides": strides, "pads": pads, "dilations": dilations}
    return from_nchw(convolved(to_nchw(x, layout), w, groups=groups, **window), layout)


def _integer_shape(x: Shape, w: Shape, *, zero: int, layout: str, **window: Any) -> Shape:
    del zero
    return _conv_shape(x, w, groups=1, layout=layout, precision=PRECISIONS[0], **window)


def _integer_dtype(x: DType, w: DType, *, zero: int, **_: Any) -> DType:
    for dtype in (x, w):
        check_bytes("conv2d_integer", dtype)
    lo, hi = limits(x)
    if not isinstance(zero, int) or not lo <= zero <= hi:
        raise TypeRelError(f"zero must be a number of {x}, got {zero!r}")
    return np.dtype(np.int32)


def _integer_padding(
    arg: int, at: int, x: Shape, w: Shape, *, zero: int, layout: str, **window: Any
) -> Padding:
    rule = _conv_padding(arg, at, x, w, layout=layout, groups=1, **window)
    return Fill(zero) if arg == 0 and at != planes(layout)[0] and rule == Fill(0) else rule


@op(
    shape=_integer_shape,
    dtype=_integer_dtype,
    padding=_integer_padding,
    work=conv_work,
    example="uint8[N, C, H+2, W+2] in [0, 256), int8[O, C, 3, 2] in [-128, 128) "
    "{pads=(1, 0, 1, 1), zero=7}; "
    "int8[N, H+4, W+4, C] in [-128, 128), int8[O, C, 3, 3] in [-128, 128) "
    "{strides=(2, 1), dilations=(1, 2), layout='NHWC', zero=-3}; "
    "uint8[N, H, W, C] in [0, 256), uint8[O, C, 1, 1] in [0, 256) {layout='NHWC'}; "
    "int8[1, 3, H+4, 4] in [-128, 128), uint8[2, 3, 3, 2] in [0, 256) {pads=(H, 0, 1, 0), zero=9}",
)
def conv2d_integer(
    x: Array,
    w: Array,
    *,
    zero: int = 0,
    strides: Pair = (1, 1),
    pads: Pads = (0, 0, 0, 0),
    dilations: Pair = (1, 1),
    layout: str = "NCHW",
) -> Array:
    """Images of bytes less `zero`, convolved with bytes `w` (OIHW): sums of 32 bits that wrap.

    Pads hold `zero`: they add nothing (ONNX ConvInteger).
    """
    window: dict[str, Any] = {"strides": strides, "pads": pads, "dilations": dilations}
    moved = to_nchw(x, layout).astype(np.float64) - zero  # sums are exact up to 2**53
    sums = convolved(moved, w.astype(np.float64), groups=1, **window)
    return from_nchw(sums.astype(np.int64).astype(np.int32), layout)


# --- pooling -------------------------------------------------------------------------------------


def _pool_shape(x: Shape, *, layout: str, count_include_pad: bool = False, **window: Any) -> Shape:
    del count_include_pad
    check_rank("pooling", x, 2)
    c, *plane = planes(layout)
    height, width = pool_extents(tuple(x[at] for at in plane), **window)
    return arrange(layout, x[0], x[c], height, width)


def _max_pool_padding(
    _arg: int, at: int, _x: Shape, *, pads: Pads, ceil_mode: bool, layout: str, **_: Any
) -> Padding:
    if at in (0, planes(layout)[0]):
        return FREE
    rule = _reaches_end(at, layout, pads, Fill(-math.inf))
    return Fill(-math.inf) if ceil_mode and rule is FREE else rule


def _avg_pool_padding(
    _arg: int,
    at: int,
    _x: Shape,
    *,
    pads: Pads,
    ceil_mode: bool,
    count_include_pad: bool,
    layout: str,
    **_: Any,
) -> Padding:
    if at in (0, planes(layout)[0]):
        return FREE
    if ceil_mode:
        return UNSAFE  # how many elements are counted depends on the true end
    return _reaches_end(at, layout, pads, Fill(0) if count_include_pad else UNSAFE)


def _pool(padding: Callable[..., Padding], extra: str = "") -> Callable[[Callable[..., Array]], Op]:
    return op(
        shape=_pool_shape,
        padding=padding,
        example="float32[N, C, H+1, W+1] {kernel=(2, 2)}; "
        "float32[N, C, H+2, W+2] {kernel=(3, 2), strides=(2, 1), pads=(1, 0, 1, 1)}; "
        "float32[N, H+4, W+4, C] {kernel=(3, 2), strides=(2, 2), dilations=(2, 1), layout='NHWC'}; "
        "float32[N, C, H+1, W+1] {kernel=(2, 2), strides=(2, 3), ceil_mode=True}; "
        "float32[N, C, H+2, W+2] {kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1), ceil_mode=True}"
        + extra,
    )


@_pool(_max_pool_padding)
def max_pool2d(
    x: Array,
    *,
    kernel: Pair,
    strides: Pair = (1, 1),
    pads: Pads = (0, 0, 0, 0),
    dilations: Pair = (1, 1),
    ceil_mode: bool = False,
    layout: str = "NCHW",
) -> Array:
    """The greatest element of each window (ONNX MaxPool)."""
    steps: dict[str, Any] = {
        "kernel": kernel,
        "strides": strides,
        "pads": pads,
        "dilations": dilations,
    }
    return from_nchw(greatest(to_nchw(x, layout), ceil_mode=ceil_mode, **steps), layout)


@_pool(
    _avg_pool_padding,
    "; float32[N, C, H+2, W+2] {kernel=(3, 3), pads=(1, 1, 1, 1), count_include_pad=True}"
    "; float32[N, C, H+2, W+2] "
    "{kernel=(3, 3), strides=(2, 2), pads=(1, 0, 1, 0), count_include_pad=True, ceil_mode=True}",
)
def avg_pool2d(  # noqa: PLR0913  the attributes of ONNX AveragePool
    x: Array,
    *,
    kernel: Pair,
    strides: Pair = (1, 1),
    pads: Pads = (0, 0, 0, 0),
    dilations: Pair = (1, 1),
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    layout: str = "NCHW",
) -> Array:
    """The mean of each window, over what of it lies in the image, or in its pads too (ONNX)."""
    attrs: dict[str, Any] = {"ceil_mode": ceil_mode, "count_include_pad": count_include_pad}
    attrs |= {"kernel": kernel, "strides": strides, "pads": pads, "dilations": dilations}
    return from_nchw(mean(to_nchw(x, layout), **attrs), layout)
