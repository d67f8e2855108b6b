"""Analysis: DataFrames of tuning logs, of dispatchers and of engines, and their plots; no printing.

`load` and `session` are the only functions that read a file; most others map a DataFrame to a
DataFrame, a matplotlib figure or, `chrome_trace`, JSON.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from bucketize.analysis.column import buckets, knobs
from bucketize.analysis.frame import (
    best_schedules,
    confirmed,
    failures,
    load,
    progress,
    tasks,
    trade_off,
    versus_oracle,
)
from bucketize.analysis.importance import importance
from bucketize.analysis.plot import (
    plot_gain,
    plot_latency,
    plot_partition,
    plot_progress,
    plot_trade_off,
)
from bucketize.analysis.trace import chrome_trace

if TYPE_CHECKING:
    from bucketize.analysis.benchmark import bench
    from bucketize.analysis.engines import ENGINES, Session, session
    from bucketize.analysis.layers import engine_layers
    from bucketize.analysis.tradeoff import Case, measure_trade_off

__all__ = [
    "ENGINES",
    "Case",
    "Session",
    "bench",
    "best_schedules",
    "buckets",
    "chrome_trace",
    "confirmed",
    "engine_layers",
    "failures",
    "importance",
    "knobs",
    "load",
    "measure_trade_off",
    "plot_gain",
    "plot_latency",
    "plot_partition",
    "plot_progress",
    "plot_trade_off",
    "progress",
    "session",
    "tasks",
    "trade_off",
    "versus_oracle",
]

# What measures needs the compiler, which who reads a log does not.
_HOMES = {
    "bench": "benchmark",
    "engine_layers": "layers",
    **dict.fromkeys(("ENGINES", "Session", "session"), "engines"),
    **dict.fromkeys(("Case", "measure_trade_off"), "tradeoff"),
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
