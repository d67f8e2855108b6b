"""Arithmetic of dims in their canonical form: what the functions of dims simplify to.

Everybody imports these from `bucketize.types`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping

from bucketize.errors import TypeRelError
from bucketize.types.dim import (
    ANY,
    AnyDim,
    Atom,
    Dim,
    Expr,
    Monomial,
    Symbol,
    Symbolic,
    Term,
    lone_term,
)
from bucketize.types.extent import atom_count, atom_divisor, exact_divisor, extremes

MOST_ATOMS = 1 << 16  # of any dim: products of several such extents, as launch rules make them


def term(fn: str, *args: Dim) -> Dim:
    """A dim that is `fn` of others, with nothing to simplify."""
    return ANY if sum(map(atom_count, args)) > MOST_ATOMS else Expr(((((Term(fn, args)),), 1),))


@functools.lru_cache(maxsize=1 << 16)
def add(a: Dim, b: Dim) -> Dim:
    """The sum of two dims."""
    return total((a, b))


def total(dims: Iterable[Dim]) -> Dim:
    """The sum of dims, put in order once."""
    summed: dict[Monomial, int] = {}
    for dim in dims:
        if isinstance(dim, AnyDim):
            return ANY
        for monomial, factor in _terms(dim).items():
            summed[monomial] = summed.get(monomial, 0) + factor
    return _from_terms(summed)


@functools.lru_cache(maxsize=1 << 16)
def multiply(a: Dim, b: Dim) -> Dim:
    """The product of two dims; `?` if it takes more than `MOST_ATOMS` to write."""
    if isinstance(a, AnyDim) or isinstance(b, AnyDim):
        return 0 if 0 in (a, b) else ANY
    if isinstance(a, Expr) and isinstance(b, Expr) and _is_too_long(a, b):
        return ANY
    terms: dict[Monomial, int] = {}
    for m, c in _terms(a).items():
        for n, d in _terms(b).items():
            monomial = tuple(sorted(m + n, key=_text))
            terms[monomial] = terms.get(monomial, 0) + c * d
    return _from_terms(terms)


def _is_too_long(a: Expr, b: Expr) -> bool:
    """Whether the product of two dims is: each term of one stands beside all of the other."""
    return len(b.terms) * atom_count(a) + len(a.terms) * atom_count(b) > MOST_ATOMS


def _terms(dim: Dim) -> dict[Monomial, int]:
    if isinstance(dim, Expr):
        return dict(dim.terms)
    if isinstance(dim, Symbol):
        return {(dim,): 1}
    return {(): int(dim)}  # type: ignore[arg-type]


@functools.lru_cache(maxsize=1 << 16)
def _text(atom: Atom) -> str:
    return str(atom)


def _order(item: tuple[Monomial, int]) -> tuple[int, str]:
    return -len(item[0]), "*".join(map(_text, item[0]))


def _from_terms(terms: Mapping[Monomial, int]) -> Dim:
    kept = [(m, c) for m, c in terms.items() if c]
    for monomial, factor in kept:
        whole = _reduced(monomial, factor) if abs(factor) > 1 else None
        if whole is not None:
            return total((whole, *(_from_terms({m: c}) for m, c in kept if m != monomial)))
    if not kept:
        return 0
    if len(kept) == 1:
        ((monomial, factor),) = kept
        if not monomial:
            return factor
        if factor == 1 and len(monomial) == 1 and isinstance(monomial[0], Symbol):
            return monomial[0]
    return Expr(tuple(sorted(kept, key=_order)))


def _reduced(monomial: Monomial, factor: int) -> Dim | None:
    """`8*(S//8)` as `S` where that is a multiple of 8; None if nothing is to be reduced."""
    for k, atom in enumerate(monomial):
        common = math.gcd(factor, exact_divisor(atom))
        if common > 1:
            assert isinstance(atom, Term)
            a, b = atom.args
            rest = _from_terms({monomial[:k] + monomial[k + 1 :]: factor // common})
            return rest * (a // (b // common))
    return None


def _divided(monomial: Monomial, by: Monomial) -> Monomial | None:
    rest = list(monomial)
    for atom in by:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def floor_divide(a: Dim, b: Dim) -> Dim:
    """The quotient `a // b`; raises TypeRelError where `b` is not positive."""
    if isinstance(a, int) and isinstance(b, int):
        check_divisor(a, b)
        return a // b
    return _floor_divide(a, b)


@functools.lru_cache(maxsize=1 << 16)
def _floor_divide(a: Dim, b: Dim) -> Dim:
    """`a // b` for positive `b`: the terms that divide exactly leave the quotient."""
    if isinstance(a, AnyDim) or isinstance(b, AnyDim):
        return ANY
    check_divisor(a, b)
    if a == b:
        return 1
    by = list(_terms(b).items())
    if len(by) > 1:
        return term("//", a, b)
    exact, left = _split(a, *by[0])
    if isinstance(b, int) and isinstance(left, Symbolic):
        whole, left = _split_multiples(left, b)
        exact = exact + whole
    return exact if left == 0 or _is_small(left, b) else exact + _quotient(left, b)


def check_divisor(a: Dim, b: Dim) -> None:
    """Raise a TypeRelError unless it is positive, also where all is integers by now.

    Bounds and the rules by which dims simplify are those of positive divisors.
    """
    if isinstance(b, int) and b <= 0:
        raise TypeRelError(f"{a} divided by {b}: a divisor of dims is positive")


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


def _split_multiples(a: Dim, by: int) -> tuple[Dim, Dim]:
    """The terms of `a` that are multiples of `by`, divided, and the others."""
    exact: list[Dim] = []
    rest: dict[Monomial, int] = {}
    for monomial, c in _terms(a).items():
        if by > 1 and monomial and c * math.prod(map(atom_divisor, monomial)) % by == 0:
            exact.append(_divided_whole(monomial, c, by))
        else:
            rest[monomial] = c
    return total(exact), _from_terms(rest)


def _divided_whole(monomial: Monomial, factor: int, by: int) -> Dim:
    """A multiple of `by`, divided: its factor first, then an atom that all the rest divides."""
    common = math.gcd(factor, by)
    left = by // common
    for k, atom in enumerate(monomial):
        if atom_divisor(atom) % left == 0:
            others = _from_terms({monomial[:k] + monomial[k + 1 :]: factor // common})
            return others * _quotient(_from_terms({(atom,): 1}), left)
    return factor // common * term("//", _from_terms({monomial: 1}), left)


def _quotient(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    if isinstance(a, Expr) and isinstance(b, int):  # (x//p + c)//q is (x + c*p)//(p*q)
        constant = dict(a.terms).get((), 0)
        inner = lone_term(a - constant, "//")
        if inner and isinstance(p := inner.args[1], int):
            return (inner.args[0] + constant * p) // (p * b)
    return term("//", a, b)


def _is_small(left: Dim, divisor: Dim) -> bool:
    lo, hi = extremes(left)
    return lo >= 0 and hi < extremes(divisor)[0]


def modulo(a: Dim, b: Dim) -> Dim:
    """The rest `a % b`; raises TypeRelError where `b` is 0."""
    if isinstance(a, int) and isinstance(b, int):
        check_divisor(a, b)
        return a % b
    quotient = a // b
    if isinstance(quotient, AnyDim):
        return ANY
    rest = a - quotient * b
    return rest if quotient == 0 or isinstance(rest, int) else term("%", a, b)


def minimum(a: Dim, b: Dim) -> Dim:
    """The smaller of two extents."""
    return _choose("min", a, b)


def maximum(a: Dim, b: Dim) -> Dim:
    """The greater of two extents."""
    return _choose("max", a, b)


@functools.lru_cache(maxsize=1 << 16)
def _choose(fn: str, a: Dim, b: Dim) -> Dim:
    if isinstance(a, AnyDim) or isinstance(b, AnyDim):
        return ANY
    lo, hi = extremes(a - b)
    if lo >= 0:
        return b if fn == "min" else a
    if hi <= 0:
        return a if fn == "min" else b
    return term(fn, a, b)
