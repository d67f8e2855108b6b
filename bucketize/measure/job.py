"""Jobs: implementations of a workload that are timed in turns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bucketize.kernel.schedule import Implementation
from bucketize.kernel.workload import Workload


@dataclass(frozen=True)
class Repeats:
    """How often a job's implementations take turns: until there were enough, or `enough_s`."""

    least: int = 7
    most: int = 100
    enough_s: float = 0.012
    """For each implementation."""


SEARCHING = Repeats()
"""Enough to choose what to time again."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """Implementations of one workload at one shape, to be timed in turns."""

    workload: Workload
    shape: str  # of the parameters, as in the log
    implementations: tuple[Implementation, ...]
    sizes: Mapping[str, int]  # of the symbols in the workload
    threads: int = 1
    weight_bytes: int = 0  # of the whole graph: what else goes through the caches between two runs
    rounds: Repeats = SEARCHING
