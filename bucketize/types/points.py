"""Points: sizes of symbols, many at once. Everybody imports them from `bucketize.types`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bucketize.errors import TypeRelError
from bucketize.types.dim import FUNCTIONS, Atom, Dim, Expr, Sizes, Symbol
from bucketize.types.relation import evaluate

Column: TypeAlias = NDArray[Any]
"""An integer for each point: of any length, so of no dtype of numpy's."""


class Points:
    """Sizes of the same symbols; a dim is evaluated at all of them, and once."""

    def __init__(self, sizes: Sequence[Sizes]) -> None:
        """Sizes by the name of each symbol."""
        self.sizes = sizes
        self._known: dict[Dim, Column] = {}

    def __len__(self) -> int:
        return len(self.sizes)

    def values(self, dim: Dim) -> Column:
        """A dim at each point; `TypeRelError` if it has no value at one."""
        if dim not in self._known:
            self._known[dim] = self._evaluated(dim)
        return self._known[dim]

    def values_or(self, dim: Dim, otherwise: Callable[[int], int]) -> Column:
        """A dim at each point; where it has no value, `otherwise` of the point's number."""
        with suppress(TypeRelError):
            return self.values(dim)
        return self.column([self._value_or(dim, i, otherwise) for i in range(len(self))])

    def _value_or(self, dim: Dim, point: int, otherwise: Callable[[int], int]) -> int:
        with suppress(TypeRelError):
            return evaluate(dim, self.sizes[point])
        return otherwise(point)

    def at(self, kept: Sequence[int]) -> Points:
        """Some of the points, by their numbers."""
        return self if len(kept) == len(self) else Points([self.sizes[i] for i in kept])

    def _evaluated(self, dim: Dim) -> Column:
        if isinstance(dim, int):
            return self.column([dim] * len(self))
        if isinstance(dim, Symbol) and all(dim.name in at for at in self.sizes):
            return self.column([at[dim.name] for at in self.sizes])
        if isinstance(dim, Expr):
            terms = (math.prod(map(self._atom, m), start=factor) for m, factor in dim.terms)
            return self.column(sum(terms) + np.zeros(len(self), object))
        raise TypeRelError(f"{dim} is not known under {self.sizes[0]}")

    def _atom(self, atom: Atom) -> Column:
        if isinstance(atom, Symbol):
            return self.values(atom)
        function: Any = np.frompyfunc(FUNCTIONS[atom.fn].value, len(atom.args), 1)
        return self.column(function(*map(self.values, atom.args)))

    @staticmethod
    def column(values: Sequence[int] | Column) -> Column:
        """An integer for each point, as a column."""
        return np.array(values, object)
