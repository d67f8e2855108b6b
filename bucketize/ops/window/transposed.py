"""Transposed convolution: each element of an image spreads a window of weights over the result."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bucketize.errors import TypeRelError
from bucketize.op import FREE, UNSAFE, Array, Fill, Padding, op
from bucketize.ops.rules import check_word, same
from bucketize.ops.window import rules
from bucketize.types import Dim, Shape, meet, rely_on_least

__all__ = ["conv_transpose"]

AXES = (2, 3)


def _shape(x: Shape, w: Shape, *, groups: int, precision: str, **window: Any) -> Shape:
    check_word("precision", precision, rules.PRECISIONS)
    axes = len(w) - 2
    if axes not in AXES:
        raise TypeRelError(f"conv_transpose takes windows over 2 or 3 axes, got {axes}")
    rules.check_rank("conv_transpose", x, axes)
    rules.check_groups(w[0], groups, "channels")
    meet(x[1], w[0])
    rely_on_least(w[1], 1)
    return (x[0], w[1] * groups, *_extents(x[2:], w[2:], **window))


def _extents(
    image: Shape, kernel: Shape, *, strides: Any, pads: Any, dilations: Any, output_padding: Any
) -> tuple[Dim, ...]:
    axes = len(image)
    rules.check_window(kernel, strides, dilations, pads, axes)
    rules.check_numbers("output_padding", output_padding, axes, 0)
    sides = pads[:axes], pads[axes:], output_padding
    along = zip(image, kernel, strides, dilations, *sides, strict=True)
    return tuple(_extent(*axis) for axis in along)


def _extent(size: Dim, kernel: Dim, stride: int, dilation: int, lo: Dim, hi: Dim, more: Dim) -> Dim:
    extent = (size - 1) * stride + (kernel - 1) * dilation + 1 + more - lo - hi
    if isinstance(extent, int) and extent < 0:
        raise TypeRelError(f"pads {lo} and {hi} of a result of {extent + lo + hi} elements")
    rely_on_least(extent, 0)
    return extent


def _padding(arg: int, at: int, x: Shape, w: Shape, *, groups: int, **window: Any) -> Padding:
    if arg == 0 and at > 1:
        return _reaches_end(at - 2, w, **window)
    if arg == 0 and at == 0:
        return FREE
    if groups > 1 or at > 1:
        return UNSAFE
    if arg == 1 and at == 1:
        return FREE
    return Fill(0) if same(x[1], w[0]) else UNSAFE


def _reaches_end(
    axis: int, w: Shape, *, strides: Any, pads: Any, dilations: Any, output_padding: Any, **_: Any
) -> Padding:
    """What must hold behind the true end of an axis: zeros, if they spread before the result's."""
    axes = len(w) - 2
    after, more, kernel = pads[axes + axis], output_padding[axis], w[2 + axis]
    if not all(isinstance(d, int) for d in (pads[axis], after, more, kernel)):
        return UNSAFE
    spreads = (kernel - 1) * dilations[axis] + 1 + more - strides[axis] > after
    return Fill(0, finite=1) if spreads else FREE


@op(
    shape=_shape,
    padding=_padding,
    example="float32[N, C, H, W], float32[C, O, 2, 2] "
    "{strides=(2, 2), pads=(0, 0, 0, 0), dilations=(1, 1), output_padding=(0, 0)}; "
    "float32[N, C, H, W], float32[C, O, 4, 3] "
    "{strides=(2, 2), pads=(1, 1, 1, 1), dilations=(1, 1), output_padding=(0, 1)}; "
    "float32[N, 4, H, W], float32[4, 3, 3, 2] {strides=(1, 3), pads=(0, 1, 1, 0), "
    "dilations=(2, 2), output_padding=(0, 2), groups=2}; "
    "float32[N, 2, H, W], float32[2, O, K, 2] {strides=(2, 1), pads=(0, 0, 0, 0), "
    "dilations=(1, 1), output_padding=(0, 0)}; "
    "float32[N, 2, H+1, W+3], float32[2, O, 1, 1] {strides=(1, 2), pads=(H, 1, 0, 2), "
    "dilations=(1, 1), output_padding=(1, W)}; "
    "float32[N, C, D, H, W], float32[C, O, 2, 3, 2] {strides=(2, 2, 1), pads=(0, 1, 0, 0, 0, 1), "
    "dilations=(1, 1, 1), output_padding=(0, 1, 0)}",
)
def conv_transpose(  # noqa: PLR0913  the attributes of ONNX ConvTranspose
    x: Array,
    w: Array,
    *,
    strides: tuple[int, ...],
    pads: tuple[Dim, ...],
    dilations: tuple[int, ...],
    output_padding: tuple[Dim, ...],
    groups: int = 1,
    precision: str = "default",
) -> Array:
    """Images, or volumes, [N, C, ...] spread by `w` [C, O / groups, ...] (ONNX ConvTranspose).

    The result lacks `pads` elements before and after each axis, and has `output_padding` more
    behind what it lacks. `precision` is that of `conv2d`.
    """
    del precision
    window: dict[str, Any] = {"strides": strides, "pads": pads, "dilations": dilations}
    out: Any = _extents(x.shape[2:], w.shape[2:], **window, output_padding=output_padding)
    n, c, *sizes = x.shape
    kernel, axes = w.shape[2:], len(sizes)
    images = x.reshape(n, groups, c // groups, math.prod(sizes))
    weights = w.reshape(groups, c // groups, w.shape[1], *kernel)
    before: Any = pads[:axes]
    full = np.zeros((n, groups, w.shape[1], *_reach(before, out, sizes, kernel, window)), x.dtype)
    for place, met in rules.taps(full, kernel, strides, dilations, tuple(sizes)):
        at: Any = (..., *place)
        met[...] += (weights[at].swapaxes(1, 2) @ images).reshape(met.shape)
    cut: Any = [slice(lo, lo + e) for lo, e in zip(before, out, strict=True)]
    return full.reshape(n, groups * w.shape[1], *full.shape[3:])[(..., *cut)]


def _reach(before: Any, out: Any, sizes: Any, kernel: Any, window: dict[str, Any]) -> list[int]:
    """The extents of what holds all that is spread, and the result."""
    steps = zip(before, out, sizes, kernel, window["strides"], window["dilations"], strict=True)
    return [
        max(lo + extent, (size - 1) * stride + (k - 1) * dilation + 1)
        for lo, extent, size, k, stride, dilation in steps
    ]
