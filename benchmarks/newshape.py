"""A stream of shapes never seen before, beside the same shapes seen: what newness costs.

Three means over one stream of random shapes, on fresh executables: the first time that each shape
comes, the second time that the stream comes, and a call right after one of the same shape. The
third is the strictest: table, arena and caches are all of that shape.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import psutil

import bucketize
from benchmarks.peers import Run, onnxruntime
from bucketize import zoo
from bucketize.runtime.executable import Executable

SHAPES = 200
MANY = 20_000
RANGES: dict[str, dict[str, tuple[int, int]]] = {
    "mlp": {"N": (1, 256)},
    "bert-mini": {"B": (1, 2), "S": (8, 128)},
    "bert-base": {"B": (1, 1), "S": (8, 96)},
    "mobilenetv2": {"N": (1, 1), "H": (64, 224), "W": (64, 224)},
    "resnet18": {"N": (1, 1), "H": (64, 224), "W": (64, 224)},
    "resnet50": {"N": (1, 1), "H": (64, 192), "W": (64, 192)},
}
FEW = {"bert-base": 60, "resnet50": 60}  # where 200 shapes would take too long


def stream(name: str, seed: int = 0) -> list[Mapping[str, Any]]:
    """Inputs of distinct random shapes."""
    dice, sizes = np.random.default_rng(seed), set()
    ranges = RANGES[name]
    while len(sizes) < min(SHAPES, FEW.get(name, SHAPES)):
        sizes.add(tuple(int(dice.integers(lo, hi + 1)) for lo, hi in ranges.values()))
    order = dice.permutation(sorted(sizes))
    return [zoo.inputs(name, dict(zip(ranges, map(int, s), strict=True))) for s in order]


def seconds(run: Callable[..., Any], inputs: Mapping[str, Any]) -> float:
    """One call."""
    start = time.perf_counter()
    run(inputs)
    return time.perf_counter() - start


def means(run: Run, inputs: list[Mapping[str, Any]]) -> tuple[float, float, float]:
    """Mean seconds of a shape that is new, seen, and just seen."""
    run(inputs[0])  # what a first call does once
    new = [seconds(run, x) for x in inputs[1:]]
    seen = [seconds(run, x) for x in inputs[1:]]
    just = []
    for x in inputs[1:]:
        run(x)
        just.append(seconds(run, x))
    return statistics.fmean(new), statistics.fmean(seen), statistics.fmean(just)


def fills(exe: Executable, repeats: int = 200) -> float:
    """Median seconds of filling all tables of a context for its last shape."""
    (context,) = exe._idle
    states = list(context._states.values())
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        for state in states:
            sizes, state.sizes = state.sizes, None
            state.prepare(sizes)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def memory() -> None:
    """Resident memory over many distinct shapes."""
    exe = bucketize.compile(bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, MANY)}))
    x = np.zeros((MANY, 784), np.float32)
    exe.run(x)
    before = psutil.Process().memory_info().rss
    for n in range(1, MANY + 1):
        exe.run(x[: 1 + n * 7919 % 199])
        if n % 4 == 0:
            exe.run(x[: 1 + n // 20])
    after = psutil.Process().memory_info().rss
    print(f"mlp, {MANY} calls of changing shapes: {(after - before) / 2**20:+.1f} MiB resident")


def main() -> None:
    """Print a row for each model."""
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*", default=list(RANGES))
    names = [n for n in parser.parse_known_args()[0].models if n in RANGES] or list(RANGES)
    print(
        f"{'model':<13}{'shapes':>7}{'new/seen':>10}{'new/just':>10}{'fill':>10}{'ort':>8}{'ort':>8}"
    )
    for name in names:
        model, inputs = zoo.build(name), stream(name)
        exe = bucketize.compile(bucketize.from_onnx(model, bounds=zoo.BOUNDS[name]))
        new, seen, just = means(lambda x, exe=exe: exe.run(**x), inputs)  # type: ignore[misc]
        peer = means(onnxruntime(model, name), inputs)
        print(
            f"{name:<13}{len(inputs):>7}{new / seen:>10.3f}{new / just:>10.3f}"
            f"{fills(exe) * 1e6:>8.1f}us{peer[0] / peer[1]:>8.3f}{peer[0] / peer[2]:>8.3f}",
            flush=True,
        )
    memory()


if __name__ == "__main__":
    main()
