"""Concats of many operands become concats of concats.

A kernel's text has lines for each operand, and a row of a table is as long as the longest of a
segment: both are kept short. Nothing is copied twice where parts of a result are written in place
(`program/aliasing`).
"""

from __future__ import annotations

from collections.abc import Sequence

from bucketize.ir import Atom, Binding, Builder, Function, rewrite
from bucketize.ops import concat

MOST = 16  # operands of a kernel


def split_concats(fn: Function) -> Function:
    """`fn` without concats of more than `MOST` operands."""
    return rewrite(fn, _split)


def _split(out: Builder, b: Binding, args: tuple[Atom, ...]) -> Atom | None:
    if b.op is not concat or len(args) <= MOST:
        return None
    parts: Sequence[Atom] = args
    while len(parts) > 1:
        parts = [_joined(out, b, parts[i : i + MOST]) for i in range(0, len(parts), MOST)]
    return parts[0]


def _joined(out: Builder, b: Binding, parts: Sequence[Atom]) -> Atom:
    return out.emit(concat, *parts, **b.attrs) if len(parts) > 1 else parts[0]
