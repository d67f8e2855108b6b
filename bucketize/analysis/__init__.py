"""Analysis: DataFrames of tuning logs and of dispatchers, and their plots; no files, no printing.

`load` is the only function that reads a file; every other maps a DataFrame to a DataFrame, or to a
matplotlib figure.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from bucketize.analysis.column import buckets, knobs
from bucketize.analysis.frame import (
    best_schedules,
    failures,
    load,
    progress,
    tasks,
    trade_off,
    versus_oracle,
)
from bucketize.analysis.plot import plot_latency, plot_progress, plot_trade_off

if TYPE_CHECKING:
    from bucketize.analysis.tradeoff import Case, measure_trade_off

__all__ = [
    "Case",
    "best_schedules",
    "buckets",
    "failures",
    "knobs",
    "load",
    "measure_trade_off",
    "plot_latency",
    "plot_progress",
    "plot_trade_off",
    "progress",
    "tasks",
    "trade_off",
    "versus_oracle",
]

# Loaded at first use: they need the compiler, which who reads a log does not.
_HOMES = {"Case": "tradeoff", "measure_trade_off": "tradeoff"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
