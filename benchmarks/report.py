"""What a sweep came to, as text: tables, geometric means, worst cells."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import pandas as pd

from benchmarks.cell import KEY
from benchmarks.side import DISPATCHED, PEERS, TUNED
from bucketize.analysis.benchmark import OURS
from bucketize.cli.table import records, table
from bucketize.program.program import threads_text

WAYS = {OURS: "defaults", TUNED: "tuned", DISPATCHED: "dispatched"}


@dataclass(frozen=True)
class Summary:
    """One way of bucketize over the cells of a model, beside the best peer of each."""

    mean: float
    """The geometric mean of the ratios."""
    worst: float
    where: str
    """The sizes of the worst."""
    cells: int


def summary(frame: pd.DataFrame, way: str = OURS) -> Summary | None:
    """A summary of rows of cells; None where nothing was beside a peer."""
    told = frame[(frame["engine"] == way) & frame["ratio"].notna()]
    if told.empty:
        return None
    ratios = [float(ratio) for ratio in told["ratio"]]
    worst = max(ratios)
    where = str(told["sizes"].iloc[ratios.index(worst)])
    return Summary(statistics.geometric_mean(ratios), worst, where, len(told))


def shown_cells(frame: pd.DataFrame) -> str:
    """The cells of one model on some threads: a row for each size, and what they come to."""
    ran = frame[frame["time_s"].notna()]
    engines = [name for name in (OURS, *PEERS) if name in set(ran["engine"])]
    ways = [way for way in WAYS if way in set(ran["engine"])]
    rows = [_cell(of.set_index("engine"), engines, ways) for _, of in _by_cell(ran)]
    return "\n".join([table(rows), *_means(frame), *shown_refused(frame)])


def _by_cell(frame: pd.DataFrame) -> Iterable[tuple[Any, pd.DataFrame]]:
    return frame.groupby(list(KEY), sort=False)


def _cell(of: pd.DataFrame, engines: list[str], ways: list[str]) -> dict[str, str]:
    """Medians in milliseconds, ratios to the best peer."""
    times = {f"{name} ms": _number(of, name, "time_s", "{:.3f}", 1e3) for name in engines}
    ratios = {WAYS[way]: _number(of, way, "ratio", "{:.2f}") for way in ways}
    low, high = (_number(of, OURS, f"ratio_{q}", "{:.2f}") for q in ("q1", "q3"))
    return {
        "sizes": str(of["sizes"].iloc[0]),
        **times,
        **ratios,
        "its quartiles": f"{low}..{high}",
        "of peak": _number(of, OURS, "of_peak", "{:.0f} %", 100),
        "error": f"{of['error'].max():.0e}",
    }


def _number(of: pd.DataFrame, name: str, column: str, form: str, unit: float = 1.0) -> str:
    values = [float(value) for value in of.loc[of.index == name, column].dropna()]
    return form.format(unit * values[0]) if values else "-"


def _means(frame: pd.DataFrame) -> Iterable[str]:
    """A line for each way: the mean and the worst cell."""
    for way, name in WAYS.items():
        if found := summary(frame, way):
            yield (
                f"{name} by the best peer: {found.mean:.3f} (geometric mean of {found.cells}), "
                f"worst {found.worst:.2f} at {found.where}"
            )


def shown_refused(frame: pd.DataFrame) -> Iterable[str]:
    """A line for each reason why an engine has no time, and in how many places."""
    out = frame[frame["why"].notna()]
    for why, of in out.groupby("why", sort=False):
        name = of["engine"].iloc[0]
        reason = str(why).removeprefix(f"{name} ").removeprefix(f"{name}: ")
        yield f"{name}, left out of {len(of)}: {reason}"


def shown_summary(frame: pd.DataFrame) -> str:
    """A row for each model and number of threads: means, and the worst cell on defaults."""
    rows = []
    for key, of in frame.groupby(["model", "threads"], sort=False):
        model, threads = cast("tuple[str, int]", key)
        found = {WAYS[way]: summary(of, way) for way in WAYS}
        means = {name: s and f"{s.mean:.3f}" for name, s in found.items() if s}
        ours = found[WAYS[OURS]]
        worst = ours and f"{ours.worst:.2f} at {ours.where}"
        row = {"by the best peer": model, "threads": threads, "cells": ours and ours.cells}
        row |= {name: means.get(name) for name in WAYS.values()}
        rows.append(row | {"worst on defaults": worst})
    return table(rows)


def shown_rows(frame: pd.DataFrame, columns: Iterable[str]) -> str:
    """Some columns of what was measured, and why the rest was not."""
    told = frame[frame["why"].isna()]
    return "\n".join([table(records(told[list(columns)])), *shown_refused(frame)])


def heading(model: str, threads: int) -> str:
    """What a table is of."""
    return f"{model}, {threads_text(threads)}"
