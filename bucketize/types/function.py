"""The functions of dims: a new one is a line of this table."""

from __future__ import annotations

import math

from bucketize.types.algebra import add, floor_divide, maximum, minimum, modulo, multiply
from bucketize.types.dim import FUNCTIONS, HUGE, DimFunction, Span
from bucketize.types.relation import broadcast_again


def _span_of_product(a: Span, b: Span) -> Span:
    corners = [0 if 0 in (p, q) else p * q for p in a for q in b]
    return min(corners), max(corners)


def _span_of_quotient(a: Span, b: Span) -> Span:
    least, most = max(b[0], 1), max(b[1], 1)
    low = a[0] // (most if a[0] >= 0 else least)
    high = a[1] // (least if a[1] >= 0 else most)
    return (-math.inf if math.isnan(low) else low), (math.inf if math.isnan(high) else high)


def _too_large(sign: str) -> str:
    return f"2 if abs(float(a) {sign} float(b)) > {HUGE} else 0"


_FAULT = "3 if b <= 0 else 0"
FUNCTIONS |= {
    "+": DimFunction(add, lambda a, b: (a[0] + b[0], a[1] + b[1]), "a + b", _too_large("+"), " + "),
    "*": DimFunction(multiply, _span_of_product, "a * b", _too_large("*"), "*"),
    "//": DimFunction(floor_divide, _span_of_quotient, "a // b", _FAULT, "//", grows=(0,)),
    "%": DimFunction(modulo, lambda _, b: (0, b[1] - 1), "a % b", _FAULT, " % ", grows=()),
    "min": DimFunction(minimum, lambda a, b: (min(a[0], b[0]), min(a[1], b[1])), "least(a, b)"),
    "max": DimFunction(maximum, lambda a, b: (max(a[0], b[0]), max(a[1], b[1])), "greatest(a, b)"),
    "broadcast": DimFunction(
        broadcast_again,
        lambda a, b: (min(a[0], b[0]), max(a[1], b[1])),
        "b if a == 1 else a",
        "1 if a != b and a != 1 and b != 1 else 0",
    ),
}
