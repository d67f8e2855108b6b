"""Cells of a log's row that hold more than a word, and what makes a row one that cannot count."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

Shape = tuple[int, ...]

POSITIVE = ("weight", "latency_median_s", "baseline_s")
"""What means are made of: their logarithms, and shares of their sum."""


def shape_text(shapes: Iterable[Shape]) -> str:
    """The shapes of a workload's parameters in the log: "128x768,768x768"; "-" has no axes."""
    return ",".join("x".join(map(str, shape)) or "-" for shape in shapes)


def parse_shapes(text: str) -> tuple[Shape, ...]:
    """The inverse of `shape_text`."""
    return tuple(
        () if shape == "-" else tuple(int(size) for size in shape.split("x"))
        for shape in text.split(",")
        if text
    )


def row_fault(row: Mapping[str, Any]) -> str:
    """Why a row, by column, cannot count, though every cell has its type; empty if it can."""
    for name in POSITIVE:
        value = row[name]
        if value is not None and not 0 < value < math.inf:
            return f"{name} is {value}, expected a number above 0"
    if not _are_shapes(row["shape"]):
        return f"shape is {row['shape']!r}, expected sizes such as 128x768,768x768"
    if not _is_schedule(row["schedule"]):
        return f"schedule is {row['schedule']!r}, expected a JSON object of integers and words"
    return ""


def _are_shapes(text: str) -> bool:
    try:
        return all(size >= 0 for shape in parse_shapes(text) for size in shape)
    except ValueError:
        return False


def _is_schedule(text: str) -> bool:
    try:
        schedule = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(schedule, dict) and all(type(v) in (int, str) for v in schedule.values())
