"""Deformable convolution: each element of a window is read from a place of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from bucketize.op import FREE, UNSAFE, Array, op
from bucketize.ops.window.rules import check_channels, check_groups, check_rank, conv_extents
from bucketize.types import Shape, meet, product

__all__ = ["deform_conv2d"]

Pair = tuple[int, int]
CORNERS = ((0, 0), (0, 1), (1, 0), (1, 1))


def _shape(
    x: Shape,
    w: Shape,
    offset: Shape,
    mask: Shape,
    *,
    groups: int,
    offset_groups: int,
    **window: Any,
) -> Shape:
    for shape in (x, w, offset, mask):
        check_rank("deform_conv2d", shape, 2)
    check_channels(x[1], w, groups)
    check_groups(x[1], offset_groups, "channels")
    plane = conv_extents(x[2:], w[2:], **window)
    taps = product(w[2:]) * offset_groups
    for operand, each in ((offset, 2), (mask, 1)):
        for have, want in zip(operand, (x[0], taps * each, *plane), strict=True):
            meet(have, want)
    return (x[0], w[0], *plane)


@op(
    shape=_shape,
    padding=lambda arg, at, *_, **__: FREE if at == 0 and arg != 1 else UNSAFE,
    example="float32[N, C, H+1, W+2], float32[O, C, 2, 3], float32[N, 12, H, W], "
    "float32[N, 6, H, W]; "
    "float32[N, 4, H+2, W+1], float32[6, 2, 2, 2], float32[N, 16, H, W], float32[N, 8, H, W] "
    "{groups=2, offset_groups=2, dilations=(2, 1)}; "
    "float32[N, C, 2*H+1, W], float32[O, C, 3, 1], float32[N, 6, H+1, W], float32[N, 3, H+1, W] "
    "{strides=(2, 1), pads=(1, 0, 1, 0)}",
)
def deform_conv2d(  # noqa: PLR0913  the attributes of ONNX DeformConv
    x: Array,
    w: Array,
    offset: Array,
    mask: Array,
    *,
    strides: Pair = (1, 1),
    pads: tuple[int, int, int, int] = (0, 0, 0, 0),
    dilations: Pair = (1, 1),
    groups: int = 1,
    offset_groups: int = 1,
) -> Array:
    """Images convolved with `w` (OIHW), read `offset` from where windows lie, times `mask` (ONNX).

    `offset` is [N, (group, window, 2), H, W] and `mask` [N, (group, window), H, W]. What is read
    between four elements is their mean by its distance from them; outside the image they are 0.
    """
    n, c = x.shape[:2]
    out, inner, *kernel = w.shape
    plane = offset.shape[2:]
    moves = offset.reshape(n, offset_groups, *kernel, 2, *plane)
    weight = mask.reshape(n, offset_groups, *kernel, *plane)
    weights = w.reshape(groups, out // groups, inner, *kernel)
    rows, columns = np.indices(plane)
    area = plane[0] * plane[1]
    total = np.zeros((n, groups, out // groups, area), x.dtype)
    for i, j in np.ndindex(*kernel):
        y = rows * strides[0] - pads[0] + i * dilations[0] + moves[:, :, i, j, 0]
        z = columns * strides[1] - pads[1] + j * dilations[1] + moves[:, :, i, j, 1]
        met = _between(x, offset_groups, y, z) * weight[:, :, i, j, None]
        total += weights[..., i, j] @ met.reshape(n, groups, c // groups, area)
    return total.reshape(n, out, *plane)


def _between(x: Array, groups: int, y: Array, z: Array) -> Array:
    """The elements of [N, C, H, W] at [N, groups, ...] places, as [N, groups, channel, ...]."""
    n, c, *sizes = x.shape
    flat = x.reshape(n, groups, c // groups, sizes[0] * sizes[1])
    top, left = np.floor(y), np.floor(z)
    means = np.zeros((*flat.shape[:3], *y.shape[2:]), x.dtype)
    if not flat.shape[-1]:
        return means
    for down, right in CORNERS:
        row, column = top + down, left + right
        share = (1 - np.abs(y - row)) * (1 - np.abs(z - column))
        inside = (row >= 0) & (row < sizes[0]) & (column >= 0) & (column < sizes[1])
        place = np.where(inside, row * sizes[1] + column, 0).astype(np.int64)
        read = np.take_along_axis(
            flat, place.reshape(n, groups, 1, y.shape[2] * y.shape[3]), 3
        ).reshape(means.shape)
        means += np.where(inside, share, 0).astype(x.dtype)[:, :, None] * read
    return means
