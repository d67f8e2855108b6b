"""Buckets that grow by a factor."""

from __future__ import annotations

import itertools

from dispatchers.axis import AxisDispatcher, demand


@AxisDispatcher
def log_dispatcher(
    _lo: int, hi: int | None, *, base: float = 2, low: int = 1, high: int | None = None
) -> list[int]:
    """Buckets that grow by `base`, from `low` to `high` (below the axis' bound, or 256).

    Args:
        hi: the inclusive upper bound of the axis; None: there is none.
        base: the factor from where a bucket begins to where the next one does.
        low: where the first one begins; 0 gives size 0 a bucket of its own, also on an axis without
            an upper bound.
        high: the last place where one may begin.

    Returns:
        Where buckets begin.

    Raises:
        DispatchError: a base below 1.1, or a `low` below 0 or above `high`.

    """
    demand(base >= 1.1, "log_dispatcher: base must be at least 1.1", base)
    demand(low >= 0, "log_dispatcher: low must be at least 0", low)
    demand(high is None or low <= high, "log_dispatcher: low must be at most high", (low, high))
    top = high or (256 if hi is None else hi - 1)  # no bucket for the axis' bound alone
    powers = (round(max(low, 1) * base**k) for k in itertools.count())
    return [*([] if low else [0]), *itertools.takewhile(lambda cut: cut <= top, powers)]
