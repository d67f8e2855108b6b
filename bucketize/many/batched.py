"""Rows of equal shapes in one batch, as many as the models of kernels say is cheapest."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bucketize.call import bind_shapes, shapes_of
from bucketize.ir import Var
from bucketize.many.costs import OVERHEAD_S, Costs
from bucketize.many.limits import CallLimits
from bucketize.many.plan import PlannedCall, Row
from bucketize.many.together import RowAxis, Together
from bucketize.op import Array
from bucketize.types import Sizes, Symbol, Type

GAIN = 0.05
"""The share of the time that sharing calls has to be expected to save: as much as the median error
of predictions, 5.2 % on a Zen 3 (docs/figures.md)."""
ALL_UP_TO = 8  # rows of a batch, of which each number is tried; then three of four, and so on

EXACT = 1024
"""Rows up to which the cheapest calls of all are found."""


@dataclass(frozen=True, eq=False)
class Batched(Together):
    """`main`, of rows that it computes each by itself."""

    batch: Symbol

    @classmethod
    def of(
        cls, params: tuple[Var, ...], results: Sequence[Type], batch: Symbol, costs: Costs
    ) -> Batched:
        """How requests with these inputs share calls of `main`."""

        def axis(type_: Type) -> RowAxis | None:
            return RowAxis(0) if batch.name in {s.name for s in type_.symbols()} else None

        inputs = {p.name: axis(p.type) for p in params}
        outs = [axis(t) for t in results]
        return cls("main", costs, params, inputs, outs, list(inputs), batch)

    def extent(self, inputs: Sequence[Array]) -> tuple[int, int]:
        pairs = zip(self.inputs.values(), inputs, strict=True)
        return next(array.shape[0] for axis, array in pairs if axis is not None), 0

    def rows(self, request: int, inputs: Sequence[Array]) -> list[Row] | str:
        count, _ = self.extent(inputs)
        return [Row(request, i, 0) for i in range(count)] if count else "it has no rows"

    @property
    def least(self) -> int:
        return max(self.batch.lo, 1)

    def calls(
        self,
        rows: Sequence[Row],
        inputs: Mapping[int, Sequence[Array]],
        limits: CallLimits,
        lanes: int,
    ) -> Iterator[PlannedCall]:
        """Each request by itself, or its rows with others': what takes least by the models."""
        counts = dict(Counter(row.request for row in rows))
        if len(rows) == 1 or not self.costs.are_told:
            for i in counts:
                yield PlannedCall((), (i,), "nothing of its shape shares a call")
            return
        tried = self._tried(len(rows), counts.values())
        seconds = self._seconds(tried, rows, inputs, lanes)
        for i in [i for i, n in counts.items() if math.isinf(seconds[n])]:
            counts.pop(i)
            yield PlannedCall((), (i,), "nothing serves it alone")
        rows = [row for row in rows if row.request in counts]
        apart = sum(seconds[n] - OVERHEAD_S for n in counts.values())
        even = -(-len(rows) // lanes)  # so that each lane has a call
        sizes = [n for n in tried if n <= even and seconds[n] <= (limits.first_s or math.inf)]
        parts = _cheapest(len(rows), sizes, seconds)
        if parts is None or sum(seconds[n] for n in parts) > (1 - GAIN) * apart:
            for i, n in counts.items():
                yield PlannedCall(
                    (), (i,), f"a batch of {n}, the cheapest", seconds[n] - OVERHEAD_S
                )
            return
        begin = 0
        for n in parts:
            yield self.call(rows[begin : begin + n], seconds[n])
            begin += n

    def _tried(self, count: int, own: Iterable[int]) -> list[int]:
        """Rows of a call that are thought of, as many as there are at most."""
        most = min(count, self.batch.hi or count)
        steps = {n * 2**k for n in range(1, ALL_UP_TO + 1) for k in range(count.bit_length())}
        tried = {n for n in steps if self.batch.lo <= n <= most} | {most}
        return sorted(tried | set(own))

    def _seconds(
        self,
        tried: Sequence[int],
        rows: Sequence[Row],
        inputs: Mapping[int, Sequence[Array]],
        lanes: int,
    ) -> dict[int, float]:
        """What calls of so many rows are expected to take."""
        sizes = bind_shapes(self.params, shapes_of(inputs[rows[0].request]))
        points = [{**sizes, self.batch.name: n} for n in tried]
        taken = self.costs.seconds(self.function, points, lanes)
        return {n: s + OVERHEAD_S for n, s in zip(tried, taken, strict=True)}

    def how(self, rows: Sequence[Row]) -> str:
        return f"as a batch of {len(rows)}"

    def sizes(self, rows: Sequence[Row], inputs: Sequence[Array]) -> Sizes:
        own = bind_shapes(self.params, shapes_of(inputs))
        return {**own, self.batch.name: len(rows)}


def _cheapest(count: int, sizes: Sequence[int], seconds: Mapping[int, float]) -> list[int] | None:
    """The calls that so many rows cost least in; None: they come to none.

    Of very many rows those beyond `EXACT` go in calls of the size that costs least a row.
    """
    parts, left = list[int](), count
    while left > EXACT and (able := [n for n in sizes if n <= left]):
        best = min(able, key=lambda n: seconds[n] / n)
        calls = min(-((EXACT - left) // best), left // best)
        parts += calls * [best]
        left -= calls * best
    others = _least(left, sizes, seconds)
    return _least(count, sizes, seconds) if others is None else parts + others


def _least(count: int, sizes: Sequence[int], seconds: Mapping[int, float]) -> list[int] | None:
    """The sizes of the cheapest calls for any number of rows, in as many steps; None: no calls."""
    least, last = [0.0], [0]
    for n in range(1, count + 1):
        cost, size = min(
            ((least[n - k] + seconds[k], k) for k in sizes if k <= n), default=(math.inf, 0)
        )
        least.append(cost)
        last.append(size)
    if not math.isfinite(least[count]):
        return None
    parts = []
    while count:
        parts.append(last[count])
        count -= last[count]
    return sorted(parts, reverse=True)
