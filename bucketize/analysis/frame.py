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
    """What was measured beside the oracle: one row per dispatcher and shape, in their order.

    Args:
        latency: columns `dispatcher`, `shape`, `latency_s`; `round` where a shape was measured
            more than once: calls of one round are compared with one another; `weight` if shapes are
            not equally likely. The dispatcher named like `oracle` holds the latency, at each shape,
            of a static clone tuned for exactly that shape.
        oracle: the oracle's name; any dispatcher may be it.

    Returns:
        The columns of `latency` but `round`, with the medians over the `n` rounds of `latency_s`
        and of `slowdown`, the latency by the oracle's in the same round, and their quartiles
        `latency_q1_s`, `latency_q3_s`, `slowdown_q1`, `slowdown_q3`.

    Raises:
        BucketizeError: a shape was not measured on the oracle.

    """
    paired = _paired(latency, oracle)
    groups = paired.groupby(["dispatcher", "shape"], sort=False)
    seconds, slowdown = groups["latency_s"], groups["slowdown"]
    medians = {"n": groups.size(), "latency_s": seconds.median(), "slowdown": slowdown.median()}
    quartiles = {
        "latency_q1_s": seconds.quantile(0.25),
        "latency_q3_s": seconds.quantile(0.75),
        "slowdown_q1": slowdown.quantile(0.25),
        "slowdown_q3": slowdown.quantile(0.75),
    }
    same = groups.first().drop(columns=["round", "latency_s", "slowdown"])
    return same.assign(**medians, **quartiles).reset_index()


def _paired(latency: pd.DataFrame, oracle: str) -> pd.DataFrame:
    """Every call with its `slowdown`: its latency by the oracle's in the same round."""
    calls = latency if "round" in latency else latency.assign(round=0)
    best = calls[calls["dispatcher"] == oracle].set_index(["shape", "round"])["latency_s"]
    known = best.index.unique("shape")
    missing = sorted(set(calls["shape"]) - set(known))
    if missing:
        names = ", ".join(known) or "none"
        raise BucketizeError(f"no latency of {oracle!r} at {', '.join(missing)}; known: {names}")
    oracle_s = calls[["shape", "round"]].join(best, on=["shape", "round"])["latency_s"]
    return calls.assign(slowdown=calls["latency_s"] / oracle_s)


def trade_off(latency: pd.DataFrame, cost: pd.DataFrame, oracle: str = ORACLE) -> pd.DataFrame:
    """What each dispatcher costs and buys: one row per dispatcher, in the order of `cost`.

    Args:
        latency: as for `versus_oracle`.
        cost: a column `dispatcher`; whatever else is in it is kept.
        oracle: the oracle's name.

    Returns:
        The columns of `cost`, then, expected over the shapes, the medians of the latency, `mean_s`,
        and of the slowdown against the oracle, `mean_slowdown`, with its quartiles
        `mean_slowdown_q1` and `mean_slowdown_q3`; `worst_slowdown` at `worst_shape`; `n`, the
        rounds that every shape had at least.

    """
    groups = versus_oracle(latency, oracle).groupby("dispatcher", sort=False)
    rows = [{"dispatcher": name, **_expected(shapes)} for name, shapes in groups]
    return cost.merge(pd.DataFrame(rows), on="dispatcher", how="left")


def _expected(shapes: pd.DataFrame) -> dict[str, Any]:
    """The latency and slowdown of one dispatcher, expected over the shapes."""
    weights = shapes.get("weight", None)
    worst = shapes.iloc[shapes["slowdown"].argmax()]
    return {
        "mean_s": np.average(shapes["latency_s"], weights=weights),
        "mean_slowdown": np.average(shapes["slowdown"], weights=weights),
        "mean_slowdown_q1": np.average(shapes["slowdown_q1"], weights=weights),
        "mean_slowdown_q3": np.average(shapes["slowdown_q3"], weights=weights),
        "worst_slowdown": worst["slowdown"],
        "worst_shape": worst["shape"],
        "n": shapes["n"].min(),
    }
