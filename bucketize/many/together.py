"""Rows of several requests in one call: what packing and batching have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bucketize.call import bind_shapes, shapes_of
from bucketize.ir import Var
from bucketize.many.costs import Costs
from bucketize.many.limits import CallLimits
from bucketize.many.plan import PlannedCall, Row
from bucketize.op import Array, Value
from bucketize.program.path import clone_at
from bucketize.types import Sizes


@dataclass(frozen=True)
class RowAxis:
    """Where an array has its rows, and whether their tokens are along the next axis."""

    at: int
    has_tokens: bool = False

    @property
    def before(self) -> tuple[Any, ...]:
        """The index of all that comes before it."""
        return (slice(None),) * self.at

    def behind(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape without the axes of rows and of tokens."""
        return shape[: self.at] + shape[self.at + 1 + self.has_tokens :]

    def picked(self, array: Array, row: Row) -> Array:
        """What is taken of a row: its tokens along the axis, or itself."""
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
        before, behind = packed.shape[: self.at], packed.shape[self.at + 1 + self.has_tokens :]
        return np.zeros((*before, *own, *behind), packed.dtype)

    def put(self, array: Array, row: Row, packed: Array, place: int, end: int) -> None:
        """Write what a row came to: the packed row of this place, whose tokens end there."""
        if self.has_tokens:
            tokens = packed[(*self.before, 0, slice(end - row.tokens, end))]
            array[(*self.before, row.index, slice(row.tokens))] = tokens
        else:
            array[(*self.before, row.index)] = packed[(*self.before, place)]


NOWHERE = RowAxis(-1)
"""The axis of an input that the function does not take."""


@dataclass(frozen=True, eq=False)
class Together(ABC):
    """A function that computes rows of several requests, and how arrays are cut and joined."""

    function: str
    costs: Costs
    params: tuple[Var, ...]
    """The inputs of requests."""
    inputs: Mapping[str, RowAxis | None]
    """By name, of inputs that the function takes; None: all rows of a call have it in common."""
    results: Sequence[RowAxis | None]
    order: Sequence[str]
    """The names of what the function takes."""

    @abstractmethod
    def rows(self, request: int, inputs: Sequence[Array]) -> list[Row] | str:
        """The rows of a request, or why they share no call."""

    @abstractmethod
    def calls(
        self,
        rows: Sequence[Row],
        inputs: Mapping[int, Sequence[Array]],
        limits: CallLimits,
        lanes: int,
    ) -> Iterator[PlannedCall]:
        """The calls that rows of one `key` come to, if so many run side by side."""

    @abstractmethod
    def how(self, rows: Sequence[Row]) -> str:
        """How rows share a call."""

    def call(self, rows: Sequence[Row], seconds: float | None = None) -> PlannedCall:
        """The call of rows."""
        requests = tuple(dict.fromkeys(row.request for row in rows))
        return PlannedCall(tuple(rows), requests, self.how(rows), seconds)

    @abstractmethod
    def sizes(self, rows: Sequence[Row], inputs: Sequence[Array]) -> Sizes:
        """Sizes of the function in a call of rows, one of whose requests has these inputs."""

    @abstractmethod
    def extent(self, inputs: Sequence[Array]) -> tuple[int, int]:
        """The rows of a request, and the tokens of each, hidden ones, too."""

    def added(self, rows: Sequence[Row]) -> dict[str, Array]:  # noqa: ARG002
        """Inputs that no request has."""
        return {}

    @property
    def least(self) -> int:
        """Rows of a call."""
        return 1

    def key(self, inputs: Sequence[Array]) -> Hashable:
        """Requests of equal keys may share a call.

        What rows have in common is the same, and so are extents but for rows and tokens.
        """
        return tuple(
            (array.shape, array.tobytes()) if axis is None else axis.behind(array.shape)
            for param, array in zip(self.params, inputs, strict=True)
            if (axis := self.inputs.get(param.name, NOWHERE)) is not NOWHERE
        )

    def arguments(self, rows: Sequence[Row], inputs: Mapping[int, Sequence[Array]]) -> list[Array]:
        """What the function takes in a call of rows."""
        arguments = self.added(rows)
        for i, param in enumerate(self.params):
            if param.name not in self.inputs:
                continue
            axis = self.inputs[param.name]
            if axis is None:
                arguments[param.name] = inputs[rows[0].request][i]
            else:
                parts = [axis.picked(inputs[row.request][i], row) for row in rows]
                arguments[param.name] = axis.joined(parts)
        return [arguments[name] for name in self.order]

    def clone(self, arguments: Sequence[Array]) -> str:
        """The function that serves a call of these arguments."""
        program = self.costs.program
        params = program.routines[self.function].params
        return clone_at(program, self.function, bind_shapes(params, shapes_of(arguments)))

    def argument_bytes(self, rows: Sequence[Row], inputs: Mapping[int, Sequence[Array]]) -> int:
        """Bytes of what is joined for a call."""
        axes = [self.inputs.get(p.name) for p in self.params]
        return sum(
            axis.picked(array, row).nbytes
            for row in rows
            for axis, array in zip(axes, inputs[row.request], strict=True)
            if axis is not None
        )

    def deal(
        self,
        rows: Sequence[Row],
        outs: Sequence[Array],
        inputs: Mapping[int, Sequence[Array]],
        results: dict[int, list[Value]],
    ) -> None:
        """Put what the rows of a call came to into the results of their requests."""
        if len(rows) == 1 and self.extent(inputs[rows[0].request]) == (1, rows[0].tokens):
            results[rows[0].request] = list(outs)  # it is they
            return
        ends = np.cumsum([row.tokens for row in rows]).tolist()
        for place, (row, end) in enumerate(zip(rows, ends, strict=True)):
            if row.request not in results:
                results[row.request] = self._rooms(outs, inputs[row.request])
            mine = results[row.request]
            for axis, out, array in zip(self.results, outs, mine, strict=True):
                if axis is not None:
                    axis.put(array, row, out, place, end)

    def _rooms(self, outs: Sequence[Array], inputs: Sequence[Value]) -> list[Value]:
        """Results of a request to be written, of zeros where tokens are hidden."""
        count, length = self.extent(inputs)
        pairs = zip(self.results, outs, strict=True)
        return [
            out.copy() if axis is None else axis.room(out, count, length) for axis, out in pairs
        ]
