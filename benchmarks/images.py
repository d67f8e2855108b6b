"""Images of unequal sizes through `run_many`, by each alone: those of equal size may share a call.

Sizes are those of COCO's photographs, scaled so that the longer side has at most 256 pixels.
"""

from __future__ import annotations

import statistics

import click
import numpy as np

import bucketize
from benchmarks.figure import Figure
from benchmarks.many import Feed, Pass, timed
from bucketize import zoo
from bucketize.executable import Executable
from bucketize.zoo.traffics import traffic

MODELS = ("mobilenetv2", "resnet18")
SCALE = 0.4  # of 640 pixels
SIDES = (32, 256)
ROUNDS = 3


def requests(count: int) -> list[Feed]:
    """Images, as many of each size as come."""
    its = traffic("images").scaled(H=SCALE, W=SCALE)
    dice = np.random.default_rng(0)
    drawn = dice.choice(len(its.sizes), count, p=its.requests / its.requests.sum())
    sizes = np.clip(its.sizes[drawn], *SIDES).tolist()
    return [{"data": dice.random((1, 3, h, w), np.float32)} for h, w in sizes]


def measured(exe: Executable, feeds: list[Feed]) -> tuple[list[float], int, int]:
    """The time of `run_many` by that of each alone, calls, and how many run side by side."""
    sides: dict[str, Pass] = {
        "one by one": lambda: [exe.run(**feed) for feed in feeds],
        "run_many": lambda: exe.run_many(feeds),
    }
    rounds = [{name: timed(once) for name, once in sides.items()} for _ in range(ROUNDS + 1)][1:]
    plan = exe.plan_many(feeds)
    return [r["run_many"] / r["one by one"] for r in rounds], len(plan.calls), plan.lanes


def compiled(model: str, threads: int) -> Executable:
    """A model at any of the sizes."""
    bounds = {"N": (1, 16), "H": SIDES, "W": SIDES}
    return bucketize.compile(bucketize.from_onnx(zoo.build(model), bounds=bounds), threads=threads)


@click.command()
@click.option("-m", "--model", "models", multiple=True, type=click.Choice(MODELS))
@click.option("-t", "--threads", type=click.IntRange(1), default=1, show_default=True)
@click.option("--count", type=click.IntRange(2), default=256, show_default=True)
def main(models: tuple[str, ...], threads: int, count: int) -> None:
    """Print the ratio for each model."""
    for model in models or MODELS:
        ratios, calls, lanes = measured(compiled(model, threads), requests(count))
        middle, spread = statistics.median(ratios), f"{min(ratios):.3f} to {max(ratios):.3f}"
        click.echo(
            f"{model}, {count} images, {threads} threads: {middle:.3f} ({spread}), {calls} calls, "
            f"{lanes} at a time"
        )


def quick() -> list[Figure]:
    """A few images through mobilenetv2."""
    ratios, *_ = measured(compiled("mobilenetv2", 1), requests(8))
    return [Figure.of("mobilenetv2, images, run_many by one by one", "", ratios)]
