"""Common subexpression elimination: equal ops on equal arguments are computed once."""

from __future__ import annotations

from typing import Any

from bucketize.ir import (
    STRUCTURAL,
    Atom,
    Binding,
    Builder,
    Const,
    Function,
    Var,
    all_bindings,
    rewrite,
)
from bucketize.op import Op


def cse(fn: Function) -> Function:
    """`fn` with each repeated binding replaced by the first.

    Constants are the same when they are one object, or small and equal.
    """
    seen: dict[Any, tuple[Var, ...]] = {}

    def rule(out: Builder, b: Binding, args: tuple[Atom, ...]) -> tuple[Var, ...] | None:
        if b.op in STRUCTURAL:
            return None
        key = out, *_key(b.op, args, b)  # a branch of an `if` sees no other branch's variables
        if key not in seen:
            seen[key] = out.emit_all(b.op, *args, **b.attrs)
        return seen[key]

    new = rewrite(fn, rule)
    return fn if _count(new) == _count(fn) else new


def _count(fn: Function) -> int:
    return sum(1 for _ in all_bindings(fn))


def _key(op: Op, args: tuple[Atom, ...], b: Binding) -> tuple[Any, ...]:
    attrs = tuple(sorted((k, repr(v)) for k, v in b.attrs.items()))
    return op, tuple(map(_identity, args)), attrs


def _identity(atom: Atom) -> Any:
    if isinstance(atom, Const) and atom.value.size <= 1:
        return str(atom.value.dtype), atom.value.shape, atom.value.tobytes()
    return atom
