"""Frames of tuning logs and of what dispatchers buy and cost."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from bucketize.analysis.column import require
from bucketize.errors import BucketizeError
from bucketize.log.confidence import Interval, of_median
from bucketize.log.frame import table_frame, trial_frame, trials_of
from bucketize.log.log import table
from bucketize.log.trial import CLONE, COLUMNS, KERNEL, Trial, schedule_json
from bucketize.log.verdict import Verdict, geometric_mean, verdicts

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
CONFIRMED = ["host_cpu", "threads", "model", "function", "bucket"]
ORACLE = "oracle"
WHERE = ["model", "host_cpu", "threads", "date"]


def load(paths: str | Path | Iterable[str | Path]) -> pd.DataFrame:
    """The trials of tuning logs.

    Args:
        paths: of one log, or of several.

    Returns:
        A row for each trial, with the log's columns in their types. `timestamp` is a moment in UTC.
        Columns that this version does not know are kept as text, after the known ones. One is
        added: `gflops`, `flops` by `latency_median_s`, in GFLOP/s; it is missing for failures, and
        for workloads that contain no product.

    Raises:
        LogError: a log cannot be read.

    """
    several = [paths] if isinstance(paths, str | Path) else list(paths)
    frames = [table_frame(table(path)) for path in several] or [trial_frame([])]
    return pd.concat(frames, ignore_index=True)


def tasks(frame: pd.DataFrame) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """The trials of each task, in order of appearance.

    Args:
        frame: as of `load`.

    Returns:
        What names a task, by column, and its rows.

    """
    kernels = frame[frame["level"] == KERNEL] if "level" in frame else frame
    for key, group in kernels.groupby(TASK, sort=False):
        yield dict(zip(TASK, cast("tuple[Any, ...]", key), strict=True)), group


def _trials_by_task(frame: pd.DataFrame) -> Iterator[tuple[dict[str, Any], list[Trial]]]:
    """The trials of each task: thousands of tasks are many small frames, which take seconds.

    What was timed in a running clone is no trial of a kernel.
    """
    require(frame, COLUMNS, "load")
    named = attrgetter(*TASK)
    for key, group in _grouped(trials_of(frame[frame["level"] == KERNEL]), named).items():
        yield dict(zip(TASK, key, strict=True)), group


def _grouped(trials: Iterable[Trial], by: Callable[[Trial], Any]) -> dict[Any, list[Trial]]:
    """Trials by a key, in order of appearance."""
    groups: dict[Any, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(by(trial), []).append(trial)
    return groups


def best_schedules(frame: pd.DataFrame) -> pd.DataFrame:
    """The best schedule of each task, in order of appearance.

    Args:
        frame: as of `load`.

    Returns:
        A row per workload and bucket, with the columns of the task; `layer`, the first that it
        computes; `template`, `schedule`, `schedule_hash`; `relative`, the geometric mean over the
        `shapes` measured of latency by the default's; `latency_s`, the weighted mean over them;
        `gflops`, the weighted mean work by it, in GFLOP/s, missing where the log tells no work;
        `tried` and `failed`, how many schedules were and did. A task whose every schedule failed
        has no row.

    """
    groups = _trials_by_task(frame)
    rows = [task | best for task, trials in groups if (best := _best(trials))]
    return pd.DataFrame(rows, columns=[*TASK, *BEST])


def _best(trials: list[Trial]) -> dict[str, Any]:
    best = best_trials(trials)
    if not best:
        return {}
    schedules = _by_schedule(trials)
    latency_s = _mean([t.latency_median_s for t in best], best)
    flops = _mean([t.flops for t in best], best)
    return {
        "layer": best[0].layer,
        "template": best[0].template,
        "schedule": schedule_json(json.loads(best[0].schedule)),
        "schedule_hash": best[0].schedule_hash,
        "relative": geometric_mean(best),
        "shapes": len(best),
        "latency_s": latency_s,
        "gflops": flops / latency_s / 1e9,
        "tried": len(schedules),
        "failed": sum(map(_failed, schedules)),
    }


def best_trials(trials: Iterable[Trial]) -> Sequence[Trial]:
    """The trials, one per shape, of a task's schedule with the least geometric mean latency.

    The geometric mean gives every shape its weight whatever its absolute time. Latencies count
    relative to the default's in the same rounds, so that runs of a busy and of a quiet machine
    compare. Only schedules measured at as many shapes as any are compared; one that failed at a
    shape is out; of repeated measurements the last counts.
    """
    last = {(t.template, t.schedule_hash, t.shape): t for t in trials}
    whole = [group for group in _by_schedule(last.values()) if not _failed(group)]
    most = max(map(len, whole), default=0)
    return min((group for group in whole if len(group) == most), key=geometric_mean, default=())


def _mean(values: Iterable[float | None], trials: Iterable[Trial]) -> float:
    return float(np.average(np.array(list(values), float), weights=[t.weight for t in trials]))


def confirmed(frame: pd.DataFrame) -> pd.DataFrame:
    """What each clone's implementations bought when they were timed in it.

    Args:
        frame: as of `load`.

    Returns:
        A row per clone, with `host_cpu`, `threads`, `model`, `function`, `bucket`; `chosen`, how
        many workloads do not run on their default; `arrangement`, how they are laid out and fused;
        `ratio`, the clone's latency by that on defaults, the weighted geometric mean over the
        `shapes` judged, and the ends of its 95 % interval, `ratio_low` and `ratio_high`: 1 where
        the defaults stay.

    """
    require(frame, COLUMNS, "load")
    by = attrgetter(*CONFIRMED, "clone")  # of a name there may be several
    rows = [
        dict(zip(CONFIRMED, key, strict=False)) | _bought(verdict)
        for key, trials in _grouped(trials_of(frame[frame["level"] == CLONE]), by).items()
        for verdict in verdicts(trials, trials[0].threads).values()
    ]
    columns = [*CONFIRMED, "chosen", "arrangement", "ratio", "ratio_low", "ratio_high", "shapes"]
    return pd.DataFrame(rows, columns=columns)


def _bought(verdict: Verdict) -> dict[str, Any]:
    interval = verdict.interval if verdict.pays else Interval(1.0, 1.0, 1.0)
    assert interval is not None
    return {
        "chosen": len(verdict.configuration.implementations),
        "arrangement": str(verdict.configuration.arrangement),
        "ratio": interval.median,
        "ratio_low": interval.low,
        "ratio_high": interval.high,
        "shapes": "; ".join(row.shape for row in verdict.rows),
    }


def failures(frame: pd.DataFrame) -> pd.DataFrame:
    """How many trials failed, and why.

    Args:
        frame: as of `load`.

    Returns:
        A row by op and kind of error, with one example of the message.

    """
    require(frame, ["op", "error_kind", "trial", "error"], "load")
    failed = frame[frame["error_kind"] != "none"]
    groups = failed.groupby(["op", "error_kind"], as_index=False, sort=True)
    return groups.agg(trials=("trial", "size"), example=("error", "first"))


def progress(frame: pd.DataFrame) -> pd.DataFrame:
    """The course of each task's search.

    Args:
        frame: as of `load`.

    Returns:
        A row per schedule, in the order tried, with the columns of the task; `step`, counted from
        1; `source`; `relative` latency of this schedule by the default's (NaN when it failed);
        `best`, the least of it so far.

    """
    rows = [task | step for task, trials in _trials_by_task(frame) for step in _course(trials)]
    return pd.DataFrame(rows, columns=[*TASK, "step", "source", "relative", "best"])


def _course(trials: list[Trial]) -> Iterator[dict[str, Any]]:
    best = math.nan
    searched = [trial for trial in trials if trial.source != "confirm"]
    for step, group in enumerate(_by_schedule(searched), 1):
        relative = math.nan if _failed(group) else geometric_mean(group)
        best = float(np.fmin(best, relative))  # of a number and NaN the number
        yield {"step": step, "source": group[0].source, "relative": relative, "best": best}


def _by_schedule(trials: Iterable[Trial]) -> list[list[Trial]]:
    """The trials of each schedule, in the order in which they were tried first."""
    return list(_grouped(trials, attrgetter("template", "schedule_hash")).values())


def _failed(trials: Iterable[Trial]) -> bool:
    return any(trial.latency_median_s is None for trial in trials)


def versus_oracle(latency: pd.DataFrame, oracle: str = ORACLE) -> pd.DataFrame:
    """What was measured beside the oracle: one row per dispatcher and shape, in their order.

    Args:
        latency: columns `dispatcher`, `shape`, `latency_s`; `round` where a shape was measured
            more than once: calls of one round are compared with one another; `weight` if shapes are
            not equally likely. The dispatcher named like `oracle` holds the latency, at each shape,
            of a static clone made for exactly that shape: the best that buckets can come to, where
            that clone was tuned.
        oracle: the oracle's name; any dispatcher may be it.

    Returns:
        The columns of `latency` but `round`, with the medians over the `n` rounds of `latency_s`
        and of `slowdown`, the latency by the oracle's in the same round, their quartiles
        `latency_q1_s`, `latency_q3_s`, `slowdown_q1`, `slowdown_q3`, and the ends of the 95 %
        interval of the median, `slowdown_low` and `slowdown_high`, missing of fewer than 6 rounds.

    Raises:
        BucketizeError: a shape was not measured on the oracle, or there are several measurements.

    """
    require(latency, ["dispatcher", "shape", "latency_s"], "measure_trade_off")
    paired = _paired(latency, oracle)
    groups = paired.groupby(["dispatcher", "shape"], sort=False)
    seconds, slowdown = groups["latency_s"], groups["slowdown"]
    medians = {"n": groups.size(), "latency_s": seconds.median(), "slowdown": slowdown.median()}
    quartiles = {
        "latency_q1_s": seconds.quantile(0.25),
        "latency_q3_s": seconds.quantile(0.75),
        "slowdown_q1": slowdown.quantile(0.25),
        "slowdown_q3": slowdown.quantile(0.75),
        "slowdown_low": slowdown.agg(lambda values: _interval(values).low),
        "slowdown_high": slowdown.agg(lambda values: _interval(values).high),
    }
    same = groups.first().drop(columns=["round", "latency_s", "slowdown"])
    return same.assign(**medians, **quartiles).reset_index()


def _interval(values: pd.Series[float]) -> Interval:
    return of_median(values.tolist()) or Interval(math.nan, math.nan, math.nan)


def _paired(latency: pd.DataFrame, oracle: str) -> pd.DataFrame:
    """Every call with its `slowdown`: its latency by the oracle's in the same round."""
    calls = latency if "round" in latency else latency.assign(round=0)
    again = calls[calls.duplicated(["dispatcher", "shape", "round"])]
    if len(again):
        name, shape = again[["dispatcher", "shape"]].iloc[0]
        raise BucketizeError(
            f"{name!r} has two latencies at {shape} in one round: take one measurement at a time, "
            f"by {', '.join(WHERE)}"
        )
    best = calls[calls["dispatcher"] == oracle].set_index(["shape", "round"])["latency_s"]
    shapes = best.index.unique("shape")
    missing = sorted(set(calls["shape"]) - set(shapes))
    if missing:
        names = ", ".join(shapes) or "none"
        raise BucketizeError(f"no latency of {oracle!r} at {', '.join(missing)}; known: {names}")
    oracle_s = calls[["shape", "round"]].join(best, on=["shape", "round"])["latency_s"]
    return calls.assign(slowdown=calls["latency_s"] / oracle_s)


