"""Latencies of requests: a histogram of bounded size, of a sample of those that are short."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

LONG_S = 1e-3
"""After a longer request the next is timed, too: that takes 0.5 us."""
SAMPLED = 61
"""After a shorter one it is the 61st, and stands for all of them: a prime, so that of sizes that
come by turns each is timed."""
SPLIT = 2.0**47 + 1  # of the 53 bits of a number 6 are left


@dataclass(slots=True)
class Latencies:
    """Requests, and how long they took."""

    requests: int = 0
    """All of them, exactly."""
    weights: dict[float, int] = field(default_factory=dict)
    """By seconds, kept to 6 bits (32 to a doubling, off by 1 / 64 at most), about how many."""

    def note(self, seconds: float, weight: int) -> None:
        """Note a request that stands for so many."""
        large = seconds * SPLIT
        nearest = large - (large - seconds)  # of 6 bits: Veltkamp 1968
        self.weights[nearest] = self.weights.get(nearest, 0) + weight

    def add(self, other: Latencies) -> None:
        """Add those of other requests."""
        self.requests += other.requests
        for seconds, weight in other.weights.copy().items():
            self.weights[seconds] = self.weights.get(seconds, 0) + weight

    @property
    def mean_s(self) -> float | None:
        """Mean seconds of the requests; None if none was noted."""
        total = sum(self.weights.values())
        return sum(s * n for s, n in self.weights.items()) / total if total else None

    def quantile_s(self, share: float) -> float | None:
        """The least latency that so many of the requests do not exceed."""
        seconds = sorted(self.weights)
        served = np.cumsum([self.weights[s] for s in seconds])
        return seconds[int(np.searchsorted(served, share * served[-1]))] if seconds else None
