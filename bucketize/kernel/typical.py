"""Where the default of a workload is judged: its symbols at their ends and in the middle."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from itertools import pairwise
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
"""The ends of an image's height and width that are left open, and of how many images there are."""
SOUNDS = 1 << 12, 1 << 18
"""The ends of a sound's length, in samples: a quarter of a second and 16 s, of 16,000 each."""
HOP = 100
"""Samples, at least, from one column of a spectrum to the next."""
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
    ends = _ends(workload, box, FINE * count)
    columns = _growing(workload, ends)
    growth = [dict(zip(columns, at, strict=True)) for at in zip(*columns.values(), strict=True)]
    sizes: list[int] = Points(growth).values(workload.size).tolist()
    step = NEARLY * (max(sizes) / max(min(sizes), 1)) ** (1 / count)
    starts: list[int] = []
    for k, size in enumerate(sizes):
        if size > (sizes[starts[-1]] * step if starts else 0):
            starts.append(k)
    rows = [[each[k] for each in columns.values()] for k in starts]
    last = [its[-1] for its in ends.values()]
    return tuple(tuple(map(Symbol, columns, low, high)) for low, high in pairwise([*rows, last]))


def _growing(workload: Workload, ends: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    """The symbols where each cut begins: of what is no batch, then of the batch."""
    batch = {s.name for dim in workload.results[0].shape[:1] for s in symbols(dim)}
    each = {name: list(its[:-1]) for name, its in ends.items()}
    if not batch or batch >= ends.keys():
        return each
    return {
        name: [its[0]] * len(its) + its if name in batch else its + [ends[name][-1]] * len(its)
        for name, its in each.items()
    }


def cuts(workload: Workload, box: Box, count: int) -> tuple[Box, ...]:
    """A box cut into so many, whose symbols grow together."""
    ends = _ends(workload, box, count)
    return tuple(
        tuple(Symbol(name, its[k], its[k + 1]) for name, its in ends.items()) for k in range(count)
    )


def _ends(workload: Workload, box: Box, count: int) -> dict[str, list[int]]:
    """For each symbol where so many cuts of a box begin, and where the last one ends."""
    own = {s.name: s for s in box}
    ranges = {s.name: (own.get(s.name, s), open_ends(s, workload)) for s in _symbols(workload)}
    return {
        name: [between(s.lo, s.hi, k / count, open_) for k in range(count + 1)]
        for name, (s, open_) in ranges.items()
    }


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
    if symbol.hi is None and _counts_samples(symbol, workload):
        return SOUNDS
    if symbol.hi is not None or "layout" not in anchor.attrs:  # bounded, or of no images
        return LENGTHS
    shape = anchor.args[0].type.shape
    _, *image = planes(anchor.attrs["layout"], len(shape) - 2)
    return IMAGES if any(symbol in symbols(shape[a]) for a in image) else BATCHES


def _counts_samples(symbol: Symbol, workload: Workload) -> bool:
    """Whether extents behind the batch grow with a hundredth of a symbol, or less, and no other.

    At sizes of pictures or texts there were a column or two. Maps of a picture that are as small
    grow with its height and its width.
    """
    types = (*(p.type for p in workload.body.params), *workload.results)
    open_ = [d for t in types for d in t.shape[1:] if any(True for _ in symbols(d))]
    if not open_ or any(set(symbols(d)) != {symbol} for d in open_):
        return False
    far = max(HOP * SOUNDS[1], symbol.lo)
    try:
        return all(HOP * evaluate(d, {symbol.name: far}) <= far for d in open_)
    except TypeRelError:
        return False
