"""A product, or a convolution as one: what the model of its cost is told."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from bucketize.types import ANY, Dim, bounds, evaluate, symbols


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

    @property
    def kin(self) -> tuple[object, ...]:
        """Equal for products that differ by how many rows they have, or how often, alone."""
        return self.columns, self.depth, self.packed, self.image


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
        return self._at([partial(evaluate, env=s) for s in sizes], cold_bytes)

    def typical(self, cold_bytes: int = 0) -> tuple[Product, ...]:
        """Within the bounds of the symbols: all at their ends, and all in the middle."""
        points = [partial(_at_bounds, share=share) for share in (0.0, 0.5, 1.0)]
        if all(len({at(d) for at in points}) == 1 for d in (self.columns, self.depth)):
            return (self._at(points, cold_bytes),)
        return tuple(self._at([at], cold_bytes) for at in points)

    def _at(self, points: Sequence[Callable[[Dim], int]], cold_bytes: int) -> Product:
        rows, batch = (tuple(at(d) for at in points) for d in (self.rows, self.batch))
        columns, depth, step = (points[0](d) for d in (self.columns, self.depth, self.a_step))
        shape = rows, columns, depth, batch, self.packed, self.image, step, self.a_share
        return Product(*shape, cold_bytes)


TYPICAL = 256  # the top of an extent that the types leave open


def _at_bounds(dim: Dim, share: float) -> int:
    """An extent when all its symbols are so far, geometrically, from their low ends to their tops.

    One that is unknown is as far between its own.
    """
    known = symbols(dim)
    if dim == ANY:
        return _between(*bounds(dim), share)
    return max(evaluate(dim, {s.name: _between(s.lo, s.hi, share) for s in known}), 1)


def _between(low: int, high: int | None, share: float) -> int:
    low = max(low, 1)
    top = max(low, TYPICAL if high is None else high)
    return round(math.exp((1 - share) * math.log(low) + share * math.log(top)))
