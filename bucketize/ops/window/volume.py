"""Operators that slide a window over the three last axes: depth, height and width."""

from __future__ import annotations

from functools import partial

from bucketize.op import Array, op
from bucketize.ops.window.image import conv_padding, conv_shape, pool_padding, pool_shape
from bucketize.ops.window.rules import conv_work, convolved, greatest, mean
from bucketize.types import Dim

__all__ = ["avg_pool3d", "conv3d", "max_pool3d"]

Triple = tuple[int, int, int]
Pads = tuple[Dim, Dim, Dim, Dim, Dim, Dim]
NO_PADS = (0, 0, 0, 0, 0, 0)


@op(
    shape=partial(conv_shape, 3),
    padding=conv_padding,
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


POOLS = (
    "float32[N, C, D+1, H+1, W+1] {kernel=(2, 2, 2)}; "
    "float32[N, C, D+2, H+2, W+2] {kernel=(3, 2, 1), strides=(2, 1, 2), pads=(1, 0, 0, 1, 1, 0)}; "
    "float32[N, C, D+4, H+2, W] {kernel=(3, 2, 1), strides=(2, 2, 1), dilations=(2, 1, 1)}; "
    "float32[N, C, D+2, H+1, W+2] "
    "{kernel=(3, 2, 3), strides=(2, 3, 2), pads=(1, 0, 1, 1, 0, 1), ceil_mode=True}"
)


@op(shape=partial(pool_shape, 3), padding=pool_padding, example=POOLS)
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
    shape=partial(pool_shape, 3),
    padding=pool_padding,
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
