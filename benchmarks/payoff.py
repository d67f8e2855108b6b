"""What tuning and buckets buy: one sweep for three dispatchers, then latency at ten sizes each.

All executables are called in turn, on one thread, in several new processes, each compiled first in
one of them: where memory lies may make one faster or slower for as long as its process lives. What
stands for a size is the geometric mean of the processes' ratios, behind it the least and the
greatest. `again` is the untuned module once more: how far from 1 chance alone takes a ratio. No
size is a bucket's edge.
`BUCKETIZE_SECONDS` of tuning for each model, into a log of its own, or, with `BUCKETIZE_LOG`, into
one that others share.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import geometric_mean, median
from typing import ParamSpec, TypeVar

import bucketize
from benchmarks.figure import Figure, ratios
from bucketize import zoo
from bucketize.analysis import confirmed
from bucketize.ir import Module
from bucketize.timing import interleaved, processor_seconds
from dispatchers import log_dispatcher, uniform_dispatcher

P = ParamSpec("P")
T = TypeVar("T")

SECONDS = 120.0
LEAST, ENOUGH_S = 5, 0.5  # rounds at a size, and seconds, in each process
PROCESSES = 5  # as many as executables: each of them is compiled first in one
COLUMNS = ("again", "none", "log", "uniform", "log/none")
IMAGE = (40, 50, 72, 90, 110, 150, 180, 210, 300, 350)
ROWS = (3, 5, 6, 11, 13, 22, 45, 90, 150, 200)
MODELS: Mapping[str, tuple[dict[str, tuple[int, int]], list[dict[str, int]]]] = {
    "mlp": ({"N": (1, 256)}, [{"N": n} for n in ROWS]),
    "bert-mini": ({"B": (1, 1), "S": (1, 256)}, [{"B": 1, "S": s} for s in ROWS]),
    "resnet18": (
        {"N": (1, 1), "H": (32, 384), "W": (32, 384)},
        [{"N": 1, "H": s, "W": s} for s in IMAGE],
    ),
    "mobilenetv2": (
        {"N": (1, 1), "H": (32, 384), "W": (32, 384)},
        [{"N": 1, "H": s, "W": s} for s in IMAGE],
    ),
}


Bounds = Mapping[str, tuple[int, int]]
Sizes = Mapping[str, int]
Rounds = dict[str, list[float]]
"""The seconds of each executable, round by round."""


def main() -> None:
    """Print a table for each model of `BUCKETIZE_MODELS`, by default all."""
    names = os.environ.get("BUCKETIZE_MODELS", ",".join(MODELS)).split(",")
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            log = Path(os.environ.get("BUCKETIZE_LOG", f"{folder}/{name}.csv"))
            report(name, log, float(os.environ.get("BUCKETIZE_SECONDS", SECONDS)))


def report(name: str, log: Path, seconds: float) -> None:
    """Tune a model, and print what came of it."""
    bounds, sizes = MODELS[name]
    print(apart(tuned, name, bounds, log, seconds), flush=True)
    rounds = [apart(timed, name, bounds, sizes, log, turn) for turn in range(PROCESSES)]
    print(f"  {'size':>6}{'untuned':>11}" + "".join(f"{n:>21}" for n in COLUMNS))
    found = []
    for at, *processes in zip(sizes, *rounds, strict=True):
        by = {n: [_ratio(process, n) for process in processes] for n in COLUMNS}
        found.append({n: geometric_mean(ratios) for n, ratios in by.items()})
        shown = "".join(f"{_shown(by[n]):>21}" for n in COLUMNS)
        untuned = median(s for process in processes for s in process["untuned"])
        print(f"  {list(at.values())[-1]:>6}{1e3 * untuned:>8.3f} ms{shown}")
    means = {n: geometric_mean([by[n] for by in found]) for n in COLUMNS}
    worst = {n: max(by[n] for by in found) for n in COLUMNS}
    for title, values in (("mean", means), ("worst", worst)):
        print(f"  {title:>6}{'':>11}" + "".join(f"{v:>13.3f}{'':8}" for v in values.values()))


def apart(call: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """What a function returns in a new process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(call, *given, **named).result()


def modules(name: str, bounds: Bounds) -> dict[str, Module]:
    """The model behind each dispatcher."""
    mod = bucketize.from_onnx(zoo.build(name), bounds=bounds)
    return {
        "none": mod,
        "log": bucketize.dispatch(mod, log_dispatcher),
        "uniform": bucketize.dispatch(mod, uniform_dispatcher.with_options(count=4)),
    }


def tuned(name: str, bounds: Bounds, log: Path, seconds: float) -> str:
    """Tune for all dispatchers in one sweep; what came of it."""
    start = time.perf_counter()
    mods = modules(name, bounds)
    rows = bucketize.tune(list(mods.values()), log=log, seconds=seconds, model=name)
    took = time.perf_counter() - start
    searched = rows[rows["source"] != "confirm"]
    told = confirmed(rows)
    paid = f"{int((told['ratio'] < 1).sum())} of {len(told)} clones are faster than on defaults"
    trials = f"{len(rows)} trials, {len(searched)} of them searched, in {took:.0f} s"
    return f"{name}: {trials}\n  {paid}"


def timed(name: str, bounds: Bounds, sizes: Sequence[Sizes], log: Path, turn: int) -> list[Rounds]:
    """At each size the seconds of the untuned module, twice, and of all with what was confirmed.

    In each process (`turn`) another is compiled first.
    """
    mods = modules(name, bounds)
    asked = [("untuned", "none", None), *((n, n, log) for n in mods), ("again", "none", None)]
    ordered = asked[turn:] + asked[:turn]
    exes = {n: bucketize.compile(mods[mod], log=by) for n, mod, by in ordered}
    found = []
    for at in sizes:
        inputs = zoo.inputs(name, dict(at))
        runs = {n: partial(exe.run, **inputs) for n, exe in exes.items()}
        taken = interleaved(
            runs, least=LEAST, enough_s=ENOUGH_S, before=runs, stopwatch=processor_seconds
        )
        found.append({n: list(seconds) for n, seconds in taken.items()})
    return found


def _ratio(taken: Rounds, column: str) -> float:
    """The median of the rounds' ratios, of one executable by another, or by the untuned module."""
    ours, _, theirs = column.partition("/")
    pairs = zip(taken[ours], taken[theirs or "untuned"], strict=True)
    return median(a / b for a, b in pairs)


def _shown(found: Sequence[float]) -> str:
    return f"{geometric_mean(found):.3f} ({min(found):.2f}-{max(found):.2f})"


def quick() -> list[Figure]:
    """Mlp at one size, tuned for some seconds, in one process."""
    bounds, sizes = {"N": (16, 31)}, {"N": 22}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "mlp.csv"
        apart(tuned, "mlp", bounds, log, 8.0)
        (taken,) = apart(timed, "mlp", bounds, [sizes], log, 0)
    return [
        Figure.of(f"mlp {column} by untuned", "", ratios(taken[column], taken["untuned"]))
        for column in ("again", "none", "log")
    ]


if __name__ == "__main__":
    main()
