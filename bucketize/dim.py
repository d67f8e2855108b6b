"""Dims: extents of tensors, some of them known only at run time.

A dim is an `int`, a named `Symbol` with bounds, an `Expr` over symbols, or `ANY`: unknown, and
equal to nothing else. Two of them become one in two ways, `meet` and `join`. Everybody imports
these from `bucketize.types`.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from bucketize.errors import TypeRelError

Monomial: TypeAlias = tuple["Atom", ...]
Bounds: TypeAlias = tuple[int, int | None]
Interval: TypeAlias = tuple[int, int | None]  # half-open; None is infinity


class Symbolic:
    """Arithmetic that the dims which are no integers share."""

    __slots__ = ()

    def __add__(self, other: Dim) -> Dim:
        return _add(self, other)  # type: ignore[arg-type]

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: Dim) -> Dim:
        return self + other * -1

    def __rsub__(self, other: Dim) -> Dim:
        return self * -1 + other

    def __mul__(self, other: Dim) -> Dim:
        return _multiply(self, other)  # type: ignore[arg-type]

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return _floor_divide(self, other)  # type: ignore[arg-type]

    def __rfloordiv__(self, other: Dim) -> Dim:
        return _floor_divide(other, self)  # type: ignore[arg-type]

    def __mod__(self, other: Dim) -> Dim:
        return _modulo(self, other)  # type: ignore[arg-type]

    def __rmod__(self, other: Dim) -> Dim:
        return _modulo(other, self)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class AnyDim(Symbolic):
    """An extent that nothing is known of; printed `?`."""

    def __str__(self) -> str:
        return "?"


@dataclass(frozen=True, slots=True)
class Symbol(Symbolic):
    """A named extent with inclusive bounds; `hi=None` is unbounded."""

    name: str
    lo: int = 1
    hi: int | None = None

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Term:
    """An atom that is no symbol: `fn` of dims that do not simplify further."""

    fn: str
    args: tuple[Dim, ...]

    def __str__(self) -> str:
        if self.fn in ("//", "%"):  # a bare `%` would read as the sigil of a variable
            return {"//": "//", "%": " % "}[self.fn].join(_operand(a) for a in self.args)
        return f"{self.fn}({', '.join(map(str, self.args))})"


@dataclass(frozen=True, slots=True)
class Expr(Symbolic):
    """A sum of products of atoms with integer factors, in a canonical order."""

    terms: tuple[tuple[Monomial, int], ...]

    def __str__(self) -> str:
        text = " + ".join(_product(m, c) for m, c in self.terms)
        return text.replace("+ -", "- ")


ANY = AnyDim()
Atom: TypeAlias = Symbol | Term
Dim: TypeAlias = int | Symbol | Expr | AnyDim
Shape: TypeAlias = tuple[Dim, ...]


def _operand(dim: Dim) -> str:
    if isinstance(dim, Expr):
        return str(dim) if _lone_call(dim) else f"({dim})"
    return f"({dim})" if isinstance(dim, int) and dim < 0 else str(dim)


def _lone_call(expr: Expr) -> bool:
    return any(_lone_term(expr, fn) for fn in ("min", "max", "broadcast"))


def _product(monomial: Monomial, factor: int) -> str:
    atoms = [f"({a})" if isinstance(a, Term) and a.fn in ("//", "%") else str(a) for a in monomial]
    if len(atoms) == 1 and factor == 1:
        return str(monomial[0])
    if factor != 1 or not atoms:
        atoms.insert(0, str(factor))
    return "*".join(atoms).replace("-1*", "-")


def _terms(dim: Dim) -> dict[Monomial, int]:
    if isinstance(dim, Expr):
        return dict(dim.terms)
    if isinstance(dim, Symbol):
        return {(dim,): 1}
    return {(): int(dim)} if dim else {}  # type: ignore[arg-type]


@functools.lru_cache(maxsize=1 << 16)
def _text(atom: Atom) -> str:
    return str(atom)


def _order(item: tuple[Monomial, int]) -> tuple[int, str]:
    return -len(item[0]), "*".join(map(_text, item[0]))


def _from_terms(terms: Mapping[Monomial, int]) -> Dim:
    kept = [(m, c) for m, c in terms.items() if c]
    if not kept:
        return 0
    if len(kept) == 1:
        ((monomial, factor),) = kept
        if not monomial:
            return factor
        if factor == 1 and len(monomial) == 1 and isinstance(monomial[0], Symbol):
            return monomial[0]
    return Expr(tuple(sorted(kept, key=_order)))


def _call(fn: str, *args: Dim) -> Dim:
    return Expr(((((Term(fn, args)),), 1),))


def _add(a: Dim, b: Dim) -> Dim:
    if isinstance(a, AnyDim) or isinstance(b, AnyDim):
        return ANY
    total = _terms(a)
    for monomial, factor in _terms(b).items():
        total[monomial] = total.get(monomial, 0) + factor
    return _from_terms(total)


def _multiply(a: Dim, b: Dim) -> Dim:
    if isinstance(a, AnyDim) or isinstance(b, AnyDim):
        return 0 if 0 in (a, b) else ANY
    total: dict[Monomial, int] = {}
    for m, c in _terms(a).items():
        for n, d in _terms(b).items():
            monomial = tuple(sorted(m + n, key=_text))
            total[monomial] = total.get(monomial, 0) + c * d
    return _from_terms(total)


def _divided(monomial: Monomial, by: Monomial) -> Monomial | None:
    rest = list(monomial)
    for atom in by:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def _floor_divide(a: Dim, b: Dim) -> Dim:
    """`a // b` for positive `b`: the terms that divide exactly leave the quotient."""
    if isinstance(a, AnyDim) or isinstance(b, AnyDim):
        return ANY
    if b == 0:
        raise TypeRelError(f"{a} divided by 0")
    if a == b:
        return 1
    divisor = list(_terms(b).items())
    if len(divisor) > 1:
        return _call("//", a, b)
    exact, left = _split(a, *divisor[0])
    return exact if _is_small(left, b) else exact + _quotient(left, b)


def _split(a: Dim, by: Monomial, factor: int) -> tuple[Dim, Dim]:
    """The terms of `a` that `factor*by` divides, divided, and the others."""
    exact: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, c in _terms(a).items():
        quotient = _divided(monomial, by)
        if quotient is not None and c % factor == 0:
            exact[quotient] = c // factor
        else:
            rest[monomial] = c
    return _from_terms(exact), _from_terms(rest)


def _quotient(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    if isinstance(a, Expr) and isinstance(b, int):  # (x//p + c)//q is (x + c*p)//(p*q)
        constant = dict(a.terms).get((), 0)
        inner = a - constant
        if isinstance(inner, Expr) and _lone_term(inner, "//"):
            x, p = _term_of(inner).args
            if isinstance(p, int):
                return (x + constant * p) // (p * b)
    return _call("//", a, b)


def _term_of(expr: Expr) -> Term:
    atom = expr.terms[0][0][0]
    assert isinstance(atom, Term)
    return atom


def _lone_term(expr: Expr, fn: str) -> bool:
    (monomial, factor), *rest = expr.terms
    lone = not rest and factor == 1 and len(monomial) == 1
    return lone and isinstance(monomial[0], Term) and monomial[0].fn == fn


def _is_small(left: Dim, divisor: Dim) -> bool:
    lo, hi = _extremes(left)
    return lo >= 0 and hi < _extremes(divisor)[0]


def _modulo(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return a % b
    quotient = a // b
    if isinstance(quotient, AnyDim):
        return ANY
    rest = a - quotient * b
    return rest if quotient == 0 or isinstance(rest, int) else _call("%", a, b)


def _extremes(dim: Dim) -> tuple[float, float]:
    if isinstance(dim, AnyDim):
        return 0, math.inf
    if isinstance(dim, Symbol):
        return dim.lo, math.inf if dim.hi is None else dim.hi
    if isinstance(dim, Expr):
        spans = [_span(m, c) for m, c in dim.terms]
        return sum(s[0] for s in spans), sum(s[1] for s in spans)
    return dim, dim


def _span(monomial: Monomial, factor: int) -> tuple[float, float]:
    lo: float = factor
    hi: float = factor
    for atom in monomial:
        span = _extremes(atom) if isinstance(atom, Symbol) else _term_span(atom)
        corners = [0 if 0 in (p, q) else p * q for p in (lo, hi) for q in span]
        lo, hi = min(corners), max(corners)
    return lo, hi


def _term_span(term: Term) -> tuple[float, float]:
    (alo, ahi), (blo, bhi) = (_extremes(a) for a in term.args)
    if term.fn == "//":
        low = alo // (bhi if alo >= 0 else max(blo, 1))
        high = ahi // (max(blo, 1) if ahi >= 0 else bhi)
        return (-math.inf if math.isnan(low) else low), (math.inf if math.isnan(high) else high)
    if term.fn == "%":
        return 0, bhi - 1
    if term.fn == "min":
        return min(alo, blo), min(ahi, bhi)
    return min(alo, blo) if term.fn == "broadcast" else max(alo, blo), max(ahi, bhi)


def bounds(dim: Dim) -> Bounds:
    """The least and greatest extent of `dim`, by interval arithmetic; None is unbounded."""
    lo, hi = _extremes(dim)
    return int(lo) if math.isfinite(lo) else 0, int(hi) if math.isfinite(hi) else None


def symbols(dim: Dim) -> frozenset[Symbol]:
    """The symbols that `dim` is made of."""
    if isinstance(dim, Symbol):
        return frozenset((dim,))
    if not isinstance(dim, Expr):
        return frozenset()
    atoms = [a for monomial, _ in dim.terms for a in monomial]
    inner = (symbols(d) for a in atoms if isinstance(a, Term) for d in a.args)
    return frozenset(a for a in atoms if isinstance(a, Symbol)).union(*inner)


def substitute(dim: Dim, env: Mapping[str, Dim]) -> Dim:
    """`dim` with the symbols that `env` names replaced."""
    if isinstance(dim, Symbol):
        return env.get(dim.name, dim)
    if not isinstance(dim, Expr):
        return dim
    total: Dim = 0
    for monomial, factor in dim.terms:
        product: Dim = factor
        for atom in monomial:
            if isinstance(atom, Symbol):
                product = product * env.get(atom.name, atom)
            else:
                product = product * FUNCTIONS[atom.fn](*(substitute(a, env) for a in atom.args))
        total = total + product
    return total


def evaluate(dim: Dim, env: Mapping[str, int]) -> int:
    """The integer that `dim` is when its symbols have the values in `env`."""
    if isinstance(dim, int):
        return dim
    value = substitute(dim, env)
    if not isinstance(value, int):
        raise TypeRelError(f"{dim} is not known: {value} remains under {dict(env)}")
    return value


def minimum(a: Dim, b: Dim) -> Dim:
    """The smaller of two extents."""
    return _choose("min", a, b)


def maximum(a: Dim, b: Dim) -> Dim:
    """The greater of two extents."""
    return _choose("max", a, b)


def _choose(fn: str, a: Dim, b: Dim) -> Dim:
    if isinstance(a, AnyDim) or isinstance(b, AnyDim):
        return ANY
    lo, hi = _extremes(a - b)
    if lo >= 0:
        return b if fn == "min" else a
    if hi <= 0:
        return a if fn == "min" else b
    return _call(fn, a, b)


def meet(a: Dim, b: Dim) -> Dim:
    """The dim when both must hold, the one that says more; the rest is checked at run time."""
    if a == b or isinstance(b, AnyDim):
        return a
    if isinstance(a, AnyDim):
        return b
    if not _may_be_equal(a, b):
        raise TypeRelError(f"extents differ: {a} and {b}")
    if isinstance(a, int) or isinstance(b, int):
        return a if isinstance(a, int) else b
    return a if isinstance(a, Symbol) else b


def _may_be_equal(a: Dim, b: Dim) -> bool:
    lo, hi = _extremes(a - b)
    return lo <= 0 <= hi


def join(a: Dim, b: Dim) -> Dim:
    """The dim when either may hold, as after the branches of an `If`."""
    return a if a == b else ANY


def broadcast(a: Dim, b: Dim) -> Dim:
    """The extent of an axis after numpy broadcasting; `is it 1?` may stay a run-time question."""
    if b in (a, 1):
        return a
    if a == 1:
        return b
    a_wins, b_wins = _is_never_one(a), _is_never_one(b)
    if a_wins and b_wins:
        return meet(a, b)
    if a_wins or b_wins:
        return a if a_wins else b
    if isinstance(a, AnyDim) or isinstance(b, AnyDim):
        return ANY
    extents = sorted({*_broadcast_extents(a), *_broadcast_extents(b)}, key=str)
    return functools.reduce(functools.partial(_call, "broadcast"), extents)


def _broadcast_extents(dim: Dim) -> Iterator[Dim]:
    """The dims that `dim` broadcasts: in any order, and each as good as twice."""
    if isinstance(dim, Expr) and _lone_term(dim, "broadcast"):
        for inner in dim.terms[0][0][0].args:  # type: ignore[union-attr]
            yield from _broadcast_extents(inner)
    else:
        yield dim


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "//": operator.floordiv,
    "%": operator.mod,
    "min": minimum,
    "max": maximum,
    "broadcast": broadcast,
}
"""What the functions in terms mean, on integers and on dims."""


def _is_never_one(dim: Dim) -> bool:
    lo, hi = bounds(dim)
    return lo > 1 or hi == 0


def _pad_left(shape: Shape, rank: int) -> Shape:
    return (1,) * (rank - len(shape)) + shape


def broadcast_shapes(*shapes: Shape) -> Shape:
    """Whole shapes broadcast, aligned at the last axis."""
    rank = max(map(len, shapes), default=0)
    out: Shape = (1,) * rank
    for shape in shapes:
        out = tuple(broadcast(a, b) for a, b in zip(out, _pad_left(shape, rank), strict=True))
    return out


def product(dims: Iterable[Dim]) -> Dim:
    """The number of elements of a shape."""
    total: Dim = 1
    for dim in dims:
        total = total * dim
    return total
