"""Floats on the way of shape arithmetic: dims over numbers, and how far rounding may be off.

Exporters write `math.ceil((length - kernel) / stride + 1)` in float32. What is exact of that, or so
near that no rounding to whole numbers shows the difference, is followed; nothing else is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from bucketize.types.algebra import maximum
from bucketize.types.dim import Dim
from bucketize.types.extent import extremes
from bucketize.types.relation import substitute

MOST = 1 << 15
"""Numbers in the fraction that a constant is: what is longer is no fraction of sizes."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """A float that is `over / by`, exactly or off by no more than `error`.

    Where `over / by` is whole, the float is exact: rounding keeps what a dtype holds.
    """

    over: Dim
    by: int = 1
    error: Fraction = Fraction(0)

    def substitute(self, env: Mapping[str, Dim]) -> Ratio:
        """The ratio with the symbols that `env` names replaced."""
        return replace(self, over=substitute(self.over, env))

    @property
    def constant(self) -> Fraction | None:
        """The number that it is, if that is known and exact."""
        if not isinstance(self.over, int) or self.error:
            return None
        return Fraction(self.over, self.by)

    @property
    def is_whole(self) -> bool:
        """Whether it is a whole number, whatever the sizes are."""
        return self.by == 1

    def __add__(self, other: Ratio) -> Ratio | None:
        if not (self.is_whole or other.is_whole or self.error == other.error == 0):
            return None  # what is whole may be a sum of two that are not exact
        over = self.over * other.by + other.over * self.by
        return Ratio(over, self.by * other.by, self.error + other.error)

    def __neg__(self) -> Ratio:
        return replace(self, over=self.over * -1)

    def __sub__(self, other: Ratio) -> Ratio | None:
        return self + -other

    def __mul__(self, other: Ratio) -> Ratio | None:
        factor = other.constant
        if factor is None:
            return None if self.constant is None else other * self
        if self.error and abs(factor.numerator) != 1:
            return None  # what is whole may be a multiple of what is not exact
        over, by = self.over * factor.numerator, self.by * factor.denominator
        return Ratio(over, by, self.error * abs(factor))

    def __truediv__(self, other: Ratio) -> Ratio | None:
        divisor = other.constant
        return self * Ratio(*(1 / divisor).as_integer_ratio()) if divisor else None

    def rounded(self, dtype: np.dtype[Any]) -> Ratio | None:
        """What a dtype of floats makes of it; None where whole numbers are too great for that."""
        unit = Fraction(1, 2 << np.finfo(dtype).nmant)
        lo, hi = extremes(self.over)
        if not max(-lo, hi) * unit < self.by:
            return None
        most = Fraction(int(max(-lo, hi)))
        if not self.error and self.by & (self.by - 1) == 0 and most * unit <= 1:
            return self
        error = self.error + unit * (most / self.by + self.error)
        return replace(self, error=error) if error * self.by < 1 else None

    def floor(self) -> Ratio:
        """The greatest whole number that is not above it."""
        return Ratio(self.over // self.by)

    def ceil(self) -> Ratio:
        """The least whole number that is not below it."""
        return Ratio((self.over + (self.by - 1)) // self.by)

    def truncated(self) -> Dim:
        """The whole number that it is cut to, towards 0."""
        ahead = maximum(self.over, 0) // self.by
        return ahead - maximum(self.over * -1, 0) // self.by


def ratio_of(number: Any) -> Ratio | None:
    """A constant as a fraction, if it is a short one."""
    if not np.isfinite(number):
        return None
    over, by = float(number).as_integer_ratio()
    return Ratio(over, by) if max(abs(over), by) <= MOST else None
