"""Trials as a DataFrame, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from bucketize.log.cell import optional_integer, optional_number
from bucketize.log.log import Table
from bucketize.log.trial import COLUMNS, PARSERS, Trial

if TYPE_CHECKING:
    import pandas as pd

KINDS = {int: "int64", float: "float64", optional_number: "float64", optional_integer: "Int64"}


def trial_frame(trials: Iterable[Trial]) -> pd.DataFrame:
    """One row per trial, as `table_frame`; the columns have their types also when there is none."""
    return table_frame(Table.of(list(trials)))


def table_frame(table: Table) -> pd.DataFrame:
    """The rows of a log: its columns in their types, unknown ones as text, and `gflops`.

    `timestamp` is a moment in UTC; `gflops`, `flops` by `latency_median_s`, in GFLOP/s.
    """
    import pandas as pd

    series = {name: _series(name, table.known[name]) for name in COLUMNS}
    frame = pd.DataFrame(series | dict(table.unknown))
    return frame.assign(gflops=frame["flops"] / frame["latency_median_s"] / 1e9)


def _series(name: str, values: Sequence[Any]) -> pd.Series:
    import pandas as pd

    if name == "timestamp":
        moments = [datetime.fromisoformat(text) for text in values]  # as the log's check reads them
        return pd.Series(pd.to_datetime(moments, utc=True))
    return pd.Series(values, dtype=KINDS.get(PARSERS[name], "str"))


def trials_of(frame: pd.DataFrame) -> list[Trial]:
    """The inverse of `trial_frame`; columns that are none of a trial's do not matter."""
    import pandas as pd

    moments = pd.to_datetime(frame["timestamp"], utc=True)
    cells = frame[list(COLUMNS)].assign(timestamp=moments.map(pd.Timestamp.isoformat))
    columns = cells.astype(object).where(cells.notna(), None)
    return Table({name: columns[name].tolist() for name in COLUMNS}, {}).trials
