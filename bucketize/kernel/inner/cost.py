"""What a convolution of few channels out takes as inner products along its windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bucketize.kernel.emit.writer import FLOAT_BYTES
from bucketize.kernel.gemm.conv import window
from bucketize.kernel.inner.form import sizes_of
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
    share: float
    """The share of the first cache that weights, or a window's lines, may fill to stay there."""
    overlap: float
    """How well arithmetic and traffic overlap: 1, one after the other; many, the longer alone."""


FITTED = fitted(
    InnerConstants,
    crossing=(1.8, 1.8),
    latency=(0.6, 0.6),
    fold=(1.6, 1.6),
    tile=(10.0, 10.0),
    line=(30.0, 30.0),
    call=(300.0, 300.0),
    near=(1.0, 1.0),
    far=(1.0, 1.0),
    share=(0.7, 0.7),
    overlap=(3.0, 3.0),
)
"""By hand, of 29 convolutions on a Zen 5 with 16 lanes; Intel's cores are taken for its."""


@dataclass(frozen=True)
class InnerCost:
    """The cost of such a convolution, over dims."""

    image: Shape
    out: Shape
    kernel: tuple[int, int]
    stride: int
    """Lines of the image from a line of the result to the next."""
    dilation: int
    """Lines of the image from a line of a window to the next."""
    above: int
    """Lines of pads above the image."""

    @classmethod
    def of(cls, workload: Workload) -> InnerCost:
        """The cost of a workload."""
        _, _, height, width = window(workload)
        image, attrs = workload.anchor.args[0].type.shape, workload.anchor.attrs
        down = attrs["strides"][0], attrs["dilations"][0], attrs["pads"][0]
        return cls(image, workload.result.shape, (height, width), *down)

    def seconds(
        self, schedules: Sequence[Schedule], points: Points, target: Target, cold_bytes: int = 0
    ) -> Floats:
        """Seconds of schedules at points; the weights are too few for their coldness to matter."""
        del cold_bytes
        columns = [self._column(int(s["columns"]), points, target) for s in schedules]
        return np.concatenate(columns, axis=1)

    def _column(self, columns: int, points: Points, target: Target) -> Floats:
        """Seconds with tiles of so many pixels."""
        c, its = FITTED[target.family], target.speed
        batch, height, across, outs = _extents(self.out, points)
        _, down, right, deep = _extents(self.image, points)
        wide = np.ceil(self.kernel[1] * deep / target.lanes)
        steps = self._rows(height, down) * wide
        is_near = self.kernel[0] * wide * target.lanes * outs * FLOAT_BYTES <= c.share * target.l1
        taps = np.where(is_near, outs / its.loads, outs * target.lanes * FLOAT_BYTES / its.l2)
        cycles, left = np.full_like(across, c.line), across
        for size in sizes_of(columns):
            count = np.floor(left / size)
            left = left - count * size
            step = np.maximum(size * outs / its.fma, size * c.crossing / its.loads + taps)
            step = np.maximum(step, c.latency * its.latency)
            cycles = cycles + count * (steps * step + size * outs * c.fold + c.tile)
        image = batch * down * right * deep * FLOAT_BYTES
        moved = image + batch * height * across * outs * FLOAT_BYTES
        rate = np.where(moved <= target.l2 / 2, c.near * its.l2, c.far * its.l3)
        lines = self.kernel[0] * right * deep * FLOAT_BYTES
        again = max(self.kernel[0] / self.stride - 1, 0) * image / (c.near * its.l2)
        traffic = moved / rate + np.where(lines <= c.share * target.l1, 0, again)
        total: Floats = joined(batch * height * cycles, traffic, c.overlap) + c.call
        return total / its.ghz / 1e9

    def _rows(self, height: Floats, down: Floats) -> Floats:
        """Lines of a window that are in the image, in the mean: others are passed over."""
        rows = np.zeros_like(height)
        for i in range(self.kernel[0]):
            place = i * self.dilation - self.above
            first = np.maximum(np.ceil(-place / self.stride), 0)
            last = np.minimum(np.ceil((down - place) / self.stride), height)
            rows = rows + np.maximum(last - first, 0)
        return rows / np.maximum(height, 1)


def _extents(shape: Shape, points: Points) -> list[Floats]:
    """The extents of a shape, a row for each point."""
    return [points.values(d).astype(float)[:, None] for d in shape]
