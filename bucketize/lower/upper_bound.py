"""Ops that make as many rows as values say become ones with room for all, which have kernels.

How many rows there are is a result of their own; what is left over is cut off.
"""

from __future__ import annotations

from bucketize.ir import Atom, Binding, Builder, Function, rewrite
from bucketize.op import Attrs, Op
from bucketize.ops import (
    compress,
    dyn_first_rows,
    gather,
    nonzero,
    nonzero_rows,
    squeeze,
    transpose,
)


def bound_rows(fn: Function) -> Function:
    """`fn` with room for all rows that there may be, of which what is left over is cut off."""
    return rewrite(fn, _with_room)


def _with_room(out: Builder, b: Binding, args: tuple[Atom, ...]) -> Atom | None:
    if b.op is nonzero and all(a.type.is_tensor and a.type.shape for a in args):
        return out.emit(transpose, _rows(out, args, nonzero_rows, {}), axes=(1, 0))
    if b.op is compress and all(a.type.is_tensor for a in args):
        rows = _rows(out, args[1:], nonzero_rows, {})
        return out.emit(gather, args[0], out.emit(squeeze, rows, axes=(1,)), **b.attrs)
    if b.op.room is None:
        return None
    return _rows(out, args, *b.op.room(*(a.type for a in args), **b.attrs))


def _rows(out: Builder, args: tuple[Atom, ...], op: Op, attrs: Attrs) -> Atom:
    rows, count = out.emit_all(op, *args, **attrs)
    return out.emit(dyn_first_rows, rows, count)
