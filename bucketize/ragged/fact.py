"""Facts about a value that decide whether rows of unequal lengths may be run as one.

A request is one or more rows, along the batch axis; a row is tokens, along the sequence axis, the
last of which a mask may hide. Packed, the tokens that are seen lie behind each other in one row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, TypeAlias

import numpy as np

from bucketize.ir import Atom, Binding, Const
from bucketize.op import Array, Op
from bucketize.ops import (
    add,
    cast,
    greater,
    greater_equal,
    less,
    logical_and,
    logical_or,
    minimum_,
    mul,
    sub,
    where,
)
from bucketize.types import Dim, Expr, Shape, Symbol, TensorType, Type, extremes, symbols

Place: TypeAlias = "int | str"
"""The hidden tokens along an axis, counted from the last one, or what is between two rows."""
BETWEEN = "between"

LOW = -1e4
"""What is this low weighs nothing in a softmax beside a score that is not: exporters hide by it."""


COUNT_BYTES = 4  # of a number that counts tokens: what is shorter wraps, or rounds


class Form(Enum):
    """What a value has an entry of."""

    SHARED = "shared"  # the same for all rows
    ROW = "row"
    TOKEN = "token"
    PAIR = "pair"  # of tokens of one row


@dataclass(frozen=True)
class Axes:
    """The symbols of the batch and of the sequence, and where they are in a shape."""

    batch: Symbol
    sequence: Symbol

    def tokens(self, shape: Shape) -> list[int]:
        """The axes that count tokens, from the last one back."""
        return self._with(self.sequence, shape)

    def rows(self, shape: Shape) -> list[int]:
        """The axes that count rows, from the last one back."""
        return self._with(self.batch, shape)

    def form(self, type_: Type) -> Form:
        """What a value of this type has an entry of."""
        tokens = len(self.tokens(type_.shape))
        if tokens:
            return Form.TOKEN if tokens == 1 else Form.PAIR
        return Form.ROW if self.rows(type_.shape) else Form.SHARED

    def fault(self, type_: Type) -> str | None:
        """Why axes of this type cannot be told apart, or None."""
        for dim in type_.axes:
            factors = dict.fromkeys((self.batch, self.sequence), 0)
            inside = symbols(dim) & factors.keys()
            if inside and not self._is_product(dim):
                return f"an extent is {dim}"
        if len(self.tokens(type_.shape)) > 2 or len(self.rows(type_.shape)) > 1:
            return f"{type_} has several axes of one symbol"
        return None

    def strides(self, shape: Shape) -> dict[Symbol, list[Dim]]:
        """Elements from a row, or a token, to the next one; of a product the batch comes first."""
        steps: dict[Symbol, list[Dim]] = {self.batch: [], self.sequence: []}
        behind: Dim = 1
        for dim in reversed(shape):
            rest = dim
            for symbol in (self.batch, self.sequence):  # from the outermost on
                if symbol in symbols(dim):
                    rest = rest // symbol
                    steps[symbol].append(rest * behind)
            behind = behind * dim
        return steps

    def _with(self, symbol: Symbol, shape: Shape) -> list[int]:
        return [k for k in range(-1, -len(shape) - 1, -1) if symbol in symbols(shape[k])]

    def _is_product(self, dim: Dim) -> bool:
        """Whether it is a number, once the batch or the sequence or both."""
        if isinstance(dim, Symbol):
            return True
        if not isinstance(dim, Expr) or len(dim.terms) != 1:
            return False
        ((atoms, _),) = dim.terms
        return len(set(atoms)) == len(atoms) and set(atoms) <= {self.batch, self.sequence}


@dataclass(frozen=True)
class Index:
    """What an element is by where it stands: so much of its row's index and of its token's."""

    row: Dim
    token: Dim
    least: Dim

    def __add__(self, other: Index) -> Index:
        return Index(self.row + other.row, self.token + other.token, self.least + other.least)

    def times(self, factor: Dim) -> Index:
        """Each element multiplied."""
        return Index(self.row * factor, self.token * factor, self.least * factor)


OF_ROW, OF_TOKEN = Index(1, 0, 0), Index(0, 1, 0)


@dataclass(frozen=True)
class Fact:
    """What is known of the elements of a value."""

    seen: Array | None = None
    """The one number of all elements that are of tokens seen, of one row."""
    at: Mapping[Place, Array] = field(default_factory=dict)
    """The one number of all other elements, by where they are."""
    alike: bool = False
    """Whether it is the same for all rows though it has an axis of them: that is 1, packed."""
    index: tuple[Index, ...] = ()
    """What elements are by where they stand; of several, one after the other in the last axis."""
    counts: bool = False
    """Whether it is how many tokens of its row are seen."""
    barred: str = ""
    """Words on what of rows or of extents is lost, packed: nothing may compute with it."""


def constant(atom: Atom) -> Fact:
    """The fact of a constant."""
    one = isinstance(atom, Const) and atom.value.size == 1
    return Fact(atom.value.reshape(())) if one else Fact()  # type: ignore[union-attr]


Numbers: TypeAlias = "list[Array | None]"


def evaluated(op: Op, attrs: Mapping[str, Any], numbers: Numbers) -> Array | None:
    """What an elementwise op makes of numbers, some of them unknown; None if nobody can tell."""
    given = [n for n in numbers if n is not None]
    if len(given) == len(numbers):
        (result,) = op.run(*given, **attrs)
        return np.asarray(result)
    absorb = ABSORBING.get(op)
    return None if absorb is None else absorb(*numbers)


def _absorbs(number: Any) -> Callable[..., Array | None]:
    """The rule of an op that gives a number wherever one of its arguments is that."""

    def absorb(*numbers: Array | None) -> Array | None:
        return next((n for n in numbers if n is not None and n == number), None)

    return absorb


def _sum(x: Array | None, y: Array | None) -> Array | None:
    return next((n for n in (x, y) if n is not None and n <= LOW), None)


def _difference(x: Array | None, y: Array | None) -> Array | None:
    if y is not None and y >= -LOW:
        return np.negative(y)
    return _sum(x, None)


def _choice(c: Array | None, x: Array | None, y: Array | None) -> Array | None:
    if c is not None:
        return x if c else y
    low = x is not None and y is not None and x <= LOW and y <= LOW
    return np.maximum(x, y) if low else None  # type: ignore[arg-type]


ABSORBING: Mapping[Op, Callable[..., Array | None]] = {
    mul: _absorbs(0),
    logical_and: _absorbs(False),
    logical_or: _absorbs(True),
    add: _sum,
    sub: _difference,
    minimum_: _sum,
    where: _choice,
}
"""What is known where some arguments are not. A factor of 0 counts also beside what is infinite."""


def indexed(b: Binding, facts: Sequence[Fact]) -> tuple[Index, ...]:
    """What an elementwise op of integers makes of indices."""
    if b.op is cast and b.out.type.dtype.kind == "i":
        return facts[0].index
    if b.op not in (add, mul) or b.out.type.dtype.kind != "i":
        return ()
    mine, its = (_as_index(a, f) for a, f in zip(b.args, facts, strict=True))
    if mine is None or its is None:
        return ()
    if b.op is add:
        return (mine + its,)
    for one, other in ((mine, its), (its, mine)):
        if (other.row, other.token) == (0, 0):
            return (one.times(other.least),)
    return ()


def _as_index(atom: Atom, fact: Fact) -> Index | None:
    if len(fact.index) == 1:
        return fact.index[0]
    value = atom.type.value if isinstance(atom.type, TensorType) else None
    return Index(0, 0, value[0]) if value is not None and len(value) == 1 else None


def is_always(b: Binding, facts: Sequence[Fact]) -> bool:
    """Whether it asks of an index if that is 0 at least."""
    if b.op is not greater_equal or len(facts[0].index) != 1:
        return False
    (index,), than = facts[0].index, facts[1].seen
    dims = index.row, index.token, index.least
    return than is not None and bool(than <= 0) and all(extremes(d)[0] >= 0 for d in dims)


def before_the_end(b: Binding, facts: Sequence[Fact], axes: Axes) -> int | None:
    """The axis along which it asks of tokens whether they are of those seen in their row."""
    if b.op not in (greater, less):
        return None
    place, wide = 0 if b.op is less else 1, b.args[0].type.dtype.itemsize >= COUNT_BYTES
    tokens = axes.tokens(b.args[place].type.shape)  # of two it might be either's index
    counts = wide and facts[1 - place].counts and len(tokens) == 1
    asks = counts and facts[place].index == (OF_TOKEN,)
    return tokens[0] if asks else None


def neutral(op: Op, facts: list[Fact]) -> int | None:
    """The argument that an elementwise op gives back, for the others change nothing; or None."""
    numbers = [f.seen for f in facts]
    if op is where and numbers[0] is not None:
        return 1 if numbers[0] else 2
    nothing, either = NEUTRAL.get(op, (None, False))
    if nothing is None:
        return None
    for mine, other in ((0, 1), (1, 0)) if either else ((0, 1),):
        if (n := numbers[other]) is not None and n == nothing:
            return mine
    return None


NEUTRAL: Mapping[Op, tuple[Any, bool]] = {
    add: (0, True),
    sub: (0, False),
    mul: (1, True),
    logical_and: (True, True),
    logical_or: (False, True),
}
"""The number that changes nothing, and whether it may also be the first argument."""


def places(axes: Axes, type_: Type) -> Iterator[Place]:
    """Where elements of a value may be that are not of seen tokens of one row."""
    tokens = axes.tokens(type_.shape)
    yield from tokens
    if len(tokens) > 1:
        yield BETWEEN


def moved(fact: Fact, axes: Mapping[int, int]) -> Fact:
    """What is known where tokens are along other axes."""
    at = {axes.get(k, k) if isinstance(k, int) else k: v for k, v in fact.at.items()}
    return replace(fact, at=at)


def is_zero(number: Array | None) -> bool:
    """Whether it is known to be 0."""
    return number is not None and bool(number == 0)


def axis_of(b: Binding) -> int:
    """The axis that an op goes along, from the last one of its first argument back."""
    rank = len(b.args[0].type.shape)
    return int(b.attrs["axis"]) % rank - rank


def are_neighbours(shape: Shape, one: int, other: int) -> bool:
    """Whether nothing but extents of 1 is between two axes."""
    return all(d == 1 for d in shape[min(one, other) + 1 : max(one, other)])
