"""Rows of unequal lengths packed behind each other: calls of a ragged module."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bucketize.ir import Var
from bucketize.many.plan import PlannedCall, Row
from bucketize.many.together import RowAxis, Run, Together, call_of
from bucketize.op import Array
from bucketize.program.program import Routine
from bucketize.ragged.name import ENDS, OWNER, POSITION, ROWS, TOKENS
from bucketize.table import several
from bucketize.types import Symbol, Type

ADDED = (ENDS, OWNER, POSITION)


@dataclass(frozen=True, eq=False)
class Packed(Together):
    """The packed form of `main`."""

    @classmethod
    def of(cls, routine: Routine, run: Run, params: tuple[Var, ...]) -> Packed:
        """How requests with these inputs are those of a packed function."""
        inputs = {p.name: _axis(p.type) for p in routine.params if p.name not in ADDED}
        results = [_axis(r.type) for r in routine.fn.results]
        return cls(run, params, inputs, results, [p.name for p in routine.params])

    def sizes(self, inputs: Sequence[Array]) -> tuple[int, int]:
        for param, array in zip(self.params, inputs, strict=True):
            axis = self.inputs.get(param.name, RowAxis(0, True))  # a mask has both
            if axis is not None and axis.has_tokens:
                return array.shape[axis.at], array.shape[axis.at + 1]
        raise AssertionError("some input has tokens")

    def rows(self, request: int, inputs: Sequence[Array]) -> list[Row] | str:
        count, length = self.sizes(inputs)
        lengths: Array = np.full(count, length)
        for param, mask in zip(self.params, inputs, strict=True):
            if param.name in self.inputs:
                continue
            lengths = np.count_nonzero(mask, axis=1)
            if not np.array_equal(mask, np.arange(length) < lengths[:, None]):
                return "its mask is not 1 up to where tokens are hidden, and 0 from there on"
        if not lengths.all():
            return "a row has no token that is seen"
        return [Row(request, i, n) for i, n in enumerate(lengths.tolist())]

    def calls(
        self, rows: Sequence[Row], inputs: Mapping[int, Sequence[Array]], tokens: int
    ) -> Iterator[PlannedCall]:
        """In the order of the requests, as many as have so many tokens."""
        del inputs
        waiting: list[Row] = []
        for row in rows:
            if waiting and sum(r.tokens for r in waiting) + row.tokens > tokens:
                yield _call(waiting)
                waiting = []
            waiting.append(row)
        yield _call(waiting)

    def added(self, rows: Sequence[Row]) -> dict[str, Array]:
        """Where rows end, and of each token its row and its place there."""
        lengths = np.array([row.tokens for row in rows], np.int64)
        ends = np.cumsum(lengths)
        owner = np.repeat(np.arange(len(rows)), lengths)
        position = np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)
        return {ENDS: ends, OWNER: owner, POSITION: position}


def _call(rows: Sequence[Row]) -> PlannedCall:
    return call_of(rows, f"packed: {several(sum(row.tokens for row in rows), 'token')}")


def _axis(packed: Type) -> RowAxis | None:
    """The axis of an input or result, by its packed type; None: all rows have it in common."""
    names = [d.name if isinstance(d, Symbol) else "" for d in packed.axes]
    if TOKENS in names:
        return RowAxis(names.index(TOKENS) - 1, True)
    return RowAxis(names.index(ROWS)) if ROWS in names else None
