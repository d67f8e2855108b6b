"""Exhaustive grids: every implementation of kernels at sizes of all kinds, for `replay`.

`python -m benchmarks grids` adds to `tuning_logs/<processor>-<name>.csv` what is missing there.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

import click
import numpy as np

from benchmarks.architectures import kernels
from benchmarks.figure import Figure
from benchmarks.rest import rest
from bucketize.ir import Atom, Builder, Const, Module, Var, specialise
from bucketize.kernel.gemm.cost import ProductCost, best, cold_bytes
from bucketize.kernel.schedule import Implementation
from bucketize.kernel.templates import candidates
from bucketize.kernel.workload import Workload
from bucketize.log.environment import here
from bucketize.measure.job import Repeats
from bucketize.measure.runner import Worker
from bucketize.ops import add, conv2d, matmul, relu
from bucketize.tune.api import opened
from bucketize.tune.options import Options
from bucketize.tune.search import Proposal
from bucketize.tune.session import TuningSession
from bucketize.tune.task import Point, Task, tasks_of
from bucketize.types import Dim, Symbol, tensor

LOGS = Path(__file__).parent.parent / "tuning_logs"
ROWS = (1, 2, 3, 5, 8, 13, 17, 32, 64, 100, 256)
DENSE = ((256, 256), (1024, 1024), (768, 3072), (3072, 768), (2048, 1000))  # depth, columns
CONV = (  # extent, channels in, channels out, window, stride
    *((224, 3, 64, 7, 2), (56, 64, 64, 3, 1), (56, 64, 128, 3, 2)),
    *((28, 128, 128, 3, 1), (14, 256, 256, 3, 1), (7, 512, 512, 3, 1)),
    *((56, 64, 256, 1, 1), (28, 512, 128, 1, 1), (14, 1024, 256, 1, 1), (7, 960, 160, 1, 1)),
)
DEPTHWISE = ((112, 32, 1), (112, 96, 2), (56, 144, 1), (14, 576, 1), (7, 960, 1))
HEADS, WIDTH = 12, 64
LENGTHS = (8, 16, 64, 128, 384)
FILTERS = (
    *((8, 64, 64), (4, 128, 128), (2, 256, 256), (8, 32, 48), (2, 192, 96)),
    *[(1, 512, 512)] * 4,
)
"""Extents of an image by `E`, channels in, channels out; together they have as many weights as a
model: beside 13 MiB Winograd's of 512 channels took 0.8 of the time (median)."""
IMAGES = (*((1, e) for e in (1, 2, 3, 4, 5, 7, 9, 12)), (3, 2), (3, 7))  # batch, E
COPIES, COLD_ROWS = 18, (1, 16, 128)  # of 18 MiB of weights
TRIALS = 10**6  # all of them
REFINED, ROUNDS, QUICK = 15, Repeats(15, 200, 0.06), Repeats(9, 200, 0.03)


def dense() -> tuple[Module, list[Mapping[str, int]]]:
    """Layers of a perceptron, side by side: together they have as many weights as a model."""
    return layers(DENSE, ROWS)


def layers(
    shapes: Sequence[tuple[int, int]], sizes: Sequence[int]
) -> tuple[Module, list[Mapping[str, int]]]:
    """Products with constants of these shapes, at numbers of rows."""
    rows, out = Symbol("M", 1, 256), Builder()
    inputs, results = [], []
    for depth, columns in shapes:
        x = Var(f"x{depth}", tensor("float32", rows, depth))
        y = out.emit(matmul, x, _constant(depth, columns))
        inputs.append(x)
        results.append(out.emit(relu, out.emit(add, y, _constant(columns))))
    return _module(out, inputs, results), [{"M": m} for m in sizes]


