"""Exported architectures beside onnxruntime: what is read, how soon it runs, and how fast."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import click
import pandas as pd

import bucketize
from benchmarks import cell
from benchmarks.bench import told, where
from benchmarks.catalog import ARCHITECTURES
from benchmarks.cell import Cell, Row
from benchmarks.export import EXPORTERS, FILES, exported, file_name
from benchmarks.figure import Figure, needs, of_cell
from benchmarks.report import heading, summary
from benchmarks.sheet import Sheet
from benchmarks.side import Sides, theirs
from bucketize.analysis.benchmark import OURS
from bucketize.analysis.cost import cache_in
from bucketize.call import bind_shapes
from bucketize.cli import parameter
from bucketize.cli.command.bench import ours
from bucketize.cli.table import records, table
from bucketize.errors import BucketizeError, EngineError
from bucketize.executable import Executable
from bucketize.ir import Module
from bucketize.op import Array
from bucketize.progress import Tell, progress_bar

Bounds: TypeAlias = Mapping[str, tuple[int, int]]

PEER = "onnxruntime"
SECONDS, LEAST = 1.0, 7  # of timing, for each cell; rounds of it
COLUMNS = ("model", "threads", "cold_s", "kernels", "host", "why", "cpu", "date")
"""Of what was read: seconds of `from_onnx` and `compile` without kernels; ops on the host."""


@click.command()
@click.option(
    *("--model", "-m", "models"),
    type=click.Choice(list(ARCHITECTURES)),
    multiple=True,
    metavar="NAME",
    help=f"Default: all, {', '.join(ARCHITECTURES)}.",
)
@click.option("--exporter", "-e", "exporters", type=click.Choice(EXPORTERS), multiple=True)
@click.option("--threads", "-t", type=click.IntRange(1), default=1, show_default=True)
@click.option("--seconds", type=click.FloatRange(min=0), default=SECONDS, show_default=True)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=FILES,
    show_default=True,
    help="The folder for files, kernels and results; one with results is gone on with.",
)
def main(
    models: tuple[str, ...], exporters: tuple[str, ...], threads: int, seconds: float, out: Path
) -> None:
    """Time bucketize on exported architectures beside onnxruntime.

    torchvision and transformers make them, small, with random weights; torch exports them with
    dynamic axes, by dynamo and by TorchScript (pip install 'bucketize[architectures]'). Each file
    is compiled without kernels in the cache ("cold"), its outputs are held against onnxruntime's,
    then calls take turns, each behind an untimed one of its engine, --seconds at each size. A ratio
    is the time by onnxruntime's in the same round, below 1 bucketize is faster. "host" are the ops
    that no template takes. What is not exported, read or run is named with the reason.

    Files stay in --out, beside files.csv and cells.csv: the same command goes on where it was
    interrupted, and without these two it measures anew.

    \b
    Examples:
      python -m benchmarks architectures -m gpt2 -m llama -e dynamo
      python -m benchmarks architectures --threads 2 --out bench-output/exported
    """
    out.mkdir(parents=True, exist_ok=True)
    study = Study(out, threads, seconds)
    wanted = [(name, by) for name in models or ARCHITECTURES for by in exporters or EXPORTERS]
    try:
        for name, exporter in wanted:
            study.measure(name, exporter)
    except KeyboardInterrupt:
        click.echo(f"interrupted; the same command with --out {out} goes on", err=True)
        click.get_current_context().exit(parameter.INTERRUPTED)
    finally:
        click.echo(shown(study.files.frame, study.cells.frame))


@dataclass(frozen=True)
class Subject:
    """A file that bucketize takes."""

    path: Path
    mod: Module
    exe: Executable
    seconds: float
    """Of reading and compiling it."""

    @classmethod
    def read(cls, path: Path, bounds: Bounds, threads: int) -> Subject:
        """Read and compile a file.

        Raises:
            BucketizeError: of whatever kind, where bucketize does not take it.

        """
        start = time.perf_counter()
        mod = bucketize.from_onnx(path, bounds=bounds)
        exe = bucketize.compile(mod, threads=threads)
        return cls(path, mod, exe, time.perf_counter() - start)

    @property
    def told(self) -> Row:
        """What came of it, as columns."""
        counts = self.exe.counts
        host = " ".join(f"{op}:{n}" for op, n in sorted(counts.host.items()))
        return {"cold_s": self.seconds, "kernels": counts.kernels, "host": host}

    @cached_property
    def sides(self) -> Sides:
        """Sides that run it."""
        threads = self.exe.program.threads
        sides = Sides({OURS: ours(self.exe, {"threads": threads, "log": None, "dispatcher": None})})
        try:
            sides.sessions[PEER] = theirs(PEER, self.path, threads)
        except EngineError as e:
            sides.refused[PEER] = str(e)
        return sides

    def rows(
        self, each: Cell, inputs: Mapping[str, Array], seconds: float, tell: Tell
    ) -> list[Row]:
        """Rows of a cell, or the one that says why bucketize does not run there."""
        params = self.mod.main.params
        wanted = {p.name: inputs[p.name] for p in params}  # an exporter may leave some out
        sizes = bind_shapes(params, [array.shape for array in wanted.values()])
        effort = seconds, LEAST
        try:
            return each.rows(self.sides, wanted, cell.flops(self.mod, sizes), effort, tell)
        except BucketizeError as e:
            key = dict(zip(cell.KEY, each.key, strict=True))
            return [{**key, **where(), "engine": OURS, "why": one_line(e)}]


class Study:
    """What is measured, and where it is kept."""

    def __init__(self, out: Path, threads: int, seconds: float) -> None:
        self.out, self.threads, self.seconds = out, threads, seconds
        self.files = Sheet(out / "files.csv", COLUMNS, ("model", "threads"))
        self.cells = Sheet(out / "cells.csv", cell.COLUMNS, cell.KEY)

    def measure(self, name: str, exporter: str) -> None:
        """All that is not yet known of an architecture by one exporter."""
        made, model = ARCHITECTURES[name], file_name(name, exporter)
        key = model, self.threads
        cells = [Cell(model, sizes, self.threads) for sizes in made.points]
        missing = [each for each in cells if not self.cells.has(each.key)]
        known = self.files.has(key)
        if known and (not missing or self.failed(key)):
            return
        with progress_bar(heading(*key)) as tell, kernels(self.out / f"{model}.kernels", known):
            tell("exporting, reading and compiling", 0, len(missing))
            same: Row = {"model": model, "threads": self.threads, **where()}
            try:
                path = exported(name, exporter, self.out)
                one = Subject.read(path, made.bounds, self.threads)
            except BucketizeError as e:
                self.files.add([same | {"why": one_line(e)}])
                return
            if not known:
                self.files.add([same | one.told])
            for i, each in enumerate(missing):
                sizes = each.key[1]
                tell(f"{sizes}: first calls", i, len(missing))
                step = partial(told, tell, sizes, i, len(missing))
                inputs = made.arrays(each.sizes)
                self.cells.add(one.rows(each, inputs, self.seconds, step))

    def failed(self, key: tuple[str, int]) -> bool:
        """Whether a file is known as one that is not exported or not taken."""
        return by_file(self.files.frame)[key]["why"] is not None


@contextmanager
def kernels(folder: Path, kept: bool) -> Iterator[None]:
    """Take compiled kernels from this folder alone; it is empty unless they are to be `kept`."""
    if not kept:
        shutil.rmtree(folder, ignore_errors=True)
    with cache_in(folder):
        yield


def one_line(e: BucketizeError) -> str:
    """An error for a column."""
    return " ".join(str(e).split())


# --- tables --------------------------------------------------------------------------------------


def by_file(files: pd.DataFrame) -> dict[tuple[str, int], Row]:
    """The rows of files by model and threads, None where there is nothing."""
    return {(row["model"], row["threads"]): row for row in records(files)}


def shown(files: pd.DataFrame, cells: pd.DataFrame) -> str:
    """A row for each cell, the mean, the worst, and what is missing for which reason."""
    known, ran = by_file(files), cells[cells["why"].isna()]
    rows = [
        shown_cell({row["engine"]: row for row in records(of)}, known)
        for _, of in ran.groupby(list(cell.KEY), sort=False)
    ]
    lines = [table(rows)]
    if found := summary(cells.assign(sizes=cells["model"] + " " + cells["sizes"])):
        mean = f"geometric mean {found.mean:.3f} of {found.cells}"
        lines.append(f"by {PEER}: {mean}, worst {found.worst:.2f}, {found.where}")
    lines += [f"{r['model']}: {r['why']}" for r in records(files) if r["why"]]
    lines += [f"{r['model']} at {r['sizes']}: {r['why']}" for r in records(cells) if r["why"]]
    return "\n".join(lines)


def shown_cell(of: Mapping[str, Row], files: Mapping[tuple[str, int], Row]) -> Row:
    """A row: ours, and theirs unless they do not run."""
    mine = of[OURS]
    file = files[mine["model"], mine["threads"]]
    return {
        "model": mine["model"],
        "sizes": mine["sizes"],
        "ms": milliseconds(mine),
        f"{PEER} ms": milliseconds(of.get(PEER, {})),
        "ratio": quartiles(mine),
        "error": f"{mine['error']:.0e}",
        "cold s": f"{file['cold_s']:.1f}",
        "kernels": int(file["kernels"]),
        "host": file["host"] or None,  # read from a file it is None
    }


def milliseconds(row: Row) -> str | None:
    """The median, if there is one."""
    return f"{1e3 * row['time_s']:.3f}" if row else None


def quartiles(row: Row) -> str | None:
    """The ratio, with its quartiles, if there is one."""
    if row["ratio"] is None:
        return None
    return f"{row['ratio']:.2f} ({row['ratio_q1']:.2f}-{row['ratio_q3']:.2f})"


def quick() -> list[Figure]:
    """One architecture at its first size; its file is kept, its kernels are not."""
    needs("torch", "torchvision", PEER)
    name, exporter = "squeezenet", "torchscript"
    made, model = ARCHITECTURES[name], file_name(name, exporter)
    FILES.mkdir(parents=True, exist_ok=True)
    path, sizes = exported(name, exporter, FILES), made.points[0]
    with TemporaryDirectory() as folder, kernels(Path(folder), kept=True):
        one = Subject.read(path, made.bounds, 1)
        rows = one.rows(Cell(model, sizes, 1), made.arrays(sizes), SECONDS, lambda *_: None)
    return [Figure.of(f"{model}, read and compiled", "s", [one.seconds]), *of_cell(rows)]


if __name__ == "__main__":
    main()
