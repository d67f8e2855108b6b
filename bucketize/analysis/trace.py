"""Profiles on a time line, in the trace event format that chrome://tracing and Perfetto open.

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import pandas as pd

Event: TypeAlias = dict[str, Any]

MICROSECONDS = 1e6  # of a second: the unit of the format
SHOWN = ("op", "kernel", "shape", "share", "gflops", "gbytes_s", "roofline", "schedule", "group")
"""The columns that a click on a kernel shows."""


def chrome_trace(profiles: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
    """Profiles in the Trace Event Format, which Perfetto and chrome://tracing draw.

    A call is drawn around its kernels, which take their medians, one right after the other; what
    is between them stands at the end.

    Args:
        profiles: what `Executable.profile` gave, by title; each is a process of its own.

    Returns:
        A JSON object.

    """
    events: list[Event] = []
    for pid, (title, frame) in enumerate(profiles.items(), 1):
        length = float(frame["time_s"].sum()) * MICROSECONDS
        named: Event = {"name": "process_name", "ph": "M", "args": {"name": title}}
        whole: Event = {"name": title, "ph": "X", "ts": 0.0, "dur": length, "args": {}}
        events += ({**e, "pid": pid, "tid": 1} for e in (named, whole, *_kernels(frame)))
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _kernels(frame: pd.DataFrame) -> Iterator[Event]:
    """The events of a profile's rows."""
    at = 0.0
    for row in frame.to_dict("records"):
        length = row["time_s"] * MICROSECONDS
        args = {name: row[name] for name in SHOWN if _is_known(row[name])}
        yield {"name": row["name"], "ph": "X", "ts": at, "dur": length, "args": args}
        at += length


def _is_known(value: Any) -> bool:
    return isinstance(value, tuple) or not (value == "" or pd.isna(value))
