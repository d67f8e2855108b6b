"""Buckets of equal length."""

from __future__ import annotations

from dispatchers.axis import MOST, AxisDispatcher, demand


@AxisDispatcher
def uniform_dispatcher(
    lo: int,
    hi: int | None,
    *,
    step: int | None = None,
    count: int | None = None,
    high: int | None = None,
) -> list[int]:
    """Buckets of `step` sizes, or `count` of them (8), up to `high` (the axis' bound, or 256).

    Args:
        lo: the inclusive lower bound of the axis.
        hi: the upper one; None: there is none.
        step: sizes of a bucket.
        count: of the buckets, where no step is given.
        high: the last size that they share; what is above is one bucket more.

    Returns:
        Where buckets begin.

    Raises:
        DispatchError: a step and a count, or one below 1.

    """
    demand(step is None or count is None, "uniform_dispatcher takes step or count", (step, count))
    demand(step is None or step >= 1, "uniform_dispatcher: step must be at least 1", step)
    demand(count is None or count >= 1, "uniform_dispatcher: count must be at least 1", count)
    end = (high or hi or 256) + 1
    parts = min(count or 8, end - lo) if step is None else (end - lo) // step
    demand(parts < MOST, f"uniform_dispatcher makes at most {MOST:,} buckets of an axis", parts)
    if step is not None:
        return [*range(lo, end, step), end]
    return [lo + k * (end - lo) // parts for k in range(parts + 1)]
