"""Operators that slide a window over the two last axes (or the two middle ones, for NHWC).

The rules are those of windows over any number of axes.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from bucketize.errors import TypeRelError
from bucketize.op import FREE, UNSAFE, Array, Fill, Padding, op
from bucketize.ops.rules import check_bytes, check_word, limits, same
from bucketize.ops.window import rules
from bucketize.types import Dim, Shape
from bucketize.types.number import DType

__all__ = ["avg_pool2d", "conv2d", "conv2d_integer", "max_pool2d"]

Pair = tuple[int, int]
Pads = tuple[Dim, Dim, Dim, Dim]

LAYOUTS = ("NCHW", "NHWC")


def planes(layout: str, axes: int = 2) -> tuple[int, ...]:
    """The positions of channels, and of each axis of the image: height and width."""
    check_word("layout", layout, LAYOUTS)
    image = range(2, axes + 2) if layout == "NCHW" else range(1, axes + 1)
    return (1 if layout == "NCHW" else axes + 1, *image)


def arrange(layout: str, batch: Dim, channels: Dim, *image: Dim) -> Shape:
    """The shape of images in a layout."""
    return (batch, channels, *image) if layout == "NCHW" else (batch, *image, channels)


def _reaches_end(axis: int, pads: Shape, fill: Padding) -> Padding:
    """What must hold behind the true end of an axis: `fill`, if windows reach there at all."""
    lo, hi = pads[axis], pads[len(pads) // 2 + axis]
    if not isinstance(lo, int) or not isinstance(hi, int):
        return UNSAFE
    return fill if hi else FREE


def to_nchw(x: Array, layout: str) -> Array:
    """Images in NCHW, a view."""
    return x if layout == "NCHW" else x.transpose(0, 3, 1, 2)


def from_nchw(x: Array, layout: str) -> Array:
    """Images that were in NCHW."""
    return x if layout == "NCHW" else np.ascontiguousarray(x.transpose(0, 2, 3, 1))


# --- convolution ---------------------------------------------------------------------------------


def conv_shape(
    axes: int,
    x: Shape,
    w: Shape,
    *,
    groups: int,
    precision: str,
    layout: str = "NCHW",
    **window: Any,
) -> Shape:
    """The shape rule of a convolution over so many axes."""
    check_word("precision", precision, rules.PRECISIONS)
    for shape in (x, w):
        rules.check_rank(f"conv{axes}d", shape, axes)
    channels, *image = planes(layout, axes)
    rules.check_channels(x[channels], w, groups)
    extents = rules.conv_extents(tuple(x[a] for a in image), w[2:], **window)
    return arrange(layout, x[0], w[0], *extents)


def conv_padding(
    arg: int,
    at: int,
    x: Shape,
    w: Shape,
    *,
    pads: Shape,
    groups: int,
    layout: str = "NCHW",
    **_: Any,
) -> Padding:
    """The padding rule of a convolution."""
    channels, *image = planes(layout, len(x) - 2)
    if arg == 0 and at in image:
        return _reaches_end(image.index(at), pads, Fill(0))
    if arg == 0 and at == 0:
        return FREE
    if groups > 1 or (arg == 1 and at > 1):
        return UNSAFE
    if arg == 1 and at == 0:
        return FREE
    return Fill(0) if same(x[channels], w[1]) else UNSAFE


@op(
    shape=partial(conv_shape, 2),
    padding=conv_padding,
    work=rules.conv_work,
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
    return from_nchw(rules.convolved(to_nchw(x, layout), w, groups=groups, **window), layout)


def _integer_shape(x: Shape, w: Shape, *, zero: int, layout: str, **window: Any) -> Shape:
    del zero
    return conv_shape(2, x, w, groups=1, layout=layout, precision=rules.PRECISIONS[0], **window)


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
    rule = conv_padding(arg, at, x, w, layout=layout, groups=1, **window)
    return Fill(zero) if arg == 0 and at != planes(layout)[0] and rule == Fill(0) else rule


@op(
    shape=_integer_shape,
    dtype=_integer_dtype,
    padding=_integer_padding,
    work=rules.conv_work,
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
    sums = rules.convolved(moved, w.astype(np.float64), groups=1, **window)
    return from_nchw(sums.astype(np.int64).astype(np.int32), layout)


# --- pooling -------------------------------------------------------------------------------------


def pool_shape(
    axes: int, x: Shape, *, layout: str = "NCHW", count_include_pad: bool = False, **window: Any
) -> Shape:
    """The shape rule of a pool over so many axes."""
    del count_include_pad
    rules.check_rank("pooling", x, axes)
    channels, *image = planes(layout, axes)
    extents = rules.pool_extents(tuple(x[a] for a in image), **window)
    return arrange(layout, x[0], x[channels], *extents)


def pool_padding(
    _arg: int,
    at: int,
    x: Shape,
    *,
    pads: Shape,
    ceil_mode: bool,
    layout: str = "NCHW",
    count_include_pad: bool | None = None,
    **_: Any,
) -> Padding:
    """The padding rule of a pool: of maxima, or of means that count pads or do not."""
    _channels, *image = planes(layout, len(x) - 2)
    if at not in image:
        return FREE
    if count_include_pad is None:
        rule = _reaches_end(image.index(at), pads, Fill(-math.inf))
        return Fill(-math.inf) if ceil_mode and rule is FREE else rule
    if ceil_mode:
        return UNSAFE  # how many elements are counted depends on the true end
    return _reaches_end(image.index(at), pads, Fill(0) if count_include_pad else UNSAFE)


POOLS = (
    "float32[N, C, H+1, W+1] {kernel=(2, 2)}; "
    "float32[N, C, H+2, W+2] {kernel=(3, 2), strides=(2, 1), pads=(1, 0, 1, 1)}; "
    "float32[N, H+4, W+4, C] {kernel=(3, 2), strides=(2, 2), dilations=(2, 1), layout='NHWC'}; "
    "float32[N, C, H+1, W+1] {kernel=(2, 2), strides=(2, 3), ceil_mode=True}; "
    "float32[N, C, H+2, W+2] {kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1), ceil_mode=True}"
)


@op(shape=partial(pool_shape, 2), padding=pool_padding, example=POOLS)
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
    window: dict[str, Any] = {"strides": strides, "pads": pads, "dilations": dilations}
    images = to_nchw(x, layout)
    return from_nchw(rules.greatest(images, kernel=kernel, ceil_mode=ceil_mode, **window), layout)


@op(
    shape=partial(pool_shape, 2),
    padding=pool_padding,
    example=f"{POOLS}; "
    "float32[N, C, H+2, W+2] {kernel=(3, 3), pads=(1, 1, 1, 1), count_include_pad=True}; "
    "float32[N, C, H+2, W+2] "
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
    return from_nchw(rules.mean(to_nchw(x, layout), **attrs), layout)
