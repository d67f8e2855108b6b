"""Ops that make as many rows as values say become ones with room for all, which have kernels.

How many rows there are is a result of their own; the host cuts off what is left over.
"""

from __future__ import annotations

from bucketize.ir import Atom, Binding, Builder, Const, Function, rewrite
from bucketize.ops import first_rows, kept_boxes, non_max_suppression

WITH_ROOM = {non_max_suppression: kept_boxes}


def bound_rows(fn: Function) -> Function:
    """`fn` with room for all boxes that may be kept, of each class a known number at most."""
    return rewrite(fn, _with_room)


def _with_room(out: Builder, b: Binding, args: tuple[Atom, ...]) -> Atom | None:
    if b.op not in WITH_ROOM:
        return None
    most = args[2]
    limit = max(int(most.value), 0) if isinstance(most, Const) else None
    rows, count = out.emit_all(WITH_ROOM[b.op], *args, **b.attrs, limit=limit)
    return out.emit(first_rows, rows, count)
