"""Converters of what brings an axis together, or normalises along it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from onnx import TensorProto

from bucketize.ir import Atom, Const
from bucketize.onnx.convert.shape import extent, places, reshaped, same_shape
from bucketize.onnx.node import (
    Node,
    Unsupported,
    cast,
    converts,
    converts_directly,
    cut,
    fitted,
    native_dtype,
    vector,
    wide,
)
from bucketize.op import Op
from bucketize.ops import reduce as r
from bucketize.ops.dyn import axes as d
from bucketize.ops.elementwise import arithmetic as e
from bucketize.ops.rules import ENDLESS
from bucketize.ops.shape import squeeze, unsqueeze
from bucketize.types.number import kind_of

Step: TypeAlias = Callable[[Node, Atom], Atom]
Along: TypeAlias = Callable[..., Atom]
"""Reduces along the axes of a node: op, tensor, and whether axes are kept if not as it says."""
Reduction: TypeAlias = Callable[[Node, Atom, Along], Atom]

# --- reductions ----------------------------------------------------------------------------------


def _same(_n: Node, x: Atom) -> Atom:
    return x


def _square(n: Node, x: Atom) -> Atom:
    return n.emit(e.mul, x, x)


def _each(op: Op) -> Step:
    return lambda n, x: n.emit(op, x)


def _floats(n: Node, x: Atom) -> Atom:
    """What a root or a logarithm is taken of: of integers in float64, cut as a cast does."""
    return wide(n, x) if kind_of(x.type.dtype) == "f" else cast(n, x, "float64")


def _as_given(op: Op) -> Step:
    return lambda n, x: cast(n, n.emit(op, x), n[0].type.dtype.name)


REDUCTIONS: dict[str, tuple[Step, Op, Step]] = {
    "ReduceL1": (_each(e.abs_), d.dyn_reduce_sum, _same),
    "ReduceL2": (lambda n, x: _square(n, _floats(n, x)), d.dyn_reduce_sum, _as_given(e.sqrt)),
    "ReduceLogSum": (_floats, d.dyn_reduce_sum, _as_given(e.log)),
    "ReduceMax": (_same, d.dyn_reduce_max, _same),
    "ReduceMean": (_same, d.dyn_reduce_mean, _same),
    "ReduceMin": (_same, d.dyn_reduce_min, _same),
    "ReduceProd": (_same, d.dyn_reduce_prod, _same),
    "ReduceSum": (_same, d.dyn_reduce_sum, _same),
    "ReduceSumSquare": (_square, d.dyn_reduce_sum, _same),
}


def _by_steps(before: Step, op: Op, after: Step) -> Reduction:
    return lambda n, x, along: after(n, along(op, before(n, x)))


def _log_sum_exp(n: Node, x: Atom, along: Along) -> Atom:
    """With the greatest taken off before, and added after: exp of it would be infinite, or 0."""
    x = _floats(n, x)
    most = along(d.dyn_reduce_max, x, keepdims=True)
    finite = n.emit(e.less, n.emit(e.abs_, most), n.like(most, math.inf))
    most = n.emit(e.where, finite, most, n.like(most, 0))
    total = along(d.dyn_reduce_sum, n.emit(e.exp, n.emit(e.sub, x, most)))
    out = n.emit(e.add, n.emit(e.log, total), along(d.dyn_reduce_max, most))
    return cast(n, out, n[0].type.dtype.name)


def _declare(op_type: str, rule: Reduction) -> None:
    def reduce(n: Node, axes: Atom) -> Atom:
        keeps, noop = bool(n.attr("keepdims", 1)), bool(n.attr("noop_with_empty_axes", 0))

        def along(op: Op, x: Atom, keepdims: bool = keeps) -> Atom:
            if noop and axes.type.shape == (0,):
                return x
            return n.emit_dynamic(op, x, axes, keepdims=keepdims, noop=noop)

        return rule(n, n[0], along)

    def with_operand(n: Node) -> Atom:
        count = None if n.attrs.get("keepdims", 1) else n.removed
        return reduce(n, n.vector(1, count) if n.optional(1) else vector())

    since = 13 if op_type == "ReduceSum" else 18
    converts(op_type, since)(with_operand)


_declare("ReduceLogSumExp", _log_sum_exp)
for _op_type, _steps in REDUCTIONS.items():
    _declare(_op_type, _by_steps(*_steps))


def _arg_extreme(op_type: str, op: Op) -> None:
    @converts(op_type)
    def _convert(n: Node) -> Atom:
        axis, keepdims = n.axis("axis", 0), bool(n.attr("keepdims", 1))
        if not n.attr("select_last_index", 0):
            return n.emit(op, n[0], axis=axis, keepdims=keepdims)
        backward = cut(n, n[0], axis, -1, -ENDLESS, -1)
        first = n.emit(op, backward, axis=axis, keepdims=keepdims)
        last = n.emit(e.sub, extent(n, n[0], axis), Const(np.array(1)))
        return n.emit(e.sub, last, first)


_arg_extreme("ArgMax", r.argmax)
_arg_extreme("ArgMin", r.argmin)


def _running(op_type: str, op: Op) -> None:
    @converts(op_type)
    def _convert(n: Node) -> Atom:
        exclusive, reverse = bool(n.attr("exclusive", 0)), bool(n.attr("reverse", 0))
        return n.emit_dynamic(op, n[0], n[1], exclusive=exclusive, reverse=reverse)


_running("CumSum", d.dyn_cumsum)
_running("CumProd", d.dyn_cumprod)


# --- normalisations ------------------------------------------------------------------------------


converts_directly("Softmax", r.softmax, 13, axis=-1)
converts_directly("LogSoftmax", r.log_softmax, 13, axis=-1)


@converts("Hardmax", since=13)
def _hardmax(n: Node) -> Atom:
    """1 where the first of the greatest along an axis is, else 0."""
    axis = n.axis("axis", -1)
    first = n.emit(r.argmax, n[0], axis=axis, keepdims=True)
    here = n.emit(e.equal, places(n, n[0], axis), first)
    return n.emit(e.cast, here, dtype=n[0].type.dtype.name)


@converts("LpNormalization")
def _lp_norm(n: Node) -> Atom:
    """`x` over its norm along an axis; 0 where that is 0."""
    x, axis, p = wide(n, n[0]), n.axis("axis", -1), n.attr("p", 2)
    if p not in (1, 2):
        raise Unsupported(f"p is {p}, expected 1 or 2")
    size = n.emit(e.abs_, x) if p == 1 else _square(n, x)
    norm = n.emit(r.reduce_sum, size, axes=(axis,), keepdims=True)
    norm = norm if p == 1 else n.emit(e.sqrt, norm)
    none = n.emit(e.equal, norm, n.like(x, 0))
    y = n.emit(e.where, none, n.like(x, 0), n.emit(e.div, x, norm))
    return cast(n, y, n[0].type.dtype.name)


@converts("LayerNormalization")
def _layer_norm(n: Node) -> tuple[Atom, ...]:
    stash = native_dtype(n.attr("stash_type", TensorProto.FLOAT))
    axis, epsilon, x = n.axis("axis", -1), n.attr("epsilon", 1e-5), n[0]
    scale, bias = n[1], n.optional(2) or n.like(x, -0.0)  # of either zero the sum is that zero
    if _is_along(x, scale, axis) and _is_along(x, bias, axis):
        y = n.emit(r.layer_norm, x, scale, bias, axis=axis, epsilon=epsilon)
    else:
        y = n.emit(r.layer_norm, x, n.like(x, 1), n.like(x, -0.0), axis=axis, epsilon=epsilon)
        y = n.emit(e.add, n.emit(e.mul, y, scale), bias)
        if y.type.shape != x.type.shape:
            y = same_shape(n, y, x)
    if n.outputs == 1:
        return (y,)
    axes = tuple(range(axis, len(x.type.shape)))
    mean, variance = _moments(n, cast(n, x, stash.name), axes, keepdims=True)
    return y, mean, n.emit(e.rsqrt, n.emit(e.add, variance, n.like(variance, epsilon)))


def _is_along(x: Atom, scale: Atom, axis: int) -> bool:
    """Whether it is certain how `scale` lies on the axes of `x` from `axis` on, and on no other."""
    dims, own = x.type.shape, scale.type.shape
    pairs = zip(reversed(dims), reversed(own), strict=False)
    return len(own) <= len(dims) - axis and all(isinstance(k, int) or d == k for d, k in pairs)


def _moments(n: Node, x: Atom, axes: tuple[int, ...], keepdims: bool) -> tuple[Atom, Atom]:
    """The mean along axes, and the mean of the squares of what differs from it."""
    mean = n.emit(r.reduce_mean, x, axes=axes, keepdims=True)
    centred = n.emit(e.sub, x, mean)
    variance = n.emit(r.reduce_mean, n.emit(e.mul, centred, centred), axes=axes, keepdims=keepdims)
    return mean if keepdims else n.emit(squeeze, mean, axes=axes), variance


@converts("RMSNormalization")
def _rms_norm(n: Node) -> Atom:
    stash = native_dtype(n.attr("stash_type", TensorProto.FLOAT))
    axis, epsilon, dtype = n.axis("axis", -1), n.attr("epsilon", 1e-5), n[0].type.dtype
    x = cast(n, n[0], stash.name) if stash.itemsize > dtype.itemsize else n[0]
    axes = tuple(range(axis, len(x.type.shape)))
    mean = n.emit(r.reduce_mean, n.emit(e.mul, x, x), axes=axes, keepdims=True)
    scale = n.emit(e.rsqrt, n.emit(e.add, mean, n.like(x, epsilon)))
    return n.emit(e.mul, cast(n, n.emit(e.mul, x, scale), dtype.name), n[1])


@converts("BatchNormalization", since=9)
def _batch_norm(n: Node) -> Atom:
    """A node that lists the results of training is one: with mean and variance of this batch."""
    n.attr("momentum")
    return _by_channel(n, *(_moments_of_batch(n) if n.named > 1 else (n[3], n[4])))


@converts("BatchNormalization", since=14)
def _batch_norm_14(n: Node) -> tuple[Atom, ...]:
    """With mean and variance that are known, or, in training, those of this batch."""
    momentum, training = n.attr("momentum", 0.9), n.attr("training_mode", 0)
    if not training:
        return (_by_channel(n, n[3], n[4]),)
    new = _moments_of_batch(n)
    running = (_blended(n, n[i], now, momentum) for i, now in zip((3, 4), new, strict=True))
    return _by_channel(n, *(cast(n, v, n[1].type.dtype.name) for v in new)), *running


def _moments_of_batch(n: Node) -> tuple[Atom, Atom]:
    """Mean and variance of each channel."""
    axes = tuple(i for i in range(len(n[0].type.shape)) if i != 1)
    return _moments(n, n[0], axes, keepdims=False)


def _blended(n: Node, before: Atom, now: Atom, momentum: float) -> Atom:
    now = cast(n, now, before.type.dtype.name)
    kept = n.emit(e.mul, before, n.like(before, momentum))
    return n.emit(e.add, kept, n.emit(e.mul, now, n.like(now, 1 - momentum)))


def _by_channel(n: Node, mean: Atom, variance: Atom) -> Atom:
    """A multiplication and an addition for each channel.

    Of halves the mean is taken off first: a shift by `mean * factor` would drown what is left.
    """
    spread = n.emit(e.add, variance, n.like(variance, n.attr("epsilon", 1e-5)))
    factor = n.emit(e.div, n[1], n.emit(e.sqrt, spread))
    if n[0].type.dtype == np.float16:
        centred = n.emit(e.sub, *channelwise(n, n[0], mean))
        return _per_channel(n, centred, factor, n[2])
    shift = n.emit(e.sub, n[2], n.emit(e.mul, mean, factor))
    return _per_channel(n, n[0], factor, shift)


@converts("InstanceNormalization")
def _instance_norm(n: Node) -> Atom:
    return _per_channel(n, _standardised(n, n[0]), n[1], n[2])


def _standardised(n: Node, x: Atom) -> Atom:
    """`x` with mean 0 and variance 1 behind its first two axes."""
    one, zero, epsilon = n.like(x, 1), n.like(x, -0.0), n.attr("epsilon", 1e-5)
    return n.emit(r.layer_norm, x, one, zero, axis=2, epsilon=epsilon)


@converts("GroupNormalization", since=21)
def _group_norm(n: Node) -> Atom:
    n.attr("stash_type")
    groups, dims = n.attr("num_groups"), n[0].type.shape
    if groups < 1:
        raise Unsupported(f"num_groups is {groups}")
    if len(dims) < 2:
        raise Unsupported(f"groups of channels of {n[0].type}, which must have rank 2 or more")
    split = (dims[0], groups, dims[1] // groups, *dims[2:])
    x = _standardised(n, reshaped(n, n[0], split))
    return _per_channel(n, reshaped(n, x, dims), n[1], n[2])


def _per_channel(n: Node, x: Atom, factor: Atom, shift: Atom) -> Atom:
    """`x * factor + shift`, where these are vectors along axis 1."""
    y = n.emit(e.mul, *channelwise(n, x, factor))
    return n.emit(e.add, *channelwise(n, y, shift))


def biased(n: Node, y: Atom, bias: Atom | None) -> Atom:
    """`y` and a number for each channel, if there are such."""
    return y if bias is None else n.emit(e.add, *channelwise(n, y, bias))


def channelwise(n: Node, x: Atom, vector: Atom) -> tuple[Atom, Atom]:
    """`x` and a number for each channel, its axis 1, of which it has as many, shaped to broadcast.

    Of the two the one that types tell less of is fitted to the other.
    """
    if len(vector.type.shape) != 1:
        raise Unsupported(f"{vector.type} for the channels of {x.type}, expected a vector")
    rank, count = len(x.type.shape), vector.type.shape[0]
    if rank < 2:
        return x, fitted(n, vector, 0, 1)
    if isinstance(count, int) and not isinstance(x.type.shape[1], int):
        x = fitted(n, x, 1, count)
    else:
        vector = fitted(n, vector, 0, x, 1)
    axes = tuple(range(1, rank - 1))
    return x, n.emit(unsqueeze, vector, axes=axes) if axes else vector
