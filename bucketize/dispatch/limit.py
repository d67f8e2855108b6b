"""Which symbols are decided where the buckets of all of them would be too many."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TypeAlias

from bucketize.dispatch.legality import Legality
from bucketize.errors import DispatchError, warn
from bucketize.ir import Function, Module, all_bindings
from bucketize.types import Interval, Symbol

Intervals: TypeAlias = dict[Symbol, list[Interval]]
LEAVES = 4
"""By the limit of buckets, the most leaves of decisions, those included that only tell why no size
in them is legal: they have no clone, but a place in the tree."""


def check_limit(limit: object) -> None:
    """Raise `DispatchError` for what is no limit."""
    if not isinstance(limit, int) or limit < 1:
        raise DispatchError(f"limit: expected how many buckets there may be, got {limit!r}")


def check_count(count: int, limit: int) -> None:
    """Raise `DispatchError` if there are more buckets than there may be."""
    check_limit(limit)
    if count > limit:
        raise DispatchError(f"{count:,} buckets; the limit is {limit:,}: use fewer")


def within_limit(
    fn: Function, intervals: Intervals, limit: int, policy: str, legality: Legality
) -> Intervals:
    """The intervals with those of some symbols joined, so that there are `limit` buckets at most.

    The symbols that most operators of `fn` see are decided first, each that still fits. Of the
    others sizes outside all intervals stay outside. A BucketizeWarning names them. Buckets that
    types refute do not count, but there are at most `LEAVES` times as many in all.
    """
    check_limit(limit)
    if _product(intervals.values()) <= limit:
        return intervals
    seen = _seen(fn)
    kept: dict[Symbol, list[Interval]] = {}
    count = 1
    for symbol in sorted(intervals, key=lambda s: -seen[s.name]):  # those of one count as given
        more = {**kept, symbol: intervals[symbol]}
        if _product(more.values()) > LEAVES * limit:
            continue
        if (many := _count(more, limit, legality)) <= limit:
            kept, count = more, many
    whole = [s.name for s in intervals if s not in kept]
    if not whole:
        return intervals
    message = _told(intervals)
    if not kept or policy == "pad":
        cure = "use fewer intervals (exact makes one for each size), or fewer symbols (per_symbol)"
        raise DispatchError(f"{message}; the limit is {limit:,}: {cure}")
    refuted = _product(kept.values()) - count
    rest = f"; {refuted:,} of the others are left out, as no size in them is legal" * bool(refuted)
    warn(
        f"{message}; the limit is {limit:,}, left whole: {', '.join(whole)} (per_symbol chooses)"
        f"{rest}"
    )
    joined = {s: i if s in kept else [(i[0][0], i[-1][1])] for s, i in intervals.items()}
    return {s: i for s, i in joined.items() if s in kept or i != [bounds_of(s)]}


def _count(intervals: Intervals, limit: int, legality: Legality) -> int:
    """How many buckets there are, up to one more than the limit."""
    each = [(s.name, i) for s, i in intervals.items()]
    return sum(1 for _ in islice(legality.buckets(each), limit + 1))


def _product(intervals: Iterable[Sequence[Interval]]) -> int:
    return math.prod(map(len, intervals))


def _seen(fn: Function) -> Counter[str]:
    """How many operators see each symbol in an extent."""
    return Counter(
        name
        for b in all_bindings(fn)
        for name in {s.name for v in (*b.args, *b.outs) for s in v.type.symbols()}
    )


def bounds_of(symbol: Symbol) -> Interval:
    """All sizes of a symbol, half-open."""
    return symbol.lo, None if symbol.hi is None else symbol.hi + 1


def undecided(mod: Module) -> list[Symbol]:
    """The symbols of `main` that are left whole: clones hold all their sizes, but for 0."""
    own = mod.main.symbols()
    decided = {
        n for c in mod.clones.values() for n, i in c.bucket.items() if not _is_all(own[n], i)
    }
    return [s for s in own.values() if s.name not in decided]


def _is_all(symbol: Symbol, interval: Interval) -> bool:
    lo, hi = bounds_of(symbol)
    return interval in ((lo, hi), (max(lo, 1), hi))


def _told(intervals: Mapping[Symbol, Sequence[Interval]]) -> str:
    counts = [len(i) for i in intervals.values()]
    shown = " x ".join(map(str, counts)) + " = " if len(counts) > 1 else ""
    names = ", ".join(s.name for s in intervals)
    return f"{shown}{math.prod(counts):,} buckets of {names}"
