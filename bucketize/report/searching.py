"""Frames of the search, as `bucketize.analysis` makes them of a log."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from bucketize.analysis import best_schedules, confirmed, failures, load, progress


def frames(log: str | Path | None, model: str) -> dict[str, pd.DataFrame]:
    """What a log says of a model; nothing without a log.

    Returns:
        `trials` (how many of each model there are), and of those of this one `progress`, `best`,
        `confirmed` and `failures`, as `bucketize.analysis` has them.

    """
    if log is None:
        return {}
    every = load(log)
    counts = every.groupby("model", as_index=False, sort=False).agg(trials=("trial", "size"))
    mine = every[every["model"] == model]
    return {
        "trials": counts,
        "progress": progress(mine),
        "best": best_schedules(mine),
        "confirmed": confirmed(mine),
        "failures": failures(mine),
    }
