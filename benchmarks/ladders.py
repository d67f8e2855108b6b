"""Buckets planned on one half of a traffic beside ladders, judged on the other half.

A ladder has as many buckets as the budget: powers of two, uniform, percentiles (as many requests
in each), padding (the same share of padding at most in each). Cover has as few as the models say
are within 1.1 of the best kernels. Along two symbols ladders are products. Each is timed at ten
sizes that stand for equally many requests, all in turns: what stands for it is the mean over
these, by that of the planned buckets of its budget, and of planned ones and the cover by those of
the first budget; the median of several passes with the least and the greatest. What others drive
from the caches takes some calls to come back, so that each is called for 5 ms before it is timed.
Of planned buckets a row more has what the models predict by what they take when nothing else runs.
That is told by the processor's clock, as trials are, to which the models are fitted: time that the
system gives to others is no kernel's.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise, product

import click
import numpy as np

import bucketize
from benchmarks.figure import Figure
from bucketize import zoo
from bucketize.dispatch.bucket import Bucket
from bucketize.executable import Executable
from bucketize.inspect.predict import predictions
from bucketize.ir import Module
from bucketize.optimize.optimize import quantiles
from bucketize.partition.value import Partition
from bucketize.timing import Call, interleaved, processor_seconds, wall_seconds
from bucketize.traffic.value import Traffic
from bucketize.types import Sizes
from bucketize.zoo.traffics import traffic

SYNTHETIC = ("uniform", "zipf", "log-normal", "bimodal", "queue")
REAL = {"mlp": ("recommender",), "bert-mini": ("prompts", "chunks", "queries")}
IMAGES = ("resnet18", "mobilenetv2")
MODELS = (*REAL, *IMAGES)
FIXED = {"mlp": {}, "bert-mini": {"B": 1}, **{name: {"N": 1} for name in IMAGES}}
MOST = 512  # of a length, or of a side of an image
BUDGETS = (1, 2, 4, 8)
COVERED = 0.1
POINTS, PASSES, ROUNDS = 10, 3, 3
ALONE = 9  # rounds where nothing takes turns
WARM_S = 0.005  # of calls before one is timed


def of_model(name: str) -> Iterator[tuple[str, Traffic]]:
    """The traffics that a model is asked with, by name."""
    if name in IMAGES:
        yield "images", traffic("images").scaled(H=0.8, W=0.8)
        return
    symbol = "N" if name == "mlp" else "S"
    for its in (*REAL[name], *SYNTHETIC):
        found = traffic(its).without_times()
        found = found.renamed(**{found.symbols[0]: symbol})
        scale = min(1.0, MOST / found.bounds[symbol][1]) if name != "mlp" else 1.0
        yield its, found.scaled(**{symbol: scale})
    if name == "bert-mini":
        yield "batches of queries", padded_batches(traffic("queue"), traffic("queries"))


def padded_batches(batches: Traffic, lengths: Traffic) -> Traffic:
    """Batches of a server's queue, each as long as the longest of its texts, which are drawn."""
    random = np.random.default_rng(0)
    sizes = np.repeat(batches.sizes[:, 0], batches.requests)
    texts = np.repeat(lengths.sizes[:, 0], lengths.requests)
    longest = [int(random.choice(texts, size).max()) for size in sizes]
    rows, counts = np.unique(np.column_stack([sizes, longest]), axis=0, return_counts=True)
    return Traffic(("B", "S"), rows, counts)


def cuts(name: str, its: Traffic, symbol: str, count: int) -> list[int]:
    """Where the buckets of a ladder begin, behind the first: `count` of them at most."""
    lo, hi = its.bounds[symbol]
    at = [k / count for k in range(1, count)]
    if name == "powers":
        tops = [2**k for k in range(lo.bit_length(), hi.bit_length() + 1) if lo < 2**k <= hi]
        places: Sequence[float] = tops[-(count - 1) :] if count > 1 else []
    elif name == "uniform":
        places = [lo + share * (hi + 1 - lo) for share in at]
    elif name == "percentiles":
        places = [size + 1 for size in its.quantiles(symbol, at)]
    else:  # padding: tops rise by the same factor
        places = [lo * ((hi + 1) / lo) ** share for share in at]
    return sorted({math.ceil(place) for place in places if lo < place <= hi})


def ladder(
    name: str, its: Traffic, budget: int, bounds: Mapping[str, tuple[int, int]]
) -> list[Bucket]:
    """The buckets of a ladder, from bound to bound: along two symbols the first has the more."""
    counts = (budget,) if len(its.symbols) == 1 else max(grids(budget), key=math.prod)
    sides = []
    for symbol, count in zip(its.symbols, counts, strict=True):
        lo, hi = bounds[symbol]
        ends = pairwise([lo, *cuts(name, its, symbol, count), hi + 1])
        sides.append([(symbol, interval) for interval in ends])
    return [dict(each) for each in product(*sides)]


