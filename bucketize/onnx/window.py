"""Converters of what slides a window over an image, or pools all of it."""

from __future__ import annotations

import math
from typing import Any

from bucketize.ir import Atom
from bucketize.onnx.node import Node, Unsupported, converts
from bucketize.onnx.reduce import channelwise
from bucketize.onnx.shape import reshaped, same_shape
from bucketize.op import Op
from bucketize.ops.elementwise import add, div, mul, pow_
from bucketize.ops.nn import avg_pool2d, conv2d, max_pool2d
from bucketize.ops.reduce import reduce_max, reduce_mean
from bucketize.ops.shape import pad, squeeze, unsqueeze
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
    y = _slide(n, conv2d, kernel, 0.0, **attrs)
    bias = n.optional(2)
    return y if bias is None else n.emit(add, y, channelwise(n, bias, y))


@converts("MaxPool")
def _max_pool(n: Node) -> Atom:
    n.attr("storage_order")  # of the second output, which is not made
    kernel, ceil_mode = n.attr("kernel_shape"), bool(n.attr("ceil_mode", 0))
    return _slide(n, max_pool2d, kernel, -math.inf, kernel=kernel, ceil_mode=ceil_mode)


@converts("AveragePool")
def _average_pool(n: Node) -> Atom:
    kernel, ceil_mode = n.attr("kernel_shape"), bool(n.attr("ceil_mode", 0))
    attrs = {"ceil_mode": ceil_mode, "count_include_pad": bool(n.attr("count_include_pad", 0))}
    return _slide(n, avg_pool2d, kernel, None, kernel=kernel, **attrs)


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


def _slide(n: Node, op: Op, window: Sizes, fill: float | None, **attrs: Any) -> Atom:
    """`op` over an image; a window along one axis is one of height 1 along two."""
    rank = len(window)
    if rank not in (1, 2):
        raise Unsupported(f"a window over {rank} axes, expected 1 or 2")
    if len(n[0].type.shape) != rank + 2:
        raise Unsupported(f"a window over {rank} axes of {n[0].type}, expected rank {rank + 2}")
    _check_numbers("kernel_shape", window, rank, 1)
    sizes = {name: _numbers(n, name, rank, 1) for name in ("strides", "dilations")}
    args, pads = [n[i] for i in range(2 if op is conv2d else 1)], _pads(n, window, **sizes)
    if not all(isinstance(p, int) for p in pads):
        args[0], pads = _padded(n, args[0], pads, fill), (0,) * len(pads)
    if rank == 2:
        return n.emit(op, *args, pads=pads, **sizes, **attrs)
    args = [n.emit(unsqueeze, a, axes=(2,)) for a in args]
    flat = {k: (1, *v) if isinstance(v, tuple) else v for k, v in {**sizes, **attrs}.items()}
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
