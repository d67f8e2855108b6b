"""What elementwise operators make of dims, for shape arithmetic: answers only where certain."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bucketize.op import by_dims
from bucketize.ops.rules import at_least, same
from bucketize.types import ANY, Dim, Ratio, Shape, TensorType, maximum, rely_on_least

ValueRule = Callable[..., Shape | None]


def per_element(rule: Callable[..., Dim]) -> ValueRule:
    """The value rule that applies `rule` to each dim, or to each tuple of dims."""
    return by_dims(np.frompyfunc(rule, rule.__code__.co_argcount, 1))


def converted(x: TensorType, *, dtype: str) -> Shape | None:
    """The value rule of casts: as a truth value a dim is whether it is 0."""
    value = (x.ratio.truncated(),) if x.ratio else x.value
    if value is None or np.dtype(dtype) != np.bool_:
        return value
    return tuple(is_unequal(d, 0) for d in value)


RatioRule = Callable[..., Ratio | None]


def by_ratios(rule: RatioRule) -> RatioRule:
    """The ratio rule that applies `rule` to the one element of each argument."""

    def ratio(*types: TensorType) -> Ratio | None:
        elements = [t.ratio for t in types]
        return None if None in elements else rule(*elements)

    return ratio


def as_ratio(x: TensorType) -> Ratio | None:
    """The ratio rule of casts: a dim is a fraction, over 1."""
    return Ratio(x.value[0]) if x.value else x.ratio


def quotient(a: Dim, b: Dim) -> Dim:
    """`a` over `b`, cut towards zero; exporters floor by it what is negative for illegal sizes."""
    if isinstance(a, int) and isinstance(b, int) and b:
        return abs(a) // abs(b) * (-1 if (a < 0) != (b < 0) else 1)
    if not _divides(b):
        return ANY
    return maximum(a, 0) // b - maximum(-a, 0) // b


def remainder(a: Dim, b: Dim) -> Dim:
    """What is left of `a` over `b`, with the sign of `b`."""
    if isinstance(a, int) and isinstance(b, int) and b:
        return a % b
    return a % b if at_least(a, 0) and _divides(b) else ANY


def _divides(b: Dim) -> bool:
    """Whether a dim is positive, or is relied on to be: by 0 nothing is divided."""
    if b == 0 or not at_least(b, 0):
        return False
    rely_on_least(b, 1)
    return True


def magnitude(a: Dim) -> Dim:
    """`a` without its sign."""
    if isinstance(a, int):
        return abs(a)
    return a if at_least(a, 0) else ANY


def is_equal(a: Dim, b: Dim) -> Dim:
    """1 if `a` is `b`, 0 if it cannot be."""
    if same(a, b):
        return 1
    return 0 if at_least(a, b + 1) or at_least(b, a + 1) else ANY


def is_unequal(a: Dim, b: Dim) -> Dim:
    """1 if `a` cannot be `b`, 0 if it is."""
    return 1 - is_equal(a, b)


def is_less(a: Dim, b: Dim) -> Dim:
    """1 if `a` is below `b`, 0 if it is not."""
    if at_least(b, a + 1):
        return 1
    return 0 if at_least(a, b) else ANY


def both(a: Dim, b: Dim) -> Dim:
    """1 if both are 1, 0 if one is 0."""
    if 0 in (a, b):
        return 0
    return 1 if a == b == 1 else ANY


def any_of(a: Dim, b: Dim) -> Dim:
    """1 if one of them is 1, 0 if both are 0."""
    if 1 in (a, b):
        return 1
    return 0 if a == b == 0 else ANY


def negated(a: Dim) -> Dim:
    """1 if `a` is 0, 0 if it is 1."""
    return 1 - a


def either(c: Dim, a: Dim, b: Dim) -> Dim:
    """`a` if `c` is 1, `b` if it is 0."""
    if isinstance(c, int):
        return a if c else b
    return a if same(a, b) else ANY


COMPARISONS: dict[str, Callable[[Dim, Dim], Dim]] = {
    "==": is_equal,
    "!=": is_unequal,
    "<": is_less,
    "<=": lambda a, b: is_less(a, b + 1),
    ">": lambda a, b: is_less(b, a),
    ">=": lambda a, b: is_less(b, a + 1),
}
