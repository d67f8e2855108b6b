"""Means and norms as sums over a count: padded, they are told the true one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

import numpy as np

from bucketize.ir import Atom, Binding, Builder, Const, Function, Var, rewrite
from bucketize.op import FREE, Op
from bucketize.ops.dim import from_dims
from bucketize.ops.elementwise.arithmetic import add, cast, div, mul, rsqrt, sub
from bucketize.ops.reduce import layer_norm, reduce_mean, reduce_sum
from bucketize.types import product, symbols

DTYPES = (np.dtype(np.float32), np.dtype(np.float64))  # a mean of others is rounded otherwise


def counted(fn: Function, names: Set[str]) -> Function:
    """`fn`, where what divides by an extent of these symbols is a sum divided by a `from_dims`."""

    def rule(out: Builder, b: Binding, args: tuple[Atom, ...]) -> Atom | None:
        if b.op not in COUNTED or args[0].type.dtype not in DTYPES:
            return None
        if not _counts(b, args, names):
            return None
        return COUNTED[b.op](out, *args, **b.attrs)

    return rewrite(fn, rule)


def _counts(b: Binding, args: tuple[Atom, ...], names: Set[str]) -> bool:
    """Whether an axis of these symbols is one that `b` brings together."""
    shapes = [a.type.shape for a in args]
    return any(
        not names.isdisjoint(s.name for s in symbols(dim))
        and b.op.padding(i, axis, *shapes, **b.attrs) is not FREE
        for i, shape in enumerate(shapes)
        for axis, dim in enumerate(shape)
    )


def _mean(out: Builder, x: Atom, *, axes: tuple[int, ...], keepdims: bool) -> Var:
    many = product([x.type.shape[i] for i in axes])
    total = out.emit(reduce_sum, x, axes=axes, keepdims=keepdims)
    count = out.emit(from_dims, dims=(many,), scalar=True)
    return out.emit(div, total, out.emit(cast, count, dtype=x.type.dtype.name))


def _norm(out: Builder, x: Atom, scale: Atom, bias: Atom, *, axis: int, epsilon: float) -> Var:
    axes = tuple(range(axis, len(x.type.shape)))
    centred = out.emit(sub, x, _mean(out, x, axes=axes, keepdims=True))
    square = out.emit(mul, centred, centred)
    variance = _mean(out, square, axes=axes, keepdims=True)
    least = Const(np.asarray(epsilon, x.type.dtype))
    factor = out.emit(rsqrt, out.emit(add, variance, least))
    return out.emit(add, out.emit(mul, out.emit(mul, centred, factor), scale), bias)


COUNTED: Mapping[Op, Callable[..., Var]] = {reduce_mean: _mean, layer_norm: _norm}
"""By op: what it becomes."""
