"""What loop source takes: so much for each thing that its loops do.

A template tells how many of each kind there are (`Counts`), a machine's speed what each takes.
Bytes count once more where they come from beyond the second cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from bucketize.kernel.emit.writer import FLOAT_BYTES
from bucketize.kernel.schedule import Schedule
from bucketize.kernel.template import Launch, Shapes
from bucketize.kernel.work import Work, work
from bucketize.kernel.workload import Workload
from bucketize.machine.speed import Floats, Speed, fitted, joined
from bucketize.machine.target import Target
from bucketize.types import Points

Counts: TypeAlias = Mapping[str, float]
"""By kind, how many at some sizes; those of `VECTORS` are elements."""

VECTORS = ("simple", "choose", "divide", "root", "exp", "log", "multiply")
KINDS: Mapping[str, str] = {
    "call": "of a kernel",
    "row": "an inner loop begun",
    "fold": "the lanes of a vector made one",
    "simple": "arithmetic on a vector, or a comparison",
    "choose": "the greater or smaller of two vectors, where NaN is greatest",
    "divide": "a division of vectors",
    "root": "a square root",
    "exp": "an exponential, or what is as long",
    "log": "a logarithm",
    "multiply": "a step of a product",
    "library": "a call of the C library, for one element",
    "lone": "an element by itself: by an index, or one that waits for the one before",
    "apart": "an element whose neighbours in a loop lie apart in memory",
    "byte": "moved",
    "far_byte": "moved from or to beyond the second cache",
}
"""What is counted."""
SHARES = 0.5, 1.2  # of the second cache: what a kernel moves stays there, and leaves it as a whole
TRAFFIC = ("byte", "far_byte")


UNITS: Mapping[str, Callable[[Speed], float]] = {
    "root": lambda its: its.root,
    "exp": lambda its: its.exp,
    "log": lambda its: its.exp,
    "byte": lambda its: 1 / its.l2,
    "far_byte": lambda its: 1 / its.l3,
}
"""Cycles by which a kind is counted, if not single ones."""


def seconds_each(constants: Counts, its: Speed) -> dict[str, float]:
    """Seconds of one of each kind on a machine; `overlap` is a number as it is.

    A product's step takes no less than the machine's own: constants are fitted to several.
    """
    cycles = {kind: constants[kind] * UNITS.get(kind, _single)(its) for kind in KINDS}
    cycles["multiply"] = max(cycles["multiply"], 1 / its.fma)
    return {kind: n / its.ghz / 1e9 for kind, n in cycles.items()} | {
        "overlap": constants["overlap"]
    }


def _single(_: Speed) -> float:
    return 1.0


def table(counts: Iterable[Counts]) -> Floats:
    """Counts as rows, with a column for each kind."""
    return np.array([[of.get(kind, 0) for kind in KINDS] for of in counts], float)


def taken(counts: Floats, each: Mapping[str, float]) -> Floats:
    """Seconds of each row of a table: what is computed and what is moved overlap in part."""
    seconds = dict(zip(KINDS, (counts * [each[kind] for kind in KINDS]).T, strict=True))
    moved = sum(seconds.pop(kind) for kind in TRAFFIC)
    call = seconds.pop("call")
    total: Floats = call + joined(sum(seconds.values()), moved, each["overlap"])
    return total


@dataclass(frozen=True)
class LoopCounts:
    """What a launch tells of a kernel's loops, at sizes."""

    extent: int
    dims: tuple[int, ...]


@dataclass(frozen=True)
class Steps:
    """The cost of a workload in loop source, from what its loops do."""

    launch: Callable[[Workload, Schedule, Shapes, Target], Launch]
    counts: Callable[[Workload, Schedule, LoopCounts], Counts]
    workload: Workload

    @cached_property
    def work(self) -> Work:
        """Work of the loops: what they move, over dims."""
        return work(self.workload)

    def seconds(
        self, schedules: Sequence[Schedule], points: Points, target: Target, cold_bytes: int = 0
    ) -> Floats:
        """Seconds of schedules at points, from counts of the loops' steps."""
        each = [self.counted(s, points, target, cold_bytes) for s in schedules]
        seconds = seconds_each(FITTED[target.family], target.speed)
        return np.stack([taken(table(counts), seconds) for counts in each], axis=1)

    def counted(
        self, schedule: Schedule, points: Points, target: Target, cold_bytes: int
    ) -> list[dict[str, float]]:
        """How many of each kind at each point; vectors where they are of vectors."""
        workload = self.workload
        shapes = tuple(a.type.shape for a in (*workload.body.params, *workload.body.results))
        launch = self.launch(workload, schedule, shapes, target)
        columns = map(points.values, (launch.extent, *launch.dims))
        counts = [
            self.counts(workload, schedule, LoopCounts(extent, tuple(dims)))
            for extent, *dims in zip(*columns, strict=True)
        ]
        moved = map(points.values, (self.work.moved, self.work.constant))
        each = zip(counts, *moved, strict=True)
        return [self._with_bytes(*one, target=target, cold_bytes=cold_bytes) for one in each]

    def _with_bytes(
        self, counts: Counts, moved: int, constant: int, *, target: Target, cold_bytes: int
    ) -> dict[str, float]:
        """Counts with those of bytes."""
        low, high = (share * target.l2 for share in SHARES)
        gone = min(max(moved - low, 0) / (high - low), 1)
        itemsize = max(t.dtype.itemsize for t in self.workload.results)
        share = itemsize / (target.lanes * FLOAT_BYTES)
        return {
            "call": 1,
            "byte": moved,
            "far_byte": max(moved * gone, constant if cold_bytes > high else 0),
            **{kind: n * share if kind in VECTORS else n for kind, n in counts.items()},
        }


FITTED = fitted(
    dict[str, float],
    call=(903.0, 460.0),
    row=(15.7, 10.5),
    fold=(15.4, 10.9),
    simple=(1.24, 0.712),
    choose=(1.79, 0.904),
    divide=(2.5, 0.001),
    root=(0.892, 0.364),
    exp=(1.92, 1.18),
    log=(3.49, 2.45),
    multiply=(1.46, 0.619),
    library=(38.7, 29.9),
    lone=(3.58, 2.03),
    apart=(1.25, 0.765),
    byte=(1.82, 1.04),
    far_byte=(0.751, 0.568),
    overlap=(1.99, 1.94),
)
"""The cost of one of each kind, by `UNITS`; fitted by `-m benchmarks constants` to "rest"."""
