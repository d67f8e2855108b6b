"""Rows of equal shapes in one batch, as many as the models of kernels say is cheapest."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from bucketize.call import bind_shapes, shapes_of
from bucketize.ir import Var
from bucketize.many.plan import PlannedCall, Row
from bucketize.many.together import RowAxis, Run, Together, call_of
from bucketize.op import Array
from bucketize.types import Sizes, Symbol, Type

GAIN = 0.05
"""Of the time, that a batch has to be expected to save: as much as the median error of predictions,
5.2 % on a Zen 3 (docs/figures.md)."""
MOST_PRICES = 4_096  # of shapes and rows, that are remembered

Price: TypeAlias = Callable[[Sizes], float]
"""Seconds of a call at sizes."""


@dataclass(frozen=True, eq=False)
class Batched(Together):
    """`main`, of rows that it computes each by itself."""

    batch: Symbol
    price: Price
    prices: dict[tuple[Hashable, int], float] = field(default_factory=dict)
    """Those that were asked for, by shapes and rows."""

    @classmethod
    def of(
        cls, run: Run, params: tuple[Var, ...], results: Sequence[Type], batch: Symbol, price: Price
    ) -> Batched:
        """How requests with these inputs share calls of `main`."""

        def axis(type_: Type) -> RowAxis | None:
            return RowAxis(0) if batch.name in {s.name for s in type_.symbols()} else None

        inputs = {p.name: axis(p.type) for p in params}
        outs = [axis(t) for t in results]
        return cls(run, params, inputs, outs, list(inputs), batch, price)

    def sizes(self, inputs: Sequence[Array]) -> tuple[int, int]:
        pairs = zip(self.inputs.values(), inputs, strict=True)
        return next(array.shape[0] for axis, array in pairs if axis is not None), 0

    def rows(self, request: int, inputs: Sequence[Array]) -> list[Row] | str:
        count, _ = self.sizes(inputs)
        return [Row(request, i, 0) for i in range(count)] if count else "it has no rows"

    def key(self, inputs: Sequence[Array]) -> Hashable:
        """Requests of one shape, but for the rows, share calls."""
        shapes = (
            a.shape if axis is None else a.shape[1:]
            for axis, a in zip(self.inputs.values(), inputs, strict=True)
        )
        return (tuple(shapes), super().key(inputs))

    def calls(
        self, rows: Sequence[Row], inputs: Mapping[int, Sequence[Array]], tokens: int
    ) -> Iterator[PlannedCall]:
        """Each request by itself, or its rows with others': what takes least by the models."""
        del tokens
        requests = dict.fromkeys(row.request for row in rows)
        counts = {i: self.sizes(inputs[i])[0] for i in requests}
        arrays = inputs[rows[0].request]
        sizes = bind_shapes(self.params, shapes_of(arrays))
        key = self.key(arrays)[0]  # type: ignore[index]
        most = self.batch.hi or len(rows)

        def seconds(count: int) -> float:
            """What all rows take in calls of so many."""
            whole, rest = divmod(len(rows), count)
            if count < self.batch.lo or 0 < rest < self.batch.lo:
                return math.inf
            last = self._price(key, sizes, rest) if rest else 0.0
            return whole * self._price(key, sizes, count) + last

        apart = sum(self._price(key, sizes, n) for n in counts.values())
        tried = sorted({min(2**k, len(rows), most) for k in range(len(rows).bit_length() + 1)})
        best = min(tried, key=seconds)
        if (len(requests) == 1 and len(rows) <= most) or seconds(best) > (1 - GAIN) * apart:
            for i in requests:
                yield PlannedCall((), (i,), f"a batch of {counts[i]}, the cheapest")
            return
        for begin in range(0, len(rows), best):
            part = rows[begin : begin + best]
            yield call_of(part, f"as a batch of {len(part)}")

    def _price(self, key: Hashable, sizes: Sizes, count: int) -> float:
        if len(self.prices) >= MOST_PRICES:
            self.prices.clear()
        if (key, count) not in self.prices:
            self.prices[key, count] = self.price({**sizes, self.batch.name: count})
        return self.prices[key, count]
