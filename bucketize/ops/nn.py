"""Operators that slide a window over the two last axes (or the two middle ones, for NHWC)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np

from bucketize.errors import TypeRelError
from bucketize.op import FREE, UNSAFE, Array, Fill, Op, Padding, op
from bucketize.ops.rules import ENDLESS, same
from bucketize.types import Dim, Shape, Symbolic, meet, minimum, rely_on_least

Pair = tuple[int, int]
Pads = tuple[Dim, Dim, Dim, Dim]

LAYOUTS = ("NCHW", "NHWC")
PRECISIONS = ("default", "exact")


def _planes(layout: str) -> tuple[int, int, int]:
    """The positions of channels, height and width."""
    if layout not in LAYOUTS:
        raise TypeRelError(f"no layout {layout!r}; known: {', '.join(LAYOUTS)}")
    return (1, 2, 3) if layout == "NCHW" else (3, 1, 2)


def _plane(shape: Shape, layout: str) -> tuple[int, int]:
    """The height and width of a known shape."""
    height, width = (shape[at] for at in _planes(layout)[1:])
    assert isinstance(height, int)
    assert isinstance(width, int)
    return height, width


def _arrange(layout: str, batch: Dim, channels: Dim, height: Dim, width: Dim) -> Shape:
    return (
        (batch, channels, height, width) if layout == "NCHW" else (batch, height, width, channels)
    )


def _windows(size: Dim, kernel: Dim, stride: int, dilation: int, lo: Dim, hi: Dim) -> Dim:
    """The number of windows that fit."""
    room = size + lo + hi - (kernel - 1) * dilation - 1
    if isinstance(room, int) and room < 0:
        raise TypeRelError(f"a window of {kernel} (dilated by {dilation}) over {size}+{lo}+{hi}")
    rely_on_least(room, 0)
    return room // stride + 1


def _rank_4(name: str, x: Shape) -> None:
    if len(x) != 4:
        raise TypeRelError(f"{name} takes images of rank 4, got rank {len(x)}")


def _check_window(kernel: Sequence[Dim], strides: Any, dilations: Any, pads: Any) -> None:
    """Two extents of a window, two steps of each kind and four pads, all of them numbers."""
    _check_numbers("kernel", kernel, 2, 1)
    _check_numbers("strides", strides, 2, 1)
    _check_numbers("dilations", dilations, 2, 1)
    _check_numbers("pads", pads, 4, 0)


def _check_numbers(name: str, numbers: Any, count: int, least: int) -> None:
    """So many numbers, none of them less than `least`: of those that are dims it is relied on."""
    listed = numbers if isinstance(numbers, tuple | list) else ()
    if len(listed) != count or any(_is_below(n, least) for n in listed):
        raise TypeRelError(f"{name} must be {count} numbers from {least} up, got {numbers!r}")
    if any(isinstance(n, int) and n > ENDLESS for n in listed):
        raise TypeRelError(f"{name}, {numbers!r}: no axis is that long")
    for number in listed:
        rely_on_least(number, least)


def _is_below(number: Any, least: int) -> bool:
    """Whether it is certain that this is no number from `least` up."""
    if isinstance(number, Symbolic):
        return False
    return not isinstance(number, int | np.integer) or int(number) < least


def _reaches_end(at: int, layout: str, pads: Pads, fill: Padding) -> Padding:
    """What must hold behind the true end of a plane: `fill`, if windows reach there at all."""
    lo, hi = (pads[0], pads[2]) if at == _planes(layout)[1] else (pads[1], pads[3])
    if not isinstance(lo, int) or not isinstance(hi, int):
        return UNSAFE
    return fill if hi else FREE


def _taps(
    x: Array, kernel: Sequence[int], strides: Pair, dilations: Pair, out: Pair
) -> Iterator[tuple[int, int, Array]]:
    """For each place in the window, the elements (in the last two axes) that it meets."""
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            top, left = i * dilations[0], j * dilations[1]
            rows = slice(top, top + strides[0] * (out[0] - 1) + 1, strides[0])
            columns = slice(left, left + strides[1] * (out[1] - 1) + 1, strides[1])
            yield i, j, x[..., rows, columns]


def _grown(x: Array, pads: Any, value: float) -> Array:
    """`x` with pads (top, left, bottom, right) of `value` around the last two axes."""
    top, left, bottom, right = pads
    return np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=value)


def _to_nchw(x: Array, layout: str) -> Array:
    return x if layout == "NCHW" else x.transpose(0, 3, 1, 2)


def _from_nchw(x: Array, layout: str) -> Array:
    return x if layout == "NCHW" else np.ascontiguousarray(x.transpose(0, 2, 3, 1))


# --- convolution ---------------------------------------------------------------------------------


def _conv_shape(  # noqa: PLR0913 of the op
    x: Shape,
    w: Shape,
    *,
    strides: Pair,
    pads: Pads,
    dilations: Pair,
    groups: int,
    layout: str,
    precision: str,
) -> Shape:
    if precision not in PRECISIONS:
        raise TypeRelError(f"no precision {precision!r}; known: {', '.join(PRECISIONS)}")
    _rank_4("conv2d", x)
    _rank_4("conv2d", w)
    c, *plane = _planes(layout)
    _check_window(w[2:], strides, dilations, pads)
    _check_channels(x[c], w, groups)
    height, width = (
        _windows(x[at], w[2 + i], strides[i], dilations[i], pads[i], pads[i + 2])
        for i, at in enumerate(plane)
    )
    return _arrange(layout, x[0], w[0], height, width)


def _check_channels(channels: Dim, w: Shape, groups: int) -> None:
    """As many channels as the weights read, and outputs, at least one, that the groups share."""
    if _is_below(groups, 1) or _is_below(w[0], 1) or not _divides(groups, w[0]):
        raise TypeRelError(f"{w[0]} output channels in {groups} groups")
    meet(channels, w[1] * groups)
    rely_on_least(w[0], 1)


def _divides(groups: int, outputs: Dim) -> bool:
    """Whether the groups may have as many outputs each, which is relied on."""
    if isinstance(outputs, int):
        return outputs % groups == 0
    meet(outputs % groups, 0)
    return True


def _conv_padding(
    arg: int, at: int, x: Shape, w: Shape, *, pads: Pads, groups: int, layout: str, **_: Any
) -> Padding:
    channels = _planes(layout)[0]
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
    shape = _conv_shape(
        x.shape,
        w.shape,
        strides=strides,
        pads=pads,
        dilations=dilations,
        groups=groups,
        layout=layout,
        precision=precision,
    )
    out = _plane(shape, layout)
    grown = _grown(_to_nchw(x, layout), pads, 0)
    n, c, *sizes = grown.shape
    o, inner, *kernel = w.shape
    images = grown.reshape(n, groups, c // groups, *sizes)
    weights = w.reshape(groups, o // groups, inner, *kernel)
    total = np.zeros((n, groups, o // groups, math.prod(out)), x.dtype)
    for i, j, tap in _taps(images, kernel, strides, dilations, out):
        total += weights[..., i, j] @ tap.reshape(n, groups, inner, math.prod(out))
    return _from_nchw(total.reshape(n, o, *out), layout)


# --- pooling -------------------------------------------------------------------------------------


def _pool_windows(
    size: Dim, kernel: int, stride: int, dilation: int, pads: tuple[Dim, Dim], ceil_mode: bool
) -> Dim:
    lo, hi = pads
    if not ceil_mode:
        return _windows(size, kernel, stride, dilation, lo, hi)
    begun = (size + lo - 1) // stride + 1  # windows must begin before the padding at the end
    return minimum(_windows(size, kernel, stride, dilation, lo, hi + (stride - 1)), begun)


def _pool_shape(
    x: Shape,
    *,
    kernel: Pair,
    strides: Pair,
    pads: Pads,
    dilations: Pair,
    ceil_mode: bool,
    layout: str,
    **_: Any,
) -> Shape:
    _rank_4("pooling", x)
    _check_window(kernel, strides, dilations, pads)
    c, *plane = _planes(layout)
    height, width = (
        _pool_windows(x[at], kernel[i], strides[i], dilations[i], (pads[i], pads[i + 2]), ceil_mode)
        for i, at in enumerate(plane)
    )
    return _arrange(layout, x[0], x[c], height, width)


def _max_pool_padding(
    _arg: int, at: int, _x: Shape, *, pads: Pads, ceil_mode: bool, layout: str, **_: Any
) -> Padding:
    if at in (0, _planes(layout)[0]):
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
    if at in (0, _planes(layout)[0]):
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


def _least(dtype: np.dtype[Any]) -> float:
    return -math.inf if dtype.kind == "f" else int(np.iinfo(dtype).min)


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
    out = _pool_extents(x, kernel, strides, pads, dilations, ceil_mode, layout)
    grown = _grown(_to_nchw(x, layout), _enough(pads, strides), _least(x.dtype))
    best = np.full((*grown.shape[:2], *out), _least(x.dtype), x.dtype)
    for _, _, tap in _taps(grown, kernel, strides, dilations, out):
        np.maximum(best, tap, out=best)
    return _from_nchw(best, layout)


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
    out = _pool_extents(x, kernel, strides, pads, dilations, ceil_mode, layout)
    images = _to_nchw(x, layout)
    counted = np.ones((1, 1, *images.shape[2:]), x.dtype)
    if count_include_pad:
        images, counted = _grown(images, pads, 0), _grown(counted, pads, 1)
        rim = _enough((0, 0, 0, 0), strides)
    else:
        rim = _enough(pads, strides)
    images, counted = _grown(images, rim, 0), _grown(counted, rim, 0)
    sums, counts = (
        reduce(np.add, (tap for _, _, tap in _taps(a, kernel, strides, dilations, out)))
        for a in (images, counted)
    )
    return _from_nchw(sums / counts, layout)


def _enough(pads: Any, strides: Pair) -> tuple[int, ...]:
    """Pads that also hold the part of a last window which hangs over (`ceil_mode`)."""
    top, left, bottom, right = pads
    return top, left, bottom + strides[0] - 1, right + strides[1] - 1


def _pool_extents(
    x: Array, kernel: Pair, strides: Pair, pads: Any, dilations: Pair, ceil_mode: bool, layout: str
) -> tuple[int, int]:
    shape = _pool_shape(
        x.shape,
        kernel=kernel,
        strides=strides,
        pads=pads,
        dilations=dilations,
        ceil_mode=ceil_mode,
        layout=layout,
    )
    return _plane(shape, layout)
