"""Constant folding: an op whose arguments are known is replaced by what it computes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bucketize.ir import STRUCTURAL, Atom, Binding, Builder, Const, Function, rewrite
from bucketize.op import MAX_BYTES, Array, is_symbolic


def fold_constant(fn: Function) -> Function:
    """`fn` with every binding of constants replaced by its value."""
    return rewrite(fn, _fold)


def _fold(_out: Builder, b: Binding, args: tuple[Atom, ...]) -> list[Const] | None:
    if b.op in STRUCTURAL or b.op.relation is not None:
        return None
    values = [a.value for a in args if isinstance(a, Const)]
    if len(values) < len(args) or is_symbolic(tuple(b.attrs.values())):
        return None
    try:
        if _nbytes(b, values) > MAX_BYTES:
            return None
        return [Const(array) for array in b.op.run(*values, **b.attrs)]
    except (IndexError, ValueError, ZeroDivisionError):
        return None  # refused where it is run, if it ever is


def _nbytes(b: Binding, values: Sequence[Array]) -> int:
    shapes = b.op.run_time_shapes(*values, **b.attrs)
    return sum(v.type.dtype.itemsize * math.prod(s) for v, s in zip(b.outs, shapes, strict=True))
