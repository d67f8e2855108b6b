"""What threads share: which kernels are worth splitting, and where they are cut."""

from __future__ import annotations

import itertools
import math

from bucketize.kernel.template import Launch, Shapes, Workload

WORTH = 200_000  # multiplications, or bytes, below which a fork costs more than it gives


def parts(workload: Workload, shapes: Shapes, threads: int) -> int:
    """Among how many of `threads` a kernel is split; `shapes` are the arguments', then its own."""
    return threads if _work(workload, shapes) >= WORTH else 1


def _work(workload: Workload, shapes: Shapes) -> int:
    moved = 4 * sum(map(math.prod, shapes))
    anchor = workload.anchor.op.name
    if anchor == "matmul":
        return moved + math.prod(shapes[-1]) * shapes[0][-1]
    if anchor == "conv2d":
        return moved + math.prod(shapes[-1]) * math.prod(shapes[1][1:])
    return moved


def split(launch: Launch, count: int) -> list[tuple[int, int]]:
    """The parallel axis in `count` ranges that begin at multiples of the grain."""
    grains = -(-launch.extent // launch.grain)
    cuts = [min(grains * t // count * launch.grain, launch.extent) for t in range(count + 1)]
    return list(itertools.pairwise(cuts))
