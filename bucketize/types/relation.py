"""How dims relate: two of them become one by `meet`, `join` or `broadcast`; symbols get values.

Everybody imports these from `bucketize.types`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

from bucketize.errors import TypeRelError
from bucketize.types.algebra import minimum, term, total
from bucketize.types.dim import (
    ANY,
    FUNCTIONS,
    AnyDim,
    Dim,
    Expr,
    Monomial,
    Shape,
    Symbol,
    lone_term,
)
from bucketize.types.extent import bounds, extremes


def substitute(dim: Dim, env: Mapping[str, Dim]) -> Dim:
    """`dim` with the symbols that `env` names replaced."""
    if isinstance(dim, Symbol):
        return env.get(dim.name, dim)
    if not isinstance(dim, Expr):
        return dim
    parts = [_replaced(monomial, factor, env) for monomial, factor in dim.terms]
    return sum(parts) if all(type(p) is int for p in parts) else total(parts)


def _replaced(monomial: Monomial, factor: int, env: Mapping[str, Dim]) -> Dim:
    product: Dim = factor
    for atom in monomial:
        if isinstance(atom, Symbol):
            product = product * env.get(atom.name, atom)
        else:
            args = (substitute(a, env) for a in atom.args)
            product = product * FUNCTIONS[atom.fn].value(*args)
    return product


def evaluate(dim: Dim, env: Mapping[str, int]) -> int:
    """The integer that `dim` is when its symbols have the values in `env`."""
    if isinstance(dim, int):
        return dim
    value = substitute(dim, env)
    if not isinstance(value, int):
        raise TypeRelError(f"{dim} is not known: {value} remains under {dict(env)}")
    return value


Assumption: TypeAlias = tuple[str, Dim, Dim]
"""A relation that types leave to run time: `a == b`, `b` is `a` or 1 (broadcast), `a >= b`."""

_made: ContextVar[list[Assumption] | None] = ContextVar("assumptions", default=None)


@contextmanager
def assumptions() -> Iterator[list[Assumption]]:
    """The relations that rules read in the context rely on and cannot prove."""
    noted: list[Assumption] = []
    token = _made.set(noted)
    try:
        yield noted
    finally:
        _made.reset(token)


def _assume(relation: str, a: Dim, b: Dim) -> None:
    noted = _made.get()
    if noted is not None:
        noted.append((relation, a, b))


def rely_on_least(dim: Dim, least: Dim) -> None:
    """Rely on `dim >= least`: where it is not certain it is checked at run time."""
    if extremes(dim - least)[0] < 0:
        _assume(">=", dim, least)


def meet(a: Dim, b: Dim) -> Dim:
    """The dim when both must hold, the one that says more; the rest is checked at run time."""
    if a == b or isinstance(b, AnyDim):
        return a
    if isinstance(a, AnyDim):
        return b
    lo, hi = extremes(a - b)
    if not lo <= 0 <= hi:
        raise TypeRelError(f"extents differ: {a} and {b}")
    _assume("==", a, b)
    if isinstance(a, int) or isinstance(b, int):
        return a if isinstance(a, int) else b
    return a if isinstance(a, Symbol) else b


def join(a: Dim, b: Dim) -> Dim:
    """The dim when either may hold, as after the branches of an `If`."""
    return a if a == b else ANY


def broadcast(a: Dim, b: Dim) -> Dim:
    """The extent of an axis after numpy broadcasting; `is it 1?` may stay a run-time question."""
    if a == b or 1 in (a, b):
        return b if a == 1 else a
    whole = _whole(a, b)
    if whole is not None:
        return whole
    a_wins, b_wins = _is_never_one(a), _is_never_one(b)
    if a_wins and b_wins:
        return meet(a, b)
    if a_wins or b_wins:
        wins, other = (a, b) if a_wins else (b, a)
        if not isinstance(other, AnyDim):
            _assume("broadcast", wins, other)
        return wins
    if isinstance(a, AnyDim) or isinstance(b, AnyDim):
        return ANY
    extents = sorted({*_broadcast_extents(a), *_broadcast_extents(b)}, key=str)
    return functools.reduce(functools.partial(term, "broadcast"), extents)


def _whole(a: Dim, b: Dim) -> Dim | None:
    """The one of which the other is `min(one, bound)`, as positions out of a table are; else None.

    Where the bound is never 1 such two broadcast only where they are equal.
    """
    for whole, cut in ((a, b), (b, a)):
        limited = lone_term(cut, "min")
        if limited is not None and whole in limited.args:
            most = limited.args[1] if limited.args[0] == whole else limited.args[0]
            if bounds(most)[0] > 1:
                rely_on_least(most, whole)
                return whole
    return None


def _broadcast_extents(dim: Dim) -> Iterator[Dim]:
    """The dims that `dim` broadcasts: in any order, and each as good as twice."""
    if outer := lone_term(dim, "broadcast"):
        for inner in outer.args:
            yield from _broadcast_extents(inner)
    else:
        yield dim


def broadcast_again(a: Dim, b: Dim) -> Dim:
    """What was broadcast, under narrower bounds; what they rely on is still to be checked."""
    with assumptions() as noted:
        narrower = broadcast(a, b)
    return term("broadcast", a, b) if noted else narrower


def _is_never_one(dim: Dim) -> bool:
    lo, hi = bounds(dim)
    is_multiple = isinstance(dim, Expr) and math.gcd(*(c for _, c in dim.terms)) > 1
    return lo > 1 or (hi is not None and hi < 1) or is_multiple


def broadcast_shapes(*shapes: Shape) -> Shape:
    """Whole shapes broadcast, aligned at the last axis."""
    rank = max(map(len, shapes), default=0)
    out: Shape = (1,) * rank
    for shape in shapes:
        whole = (1,) * (rank - len(shape)) + shape
        out = tuple(broadcast(a, b) for a, b in zip(out, whole, strict=True))
    return out


def ceil_div(a: Dim, b: Dim) -> Dim:
    """How many of `b` cover `a`, for positive `b`."""
    return (a + b - 1) // b


def positive(dim: Dim) -> Dim:
    """1 where an extent is not 0, else 0."""
    return minimum(dim, 1)


def product(dims: Iterable[Dim]) -> Dim:
    """The number of elements of a shape."""
    count: Dim = 1
    for dim in dims:
        count = count * dim
    return count
