"""Kernels called as a segment calls them, and timed with caches as they are in the graph."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from bucketize.kernel.template import Launch
from bucketize.link.ffi import function_at
from bucketize.link.link import shared
from bucketize.link.memory import address, empty_bytes
from bucketize.machine.target import LINE
from bucketize.measure.job import Repeats
from bucketize.op import Array
from bucketize.runtime.thread_pool import ONE, TEAM, Run
from bucketize.timing import interleaved, processor_seconds, wall_seconds
from bucketize.types import evaluate


class TimedKernel:
    """A kernel on its argument blocks, one per thread; if wanted, on other arrays each time."""

    def __init__(
        self, kernel: int, launch: Launch, arrays: Sequence[Sequence[Array]], threads: int
    ) -> None:
        """Fill the blocks.

        Args:
            kernel: its address.
            launch: at the sizes of the arrays.
            arrays: the result and each argument, or several that take turns.
            threads: that share the extent.

        """
        self.threads = threads
        self.arrays = arrays  # kept alive
        ranges = parts(launch, threads)
        self._spaces = [empty_bytes(evaluate(launch.workspace, {})) for _ in ranges]
        self._turns = max(map(len, arrays))
        begins = list(zip(self._spaces, ranges, strict=True))
        turns = [[each[turn % len(each)] for each in arrays] for turn in range(self._turns)]
        rows = [
            [*map(address, operands), address(space), begin, end, *launch.dims]
            for operands in turns
            for space, (begin, end) in begins
        ]
        self._blocks = np.array(rows, np.int64)
        self._kernel = function_at(kernel)
        self._turn = 0
        one, chunks = np.array([kernel], np.int64), np.array([threads], np.int64)
        stride = self._blocks.strides[0]
        self._places = [address(self._blocks[i]) for i in range(0, len(rows), threads)]
        self._runs = [Run(one, ONE, chunks, place, stride, threads) for place in self._places]

    def take(self, turn: int) -> None:
        """Take the arrays of this turn."""
        self._turn = turn % self._turns

    def __call__(self) -> None:
        """Run the kernel over its whole extent."""
        if self.threads == 1:
            self._kernel(self._places[self._turn])
        else:
            TEAM.run(shared(), self._runs[self._turn])


def parts(launch: Launch, count: int) -> list[tuple[int, int]]:
    """The parallel axis in `count` ranges that begin at multiples of the grain."""
    extent = evaluate(launch.extent, {})
    grains = -(-extent // launch.grain)
    cuts = [min(grains * t // count * launch.grain, extent) for t in range(count + 1)]
    return list(itertools.pairwise(cuts))


def timed(
    calls: Sequence[TimedKernel],
    warm: Sequence[Array],
    rounds: Repeats,
    announce: Callable[[], None],
) -> list[list[float]]:
    """Seconds of each of some calls, in each of some rounds.

    Args:
        calls: what is timed; they take turns.
        warm: inputs that the op before has just touched, and left in the caches.
        rounds: how many.
        announce: called before each round.

    """
    if not calls:
        return []
    turns = itertools.count()
    lines = [a.reshape(-1).view(np.uint8)[::LINE] for a in warm]

    def ready(call: TimedKernel, *, first: bool) -> Callable[[], None]:
        output = call.arrays[0][0].reshape(-1).view(np.uint8)[::LINE]

        def touch() -> None:
            if first:
                announce()
            call.take(next(turns))
            for line in (*lines, output):
                line.max(initial=0)

        return touch

    named = {str(i): call for i, call in enumerate(calls)}
    before = {name: ready(call, first=name == "0") for name, call in named.items()}
    stopwatch = processor_seconds if calls[0].threads == 1 else wall_seconds
    enough_s = rounds.enough_s * len(calls)
    taken = interleaved(
        named,
        least=rounds.least,
        most=rounds.most,
        enough_s=enough_s,
        before=before,
        stopwatch=stopwatch,
    )
    return list(taken.values())
