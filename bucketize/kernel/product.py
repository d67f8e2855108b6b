"""A product, or a convolution as one: what the model of its cost is told."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bucketize.types import Dim, bounds, evaluate


@dataclass(frozen=True)
class Product:
    """The extents of a product, or of a convolution as one, at one or several sizes."""

    rows: tuple[int, ...]
    columns: int
    depth: int
    batch: tuple[int, ...] = (1,)
    """Products side by side: as many entries as rows has, or one for all."""
    packed: bool = True
    """Whether B lies in panels."""
    image: bool = False
    """Whether the rows of A are windows of an image."""
    a_step: int = 0
    """Bytes from one row of A to the next."""
    a_share: float = 1.0
    """Of A that is in memory: the windows of an image overlap."""
    cold_bytes: int = 0
    """What passes through the caches until B is read again."""


@dataclass(frozen=True)
class Extents:
    """Those of a product over dims."""

    rows: Dim
    columns: Dim
    depth: Dim
    batch: Dim = 1
    packed: bool = True
    image: bool = False
    a_step: Dim = 0
    a_share: float = 1.0

    def product(self, sizes: Sequence[Mapping[str, int]], cold_bytes: int = 0) -> Product:
        """At some sizes of the symbols; those of columns and depth must be the same at all."""
        rows, batch = (tuple(evaluate(d, s) for s in sizes) for d in (self.rows, self.batch))
        columns, depth, step = (
            evaluate(d, sizes[0]) for d in (self.columns, self.depth, self.a_step)
        )
        shape = rows, columns, depth, batch, self.packed, self.image, step, self.a_share
        return Product(*shape, cold_bytes)

    def typical(self, cold_bytes: int = 0) -> Product:
        """Within the bounds of the symbols: rows at their ends and in the middle."""
        columns, depth, batch, step = (
            middle(d, TYPICAL) for d in (self.columns, self.depth, self.batch, self.a_step)
        )
        rows = judged(self.rows, TYPICAL_ROWS)
        shape = rows, columns, depth, (batch,), self.packed, self.image, step, self.a_share
        return Product(*shape, cold_bytes)


TYPICAL, TYPICAL_ROWS = 512, 64  # where the types leave an extent open


def judged(dim: Dim, fallback: int) -> tuple[int, ...]:
    """Where a bounded extent is judged: at its ends and in their geometric middle."""
    low, high = _ends(dim, fallback)
    return tuple(sorted({low, round(math.sqrt(low * high)), high}))


def middle(dim: Dim, fallback: int) -> int:
    """An extent that stands for `dim`: the geometric middle of its bounds."""
    low, high = _ends(dim, fallback)
    return round(math.sqrt(low * high))


def _ends(dim: Dim, fallback: int) -> tuple[int, int]:
    low, high = bounds(dim)
    low = max(low, 1)
    return low, max(low, fallback if high is None else high)
