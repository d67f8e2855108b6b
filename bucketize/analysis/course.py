"""How far a tuning session has come that runs elsewhere: by the rows of its log alone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pandas as pd

from bucketize.analysis.frame import TASK, best_schedules, confirmed
from bucketize.log.trial import KERNEL

SILENT_S = 10.0
"""Without a row after the session's time: what was begun in it may be confirmed a little longer."""
FAILURE = ["timestamp", "function", "op", "layer", "error_kind", "error"]


@dataclass(frozen=True)
class Course:
    """What a log tells of the session that wrote its last row."""

    about: dict[str, Any]
    """Columns that all of its rows have in common."""
    begun: datetime
    last: datetime
    """When its first and its last row were written."""
    trials: int
    """Its rows, but for those that confirm."""
    failed: int
    confirmations: int
    reached: int
    """How many tasks it has tried."""
    left_s: float | None
    """Until its time was up, when the last row was written; None without a limit."""
    tasks: pd.DataFrame
    """The tasks that it has tried, by all rows of the log, in the columns of `best_schedules`;
    `share` is what the default takes of the time of the defaults of all, the largest first."""
    clones: pd.DataFrame
    """The functions that it has tried, in the columns of `confirmed`."""
    failures: pd.DataFrame
    """The rows that failed, the last first."""

    @property
    def gain(self) -> float:
        """The time of the tasks' best schedules by that of their defaults, each task once."""
        relative = np.minimum(self.tasks["relative"], 1.0)
        return float((relative * self.tasks["share"]).sum()) if len(self.tasks) else 1.0

    def left_at(self, now: datetime) -> float | None:
        """Seconds until its time is up; below 0 after."""
        passed_s = (now - self.last).total_seconds()
        return None if self.left_s is None else self.left_s - passed_s

    def is_over(self, now: datetime) -> bool:
        """Whether its time is up, and nothing came since; of one without a limit nobody knows."""
        left_s, silent_s = self.left_at(now), (now - self.last).total_seconds()
        return left_s is not None and left_s < 0 and silent_s > SILENT_S


def course(trials: pd.DataFrame) -> Course | None:
    """How far the session is that wrote the last row; None of a log without rows.

    Args:
        trials: as of `load`, in the order of the log.

    """
    if trials.empty:
        return None
    last = trials.iloc[-1]
    mine = trials[trials["run_id"] == last["run_id"]]
    searched = mine[mine["source"] != "confirm"]
    failed = searched[searched["error_kind"] != "none"]
    return Course(
        about={name: last[name] for name in ("model", "host_cpu", "threads", "search", "run_id")},
        begun=mine["timestamp"].min().to_pydatetime(),
        last=mine["timestamp"].max().to_pydatetime(),
        trials=len(searched),
        failed=len(failed),
        confirmations=len(mine) - len(searched),
        reached=len(searched[TASK].drop_duplicates()),
        left_s=None if pd.isna(last["left_s"]) else float(last["left_s"]),
        tasks=_tasks(trials, mine),
        clones=_clones(trials, mine),
        failures=failed[FAILURE][::-1],
    )


def _tasks(trials: pd.DataFrame, mine: pd.DataFrame) -> pd.DataFrame:
    """The best of the tasks that a session has tried, earlier sessions' trials counted."""
    kernels = mine[mine["level"] == KERNEL]
    keys = pd.MultiIndex.from_frame(kernels[TASK].drop_duplicates())
    best = best_schedules(trials[pd.MultiIndex.from_frame(trials[TASK]).isin(keys)])
    default_s = best["latency_s"] / best["relative"]
    by_share = best.assign(share=default_s / default_s.sum())
    return by_share.sort_values("share", ascending=False, kind="stable", ignore_index=True)


def _clones(trials: pd.DataFrame, mine: pd.DataFrame) -> pd.DataFrame:
    of = ["host_cpu", "threads", "model"]
    same = (trials[of] == mine.iloc[0][of]).all(axis=1) & trials["clone"].isin(mine["clone"])
    return confirmed(trials[same])
