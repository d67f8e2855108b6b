"""Native loops: rounds that one segment computes; what they carry alternates between two places.

Rows are written where they are stacked; nothing is copied from round to round.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from bucketize.link.block import BASE, PLACE, ROUNDS, WALK, WORD
from bucketize.link.memory import address
from bucketize.link.table import block, table
from bucketize.op import Array
from bucketize.program.instruction import Loop, RunSegment
from bucketize.runtime.state import State

ROUND_FORK = 1 << 22
"""Work of a kernel, as of `FORK`, from which on rounds are not one native call on several threads:
below, helpers gain less than what Python takes for a round. By estimate: 10 to 20 us of it."""
Word: TypeAlias = tuple[memoryview, int]
"""Where an address goes."""
FIRST, BEGIN, ROW = PLACE.first, PLACE.begin, len(PLACE)
NUMBER = len(ROUNDS)
"""The word behind the block: that of the round's number."""


class NativeLoop:
    """A loop whose segment is filled, by one native call; addresses are put in before it."""

    def __init__(
        self, state: State, sizes: tuple[int, ...], loop: Loop, segment: RunSegment, trips: int
    ) -> None:
        """A loop of `trips` rounds, at least one, of a state that is filled for these sizes."""
        self.state, self.sizes, self.trips = state, sizes, trips
        order = [segment.outs.index(r) for r in loop.body.results[1:]]
        count, inputs = len(loop.args), len(segment.args)
        self.carried, self.rows = order[:count], order[count:]
        """The places of what is carried on, and of rows, among the results of the segment."""
        self.buffers: list[tuple[tuple[int, ...], np.dtype[Any]]] = [
            ((trips if j in self.rows else 2, *shape), dtype)
            for j, (shape, dtype) in enumerate(state.results)
        ]
        """Shape and dtype of where the rounds' results go."""
        state.check(self.buffers)
        feeds = dict(zip(loop.params[1:], self.carried, strict=True))
        self.fed = [(i, feeds[a]) for i, a in enumerate(segment.args) if a in feeds]
        """Arguments that are carried into a round, and the results that are carried on for them."""
        places = self._changing(inputs)
        bases, place = NUMBER + 1, NUMBER + 1 + inputs + len(self.buffers)
        self._memory = np.array([*[0] * place, *places.flat], np.int64)
        """The block, the number of the round, the bases, and rows of `PLACE`."""
        self.number = self._memory[NUMBER, ...]
        self.address = address(self._memory)
        word = self._memory.data
        self._memory[:NUMBER] = block(ROUNDS, **self._words(place, len(places)))
        self._bases = word[bases:place]
        self.reads: list[list[Word]] = [[(self._bases, i)] for i in range(inputs)]
        """By argument of the segment: where the address of what the first round reads goes."""
        behind = place + len(self.fed) * ROW
        self.writes: list[list[Word]] = [
            [(word, behind + j * ROW + BEGIN)] for j in range(len(self.buffers))
        ]
        """By result of the segment: where the address of its buffer goes."""
        for row, (i, j) in enumerate(self.fed):
            self.reads[i].append((word, place + row * ROW + FIRST))
            self.writes[j].append((word, place + row * ROW + BEGIN))

    def _words(self, place: int, rows: int) -> dict[str, int]:
        state = self.state
        return {
            "rounds": self.trips,
            "places": self.address + place * WORD,
            "n_places": rows,
            "walking": state.places[1],
            "walk": state.image.walk_address,
            "number": self.address + NUMBER * WORD,
            "bases": state.walk_word[WALK.bases],
            "fixed": state.plan.fixed,
        }

    def _changing(self, inputs: int) -> Array:
        """Rows of `PLACE`: results lie by their round, what is carried a round later."""
        bases = [(i, 1, j) for i, j in self.fed]
        bases += [(inputs + j, 0, j) for j in range(len(self.buffers))]
        rows = []
        for base, lag, j in bases:
            (period, *shape), dtype = self.buffers[j]
            stride = math.prod(shape) * dtype.itemsize
            rows.append((len(BASE) + base, lag, stride, period))
        return table(PLACE, "place lag stride period", rows)

    def run(self) -> None:
        """Run all rounds."""
        self.state.share_from(ROUND_FORK)
        self.state.prepare(self.sizes)
        self.state.run_rounds(self._bases, self.address)