def convolution() -> tuple[Module, list[Mapping[str, int]]]:
    """Convolutions and depthwise ones of image models, at their own sizes.

    What the latter read lies padded: so were they recorded, before they could pad themselves.
    """
    batch, out = Symbol("N", 1, 4), Builder()
    inputs, results = [], []
    shapes = [(*shape, 1) for shape in CONV] + [(e, c, c, 3, s, c) for e, c, s in DEPTHWISE]
    for i, (extent, channels, wanted, window, stride, groups) in enumerate(shapes):
        pad, given = (0, extent + window // 2 * 2) if groups > 1 else (window // 2, extent)
        x = Var(f"x{i}", tensor("float32", batch, channels, given, given))
        weights = _constant(wanted, channels // groups, window, window)
        pads = (pad,) * 4
        y = out.emit(conv2d, x, weights, pads=pads, strides=(stride, stride), groups=groups)
        inputs.append(x)
        results.append(out.emit(relu, out.emit(add, y, _constant(1, wanted, 1, 1))))
    return _module(out, inputs, results), [{"N": 1}]


def filters() -> tuple[Module, list[Mapping[str, int]]]:
    """Convolutions of 3 x 3 and stride 1, of which sizes decide how they are best computed."""
    batch, extent, out = Symbol("N", 1, 4), Symbol("E", 1, 12), Builder()
    inputs, results = [], []
    for i, (times, channels, wanted) in enumerate(FILTERS):
        x = Var(f"x{i}", tensor("float32", batch, channels, extent * times, extent * times))
        weights = _constant(wanted, channels, 3, 3)
        y = out.emit(conv2d, x, weights, pads=(1, 1, 1, 1))
        inputs.append(x)
        results.append(out.emit(relu, out.emit(add, y, _constant(1, wanted, 1, 1))))
    return _module(out, inputs, results), [{"N": n, "E": e} for n, e in IMAGES]


def attention() -> tuple[Module, list[Mapping[str, int]]]:
    """The two products of attention, neither of a constant."""
    length, out = Symbol("S", 1, 512), Builder()
    shapes: list[tuple[Dim, Dim]]
    shapes = [(length, WIDTH), (WIDTH, length), (length, length), (length, WIDTH)]
    inputs = [Var(f"x{i}", tensor("float32", HEADS, *s)) for i, s in enumerate(shapes)]
    results = [out.emit(matmul, inputs[0], inputs[1]), out.emit(matmul, inputs[2], inputs[3])]
    return _module(out, inputs, results), [{"S": s} for s in LENGTHS]


def cold() -> tuple[Module, list[Mapping[str, int]]]:
    """Layers of two shapes, with more weights in all than the last cache holds."""
    rows, out = Symbol("M", 1, 256), Builder()
    x = Var("x", tensor("float32", rows, 768))
    weights = [_constant(768, 3072), _constant(3072, 768)]
    results: list[Atom] = []
    for _ in range(COPIES):
        y: Atom = x
        for weight in weights:
            y = out.emit(matmul, y, Const(weight.value.copy()))
        results.append(y)
    return _module(out, [x], results), [{"M": m} for m in COLD_ROWS]


def _constant(*shape: int) -> Const:
    return Const(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


def _module(out: Builder, inputs: Sequence[Var], results: Sequence[Atom]) -> Module:
    return Module({"main": out.function("main", inputs, results)})


Grid: TypeAlias = Callable[[], tuple[Module, list[Mapping[str, int]]]]
GRIDS: Mapping[str, Grid] = {"dense": dense, "convolution": convolution, "attention": attention}
"""Where much is to choose."""
LEVELS: Mapping[str, Grid] = {"rest": rest, "cold": cold, "filters": filters}
"""Where what a kernel takes is of more interest than how its schedules compare."""


@click.command()
@click.option(
    "--grid",
    "-g",
    "names",
    type=click.Choice([*GRIDS, *LEVELS]),
    multiple=True,
    help="Default: all.",
)
def main(names: tuple[str, ...]) -> None:
    """Record exhaustive grids, or go on with them: tuning_logs/<processor>-<grid>.csv."""
    grids = {**GRIDS, **LEVELS}
    for name in names or grids:
        log = LOGS / f"{here().host_cpu}-{name}.csv"
        print(f"{log.name}: {recorded(name, grids[name], log, TRIALS)} rows added")


def recorded(name: str, grid: Grid, log: Path, trials: int) -> int:
    """Add what is missing in a log, at most so many trials of a kernel; how many rows."""
    module, sizes = grid()
    with (
        Worker(has_clock=False) as worker,  # nothing to confirm: there is no model
        opened(
            module,
            Options(
                log=log,
                trials=trials,
                search="grid",
                sizes=sizes,
                until=0.0,
                model=name,
                measurer=worker,
                progress=True,
            ),
        ) as session,
    ):
        if name in GRIDS:
            session.work()
            refine(session)
        level(session, tasks_of(module, sizes, fixed=True), WANTED[name])
    return len(session.written)


def refine(session: TuningSession) -> None:
    """Time the best of each size again: the best of many noisy ones looks better than it is."""
    for task in session.tasks:
        for point in task.points:
            best = _best(session, task, point)
            asked = [Proposal(made, "confirm") for made in best]
            job = task.job(point, best, session.options.threads, ROUNDS)
            ((_, outcomes),) = session.site.measured([job])
            session.record(task, point, asked, outcomes)


def level(session: TuningSession, tasks: Sequence[Task], wanted: Wanted) -> None:
    """Time some implementations of each kernel, also of those without a choice.

    A grid takes hours, in which others may keep the machine busy; this takes seconds.
    """
    for task in tasks:
        for point in task.points:
            job = task.job(point, wanted(task, point), session.options.threads, QUICK)
            ((_, (default, *others)),) = session.site.measured([job])
            for one, outcome in zip(job.implementations, (default, *others), strict=True):
                session.write(task, point, Proposal(one, "confirm"), outcome, default)


def default(task: Task, _: Point) -> list[Implementation]:
    """The default alone."""
    return [task.default]


def every(task: Task, _: Point) -> list[Implementation]:
    """All schedules of all templates."""
    return list(task.space.points)


def detours(task: Task, point: Point) -> list[Implementation]:
    """The first template's defaults, and all schedules of those that may be chosen over it."""
    first, *others = candidates(task.workload)
    both = task.workload, narrow(task.workload, point)
    direct = [Implementation(first.name, first.default(w, task.target)) for w in both]
    names = {template.name for template in others if template.cost is not None}
    made = [*direct, *(made for made in task.space.points if made.template in names)]
    return list({one.key: one for one in made}.values())


def narrow(workload: Workload, point: Point) -> Workload:
    """It at the sizes of a point alone."""
    return Workload(specialise(workload.body, point.sizes), workload.constant)


Wanted: TypeAlias = Callable[[Task, Point], list[Implementation]]
WANTED: Mapping[str, Wanted] = {
    **dict.fromkeys(GRIDS, default),
    **dict.fromkeys(LEVELS, every),
    "filters": detours,
}
"""What `level` times of each grid."""


def _best(session: TuningSession, task: Task, point: Point) -> list[Implementation]:
    """The fastest at a point, by the default of the same rounds, and the default."""
    known = session.database.of_task(task)
    costs = {
        key: trial.latency_median_s / trial.baseline_s
        for key, by_shape in known.items()
        if (trial := by_shape.get(point.shape)) is not None
        and trial.latency_median_s
        and trial.baseline_s
    }
    keys = sorted(costs, key=lambda key: costs[key])[:REFINED]
    points = [task.space.points[task.space.index[key]] for key in keys]
    points = list({made.key: made for made in (*_defaults(task, point), *points)}.values())
    return [task.default, *(made for made in points if made.key != task.default.key)]


def _defaults(task: Task, point: Point) -> list[Implementation]:
    """What the model says is best at a point."""
    found = []
    for template in candidates(task.workload):
        cost = template.cost and template.cost(task.workload)
        if isinstance(cost, ProductCost):
            product = cost.product([point.sizes], cold_bytes(task.target))
            found.append(Implementation(template.name, best(product, task.target)))
    return found


def quick() -> list[Figure]:
    """What a row takes: some schedules of one product at one size, compiled anew."""
    with tempfile.TemporaryDirectory() as folder, kernels(Path(folder), kept=True):
        start = time.perf_counter()
        rows = recorded("dense", partial(layers, DENSE[:1], (16,)), Path(folder) / "log.csv", 12)
        taken = time.perf_counter() - start
    return [Figure.of("a row of dense", "s", [taken / rows])]


if __name__ == "__main__":
    main()
