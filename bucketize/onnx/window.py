"""Converters of what slides a window over an image, or pools all of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from bucketize.ir import Atom, Const
from bucketize.onnx.node import Node, Unsupported, converts
from bucketize.onnx.reduce import channelwise
from bucketize.onnx.shape import reshaped, same_shape
from bucketize.op import Op
from bucketize.ops.dim import from_dims
from bucketize.ops.elementwise import add, div, equal, mul, pow_, where
from bucketize.ops.fill import arange
from bucketize.ops.nn import avg_pool2d, conv2d, max_pool2d
from bucketize.ops.reduce import reduce_max, reduce_mean
from bucketize.ops.shape import pad, reshape, squeeze, strided_slice, transpose, unsqueeze
from bucketize.types import AnyDim, Dim, Shape, maximum, product

Sizes = tuple[int, ...]


@converts("Conv")
def _conv(n: Node) -> Atom:
    kernel = tuple(k for k in n[1].type.shape[2:] if isinstance(k, int))
    if len(kernel) < len(n[1].type.shape) - 2:
        raise Unsupported(f"the window of the weights {n[1].type} is not known")
    if (given := n.attr("kernel_shape") or kernel) != kernel:
        raise Unsupported(f"kernel_shape is {given}, the weights are {n[1].type}")
    attrs = {"groups": n.attr("group", 1), "precision": n.precision}
    y = _slide(n, conv2d, _window(n, kernel), 0.0, **attrs)
    bias = n.optional(2)
    return y if bias is None else n.emit(add, y, channelwise(n, bias, y))


@converts("MaxPool")
def _max_pool(n: Node) -> tuple[Atom, ...]:
    kernel, ceil_mode = n.attr("kernel_shape"), bool(n.attr("ceil_mode", 0))
    window, columns_first = _window(n, kernel), bool(n.attr("storage_order", 0))
    y = _slide(n, max_pool2d, window, -math.inf, kernel=kernel, ceil_mode=ceil_mode)
    return (y,) if n.outputs == 1 else (y, _places(n, y, window, columns_first))


def _places(n: Node, y: Atom, window: _Window, columns_first: bool) -> Atom:
    """Where in the whole of x the greatest of each window is, the first of several."""
    batch, channels, *image = n[0].type.shape
    if any(isinstance(d, AnyDim) for d in n[0].type.shape):
        raise Unsupported(f"the extents of {n[0].type} are not known")
    plane = (1, 1, *(reversed(image) if columns_first else image))
    numbers: Atom = n.emit(reshape, n.emit(arange, stop=product(plane)), newshape=plane)
    if columns_first and len(image) == 2:
        numbers = n.emit(transpose, numbers, axes=(0, 1, 3, 2))
    x, numbers = (_covered(n, v, y, window, f) for v, f in ((n[0], -math.inf), (numbers, 0)))
    out: Atom = Const(np.array(0))
    for tap in reversed([*np.ndindex(window.kernel)]):
        value, place = (_tap(n, v, y, window, tap) for v in (x, numbers))
        out = n.emit(where, n.emit(equal, value, y), place, out)
    area = n.emit(from_dims, dims=(product(plane),))
    first = n.emit(mul, n.emit(arange, stop=batch * channels), area)
    ones = (1,) * len(image)
    return n.emit(add, out, n.emit(reshape, first, newshape=(batch, channels, *ones)))


def _covered(n: Node, x: Atom, y: Atom, window: _Window, fill: float) -> Atom:
    """`x` with pads before, and so many behind that the last window ends there."""
    pads: list[tuple[Dim, Dim]] = [(0, 0), (0, 0)]
    axes = zip(x.type.shape[2:], y.type.shape[2:], window.strides, window.reach, strict=True)
    for (size, count, stride, reach), before in zip(axes, window.pads, strict=False):
        pads.append((before, (count - 1) * stride + reach - size - before))
    return n.emit(pad, x, pads=tuple(pads), value=fill)


def _tap(n: Node, x: Atom, y: Atom, window: _Window, tap: Sizes) -> Atom:
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
    return _slide(n, avg_pool2d, _window(n, kernel), None, kernel=kernel, **attrs)


@converts("LRN")
def _local_response(n: Node) -> Atom:
    """Each element by a power of the mean of the squares of its neighbours' among the channels."""
    alpha, beta = n.attr("alpha", 1e-4), n.attr("beta", 0.75)
    bias, size, x = n.attr("bias", 1.0), n.attr("size"), n[0]
    if size < 1:
        raise Unsupported(f"size is {size}")
    batch, channels, *rest = x.type.shape
    rows = reshaped(n, n.emit(mul, x, x), (batch, 1, channels, product(tuple(rest))))
    pads = ((size - 1) // 2, 0, size // 2, 0)
    mean = n.emit(avg_pool2d, rows, kernel=(size, 1), pads=pads, count_include_pad=True)
    scaled = n.emit(add, n.emit(mul, mean, n.like(x, alpha)), n.like(x, bias))
    power = n.emit(pow_, same_shape(n, scaled, x), n.like(x, beta))
    return n.emit(div, x, power)


@converts("GlobalAveragePool")
def _global_average_pool(n: Node) -> Atom:
    return _global(n, reduce_mean)


@converts("GlobalMaxPool")
def _global_max_pool(n: Node) -> Atom:
    return _global(n, reduce_max)


def _global(n: Node, op: Op) -> Atom:
    return n.emit(op, n[0], axes=tuple(range(2, len(n[0].type.shape))), keepdims=True)


@dataclass(frozen=True)
class _Window:
    """Where windows are: numbers along each axis, and the pads before each, then after each."""

    kernel: Sizes
    strides: Sizes
    dilations: Sizes
    pads: Shape

    @property
    def reach(self) -> Sizes:
        """The extents of a window, with what lies between its elements."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))


def _window(n: Node, kernel: Sizes) -> _Window:
    rank = len(kernel)
    if rank not in (1, 2):
        raise Unsupported(f"a window over {rank} axes, expected 1 or 2")
    if len(n[0].type.shape) != rank + 2:
        raise Unsupported(f"a window over {rank} axes of {n[0].type}, expected rank {rank + 2}")
    _check_numbers("kernel_shape", kernel, rank, 1)
    strides, dilations = (_numbers(n, name, rank, 1) for name in ("strides", "dilations"))
    return _Window(kernel, strides, dilations, _pads(n, kernel, strides, dilations))


def _slide(n: Node, op: Op, window: _Window, fill: float | None, **attrs: Any) -> Atom:
    """`op` over an image; a window along one axis is one of height 1 along two."""
    args, pads = [n[i] for i in range(2 if op is conv2d else 1)], window.pads
    if not all(isinstance(p, int) for p in pads):
        args[0], pads = _padded(n, args[0], pads, fill), (0,) * len(pads)
    attrs |= {"strides": window.strides, "dilations": window.dilations}
    if len(window.kernel) == 2:
        return n.emit(op, *args, pads=pads, **attrs)
    args = [n.emit(unsqueeze, a, axes=(2,)) for a in args]
    flat = {k: (1, *v) if isinstance(v, tuple) else v for k, v in attrs.items()}
    return n.emit(squeeze, n.emit(op, *args, pads=(0, pads[0], 0, pads[1]), **flat), axes=(2,))


def _numbers(n: Node, name: str, count: int, least: int) -> Sizes:
    """An attribute of so many numbers; an empty one is as good as none: the least of each."""
    numbers: Sizes = n.attr(name) or (least,) * count
    _check_numbers(name, numbers, count, least)
    return numbers


def _check_numbers(name: str, numbers: Sizes, count: int, least: int) -> None:
    if len(numbers) != count or min(numbers) < least:
        raise Unsupported(f"{name} must be {count} numbers from {least} up, got {numbers}")


def _pads(n: Node, kernel: Sizes, strides: Sizes, dilations: Sizes) -> Shape:
    """The pads before each axis, then those after each."""
    rule = n.choice("auto_pad", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
    given = _numbers(n, "pads", 2 * len(kernel), 0)
    if rule == "NOTSET":
        return given
    if rule == "VALID":
        return (0,) * 2 * len(kernel)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    sizes = n[0].type.shape[2:]
    total = [_missing(*axis) for axis in zip(sizes, reach, strides, strict=True)]
    less, more = [t // 2 for t in total], [t - t // 2 for t in total]
    return (*less, *more) if rule == "SAME_UPPER" else (*more, *less)


def _missing(size: Dim, reach: int, stride: int) -> Dim:
    """How much padding lets a window begin at each multiple of the stride."""
    if stride == 1:
        return reach - 1
    return maximum(((size + (stride - 1)) // stride - 1) * stride + reach - size, 0)


def _padded(n: Node, x: Atom, pads: Shape, fill: float | None) -> Atom:
    """`x` padded by an op of its own, for pads that depend on its extents."""
    if fill is None or any(isinstance(p, AnyDim) for p in pads):
        raise Unsupported(f"auto_pad makes pads ({', '.join(map(str, pads))}) of the run-time size")
    half = len(pads) // 2
    each = ((0, 0), (0, 0), *zip(pads[:half], pads[half:], strict=True))
    return n.emit(pad, x, pads=each, value=fill)
