"""Where the default of a workload is judged: its symbols at their ends and in the middle."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Set
from contextlib import suppress
from functools import lru_cache, partial
from typing import TypeAlias

import numpy as np

from bucketize.errors import TypeRelError
from bucketize.kernel.workload import Workload
from bucketize.ops.window.image import planes
from bucketize.types import Column, Dim, Points, Symbol, bounds, evaluate, substitute, symbols

SHARES = 0.0, 0.5, 1.0
LENGTHS = 1, 256
"""The ends of an extent that the types leave open."""
IMAGES, BATCHES = (64, 1024), (1, 16)
"""The same of an image's height and width, and of how many images there are."""
Box: TypeAlias = tuple[Symbol, ...]
"""Symbols with the bounds of a bucket."""


class TypicalPoints(Points):
    """Points in boxes, each with as many as there are `SHARES`: its symbols grow together."""

    def __init__(
        self, ends: Sequence[tuple[Symbol, tuple[int, int]]], boxes: Sequence[Box]
    ) -> None:
        """`ends` are the symbols, and where each ends if it is open."""
        self.boxes = [{s.name: s for s in box} for box in boxes]
        each = [[(box.get(s.name, s), open_) for s, open_ in ends] for box in self.boxes]
        super().__init__(
            [
                {s.name: between(s.lo, s.hi, share, open_) for s, open_ in box}
                for box in each
                for share in SHARES
            ]
        )

    def extents(self, dim: Dim) -> Column:
        """A dim at each point, at least 1; unknown or without a value, between its own bounds."""
        return np.maximum(self.values_or(dim, partial(self._between, dim)), 1)

    def _between(self, dim: Dim, point: int) -> int:
        box, share = divmod(point, len(SHARES))
        with suppress(TypeRelError):  # where no size of the box is legal it has no bounds there
            dim = substitute(dim, self.boxes[box])
        return between(*bounds(dim), SHARES[share])


def points(workload: Workload, boxes: tuple[Box, ...] = ((),)) -> TypicalPoints:
    """The typical sizes of a workload in boxes, or with an empty one in its own bounds."""
    return _points(tuple({s: open_ends(s, workload) for s in _symbols(workload)}.items()), boxes)


FINE, NEARLY = 4, 0.9
"""Cuts for each slice, as at small extents most cuts move a size not at all or far; and how much of
a slice's share of the growth begins the next one."""


def slices(workload: Workload, box: Box, count: int) -> tuple[Box, ...]:
    """A box cut into so many at most, each of which begins at a larger size.

    A batch grows when all else is at its end, as small sizes are mostly those of few images. Each
    slice goes on to where the next one begins.
    """
    each = _growing(workload, box, FINE * count)
    lows = Points([{s.name: s.lo for s in one} for one in each])
    sizes: list[int] = lows.values(workload.size).tolist()
    step = NEARLY * (max(sizes) / max(min(sizes), 1)) ** (1 / count)
    starts: list[int] = []
    for k, size in enumerate(sizes):
        if size > (sizes[starts[-1]] * step if starts else 0):
            starts.append(k)
    ends = [[s.lo for s in each[k]] for k in starts[1:]] + [[s.hi or s.lo for s in each[-1]]]
    return tuple(
        tuple(Symbol(s.name, s.lo, end) for s, end in zip(each[k], tops, strict=True))
        for k, tops in zip(starts, ends, strict=True)
    )


def _growing(workload: Workload, box: Box, count: int) -> tuple[Box, ...]:
    """Boxes along the growth of a box: of what is no batch, then of the batch."""
    each = cuts(workload, box, count)
    batch = {s.name for dim in workload.results[0].shape[:1] for s in symbols(dim)}
    if batch >= {s.name for s in each[0]} or not batch:
        return each
    low, high = [s.lo for s in each[0]], [s.hi or s.lo for s in each[-1]]
    few = (_held(one, low, batch) for one in each)
    many = (_held(one, high, {s.name for s in one} - batch) for one in each)
    return *few, *many


def _held(box: Box, at: Sequence[int], names: Set[str]) -> Box:
    """A box whose symbols of these names have one size each."""
    pairs = zip(box, at, strict=True)
    return tuple(Symbol(s.name, one, one) if s.name in names else s for s, one in pairs)


def cuts(workload: Workload, box: Box, count: int) -> tuple[Box, ...]:
    """A box cut into so many, whose symbols grow together."""
    own, each = {s.name: s for s in box}, dict.fromkeys(_symbols(workload))
    ranges = [
        (s.name, [between(s.lo, s.hi, k / count, ends) for k in range(count + 1)])
        for s, ends in ((own.get(s.name, s), open_ends(s, workload)) for s in each)
    ]
    return tuple(
        tuple(Symbol(name, ends[k], ends[k + 1]) for name, ends in ranges) for k in range(count)
    )


def least_size(workload: Workload, box: Box) -> int:
    """The size of the workload at the low end of a box."""
    return evaluate(workload.size, {s.name: s.lo for s in box})


@lru_cache(maxsize=4)
def _points(
    ends: tuple[tuple[Symbol, tuple[int, int]], ...], boxes: tuple[Box, ...]
) -> TypicalPoints:
    """What the layers of a model share: so a dim of theirs is evaluated once."""
    return TypicalPoints(ends, boxes)


@lru_cache(maxsize=1 << 12)
def between(low: int, high: int | None, share: float, ends: tuple[int, int] = LENGTHS) -> int:
    """The extent so far, geometrically, from one bound to the other; `ends` where it is open."""
    if high is None:
        low, high = max(low, ends[0]), ends[1]
    low = max(low, 1)
    top = max(low, high)
    return round(math.exp((1 - share) * math.log(low) + share * math.log(top)))


def _symbols(workload: Workload) -> Iterator[Symbol]:
    types = (*(p.type for p in workload.body.params), *workload.results)
    return (s for t in types for d in t.shape for s in symbols(d))


def open_ends(symbol: Symbol, workload: Workload) -> tuple[int, int]:
    """Where a symbol is taken to end that has no top."""
    anchor = workload.anchor
    if symbol.hi is not None or "layout" not in anchor.attrs:  # bounded, or of no images
        return LENGTHS
    shape = anchor.args[0].type.shape
    _, *image = planes(anchor.attrs["layout"], len(shape) - 2)
    return IMAGES if any(symbol in symbols(shape[a]) for a in image) else BATCHES
