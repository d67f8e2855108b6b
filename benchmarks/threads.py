"""Two threads beside one: the same model compiled for each, calls taking turns."""

from __future__ import annotations

import statistics
from functools import partial

import bucketize
from bucketize import zoo
from bucketize.timing import interleaved

CASES = (
    ("resnet18", {"N": 1, "H": 224, "W": 224}),
    ("bert-mini", {"B": 1, "S": 128}),
    ("mlp", {"N": 256}),
)
ROUNDS = 25


def main() -> None:
    """Print the medians and the speed-up."""
    for name, sizes in CASES:
        module = bucketize.from_onnx(zoo.build(name), bounds=zoo.BOUNDS[name])
        inputs = zoo.inputs(name, sizes)
        executables = {str(n): bucketize.compile(module, threads=n) for n in (1, 2)}
        calls = {n: partial(exe.run, **inputs) for n, exe in executables.items()}
        times = interleaved(calls, least=ROUNDS)
        one, two = (statistics.median(t) * 1e3 for t in times.values())
        print(f"{name}: 1 thread {one:.2f} ms, 2 threads {two:.2f} ms, {one / two:.2f}x")


if __name__ == "__main__":
    main()
