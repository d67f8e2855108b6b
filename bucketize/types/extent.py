"""What is known of dims without their sizes: bounds, divisors, what they are made of.

Everybody imports these from `bucketize.types`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, KeysView

from bucketize.types.dim import (
    ANY,
    FUNCTIONS,
    AnyDim,
    Atom,
    Dim,
    Expr,
    Monomial,
    Span,
    Symbol,
    Term,
)

LONGEST = 256
"""Atoms of an extent in a type. Extents that mention one before them twice double with each layer;
what is longer is `?`, which gets a name where it is made, and what follows is short again."""


def extremes(dim: Dim) -> Span:
    """The least and greatest value of `dim`, infinite where it is unbounded."""
    if isinstance(dim, AnyDim):
        return 0, math.inf
    if isinstance(dim, Symbol):
        return dim.lo, math.inf if dim.hi is None else dim.hi
    if isinstance(dim, Expr):
        spans = [_span(m, c) for m, c in dim.terms]
        return sum(s[0] for s in spans), sum(s[1] for s in spans)
    return dim, dim


def _span(monomial: Monomial, factor: int) -> Span:
    lo: float = factor
    hi: float = factor
    for atom in monomial:
        span = extremes(atom) if isinstance(atom, Symbol) else _term_span(atom)
        lo, hi = FUNCTIONS["*"].span((lo, hi), span)
    return lo, hi


def _term_span(term: Term) -> Span:
    a, b = (extremes(d) for d in term.args)
    return FUNCTIONS[term.fn].span(a, b)


def bounds(dim: Dim) -> tuple[int, int | None]:
    """The least and greatest extent of `dim`, by interval arithmetic; None is unbounded."""
    lo, hi = extremes(dim)
    return int(lo) if math.isfinite(lo) else 0, int(hi) if math.isfinite(hi) else None


def divisor(dim: Dim) -> int:
    """A number that certainly divides an extent: of a symbol, its step."""
    if isinstance(dim, Expr):
        return math.gcd(*(c * math.prod(map(atom_divisor, m)) for m, c in dim.terms))
    if isinstance(dim, Symbol):
        return dim.step
    return abs(dim) if isinstance(dim, int) else 1


@functools.lru_cache(maxsize=1 << 12)
def atom_divisor(atom: Atom) -> int:
    """A number that certainly divides the values of an atom."""
    if isinstance(atom, Symbol):
        return atom.step
    if atom.fn in ("min", "max"):
        return math.gcd(*map(divisor, atom.args))
    by = exact_divisor(atom)
    return divisor(atom.args[0]) // by if by > 1 else 1


def exact_divisor(atom: Atom) -> int:
    """By what an atom divides without a rest; 1 if it may leave one."""
    if isinstance(atom, Symbol) or atom.fn != "//":
        return 1
    a, b = atom.args
    return b if isinstance(b, int) and b > 0 and divisor(a) % b == 0 else 1


def followed(dim: Dim) -> Dim:
    """`dim` as an extent of a type: `?` if it takes more than `LONGEST` atoms to write."""
    return dim if not isinstance(dim, Expr) or atom_count(dim) <= LONGEST else ANY


def atom_count(dim: Dim) -> int:
    """How many atoms a dim is written with."""
    if not isinstance(dim, Expr):
        return 1
    atoms = [a for monomial, _ in dim.terms for a in monomial]
    return len(atoms) + sum(atom_count(d) for a in atoms if isinstance(a, Term) for d in a.args)


def symbols(dim: Dim) -> KeysView[Symbol]:
    """The symbols that `dim` is made of: a set, but in the same order in every process."""
    return dict.fromkeys(a for a in _atoms(dim) if isinstance(a, Symbol)).keys()


def terms_of(dim: Dim) -> Iterator[Term]:
    """The terms that `dim` is made of, those inside of others, too."""
    return (a for a in _atoms(dim) if isinstance(a, Term))


def _atoms(dim: Dim) -> Iterator[Atom]:
    if isinstance(dim, Symbol):
        yield dim
    elif isinstance(dim, Expr):
        for atom in (a for monomial, _ in dim.terms for a in monomial):
            yield atom
            if isinstance(atom, Term):
                for inner in atom.args:
                    yield from _atoms(inner)
