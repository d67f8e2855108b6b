"""One cell of every benchmark, beside the figures that were accepted on the same processor.

Each runs in a process of its own. What moved by more than its noise comes first: by more than the
spreads of both measurements and `CHANCE`, or at all where no clock has a part in it.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pandas as pd

from benchmarks.figure import EXACT, Figure, SkippedError
from bucketize.cli.table import table
from bucketize.errors import BucketizeError
from bucketize.machine.host import host
from bucketize.machine.target import cores
from bucketize.progress import progress_bar

ACCEPTED = Path(__file__).parent / "quick.csv"
WHOLE_S, CELL_S = 600.0, 120.0
"""Limits of all cells together, and of one."""
CHANCE = 0.05
"""What two processes may differ by for as long as they live, as memory lies."""
KEY = ["cpu", "cores", "benchmark", "name"]
OWN = ("benchmarks", "bucketize", "dispatchers")
COLUMNS = [*KEY, "unit", "median", "low", "high", "date"]


@dataclass(frozen=True)
class Told:
    """What came of the cell of a benchmark: figures, or why there are none."""

    benchmark: str
    figures: tuple[Figure, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Moved:
    """A figure beside the accepted one, if there is one."""

    benchmark: str
    figure: Figure
    before: Figure | None

    @property
    def ratio(self) -> float:
        """Now by before."""
        if self.before is None or self.before.median == self.figure.median:
            return 1.0
        return self.figure.median / self.before.median if self.before.median else math.inf

    @property
    def noise(self) -> float:
        """By how much it may differ without a reason."""
        if self.before is None or self.figure.unit == EXACT:
            return 0.0
        return CHANCE + self.figure.spread + self.before.spread

    @property
    def excess(self) -> float:
        """By how much it moved beyond its noise, either way; below 0 within it."""
        ratio = self.ratio
        return max(ratio, 1 / ratio if ratio else math.inf) - 1 - self.noise

    @property
    def moved(self) -> bool:
        """Whether that is more than its noise."""
        return self.excess > 0

    @property
    def row(self) -> dict[str, Any]:
        """As a table has it."""
        known, figure = self.before, self.figure
        return {
            "": "moved" if self.moved else None if known else "new",
            "benchmark": self.benchmark,
            "figure": figure.name,
            "now": f"{figure.median:.4g}",
            "before": f"{known.median:.4g}" if known else None,
            "unit": figure.unit or None,
            "by before": f"{self.ratio:.2f}" if known else None,
            "noise": f"{self.noise:.2f}" if known else None,
        }


# --- measuring -----------------------------------------------------------------------------------


def measured(benchmark: str, limit_s: float) -> Told:
    """What a process says that runs the cell of a benchmark, if it does in time."""
    paths = os.pathsep.join(p or os.getcwd() for p in sys.path)
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "benchmarks.quick", benchmark],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
        start_new_session=True,  # so that its own processes end with it
    )
    try:
        said, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        return Told(benchmark, why=f"it takes longer than {limit_s:.0f} s")
    finally:
        ended(process)
    lines = [line for line in said.splitlines() if line.startswith("{")]
    if process.returncode or not lines:
        return Told(benchmark, why=f"its process ended with {process.returncode}")
    told: dict[str, Any] = json.loads(lines[-1])
    return Told(benchmark, tuple(Figure(**f) for f in told["figures"]), told["why"])


def ended(process: subprocess.Popen[str]) -> None:
    """End a process and all that it started, unless it has ended."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def cell(benchmark: str) -> Told:
    """The cell of a benchmark, in this process."""
    try:
        module = importlib.import_module(f"benchmarks.{benchmark}")
        return Told(benchmark, tuple(module.quick()))
    except SkippedError as e:
        return Told(benchmark, why=str(e))
    except ModuleNotFoundError as e:
        if (e.name or "").partition(".")[0] in OWN:  # a fault
            raise
        return Told(benchmark, why=f"not installed: {e.name}")
    except BucketizeError as e:
        return Told(benchmark, why=" ".join(str(e).split()))


# --- comparing -----------------------------------------------------------------------------------


def here() -> dict[str, Any]:
    """The machine, as far as figures are compared by it."""
    return {"cpu": host().name, "cores": cores()}


