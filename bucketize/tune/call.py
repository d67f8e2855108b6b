"""A kernel called as a segment calls it, and timed with caches as they are in its graph."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from bucketize.kernel.template import Launch
from bucketize.op import Array
from bucketize.runtime.native import function_at, run_parallel
from bucketize.runtime.storage import address, empty_bytes
from bucketize.timing import interleaved, processor_seconds, wall_seconds
from bucketize.types import evaluate

REPEATS = (3, 30)  # at least, at most
ENOUGH_S = 0.25  # of repeats, what happens between them included
LINE = 64  # bytes of a cache line


class Call:
    """A kernel on its argument blocks, one per thread."""

    def __init__(self, kernel: int, launch: Launch, arrays: Sequence[Array], threads: int) -> None:
        """Fill the blocks; `kernel` is an address, `arrays` are the result and the arguments."""
        self.threads = threads
        ranges = _parts(launch, threads)
        self._spaces = [empty_bytes(evaluate(launch.workspace, {})) for _ in ranges]
        self._arrays = arrays  # kept alive
        pointers = [address(array) for array in arrays]
        rows = [
            [*pointers, address(space), begin, end, *launch.dims]
            for space, (begin, end) in zip(self._spaces, ranges, strict=True)
        ]
        self._blocks = np.array(rows, np.int64)
        self._kernels = np.array([kernel], np.int64)
        self._kernel = function_at(kernel)
        self._place = address(self._blocks)
        self._chunks = np.array([threads], np.int64)

    def __call__(self) -> None:
        """Run the kernel over its whole extent."""
        if self.threads == 1:
            self._kernel(self._place)
        else:
            stride = self._blocks.strides[0]
            run_parallel(self._kernels, self._place, stride, self.threads, self._chunks)


def _parts(launch: Launch, count: int) -> list[tuple[int, int]]:
    """The parallel axis in `count` ranges that begin at multiples of the grain."""
    extent = evaluate(launch.extent, {})
    grains = -(-extent // launch.grain)
    cuts = [min(grains * t // count * launch.grain, extent) for t in range(count + 1)]
    return list(itertools.pairwise(cuts))


def timed(call: Call, warm: Sequence[Array], between: int) -> list[float]:
    """Seconds of each of some calls.

    Args:
        call: what is timed.
        warm: arrays that the op before has just touched, and left in the caches.
        between: bytes that the other ops of the graph move between two calls: their weights.

    """
    scratch = np.zeros(between, np.uint8)
    lines = [scratch[::LINE], *(a.reshape(-1).view(np.uint8)[::LINE] for a in warm)]

    def touch() -> None:
        for line in lines:
            line.max(initial=0)

    least, most = REPEATS
    return interleaved(
        {"kernel": call},
        least=least,
        most=most,
        enough_s=ENOUGH_S,
        before={"kernel": touch},
        stopwatch=processor_seconds if call.threads == 1 else wall_seconds,
    )["kernel"]
