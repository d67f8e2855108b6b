"""Converters of quantised models: numbers that stand for (number - zero point) * scale.

Sums of products are exact integers: those of matrices by `matmul_integer`, those of convolutions
by `conv2d_integer` or, in groups, by weights that are not known or less their zero points no bytes,
as floats: of so few channels at a time that no sum passes 2**24 where the weights are known, else
of 64 bits.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from bucketize.ir import Atom, Const
from bucketize.onnx.convert.linalg import matrices
from bucketize.onnx.convert.reduce import channelwise
from bucketize.onnx.convert.shape import reshaped
from bucketize.onnx.convert.window import slide, window_of, windows_of
from bucketize.onnx.node import (
    Node,
    Scaled,
    Unsupported,
    cast,
    converts,
    cut,
    native_dtype,
    saturated,
    standard,
)
from bucketize.op import Array
from bucketize.ops.elementwise import arithmetic as e
from bucketize.ops.elementwise.activation import clip
from bucketize.ops.fill import full
from bucketize.ops.linalg import matmul_integer
from bucketize.ops.reduce import reduce_sum
from bucketize.ops.rules import BYTES, limits
from bucketize.ops.shape import reshape, tile, unsqueeze
from bucketize.ops.window.image import conv2d_integer
from bucketize.types import AnyDim
from bucketize.types.number import FLOAT8, SCALE, kind_of

FLOAT, DOUBLE, INT = "float32", "float64", "int32"
EXACT = 1 << 24  # float32 holds each integer up to here
CHANNELS = 1  # the axis of them
PLANE = 4  # the rank of images of two axes
GREATEST = 255  # difference of two bytes
ONE = (), (1,)  # shapes of one number for all


# --- from floats and back ------------------------------------------------------------------------


@converts("QuantizeLinear", since=10)
def _quantize(n: Node) -> Atom:
    """The nearest whole number of x / scale, halves to even, and the zero point; saturated."""
    x, scale, zero, named = n[0], n[1], n.optional(2), n.attr("output_dtype", 0)
    dtype = native_dtype(named) if named else np.dtype(np.uint8)
    if zero is not None:
        if named and dtype != zero.type.dtype:
            raise Unsupported(f"output_dtype is {dtype}, the zero point {zero.type}")
        dtype = zero.type.dtype
    saturate, precision = n.attr("saturate", 1), _precision(n, x, scale)
    scale, zero = _granular(n, x, scale, zero)
    y: Atom = n.emit(e.div, cast(n, x, precision), cast(n, scale, precision))
    if kind_of(dtype) != "f":
        return _rounded(n, y, zero, dtype)
    if zero is not None:
        y = n.emit(e.add, y, cast(n, zero, precision))
    return saturated(n, y, dtype) if saturate and dtype in FLOAT8 else cast(n, y, dtype.name)


def _precision(n: Node, x: Atom, scale: Atom) -> str:
    """The dtype in which x is divided."""
    if given := n.attr("precision", 0):
        return native_dtype(given).name
    dtypes = [a.type.dtype for a in (scale, x)]
    return next((d.name for d in dtypes if kind_of(d) == "f" and d != SCALE), FLOAT)


def _rounded(n: Node, y: Atom, zero: Atom | None, dtype: np.dtype[Any]) -> Atom:
    """Floats as the nearest integers, moved by the zero point and kept within the dtype."""
    y = cast(n, n.emit(e.round_, y), FLOAT)
    if zero is not None:
        y = n.emit(e.add, y, cast(n, zero, FLOAT))
    lo, hi = limits(dtype)
    return cast(n, n.emit(clip, y, lo=float(lo), hi=float(hi)), dtype.name)


@converts("DequantizeLinear", since=10)
def _dequantize(n: Node) -> Atom:
    x, scale, zero, named = n[0], n[1], n.optional(2), n.attr("output_dtype", 0)
    dtype = native_dtype(named) if named else scale.type.dtype
    blocks, scaled = n.attrs.get("block_size", 0), Scaled(x, scale, zero, n.attrs.get("axis", 1))
    scale, zero = _granular(n, x, scale, zero)
    if zero is not None:
        wide = FLOAT if kind_of(x.type.dtype) == "f" else INT
        x = _moved(n, x, zero, wide)
    out = cast(n, n.emit(e.mul, cast(n, x, FLOAT), cast(n, scale, FLOAT)), dtype.name)
    if not blocks and dtype == FLOAT:
        n.scaled[out] = scaled
    return out


def _granular(n: Node, x: Atom, scale: Atom, zero: Atom | None) -> tuple[Atom, Atom | None]:
    """Scale and zero point as they broadcast with x; None for a zero point that is 0."""
    axis, block = n.attr("axis", 1), n.attr("block_size", 0)
    placed = _placed(n, x, scale, axis, block)
    if zero is None or _is_zero(zero):
        return placed, None
    return placed, _placed(n, x, zero, axis, block)


def _is_zero(zero: Atom) -> bool:
    return isinstance(zero, Const) and not zero.value.astype(np.float32).any()


def _placed(n: Node, x: Atom, p: Atom, axis: int, block: int) -> Atom:
    """One number for all, one for each index of an axis, or for each block of an axis."""
    rank, shape = len(x.type.shape), p.type.shape
    if block:
        if block < 0 or len(shape) != rank:
            raise Unsupported(f"blocks of {block} for {p.type} beside {x.type}")
        return _repeated(n, x, p, n.front((axis,))[0], block)
    if shape in ONE:
        return _columns(n, p)
    if len(shape) != 1:
        raise Unsupported(f"{p.type} beside {x.type}, expected a number or a vector")
    if rank == 1 and not isinstance(shape[0], int):
        return p  # one number or more: a run tells
    behind = rank - 1 - n.front((axis,))[0]
    return n.emit(unsqueeze, p, axes=tuple(range(1, behind + 1))) if behind else p


def _repeated(n: Node, x: Atom, p: Atom, axis: int, block: int) -> Atom:
    """Each element `block` times along an axis, which ends where that of x does."""
    dims, whole = p.type.shape, x.type.shape[axis]
    repeats = tuple(block if i == axis + 1 else 1 for i in range(len(dims) + 1))
    apart = n.emit(tile, n.emit(unsqueeze, p, axes=(axis + 1,)), repeats=repeats)
    count = dims[axis] * block
    joined = reshaped(n, apart, (*dims[:axis], count, *dims[axis + 1 :]))
    if count == whole:
        return joined
    return cut(n, joined, axis, 0, whole)


# --- matrix products -----------------------------------------------------------------------------


@converts("MatMulInteger", since=10)
def _matmul_integer(n: Node) -> Atom:
    return integer_product(n, n[0], n[1], n.optional(2), n.optional(3))


@converts("QLinearMatMul", since=10)
def _qlinear_matmul(n: Node) -> Atom:
    x, x_scale, x_zero, y, y_scale, y_zero, scale, zero = (n[i] for i in range(8))
    for a in (x, y, zero):
        if kind_of(a.type.dtype) == "f":
            raise Unsupported(f"a product of {a.type.dtype}")
    sums = integer_product(n, x, y, x_zero, y_zero)
    x_scale, scale, moved = (_rows(n, sums, p) for p in (x_scale, scale, zero))
    factors = _factors(n, x_scale, _columns(n, y_scale), scale)
    return _rounded(n, _scaled(n, sums, factors), moved, zero.type.dtype)


def integer_product(n: Node, x: Atom, y: Atom, x_zero: Atom | None, y_zero: Atom | None) -> Atom:
    """(x - its zero points) @ (y - its zero points), as one product and sums of rows or columns."""

    def product(a: Atom, b: Atom) -> Atom:
        out: Atom = n.emit(matmul_integer, a, b)
        if x_zero is not None and not _is_zero(x_zero):
            sums = n.emit(reduce_sum, _moved(n, b, y_zero), axes=(_last(b) - 1,), keepdims=True)
            out = n.emit(e.sub, out, n.emit(e.mul, sums, cast(n, _rows(n, x, x_zero), INT)))
        if y_zero is not None and not _is_zero(y_zero):
            sums = n.emit(reduce_sum, cast(n, a, INT), axes=(_last(a),), keepdims=True)
            out = n.emit(e.sub, out, n.emit(e.mul, sums, cast(n, _columns(n, y_zero), INT)))
        return out

    return matrices(n, x, y, product)


def _last(x: Atom) -> int:
    return len(x.type.shape) - 1


def _moved(n: Node, x: Atom, zero: Atom | None, wide: str = INT) -> Atom:
    """An operand less its zero points."""
    x = cast(n, x, wide)
    return x if zero is None or _is_zero(zero) else n.emit(e.sub, x, cast(n, zero, wide))


def _rows(n: Node, x: Atom, p: Atom) -> Atom:
    """One number for all, or one for each row of x."""
    p = _columns(n, p)
    vector = len(p.type.shape) == 1 and len(x.type.shape) > 1
    return n.emit(unsqueeze, p, axes=(1,)) if vector else p


def _columns(n: Node, p: Atom) -> Atom:
    """One number for all, or one for each column."""
    if p.type.shape != (1,):
        return p
    return Const(p.value.reshape(())) if isinstance(p, Const) else n.emit(reshape, p, newshape=())


def _factors(n: Node, x_scale: Atom, y_scale: Atom, scale: Atom) -> Atom:
    """What a unit of the sums is in units of the result."""
    both = n.emit(e.mul, cast(n, x_scale, FLOAT), cast(n, y_scale, FLOAT))
    return n.emit(e.div, both, cast(n, scale, FLOAT))


def _scaled(n: Node, sums: Atom, factors: Atom) -> Atom:
    return n.emit(e.mul, cast(n, sums, FLOAT), factors)


# --- convolutions --------------------------------------------------------------------------------


@converts("ConvInteger", since=10)
def _conv_integer(n: Node) -> Atom:
    return _convolved(n, n[0], n[1], n.optional(2), n.optional(3))


@converts("QLinearConv", since=10)
def _qlinear_conv(n: Node) -> Atom:
    x, x_scale, x_zero, w, w_scale, w_zero, scale, zero = (n[i] for i in range(8))
    sums, bias = _convolved(n, x, w, x_zero, w_zero), n.optional(8)
    if bias is not None:
        sums = n.emit(e.add, *channelwise(n, sums, bias))
    x_scale, scale, moved = (_columns(n, p) for p in (x_scale, scale, zero))
    sums, unit = _unit(n, sums, w_scale)
    factors = _factors(n, x_scale, unit, scale)
    return _rounded(n, _scaled(n, sums, factors), moved, zero.type.dtype)


def _unit(n: Node, sums: Atom, scale: Atom) -> tuple[Atom, Atom]:
    """The sums, and one scale for all weights, or one for each filter, beside them."""
    one = scale.type.shape in ONE
    return (sums, _columns(n, scale)) if one else channelwise(n, sums, scale)


def scaled_conv(n: Node) -> Atom | None:
    """A convolution, without bias, of floats that were bytes: the sums are those of the bytes.

    None where they were not, or where sums of 32 bits might not hold them.
    """
    x, w = n.scaled.get(n[0]), n.scaled.get(n[1])
    if x is None or w is None or x.scale.type.shape not in ONE:
        return None
    y, filters = w.numbers, w.scale.type.shape in ONE or w.axis in (0, -len(w.numbers.type.shape))
    bytes_ = all(s.numbers.type.dtype in BYTES for s in (x, w))
    if not bytes_ or not filters or not isinstance(y, Const):
        return None
    if y.value[:1].size * GREATEST**2 > limits(np.dtype(INT))[1]:
        return None
    sums = _of_bytes(n, x.numbers, y, x.zero, w.zero)
    if sums is None:
        return None
    n.attrs.clear()
    sums, unit = _unit(n, sums, w.scale)
    return _scaled(n, sums, n.emit(e.mul, _columns(n, x.scale), unit))


def _convolved(n: Node, x: Atom, w: Atom, x_zero: Atom | None, w_zero: Atom | None) -> Atom:
    """What w less its zero points makes of x less its zero point: integers."""
    if (sums := _of_bytes(n, x, w, x_zero, w_zero)) is None:
        sums = _of_floats(n, x, w, x_zero, w_zero)
    n.attrs.clear()
    return sums


def _of_bytes(n: Node, x: Atom, w: Atom, x_zero: Atom | None, w_zero: Atom | None) -> Atom | None:
    """The sums by the kernel of bytes: of one group, by known weights that are bytes.

    None of others, whose sums are those of floats. A zero point that a run tells is a sum beside.
    """
    if n.attrs.get("group", 1) != 1 or not 3 <= len(w.type.shape) <= PLANE:
        return None
    x_zero, w_zero = _zeros(n, w, x_zero, w_zero)
    weights = _known_less(w, w_zero)
    if weights is None or (x_zero is not None and x_zero.type.shape != ()):
        return None
    dtype = next((d for d in BYTES if np.array_equal(weights.astype(d), weights)), None)
    late = None if isinstance(x_zero, Const) else x_zero
    if dtype is None or (late is not None and not _may_be_late(x, weights)):
        return None
    zero = int(x_zero.value) if isinstance(x_zero, Const) else 0
    inside = replace(n, inputs=(x, Const(weights.astype(dtype))), attrs=dict(n.attrs))
    window = window_of(inside, windows_of(inside).type.shape[2:])
    sums = slide(inside, {2: conv2d_integer}, window, zero, *inside.operands, zero=zero)
    return sums if late is None else n.emit(e.sub, sums, _of_zeros(n, x, late, weights))


def _may_be_late(x: Atom, weights: Array) -> bool:
    """Whether a run may tell the zero point: extents have names, and sums of weights are exact."""
    named = not any(isinstance(d, AnyDim) for d in x.type.shape[2:])
    return named and np.abs(weights).sum(axis=tuple(range(1, weights.ndim))).max(initial=0) <= EXACT


def _of_zeros(n: Node, x: Atom, zero: Atom, weights: Array) -> Atom:
    """What a zero point in all places of the image adds to sums; those of pads add nothing."""
    ones = n.emit(full, shape=(1, 1, *x.type.shape[2:]), value=1.0, dtype=FLOAT)
    sums = _conv(n, ones, Const(weights.sum(axis=1, keepdims=True).astype(np.float32)))
    return n.emit(e.mul, cast(n, sums, INT), cast(n, zero, INT))


def _of_floats(n: Node, x: Atom, w: Atom, x_zero: Atom | None, w_zero: Atom | None) -> Atom:
    """The sums as floats: of so few channels at a time that they are exact, or of 64 bits."""
    x_zero, w_zero = _zeros(n, w, x_zero, w_zero)
    parts = _parts(n, x, w, w_zero)
    if parts is None:
        sums = _conv(n, _moved(n, x, x_zero, DOUBLE), _moved(n, w, w_zero, DOUBLE))
        return cast(n, cast(n, sums, "int64"), INT)
    weights, ends = parts
    moved, partial_sums = _moved(n, x, x_zero, FLOAT), []
    for begin, end in zip((0, *ends), ends, strict=False):
        part = Const(np.ascontiguousarray(weights[:, begin:end], np.float32))
        sums = _conv(n, cut(n, moved, CHANNELS, begin, end) if len(ends) > 1 else moved, part)
        partial_sums.append(cast(n, sums, INT))
    return reduce(lambda a, b: n.emit(e.add, a, b), partial_sums)


def _known_less(w: Atom, zero: Atom | None) -> Array | None:
    """Weights less their zero points, if both are known."""
    if not isinstance(w, Const) or not (zero is None or isinstance(zero, Const)):
        return None
    weights: Array = w.value.astype(np.int64) - (0 if zero is None else zero.value)
    return weights


def _parts(n: Node, x: Atom, w: Atom, zero: Atom | None) -> tuple[Array, list[int]] | None:
    """Known weights, and where the parts of their channels end whose sums float32 holds.

    None if they are not known, or of several groups that would have to be cut.
    """
    weights = _known_less(w, zero)
    if weights is None or weights.ndim < 3:  # no windows, which is refused where they are read
        return None
    lo, hi = limits(x.type.dtype)
    most = np.abs(weights).sum(axis=tuple(range(2, weights.ndim))) * (hi - lo)
    ends: list[int] = []
    reached = np.zeros(len(most), np.int64)
    for channel, more in enumerate(most.T):
        reached = reached + more
        if reached.max(initial=0) > EXACT:
            ends, reached = [*ends, channel], more
        if reached.max(initial=0) > EXACT:
            return None
    if ends and n.attrs.get("group", 1) != 1:
        return None
    return weights, [*ends, weights.shape[1]]


def _zeros(
    n: Node, w: Atom, x_zero: Atom | None, w_zero: Atom | None
) -> tuple[Atom | None, Atom | None]:
    """Zero points of image and weights, beside them."""
    x_zero = None if x_zero is None else _columns(n, x_zero)
    return x_zero, None if w_zero is None else _filters(n, w, w_zero)


def _filters(n: Node, w: Atom, zero: Atom) -> Atom:
    """One number for all weights, or one for each filter."""
    if zero.type.shape in ONE:
        return _columns(n, zero)
    ones = (1,) * (len(w.type.shape) - 1)
    if isinstance(zero, Const):
        return Const(zero.value.reshape(-1, *ones))
    return n.emit(unsqueeze, zero, axes=tuple(range(1, len(ones) + 1)))


def _conv(n: Node, x: Atom, w: Atom) -> Atom:
    """A convolution by the attributes of the node, whose sums are those of the definition."""
    return standard(replace(n, precision="exact"), "Conv", x, w, **n.attrs)
