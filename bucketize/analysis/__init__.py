"""Analysis: DataFrames of tuning logs and of dispatchers, and their plots; no files, no printing.

`load` is the only function that reads a file; every other maps a DataFrame to a DataFrame, or to a
matplotlib figure.
"""

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
from bucketize.analysis.tradeoff import Case, measure_trade_off

__all__ = [
    "Case",
    "best_schedules",
    "failures",
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
