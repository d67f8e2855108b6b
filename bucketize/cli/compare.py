"""Dispatchers side by side: measured, and as text."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from bucketize.cli.model import NamedModel, dispatched
from bucketize.cli.parameter import ORACLE, READING, Sizes
from bucketize.cli.table import WIDTH, fitting, narrow
from bucketize.progress import estimated

if TYPE_CHECKING:
    import pandas as pd

    from bucketize.analysis.tradeoff import Survey
    from bucketize.ir import Module

    Modules: TypeAlias = Mapping[str, Module]  # by dispatcher
    Row: TypeAlias = Mapping[str, Any] | pd.Series[Any]

UNTUNED = "untuned"
DEFAULTS = ("default", "float32", 1)  # of options that `tune` has, too
MODULES = {"none": "none, tuned"}
"""How a module is called in a table, beside the untuned one, which has no buckets either."""
HOW = """vs: latency divided by that of the other in the same round, below 1 is faster; the median,
expected over the shapes, and how far its 95 % interval reaches towards 1: by that it is faster,
slower, the same within 2 %, or unclear. tuned: kernels on a schedule of the log / in
clones that were tuned / that have a choice. worst: the shape that is furthest from the oracle."""


def dispatchers_of(
    model: NamedModel, specs: Sequence[str], points: Sequence[Sizes], policy: str = "exact"
) -> Modules:
    """The module on defaults, behind every dispatcher, and behind the oracle."""
    options = {"policy": policy, "fallback": True, "points": points}
    wanted = {s: dispatched(model, {**options, "dispatcher": s}) for s in (*specs, ORACLE)}
    return {UNTUNED: model.module, **wanted}


def distinct(points: Sequence[Sizes], weights: Iterable[float]) -> list[tuple[Sizes, float]]:
    """Each size once; what is given again is as likely as both together."""
    by_size: dict[frozenset[tuple[str, int]], tuple[Sizes, float]] = {}
    for sizes, weight in zip(points, weights, strict=True):
        key = frozenset(sizes.items())
        by_size[key] = sizes, weight + (by_size[key][1] if key in by_size else 0.0)
    return list(by_size.values())


def measured(
    model: NamedModel,
    modules: Modules,
    points: Sequence[tuple[Sizes, float]],
    *,
    logs: Mapping[str, Path],
    threads: int,
    seconds: float | None = None,
) -> tuple[Survey, bool]:
    """Latency at the given sizes, by their weights, and cost; and whether that was interrupted.

    There is a bar while it goes on, until all is measured, time is up, or Ctrl-C.
    """
    from bucketize.analysis.tradeoff import Case, Survey

    cases = [Case.of(model.module, weight, **model.inputs(sizes)) for sizes, weight in points]
    limit = math.inf if seconds is None else seconds
    with estimated(True, "comparing") as tell:
        survey = Survey(modules, cases, logs, threads, model.name, limit, tell)
        try:
            survey.work()
        except KeyboardInterrupt:
            return survey, True
    return survey, False


def untuned_shapes(latency: pd.DataFrame) -> list[str]:
    """Where the oracle is not what it ought to be: the log has no word on its clone."""
    oracle = latency[latency["dispatcher"] == ORACLE]
    return list(oracle[~oracle["clone_tuned"].astype(bool)]["shape"].unique())


def shown_oracle(latency: pd.DataFrame) -> str:
    """What the oracle is, shape by shape."""
    lacking, every = untuned_shapes(latency), list(latency["shape"].unique())
    tuned = [shape for shape in every if shape not in lacking]
    by_state = [("tuned", tuned), ("on default schedules", lacking)]
    here = ["; ".join(shapes) if tuned and lacking else "" for _, shapes in by_state]
    states = [f"{s} at {at}" if at else s for (s, of), at in zip(by_state, here, strict=True) if of]
    return f"oracle: a static clone for exactly the shape, {', '.join(states)}."


def tuning_command(shapes: Sequence[str], log: Path, model: str, options: Mapping[str, Any]) -> str:
    """The command that tunes the oracle at some shapes, with what else must be the same."""
    words = ["bucketize", "tune", model]
    for symbol, (lo, hi, *step) in dict(options["bounds"]).items():
        words += [
            "--dim",
            ":".join([f"{symbol}={lo}..{'' if hi is None else hi}", *map(str, step)]),
        ]
    words += ["-d", "oracle"]
    for shape in shapes:
        words += ["--at", shape]
    reading = click.get_current_context().meta.get(READING, {})
    for name, value in (*sorted(reading.items()), ("threads", options["threads"])):
        if value not in DEFAULTS:
            words += [f"--{name}", str(value)]
    return shlex.join([*words, "--log", str(log)])


def shown_latency(latency: pd.DataFrame) -> str:
    """Latency in milliseconds, a row per shape, a column per dispatcher, and how many rounds."""
    from bucketize.analysis import versus_oracle

    frame = versus_oracle(latency)
    rows = []
    for shape, of in frame.groupby("shape", sort=False):
        half = (of["latency_q3_s"] - of["latency_q1_s"]) / 2
        cells = [spread(1e3 * s, 1e3 * h) for s, h in zip(of["latency_s"], half, strict=True)]
        by = dict(zip(of["dispatcher"], cells, strict=True))
        rows.append({"ms": shape, **by, **weight(of, frame), "rounds": of["n"].min()})
    return narrow(rows)


def weight(of: pd.DataFrame, frame: pd.DataFrame) -> dict[str, float]:
    """The weight of a shape, where they are not all alike."""
    if "weight" not in frame or frame["weight"].nunique() < 2:
        return {}
    return {"weight": of["weight"].iloc[0]}


def shown_trade(latency: pd.DataFrame, cost: pd.DataFrame) -> str:
    """What each dispatcher costs, and what it buys beside the module on defaults and the oracle."""
    from bucketize.analysis import trade_off

    beside = [trade_off(latency, cost, name) for name in (UNTUNED, ORACLE)]
    rows = []
    for i, row in enumerate(cost.to_dict("records")):
        untuned, oracle = (trade.iloc[i] for trade in beside)
        rows.append(
            {
                "dispatcher": MODULES.get(row["dispatcher"], row["dispatcher"]),
                "clones": row["clones"],
                **shown_cost(row),
                "vs untuned": f"{shown_ratio(untuned)} {verdict(untuned)}",
                "vs oracle": shown_ratio(oracle),
                "worst": f"{oracle['worst_slowdown']:.2f} {oracle['worst_shape']}",
            }
        )
    notes = (fitting(note, WIDTH) for note in (" ".join(HOW.split()), shown_oracle(latency)))
    return "\n".join([narrow(rows), *notes])


def shown_cost(row: Mapping[Any, Any]) -> dict[str, str | None]:
    """What a dispatcher costs; nothing where that was not reached."""
    if row["compile_s"] != row["compile_s"]:  # it is NaN
        return {"compile": None, "tuned": None}
    tuned = "/".join(f"{row[name]:.0f}" for name in ("tuned", "searched", "tasks"))
    return {"compile": f"{row['compile_s']:.1f} s", "tuned": tuned}


def shown_ratio(of: Row) -> str:
    """The slowdown, and how far what holds it reaches towards 1."""
    ratio, (low, high) = of["mean_slowdown"], ends(of)
    return spread(ratio, high - ratio if ratio < 1 else ratio - low)


def ends(of: Row) -> tuple[float, float]:
    """What holds the slowdown with 95 % certainty; of too few rounds, its quartiles."""
    low, high = of["mean_slowdown_low"], of["mean_slowdown_high"]
    if low is not None and low <= high:  # a frame has NaN where there is none
        return low, high
    return of["mean_slowdown_q1"], of["mean_slowdown_q3"]


def verdict(of: Row) -> str:
    """What the slowdown comes to by all rounds: `faster`, `slower`, `same` or `unclear`."""
    from bucketize.log import confidence

    low, high = of["mean_slowdown_low"], of["mean_slowdown_high"]
    return "unclear" if low is None or high is None else confidence.verdict(low, high)


def spread(value: float, half: float) -> str:
    """`0.93 ±0.02`."""
    return f"{value:.2f} ±{half:.2f}"
