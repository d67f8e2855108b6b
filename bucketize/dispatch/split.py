"""Buckets that share no size, as decisions: each test leaves whole buckets on either side."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from bucketize.dispatch.bucket import Bucket, check_intervals, clip, show_bucket
from bucketize.errors import DispatchError, unknown_name
from bucketize.ir import Clone, Function
from bucketize.types import MOST_EXTENT, Interval, Symbol


@dataclass(frozen=True, slots=True)
class Below:
    """Whether the size of a symbol is below another, and what comes of it."""

    symbol: Symbol
    size: int
    then: Decision
    orelse: Decision


@dataclass(frozen=True, slots=True)
class Within:
    """Whether sizes are in the bucket of a clone, and what comes of it where they are not."""

    clone: Clone
    orelse: Decision


Decision: TypeAlias = Below | Within | Clone | None
"""A clone by what it does not have in common with others; None where no bucket is."""


def buckets_of(fn: Function, answer: Sequence[Mapping[str, Any]]) -> list[Bucket]:
    """The buckets of a dispatcher in terms of the symbols of `fn`, within bounds, checked.

    Symbols that none of them names are left out; one that names no size of a symbol has them all.
    """
    symbols = fn.symbols()
    for name in itertools.chain(*answer):
        if name not in symbols:
            raise unknown_name("symbol", name, symbols)
    each = [symbols[name] for name in symbols if any(name in bucket for bucket in answer)]
    buckets = [b for bucket in answer if (b := _clipped(each, bucket))]
    if not buckets:
        raise DispatchError("the buckets are all out of bounds, or there is none")
    return buckets


def _clipped(symbols: Sequence[Symbol], bucket: Mapping[str, Any]) -> Bucket | None:
    """A bucket within bounds; None if it is out of them."""
    ends = {s: clip(_interval(bucket.get(s.name, (0, None)), s), s) for s in symbols}
    within = {s.name: interval for s, interval in ends.items() if interval}
    return within if len(within) == len(ends) else None


def _interval(interval: Any, symbol: Symbol) -> Interval:
    (checked,) = check_intervals([interval], f"bucket of {symbol.name}")
    return checked


def _overlap(one: Bucket, other: Bucket) -> bool:
    ends = ((one[name], other[name]) for name in one)
    return all(a[0] < (b[1] or MOST_EXTENT) and b[0] < (a[1] or MOST_EXTENT) for a, b in ends)


def decided(region: Mapping[Symbol, Interval], buckets: Sequence[Bucket]) -> Decision:
    """Decisions that lead each size of a region to its bucket.

    Of the tests that cut no bucket the one is taken that leaves the most even halves. Where there
    is none, as among four that turn around a fifth, a bucket is asked for as a whole.
    """
    if not buckets:
        return None
    first, *rest = buckets
    if not rest and all(first[s.name] == interval for s, interval in region.items()):
        return Clone(first)
    tests = [(s, size) for s in region for size in _cuts(region[s], buckets, s.name)]
    if not tests:
        for other in rest:
            if _overlap(first, other):
                raise DispatchError(
                    f"buckets overlap: {show_bucket(first)} and {show_bucket(other)}"
                )
        return Within(Clone(first), decided(region, rest))
    symbol, size = min(tests, key=lambda test: _unevenness(buckets, test[0].name, test[1]))
    lo, hi = region[symbol]
    below = [b for b in buckets if b[symbol.name][0] < size]
    above = [b for b in buckets if b[symbol.name][0] >= size]
    return Below(
        symbol,
        size,
        decided({**region, symbol: (lo, size)}, below),
        decided({**region, symbol: (size, hi)}, above),
    )


def _cuts(region: Interval, buckets: Sequence[Bucket], name: str) -> list[int]:
    """Sizes within a region at which buckets begin or end, and none goes on."""
    lo, hi = region
    lows, highs = (np.array([b[name][k] or k * MOST_EXTENT for b in buckets]) for k in (0, 1))
    ends = np.unique((lows, highs))
    ends = ends[(lo < ends) & (ends < (hi or MOST_EXTENT))]
    goes_on = (lows[:, None] < ends) & (ends < highs[:, None])
    cuts: list[int] = ends[~goes_on.any(axis=0)].tolist()
    return cuts


def _unevenness(buckets: Sequence[Bucket], name: str, size: int) -> int:
    return abs(2 * sum(b[name][0] < size for b in buckets) - len(buckets))
