"""The sweep: zoo models beside other engines, in one process, calls taking turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import click

import bucketize
from benchmarks import cell, newshape, picture, report, side, start
from benchmarks.cell import Cell, Row
from benchmarks.figure import Figure, of_cell
from benchmarks.sheet import Sheet
from bucketize import zoo
from bucketize.analysis.benchmark import pause
from bucketize.cli import parameter
from bucketize.cli.command.bench import missing, model_file
from bucketize.ir import Module
from bucketize.machine.host import host
from bucketize.progress import Tell, progress_bar
from bucketize.table import pairs

Points = Sequence[Mapping[str, int]]


def image(n: int, h: int, w: int | None = None) -> dict[str, int]:
    """The sizes of images."""
    return {"N": n, "H": h, "W": w or h}


IMAGES = [
    *(image(1, 96), image(1, 160), image(1, 224), image(1, 288), image(1, 384)),
    *(image(1, 480, 360), image(3, 224), image(8, 224)),
]
LENGTHS = (8, 16, 32, 64, 100, 128, 200, 256, 512)
TOKENS = [*({"B": 1, "S": s} for s in LENGTHS), {"B": 8, "S": 64}]
BATCHES = (1, 2, 3, 4, 8, 16, 17, 32, 64, 100, 128, 256, 300, 512, 1024)
SWEEP: Mapping[str, Points] = {
    "mlp": [{"N": n} for n in BATCHES],
    **dict.fromkeys(("bert-mini", "bert-base"), TOKENS),
    **dict.fromkeys(("mobilenetv2", "resnet18", "resnet50"), IMAGES),
}
_TOKENS = [{"B": 1, "S": s} for s in (8, 32, 128)]
_IMAGES = [image(1, e) for e in (96, 160, 224)]
QUICK: Mapping[str, Points] = {
    "mlp": [{"N": n} for n in (1, 17, 256)],
    **dict.fromkeys(("bert-mini", "bert-base"), _TOKENS),
    **dict.fromkeys(("mobilenetv2", "resnet18", "resnet50"), _IMAGES),
}
THREADS = (1, 2)
NEWNESS = ("new_by_seen", "new_by_seen_median", "new_by_just_seen", "new_by_just_seen_median")
STREAM = ("model", "threads", "engine", "shapes", *NEWNESS, "why", "cpu", "date")


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    points: Mapping[str, Points]
    cell_s: float
    """Of timing, in each cell."""
    least: int
    """Rounds of a cell, however long they take."""
    shapes: Mapping[str, int]
    """Of a stream, by model; of others there is none."""


FULL = Effort(SWEEP, 10.0, 7, dict.fromkeys(SWEEP, newshape.SHAPES))
LITTLE = Effort(QUICK, 1.5, 5, dict.fromkeys(SWEEP.keys() - newshape.FEW.keys(), 16))


def output(_ctx: click.Context, _param: click.Parameter, path: Path | None) -> Path:
    """The folder of the results; without one a new one, named after the time."""
    now = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    return path or Path("bench-output") / now


@click.command()
@click.option("--model", "-m", "models", type=click.Choice(list(SWEEP)), multiple=True)
@click.option("--threads", "-t", type=click.IntRange(1), multiple=True, help="Default: 1 and 2.")
@click.option("--quick", is_flag=True, help="Three sizes on one thread: a minute a model.")
@parameter.at_option
@click.option("--seconds", type=click.FloatRange(min=0), help="Of timing, for each cell.")
@click.option("--tune", type=click.FloatRange(min=0), help="Seconds for each model, into --log.")
@click.option(
    "--log", type=click.Path(path_type=Path), help="Of tuning: run what it confirmed, too."
)
@click.option("--dispatcher", "-d", metavar="SPEC", help="Run behind this dispatcher, too.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    callback=output,
    help="The folder for the results; one with results is gone on with.",
)
def main(
    models: tuple[str, ...],
    threads: tuple[int, ...],
    quick: bool,
    points: tuple[parameter.Sizes, ...],
    out: Path,
    **options: Any,
) -> None:
    """Time bucketize beside onnxruntime, OpenVINO, MNN and torch eager, where they are installed.

    All run in this process, on the same arrays and threads, in float32; outputs are cross-checked,
    then calls take turns, each behind an untimed one of its engine. A ratio is the time by that of
    the best peer in the same round, below 1 bucketize is faster. Then shapes that are new, and, in
    processes of their own, starting with and without a cache, and memory. "of peak" counts the
    operations of products and convolutions, done directly, by what fused multiply-adds reach here.

    Each cell is a few rows of cells.csv as soon as it is measured; beside it are streams.csv,
    starts.csv and bench.png. The same command with --out goes on where it was interrupted.

    \b
    Examples:
      python -m benchmarks bench --quick --model mlp
      python -m benchmarks bench -m resnet18 -t 1 --at N=1,H=224,W=224
      python -m benchmarks bench --tune 60 -d log --out bench-output/tuned
    """
    effort, names = LITTLE if quick else FULL, models or tuple(SWEEP)
    if points:
        effort = replace(effort, points=dict.fromkeys(names, points))
    if options["seconds"] is not None:
        effort = replace(effort, cell_s=options["seconds"])
    out.mkdir(parents=True, exist_ok=True)
    log = options["log"] or (out / "trials.csv" if options["tune"] else None)
    ways = side.Ways(log, options["dispatcher"], options["tune"])
    sweep = Sweep(out, effort, ways, threads or ((1,) if quick else THREADS))
    if others := missing(side.PEERS):
        click.echo(f"not installed, and not compared with: {others}", err=True)
    try:
        for model in names:
            sweep.measure(model)
    except KeyboardInterrupt:
        click.echo(f"interrupted; the same command with --out {out} goes on", err=True)
        click.get_current_context().exit(parameter.INTERRUPTED)
    finally:
        sweep.finish()


class Sweep:
    """What is measured, and where it is kept."""

    def __init__(self, out: Path, effort: Effort, ways: side.Ways, threads: Sequence[int]) -> None:
        self.out, self.effort, self.ways, self.threads = out, effort, ways, threads
        self.cells = Sheet(out / "cells.csv", cell.COLUMNS, cell.KEY)
        self.streams = Sheet(out / "streams.csv", STREAM, ("model", "threads"))
        self.starts = Sheet(out / "starts.csv", start.COLUMNS, ("model", "threads", "engine"))

    def measure(self, model: str) -> None:
        """All that is not yet known of a model, then its tables."""
        with model_file(f"zoo:{model}") as path:
            for threads in self.threads:
                one = Subject(model, path, threads, self.ways)
                if self.ways.tune_s and self.missing(one):
                    self.tune(one)
                with progress_bar(report.heading(model, threads)) as tell:
                    self.measure_cells(one, tell)
                    if threads == self.threads[0]:
                        self.measure_stream(one, tell)
                        self.measure_starts(one, tell)
                self.show(one)

    def tune(self, one: Subject) -> None:
        """Tune for the sizes that are measured, as far as the log does not know enough."""
        assert self.ways.log is not None, "what is tuned has a log"
        bucketize.tune(
            [one.module, side.dispatched(one.module, self.ways)],
            log=self.ways.log,
            seconds=self.ways.tune_s,
            sizes=[dict(sizes) for sizes in self.effort.points[one.model]],
            threads=one.threads,
            model=one.model,
            progress=True,
        )

    def missing(self, one: Subject) -> list[Cell]:
        """The cells that are not measured yet."""
        cells = [Cell(one.model, sizes, one.threads) for sizes in self.effort.points[one.model]]
        return [each for each in cells if not self.cells.has(each.key)]

    def measure_cells(self, one: Subject, tell: Tell) -> None:
        """Measures the cells that are missing."""
        cells, effort = self.missing(one), (self.effort.cell_s, self.effort.least)
        for i, each in enumerate(cells):
            sizes = each.key[1]
            tell(f"{sizes}: first calls", i, len(cells))
            inputs, flops = zoo.inputs(one.model, each.sizes), cell.flops(one.module, each.sizes)
            step = partial(told, tell, sizes, i, len(cells))
            self.cells.add(each.rows(one.sides, inputs, flops, effort, step))

    def measure_stream(self, one: Subject, tell: Tell) -> None:
        """Shapes that nobody has seen, if that is missing."""
        shapes = self.effort.shapes.get(one.model)
        if shapes is None or self.streams.has((one.model, one.threads)):
            return
        tell("a stream of new shapes", 0, 1)
        inputs = newshape.stream(one.model, shapes)
        runs = {name: session.run for name, session in one.sides.sessions.items()}
        taken, refused = newshape.steps(runs, inputs, pause(one.threads))
        same: Row = {"model": one.model, "threads": one.threads, "shapes": len(inputs), **where()}
        rows = [same | {"engine": name} | newness(times) for name, times in taken.items()]
        for name, why in (one.sides.refused | refused).items():
            rows.append(same | {"engine": name, "why": why})
        self.streams.add(rows)

    def measure_starts(self, one: Subject, tell: Tell) -> None:
        """First answers and memory, as far as they are missing."""
        names = [start.NOTHING, *one.ways.names, *side.PEERS]
        sizes = QUICK[one.model][-1]
        same: Row = {"model": one.model, "threads": one.threads, **where()}
        same["sizes"] = pairs(dict(sizes))
        for i, name in enumerate(names):
            if self.starts.has((one.model, one.threads, name)):
                continue
            tell(f"starting {name} in a process of its own", i, len(names))
            found = start.started(name, one.model, one.path, sizes, one.threads, one.ways)
            self.starts.add([same | {"engine": name} | found])

    def show(self, one: Subject) -> None:
        """Print what is known of a model on some threads."""
        click.echo(f"\n== {report.heading(one.model, one.threads)}")
        told = {}
        for sheet in (self.cells, self.streams, self.starts):
            frame = sheet.frame
            told[sheet] = frame[(frame["model"] == one.model) & (frame["threads"] == one.threads)]
        if not told[self.cells].empty:
            click.echo(report.shown_cells(told[self.cells]))
        for sheet, columns in ((self.streams, STREAM[2:-3]), (self.starts, start.COLUMNS[3:-3])):
            if not told[sheet].empty:
                click.echo(f"\n{report.shown_rows(told[sheet], columns)}")

    def finish(self) -> None:
        """Print the means of all models, and draw the picture."""
        if self.cells.frame.empty:
            return
        click.echo(f"\n{report.shown_summary(self.cells.frame)}")
        picture.drawn(self.cells.frame, self.out / "bench.png")
        click.echo(f"wrote the tables and bench.png to {self.out}/", err=True)


@dataclass(frozen=True)
class Subject:
    """A model on some threads, made and started when first asked for."""

    model: str
    path: Path
    threads: int
    ways: side.Ways

    @cached_property
    def module(self) -> Module:
        """What bucketize reads."""
        return bucketize.from_onnx(self.path, bounds=zoo.BOUNDS[self.model])

    @cached_property
    def sides(self) -> side.Sides:
        """All that run it."""
        return side.opened(self.module, self.path, self.threads, self.ways)


def told(tell: Tell, sizes: str, done: int, cells: int, what: str, call: int, of: int) -> None:
    """A step inside a cell."""
    tell(f"{sizes}: {what}, {call} of {of}", done, cells)


def newness(times: list[newshape.Times]) -> Row:
    """What a new shape costs, as columns."""
    seen, just = (newshape.ratios(times, of) for of in (newshape.SEEN, newshape.JUST_SEEN))
    return dict(zip(NEWNESS, (*seen, *just), strict=True))


def where() -> Row:
    """The machine and the day."""
    return {"cpu": host().name, "date": datetime.now(UTC).isoformat(timespec="seconds")}


def quick() -> list[Figure]:
    """One model at one size beside all engines that are installed."""
    model, sizes = "resnet18", image(1, 224)
    with model_file(f"zoo:{model}") as path:
        one = Subject(model, path, 1, side.Ways())
        for why in one.sides.refused.values():
            click.echo(f"bench: {why}", err=True)
        inputs, flops = zoo.inputs(model, sizes), cell.flops(one.module, sizes)
        effort = LITTLE.cell_s, LITTLE.least
        return of_cell(Cell(model, sizes, 1).rows(one.sides, inputs, flops, effort))


if __name__ == "__main__":
    main()
