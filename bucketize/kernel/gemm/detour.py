"""What a convolution by minimal filtering takes: products of its elements, and the transforms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from bucketize.kernel.emit.vector import FLOAT_BYTES
from bucketize.kernel.fitted import Fitted, joined
from bucketize.kernel.gemm import cost
from bucketize.kernel.gemm.patchwork import most_patches, tile_rows
from bucketize.kernel.target import Target
from bucketize.kernel.template import Schedule
from bucketize.types import Dim, evaluate

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Constants:
    """What a processor does beside the products, in cycles, and in bytes in a cycle."""

    transform: Mapping[int, float]
    """A vector of V or M with its share of pixels and epilogue, by m, whose sums are longer."""
    row: float
    """A row of M in a panel."""
    patch: float
    """A patch in a panel."""
    first: float
    """The bytes of weights when they are read first."""
    again: float
    """And for each further block."""
    overlap: float
    """How well arithmetic and weights overlap: 1, one after the other; many, the longer alone."""


EMERALD_RAPIDS = Constants(
    transform={2: 0.5, 4: 4.2, 6: 8.5},
    row=23.9,
    patch=357.0,
    first=4.75,
    again=8.2,
    overlap=1.43,
)
FITTED = Fitted(EMERALD_RAPIDS, {"emeraldrapids": EMERALD_RAPIDS})
"""Least squares of logarithms over 558 trials of resnet18's layers, 40 to 384 pixels, weights as
cold as in the graph, 16 lanes. On those same trials it is off by 11 % (median), and the choice by it
and the model of products is 2 % behind the best, 22 % at worst. `-m benchmarks constants` does not
fit these: the trials are in no recorded grid."""


@dataclass(frozen=True)
class Detour:
    """The cost of such a convolution, over dims."""

    patches: Mapping[int, Dim]
    """Those of all images, by m."""
    elements: Mapping[int, int]
    """Those of a patch, by m."""
    channels: int
    channels_out: int
    """Those of a group."""
    groups: int = 1

    def seconds(
        self,
        schedules: Sequence[Schedule],
        sizes: Mapping[str, int],
        target: Target,
        cold_bytes: int = 0,
    ) -> Floats:
        """As `Cost.seconds`."""
        return self._at(lambda dim: evaluate(dim, sizes), schedules, target, cold_bytes)

    def best(self, schedules: Sequence[Schedule], target: Target) -> Schedule:
        """The one of the least mean logarithm of seconds within the bounds of the symbols."""
        points = (partial(cost.at_bounds, share=share) for share in (0.0, 0.5, 1.0))
        logs = [np.log(self._at(at, schedules, target, 4 * target.l2)) for at in points]
        return schedules[int(np.mean(logs, axis=0).argmin())]

    def _at(
        self,
        at: Callable[[Dim], int],
        schedules: Sequence[Schedule],
        target: Target,
        cold_bytes: int,
    ) -> Floats:
        patches = {m: max(at(dim), 1) for m, dim in self.patches.items()}
        m, width = (np.array([int(s[name]) for s in schedules]) for name in ("m", "nr"))
        count = np.array([patches[each] for each in m], float)
        found: Floats = self._cycles(m, width, count, target, cold_bytes) / _products(target).ghz
        return found / 1e9

    def _cycles(
        self, m: Floats, width: Floats, patches: Floats, target: Target, cold_bytes: int
    ) -> Floats:
        c, products = FITTED.of(target), _products(target)
        elements, vectors = np.array([self.elements[int(k)] for k in m]), width / target.lanes
        channels = self.groups * self.channels
        panels = self.groups * np.ceil(self.channels_out / width)
        of_each = zip(width, elements, strict=True)
        most = [most_patches(channels, int(w), int(e), target) for w, e in of_each]
        blocks = np.ceil(patches / most)
        tiles = np.ceil(patches / blocks / [tile_rows(int(w), target) for w in width])
        height = patches / blocks / tiles
        step = np.maximum(height * vectors / products.fma, products.latency)
        step = np.maximum(step, (height + vectors) / products.loads)
        arithmetic = elements * blocks * panels * tiles * step * self.channels
        weights = elements * self.channels * panels * width * FLOAT_BYTES
        is_near = np.maximum(weights, cold_bytes) <= 0.8 * target.l2
        first = np.where(is_near, products.l2, c.first)
        again = np.where(is_near, products.l2, c.again)
        read = weights / first + (blocks - 1) * weights / again
        sides = np.ceil(channels / target.lanes) + panels * vectors
        transforms = elements * patches * sides * [c.transform[int(k)] for k in m]
        rows = patches * panels * (elements * c.row + c.patch)
        found: Floats = joined(arithmetic, read, c.overlap) + transforms + rows + products.call
        return found


def _products(target: Target) -> cost.Constants:
    return cost.FITTED.of(target)
