"""By how much a choice is slower than another."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import geometric_mean


@dataclass(frozen=True)
class Excess:
    """By how much something is slower than the best recorded: ratios, one for each product."""

    ratios: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The geometric mean."""
        return geometric_mean(self.ratios)

    def __str__(self) -> str:
        return f"{100 * (self.mean - 1):.1f} % (worst {100 * (max(self.ratios) - 1):.0f} %)"
