"""Trials as a DataFrame, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from bucketize.tune.log import COLUMNS, PARSERS, Table, Trial


def trial_frame(trials: Iterable[Trial]) -> pd.DataFrame:
    """One row per trial, the columns in their types also when there are none."""
    return table_frame(Table.of(list(trials)))


def table_frame(table: Table) -> pd.DataFrame:
    """The rows of a log, times as moments in UTC; columns that nobody knows are kept as text."""
    known = {name: _series(name, values) for name, values in table.known.items()}
    return pd.DataFrame({name: known[name] for name in COLUMNS} | dict(table.unknown))


def _series(name: str, values: Sequence[Any]) -> pd.Series:
    if name == "timestamp":
        return pd.Series(pd.to_datetime(list(values), utc=True, format="ISO8601"))
    kind = {int: "int64", float: "float64"}.get(type(PARSERS[name]("0")), "str")
    return pd.Series(values, dtype=kind)


def trials_of(frame: pd.DataFrame) -> list[Trial]:
    """The inverse of `trial_frame`, without unknown columns."""
    known = frame[list(COLUMNS)].assign(timestamp=frame["timestamp"].map(pd.Timestamp.isoformat))
    columns = known.astype(object).where(known.notna(), None)
    return Table({name: columns[name].tolist() for name in COLUMNS}, {}).trials
