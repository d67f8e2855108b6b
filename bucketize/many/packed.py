"""Rows of unequal lengths packed behind each other: calls of a ragged module."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from bucketize.call import bind_shapes, shapes_of
from bucketize.ir import Function, Var
from bucketize.machine.speed import Floats
from bucketize.many.costs import OVERHEAD_S, Costs
from bucketize.many.limits import CallLimits
from bucketize.many.plan import PlannedCall, Row
from bucketize.many.together import RowAxis, Together
from bucketize.op import Array
from bucketize.program.program import Routine
from bucketize.ragged.name import ENDS, OWNER, POSITION, ROWS, TOKENS
from bucketize.table import several
from bucketize.types import Sizes, Symbol, Type

ADDED = (ENDS, OWNER, POSITION)
ENOUGH = 512
"""Tokens of a call where no model tells. Of bert-mini, rows of 64 took least at 512, 1.10 times as
long at 4,096 (Zen 4, beside other work)."""
TRIED = tuple(2**k for k in range(14))
SLACK = 0.01  # a call of fewer tokens ends sooner, and may take so much longer for each


@dataclass(frozen=True, eq=False)
class Packed(Together):
    """The packed form of `main`."""

    symbols: frozenset[str]
    """The symbols of what the packed form takes."""
    leaves_out: bool
    """Whether results may be 0 at tokens that are hidden, in place of what nobody asked for."""

    @classmethod
    def of(
        cls, fn: Function | Routine, params: tuple[Var, ...], costs: Costs, *, leaves_out: bool
    ) -> Packed:
        """How requests with these inputs are those of a packed function.

        With `leaves_out` results may be 0 at tokens that are hidden.
        """
        packed = fn.fn.results if isinstance(fn, Routine) else fn.results
        inputs = {p.name: _axis(p.type) for p in fn.params if p.name not in ADDED}
        results = [_axis(r.type) for r in packed]
        order = [p.name for p in fn.params]
        symbols = frozenset(s.name for p in fn.params for s in p.type.symbols())
        return cls(fn.name, costs, params, inputs, results, order, symbols, leaves_out)

    def extent(self, inputs: Sequence[Array]) -> tuple[int, int]:
        for param, array in zip(self.params, inputs, strict=True):
            axis = self.inputs.get(param.name, RowAxis(0, True))  # a mask has both
            if axis is not None and axis.has_tokens:
                return array.shape[axis.at], array.shape[axis.at + 1]
        raise AssertionError("some input has tokens")

    def rows(self, request: int, inputs: Sequence[Array]) -> list[Row] | str:
        count, length = self.extent(inputs)
        lengths: Array = np.full(count, length)
        for param, mask in zip(self.params, inputs, strict=True):
            if param.name in self.inputs or not (mask != 1).any():
                continue
            lengths = np.count_nonzero(mask, axis=1)
            if not np.array_equal(mask, np.arange(length) < lengths[:, None]):
                return "its mask is not 1 up to where tokens are hidden, and 0 from there on"
        if not lengths.all():
            return "a row has no token that is seen"
        if not count:
            return "it has no rows"
        if not self.leaves_out and lengths.min() < length and self._has_results_of_tokens:
            return "its mask hides tokens, and only a ragged module has zeros for results of these"
        return [Row(request, i, n) for i, n in enumerate(lengths.tolist())]

    @property
    def _has_results_of_tokens(self) -> bool:
        return any(axis is not None and axis.has_tokens for axis in self.results)

    def calls(
        self,
        rows: Sequence[Row],
        inputs: Mapping[int, Sequence[Array]],
        limits: CallLimits,
        lanes: int,
    ) -> Iterator[PlannedCall]:
        """In the order of the requests, in parts that are as even as they can be."""
        curve = self._curve(rows, inputs, lanes) if self.costs.are_told else None
        ends = list(accumulate(row.tokens for row in rows))
        most = limits.tokens or (ENOUGH if curve is None else curve.best)
        if curve is not None and limits.first_s is not None:
            most = min(most, curve.within(limits.first_s))
        count = -(-len(_cuts(ends, most)) // lanes) * lanes
        begin = 0
        for end in _cuts(ends, _evenest(ends, count, most)):
            part = rows[begin:end]
            tokens = sum(row.tokens for row in part)
            yield self.call(part, None if curve is None else curve.seconds(tokens))
            begin = end

    def _curve(
        self, rows: Sequence[Row], inputs: Mapping[int, Sequence[Array]], lanes: int
    ) -> _Curve:
        """What calls are expected to take, of rows that are about as long as these."""
        length = sum(row.tokens for row in rows) / len(rows)
        usual = 2 ** round(np.log2(length))  # the models are asked once for lengths that are near
        sizes = self.sizes(rows, inputs[rows[0].request])
        points = [{**sizes, TOKENS: n, ROWS: max(1, n // usual)} for n in TRIED]
        return _Curve(np.array(self.costs.seconds(self.function, points, lanes)) + OVERHEAD_S)

    def how(self, rows: Sequence[Row]) -> str:
        return f"packed: {several(sum(row.tokens for row in rows), 'token')}"

    def sizes(self, rows: Sequence[Row], inputs: Sequence[Array]) -> Sizes:
        own = bind_shapes(self.params, shapes_of(inputs))
        shared = {name: size for name, size in own.items() if name in self.symbols}
        return {**shared, TOKENS: sum(row.tokens for row in rows), ROWS: len(rows)}

    def added(self, rows: Sequence[Row]) -> dict[str, Array]:
        """Where rows end, and of each token its row and its place there."""
        lengths = np.array([row.tokens for row in rows], np.int64)
        ends = np.cumsum(lengths)
        owner = np.repeat(np.arange(len(rows)), lengths)
        position = np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)
        return {ENDS: ends, OWNER: owner, POSITION: position}


@dataclass(frozen=True)
class _Curve:
    """Seconds of packed calls, at the numbers of tokens that are tried."""

    taken: Floats

    def seconds(self, tokens: float) -> float:
        """What a call of so many tokens takes."""
        if tokens > TRIED[-1]:
            return float(self.taken[-1] * tokens / TRIED[-1])
        return float(np.interp(tokens, TRIED, self.taken))

    @property
    def best(self) -> int:
        """The fewest tokens that cost next to nothing more than the best."""
        each = self.taken / TRIED
        least: int = TRIED[int(np.argmax(each <= (1 + SLACK) * each.min()))]
        return least

    def within(self, seconds: float) -> int:
        """The most tokens whose call is expected to take no longer; at least one."""
        return int(np.interp(seconds, np.maximum.accumulate(self.taken), TRIED))


def _cuts(ends: Sequence[int], most: int) -> list[int]:
    """Where calls end whose rows have at most so many tokens; a row that has more is alone."""
    cuts, begin = [], 0
    while begin < len(ends):
        before = ends[begin - 1] if begin else 0
        begin = max(begin + 1, bisect_right(ends, before + most, begin))
        cuts.append(begin)
    return cuts


def _evenest(ends: Sequence[int], count: int, most: int) -> int:
    """The fewest tokens of a call for which there are no more calls than so many."""
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if len(_cuts(ends, middle)) <= count else (middle + 1, high)
    return low


def _axis(packed: Type) -> RowAxis | None:
    """The axis of an input or result, by its packed type; None: all rows have it in common."""
    names = [d.name if isinstance(d, Symbol) else "" for d in packed.axes]
    if TOKENS in names:
        return RowAxis(names.index(TOKENS) - 1, True)
    return RowAxis(names.index(ROWS)) if ROWS in names else None
