"""Two contexts on two cores beside one: requests in the same time, taking turns."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import bucketize
from benchmarks.figure import Figure, needs_cores
from bucketize import zoo

CASES = (
    ("mlp", {"N": 64}),
    ("bert-mini", {"B": 1, "S": 64}),
    ("mobilenetv2", {"N": 1, "H": 224, "W": 224}),
    ("resnet18", {"N": 1, "H": 224, "W": 224}),
)
SECONDS, ROUNDS = 1.0, 7


def rates(calls: Sequence[Callable[[], Any]]) -> list[float]:
    """Requests a second that callers in threads of their own get served, each."""
    counts = [0] * len(calls)
    end = time.perf_counter() + SECONDS

    def serve(k: int) -> None:
        while counts[k] == 0 or time.perf_counter() < end:
            calls[k]()
            counts[k] += 1

    threads = [threading.Thread(target=serve, args=(k,)) for k in range(len(calls))]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed = time.perf_counter() - start
    return [count / elapsed for count in counts]


def two_by_one(name: str, sizes: Mapping[str, int]) -> list[float]:
    """What two contexts serve by what one does, round by round."""
    exe = bucketize.compile(bucketize.from_onnx(zoo.build(name), bounds=zoo.BOUNDS[name]))
    inputs = zoo.inputs(name, sizes)
    runs = [exe.context() for _ in range(2)]
    calls = [partial(run, **inputs) for run in runs]
    for call in calls:
        call()
    ratios = []
    for _ in range(ROUNDS):
        one, two = rates(calls[:1]), rates(calls)
        ratios.append(sum(two) / sum(one))
    return ratios


def main() -> None:
    """Print the ratio for each case."""
    for name, sizes in CASES:
        ratios = two_by_one(name, sizes)
        middle, spread = statistics.median(ratios), f"{min(ratios):.2f} .. {max(ratios):.2f}"
        print(f"{name:<12} two contexts over one: {middle:.2f}x ({spread})", flush=True)


def quick() -> list[Figure]:
    """The first case."""
    needs_cores(2)
    name, sizes = CASES[0]
    return [Figure.of(f"{name}, two contexts by one", "", two_by_one(name, sizes))]


if __name__ == "__main__":
    main()
