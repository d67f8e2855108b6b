"""Rounds of a loop that one segment computes: what they carry alternates between two places.

Rows are written where they are stacked; nothing is copied from round to round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from bucketize.call import check_memory
from bucketize.op import Array
from bucketize.program.instruction import Loop, RunSegment
from bucketize.program.plan import BASES
from bucketize.runtime.state import State
from bucketize.runtime.storage import address, contiguous, empty_result

Place: TypeAlias = tuple[int, int, int, int, int, int]
"""A row of `program.plan.PLACE`."""


def run_rounds(
    state: State, loop: Loop, segment: RunSegment, trips: int, arrays: Sequence[Array]
) -> list[Array] | None:
    """What is carried last, and the stacked rows, of a segment that is filled for these arrays.

    `arrays` are what the first round reads. None if what is carried would change its shape.
    """
    rounds = _Rounds(state, loop, segment, trips)
    if not rounds.keeps_shapes(arrays):
        return None
    inputs = [a if a.flags.c_contiguous else contiguous(a) for a in arrays]
    number = np.zeros((), np.int64)
    fixed = rounds.fixed(inputs, number)
    state.run_rounds(trips, number, fixed, rounds.places(inputs))
    return rounds.results()


class _Rounds:
    """The rounds of one run of a loop."""

    def __init__(self, state: State, loop: Loop, segment: RunSegment, trips: int) -> None:
        self.state, self.loop, self.segment = state, loop, segment
        made = [segment.outs.index(r) for r in loop.body.results[1:]]
        count = len(loop.args)
        self.trips, self.carried, self.rows = trips, made[:count], made[count:]
        """Which results of the segment these are."""
        wanted = [
            ((trips if j in self.rows else 2, *shape), dtype)
            for j, (shape, dtype) in enumerate(state.results)
        ]
        check_memory(wanted)
        self.buffers = [empty_result(shape, dtype) for shape, dtype in wanted]

    def keeps_shapes(self, arrays: Sequence[Array]) -> bool:
        """Whether each round carries on what is like what it took."""
        taken = dict(zip(self.segment.args, arrays, strict=True))
        pairs = zip(self.loop.params[1:], self.carried, strict=True)
        return all(taken[p].shape == self.state.results[j][0] for p, j in pairs if p in taken)

    def fixed(self, inputs: Sequence[Array], number: Array) -> list[int]:
        """The addresses of what the segment reads, in the first round."""
        first = self.loop.params[0]
        pairs = zip(self.segment.args, inputs, strict=True)
        return [address(number if atom is first else array) for atom, array in pairs]

    def places(self, inputs: Sequence[Array]) -> list[Place]:
        """Where what changes lies: results by their round, what is carried a round later."""
        begin, feeds = len(BASES), dict(zip(self.loop.params[1:], self.carried, strict=True))
        places = [
            (begin + i, 1, address(inputs[i]), *self._steps(feeds[atom]))
            for i, atom in enumerate(self.segment.args)
            if atom in feeds
        ]
        begin += len(inputs)
        results = [(begin + j, 0, 0, *self._steps(j)) for j in range(len(self.buffers))]
        return [*places, *results]

    def _steps(self, j: int) -> tuple[int, int, int]:
        buffer = self.buffers[j]
        return address(buffer), buffer.strides[0], len(buffer)

    def results(self) -> list[Array]:
        """Of the last round, and the rows; each in memory of its own."""
        last = [
            self.buffers[j][(self.trips - 1) % len(self.buffers[j])].copy() for j in self.carried
        ]
        seen: set[int] = set()
        rows = []
        for j in self.rows:
            rows.append(self.buffers[j].copy() if j in seen else self.buffers[j])
            seen.add(j)
        return [*last, *rows]
