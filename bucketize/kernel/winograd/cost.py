"""What a convolution by minimal filtering takes: products of its elements, and the transforms."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bucketize.kernel.emit.writer import FLOAT_BYTES
from bucketize.kernel.gemm import cost
from bucketize.kernel.schedule import Schedule
from bucketize.kernel.typical import TypicalPoints
from bucketize.kernel.winograd.input import Axes
from bucketize.kernel.winograd.loops import most_patches, tile_rows
from bucketize.machine.speed import Floats, joined
from bucketize.machine.target import LINE, Target
from bucketize.types import Column, Dim, Points


@dataclass(frozen=True)
class WinogradConstants:
    """What is alike on all cores, beside the products; cycles unless said."""

    transform4: float
    """A vector of V or M with its share of pixels and epilogue, by size, whose sums are longer."""
    transform6: float
    transform8: float
    row: float
    """A row of M in a panel."""
    patch: float
    """A patch in a panel."""
    first: float
    """By those of a product: how fast weights come when they are read first."""
    again: float
    """By a stream's from the second: and for each further block."""
    overlap: float
    """How well arithmetic and weights overlap: 1, one after the other; many, the longer alone."""


FITTED = WinogradConstants(
    transform4=6.29,
    transform6=7.78,
    transform8=9.81,
    row=1.0,
    patch=10.5,
    first=0.622,
    again=0.234,
    overlap=2.0,
)
"""Fitted to the grid "filters" of three processors at once, but for `overlap`, which chooses the
algorithm best: 1.5 to 1.6 % above the best recorded. By families of cores it was 1.6 to 6.0."""


@dataclass(frozen=True)
class WinogradCost:
    """The cost of such a convolution, over dims."""

    patches: Mapping[int, Dim]
    """Patches of all images, by m."""
    axes: Mapping[int, Axes]
    """The axes of a patch, by m."""
    channels: int
    channels_out: int
    """Channels of a group, of the image and of the result."""
    groups: int = 1

    def seconds(
        self, schedules: Sequence[Schedule], points: Points, target: Target, cold_bytes: int = 0
    ) -> Floats:
        """Seconds of schedules at points of the symbols."""
        return self.modelled(schedules, points, target, FITTED, cold_bytes)

    def modelled(
        self,
        schedules: Sequence[Schedule],
        points: Points,
        target: Target,
        constants: WinogradConstants,
        cold_bytes: int,
    ) -> Floats:
        """Seconds of schedules at points, by constants of one's own."""
        return self._at(points.values, schedules, target, constants, cold_bytes)

    def best(
        self, schedules: Sequence[Schedule], points: TypicalPoints, target: Target
    ) -> list[Schedule]:
        """For each box the one of the least mean logarithm of seconds at its points.

        Of sizes of patches that are alike the smallest: it rounds less, and on small images a large
        one loses more than it wins elsewhere.
        """
        cold = cost.cold_bytes(target)
        seconds = self._at(points.extents, schedules, target, FITTED, cold)
        logs = np.log(seconds).reshape(len(points.boxes), -1, len(schedules))
        m, score = np.array([int(s["m"]) for s in schedules]), logs.mean(axis=1)
        is_near = score <= score.min(axis=1, keepdims=True) + cost.ALIKE
        smallest = np.where(is_near, m, m.max()).min(axis=1, keepdims=True)
        chosen = np.where(m == smallest, score, np.inf).argmin(axis=1)
        return [schedules[i] for i in chosen]

    def _at(
        self,
        at: Callable[[Dim], Column],
        schedules: Sequence[Schedule],
        target: Target,
        c: WinogradConstants,
        cold_bytes: int,
    ) -> Floats:
        """Seconds: a row for each of some points, a column for each schedule."""
        m, width = (np.array([int(s[name]) for s in schedules]) for name in ("m", "nr"))
        patches = np.array([np.maximum(at(self.patches[int(k)]), 1) for k in m], float).T
        products, its = cost.FITTED[target.family], target.speed
        each = {4: c.transform4, 6: c.transform6, 8: c.transform8}
        axes, vectors = [self.axes[int(k)] for k in m], width / target.lanes
        elements = np.array([y.size * x.size for y, x in axes], float)
        steps = np.array([y.products * x.products for y, x in axes], float)
        channels = self.groups * self.channels
        panels = self.groups * np.ceil(self.channels_out / width)
        of_each = zip(width, axes, strict=True)
        most = [most_patches(channels, int(w), both, target) for w, both in of_each]
        blocks = np.ceil(patches / most)
        tiles = np.ceil(patches / blocks / [tile_rows(int(w), target) for w in width])
        height = patches / blocks / tiles
        step = np.maximum(height * vectors / its.fma, its.latency)
        step = np.maximum(step, (height + vectors) / its.loads)
        arithmetic = steps * blocks * panels * tiles * step * self.channels
        weights = steps * self.channels * panels * width * FLOAT_BYTES
        passed = np.maximum(weights, cold_bytes)
        is_near, near = passed <= 0.8 * target.l2, products.near * its.l2
        far = c.first * cost.far_bytes(passed, products, target, products.far)
        first = np.where(is_near, near, far)
        again = np.where(is_near, near, c.again * its.l2)
        read = weights / first + (blocks - 1) * weights / again
        results = self.groups * math.ceil(self.channels_out / target.lanes)
        sides = steps * np.ceil(channels / target.lanes) + elements * results
        transforms = patches * sides * [each[max(y.size, x.size)] for y, x in axes]
        rows = patches * panels * (elements * c.row + c.patch)
        fetched = np.minimum(products.asked * tiles * LINE / (width * FLOAT_BYTES), 1)
        fetched = np.where(tiles > 1, fetched, 1)  # one that is alone reads weights as a stream
        both = fetched * joined(arithmetic, read, c.overlap) + (1 - fetched) * (arithmetic + read)
        seconds: Floats = (both + transforms + rows + products.call) / its.ghz / 1e9
        return seconds
