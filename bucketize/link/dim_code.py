"""Dims as native code: every distinct one is evaluated once, into a register."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bucketize.errors import CompileError
from bucketize.link.block import CODE
from bucketize.link.plan import PASSES
from bucketize.link.table import table
from bucketize.op import Array
from bucketize.types import FUNCTIONS, AnyDim, Dim, Expr, Symbol, Term

Row = tuple[int, int, int, int]  # result, function, a, b
NUMBERS = {name: i for i, name in enumerate(FUNCTIONS)}
"""The functions by which native code, `link.native.fill`, makes a dim of two."""


class DimCode:
    """Instructions over registers: the symbols, then numbers and results as they come."""

    def __init__(self, symbols: Sequence[str]) -> None:
        self.symbols = {name: i for i, name in enumerate(symbols)}
        self.initial = [0] * len(symbols)
        self.rows: list[Row] = []
        self._numbers: dict[int, int] = {}
        self._sums: dict[Expr, int] = {}
        self._made: dict[tuple[int, int, int], int] = {}

    def register(self, dim: Dim) -> int:
        """Where the value of `dim` will be."""
        if isinstance(dim, Symbol):
            return self.symbols[dim.name]
        if isinstance(dim, Expr):
            if dim not in self._sums:
                self._sums[dim] = self._sum(dim)
            return self._sums[dim]
        if isinstance(dim, AnyDim):  # those that only a run can tell have names by now
            how = "bound the model's symbols, bounds={...} or --dim SYMBOL=LO..HI"
            raise CompileError(f"sizes follow from the inputs' by more than can be written: {how}")
        return self._number(dim)

    def arrays(self) -> tuple[Array, Array]:
        """The registers as they are before the first instruction, and the instructions."""
        code = table(CODE, "result function a b", self.rows)
        return np.array(self.initial, np.int64), code

    def _sum(self, dim: Expr) -> int:
        total = None
        for monomial, factor in dim.terms:
            product = None if factor == 1 and monomial else self._number(factor)
            for atom in monomial:
                product = self._both(NUMBERS["*"], product, self._atom(atom))
            assert product is not None
            total = self._both(NUMBERS["+"], total, product)
        assert total is not None
        return total

    def _both(self, fn: int, a: int | None, b: int) -> int:
        return b if a is None else self._result(fn, a, b)

    def _atom(self, atom: Symbol | Term) -> int:
        if isinstance(atom, Symbol):
            return self.register(atom)
        a, b = map(self.register, atom.args)
        return self._result(NUMBERS[atom.fn], a, b)

    def _number(self, value: int) -> int:
        if value not in self._numbers:
            if not -(2**63) <= value < 2**63:
                raise CompileError(f"{PASSES}: {value}")
            self._numbers[value] = len(self.initial)
            self.initial.append(value)
        return self._numbers[value]

    def _result(self, fn: int, a: int, b: int) -> int:
        key = (fn, a, b)
        if key not in self._made:
            self._made[key] = len(self.initial)
            self.rows.append((len(self.initial), *key))
            self.initial.append(0)
        return self._made[key]
