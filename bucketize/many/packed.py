"""Rows of requests packed behind each other, and what they come to put back in their places."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from bucketize.ir import Var
from bucketize.many.plan import Row
from bucketize.op import Array, Value
from bucketize.program.program import Routine
from bucketize.ragged.name import ENDS, OWNER, POSITION, ROWS, TOKENS
from bucketize.types import Symbol, Type

Run: TypeAlias = Callable[[Sequence[Value]], list[Value]]
"""What computes the results of inputs in order."""


@dataclass(frozen=True)
class RowAxis:
    """Where an array has its rows, and whether their tokens are along the next axis."""

    at: int
    has_tokens: bool

    @classmethod
    def of(cls, packed: Type) -> RowAxis | None:
        """The axis of an input or result, by its packed type; None: all rows have it in common."""
        names = [d.name if isinstance(d, Symbol) else "" for d in packed.axes]
        if TOKENS in names:
            return cls(names.index(TOKENS) - 1, True)
        return cls(names.index(ROWS), False) if ROWS in names else None

    @property
    def before(self) -> tuple[Any, ...]:
        """The index of all that comes before it."""
        return (slice(None),) * self.at

    def picked(self, array: Array, row: Row) -> Array:
        """What is packed of a row: its tokens along the axis, or itself."""
        if self.has_tokens:
            return array[(*self.before, row.index, slice(row.tokens))]
        return array[(*self.before, slice(row.index, row.index + 1))]

    def joined(self, parts: Sequence[Array]) -> Array:
        """Rows behind each other; tokens as those of one row."""
        together = np.concatenate(parts, self.at)
        return np.expand_dims(together, self.at) if self.has_tokens else together

    def room(self, packed: Array, count: int, length: int) -> Array:
        """Zeros for the rows of a request, of so many tokens each, like what is packed."""
        own = (count, length) if self.has_tokens else (count,)
        behind = packed.shape[self.at + 1 + self.has_tokens :]
        return np.zeros((*packed.shape[: self.at], *own, *behind), packed.dtype)

    def put(self, array: Array, row: Row, packed: Array, place: int, end: int) -> None:
        """Write what a row came to: the packed row of this place, whose tokens end there."""
        if self.has_tokens:
            tokens = packed[(*self.before, 0, slice(end - row.tokens, end))]
            array[(*self.before, row.index, slice(row.tokens))] = tokens
        else:
            array[(*self.before, row.index)] = packed[(*self.before, place)]


@dataclass(frozen=True, eq=False)
class Packed:
    """The packed form of `main`, and how its inputs and results are those of requests."""

    routine: Routine
    run: Run
    params: tuple[Var, ...]
    """Those of `main`."""

    @cached_property
    def inputs(self) -> dict[str, RowAxis | None]:
        """By name, without what packing adds."""
        added = (ENDS, OWNER, POSITION)
        return {p.name: RowAxis.of(p.type) for p in self.routine.params if p.name not in added}

    @cached_property
    def results(self) -> list[RowAxis | None]:
        """The axes of the results."""
        return [RowAxis.of(r.type) for r in self.routine.fn.results]

    @cached_property
    def mask(self) -> int | None:
        """The place of the input that says which tokens are seen."""
        return next((i for i, p in enumerate(self.params) if p.name not in self.inputs), None)

    @cached_property
    def shared(self) -> list[int]:
        """The places of inputs that all rows of a call have in common."""
        names = [p.name for p in self.params]
        return [i for i, n in enumerate(names) if n in self.inputs and self.inputs[n] is None]

    def sizes(self, inputs: Sequence[Array]) -> tuple[int, int]:
        """The rows of a request, and the tokens of each, hidden ones, too."""
        for param, array in zip(self.params, inputs, strict=True):
            axis = self.inputs.get(param.name, RowAxis(0, True))
            if axis is not None and axis.has_tokens:
                return array.shape[axis.at], array.shape[axis.at + 1]
        raise AssertionError("some input has tokens")

    def rows(self, request: int, inputs: Sequence[Array]) -> list[Row] | str:
        """The rows of a request, or why they cannot be packed."""
        count, length = self.sizes(inputs)
        lengths: Array = np.full(count, length)
        if self.mask is not None:
            mask = inputs[self.mask]
            lengths = np.count_nonzero(mask, axis=1)
            if not np.array_equal(mask, np.arange(length) < lengths[:, None]):
                return "its mask is not 1 up to where tokens are hidden, and 0 from there on"
        if not lengths.all():
            return "a row has no token that is seen"
        return [Row(request, i, n) for i, n in enumerate(lengths.tolist())]

    def serve(
        self,
        rows: Sequence[Row],
        inputs: Mapping[int, Sequence[Array]],
        results: dict[int, list[Value]],
    ) -> None:
        """Run rows of requests in one call, and put what they come to into the results."""
        outs = self.run(self._arguments(rows, inputs))
        ends = np.cumsum([row.tokens for row in rows]).tolist()
        for place, (row, end) in enumerate(zip(rows, ends, strict=True)):
            if row.request not in results:
                results[row.request] = self._rooms(outs, inputs[row.request])
            mine = results[row.request]
            for axis, out, array in zip(self.results, outs, mine, strict=True):
                if axis is not None:
                    axis.put(array, row, out, place, end)

    def _arguments(self, rows: Sequence[Row], inputs: Mapping[int, Sequence[Array]]) -> list[Array]:
        lengths = np.array([row.tokens for row in rows], np.int64)
        ends = np.cumsum(lengths)
        owner = np.repeat(np.arange(len(rows)), lengths)
        position = np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)
        arguments: dict[str, Array] = {ENDS: ends, OWNER: owner, POSITION: position}
        for i, param in enumerate(self.params):
            if param.name not in self.inputs:
                continue  # the mask: all that is packed is seen
            axis = self.inputs[param.name]
            if axis is None:
                arguments[param.name] = inputs[rows[0].request][i]
            else:
                parts = [axis.picked(inputs[row.request][i], row) for row in rows]
                arguments[param.name] = axis.joined(parts)
        return [arguments[p.name] for p in self.routine.params]

    def _rooms(self, outs: Sequence[Array], inputs: Sequence[Value]) -> list[Value]:
        """Results of a request to be written, of zeros where tokens are hidden."""
        count, length = self.sizes(inputs)
        pairs = zip(self.results, outs, strict=True)
        return [
            out.copy() if axis is None else axis.room(out, count, length) for axis, out in pairs
        ]
