"""What a convolution of few channels out takes as inner products along its windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bucketize.kernel.emit.writer import FLOAT_BYTES
from bucketize.kernel.gemm.conv import window
from bucketize.kernel.schedule import Schedule
from bucketize.kernel.workload import Workload
from bucketize.machine.speed import Floats, fitted, joined
from bucketize.machine.target import Target
from bucketize.types import Points, Shape


@dataclass(frozen=True)
class InnerConstants:
    """What is alike on all cores of a family; cycles unless said."""

    crossing: float
    """Loads that a vector of the image takes, of which most lie on two cache lines."""
    latency: float
    """Latency of a chain of sums by that of a multiply-add; chains of tiles overlap."""
    fold: float
    """To add up the elements of one sum."""
    tile: float
    """To begin and end a tile."""
    line: float
    """To begin a line of the result."""
    call: float
    near: float
    """How fast lines come from the second cache, by a stream from there."""
    far: float
    """How fast lines come from the third cache, by a stream from there."""
    overlap: float
    """How well arithmetic and traffic overlap: 1, one after the other; many, the longer alone."""


FITTED = fitted(
    InnerConstants,
    crossing=(1.8, 1.8),
    latency=(0.6, 0.6),
    fold=(3.0, 3.0),
    tile=(12.0, 12.0),
    line=(40.0, 40.0),
    call=(200.0, 200.0),
    near=(1.0, 1.0),
    far=(1.0, 1.0),
    overlap=(4.0, 4.0),
)
"""By hand, of one machine of the second family."""


@dataclass(frozen=True)
class InnerCost:
    """The cost of such a convolution, over dims."""

    image: Shape
    out: Shape
    kernel: tuple[int, int]

    @classmethod
    def of(cls, workload: Workload) -> InnerCost:
        """The cost of a workload."""
        _, _, height, width = window(workload)
        return cls(workload.anchor.args[0].type.shape, workload.result.shape, (height, width))

    def seconds(
        self, schedules: Sequence[Schedule], points: Points, target: Target, cold_bytes: int = 0
    ) -> Floats:
        """Seconds of schedules at points; the weights are too few for their coldness to matter."""
        del cold_bytes
        c, its = FITTED[target.family], target.speed
        columns = np.array([int(s["columns"]) for s in schedules], float)
        batch, height, across, outs = _extents(self.out, points)
        _, down, right, channels = _extents(self.image, points)
        lines, tiles = batch * height, np.ceil(across / columns)
        wide = across / np.maximum(tiles, 1)
        steps = self.kernel[0] * np.ceil(self.kernel[1] * channels / target.lanes)
        products = wide * outs / its.fma
        loads = (wide * c.crossing + outs) / its.loads
        chain = c.latency * its.latency
        tile = (
            steps * np.maximum(np.maximum(products, loads), chain) + wide * outs * c.fold + c.tile
        )
        cycles = lines * (tiles * tile + c.line)
        moved = FLOAT_BYTES * batch * (down * right * channels + height * across * outs)
        rate = np.where(moved <= target.l2 / 2, c.near * its.l2, c.far * its.l3)
        return (joined(cycles, moved / rate, c.overlap) + c.call) / its.ghz / 1e9


def _extents(shape: Shape, points: Points) -> list[Floats]:
    """The extents of a shape, a row for each point."""
    return [points.values(d).astype(float)[:, None] for d in shape]