def accepted(path: Path) -> pd.DataFrame:
    """The figures of all machines.

    Raises:
        BucketizeError: the file is none of them.

    """
    if not path.exists():
        return pd.DataFrame(columns=COLUMNS)
    frame = pd.read_csv(path, keep_default_na=False)
    if list(frame.columns) != COLUMNS:
        raise BucketizeError(f"{path} has {', '.join(frame.columns)}, not {', '.join(COLUMNS)}")
    return frame


def compared(told: Iterable[Told], known: pd.DataFrame) -> list[Moved]:
    """All figures beside those of this machine, what moved most first."""
    mine = known[(known["cpu"] == here()["cpu"]) & (known["cores"] == here()["cores"])]
    fields = ["name", "unit", "median", "low", "high"]
    by_name = {(r["benchmark"], r["name"]): Figure(*r[fields]) for _, r in mine.iterrows()}
    found = [
        Moved(each.benchmark, figure, by_name.get((each.benchmark, figure.name)))
        for each in told
        for figure in each.figures
    ]
    return sorted(found, key=lambda m: (not m.moved, m.before is not None, -m.excess))


def accept(path: Path, known: pd.DataFrame, told: Iterable[Told]) -> None:
    """Put figures in the place of this machine's old ones of the same benchmarks."""
    now, at = datetime.now(UTC).isoformat(timespec="seconds"), here()
    rows = [
        {**at, "benchmark": each.benchmark, **asdict(figure), "date": now}
        for each in told
        for figure in each.figures
    ]
    names = {row["benchmark"] for row in rows}
    old = (known["cpu"] == at["cpu"]) & (known["cores"] == at["cores"])
    kept = known[~(old & known["benchmark"].isin(names))]
    frame = pd.DataFrame([*kept.to_dict("records"), *rows], columns=COLUMNS)
    frame.sort_values(KEY, kind="stable").to_csv(path, index=False, float_format="%.9g")


def shown(found: Sequence[Moved], told: Sequence[Told], taken_s: float) -> str:
    """What moved, all figures, and what was not measured."""
    without = [each for each in told if each.why]
    counts = f"{sum(m.moved for m in found)} of {len(found)} figures moved beyond their noise"
    head = f"{here()['cpu']}, {cores()} cores: {counts}; {len(told)} benchmarks, {taken_s:.0f} s"
    skipped = [f"not measured: {each.benchmark}: {each.why}" for each in without]
    return "\n".join([head, *([table([m.row for m in found])] if found else []), *skipped])


def run(benchmarks: Sequence[str], *, accepting: bool, path: Path = ACCEPTED) -> None:
    """Measure a cell of each, print them beside what is known, and accept them if that is asked."""
    known, begin, told = accepted(path), time.monotonic(), []
    with progress_bar("one cell of each") as tell:
        for i, name in enumerate(benchmarks):
            tell(name, i, len(benchmarks))
            left = WHOLE_S - (time.monotonic() - begin)
            late = Told(name, why=f"the {WHOLE_S:.0f} s of all are over")
            told.append(measured(name, min(left, CELL_S)) if left > 0 else late)
    click.echo(shown(compared(told, known), told, time.monotonic() - begin))
    if accepting:
        accept(path, known, told)
        click.echo(f"accepted in {path}", err=True)


def show(benchmark: str) -> None:
    """Measure the cell of one benchmark here, and print it."""
    told = cell(benchmark)
    click.echo(f"not measured: {told.why}" if told.why else table(_rows(told)))


def _rows(told: Told) -> list[dict[str, Any]]:
    spread: Mapping[str, Any]
    rows = []
    for figure in told.figures:
        spread = {"low": f"{figure.low:.4g}", "high": f"{figure.high:.4g}"}
        value = {"figure": figure.name, "median": f"{figure.median:.4g}"}
        rows.append({**value, **spread, "unit": figure.unit or None})
    return rows


def main() -> None:
    """In a process of its own: say what came of the cell that the argument names."""
    told = cell(sys.argv[1])
    print(json.dumps({"figures": [asdict(f) for f in told.figures], "why": told.why}))


if __name__ == "__main__":
    main()
