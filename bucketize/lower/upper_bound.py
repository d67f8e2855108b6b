"""Ops that make as many rows as values say are told how many, or become ones with room for all.

What counts has a kernel, and its result is read; what is left over of a room is cut off.
"""

from __future__ import annotations

import numpy as np

from bucketize.ir import Atom, Binding, Builder, Const, Function, rewrite
from bucketize.ops import (
    cast,
    compress,
    dyn_first_rows,
    dyn_nonzero_rows,
    gather,
    nonzero,
    not_equal,
    reduce_sum,
    squeeze,
    transpose,
)


def bound_rows(fn: Function) -> Function:
    """`fn` with rows that are counted first, or have room for all that there may be."""
    return rewrite(fn, _bounded)


def _bounded(out: Builder, b: Binding, args: tuple[Atom, ...]) -> Atom | None:
    if b.op is nonzero and all(a.type.is_tensor and a.type.shape for a in args):
        return out.emit(transpose, _places(out, args[0]), axes=(1, 0))
    if b.op is compress and all(a.type.is_tensor for a in args):
        return out.emit(
            gather, args[0], out.emit(squeeze, _places(out, args[1]), axes=(1,)), **b.attrs
        )
    if b.op.room is None:
        return None
    op, attrs = b.op.room(*(a.type for a in args), **b.attrs)
    rows, count = out.emit_all(op, *args, **attrs)
    return out.emit(dyn_first_rows, rows, count)


def _places(out: Builder, x: Atom) -> Atom:
    """A row of indices of each element that is not zero."""
    type_ = x.type
    is_some = (
        x if type_.dtype == np.bool_ else out.emit(not_equal, x, Const(np.zeros((), type_.dtype)))
    )
    ones = out.emit(cast, is_some, dtype="int64")
    return out.emit(
        dyn_nonzero_rows, x, out.emit(reduce_sum, ones, axes=tuple(range(len(type_.shape))))
    )
