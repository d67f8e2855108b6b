"""Constant folding: an op whose arguments are known is replaced by what it computes."""

from __future__ import annotations

import math

from bucketize.errors import TransformError
from bucketize.ir import STRUCTURAL, Atom, Binding, Builder, Const, Function, rewrite
from bucketize.types import Symbolic, TensorType

MAX_BYTES = 1 << 28  # a folded constant must not outgrow what a model may hold


def fold_constant(fn: Function) -> Function:
    """`fn` with every binding of constants replaced by its value."""
    return rewrite(fn, _fold)


def _fold(_out: Builder, b: Binding, args: tuple[Atom, ...]) -> list[Const] | None:
    if b.op in STRUCTURAL:
        return None
    values = [a.value for a in args if isinstance(a, Const)]
    if len(values) < len(args) or _has_symbol(tuple(b.attrs.values())):
        return None
    if sum(_nbytes(v.type) for v in b.outs) > MAX_BYTES:
        return None
    try:
        return [Const(array) for array in b.op.run(*values, **b.attrs)]
    except (IndexError, ValueError, ZeroDivisionError) as e:
        raise TransformError(f"{b.op.name} of constants cannot be computed: {e}") from e


def _nbytes(type_: TensorType) -> int:
    return type_.dtype.itemsize * math.prod(d for d in type_.shape if isinstance(d, int))


def _has_symbol(value: object) -> bool:
    if isinstance(value, tuple):
        return any(map(_has_symbol, value))
    return isinstance(value, Symbolic)
