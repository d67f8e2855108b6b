"""Requests of mixed lengths through encoders: packed, padded, one by one; other engines, sorted.

`run_many` packs rows of a ragged module. Beside it, on the same requests: our own padded batches of
32 in the order of arrival, each request alone, and the engines that are installed, each with the
requests sorted by length and the best batch size of 1, 2, 4, 8, 16, 32, which a first pass finds;
onnxruntime also by padded batches of 32 in order. All in turns; what stands for each is its time by
that of `run_many`, the median of the passes with the least and the greatest. Results of all are
compared with those of each request alone.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import click
import numpy as np
import onnx

import bucketize
from benchmarks.figure import Figure
from bucketize import zoo
from bucketize.analysis.engines import ENGINES, Run, session
from bucketize.op import Array
from bucketize.traffic.value import Traffic
from bucketize.zoo import bert
from bucketize.zoo.traffics import traffic

Feed = dict[str, Array]
Pass = Callable[[], Iterable[Sequence[Array]]]

WORDS = 30_000
SIZES = (1, 2, 4, 8, 16, 32)
IN_ORDER = 32
PASSES = 3
MODELS = {
    "bert-mini": partial(zoo.build, "bert-mini"),
    "minilm": partial(bert.encoder, "minilm", 0, layers=6, hidden=384, heads=12),
    "bert-base": partial(zoo.build, "bert-base"),
}
TOKENS = {"bert-mini": 40_000, "minilm": 20_000, "bert-base": 8_000}
"""About as many in all requests: a pass takes some seconds."""
MOST = 512  # requests
AGREED = 5e-3  # MNN's transformers differ from all others by 2e-4
LENGTHS = ("chunks", "queries", "log-normal", "equal")
EQUAL, LONGEST = 128, 512  # tokens of a request


def lengths(name: str, tokens: int) -> list[int]:
    """Lengths of requests, drawn from a traffic, of about so many tokens in all."""
    if name == "equal":
        return [EQUAL] * min(MOST, tokens // EQUAL)
    its: Traffic = traffic(name).without_times()
    shares = its.requests / its.requests.sum()
    count = min(MOST, int(tokens / float(its.sizes[:, 0] @ shares)))
    drawn = np.random.default_rng(0).choice(its.sizes[:, 0], count, p=shares)
    return [int(n) for n in np.clip(drawn, 1, LONGEST)]


def feeds(sizes: Sequence[int]) -> list[Feed]:
    """A request of each length."""
    dice = np.random.default_rng(1)
    ids = [dice.integers(0, WORDS, (1, n)) for n in sizes]
    return [{"input_ids": i, "attention_mask": np.ones_like(i)} for i in ids]


def batches(requests: Sequence[Feed], size: int) -> list[Feed]:
    """Requests in groups of this size, each padded to the longest of its group."""
    together = []
    for begin in range(0, len(requests), size):
        group = requests[begin : begin + size]
        width = max(r["input_ids"].shape[1] for r in group)
        together.append(
            {
                name: np.concatenate(
                    [np.pad(r[name], ((0, 0), (0, width - r[name].shape[1]))) for r in group]
                )
                for name in group[0]
            }
        )
    return together


def by_batches(run: Run, requests: Sequence[Feed], size: int) -> Pass:
    """A pass over requests in padded groups; padding is part of it."""
    return lambda: [run(batch) for batch in batches(requests, size)]


def timed(once: Pass) -> float:
    """Seconds of a pass."""
    begin = time.perf_counter()
    once()
    return time.perf_counter() - begin


def passes(model: str, requests: list[Feed], threads: int) -> tuple[dict[str, Pass], float]:
    """A pass of each side by its name, and the worst error of `run_many` by each alone.

    Those of the others may not be greater than `AGREED`, or they would compute something else.
    """
    mod = bucketize.from_onnx(MODELS[model]())
    exe = bucketize.compile(mod, threads=threads)
    packed = bucketize.compile(bucketize.ragged(mod), threads=threads)

    def ours(feed: Mapping[str, Array]) -> Sequence[Array]:
        return exe.run(**feed)

    ordered = sorted(requests, key=lambda r: r["input_ids"].shape[1])
    sides: dict[str, Pass] = {
        "run_many": lambda: packed.run_many(requests),
        "one by one": lambda: [ours(r) for r in requests],
        f"padded, {IN_ORDER} in order": by_batches(ours, requests, IN_ORDER),
        "padded, sorted": best(ours, ordered),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{model}.onnx"
        onnx.save(MODELS[model](), path)
        for name, engine in ENGINES.items():
            if engine.is_installed:
                run = session(name, path, threads).run
                sides[f"{name}, sorted"] = best(run, ordered)
                if name == "onnxruntime":
                    sides[f"{name}, {IN_ORDER} in order"] = by_batches(run, requests, IN_ORDER)
    alone = [ours(r)[0] for r in requests]
    wanted = {id(request): result for request, result in zip(requests, alone, strict=True)}
    for side, once in sides.items():
        order = requests if side.endswith(("many", "one", "in order")) else ordered
        off = max(map(difference, each(once(), order), [wanted[id(r)] for r in order]))
        if off > AGREED:
            raise click.ClickException(f"{side} is {off:.1e} off what each request comes to alone")
    packed_errors = map(difference, [r[0] for r in packed.run_many(requests)], alone)
    return sides, max(packed_errors)


def each(results: Iterable[Sequence[Array]], requests: Sequence[Feed]) -> list[Array]:
    """The result of each request of a pass, its padding cut off."""
    rows = [row for result in results for row in result[0]]
    pairs = zip(rows, requests, strict=True)
    return [row[None, : request["input_ids"].shape[1]] for row, request in pairs]


def difference(one: Array, other: Array) -> float:
    """The greatest of two results."""
    return float(np.abs(one - other).max())


def best(run: Run, ordered: list[Feed]) -> Pass:
    """The pass over sorted requests of the batch size that takes least."""
    tried = {size: by_batches(run, ordered, size) for size in SIZES}
    taken = {size: timed(once) for size, once in tried.items()}
    return tried[min(taken, key=lambda size: taken[size])]


def measured(
    model: str, name: str, threads: int, tokens: int
) -> tuple[Mapping[str, list[float]], int, float, float]:
    """Each side's time by that of `run_many`, how many requests, a second, and the worst error."""
    requests = feeds(lengths(name, tokens))
    sides, error = passes(model, requests, threads)
    rounds = [{side: timed(once) for side, once in sides.items()} for _ in range(PASSES + 1)][1:]
    ratios = {side: [r[side] / r["run_many"] for r in rounds] for side in sides}
    rate = len(requests) / statistics.median(r["run_many"] for r in rounds)
    return ratios, len(requests), rate, error


@click.command()
@click.option("-m", "--model", "models", multiple=True, type=click.Choice(list(MODELS)))
@click.option("-l", "--lengths", "names", multiple=True, type=click.Choice(LENGTHS))
@click.option("-t", "--threads", type=click.IntRange(1), default=1, show_default=True)
def main(models: Sequence[str], names: Sequence[str], threads: int) -> None:
    """Print a row for each side, lengths and model."""
    for model in models or MODELS:
        for name in names or LENGTHS:
            ratios, count, rate, error = measured(model, name, threads, TOKENS[model])
            head = f"{model}, {name}, {count} requests"
            click.echo(f"{head}: {rate:.1f} a second, within {error:.1e} of each alone")
            for side, each in ratios.items():
                middle, low, high = statistics.median(each), min(each), max(each)
                click.echo(f"  {side}: {middle:.3f} ({low:.3f} to {high:.3f})")


def quick() -> list[Figure]:
    """Short queries through bert-mini, each alone by packed."""
    ratios, *_ = measured("bert-mini", "queries", 1, 2_000)
    return [Figure.of("bert-mini, queries, one by one by run_many", "", ratios["one by one"])]
