"""What logs hold, counted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

from bucketize.log.cell import moment
from bucketize.log.environment import HOST, VERSIONS, here
from bucketize.log.log import content, difference, read
from bucketize.log.maintain import counts, left_out
from bucketize.log.trial import Trial
from bucketize.table import several

WAYS: Mapping[str, Callable[[Trial], str]] = {
    "source": attrgetter("source"),
    "status": lambda t: t.status if t.error_kind == "none" else f"{t.status}: {t.error_kind}",
    "model": attrgetter("model"),
    "function": attrgetter("function"),
    "bucket": attrgetter("bucket"),
    "host": lambda t: (
        f"{t.host_cpu}, {several(t.host_cores, 'core')}, {several(t.threads, 'thread')}"
    ),
    "versions": lambda t: ", ".join(f"{n.partition('_')[0]} {getattr(t, n)}" for n in VERSIONS),
}


def stock(paths: Iterable[str | Path]) -> dict[str, Any]:
    """Count what logs hold. Lines that no reader takes make no warning: they are counted, too.

    Returns:
        `rows`, `workloads`, `schedules` (distinct pairs of template and schedule), `compile_s` and
        `timing_s` (repeats by median latency) in seconds, `first` and `last` timestamp; and the
        rows by each of WAYS and, `left_out`, by why readers here leave them out, the most first.

    Raises:
        LogError: a log that cannot be read, or is of another schema.

    """
    readings = [read(content(path), path) for path in map(Path, paths)]
    trials = [trial for reading in readings for trial in reading.table.trials]
    elsewhere = (difference(trial, here(), HOST + VERSIONS) for trial in trials)
    lines = [reason for reading in readings for reason in left_out(reading).values()]
    by_time = sorted((trial.timestamp for trial in trials), key=moment)
    return {
        "rows": len(trials),
        "workloads": len({trial.workload for trial in trials}),
        "schedules": len({(trial.template, trial.schedule_hash) for trial in trials}),
        "compile_s": _total(trial.compile_s for trial in trials),
        "timing_s": _total(trial.repeats * (trial.latency_median_s or 0.0) for trial in trials),
        "first": by_time[0] if by_time else None,
        "last": by_time[-1] if by_time else None,
        **{way: counts(map(of, trials)) for way, of in WAYS.items()},
        "left_out": counts([*filter(None, elsewhere), *lines]),
    }


def _total(seconds: Iterable[float | None]) -> float:
    """The sum of what is a number: the readers of a log check no column that none of them needs."""
    return math.fsum(s for s in seconds if s is not None and math.isfinite(s))
