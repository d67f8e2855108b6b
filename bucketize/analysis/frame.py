"""Frames of tuning logs and of what dispatchers buy and cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from bucketize.errors import BucketizeError
from bucketize.tune.choice import best_choice, geometric_mean
from bucketize.tune.frame import trial_frame, trials_of
from bucketize.tune.log import Trial, lines, schedule_json

TASK = ["host_cpu", "threads", "model", "function", "bucket", "workload", "op"]
ORACLE = "oracle"


def load(paths: str | Path | Iterable[str | Path]) -> pd.DataFrame:
    """The trials of one or more logs, one row each, with the log's columns in their types.

    Columns that this version does not know are kept as text, after the known ones.
    """
    several = [paths] if isinstance(paths, str | Path) else list(paths)
    read = [line for path in several for line in lines(path)]
    return trial_frame([trial for trial, _ in read], [extra for _, extra in read])


def tasks(frame: pd.DataFrame) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """The rows of each task, in order of appearance, and the columns that name it."""
    for key, group in frame.groupby(TASK, sort=False):
        yield dict(zip(TASK, cast("tuple[Any, ...]", key), strict=True)), group


def best_schedules(frame: pd.DataFrame) -> pd.DataFrame:
    """The best schedule of each task: one row per workload and bucket, in order of appearance.

    Columns: those of the task; `schedule`, `schedule_hash`; `relative`, the geometric mean over the
    `shapes` measured of latency by the default's; `latency_s`, the weighted mean over them; `tried`
    and `failed`, how many schedules were and did. A task whose every schedule failed has no row.
    """
    found = [task | best for task, group in tasks(frame) if (best := _best(group))]
    measured = ["schedule", "schedule_hash", "relative", "shapes", "latency_s", "tried", "failed"]
    return pd.DataFrame(found, columns=[*TASK, *measured])


def _best(task: pd.DataFrame) -> dict[str, Any]:
    choice = best_choice(trials_of(task))
    if choice is None:
        return {}
    failed = task["latency_median_s"].isna().groupby(task["schedule_hash"]).any()
    return {
        "schedule": schedule_json(choice.schedule),
        "schedule_hash": choice.trials[0].schedule_hash,
        "relative": choice.relative,
        "shapes": len(choice.trials),
        "latency_s": _mean([t.latency_median_s for t in choice.trials], choice.trials),
        "tried": len(failed),
        "failed": int(failed.sum()),
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
    parts = [_course(group).assign(**task) for task, group in tasks(frame)]
    columns = [*TASK, "step", "source", "relative", "best"]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def _course(task: pd.DataFrame) -> pd.DataFrame:
    groups = list(_by_schedule(trials_of(task)).values())
    course = pd.DataFrame(
        {
            "step": range(1, len(groups) + 1),
            "source": [group[0].source for group in groups],
            "relative": [_relative(group) for group in groups],
        }
    )
    return course.assign(best=course["relative"].cummin().ffill())


def _by_schedule(trials: Iterable[Trial]) -> dict[str, list[Trial]]:
    """The trials of each schedule, in the order in which they were tried first."""
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(trial.schedule_hash, []).append(trial)
    return groups


def _relative(trials: list[Trial]) -> float:
    failed = any(trial.latency_median_s is None for trial in trials)
    return float("nan") if failed else geometric_mean(trials)


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