def trade_off(latency: pd.DataFrame, cost: pd.DataFrame, oracle: str = ORACLE) -> pd.DataFrame:
    """What each dispatcher costs and buys: one row per dispatcher, in the order of `cost`.

    Args:
        latency: as for `versus_oracle`.
        cost: a column `dispatcher`; whatever else is in it, such as `measure_trade_off`'s `clones`
            and `compile_s`, is kept.
        oracle: the oracle's name.

    Returns:
        The columns of `cost`, then, expected over the shapes, the medians of the latency, `mean_s`,
        and of the slowdown against the oracle, `mean_slowdown`, with its quartiles
        `mean_slowdown_q1` and `mean_slowdown_q3` and the ends of its 95 % interval,
        `mean_slowdown_low` and `mean_slowdown_high`; `worst_slowdown` at `worst_shape`; `n`, the
        rounds that every shape had at least; all `shapes`, "N=1; N=7"; and those of `model`,
        `host_cpu`, `threads` and `date` that `latency` tells.

    """
    require(cost, ["dispatcher"], "measure_trade_off")
    groups = versus_oracle(latency, oracle).groupby("dispatcher", sort=False)
    rows = [{"dispatcher": name, **_expected(shapes)} for name, shapes in groups]
    return cost.merge(pd.DataFrame(rows), on="dispatcher", how="left")


def _expected(shapes: pd.DataFrame) -> dict[str, Any]:
    """The latency and slowdown of one dispatcher, expected over the shapes."""
    weights = shapes["weight"] if "weight" in shapes else pd.Series(1.0, shapes.index)
    mean = np.average(shapes["slowdown"], weights=weights)
    low, high = (  # errors of the shapes are independent
        math.hypot(*weights * (shapes["slowdown"] - shapes[end])) / weights.sum()
        for end in ("slowdown_low", "slowdown_high")
    )
    worst = shapes.iloc[shapes["slowdown"].argmax()]
    return {
        "mean_s": np.average(shapes["latency_s"], weights=weights),
        "mean_slowdown": mean,
        "mean_slowdown_q1": np.average(shapes["slowdown_q1"], weights=weights),
        "mean_slowdown_q3": np.average(shapes["slowdown_q3"], weights=weights),
        "mean_slowdown_low": mean - low,
        "mean_slowdown_high": mean + high,
        "worst_slowdown": worst["slowdown"],
        "worst_shape": worst["shape"],
        "n": shapes["n"].min(),
        "shapes": "; ".join(shapes["shape"]),
        **{name: shapes[name].iloc[0] for name in WHERE if name in shapes},
    }
