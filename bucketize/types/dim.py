"""Dims: extents of tensors, some of them known only at run time.

A dim is an `int`, a named `Symbol` with bounds, an `Expr` over symbols, or `ANY`: unknown, and
equal to nothing else. Two of them become one in two ways, `meet` and `join`. Everybody imports
these from `bucketize.types`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from bucketize.errors import TypeRelError

Monomial: TypeAlias = tuple["Atom", ...]
Bounds: TypeAlias = tuple[int, int | None]
Sizes: TypeAlias = Mapping[str, int]
"""Extents by the name of each symbol."""
Range: TypeAlias = tuple[int, int | None] | tuple[int, int | None, int]
"""Sizes as they are given: the least, the greatest and, if it is not 1, the step."""
Span: TypeAlias = tuple[float, float]
Interval: TypeAlias = tuple[int, int | None]  # half-open; None is infinity
MOST_EXTENT = 1 << 62
"""No extent is as large: decisions compare integers of 64 bits."""


def show_interval(interval: Interval) -> str:
    """The sizes in it as people read them, both ends inclusive: `3`, `2..3`, `256..`."""
    lo, hi = interval
    if hi is None:
        return f"{lo}.."
    return str(lo) if hi == lo + 1 else f"{lo}..{hi - 1}"


class Symbolic:
    """Arithmetic that the dims which are no integers share."""

    __slots__ = ()

    def __add__(self, other: Dim) -> Dim:
        return _add(self, other)

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: Dim) -> Dim:
        return self + other * -1

    def __rsub__(self, other: Dim) -> Dim:
        return self * -1 + other

    def __mul__(self, other: Dim) -> Dim:
        return _multiply(self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return _floor_divide(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return _floor_divide(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return _modulo(self, other)  # type: ignore[arg-type]

    def __rmod__(self, other: Dim) -> Dim:
        return _modulo(other, self)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class AnyDim(Symbolic):
    """An extent that nothing is known of; printed `?`."""

    def __str__(self) -> str:
        return "?"

    def __reduce__(self) -> str:
        return "ANY"  # the one there is, also out of a pickle


@dataclass(frozen=True, slots=True)
class Symbol(Symbolic):
    """A named extent with inclusive bounds, themselves sizes of it; `hi=None` is unbounded."""

    name: str
    lo: int = 0
    hi: int | None = None
    step: int = 1
    """Its sizes are multiples of this."""

    def __str__(self) -> str:
        return self.name

    @property
    def bounds(self) -> Range:
        """The bounds as they are given: (lo, hi), or (lo, hi, step)."""
        return (self.lo, self.hi, self.step) if self.step > 1 else (self.lo, self.hi)

    @property
    def option(self) -> str:
        """Its name and sizes as `--dim` takes them: `N=1..32`, `S=8..512:8`."""
        ends = show_interval((self.lo, None if self.hi is None else self.hi + 1))
        return f"{self.name}={ends}" + (f":{self.step}" if self.step > 1 else "")

    @property
    def range(self) -> str:
        """Its sizes as errors tell them: `[8, 512]`, `[0, ...], a multiple of 8`."""
        multiple = f", a multiple of {self.step}" if self.step > 1 else ""
        return f"[{self.lo}, {'...' if self.hi is None else self.hi}]{multiple}"

    def holds(self, size: int) -> bool:
        """Whether it may have this size."""
        return self.lo <= size and (self.hi is None or size <= self.hi) and size % self.step == 0

    def rounded(self, size: float) -> int:
        """The multiple next to a size, below its upper bound."""
        near = max(round(size / self.step) * self.step, self.lo)
        return near if self.hi is None else min(near, self.hi)

    def least(self, size: int) -> int:
        """The first multiple from a size on."""
        return -(-size // self.step) * self.step

    def within(self, lo: int, hi: int | None) -> int | Symbol:
        """The symbol under bounds, which hold one of its sizes; an integer where they hold one."""
        first, last = self.least(lo), None if hi is None else hi // self.step * self.step
        return first if first == last else Symbol(self.name, first, last, self.step)


@dataclass(frozen=True)
class DimFunction:
    """All that is known of a function of two dims."""

    value: Callable[[Any, Any], Any]
    """On integers and on dims."""
    span: Callable[[Span, Span], Span]
    """The least and the greatest value, from those of the arguments."""
    code: str
    """The value in native code, `link.native.fill`, of the words a and b."""
    fault: str = "0"
    """In native code, too: why there is no value, a number of `link.plan.FAILURES`; 0, there is."""
    sign: str = ""
    """Its sign in text, if it has one; a bare `%` would read as the sigil of a variable."""
    grows: tuple[int, ...] = (0, 1)
    """The arguments with which the value never shrinks."""


FUNCTIONS: dict[str, DimFunction] = {}
"""The functions that terms are made of, by name: `types.function` declares them."""


@dataclass(frozen=True, slots=True)
class Term:
    """An atom that is no symbol: `fn` of dims that do not simplify further."""

    fn: str
    args: tuple[Dim, ...]
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.fn, self.args)))

    def __hash__(self) -> int:
        return self._hash  # else dims that nest are walked at each look into a dict

    def __reduce__(self) -> tuple[Any, ...]:
        return Term, (self.fn, self.args)  # the hash is of this process

    def __str__(self) -> str:
        sign = FUNCTIONS[self.fn].sign
        if sign:
            return sign.join(map(_operand, self.args))
        return f"{self.fn}({', '.join(map(str, self.args))})"


@dataclass(frozen=True, slots=True)
class Expr(Symbolic):
    """A sum of products of atoms with integer factors, in a canonical order."""

    terms: tuple[tuple[Monomial, int], ...]
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash(self.terms))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return Expr, (self.terms,)

    def __str__(self) -> str:
        text = " + ".join(_product(m, c) for m, c in self.terms)
        return text.replace("+ -", "- ")


LONGEST = 256
"""Atoms of an extent in a type. Extents that mention one before them twice double with each layer;
what is longer is `?`, which gets a name where it is made, and what follows is short again."""
MOST_ATOMS = 1 << 16  # of any dim: products of several such extents, as launch rules make them

ANY = AnyDim()
Atom: TypeAlias = Symbol | Term
Dim: TypeAlias = int | Symbol | Expr | AnyDim
Shape: TypeAlias = tuple[Dim, ...]


def _operand(dim: Dim) -> str:
    if isinstance(dim, Expr):
        return str(dim) if _lone_call(dim) else f"({dim})"
    return f"({dim})" if isinstance(dim, int) and dim < 0 else str(dim)


def _lone_call(expr: Expr) -> bool:
    return any(lone_term(expr, name) for name, fn in FUNCTIONS.items() if not fn.sign)


def _product(monomial: Monomial, factor: int) -> str:
    if len(monomial) == 1 and factor == 1:  # each atom once: what nests would double at each level
        return str(monomial[0])
    atoms = [f"({a})" if isinstance(a, Term) and FUNCTIONS[a.fn].sign else str(a) for a in monomial]
    if factor != 1 or not atoms:
        atoms.insert(0, str(factor))
    return "*".join(atoms).replace("-1*", "-")


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
        common = math.gcd(factor, _divided_by(atom))
        if common > 1:
            assert isinstance(atom, Term)
            a, b = atom.args
            rest = _from_terms({monomial[:k] + monomial[k + 1 :]: factor // common})
            return rest * (a // (b // common))
    return None


def _divided_by(atom: Atom) -> int:
    """By what an atom divides without a rest; 1 if it may leave one."""
    if isinstance(atom, Symbol) or atom.fn != "//":
        return 1
    a, b = atom.args
    return b if isinstance(b, int) and b > 0 and divisor(a) % b == 0 else 1


def divisor(dim: Dim) -> int:
    """A number that certainly divides an extent: of a symbol, its step."""
    if isinstance(dim, Expr):
        return math.gcd(*(c * math.prod(map(_divisor, m)) for m, c in dim.terms))
    if isinstance(dim, Symbol):
        return dim.step
    return abs(dim) if isinstance(dim, int) else 1


@functools.lru_cache(maxsize=1 << 12)
def _divisor(atom: Atom) -> int:
    if isinstance(atom, Symbol):
        return atom.step
    if atom.fn in ("min", "max"):
        return math.gcd(*map(divisor, atom.args))
    by = _divided_by(atom)
    return divisor(atom.args[0]) // by if by > 1 else 1


def term(fn: str, *args: Dim) -> Dim:
    """A dim that is `fn` of others, with nothing to simplify."""
    return ANY if sum(map(_size, args)) > MOST_ATOMS else Expr(((((Term(fn, args)),), 1),))


def followed(dim: Dim) -> Dim:
    """`dim` as an extent of a type: `?` if it takes more than `LONGEST` atoms to write."""
    return dim if not isinstance(dim, Expr) or _size(dim) <= LONGEST else ANY


def _size(dim: Dim) -> int:
    """How many atoms a dim is written with."""
    if not isinstance(dim, Expr):
        return 1
    atoms = [a for monomial, _ in dim.terms for a in monomial]
    return len(atoms) + sum(_size(d) for a in atoms if isinstance(a, Term) for d in a.args)


def _is_too_long(a: Expr, b: Expr) -> bool:
    """Whether the product of two dims is: each term of one stands beside all of the other."""
    return len(b.terms) * _size(a) + len(a.terms) * _size(b) > MOST_ATOMS


@functools.lru_cache(maxsize=1 << 16)
def _add(a: Dim, b: Dim) -> Dim:
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
def _multiply(a: Dim, b: Dim) -> Dim:
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


def _divided(monomial: Monomial, by: Monomial) -> Monomial | None:
    rest = list(monomial)
    for atom in by:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


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
        if by > 1 and monomial and c * math.prod(map(_divisor, monomial)) % by == 0:
            exact.append(_divided_whole(monomial, c, by))
        else:
            rest[monomial] = c
    return total(exact), _from_terms(rest)


def _divided_whole(monomial: Monomial, factor: int, by: int) -> Dim:
    """A multiple of `by`, divided: its factor first, then an atom that all the rest divides."""
    common = math.gcd(factor, by)
    left = by // common
    for k, atom in enumerate(monomial):
        if _divisor(atom) % left == 0:
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


def lone_term(dim: Dim, fn: str) -> Term | None:
    """The term of `fn` that `dim` is, if it is nothing else."""
    if not isinstance(dim, Expr):
        return None
    (monomial, factor), *rest = dim.terms
    if rest or factor != 1 or len(monomial) != 1:
        return None
    (atom,) = monomial
    return atom if isinstance(atom, Term) and atom.fn == fn else None


def _is_small(left: Dim, divisor: Dim) -> bool:
    lo, hi = extremes(left)
    return lo >= 0 and hi < extremes(divisor)[0]


def _modulo(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return a % b
    quotient = a // b
    if isinstance(quotient, AnyDim):
        return ANY
    rest = a - quotient * b
    return rest if quotient == 0 or isinstance(rest, int) else term("%", a, b)


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
        corners = [0 if 0 in (p, q) else p * q for p in (lo, hi) for q in span]
        lo, hi = min(corners), max(corners)
    return lo, hi


def _term_span(term: Term) -> Span:
    a, b = (extremes(d) for d in term.args)
    return FUNCTIONS[term.fn].span(a, b)


def bounds(dim: Dim) -> Bounds:
    """The least and greatest extent of `dim`, by interval arithmetic; None is unbounded."""
    lo, hi = extremes(dim)
    return int(lo) if math.isfinite(lo) else 0, int(hi) if math.isfinite(hi) else None


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
