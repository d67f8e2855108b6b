"""What calls run on: contexts and arenas lent to them, within a limit if there is one."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Hashable, Iterable, Sequence

from bucketize.call import bind_shapes, shapes_of
from bucketize.errors import CompileError
from bucketize.link.image import Image
from bucketize.link.memory import ARENAS, UNLENT
from bucketize.op import Array, Value
from bucketize.runtime.gate import Gate
from bucketize.runtime.memory import Memory, memory
from bucketize.runtime.vm import Context
from bucketize.traffic.counter import Clones, Shared, Tally, TrafficCounter
from bucketize.types import Sizes

REMEMBERED = 4096  # shapes


class Serving:
    """An image, and contexts of it that no call uses."""

    def __init__(self, image: Image, counter: TrafficCounter) -> None:
        """Nothing is lent yet; requests are told to the counter."""
        self.image = image
        self.idle: deque[Context] = deque()
        self.idle_alone: deque[Context] = deque()
        """For calls side by side, each by one thread."""
        self.gate: Gate | None = None
        """What calls may take together; None: there is no limit."""
        self.clones: Clones = {}
        """Requests by clone; what contexts did not hand on is not among them."""
        self._counter = counter
        self._taken: dict[tuple[str, Hashable], int] = {}
        """Bytes of calls by routine and shapes."""

    def context(self, *, one_thread: bool = False) -> Context:
        """A new context, whose requests are counted."""
        return Context(self.image, self._tally, one_thread=one_thread)

    def _tally(self, context: object) -> Tally:
        return self._counter.tally(context, self.clones)

    def count(self, requests: Iterable[Shared]) -> None:
        """Count requests that shared calls."""
        self._counter.count(requests, self.clones)

    def run(
        self,
        name: str,
        inputs: Sequence[Value],
        is_request: bool = False,
        one_thread: bool = False,
        into: Sequence[Array | None] = (),
    ) -> list[Value]:
        """The results of a routine, each in memory of its own, or of the caller's."""
        idle = self.idle_alone if one_thread else self.idle
        try:
            context = idle.pop()
        except IndexError:
            context = self.context(one_thread=one_thread)
        arena = context.lent.arena = ARENAS.lend()
        context.lent.room = sys.maxsize if self.gate is None else self._room(self.gate)
        try:
            routine = self.image.program.routines[name]
            return owned(context.enter(routine, inputs, is_request, into), inputs)
        finally:
            context.lent.arena = UNLENT
            ARENAS.take_back(arena)
            idle.append(context)

    def gated(
        self, name: str, inputs: Sequence[Value], is_request: bool = False, one_thread: bool = False
    ) -> list[Value]:
        """The results of a routine, run when there is room for it.

        Raises:
            ShapeError: there never is, or as of `run`.

        """
        gate = self.gate
        if gate is None:
            return self.run(name, inputs, is_request, one_thread)
        with gate.room(*self.bytes_of(name, inputs)):
            return self.run(name, inputs, is_request, one_thread)

    def limit(self, most: int | None) -> None:
        """Let calls and weights take so many bytes together.

        Raises:
            CompileError: the weights alone take more.

        """
        _check(self.image, most)
        self.idle.clear()  # what they have room for was held against another limit
        self.idle_alone.clear()
        if self.gate is not None:
            self.gate.change(most or sys.maxsize)
        if most is None or self.gate is None:
            self.gate = None if most is None else Gate(most)

    def _room(self, gate: Gate) -> int:
        return gate.most - self.image.supply.constant_bytes()

    def memory(self, name: str, sizes: Sizes) -> Memory:
        """What a call of a routine takes."""
        try:
            context = self.idle.pop()
        except IndexError:
            context = self.context()
        try:
            return memory(context, name, sizes)
        finally:
            self.idle.append(context)

    def bytes_of(self, name: str, inputs: Sequence[Value]) -> tuple[int, int]:
        """What a call with these inputs takes, and what weights have."""
        shapes = shapes_of(inputs)
        taken = self._taken.get((name, shapes))
        if taken is None:
            params = self.image.program.routines[name].params
            taken = self.memory(name, bind_shapes(params, shapes)).of_call
            if len(self._taken) >= REMEMBERED:
                self._taken.clear()
            self._taken[name, shapes] = taken
        return taken, self.image.supply.constant_bytes()

    def trim(self) -> int:
        """Let go contexts, and the arenas of the process; bytes of these."""
        self.idle.clear()
        self.idle_alone.clear()
        return ARENAS.trim()

    def renewed(self, image: Image) -> Serving:
        """What serves from now on in its place, within the same limit.

        Raises:
            CompileError: its weights alone take more.

        """
        _check(image, None if self.gate is None else self.gate.most)
        its = Serving(image, self._counter)
        its.gate = self.gate
        return its


def _check(image: Image, most: int | None) -> None:
    """Raise CompileError if the weights of an image alone take more than a limit."""
    weights = image.supply.constant_bytes()
    if most is not None and weights > most:
        raise CompileError(f"weights take {weights:,} bytes, more than a limit of {most:,}")


def owned(results: Sequence[Value], inputs: Sequence[Value]) -> list[Value]:
    """The results, each in memory of its own: an input that is returned, or a repeat, is copied."""
    seen = {id(a) for i in inputs for a in (i if isinstance(i, list) else (i,))}
    return [_own(result, seen) for result in results]


def _own(value: Value, seen: set[int]) -> Value:
    if value is None:
        return None
    if isinstance(value, list):
        return [_own(v, seen) for v in value]
    mine = value.copy() if id(value) in seen else value
    seen.add(id(value))
    return mine
