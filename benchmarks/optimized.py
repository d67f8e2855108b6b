"""`optimize` on one half of a traffic, judged on the other half.

Beside it, at sizes that stand for equally many requests each, all in turns on one thread: the
module as it was (`untuned`); `log`, logarithmic buckets tuned as long by the same requests into a
log of their own; and `static`, a module of each size alone, on defaults. What stands for each is
its mean by that of the optimised module; the median of several passes with the least and the
greatest.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import click
import numpy as np

import bucketize
from benchmarks.figure import Figure
from benchmarks.ladders import FIXED, MOST
from bucketize import zoo
from bucketize.executable import Executable
from bucketize.ir import Module
from bucketize.optimize.optimize import quantiles
from bucketize.timing import interleaved
from bucketize.traffic.value import Traffic
from bucketize.types import Sizes
from bucketize.zoo.traffics import traffic
from dispatchers import log_dispatcher

MODELS = ("resnet18", "bert-mini", "mlp")
SECONDS = 600.0
POINTS, PASSES, ROUNDS = 12, 5, 4
STATIC = "static"


def asked(name: str) -> Traffic:
    """Requests of a model: images of 512 at most, prompts over 8, cut at 512, a recommender's."""
    if name == "resnet18":
        its = traffic("images")
        scale = MOST / max(hi for _, hi in its.bounds.values())
        return its.scaled(H=scale, W=scale)
    its = traffic({"bert-mini": "prompts", "mlp": "recommender"}[name])
    (symbol,) = its.symbols
    if name == "mlp":
        return its.renamed(**{symbol: "N"})
    its = its.renamed(**{symbol: "S"}).scaled(S=1 / 8)
    return Traffic(its.symbols, np.minimum(its.sizes, MOST), its.requests, its.times)


def tuned_log(mod: Module, first: Traffic, folder: Path, seconds: float) -> Executable:
    """Logarithmic buckets within the same bounds, tuned by the same requests for as long."""
    bounded = bucketize.specialise(mod, **first.without_times().bounds)
    module = bucketize.dispatch(bounded, log_dispatcher)
    log = folder / "log.csv"
    bucketize.tune(module, log=log, traffic=first.without_times(), seconds=seconds)
    return bucketize.compile(module, log=log)


def judged(
    name: str, sides: Mapping[str, Executable], mod: Module, points: Sequence[Sizes]
) -> list[dict[str, float]]:
    """The mean seconds of each side, in each pass, with that of static modules."""
    statics = [bucketize.compile(bucketize.specialise(mod, **sizes)) for sizes in points]
    passes = []
    for _ in range(PASSES):
        total = dict.fromkeys([*sides, STATIC], 0.0)
        for sizes, static in zip(points, statics, strict=True):
            inputs = zoo.inputs(name, {**FIXED[name], **sizes})
            calls = {key: partial(exe.run, **inputs) for key, exe in sides.items()}
            calls[STATIC] = partial(static.run, **inputs)
            for key, taken in interleaved(calls, least=ROUNDS, before=calls).items():
                total[key] += statistics.median(taken) / len(points)
        passes.append(total)
    return passes


def measured(name: str, seconds: float) -> tuple[list[str], dict[str, list[float]], float]:
    """What was chosen, each side's mean by that of the optimised module, and its seconds."""
    first, second = asked(name).halves()
    mod = bucketize.specialise(bucketize.from_onnx(zoo.build(name)), **FIXED[name])
    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic()
        best = bucketize.optimize(mod, first, log=Path(folder) / "best.csv", seconds=seconds)
        taken = time.monotonic() - begin
        begin = time.monotonic()
        log = tuned_log(mod, first, Path(folder), seconds)
        notes = [
            *str(best).splitlines(),
            f"optimized in {taken:.0f} s, {len(best.executable.program.clones)} clones; "
            f"log in {time.monotonic() - begin:.0f} s, {len(log.program.clones)} clones",
        ]
    sides = {"optimized": best.executable, "untuned": bucketize.compile(mod), "log": log}
    passes = judged(name, sides, mod, quantiles(second.without_times(), POINTS))
    by = {
        key: [taken[key] / taken["optimized"] for taken in passes]
        for key in ("untuned", "log", STATIC)
    }
    return notes, by, statistics.median(taken["optimized"] for taken in passes)


@click.command()
@click.option("-m", "--model", "models", multiple=True, type=click.Choice(MODELS), help="All.")
@click.option("--seconds", type=float, default=SECONDS, show_default=True, help="Of each tuning.")
def main(models: Sequence[str], seconds: float) -> None:
    """Print what was chosen, and a row for each side and model."""
    for name in models or MODELS:
        notes, by, mean = measured(name, seconds)
        for note in notes:
            click.echo(f"  {note}")
        click.echo(f"{name}: {1e3 * mean:.3f} ms a request")
        for what, ratios in by.items():
            middle, low, high = statistics.median(ratios), min(ratios), max(ratios)
            click.echo(f"{name}, {what}: {middle:.3f} ({low:.3f} to {high:.3f})")


def quick() -> list[Figure]:
    """The perceptron, optimised in 20 seconds, by the untuned module."""
    _, by, _ = measured("mlp", 20.0)
    return [Figure.of("mlp, recommender, untuned by optimized in 20 s", "", by["untuned"])]
