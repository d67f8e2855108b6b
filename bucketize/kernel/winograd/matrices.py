"""Minimal filtering: m neighbouring results of a filter of r taps by m + r - 1 products.

F(m, r) of S. Winograd, "Arithmetic Complexity of Computations", 1980. The taps g and the values d
that m results are made of, `size` = m + r - 1 of them, are polynomials; their product is known by
its values at size - 1 points and its highest coefficient, the value "at infinity". So the results
are result @ ((taps @ g) * (data @ d)), with the matrices of the three functions below. F(6, 3)
and F(4, 5) share their points and what is done to data; the second one rounds less, as results are
sums by powers of points up to m - 1.

A filter of stride s is the sum of s filters of stride 1, its phases: each has every s-th tap and
sees every s-th value. All are taken at the points of the longest, and summed there. One of a tap
less has the value 0 at infinity, so nothing is computed of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TypeAlias

from llvmlite import ir

from bucketize.kernel.emit.vector import Writer
from bucketize.kernel.emit.writer import Values

Matrix: TypeAlias = list[list[Fraction]]

POSITIVE: dict[int, tuple[int | Fraction, ...]] = {4: (1,), 6: (1, 2), 8: (1, 2, Fraction(1, 2))}
"""The points by the size: each with its negative, and 0. They keep the factors of the transforms
small and exact in binary, and with them what rounding adds."""


@dataclass(frozen=True)
class Axis:
    """An axis of a filter, m results at a time; where it has one tap m is 1, nothing is done."""

    m: int
    taps: int
    stride: int = 1

    @property
    def longest(self) -> int:
        """The taps of the longest phase."""
        return -(-self.taps // self.stride)

    @property
    def size(self) -> int:
        """Products that stand for the m results, of a phase."""
        return self.m + self.longest - 1

    @property
    def reach(self) -> int:
        """The values that the results are made of."""
        return (self.m - 1) * self.stride + self.taps

    @property
    def phases(self) -> int:
        """Filters of stride 1 that this one is the sum of."""
        return min(self.stride, self.taps)

    @property
    def whole(self) -> int:
        """How many of them, the first, have all the taps of the longest."""
        return self.taps - (self.longest - 1) * self.stride

    @property
    def parts(self) -> tuple[tuple[range, int], ...]:
        """Which products how many phases have, the first ones: of infinity only the whole do."""
        last = self.size - 1
        if self.whole == self.phases:
            return ((range(self.size), self.phases),)
        return (range(last), self.phases), (range(last, self.size), self.whole)

    @property
    def places(self) -> tuple[tuple[int, int, int], ...]:
        """All products of all phases: which product, which phase, and how many have it."""
        return tuple((i, p, n) for products, n in self.parts for i in products for p in range(n))

    @cached_property
    def products(self) -> int:
        """Products of all phases."""
        return sum(self.products_of(phase) for phase in range(self.phases))

    def products_of(self, phase: int) -> int:
        """Products of a phase."""
        return self.size if phase < self.whole else self.size - 1


def points(size: int) -> list[Fraction]:
    """The finite points: 0, then pairs of a point and its negative."""
    if size == 1:
        return []
    return [Fraction(0), *(sign * Fraction(p) for p in POSITIVE[size] for sign in (1, -1))]


def _others(size: int, point: Fraction) -> list[Fraction]:
    return [p for p in points(size) if p != point]


def _vanishing(roots: Iterable[Fraction], size: int) -> list[Fraction]:
    """The coefficients, the lowest first, of the product of all x - root."""
    factors = [Fraction(1)]
    for root in roots:
        shifted, scaled = [Fraction(0), *factors], [*(-root * c for c in factors), Fraction(0)]
        factors = [a + b for a, b in zip(shifted, scaled, strict=True)]
    return factors + [Fraction(0)] * (size - len(factors))


def data(size: int) -> Matrix:
    """[size, size]: what is done to the values that are filtered."""
    rows = [_vanishing(_others(size, p), size) for p in points(size)]
    return [*rows, _vanishing(points(size), size)]


def taps(size: int, number: int) -> Matrix:
    """[size, number]: what is done to the taps."""
    rows = []
    for point in points(size):
        scale = Fraction(1)
        for other in _others(size, point):
            scale *= point - other
        rows.append([point**i / scale for i in range(number)])
    return [*rows, _highest(number)]


def result(m: int, size: int) -> Matrix:
    """[m, size]: what is done to the products."""
    columns = [[p**i for i in range(m)] for p in points(size)]
    return [list(row) for row in zip(*columns, _highest(m), strict=True)]


def _highest(size: int) -> list[Fraction]:
    return [Fraction(0)] * (size - 1) + [Fraction(1)]


# --- code ----------------------------------------------------------------------------------------


def transformed(w: Writer, axis: Axis, values: Values) -> list[Values]:
    """The code of `data` for each phase, of the vectors that the axis reaches."""
    return [_transformed(w, axis.size, values[p :: axis.stride]) for p in range(axis.phases)]


def _transformed(w: Writer, size: int, values: Values) -> Values:
    """The transform of so many vectors; of one less, all but the value at infinity.

    The rows of a point and of its negative differ by the signs of their odd columns.
    """
    if size == 1:
        return values
    matrix = [row[: len(values)] for row in data(size)]
    products = [_sum(w, matrix[0], values)]
    for row in matrix[1:-1:2]:
        even = _sum(w, row[::2], values[::2])
        odd = _sum(w, row[1::2], values[1::2])
        products += [w.builder.fadd(even, odd), w.builder.fsub(even, odd)]
    return [*products, _sum(w, matrix[-1], values)] if len(values) == size else products


def results(w: Writer, m: int, products: Values) -> Values:
    """The code of `result` of so many vectors.

    The columns of a point and of its negative differ by the signs of their odd rows.
    """
    if len(products) == 1:
        return products
    first, *middle, last = products
    pairs = list(zip(middle[::2], middle[1::2], strict=True))
    even = [w.builder.fadd(a, b) for a, b in pairs]
    odd = [w.builder.fsub(a, b) for a, b in pairs]
    return [
        _sum(w, [row[0], *row[1:-1:2], row[-1]], [first, *(odd if i % 2 else even), last])
        for i, row in enumerate(result(m, len(products)))
    ]


def _sum(w: Writer, factors: Sequence[Fraction], values: Values) -> ir.Value:
    """The sum of the values, each by its factor."""
    pairs = [(f, v) for f, v in zip(factors, values, strict=True) if f]
    (factor, total), *rest = sorted(pairs, key=lambda pair: pair[0] != 1)  # nothing to multiply
    if factor != 1:
        total = w.builder.fmul(total, w.number(float(factor)))
    for factor, value in rest:
        total = _plus(w, total, factor, value)
    return total


def _plus(w: Writer, total: ir.Value, factor: Fraction, value: ir.Value) -> ir.Value:
    if factor == 1:
        return w.builder.fadd(total, value)
    if factor == -1:
        return w.builder.fsub(total, value)
    return w.fma(value, w.number(float(factor)), total)