def grids(most: int) -> list[tuple[int, int]]:
    """Grids of at most so many cells, no higher than wide, the nearest to a square first."""
    return [(most // high, high) for high in range(math.isqrt(most), 0, -1)]


def cover(plans: Sequence[Partition]) -> Partition:
    """The fewest clones whose loss by the best kernels is at most `COVERED`."""
    return next((plan for plan in plans if plan.loss <= COVERED), plans[-1])


def sides(
    mod: Module, its: Traffic, budgets: Sequence[int], bounds: Mapping[str, tuple[int, int]]
) -> tuple[dict[str, Executable], dict[str, str]]:
    """Executables by their buckets, and which of them stands for what at which budget."""
    plans = [bucketize.partition(mod, its, budget=k, worth=0) for k in budgets]
    wanted: dict[str, list[Bucket]] = {"cover": list(cover(plans).chosen.buckets)}
    for budget, plan in zip(budgets, plans, strict=True):
        wanted[f"planned {budget}"] = list(plan.chosen.buckets)
        for name in ("powers", "uniform", "percentiles", "padding"):
            wanted[f"{name} {budget}"] = ladder(name, its, budget, bounds)
    keys = {name: repr(sorted(map(repr, buckets))) for name, buckets in wanted.items()}
    executables = {}
    for name, buckets in wanted.items():
        if keys[name] not in executables:
            executables[keys[name]] = bucketize.compile(bucketize.dispatch(mod, giving(buckets)))
    return executables, keys


def giving(buckets: list[Bucket]) -> Callable[[object], list[Bucket]]:
    """A dispatcher that gives these."""
    return lambda _: buckets


def judged(
    name: str,
    executables: Mapping[str, Executable],
    points: Sequence[Sizes],
    rounds: int = ROUNDS,
    stopwatch: Callable[[Call], float] = wall_seconds,
) -> list[dict[str, float]]:
    """The mean seconds of each executable, in each pass."""
    passes = []
    for _ in range(PASSES):
        total = dict.fromkeys(executables, 0.0)
        for sizes in points:
            inputs = zoo.inputs(name, {**FIXED[name], **sizes})
            calls = {key: partial(exe.run, **inputs) for key, exe in executables.items()}
            warm = {key: partial(repeated, call) for key, call in calls.items()}
            every = interleaved(calls, least=rounds, before=warm, stopwatch=stopwatch)
            for key, taken in every.items():
                total[key] += statistics.median(taken) / len(points)
        passes.append(total)
    return passes


def repeated(call: Call) -> None:
    """Call for a while before a call is timed: after one the caches hold too little of it."""
    end = time.perf_counter() + WARM_S
    call()
    while time.perf_counter() < end:
        call()


def measured(
    name: str, its: Traffic, budgets: Sequence[int] = BUDGETS
) -> Iterator[tuple[str, int, list[float]]]:
    """What each takes by the planned buckets, in each pass; with how many clones."""
    first, second = its.halves()
    fixed = {symbol: size for symbol, size in FIXED[name].items() if symbol not in its.symbols}
    mod = bucketize.specialise(bucketize.from_onnx(zoo.build(name)), **fixed, **its.bounds)
    executables, keys = sides(mod, first, budgets, its.bounds)
    points = quantiles(second, POINTS)
    passes = judged(name, executables, points)
    for what, key in keys.items():
        is_ladder = not what.startswith(("cover", "planned"))
        planned = keys[f"planned {what.split()[-1] if is_ladder else budgets[0]}"]
        ratios = [taken[key] / taken[planned] for taken in passes]
        program = executables[key].program
        yield what, len(program.clones), ratios
        if what.startswith("planned"):
            expected = statistics.mean(each.seconds for each in predictions(program, points))
            alone = judged(name, {key: executables[key]}, points, ALONE, processor_seconds)
            of_measured = [expected / taken[key] for taken in alone]
            yield f"predicted, {what}", len(program.clones), of_measured


@click.command()
@click.option("-m", "--model", "models", multiple=True, type=click.Choice(MODELS), help="All.")
@click.option(
    "--budget", "budgets", multiple=True, type=click.IntRange(1), default=BUDGETS, show_default=True
)
def main(models: Sequence[str], budgets: Sequence[int]) -> None:
    """Print a row for each ladder, budget, traffic and model."""
    for name in models or MODELS:
        for called, its in of_model(name):
            for what, clones, ratios in measured(name, its, budgets):
                middle, low, high = statistics.median(ratios), min(ratios), max(ratios)
                row = f"{name}, {called}, {what}, {clones} clones"
                click.echo(f"{row}: {middle:.3f} ({low:.3f} to {high:.3f})")


def quick() -> list[Figure]:
    """The perceptron, asked as a recommender is, by powers of two."""
    (_, its), *_ = of_model("mlp")
    found = {what: ratios for what, _, ratios in measured("mlp", its)}
    return [Figure.of("mlp, recommender, 8 powers of two by planned", "", found["powers 8"])]
