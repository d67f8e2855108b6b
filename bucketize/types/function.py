"""The functions of dims: a new one is a line of this table."""

from __future__ import annotations

import math

from bucketize.types.dim import FUNCTIONS, Dim, DimFunction, Span, check_divisor, maximum, minimum
from bucketize.types.relation import broadcast_again


def _divide(a: Dim, b: Dim) -> Dim:
    """`a // b` of anything that dims are made of."""
    check_divisor(a, b)
    return a // b


def _remainder(a: Dim, b: Dim) -> Dim:
    """`a % b` of the same."""
    check_divisor(a, b)
    return a % b


def _span_of_quotient(a: Span, b: Span) -> Span:
    least, most = max(b[0], 1), max(b[1], 1)
    low = a[0] // (most if a[0] >= 0 else least)
    high = a[1] // (least if a[1] >= 0 else most)
    return (-math.inf if math.isnan(low) else low), (math.inf if math.isnan(high) else high)


_FAULT = "3 if b <= 0 else 0"
FUNCTIONS |= {
    "//": DimFunction(_divide, _span_of_quotient, "a // b", _FAULT, "//", grows=(0,)),
    "%": DimFunction(_remainder, lambda _, b: (0, b[1] - 1), "a % b", _FAULT, " % ", grows=()),
    "min": DimFunction(minimum, lambda a, b: (min(a[0], b[0]), min(a[1], b[1])), "least(a, b)"),
    "max": DimFunction(maximum, lambda a, b: (max(a[0], b[0]), max(a[1], b[1])), "greatest(a, b)"),
    "broadcast": DimFunction(
        broadcast_again,
        lambda a, b: (min(a[0], b[0]), max(a[1], b[1])),
        "b if a == 1 else a",
        "1 if a != b and a != 1 and b != 1 else 0",
    ),
}
