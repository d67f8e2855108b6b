"""Frames of tuning logs and of what dispatchers buy and cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from bucketize.errors import BucketizeError
from bucketize.tune.choice import best_choice, geometric_mean
from bucketize.tune.frame import table_frame, trial_frame, trials_of
from bucketize.tune.log import Trial, schedule_json, table

TASK = ["host_cpu", "threads", "model", "function", "bucket", "workload", "op"]
BEST = [
    "layer",
    "template",
    "schedule",
    "schedule_hash",
    "relative",
    "shapes",
    "latency_s",
    "gflops",
    "tried",
    "failed",
]
ORACLE = "oracle"


def load(paths: str | Path | Iterable[str | Path]) -> pd.DataFrame:
    """The trials of one or more logs, one row each, with the log's columns in their types.

    `timestamp` is a moment in UTC. Columns that this version does not know are kept as text, after
    the known ones. The last, `gflops`, is the log's `flops` by its `latency_median_s`, in GFLOP/s;
    it is missing for failures, and for workloads that contain no product.
    """
    several = [paths] if isinstance(paths, str | Path) else list(paths)
    frames = [table_frame(table(path)) for path in several] or [trial_frame([])]
    frame = pd.concat(frames, ignore_index=True)
    return frame.assign(gflops=frame["flops"] / frame["latency_median_s"] / 1e9)


def tasks(frame: pd.DataFrame) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """The rows of each task, in order of appearance, and the columns that name it."""
    for key, group in frame.groupby(TASK, sort=False):
        yield dict(zip(TASK, cast("tuple[Any, ...]", key), strict=True)), group


def _trials_by_task(frame: pd.DataFrame) -> Iterator[tuple[dict[str, Any], list[Trial]]]:
    """The trials of each task: thousands of tasks are many small frames, which take seconds."""
    named = attrgetter(*TASK)
    for key, group in _grouped(trials_of(frame), named).items():
        yield dict(zip(TASK, key, strict=True)), group


def _grouped(trials: Iterable[Trial], by: Callable[[Trial], Any]) -> dict[Any, list[Trial]]:
    """Trials by a key, in order of appearance."""
    groups: dict[Any, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(by(trial), []).append(trial)
    return groups


def best_schedules(frame: pd.DataFrame) -> pd.DataFrame:
    """The best schedule of each task: one row per workload and bucket, in order of appearance.

    Columns: those of the task; `layer`, the first that it computes; `template`, `schedule`,
    `schedule_hash`; `relative`, the geometric mean over the `shapes` measured of latency by the
    default's; `latency_s`, the weighted mean over them; `gflops`, the weighted mean work by it, in
    GFLOP/s, missing where the log tells no work; `tried` and `failed`, how many schedules were and
    did. A task whose every schedule failed has no row.
    """
    groups = _trials_by_task(frame)
    found = [task | best for task, trials in groups if (best := _best(trials))]
    return pd.DataFrame(found, columns=[*TASK, *BEST])


def _best(trials: list[Trial]) -> dict[str, Any]:
    choice = best_choice(trials)
    if choice is None:
        return {}
    schedules = _by_schedule(trials)
    latency_s = _mean([t.latency_median_s for t in choice.trials], choice.trials)
    flops = _mean([t.flops for t in choice.trials], choice.trials)
    return {
        "layer": choice.trials[0].layer,
        "template": choice.template,
        "schedule": schedule_json(choice.schedule),
        "schedule_hash": choice.trials[0].schedule_hash,
        "relative": choice.relative,
        "shapes": len(choice.trials),
        "latency_s": latency_s,
        "gflops": flops / latency_s / 1e9,
        "tried": len(schedules),
        "failed": sum(map(_failed, schedules)),
    }


def _mean(values: Iterable[float | None], trials: Iterable[Trial]) -> float:
    return float(np.average(np.array(list(values), float), weights=[t.weight for t in trials]))


def failures(frame: pd.DataFrame) -> pd.DataFrame:
    """How many trials failed, by op and kind of error, with one example of the message."""
    failed = frame[frame["error_kind"] != "none"]
    groups = failed.groupby(["op", "error_kind"], as_index=False, sort=True)
    return groups.agg(trials=("trial", "size"), example=("error", "first"))


def progress(frame: pd.DataFrame) -> pd.DataFrame:
    """The course of each task's search: one row per schedule, in the order tried.

    Columns: those of the task; `step`, counted from 1; `source`; `relative` latency of this
    schedule by the default's (NaN when it failed); `best`, the least of it so far.
    """
    found = [task | step for task, trials in _trials_by_task(frame) for step in _course(trials)]
    return pd.DataFrame(found, columns=[*TASK, "step", "source", "relative", "best"])


def _course(trials: list[Trial]) -> Iterator[dict[str, Any]]:
    best = math.nan
    for step, group in enumerate(_by_schedule(trials), 1):
        relative = math.nan if _failed(group) else geometric_mean(group)
        best = float(np.fmin(best, relative))  # of a number and NaN the number
        yield {"step": step, "source": group[0].source, "relative": relative, "best": best}


def _by_schedule(trials: Iterable[Trial]) -> list[list[Trial]]:
    """The trials of each schedule, in the order in which they were tried first."""
    return list(_grouped(trials, attrgetter("template", "schedule_hash")).values())


def _failed(trials: Iterable[Trial]) -> bool:
    return any(trial.latency_median_s is None for trial in trials)


def versus_oracle(latency: pd.DataFrame, oracle: str = ORACLE) -> pd.DataFrame:
    """The rows of `latency` with `oracle_s` and `slowdown` (1 for the oracle itself) added.

    Args:
        latency: columns `dispatcher`, `shape`, `latency_s` and, if shapes are not equally likely,
            `weight`. The dispatcher named like `oracle` holds the latency, at each shape, of a
            static clone tuned for exactly that shape.
        oracle: the oracle's name.

    Raises:
        BucketizeError: a shape was not measured on the oracle.

    """
    best = latency[latency["dispatcher"] == oracle].set_index("shape")["latency_s"]
    missing = sorted(set(latency["shape"]) - set(best.index))
    if missing:
        known = ", ".join(best.index) or "none"
        raise BucketizeError(f"no latency of {oracle!r} at {', '.join(missing)}; known: {known}")
    oracle_s = latency["shape"].map(best)
    return latency.assign(oracle_s=oracle_s, slowdown=latency["latency_s"] / oracle_s)


def trade_off(latency: pd.DataFrame, cost: pd.DataFrame, oracle: str = ORACLE) -> pd.DataFrame:
    """What each dispatcher costs and buys: one row per dispatcher, in the order of `cost`.

    Args:
        latency: as for `versus_oracle`.
        cost: columns `dispatcher`, `clones`, `kernels` (distinct), `compile_s`, `bytes`.
        oracle: the oracle's name.

    Returns:
        The columns of `cost`, then `mean_s`, the expected latency; `mean_slowdown` and
        `worst_slowdown` against the oracle; `worst_shape`.

    """
    slow = versus_oracle(latency, oracle)
    rows = [
        {"dispatcher": name, **_slowdown(group)}
        for name, group in slow.groupby("dispatcher", sort=False)
    ]
    return cost.merge(pd.DataFrame(rows), on="dispatcher", how="left")


def _slowdown(of: pd.DataFrame) -> dict[str, Any]:
    weights = of.get("weight", None)
    return {
        "mean_s": np.average(of["latency_s"], weights=weights),
        "mean_slowdown": np.average(of["slowdown"], weights=weights),
        "worst_slowdown": of["slowdown"].max(),
        "worst_shape": of["shape"].iloc[of["slowdown"].argmax()],
    }
