"""Whether sizes come as they did: a test of distributions that may be asked again and again."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import kolmogorov

from bucketize.errors import ArgumentError, unknown_name
from bucketize.traffic.rows import Integers
from bucketize.traffic.value import Traffic

WINDOW = 1_000  # requests that are looked at together
ALPHA = 0.01
"""The chance of ever being told of a change where there is none."""


@dataclass(frozen=True)
class SizeChange:
    """How sizes of a symbol differ from those that were expected."""

    symbol: str
    distance: float
    """Between the shares of requests that are no larger, where that is most (Kolmogorov)."""
    chance: float
    """The chance of a distance as great between requests of one kind."""

    def __str__(self) -> str:
        return f"sizes of {self.symbol} differ by {self.distance:.2f} (chance {self.chance:.0e})"


def changes(planned: Traffic, traffic: Traffic) -> list[SizeChange]:
    """How sizes differ, for each symbol: the test of Kolmogorov and Smirnov (1948).

    Sizes are few and whole, so that chances are rather too large than too small.

    Args:
        planned: what was expected.
        traffic: what came.

    Returns:
        A change for each symbol of `planned`.

    Raises:
        UnknownNameError: `traffic` lacks a symbol.

    """
    if missing := [s for s in planned.symbols if s not in traffic.symbols]:
        raise unknown_name("symbol", missing[0], traffic.symbols)
    return [_change(symbol, planned, traffic) for symbol in planned.symbols]


def _change(symbol: str, planned: Traffic, traffic: Traffic) -> SizeChange:
    each = [_upward(symbol, t) for t in (planned, traffic)]
    sizes = np.concatenate([its for its, _ in each])
    one, other = (shares[np.searchsorted(its, sizes, side="right")] for its, shares in each)
    distance = float(np.abs(one - other).max())
    both = planned.total * traffic.total / (planned.total + traffic.total)
    return SizeChange(symbol, distance, float(kolmogorov(distance * math.sqrt(both))))


def _upward(symbol: str, traffic: Traffic) -> tuple[Integers, NDArray[np.float64]]:
    """The sizes of a symbol, upward, and the shares of requests of the first 0, 1, ... of them."""
    column = traffic.sizes[:, traffic.symbols.index(symbol)]
    order = np.argsort(column)
    counts = np.concatenate([[0], np.cumsum(traffic.requests[order])])
    return column[order], counts / traffic.total


class DriftWatch:
    """Looks at requests as they come, a window at a time, in memory that does not grow.

    However long it looks, the chance of a false alarm is `alpha` together: the k-th window may have
    6 / (pi k)**2 of it, shared by the symbols (Bonferroni).

    Args:
        planned: what is expected.
        window: requests that are looked at together: an alarm comes after two of them at most,
            where sizes differ by much more than 2 / sqrt(window).
        alpha: the chance of ever being told of a change where there is none.

    Raises:
        ArgumentError: a window of less than 100 requests, or a chance that is none.

    """

    def __init__(self, planned: Traffic, window: int = WINDOW, alpha: float = ALPHA) -> None:
        if not isinstance(window, int) or window < 100:
            raise ArgumentError(f"window: expected at least 100 requests, got {window!r}")
        if not isinstance(alpha, int | float) or not 0 < alpha < 1:
            raise ArgumentError(f"alpha: expected a chance between 0 and 1, got {alpha!r}")
        self.planned, self.window, self.alpha = planned.without_times(), window, alpha
        self.looks = 0
        self.requests = 0
        """Requests that came so far."""
        self._rows = np.empty((window, len(planned.symbols)), np.int64)

    def add(self, sizes: Integers) -> list[SizeChange]:
        """Take requests, and look whenever a window is full.

        Args:
            sizes: a row for each request, a column for each of the symbols of `planned`.

        Returns:
            The changes that are no chance; none of them, as a rule.

        """
        alarms: list[SizeChange] = []
        rows = np.asarray(sizes, np.int64).reshape(-1, self._rows.shape[1])
        while len(rows):
            start = self.requests % self.window
            some, rows = np.split(rows, [self.window - start])
            self._rows[start : start + len(some)] = some
            self.requests += len(some)
            if self.requests % self.window == 0:
                ones = np.ones(self.window, np.int64)
                alarms += self.look(Traffic(self.planned.symbols, self._rows.copy(), ones))
        return alarms

    def look(self, traffic: Traffic) -> list[SizeChange]:
        """Look at a window that was counted elsewhere, as by `exe.traffic`.

        Args:
            traffic: the requests since the last look.

        Returns:
            As `add`.

        Raises:
            UnknownNameError: it lacks a symbol.

        """
        self.looks += 1
        mine = self.alpha * 6 / (math.pi * self.looks) ** 2 / len(self.planned.symbols)
        return [change for change in changes(self.planned, traffic) if change.chance < mine]
