"""Ops that make as many rows as values say become ones with room for all, which have kernels.

How many rows there are is a result of their own; what is left over is cut off.
"""

from __future__ import annotations

from bucketize.ir import Atom, Binding, Builder, Function, rewrite
from bucketize.ops import dyn_first_rows


def bound_rows(fn: Function) -> Function:
    """`fn` with room for all rows that there may be, which is cut off."""
    return rewrite(fn, _with_room)


def _with_room(out: Builder, b: Binding, args: tuple[Atom, ...]) -> Atom | None:
    if b.op.room is None:
        return None
    op, attrs = b.op.room(*(a.type for a in args), **b.attrs)
    rows, count = out.emit_all(op, *args, **attrs)
    return out.emit(dyn_first_rows, rows, count)
