"""Dispatchers side by side: measured, and as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from bucketize.cli.parameter import Sizes

if TYPE_CHECKING:
    import pandas as pd

    from bucketize.cli.model import Model
    from bucketize.ir import Module

    Modules: TypeAlias = Mapping[str, Module]  # by dispatcher
    Row: TypeAlias = Mapping[str, Any] | pd.Series[Any]

UNTUNED = "untuned"
HOW = """\
by: latency by that of the other in the same round; the median, and half the
distance of the quartiles, expected over the shapes. Where the quartiles hold 1:
same. tuned: kernels on a confirmed schedule, in a clone with a verdict, with a choice.
worst: by the oracle, a static clone tuned for exactly the shape."""


def dispatchers_of(
    model: Model, specs: Sequence[str], points: Sequence[Sizes], policy: str = "exact"
) -> Modules:
    """The module on defaults, behind every dispatcher, and behind the oracle."""
    from bucketize.cli.model import dispatched
    from bucketize.cli.parameter import ORACLE

    options = {"policy": policy, "fallback": True, "points": points}
    wanted = {s: dispatched(model, {**options, "dispatcher": s}) for s in (*specs, ORACLE)}
    return {UNTUNED: model.module, **wanted}


def measured(
    model: Model,
    modules: Modules,
    points: Sequence[Sizes],
    *,
    logs: Mapping[str, Path],
    threads: int,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Latency at the given sizes and cost, with a bar while it goes on."""
    from bucketize.analysis.tradeoff import Case, measure_trade_off
    from bucketize.progress import progress_bar

    with progress_bar("comparing") as progress:
        cases = []
        for i, sizes in enumerate(points):
            progress("the ops' own results", i, len(points))
            cases.append(Case.of(model.module, **model.inputs(sizes)))
        return measure_trade_off(
            modules, cases, log=logs, threads=threads, model=model.name, progress=progress
        )


def shown_latency(latency: pd.DataFrame) -> str:
    """Latency in milliseconds, a row per shape, a column per dispatcher, and how many rounds."""
    from bucketize.analysis import versus_oracle
    from bucketize.cli.table import table

    frame = versus_oracle(latency)
    rows = []
    for shape, of in frame.groupby("shape", sort=False):
        half = (of["latency_q3_s"] - of["latency_q1_s"]) / 2
        cells = [spread(1e3 * s, 1e3 * h) for s, h in zip(of["latency_s"], half, strict=True)]
        by = dict(zip(of["dispatcher"], cells, strict=True))
        rows.append({"ms": shape, **by, "rounds": of["n"].min()})
    return table(rows)


def shown_trade(latency: pd.DataFrame, cost: pd.DataFrame) -> str:
    """What each dispatcher costs, and what it buys beside the module on defaults and the oracle."""
    from bucketize.analysis import trade_off
    from bucketize.cli.parameter import ORACLE
    from bucketize.cli.table import table

    beside = [trade_off(latency, cost, name) for name in (UNTUNED, ORACLE)]
    rows = []
    for i, row in enumerate(cost.to_dict("records")):
        untuned, oracle = (trade.iloc[i] for trade in beside)
        rows.append(
            {
                "dispatcher": row["dispatcher"],
                "clones": row["clones"],
                "compile": f"{row['compile_s']:.1f} s",
                "tuned": f"{row['tuned']}/{row['searched']}/{row['tasks']}",
                "by untuned": f"{shown_ratio(untuned)} {verdict(untuned)}",
                "by oracle": shown_ratio(oracle),
                "worst": f"{oracle['worst_slowdown']:.2f} {oracle['worst_shape']}",
            }
        )
    return f"{table(rows)}\n{HOW}"


def shown_ratio(of: Row) -> str:
    """The slowdown and half the distance of its quartiles."""
    half = (of["mean_slowdown_q3"] - of["mean_slowdown_q1"]) / 2
    return spread(of["mean_slowdown"], half)


def verdict(of: Row) -> str:
    """Whether the slowdown is beyond its spread: `same` where the quartiles hold 1."""
    low, high = of["mean_slowdown_q1"], of["mean_slowdown_q3"]
    return "faster" if high < 1 else "slower" if low > 1 else "same"


def spread(value: float, half: float) -> str:
    """`0.93 ±0.02`."""
    return f"{value:.2f} ±{half:.2f}"
