"""Minimal filtering: m neighbouring results of a filter of 3 taps by m + 2 products.

F(m, 3) of S. Winograd, "Arithmetic Complexity of Computations", 1980. The taps g and the m + 2
values d that m results are made of are polynomials; their product is known by its values at m + 1
points and its highest coefficient, the value "at infinity". So the results are
result @ ((taps @ g) * (data @ d)), with the matrices of the three functions below. m = 1 stands for
an axis with one tap: nothing is done to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import TypeAlias

from llvmlite import ir

from bucketize.kernel.emit.vector import Values, Writer

Matrix: TypeAlias = list[list[Fraction]]

TAPS = 3
POSITIVE: dict[int, tuple[int | Fraction, ...]] = {
    2: (1,),
    4: (1, 2),
    6: (1, 2, Fraction(1, 2)),
}
"""The points by m: each with its negative, and 0. They keep the factors of the transforms small and
exact in binary, and with them what rounding adds."""


def taps_of(m: int) -> int:
    """The taps along an axis."""
    return 1 if m == 1 else TAPS


def reach(m: int) -> int:
    """The values that m results are made of."""
    return m + taps_of(m) - 1


def points(m: int) -> list[Fraction]:
    """The finite points of F(m, 3): 0, then pairs of a point and its negative."""
    if m == 1:
        return []
    return [Fraction(0), *(sign * Fraction(p) for p in POSITIVE[m] for sign in (1, -1))]


def _others(m: int, point: Fraction) -> list[Fraction]:
    return [p for p in points(m) if p != point]


def _vanishing(roots: Iterable[Fraction], size: int) -> list[Fraction]:
    """The coefficients, the lowest first, of the product of all x - root."""
    found = [Fraction(1)]
    for root in roots:
        shifted, scaled = [Fraction(0), *found], [*(-root * c for c in found), Fraction(0)]
        found = [a + b for a, b in zip(shifted, scaled, strict=True)]
    return found + [Fraction(0)] * (size - len(found))


def data(m: int) -> Matrix:
    """[m + 2, m + 2]: what is done to the values that are filtered."""
    rows = [_vanishing(_others(m, p), reach(m)) for p in points(m)]
    return [*rows, _vanishing(points(m), reach(m))]


def taps(m: int) -> Matrix:
    """[m + 2, 3]: what is done to the taps."""
    rows, number = [], taps_of(m)
    for point in points(m):
        scale = Fraction(1)
        for other in _others(m, point):
            scale *= point - other
        rows.append([point**i / scale for i in range(number)])
    return [*rows, _highest(number)]


def result(m: int) -> Matrix:
    """[m, m + 2]: what is done to the products."""
    columns = [[p**i for i in range(m)] for p in points(m)]
    return [list(row) for row in zip(*columns, _highest(m), strict=True)]


def _highest(size: int) -> list[Fraction]:
    return [Fraction(0)] * (size - 1) + [Fraction(1)]


# --- code ----------------------------------------------------------------------------------------


def transformed(w: Writer, m: int, values: Values) -> Values:
    """The code of `data` of m + 2 vectors.

    The rows of a point and of its negative differ by the signs of their odd columns.
    """
    if m == 1:
        return values
    matrix = data(m)
    made = [_sum(w, matrix[0], values)]
    for row in matrix[1:-1:2]:
        even = _sum(w, row[::2], values[::2])
        odd = _sum(w, row[1::2], values[1::2])
        made += [w.builder.fadd(even, odd), w.builder.fsub(even, odd)]
    return [*made, _sum(w, matrix[-1], values)]


def results(w: Writer, m: int, products: Values) -> Values:
    """The code of `result` of m + 2 vectors.

    The columns of a point and of its negative differ by the signs of their odd rows.
    """
    if m == 1:
        return products
    first, *middle, last = products
    pairs = list(zip(middle[::2], middle[1::2], strict=True))
    even = [w.builder.fadd(a, b) for a, b in pairs]
    odd = [w.builder.fsub(a, b) for a, b in pairs]
    return [
        _sum(w, [row[0], *row[1:-1:2], row[-1]], [first, *(odd if i % 2 else even), last])
        for i, row in enumerate(result(m))
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
