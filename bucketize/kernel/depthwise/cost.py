"""What a depthwise convolution takes: the cycles and the traffic of a sliding window.

A tile is some columns times some vectors of channels: every pixel that its windows see is loaded
once for each of their lines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bucketize.kernel.emit.window import ORDERS
from bucketize.kernel.emit.writer import FLOAT_BYTES
from bucketize.kernel.schedule import Schedule
from bucketize.machine.speed import Floats, Speed, fitted, joined
from bucketize.machine.target import Target
from bucketize.types import Points, Shape


@dataclass(frozen=True)
class DepthwiseConstants:
    """What is alike on all cores of a family; cycles unless said."""

    latency: float
    """Latency of a chain of sums, for each step; the chains of tiles overlap."""
    tile: float
    """To begin and end a tile."""
    run: float
    """To begin a run of tiles."""
    store: float
    """To store a vector of a tile, with its epilogue."""
    call: float
    near: float
    """How fast lines come from the second cache, by a stream from there."""
    far: float
    """How fast lines come from the third cache, by a stream from there."""
    share: float
    """The share of the first cache that a window's lines may fill if they are to stay there."""
    share_l2: float
    """The share of the second cache that image and result may fill."""
    apart: float
    """For a stretch of channels from afar that is moved without its neighbours."""
    late: float
    """For such a stretch besides, if it is moved when the whole image has passed."""
    overlap: float
    """How well arithmetic and traffic overlap: 1, one after the other; many, the longer alone."""


@dataclass(frozen=True)
class DepthwiseCost:
    """The cost of a depthwise convolution, over dims."""

    image: Shape
    out: Shape
    """The shapes of image and result as they lie: image, line, column, channel."""
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    operands: int
    """Operands of the epilogue that are as large as the result."""

    def seconds(
        self, schedules: Sequence[Schedule], points: Points, target: Target, cold_bytes: int = 0
    ) -> Floats:
        """Seconds of schedules at points; the weights are too few for their coldness to matter."""
        del cold_bytes
        return self.modelled(schedules, points, target, FITTED[target.family])

    def modelled(
        self, schedules: Sequence[Schedule], points: Points, target: Target, c: DepthwiseConstants
    ) -> Floats:
        """Seconds by these constants."""
        columns = np.array([int(s["columns"]) for s in schedules], float)
        vectors = np.array([int(s["channels"]) / target.lanes for s in schedules])
        by = {o: np.array([s["order"] == o for s in schedules]) for o in ORDERS}
        batch, height, across, channels = _columns(self.out, points)
        lines = batch * height
        tiles = np.ceil(across / columns)
        blocks = np.ceil(channels / (vectors * target.lanes))
        cells = lines * tiles * blocks
        runs = lines * np.where(by["channels"], tiles, blocks * np.minimum(tiles, 2))
        cycles = (
            cells * self._tile(across / np.maximum(tiles, 1), vectors, c, target.speed)
            + runs * c.run
        )
        at_once = np.where(by["lines"], vectors * target.lanes, channels)
        apart = by["columns"] * c.apart + by["lines"] * (c.apart + c.late)
        parts = apart * (channels > vectors * target.lanes) / (vectors * target.lanes * FLOAT_BYTES)
        moved = self._traffic(points, at_once, parts, c, target)
        both = joined(cycles, moved, c.overlap)
        return (both + c.call) / target.speed.ghz / 1e9

    def _tile(self, columns: Floats, vectors: Floats, c: DepthwiseConstants, its: Speed) -> Floats:
        """Cycles of a tile."""
        height, width = self.kernel
        taps, step, apart = height * width, self.strides[1], self.dilations[1]
        seen = np.minimum((columns - 1) * step + (width - 1) * apart + 1, columns * width)
        arithmetic = np.maximum(taps * columns * vectors / its.fma, taps * c.latency)
        loads = (seen * height + taps) * vectors / its.loads
        stored = columns * vectors * (c.store + self.operands / its.loads)
        return np.maximum(arithmetic, loads) + stored + c.tile

    def _traffic(
        self, points: Points, channels: Floats, parts: Floats, c: DepthwiseConstants, target: Target
    ) -> Floats:
        """Cycles of moving the image, again where its lines do not stay, and the result.

        So many channels pass at once over a line; what comes from afar in parts takes so much more
        for a byte.
        """
        batch, down, right, deep = _columns(self.image, points)
        image = batch * down * right * deep * FLOAT_BYTES
        out = FLOAT_BYTES * math.prod(_columns(self.out, points)) * (1 + self.operands)
        near, far = c.near * target.speed.l2, c.far * target.speed.l3
        each = np.where(image + out <= c.share_l2 * target.l2, 1 / near, 1 / far + parts)
        kept = self.kernel[0] * right * channels * FLOAT_BYTES <= c.share * target.l1
        again = np.where(kept, 0, max(self.kernel[0] / self.strides[0] - 1, 0) * image / near)
        return (image + out) * each + again


def _columns(shape: Shape, points: Points) -> list[Floats]:
    """The extents of a shape, a row for each point."""
    return [points.values(d).astype(float)[:, None] for d in shape]


FITTED = fitted(
    DepthwiseConstants,
    latency=(1.14, 1.12),
    tile=(2.44, 3.21),
    run=(3.65, 16.4),
    store=(7.98, 2.85),
    call=(20.0, 1000.0),
    near=(5.0, 0.495),
    far=(0.983, 1.08),
    share=(0.8, 0.8),
    share_l2=(0.6, 0.6),
    apart=(2.07, 0.19),
    late=(4.12, 0.43),
    overlap=(4.65, 20.0),
)
"""Fitted by `-m benchmarks constants` to the grid "convolution", but for the shares of caches,
which are assumed."""
