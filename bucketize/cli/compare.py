"""The trade-off of dispatchers as text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from bucketize.cli.parameter import Sizes

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from bucketize.cli.model import Model
    from bucketize.ir import Module

    Modules: TypeAlias = Mapping[str, Module]  # by dispatcher


def measured(
    model: Model, modules: Modules, points: Sequence[Sizes], *, log: Path | None, threads: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Latency at the given sizes and cost, with a bar while the modules compile."""
    from bucketize.analysis.tradeoff import Case, measure_trade_off
    from bucketize.cli.progress import compiling_bar

    every = [model.inputs(model.sizes(point)) for point in points]
    cases = [Case.of(model.module, **arrays) for arrays in every]
    with compiling_bar("compiling") as progress:
        return measure_trade_off(modules, cases, log=log, threads=threads, progress=progress)


def shown_latency(latency: pd.DataFrame) -> str:
    """Latency in milliseconds, a row per shape, a column per dispatcher."""
    from bucketize.cli.table import table

    shapes = latency["shape"].unique()
    by = latency.set_index(["shape", "dispatcher"])["latency_s"]
    rows = [{"latency [ms]": s, **(1e3 * by[s]).map("{:.2f}".format).to_dict()} for s in shapes]
    return table(rows)


def shown_trade(trade: pd.DataFrame) -> str:
    """The trade-off table as text."""
    from bucketize.cli.table import frame_table, milliseconds

    formats = {
        "compile_s": "{:.1f} s".format,
        "weight_mib": "{:.0f}".format,
        "mean_s": milliseconds,
        "mean_slowdown": "{:.2f}".format,
        "worst_slowdown": "{:.2f}".format,
    }
    return frame_table(trade, formats)
