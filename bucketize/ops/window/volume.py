"""Operators that slide a window over the three last axes: depth, height and width."""

from __future__ import annotations

import math
from typing import Any

from bucketize.op import FREE, UNSAFE, Array, Fill, Padding, op
from bucketize.ops.rules import same
from bucketize.ops.window.rules import (
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

__all__ = ["avg_pool3d", "conv3d", "max_pool3d"]

Triple = tuple[int, int, int]
Pads = tuple[Dim, Dim, Dim, Dim, Dim, Dim]
AXES = 3
NO_PADS = (0, 0, 0, 0, 0, 0)


def _conv_shape(x: Shape, w: Shape, *, groups: int, precision: str, **window: Any) -> Shape:
    check_precision(precision)
    check_rank("conv3d", x, AXES)
    check_rank("conv3d", w, AXES)
    check_channels(x[1], w, groups)
    return (x[0], w[0], *conv_extents(x[2:], w[2:], **window))


def _conv_padding(
    arg: int, at: int, x: Shape, w: Shape, *, pads: Pads, groups: int, **_: Any
) -> Padding:
    if arg == 0 and at > 1:
        return reaches_end(pads[at - 2], pads[at + 1], Fill(0))
    if arg == 0 and at == 0:
        return FREE
    if groups > 1 or (arg == 1 and at > 1):
        return UNSAFE
    if arg == 1 and at == 0:
        return FREE
    return Fill(0) if same(x[1], w[1]) else UNSAFE


@op(
    shape=_conv_shape,
    padding=_conv_padding,
    work=conv_work,
    example="float32[N, C, D+2, H+2, W+2], float32[O, C, 3, 2, 3] {pads=(1, 0, 1, 1, 0, 1)}; "
    "float32[N, C, D+4, H+2, W+2], float32[O, C, 3, 1, 3] {dilations=(2, 1, 1), strides=(1, 2, 2)};"
    "float32[N, 4, D+2, H, W], float32[6, 2, 3, 1, 2] {groups=2, pads=(1, 0, 0, 0, 0, 1)}; "
    "float32[N, C, D, H+1, W], float32[O, C, 1, 2, 1] {strides=(2, 1, 1)}; "
    "float32[1, 3, D+K, 2, 2], float32[2, 3, K, 2, 2]; "
    "float32[1, 3, D+3, 4, 2], float32[2, 3, 3, 2, 2] {pads=(D, 0, 0, 1, 0, 0)}",
)
def conv3d(
    x: Array,
    w: Array,
    *,
    strides: Triple = (1, 1, 1),
    pads: Pads = NO_PADS,
    dilations: Triple = (1, 1, 1),
    groups: int = 1,
    precision: str = "default",
) -> Array:
    """Volumes [N, C, D, H, W] convolved with `w` [O, C / groups, ...]; zeros pad each side.

    `precision` is that of `conv2d`.
    """
    del precision
    return convolved(x, w, strides=strides, pads=pads, dilations=dilations, groups=groups)


def _pool_shape(x: Shape, *, count_include_pad: bool = False, **window: Any) -> Shape:
    del count_include_pad
    check_rank("pooling", x, AXES)
    return (x[0], x[1], *pool_extents(x[2:], **window))


def _max_pool_padding(
    _arg: int, at: int, _x: Shape, *, pads: Pads, ceil_mode: bool, **_: Any
) -> Padding:
    if at < 2:
        return FREE
    rule = reaches_end(pads[at - 2], pads[at + 1], Fill(-math.inf))
    return Fill(-math.inf) if ceil_mode and rule is FREE else rule


def _avg_pool_padding(
    _arg: int, at: int, _x: Shape, *, pads: Pads, ceil_mode: bool, count_include_pad: bool, **_: Any
) -> Padding:
    if at < 2:
        return FREE
    if ceil_mode:
        return UNSAFE  # how many elements are counted depends on the true end
    return reaches_end(pads[at - 2], pads[at + 1], Fill(0) if count_include_pad else UNSAFE)


POOLS = (
    "float32[N, C, D+1, H+1, W+1] {kernel=(2, 2, 2)}; "
    "float32[N, C, D+2, H+2, W+2] {kernel=(3, 2, 1), strides=(2, 1, 2), pads=(1, 0, 0, 1, 1, 0)}; "
    "float32[N, C, D+4, H+2, W] {kernel=(3, 2, 1), strides=(2, 2, 1), dilations=(2, 1, 1)}; "
    "float32[N, C, D+2, H+1, W+2] "
    "{kernel=(3, 2, 3), strides=(2, 3, 2), pads=(1, 0, 1, 1, 0, 1), ceil_mode=True}"
)


@op(shape=_pool_shape, padding=_max_pool_padding, example=POOLS)
def max_pool3d(
    x: Array,
    *,
    kernel: Triple,
    strides: Triple = (1, 1, 1),
    pads: Pads = NO_PADS,
    dilations: Triple = (1, 1, 1),
    ceil_mode: bool = False,
) -> Array:
    """The greatest element of each window of a volume (ONNX MaxPool)."""
    return greatest(
        x, kernel=kernel, strides=strides, pads=pads, dilations=dilations, ceil_mode=ceil_mode
    )


@op(
    shape=_pool_shape,
    padding=_avg_pool_padding,
    example=f"{POOLS}; float32[N, C, D+2, H+2, W+2] {{kernel=(3, 3, 3), strides=(2, 2, 1), "
    "pads=(1, 0, 1, 1, 0, 1), count_include_pad=True, ceil_mode=True}; "
    "float32[N, C, D+1, H+1, W] {kernel=(2, 3, 1), pads=(0, 1, 0, 1, 1, 0), "
    "count_include_pad=True}",
)
def avg_pool3d(
    x: Array,
    *,
    kernel: Triple,
    strides: Triple = (1, 1, 1),
    pads: Pads = NO_PADS,
    dilations: Triple = (1, 1, 1),
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Array:
    """The mean of each window of a volume, over what lies in it, or in its pads too (ONNX)."""
    return mean(
        x,
        kernel=kernel,
        strides=strides,
        pads=pads,
        dilations=dilations,
        ceil_mode=ceil_mode,
        count_include_pad=count_include_pad,
    )
