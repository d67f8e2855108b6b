"""Constant folding: an op whose arguments are known is replaced by what it computes."""

from __future__ import annotations

import numpy as np

from bucketize.errors import TransformError
from bucketize.ir import STRUCTURAL, Atom, Binding, Builder, Const, Function, rewrite
from bucketize.types import Symbolic

MAX_BYTES = 1 << 28  # a folded constant must not outgrow what a model may hold


def fold_constant(fn: Function) -> Function:
    """`fn` with every binding of constants replaced by its value."""
    return rewrite(fn, _fold)


def _fold(_out: Builder, b: Binding, args: tuple[Atom, ...]) -> Atom | None:
    if b.op in STRUCTURAL:
        return None
    values = [a.value for a in args if isinstance(a, Const)]
    if len(values) < len(args) or _has_symbol(tuple(b.attrs.values())):
        return None
    size = b.out.type.dtype.itemsize
    for dim in b.out.type.shape:
        size *= dim if isinstance(dim, int) else 1
    if size > MAX_BYTES:
        return None
    try:
        return Const(np.asarray(b.op.compute(*values, **b.attrs)))
    except (IndexError, ValueError, ZeroDivisionError) as e:
        raise TransformError(f"{b.op.name} of constants cannot be computed: {e}") from e


def _has_symbol(value: object) -> bool:
    if isinstance(value, tuple):
        return any(map(_has_symbol, value))
    return isinstance(value, Symbolic)
