"""Converters of pools by a norm, of what undoes pools and columns, and of deformed windows."""

from __future__ import annotations

import math
from typing import Any

from bucketize.ir import Atom
from bucketize.onnx.convert.reduce import biased
from bucketize.onnx.convert.shape import reshaped
from bucketize.onnx.convert.window import (
    AVG_POOL,
    WindowAttributes,
    covered,
    numbers,
    slide,
    steps,
    window_of,
    windows_of,
)
from bucketize.onnx.node import Node, Unsupported, Untold, cast, converts, vector, wide
from bucketize.ops.dim import from_dims
from bucketize.ops.dyn.shape import dyn_pad
from bucketize.ops.elementwise import arithmetic as e
from bucketize.ops.fill import full
from bucketize.ops.index import scatter_elements
from bucketize.ops.reduce import reduce_sum
from bucketize.ops.shape import concat, reshape
from bucketize.ops.window.column import dyn_col2im
from bucketize.ops.window.deformed import deform_conv2d
from bucketize.ops.window.rules import conv_extents, pool_extents
from bucketize.types import product


@converts("LpPool")
def _lp_pool(n: Node) -> Atom:
    """The mean of the powers of a whole window, times its elements, is their sum."""
    kernel, p = n.attr("kernel_shape"), _norm(n)
    ceil_mode = bool(n.attr("ceil_mode", 0))
    window = window_of(n, kernel)
    attrs: dict[str, Any] = {"kernel": kernel, "pads": window.pads}
    attrs |= {"strides": window.strides, "dilations": window.dilations}
    counts = pool_extents(n[0].type.shape[2:], ceil_mode=ceil_mode, **attrs)
    x = covered(n, _powers(n, wide(n, n[0]), p), counts, window, 0)
    bare = WindowAttributes(
        window.kernel, window.strides, window.dilations, (0,) * len(window.pads)
    )
    mean = slide(n, AVG_POOL, bare, None, x, kernel=kernel)
    return _root(n, n.emit(e.mul, mean, n.like(mean, math.prod(kernel))), p)


@converts("GlobalLpPool")
def _global_lp_pool(n: Node) -> Atom:
    p, axes = _norm(n), tuple(range(2, len(n[0].type.shape)))
    return _root(n, n.emit(reduce_sum, _powers(n, wide(n, n[0]), p), axes=axes, keepdims=True), p)


def _norm(n: Node) -> float:
    p: float = n.attr("p", 2)
    if p <= 0:
        raise Unsupported(f"p is {p}")
    return p


def _powers(n: Node, x: Atom, p: float) -> Atom:
    if p == 2:
        return n.emit(e.mul, x, x)
    size = n.emit(e.abs_, x)
    return size if p == 1 else n.emit(e.pow_, size, n.like(x, p))


def _root(n: Node, x: Atom, p: float) -> Atom:
    if p != 1:
        x = n.emit(e.sqrt, x) if p == 2 else n.emit(e.pow_, x, n.like(x, 1 / p))
    return cast(n, x, n[0].type.dtype.name)


@converts("MaxUnpool", since=9)
def _max_unpool(n: Node) -> Atom:
    """Zeros, and each element at the place in all of them that its index tells."""
    kernel, x = n.attr("kernel_shape"), n[0]
    strides, _ = steps(n, kernel)
    pads = numbers(n, "pads", 2 * len(kernel), 0)
    sides = pads[: len(kernel)], pads[len(kernel) :]
    axes = zip(x.type.shape[2:], kernel, strides, *sides, strict=True)
    image = ((size - 1) * step - lo - hi + k for size, k, step, lo, hi in axes)
    shape = (*x.type.shape[:2], *image)
    zeros = n.emit(full, shape=(product(shape),), value=0, dtype=x.type.dtype.name)
    places, elements = (reshaped(n, a, (product(x.type.shape),)) for a in (n[1], x))
    y = n.emit(reshape, n.emit(scatter_elements, zeros, places, elements, axis=0), newshape=shape)
    if n.optional(2) is None:
        return y
    rank = len(shape)
    more = n.emit(e.sub, n.vector(2, rank), n.emit(from_dims, dims=shape))
    pads_ = n.emit(concat, vector(*(0,) * rank), more, axis=0)
    return n.emit_dynamic(dyn_pad, y, pads_, vector(*range(rank)), value=0, mode="constant")


@converts("Col2Im", since=18)
def _col2im(n: Node) -> Atom:
    (rank,) = n.vector(2).type.shape
    if not isinstance(rank, int):
        raise Untold(f"over how many axes windows are is not known of {n[2].type}")
    window = {
        "strides": numbers(n, "strides", rank, 1),
        "pads": numbers(n, "pads", 2 * rank, 0),
        "dilations": numbers(n, "dilations", rank, 1),
    }
    return n.emit_dynamic(dyn_col2im, n[0], n.vector(1, rank), n[2], **window)


@converts("DeformConv", since=19)
def _deform_conv(n: Node) -> Atom:
    weights = windows_of(n)
    kernel = weights.type.shape[2:]
    strides, dilations = steps(n, kernel)
    if len(kernel) != 2:
        raise Unsupported(f"a window over {len(kernel)} axes, expected 2")
    pads, groups = numbers(n, "pads", 4, 0), n.attr("offset_group", 1)
    attrs: dict[str, Any] = {"strides": strides, "dilations": dilations, "pads": pads}
    mask = n.optional(4)
    if mask is None:
        plane = conv_extents(n[0].type.shape[2:], kernel, **attrs)
        shape = (n[0].type.shape[0], product(kernel) * groups, *plane)
        mask = n.emit(full, shape=shape, value=1, dtype=n[0].type.dtype.name)
    attrs |= {"groups": n.attr("group", 1), "offset_groups": groups}
    return biased(n, n.emit(deform_conv2d, n[0], weights, n[2], mask, **attrs), n.optional(3))
