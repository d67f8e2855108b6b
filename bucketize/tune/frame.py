"""Trials as a DataFrame, and back."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from bucketize.tune.log import COLUMNS, PARSERS, Trial


def trial_frame(trials: Iterable[Trial], extras: Iterable[dict[str, str]] = ()) -> pd.DataFrame:
    """One row per trial, the columns in their types also when there are none.

    Args:
        trials: rows of a log.
        extras: for each of them, cells of columns that this version does not know.

    """
    known = pd.DataFrame([vars(trial) for trial in trials], columns=list(COLUMNS))
    frame = known.astype({name: _dtype(parse("0")) for name, parse in PARSERS.items()})
    return frame.join(pd.DataFrame(list(extras), index=frame.index))


def _dtype(example: object) -> str:
    return {int: "int64", float: "float64"}.get(type(example), "str")


def trials_of(frame: pd.DataFrame) -> list[Trial]:
    """The inverse of `trial_frame`, without unknown columns."""
    known = frame[list(COLUMNS)]
    values = known.astype(object).where(known.notna(), None).itertuples(index=False, name=None)
    return [Trial(**dict(zip(COLUMNS, row, strict=True))) for row in values]
