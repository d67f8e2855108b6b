"""What a log of neighbours spares: trials until none is worth it, with their log and without.

Each pair is tuned into one log, the second after the first, and the second once more into an empty
one; `until` is the only limit. A trial is an implementation of a workload in a bucket, other than
its default.
`BUCKETIZE_PAIRS` names some of them.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

import bucketize
from benchmarks.figure import Figure
from bucketize import zoo
from bucketize.ir import Module

UNTIL = 0.01
Sizes = Sequence[Mapping[str, int]]
Bounds = Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class Job:
    """A model, and where it is tuned."""

    name: str
    bounds: Bounds
    sizes: Sizes | str = "bounds"
    intervals: tuple[tuple[int, int], ...] = ()
    """Of the first symbol, if the model is dispatched."""

    def module(self) -> Module:
        """What is tuned."""
        mod = bucketize.from_onnx(zoo.build(self.name), bounds=dict(self.bounds))
        if not self.intervals:
            return mod
        first = mod.functions["main"].params[0].name
        return bucketize.dispatch(mod, lambda _: {first: {0: list(self.intervals)}})


IMAGE: Bounds = {"N": (1, 1), "H": (32, 224), "W": (32, 224)}
ROWS, HALVES = {"N": (1, 256)}, ((1, 16), (16, 257))
PAIRS: Mapping[str, tuple[Job, Job]] = {
    "two buckets of mlp": (
        Job("mlp", ROWS, [{"N": n} for n in (1, 4, 15)], HALVES),
        Job("mlp", ROWS, [{"N": n} for n in (16, 64, 256)], HALVES),
    ),
    "resnet18, resnet34": (Job("resnet18", IMAGE), Job("resnet34", IMAGE)),
    "bert-mini to S = 64, to 128": (
        Job("bert-mini", {"B": (1, 1), "S": (1, 64)}),
        Job("bert-mini", {"B": (1, 1), "S": (1, 128)}),
    ),
}


def main() -> None:
    """Print a row for each pair."""
    names = [n for n in os.environ.get("BUCKETIZE_PAIRS", ";".join(PAIRS)).split(";") if n]
    print(f"{'':30}{'first':>8}{'second':>8}{'alone':>8}  second by first, by alone")
    for name in names:
        first, second = PAIRS[name]
        with tempfile.TemporaryDirectory() as folder:
            together, apart = Path(folder) / "together.csv", Path(folder) / "apart.csv"
            found = [tuned(first, together), tuned(second, together), tuned(second, apart)]
        one, two, alone = found
        cells = "".join(f"{n:>8}" for n in found)
        by = ", ".join(f"{two / n:.2f}" if n else "-" for n in (one, alone))
        print(f"{name:30}{cells}  {by}", flush=True)


def tuned(job: Job, log: Path) -> int:
    """Tune until nothing is worth a trial, and count them."""
    rows = bucketize.tune(job.module(), log=log, sizes=job.sizes, until=UNTIL, trials=10**6)
    return trials(rows)


def trials(rows: pd.DataFrame) -> int:
    """Implementations that a session has searched, each once for a workload in a bucket.

    A default is timed beside them, and is no trial.
    """
    searched = rows[~rows["source"].isin(["confirm", "default"])]
    what = ["function", "bucket", "workload", "template", "schedule_hash"]
    return len(searched.drop_duplicates(what))


def quick() -> list[Figure]:
    """Two small neighbours."""
    first, second = (Job("mlp", {"N": (1, n)}, [{"N": n}]) for n in (4, 8))
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.csv"
        one, two = (tuned(job, log) for job in (first, second))
    return [
        Figure.of("trials of mlp at N=4", "trials", [one]),
        Figure.of("then at N=8", "trials", [two]),
    ]


if __name__ == "__main__":
    main()
