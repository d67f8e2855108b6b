"""Buckets that each serve about as many requests as the next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from bucketize.errors import ArgumentError
from bucketize.traffic.value import Traffic
from dispatchers.axis import AxisDispatcher, Dispatcher, demand
from dispatchers.symbol import per_symbol

Histogram: TypeAlias = Mapping[int, int] | Iterable[int]


def from_traffic(requests: Traffic | Mapping[str, Histogram], *, count: int = 8) -> Dispatcher:
    """Buckets that serve about as many requests each, and one beyond all sizes seen.

    Args:
        requests: a traffic, or by symbol a histogram, `{size: requests}`, or the sizes one by one.
        count: the most buckets of a symbol.

    Returns:
        The dispatcher.

    Raises:
        ArgumentError: no requests by symbol.

    """
    if isinstance(requests, Traffic):
        requests = {s: requests.histogram(s) for s in requests.symbols}
    if not isinstance(requests, Mapping):
        kind = type(requests).__name__
        raise ArgumentError(f'from_traffic: expected {{"N": [1, 8, 8]}} by symbol, got {kind}')
    rules = {s: _quantiles.with_options(seen=seen, count=count) for s, seen in requests.items()}
    dispatcher = per_symbol(rules)
    dispatcher.__name__ = "from_traffic"  # by which errors call it
    return dispatcher


@AxisDispatcher
def _quantiles(_lo: int, _hi: int | None, *, seen: Histogram, count: int) -> list[int]:
    demand(count >= 1, "from_traffic: count must be at least 1", count)
    histogram = {size: n for size, n in sorted(Counter(seen).items()) if n}
    demand(bool(histogram), "from_traffic wants at least one request", histogram)
    demand(min(histogram.values()) > 0, "from_traffic: requests are counted from 0", histogram)
    cuts: list[int] = []
    left, served = sum(histogram.values()), 0
    for size, requests in histogram.items():
        served += requests
        # A size that takes more than its share leaves the rest to be split evenly among the rest.
        if served * (count - len(cuts)) >= left:
            cuts.append(size + 1)
            left, served = left - served, 0
    return [0, *cuts] if 0 in histogram else cuts


_quantiles.rule.__name__ = "from_traffic"
