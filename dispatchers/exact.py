"""Buckets of one size."""

from __future__ import annotations

from collections.abc import Iterable

from dispatchers.axis import MOST, AxisDispatcher, demand


@AxisDispatcher
def exact_dispatcher(lo: int, hi: int | None, *, sizes: Iterable[int] | None = None) -> list[int]:
    """A static bucket for each of `sizes` (every size of a bounded axis), and one for each gap.

    Args:
        lo: the inclusive lower bound of the axis.
        hi: the upper one; None: there is none.
        sizes: those that have a bucket of their own; None: all.

    Returns:
        Where buckets begin.

    Raises:
        DispatchError: no sizes, of an axis without an upper bound.

    """
    if sizes is not None:
        return [cut for size in sizes for cut in (size, size + 1)]
    demand(hi is not None, "exact_dispatcher needs sizes=... where an axis has no bound", hi)
    last = hi or lo
    demand(last - lo < MOST, f"exact_dispatcher makes at most {MOST:,} buckets of an axis", hi)
    return list(range(lo, last + 1))
