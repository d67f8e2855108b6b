"""How sure a ratio of latencies is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from math import comb

import numpy as np

CONFIDENCE = 0.95
ALIKE = 0.02
"""How far from 1 a ratio may be that is called the same."""


@dataclass(frozen=True)
class Interval:
    """A median, and the ends of what holds the true one with 95 % certainty."""

    median: float
    low: float
    high: float


def ratios(
    pairs: Sequence[tuple[Sequence[float], Sequence[float]]], weights: Sequence[float]
) -> list[float]:
    """Latency by the default's in each round: the weighted geometric mean over some points.

    Args:
        pairs: at each point the seconds of the rounds, and the default's of the same rounds.
        weights: of the points.

    """
    rounds = min(len(seconds) for pair in pairs for seconds in pair)
    logs = [np.log(np.array(a[:rounds]) / np.array(b[:rounds])) for a, b in pairs]
    means: list[float] = np.exp(np.average(logs, axis=0, weights=weights)).tolist()
    return means


def of_median(values: Sequence[float]) -> Interval | None:
    """The interval of the median by order statistics; None of too few values to have one."""
    if not values:
        return None
    ends = _ends(len(values))
    if ends is None:
        return None
    in_order = sorted(values)
    return Interval(float(np.median(values)), *(float(in_order[i]) for i in ends))


def verdict(low: float, high: float) -> str:
    """What the interval of a ratio of latencies shows.

    Returns:
        "faster" or "slower" where it is below or above 1; "same" where it is within `ALIKE` of 1;
        else "unclear", also of NaN: of too few rounds there is none.

    """
    if high < 1 or low > 1:
        return "faster" if high < 1 else "slower"
    return "same" if 1 - ALIKE <= low <= high <= 1 + ALIKE else "unclear"


@cache
def _ends(count: int) -> tuple[int, int] | None:
    """Which of so many values in order the interval ends at; each row of a log asks.

    How many lie below the true median is binomial.
    """
    ways = enumerate(accumulate(comb(count, k) for k in range(count + 1)))
    low = next(k for k, n in ways if n / 2**count >= (1 - CONFIDENCE) / 2) - 1
    return (low, count - 1 - low) if low >= 0 else None
