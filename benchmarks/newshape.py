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

import statistics
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, TypeAlias

import click
import numpy as np
import psutil

import bucketize
from benchmarks.figure import Figure
from benchmarks.figure import ratios as of_rounds
from benchmarks.side import theirs
from bucketize import zoo
from bucketize.analysis.benchmark import OURS
from bucketize.analysis.engines import Run
from bucketize.cli.command.bench import model_file
from bucketize.errors import EngineError
from bucketize.executable import Executable
from bucketize.link.memory import Arena
from bucketize.timing import wall_seconds

Inputs: TypeAlias = Mapping[str, Any]
Times: TypeAlias = tuple[float, float, float]

SHAPES = 200
LAG = 5  # steps until a shape comes again
TIMES = 3  # that a shape comes
NEW, SEEN, JUST_SEEN = 0, 1, 2
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


def stream(name: str, most: int = SHAPES) -> list[list[Inputs]]:
    """Inputs of distinct random shapes, each in arrays of its own for every time that it comes."""
    dice, ranges = np.random.default_rng(0), RANGES[name]
    sizes: set[tuple[int, ...]] = set()
    while len(sizes) < min(most, FEW.get(name, most)):
        sizes.add(tuple(int(dice.integers(lo, hi + 1)) for lo, hi in ranges.values()))
    named = [dict(zip(ranges, map(int, s), strict=True)) for s in dice.permutation(sorted(sizes))]
    return [[zoo.inputs(name, shape) for _ in range(TIMES)] for shape in named]


def steps(
    runs: Mapping[str, Run], inputs: list[list[Inputs]], pause_s: float = 0.0
) -> tuple[dict[str, list[Times]], dict[str, str]]:
    """Seconds of every step: a shape that is new, one seen, and one just seen.

    By name; and why others are out, from the shape on that they do not run. `pause_s` passes
    before each turn.
    """
    always, taken = inputs[0][0], {name: list[Times]() for name in runs}
    refused: dict[str, str] = {}
    for k in range(-LAG, len(inputs) - LAG):
        order = [(name, run) for name, run in runs.items() if name not in refused]
        for name, run in order if k % 2 else reversed(order):
            time.sleep(pause_s)
            try:
                if k < 0:
                    run(inputs[k + LAG][0])
                else:
                    first = (NEW, SEEN) if k // 2 % 2 else (SEEN, NEW)
                    taken[name].append(step(run, always, inputs[k], inputs[k + LAG], first))
            except EngineError as e:
                refused[name] = str(e)
    return {name: times for name, times in taken.items() if name not in refused}, refused


def step(
    run: Run, always: Inputs, before: list[Inputs], now: list[Inputs], order: tuple[int, int]
) -> Times:
    """Seconds at a shape that is new, and at one seen, in this order; and just seen."""
    pair = {}
    for kind in order:
        run(always)
        pair[kind] = wall_seconds(partial(run, now[0] if kind == NEW else before[1]))
    run(before[1])
    return pair[NEW], pair[SEEN], wall_seconds(partial(run, before[2]))


def ratios(taken: list[Times], of: int) -> tuple[float, float]:
    """New beside `SEEN` or `JUST_SEEN`: of the means, and the median by shape.

    A shape is new in one step, and seen in the step that is `LAG` later.
    """
    new = [times[NEW] for times in taken[:-LAG]]
    other = [times[of] for times in taken[LAG:]]
    pairs = [a / b for a, b in zip(new, other, strict=True)]
    return statistics.fmean(new) / statistics.fmean(other), statistics.median(pairs)


def fills(exe: Executable, repeats: int = 200) -> float:
    """Median seconds of filling all tables of a context for its last shape."""
    (context,) = exe._serving.idle
    context.lent.arena = Arena()
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


@click.command()
@click.option("--model", "names", type=click.Choice(list(RANGES)), multiple=True)
def main(names: tuple[str, ...]) -> None:
    """Print a row for each model: what a shape costs that was never seen before."""
    print("            new/seen: mean, median    new/just seen          fill   onnxruntime's")
    for name in names or RANGES:
        exe = bucketize.compile(bucketize.from_onnx(zoo.build(name), bounds=zoo.BOUNDS[name]))
        with model_file(f"zoo:{name}") as path:
            other = theirs("onnxruntime", path, 1)
            taken, _ = steps(
                {OURS: partial(called, exe), other.engine: other.run}, stream(name, SHAPES)
            )
        mine, their = ([ratios(times, of) for of in (SEEN, JUST_SEEN)] for times in taken.values())
        fill = f"{fills(exe) * 1e6:.1f} us"
        print(f"{name:<12}{shown(mine)}{fill:>12}{shown(their)}", flush=True)
    memory()


def called(exe: Executable, inputs: Inputs) -> Any:
    """One call of ours."""
    return exe.run(**inputs)


def shown(found: list[tuple[float, float]]) -> str:
    """Mean and median of both."""
    return "    ".join(f"{mean:>8.3f} {median:.3f}" for mean, median in found)


def quick() -> list[Figure]:
    """A stream of shapes of mlp, ours alone."""
    exe = bucketize.compile(bucketize.from_onnx(zoo.build("mlp"), bounds=zoo.BOUNDS["mlp"]))
    taken, _ = steps({OURS: partial(called, exe)}, stream("mlp", 60))
    times = taken[OURS]
    ratio = of_rounds([t[NEW] for t in times[:-LAG]], [t[SEEN] for t in times[LAG:]])
    filled = [fills(exe) * 1e6 for _ in range(5)]
    return [Figure.of("mlp, new by seen", "", ratio), Figure.of("mlp, fill", "us", filled)]


if __name__ == "__main__":
    main()
