"""Converters of what slides a window over an image, or pools all of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bucketize.ir import Atom, Const
from bucketize.onnx.convert.shape import reshaped, same_shape
from bucketize.onnx.node import Node, Unsupported, Untold, cast, converts, wide
from bucketize.op import Op
from bucketize.ops.dim import from_dims
from bucketize.ops.elementwise import arithmetic as e
from bucketize.ops.fill import arange
from bucketize.ops.reduce import reduce_max, reduce_mean
from bucketize.ops.shape import pad, reshape, squeeze, strided_slice, transpose, unsqueeze
from bucketize.ops.window.image import avg_pool2d, max_pool2d
from bucketize.ops.window.volume import avg_pool3d, max_pool3d
from bucketize.types import AnyDim, Dim, Shape, maximum, product

Sizes = tuple[int, ...]
Ops = Mapping[int, Op]

RANKS = (1, 2, 3)
MAX_POOL: Ops = {2: max_pool2d, 3: max_pool3d}
AVG_POOL: Ops = {2: avg_pool2d, 3: avg_pool3d}


def windows_of(n: Node) -> Atom:
    """The weights of a convolution, with windows of `kernel_shape`, if that is given.

    Where the weights do not tell their extents, a run checks them.
    """
    shape, given = n[1].type.shape, n.attr("kernel_shape")
    if not given or shape[2:] == given:
        return n[1]
    pairs = zip(shape[2:], given, strict=False)
    if len(shape) != len(given) + 2 or any(isinstance(d, int) and d != k for d, k in pairs):
        raise Unsupported(f"kernel_shape is {given}, the weights are {n[1].type}")
    return n.emit(reshape, n[1], newshape=(*shape[:2], *given))


@converts("MaxPool")
def _max_pool(n: Node) -> tuple[Atom, ...]:
    kernel, ceil_mode = n.attr("kernel_shape"), bool(n.attr("ceil_mode", 0))
    window, columns_first = window_of(n, kernel), bool(n.attr("storage_order", 0))
    y = slide(n, MAX_POOL, window, -math.inf, n[0], kernel=kernel, ceil_mode=ceil_mode)
    return (y,) if n.outputs == 1 else (y, _places(n, y, window, columns_first))


def _places(n: Node, y: Atom, window: WindowAttributes, columns_first: bool) -> Atom:
    """Where in the whole of x the greatest of each window is, the first of several."""
    batch, channels, *image = n[0].type.shape
    if any(isinstance(d, AnyDim) for d in n[0].type.shape):
        raise Untold(f"the extents of {n[0].type} are not known")
    plane = (1, 1, *(reversed(image) if columns_first else image))
    places: Atom = n.emit(reshape, n.emit(arange, stop=product(plane)), newshape=plane)
    if columns_first:
        places = n.emit(transpose, places, axes=(0, 1, *reversed(range(2, 2 + len(image)))))
    x, places = (
        covered(n, v, y.type.shape[2:], window, f) for v, f in ((n[0], -math.inf), (places, 0))
    )
    out: Atom = Const(np.array(0))
    kernel: Any = window.kernel
    for tap in reversed([*np.ndindex(kernel)]):
        value, place = (_tap(n, v, y, window, tap) for v in (x, places))
        out = n.emit(e.where, n.emit(e.equal, value, y), place, out)
    area = n.emit(from_dims, dims=(product(plane),))
    first = n.emit(e.mul, n.emit(arange, stop=batch * channels), area)
    ones = (1,) * len(image)
    return n.emit(e.add, out, n.emit(reshape, first, newshape=(batch, channels, *ones)))


def covered(n: Node, x: Atom, counts: Shape, window: WindowAttributes, fill: float) -> Atom:
    """`x` with pads before, and so many behind that the last of `counts` windows ends there."""
    pads: list[tuple[Dim, Dim]] = [(0, 0), (0, 0)]
    axes = zip(x.type.shape[2:], counts, window.strides, window.reach, strict=True)
    for (size, count, stride, reach), before in zip(axes, window.pads, strict=False):
        pads.append((before, (count - 1) * stride + reach - size - before))
    return n.emit(pad, x, pads=tuple(pads), value=fill)


def _tap(n: Node, x: Atom, y: Atom, window: WindowAttributes, tap: Sizes) -> Atom:
    """One element of each window."""
    begin = tuple(i * d for i, d in zip(tap, window.dilations, strict=True))
    counts = zip(y.type.shape[2:], window.strides, strict=True)
    end = tuple(b + (c - 1) * s + 1 for b, (c, s) in zip(begin, counts, strict=True))
    axes = tuple(range(2, 2 + len(tap)))
    return n.emit(strided_slice, x, begin=begin, end=end, strides=window.strides, axes=axes)


@converts("AveragePool")
def _average_pool(n: Node) -> Atom:
    kernel, ceil_mode = n.attr("kernel_shape"), bool(n.attr("ceil_mode", 0))
    attrs = {"ceil_mode": ceil_mode, "count_include_pad": bool(n.attr("count_include_pad", 0))}
    return slide(n, AVG_POOL, window_of(n, kernel), None, n[0], kernel=kernel, **attrs)


@converts("LRN")
def _local_response(n: Node) -> Atom:
    """Each element by a power of the mean of the squares of its neighbours' among the channels."""
    alpha, beta = n.attr("alpha", 1e-4), n.attr("beta", 0.75)
    bias, size, x = n.attr("bias", 1.0), n.attr("size"), wide(n, n[0])
    if size < 1:
        raise Unsupported(f"size is {size}")
    if len(x.type.shape) < 2:
        raise Unsupported(f"channels of {x.type}, which must have rank 2 or more")
    batch, channels, *rest = x.type.shape
    rows = reshaped(n, n.emit(e.mul, x, x), (batch, 1, channels, product(tuple(rest))))
    pads = ((size - 1) // 2, 0, size // 2, 0)
    mean = n.emit(avg_pool2d, rows, kernel=(size, 1), pads=pads, count_include_pad=True)
    scaled = n.emit(e.add, n.emit(e.mul, mean, n.like(x, alpha)), n.like(x, bias))
    power = n.emit(e.pow_, same_shape(n, scaled, x), n.like(x, beta))
    return cast(n, n.emit(e.div, x, power), n[0].type.dtype.name)


def _global(op_type: str, op: Op) -> None:
    @converts(op_type)
    def _convert(n: Node) -> Atom:
        return n.emit(op, n[0], axes=tuple(range(2, len(n[0].type.shape))), keepdims=True)


_global("GlobalAveragePool", reduce_mean)
_global("GlobalMaxPool", reduce_max)


@dataclass(frozen=True)
class WindowAttributes:
    """Where windows are: numbers along each axis, and the pads before each, then after each."""

    kernel: Shape
    strides: Sizes
    dilations: Sizes
    pads: Shape

    @property
    def reach(self) -> Shape:
        """The extents of a window, with what lies between its elements."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))


def window_of(n: Node, kernel: Shape) -> WindowAttributes:
    """The windows of a node, which have these extents."""
    strides, dilations = steps(n, kernel)
    return WindowAttributes(kernel, strides, dilations, _pads(n, kernel, strides, dilations))


def steps(n: Node, kernel: Shape) -> tuple[Sizes, Sizes]:
    """The strides and dilations of windows over one to three axes."""
    rank = len(kernel)
    if rank not in RANKS:
        raise Unsupported(f"a window over {rank} axes, expected 1, 2 or 3")
    if len(n[0].type.shape) != rank + 2:
        raise Unsupported(f"a window over {rank} axes of {n[0].type}, expected rank {rank + 2}")
    integers = tuple(k for k in kernel if isinstance(k, int))
    _check_numbers("kernel_shape", integers, len(integers), 1)
    return numbers(n, "strides", rank, 1), numbers(n, "dilations", rank, 1)


def slide(
    n: Node, ops: Ops, window: WindowAttributes, fill: float | None, *args: Atom, **attrs: Any
) -> Atom:
    """One of `ops` over an image; a window along one axis is one of height 1 along two.

    Pads that depend on extents are an op of their own, if a `fill` is as good as none.
    """
    pads = window.pads
    if any(isinstance(p, AnyDim) for p in pads):
        raise Untold(f"auto_pad makes pads ({', '.join(map(str, pads))}) of the run-time size")
    if fill is not None and not all(isinstance(p, int) for p in pads):
        half = len(pads) // 2
        each = ((0, 0), (0, 0), *zip(pads[:half], pads[half:], strict=True))
        args = (n.emit(pad, args[0], pads=each, value=fill), *args[1:])
        pads = (0,) * len(pads)
    attrs |= {"strides": window.strides, "dilations": window.dilations}
    if len(window.kernel) > 1:
        return n.emit(ops[len(window.kernel)], *args, pads=pads, **attrs)
    args = tuple(n.emit(unsqueeze, a, axes=(2,)) for a in args)
    flat = {k: (1, *v) if isinstance(v, tuple) else v for k, v in attrs.items()}
    return n.emit(squeeze, n.emit(ops[2], *args, pads=(0, pads[0], 0, pads[1]), **flat), axes=(2,))


def numbers(n: Node, name: str, count: int, least: int) -> Sizes:
    """An attribute of so many numbers; an empty one is as good as none: the least of each."""
    given: Sizes = n.attr(name) or (least,) * count
    _check_numbers(name, given, count, least)
    return given


def _check_numbers(name: str, given: Sizes, count: int, least: int) -> None:
    if len(given) != count or any(k < least for k in given):
        raise Unsupported(f"{name} must be {count} numbers from {least} up, got {given}")


def _pads(n: Node, kernel: Shape, strides: Sizes, dilations: Sizes) -> Shape:
    """The pads before each axis, then those after each."""
    rule, given = auto_pad(n, len(kernel))
    if not rule.startswith("SAME"):
        return given
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    sizes = n[0].type.shape[2:]
    return halves([_missing(*axis) for axis in zip(sizes, reach, strides, strict=True)], rule)


def auto_pad(n: Node, rank: int) -> tuple[str, Sizes]:
    """How pads are found, and those that are given; none where they are not asked for."""
    rule = n.choice("auto_pad", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
    given = numbers(n, "pads", 2 * rank, 0)
    return rule, given if rule == "NOTSET" else (0,) * len(given)


def halves(total: Sequence[Dim], rule: str) -> Shape:
    """Pads, halved before and behind each axis; an odd one is on the side that the rule says."""
    less, more = [t // 2 for t in total], [t - t // 2 for t in total]
    return (*less, *more) if rule == "SAME_UPPER" else (*more, *less)


def _missing(size: Dim, reach: Dim, stride: int) -> Dim:
    """How much padding lets a window begin at each multiple of the stride."""
    if stride == 1:
        return reach - 1
    return maximum(((size + (stride - 1)) // stride - 1) * stride + reach - size, 0)
