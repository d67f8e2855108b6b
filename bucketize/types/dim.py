"""Dims: extents of tensors, some of them known only at run time.

A dim is an `int`, a named `Symbol` with bounds, an `Expr` over symbols, or `ANY`: unknown, and
equal to nothing else. Two of them become one in two ways, `meet` and `join`. Everybody imports
these from `bucketize.types`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Monomial: TypeAlias = tuple["Atom", ...]
Sizes: TypeAlias = Mapping[str, int]
"""Extents by the name of each symbol."""
Range: TypeAlias = tuple[int, int | None] | tuple[int, int | None, int]
"""Sizes as they are given: the least, the greatest and, if it is not 1, the step."""
Span: TypeAlias = tuple[float, float]
Interval: TypeAlias = tuple[int, int | None]
"""Half-open, of dispatchers and buckets; None is infinity. A `Range` is inclusive."""
MOST_EXTENT = 1 << 62
"""No extent is as large: sums of two stay within the 64 bits that decisions compare."""
HUGE = 4e18
"""No sum or product of extents may come as near the end of int64."""


def show_interval(interval: Interval) -> str:
    """The sizes in it as people read them, both ends inclusive: `3`, `2..3`, `256..`."""
    lo, hi = interval
    if hi is None:
        return f"{lo}.."
    return str(lo) if hi == lo + 1 else f"{lo}..{hi - 1}"


class Symbolic:
    """Arithmetic that the dims which are no integers share: by the table of functions."""

    __slots__ = ()

    def __add__(self, other: Dim) -> Dim:
        return FUNCTIONS["+"].value(self, other)

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: Dim) -> Dim:
        return self + other * -1

    def __rsub__(self, other: Dim) -> Dim:
        return self * -1 + other

    def __mul__(self, other: Dim) -> Dim:
        return FUNCTIONS["*"].value(self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return FUNCTIONS["//"].value(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return FUNCTIONS["//"].value(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return FUNCTIONS["%"].value(self, other)

    def __rmod__(self, other: Dim) -> Dim:
        return FUNCTIONS["%"].value(other, self)


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

    value: Callable[[Any, Any], Dim]
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
"""The functions of dims, by name: `types.function` declares them."""


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


def lone_term(dim: Dim, fn: str) -> Term | None:
    """The term of `fn` that `dim` is, if it is nothing else."""
    if not isinstance(dim, Expr):
        return None
    (monomial, factor), *rest = dim.terms
    if rest or factor != 1 or len(monomial) != 1:
        return None
    (atom,) = monomial
    return atom if isinstance(atom, Term) and atom.fn == fn else None
