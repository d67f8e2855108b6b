"""What attention takes: two products for each block of rows, and what is around them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np

from bucketize.kernel.attention.form import widths
from bucketize.kernel.gemm import cost
from bucketize.kernel.gemm.schedule import Tiling, tallest
from bucketize.kernel.loops import cost as loops
from bucketize.kernel.product import Product
from bucketize.kernel.schedule import Schedule
from bucketize.machine.speed import Floats
from bucketize.machine.target import Target
from bucketize.types import Dim, Points

BLOCK = 24  # rows of Q at a time: with 12 it took up to 3 % longer, with 48 as long
SQUARE, COPY, WEIGHT = 6, 2, 12
"""Steps of vectors: to lay out one of keys, one of values, and to make weights of scores."""


def value_vectors(features: Dim, target: Target) -> int:
    """The vectors of a panel of values that is best for results of so many columns."""
    if not isinstance(features, int):
        return cost.usual_width(target, True) // target.lanes
    asked = Product((BLOCK,), max(features, 1), cost.LARGE.depth)
    return min(tallest(target), key=lambda v: seconds(asked, v, tallest(target)[v], target))


def seconds(asked: Product, vectors: int, rows: int, target: Target) -> float:
    """Seconds of a product in tiles of so many rows of so many vectors."""
    schedule = asdict(Tiling(rows, vectors * target.lanes))
    return float(cost.modelled(asked, [schedule], target)[0, 0])


class Sizes(NamedTuple):
    """The extents of attention."""

    batch: int
    rows: int
    keys: int
    depth: int
    features: int


@dataclass(frozen=True)
class AttentionCost:
    """The extents of attention over dims: its cost, by the models of products and of loops."""

    batch: Dim
    rows: Dim
    keys: Dim
    depth: Dim
    features: Dim
    steps: Mapping[str, int]
    """Steps of each score before its softmax, by the kinds of loops."""

    def seconds(
        self, schedules: Sequence[Schedule], points: Points, target: Target, cold_bytes: int = 0
    ) -> Floats:
        """Seconds of schedules at points; what passes through the caches besides does not count."""
        dims = self.batch, self.rows, self.keys, self.depth, self.features
        wide = value_vectors(self.features, target)
        del cold_bytes  # the keys and values were written just before
        each = []
        for extents in zip(*map(points.values, dims), strict=True):
            at = Sizes(*(max(n, 1) for n in extents))
            products = [sum(_products(s, at, wide, target)) for s in schedules]
            each.append(np.array(products) + self._between(at, target))
        return np.array(each)

    def _between(self, at: Sizes, target: Target) -> float:
        """The softmax, and what lays out keys and values."""
        rows = at.batch * at.rows
        vectors = rows * -(-at.keys // target.lanes)
        laid = at.batch * at.keys * (at.depth * SQUARE + at.features * COPY) / target.lanes
        steps = {kind: n * vectors for kind, n in self.steps.items()}
        simple = steps.pop("simple", 0) + vectors * WEIGHT + laid
        counts = {**steps, "simple": simple, "row": 4 * rows, "fold": 2 * rows}
        each = loops.seconds_each(loops.FITTED[target.family], target.speed)
        return float(loops.taken(loops.table([counts]), each)[0])


def _products(schedule: Schedule, at: Sizes, wide: int, target: Target) -> Iterator[float]:
    """Products of a block of rows with all keys and with all values, for all blocks."""
    blocks, width = -(-at.rows // int(schedule["rows"])), int(schedule["nr"])
    tall, vectors = tallest(target), width // target.lanes
    whole = at.keys // width * width
    narrow = next(v for v in widths(vectors) if at.keys - whole <= v * target.lanes)
    for columns, depth, v, rows in (
        (whole, at.depth, vectors, tall[vectors]),
        (at.keys - whole, at.depth, narrow, tall[vectors]),
        (at.features, at.keys, wide, tall[wide]),
    ):
        if columns:
            asked = Product((-(-at.rows // blocks),), columns, depth, (at.batch * blocks,))
            yield seconds(asked, v, rows, target)
