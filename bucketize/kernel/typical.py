"""Where the default of a workload is judged: its symbols at their ends and in the middle."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from bucketize.errors import TypeRelError
from bucketize.kernel.workload import Workload
from bucketize.ops.window.image import planes
from bucketize.types import ANY, Dim, Sizes, Symbol, bounds, evaluate, symbols

SHARES = 0.0, 0.5, 1.0
LENGTHS = 1, 256
"""The ends of an extent that the types leave open."""
IMAGES, BATCHES = (64, 1024), (1, 16)
"""The same of an image's height and width, and of how many images there are."""


@dataclass(frozen=True)
class TypicalSizes:
    """Sizes of symbols, all of them so far from their low ends to their tops."""

    share: float
    """From 0 to 1, geometrically."""
    sizes: Sizes = field(default_factory=dict)

    def extent(self, dim: Dim) -> int:
        """A dim there; one that is unknown, or has no value, is as far between its own bounds."""
        with suppress(TypeRelError):
            if dim != ANY:
                return max(evaluate(dim, self.sizes), 1)
        return between(*bounds(dim), self.share)


def points(workload: Workload) -> tuple[TypicalSizes, ...]:
    """The typical sizes of a workload, whose symbols grow together."""
    ends = {s: _ends(s, workload) for s in _symbols(workload)}
    return tuple(
        TypicalSizes(share, {s.name: between(s.lo, s.hi, share, ends[s]) for s in ends})
        for share in SHARES
    )


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


def _ends(symbol: Symbol, workload: Workload) -> tuple[int, int]:
    """Where a symbol is taken to end that has no top."""
    anchor = workload.anchor
    if "layout" not in anchor.attrs:  # it is of no images
        return LENGTHS
    shape = anchor.args[0].type.shape
    _, *image = planes(anchor.attrs["layout"], len(shape) - 2)
    return IMAGES if any(symbol in symbols(shape[a]) for a in image) else BATCHES
