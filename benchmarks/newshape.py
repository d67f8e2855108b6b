"""A stream of shapes never seen before, beside the same shapes seen: what newness costs.

Each step of the stream times a shape that is new, one that came a few steps ago, and that one
once more right away: table and arena are all of its shape then. Every call has arrays of its own,
so that what is measured is the shape's newness and not the data's; before the first two the engine
is called at a shape that is always the same, and which comes first changes from step to step: what
runs first after another engine finds cold caches.
All engines take each step in turn. Of each pair there are the ratio of the means over the stream
and the median ratio.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import psutil

import bucketize
from benchmarks.peers import called, peers
from bucketize import zoo
from bucketize.analysis.engines import Run
from bucketize.runtime.executable import Executable

Inputs: TypeAlias = Mapping[str, Any]
Times: TypeAlias = tuple[float, float, float]

SHAPES = 200
LAG = 5  # steps until a shape comes again
TIMES = 3  # that a shape comes
NEW, SEEN = 0, 1
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


def stream(name: str, seed: int = 0) -> list[list[Inputs]]:
    """Inputs of distinct random shapes, each in arrays of its own for every time that it comes."""
    dice, ranges = np.random.default_rng(seed), RANGES[name]
    sizes: set[tuple[int, ...]] = set()
    while len(sizes) < min(SHAPES, FEW.get(name, SHAPES)):
        sizes.add(tuple(int(dice.integers(lo, hi + 1)) for lo, hi in ranges.values()))
    named = [dict(zip(ranges, map(int, s), strict=True)) for s in dice.permutation(sorted(sizes))]
    return [[zoo.inputs(name, shape) for _ in range(TIMES)] for shape in named]


def seconds(run: Callable[..., Any], inputs: Inputs) -> float:
    """One call."""
    start = time.perf_counter()
    run(inputs)
    return time.perf_counter() - start


def steps(runs: Mapping[str, Run], inputs: list[list[Inputs]]) -> dict[str, list[Times]]:
    """Seconds of every step: a shape that is new, one seen, and one just seen."""
    always = inputs[0][0]
    for run in runs.values():
        for arrays in inputs[:LAG]:
            run(arrays[0])
    taken: dict[str, list[Times]] = {name: [] for name in runs}
    for k, (before, now) in enumerate(zip(inputs, inputs[LAG:], strict=False)):
        order = list(runs.items())
        for name, run in order if k % 2 else reversed(order):
            pair = {}
            for kind in (NEW, SEEN) if k // 2 % 2 else (SEEN, NEW):
                run(always)
                pair[kind] = seconds(run, now[0] if kind == NEW else before[1])
            run(before[1])
            taken[name].append((pair[NEW], pair[SEEN], seconds(run, before[2])))
    return taken


def ratios(taken: list[Times], of: int) -> str:
    """New beside seen (1) or just seen (2): of the means, and the median by shape.

    A shape is new in one step, and seen in the step that is `LAG` later.
    """
    new = [times[0] for times in taken[:-LAG]]
    other = [times[of] for times in taken[LAG:]]
    pairs = [a / b for a, b in zip(new, other, strict=True)]
    return f"{statistics.fmean(new) / statistics.fmean(other):>8.3f} {statistics.median(pairs):.3f}"


def fills(exe: Executable, repeats: int = 200) -> float:
    """Median seconds of filling all tables of a context for its last shape."""
    (context,) = exe._idle
    states = list(context._states.values())
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        for state in states:
            sizes = state.sizes
            assert sizes is not None, "a context that has run knows its sizes"
            state.sizes = None
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
    print("            new/seen: mean, median    new/just seen          fill   onnxruntime's")
    for name in names:
        model, inputs = zoo.build(name), stream(name)
        exe = bucketize.compile(bucketize.from_onnx(model, bounds=zoo.BOUNDS[name]))
        with peers(model, ["onnxruntime"]) as theirs:
            taken = steps({"ours": partial(called, exe), **theirs}, inputs)
        mine, other = ([ratios(times, of) for of in (1, 2)] for times in taken.values())
        fill = f"{fills(exe) * 1e6:.1f} us"
        print(f"{name:<12}{'    '.join(mine)}{fill:>12}{'    '.join(other)}", flush=True)
    memory()


if __name__ == "__main__":
    main()
