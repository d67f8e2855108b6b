"""What tuning and buckets buy: one sweep for three dispatchers, then latency at ten sizes each.

All executables are called in turn, on one thread; `again` is the untuned module once more: how far
from 1 chance alone takes a ratio. No size is a bucket's edge. `BUCKETIZE_SECONDS` of tuning for
each model, into a log of its own, or, with `BUCKETIZE_LOG`, into one that others share.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import geometric_mean

import bucketize
from bucketize import zoo
from bucketize.analysis import confirmed
from bucketize.ir import Module
from bucketize.runtime.executable import Executable
from bucketize.timing import interleaved, processor_seconds
from bucketize.tune.choice import Interval
from bucketize.tune.interval import of_median, ratios
from dispatchers import log_dispatcher, uniform_dispatcher

SECONDS = 120.0
LEAST, ENOUGH_S = 15, 2.0  # rounds at a size
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
    mod = bucketize.from_onnx(zoo.build(name), bounds=bounds)
    mods = {
        "none": mod,
        "log": bucketize.dispatch(mod, log_dispatcher),
        "uniform": bucketize.dispatch(mod, uniform_dispatcher.with_options(count=4)),
    }
    start = time.perf_counter()
    rows = bucketize.tune(list(mods.values()), log=log, seconds=seconds, model=name)
    took = time.perf_counter() - start
    searched = rows[rows["source"] != "confirm"]
    print(f"{name}: {len(rows)} trials, {len(searched)} of them searched, in {took:.0f} s")
    exes = compiled(mods, log)
    told = confirmed(rows)
    print(f"  {int((told['ratio'] < 1).sum())} of {len(told)} clones are not on defaults alone")
    print(f"  {'size':>6}{'untuned':>11}" + "".join(f"{n:>21}" for n in COLUMNS))
    found = [_at(exes, name, at) for at in sizes]
    for at, (seconds_, by) in zip(sizes, found, strict=True):
        shown = "".join(f"{_shown(by[n]):>21}" for n in COLUMNS)
        print(f"  {list(at.values())[-1]:>6}{seconds_ * 1e3:>8.3f} ms{shown}", flush=True)
    means = {n: geometric_mean([by[n].median for _, by in found]) for n in COLUMNS}
    print(f"  {'mean':>6}{'':>11}" + "".join(f"{m:>13.3f}{'':8}" for m in means.values()))


def compiled(mods: Mapping[str, Module], log: Path) -> dict[str, Executable]:
    """The module on defaults, and every one with what the log confirmed."""
    tuned = {name: bucketize.compile(mod, log=log) for name, mod in mods.items()}
    untuned = {name: bucketize.compile(mods["none"]) for name in ("untuned", "again")}
    return {**untuned, **tuned}


def _at(
    exes: Mapping[str, Executable], name: str, sizes: Mapping[str, int]
) -> tuple[float, dict[str, Interval]]:
    """Seconds of the untuned module, and ratios to it, and of log to none."""
    inputs = zoo.inputs(name, dict(sizes))
    runs = {n: partial(exe.run, **inputs) for n, exe in exes.items()}
    taken = interleaved(
        runs, least=LEAST, enough_s=ENOUGH_S, before=runs, stopwatch=processor_seconds
    )
    by = {n: _ratio(taken[n], taken["untuned"]) for n in exes if n != "untuned"}
    by["log/none"] = _ratio(taken["log"], taken["none"])
    return sorted(taken["untuned"])[len(taken["untuned"]) // 2], by


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> Interval:
    found = of_median(ratios([(ours, theirs)], [1.0]))
    assert found is not None
    return found


def _shown(ratio: Interval) -> str:
    return f"{ratio.median:.3f} ({ratio.low:.2f}-{ratio.high:.2f})"


if __name__ == "__main__":
    main()
