"""Columns made of the texts that a log holds: a schedule's knobs, a bucket's bounds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import pandas as pd

from bucketize.errors import BucketizeError
from bucketize.log.trial import CLONE

Cells: TypeAlias = Mapping[str, int | str | None]

INTERVAL = re.compile(r"(?P<symbol>.+)=(?P<lo>\d+)(?P<dots>\.\.)?(?P<hi>\d*)")


def knobs(frame: pd.DataFrame) -> pd.DataFrame:
    """The knobs of each row's `schedule`, a column for each: `frame.join(knobs(frame))`.

    Args:
        frame: as of `load`.

    Returns:
        Numbers as `Int64`, words as text; a knob that a row's template does not have is missing,
        and all are in a row of a whole clone.

    Raises:
        BucketizeError: the frame has no column `schedule`.

    """
    require(frame, ["schedule"], "load")
    if "level" in frame:
        schedules = frame["schedule"].where(frame["level"] != CLONE, "{}")
        frame = frame.assign(schedule=schedules)
    return _spread(frame, "schedule", json.loads)


def buckets(frame: pd.DataFrame) -> pd.DataFrame:
    """The bounds of each row's `bucket`, both inclusive: columns `N_lo`, `N_hi` for a symbol `N`.

    Args:
        frame: as of `load`.

    Returns:
        Both as `Int64`; missing where a bucket has no end, or does not divide the symbol.

    Raises:
        BucketizeError: the frame has no column `bucket`, or one that holds something else.

    """
    return _spread(frame, "bucket", _bounds)


def require(frame: pd.DataFrame, names: Iterable[str], maker: str) -> None:
    """Raise an error that says which function makes the frame, if columns are missing."""
    missing = [name for name in names if name not in frame]
    if missing:
        raise BucketizeError(f"the frame lacks {', '.join(missing)}; expected one of `{maker}`")


def _spread(frame: pd.DataFrame, name: str, cells_of: Callable[[str], Cells]) -> pd.DataFrame:
    """A column for each key of what the texts of one hold, on the frame's index."""
    require(frame, [name], "load")
    read = {text: cells_of(text) for text in frame[name].unique()}  # few are distinct
    cells = pd.DataFrame([read[text] for text in frame[name]], index=frame.index, dtype=object)
    return cells.convert_dtypes()


def _bounds(bucket: str) -> Cells:
    columns: dict[str, int | None] = {}
    for text in filter(None, bucket.split(";")):
        interval = INTERVAL.fullmatch(text)
        if interval is None:
            raise BucketizeError(f"{bucket!r} is no bucket, expected sizes: N=1;H=32..63")
        symbol, lo, dots, hi = interval.groups()
        top = (int(hi) if hi else None) if dots else int(lo)
        columns |= {f"{symbol}_lo": int(lo), f"{symbol}_hi": top}
    return columns
