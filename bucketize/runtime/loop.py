"""Rounds of a loop that one segment computes: what they carry alternates between two places.

Rows are written where they are stacked; nothing is copied from round to round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from bucketize.call import check_memory
from bucketize.link.block import BASE, PLACE, ROUNDS
from bucketize.link.memory import address, contiguous, empty_result
from bucketize.link.table import block, rows_of, table
from bucketize.op import Array
from bucketize.program.instruction import Loop, RunSegment
from bucketize.runtime.state import State

Word: TypeAlias = tuple[memoryview, int]
"""Where an address goes."""
WIDTH, FIRST, BEGIN = len(PLACE), PLACE.first, PLACE.begin


def run_rounds(
    state: State, loop: Loop, segment: RunSegment, trips: int, arrays: Sequence[Array]
) -> list[Array] | None:
    """What is carried last, and the stacked rows, of a segment that is filled for these arrays.

    `arrays` are what the first round reads. None if what is carried would change its shape.
    """
    rounds = Rounds(state, loop, segment, trips)
    if not rounds.keeps_shapes([a.shape for a in arrays]):
        return None
    inputs = [a if a.flags.c_contiguous else contiguous(a) for a in arrays]
    buffers = [empty_result(*buffer) for buffer in rounds.buffers]
    for i, array in enumerate(inputs):
        put(address(array), rounds.reading(i))
    for j, array in enumerate(buffers):
        put(address(array), rounds.writing(j))
    rounds.run()
    # with `...`, that of rank 0 stays an array
    last = [buffers[j][rounds.last(j), ...].copy() for j in rounds.carried]
    seen: set[int] = set()
    rows = []
    for j in rounds.rows:
        rows.append(buffers[j].copy() if j in seen else buffers[j])
        seen.add(j)
    return [*last, *rows]


def put(at: int, words: Iterator[Word]) -> None:
    """Put an address where it goes."""
    for memory, index in words:
        memory[index] = at


class Rounds:
    """The rounds of a loop whose segment is filled; addresses are put in before each run."""

    def __init__(self, state: State, loop: Loop, segment: RunSegment, trips: int) -> None:
        """So many rounds, at least one; nothing is put in but the number of the round."""
        self.state, self.loop, self.segment = state, loop, segment
        made = [segment.outs.index(r) for r in loop.body.results[1:]]
        count = len(loop.args)
        self.trips, self.carried, self.rows = trips, made[:count], made[count:]
        """Which results of the segment these are."""
        self.buffers: list[tuple[tuple[int, ...], np.dtype[Any]]] = [
            ((trips if j in self.rows else 2, *shape), dtype)
            for j, (shape, dtype) in enumerate(state.results)
        ]
        """Shape and dtype of where the rounds' results go."""
        check_memory(self.buffers)
        feeds = dict(zip(loop.params[1:], self.carried, strict=True))
        self._fed = [(i, feeds[a]) for i, a in enumerate(segment.args) if a in feeds]
        self._number = np.zeros((), np.int64)
        self._places = self._changing(len(segment.args))
        self._bases = np.zeros(len(segment.args) + len(self.buffers), np.int64)
        self._block = block(ROUNDS, **self._words())
        self._base, self._place = self._bases.data, self._places.reshape(-1).data

    def _words(self) -> dict[str, int]:
        state = self.state
        return {
            "rounds": self.trips,
            **rows_of({"places": self._places}),
            "walking": state.places[1],
            "walk": state.image.walk_address,
            "number": address(self._number),
            "bases": address(state.bases),
            "fixed": state.plan.fixed,
        }

    def _changing(self, inputs: int) -> Array:
        """Rows of `PLACE`: results lie by their round, what is carried a round later."""
        bases = [(i, 1, j) for i, j in self._fed]
        bases += [(inputs + j, 0, j) for j in range(len(self.buffers))]
        rows = []
        for base, lag, j in bases:
            (period, *shape), dtype = self.buffers[j]
            stride = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
            rows.append((len(BASE) + base, lag, stride, period))
        return table(PLACE, "place lag stride period", rows)

    def keeps_shapes(self, shapes: Sequence[tuple[int, ...]]) -> bool:
        """Whether each round carries on what is like what it took, of these shapes."""
        return all(shapes[i] == self.state.results[j][0] for i, j in self._fed)

    def last(self, j: int) -> int:
        """Where in its buffer the last round's result lies."""
        return (self.trips - 1) % int(self.buffers[j][0][0])

    def reading(self, i: int) -> Iterator[Word]:
        """Where the address of what the first round reads as argument i goes; the count is here."""
        if self.segment.args[i] is self.loop.params[0]:
            self._base[i] = address(self._number)
            return
        yield self._base, i
        for at, (fed, _) in enumerate(self._fed):
            if fed == i:
                yield self._place, at * WIDTH + FIRST

    def writing(self, j: int) -> Iterator[Word]:
        """Where the address of a buffer goes."""
        yield self._place, (len(self._fed) + j) * WIDTH + BEGIN
        for at, (_, fed) in enumerate(self._fed):
            if fed == j:
                yield self._place, at * WIDTH + BEGIN

    def run(self) -> None:
        """Run all rounds in one native call."""
        self.state.run_rounds(self._base, address(self._block))
