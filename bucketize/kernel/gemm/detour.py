"""What a convolution by minimal filtering takes: products of its elements, and the transforms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from bucketize.kernel.emit.vector import FLOAT_BYTES
from bucketize.kernel.gemm import cost, minimal
from bucketize.kernel.gemm.patchwork import most_patches, row_bytes, tile_rows
from bucketize.kernel.product import Product
from bucketize.kernel.target import Target
from bucketize.kernel.template import Schedule
from bucketize.types import Dim, evaluate

Floats = NDArray[np.float64]

TRANSFORM = {2: 5.0, 4: 7.0, 6: 10.0}
"""Cycles of a vector of V or M, with its share of pixels and epilogue, by m, whose sums are longer:
what products leave of the times of 56 x 56 x 64 with 16 lanes, not fitted."""


@dataclass(frozen=True)
class Detour:
    """The cost of such a convolution, over dims."""

    patches: Mapping[int, Dim]
    """Those of all images, by the lines m that one gives."""
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
        taken = (self._taken(s, patches[int(s["m"])], target, cold_bytes) for s in schedules)
        return np.fromiter(taken, float)

    def _taken(self, schedule: Schedule, patches: int, target: Target, cold_bytes: int) -> float:
        m, width = int(schedule["m"]), int(schedule["nr"])
        constants, rows = cost.FITTED.of(target), tile_rows(width, target)
        elements = minimal.reach(m) ** 2
        channels = self.groups * self.channels
        blocks = -(-patches // most_patches(channels, m, rows, target))
        product = Product(
            rows=(-(-patches // blocks),),
            columns=self.channels_out,
            depth=self.channels,
            batch=(elements * blocks * self.groups,),
            a_step=row_bytes(channels),
            cold_bytes=max(cold_bytes, elements * channels * self.channels_out * FLOAT_BYTES),
        )
        knobs = cost.arrays([{"mr": rows, "nr": width, "kc": 0}], target.lanes)
        products = cost.seconds(product, knobs, constants, target)
        vectors = -(-channels // target.lanes) + self.groups * -(-self.channels_out // target.lanes)
        return (
            float(products[0, 0])
            + elements * patches * vectors * TRANSFORM[m] / constants.ghz / 1e9
        )
