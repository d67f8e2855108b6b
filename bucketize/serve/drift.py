"""Whether the requests of a served model come as they were planned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np

from bucketize.errors import ShapeError, unknown_name
from bucketize.traffic.drift import WINDOW, DriftWatch, SizeChange
from bucketize.traffic.value import Traffic
from bucketize.types import Symbol


class DriftAlarm:
    """What differs of late, by what an executable has counted."""

    def __init__(self, planned: Traffic) -> None:
        """Nothing came yet.

        Args:
            planned: the sizes that are expected.

        """
        self._watch = DriftWatch(planned)
        self._planned = planned
        self._before: Traffic | None = None
        self.changes: list[SizeChange] = []
        """Changes of sizes in the requests looked at last; none: they come as planned."""

    def check(self, model: str, symbols: Mapping[str, Symbol]) -> None:
        """Raise UnknownNameError for a symbol that a model has not, ShapeError for its sizes."""
        for name in self._planned.symbols:
            if name not in symbols:
                raise unknown_name(f"symbol of {model}", name, symbols)
            for size in self._planned.histogram(name):
                if not symbols[name].holds(size):
                    bounds = f"out of its bounds {symbols[name].range}"
                    raise ShapeError(f"planned for {model}: {name}={size} is {bounds}")

    def look(
        self, traffic: Traffic | None, as_counted: Callable[[Traffic], Traffic] = lambda t: t
    ) -> bool:
        """Look at what came since the last look, if it is enough to judge by.

        Args:
            traffic: all requests so far.
            as_counted: rounds sizes as the counter does by now, of what was planned and came.

        Returns:
            Whether there was a look.

        """
        if traffic is None:
            return False
        now = as_counted(traffic)
        came = _by_size(now)
        if self._before is not None:
            came -= _by_size(as_counted(self._before))
        if came.total() < WINDOW:
            return False
        self._before, self._watch.planned = now, as_counted(self._planned.without_times())
        sizes, requests = np.array([*came.keys()]), np.array([*came.values()])
        self.changes = self._watch.look(Traffic(traffic.symbols, sizes, requests))
        return True


def _by_size(traffic: Traffic) -> Counter[tuple[int, ...]]:
    """The requests of each size, whenever they came."""
    its = traffic.without_times()
    return Counter(dict(zip(map(tuple, its.sizes.tolist()), its.requests.tolist(), strict=True)))
