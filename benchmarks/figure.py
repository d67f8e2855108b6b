"""What the quick cell of a benchmark measures: figures, with how far their samples are apart."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from bucketize.errors import BucketizeError
from bucketize.machine.target import cores

EXACT = "exact"
"""The unit of what no clock has a part in: any other number is news."""


class SkippedError(BucketizeError):
    """A benchmark cannot be run here."""


@dataclass(frozen=True)
class Figure:
    """A quantity: the median of its samples, and their quartiles."""

    name: str
    unit: str
    median: float
    low: float
    high: float

    @classmethod
    def of(cls, name: str, unit: str, samples: Sequence[float]) -> Figure:
        """By samples."""
        low, median, high = np.quantile(samples, [0.25, 0.5, 0.75]).tolist()
        return cls(name, unit, median, low, high)

    @property
    def spread(self) -> float:
        """Half of what lies between the quartiles, by the median."""
        return (self.high - self.low) / 2 / self.median if self.median else 0.0


def needs(*packages: str) -> None:
    """Raise a SkippedError unless these are installed."""
    if missing := [name for name in packages if find_spec(name) is None]:
        raise SkippedError(f"not installed: {', '.join(missing)}")


def needs_cores(count: int) -> None:
    """Raise a SkippedError on a machine with fewer."""
    if cores() < count:
        raise SkippedError(f"it needs {count} cores, here is {cores()}")


def seconds(call: Callable[[], object], repeats: int) -> Iterator[float]:
    """What each of some calls takes."""
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        yield time.perf_counter() - start


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Ratios of the same rounds."""
    return [a / b for a, b in zip(ours, theirs, strict=True)]


def of_cell(rows: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """The times of a cell of the sweep, and the ratio of bucketize by the best peer."""
    found = []
    for row in rows:
        what = f"{row['model']} {row['sizes']}, {row['engine']}"
        for name, column, unit in ((what, "time{}_s", "s"), (f"{what} by best", "ratio{}", "")):
            values = [row.get(column.format(q), np.nan) for q in ("", "_q1", "_q3")]
            if not np.isnan(values).any() and (unit or row["engine"] == "bucketize"):
                found.append(Figure(name, unit, *values))
    return found
