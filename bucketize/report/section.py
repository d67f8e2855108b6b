"""The parts of a page: sections of tables and pictures, each of a frame."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from bucketize.report.clones import LISTED
from bucketize.table import pairs, shortened

MISSING = "-"
MOST = 400
"""Rows of a table that are shown; frames are whole all the same."""


def milliseconds(seconds: float) -> str:
    """Three digits, and the unit."""
    for unit, name in ((1.0, "s"), (1e-3, "ms")):
        if abs(seconds) >= unit:
            return f"{digits(seconds / unit)} {name}"
    return f"{digits(1e6 * seconds)} µs"


def digits(value: float) -> str:
    """Three digits that tell; all before the point."""
    if not value:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:#.3g}".rstrip(".")


def megabytes(size: float) -> str:
    """In MiB."""
    return f"{size / 2**20:.1f} MiB" if size >= 2**20 / 10 else f"{size / 2**10:.1f} KiB"


def schedule(text: str) -> str:
    """A schedule of a log, as elsewhere."""
    return pairs(json.loads(text), " ")


FORMATS: Mapping[str, Callable[[Any], str]] = {
    "text": str,
    "code": str,
    "prose": str,
    "name": lambda text: shortened(text, 44),
    "schedule": schedule,
    "listing": "kernels {}".format,
    "count": "{:,.0f}".format,
    "number": digits,
    "ratio": "{:.3f}".format,
    "percent": "{:.1%}".format,
    "seconds": milliseconds,
    "bytes": megabytes,
    "yes": lambda value: "yes" if value else "",
}
TEXTS = {"text", "code", "prose", "name", "schedule", "yes", "listing"}


@dataclass(frozen=True)
class TableCell:
    """A cell of a table: what is shown, all of it where that is less, where it leads to."""

    text: str
    whole: str = ""
    link: str = ""


@dataclass(frozen=True)
class Head:
    """A column of a table."""

    name: str
    """In the frame."""
    title: str
    kind: str = "text"
    """The format of its cells: a key of `FORMATS`."""

    @property
    def css(self) -> str:
        """Its class in the page."""
        return self.kind if self.kind in TEXTS else "number"

    def cell(self, value: Any) -> TableCell:
        """What a value looks like."""
        if _is_missing(value):
            return TableCell(MISSING)
        text = FORMATS[self.kind](value)
        if self.kind == "listing" and value <= LISTED:
            return TableCell(text, link=f"#listing-{value}")
        return TableCell(text, str(value) if self.kind == "name" and text != value else "")


def _is_empty(value: Any) -> bool:
    return _is_missing(value) or value == ""


def _is_missing(value: Any) -> bool:
    if value is None or value is pd.NA:
        return True
    return isinstance(value, float) and math.isnan(value)


@dataclass(frozen=True, eq=False)
class Sheet:
    """A table of some columns of a frame."""

    caption: str
    frame: pd.DataFrame
    columns: Sequence[Head]

    @property
    def heads(self) -> list[Head]:
        """The columns that have something in a row."""
        return [h for h in self.columns if not self.frame[h.name].map(_is_empty).all()]

    @property
    def rows(self) -> list[list[TableCell]]:
        """The cells that are shown."""
        part = self.frame.head(MOST)
        columns = [[h.cell(v) for v in part[h.name].tolist()] for h in self.heads]
        return [list(row) for row in zip(*columns, strict=True)]

    @property
    def left_out(self) -> int:
        """How many rows are not."""
        return max(len(self.frame) - MOST, 0)


@dataclass(frozen=True, eq=False)
class Picture:
    """A chart of frames of the page, and what one sees in it."""

    title: str
    caption: str
    chart: Any
    """An Altair chart whose data are frames by name."""
    sheet: Sheet | None = None
    """The frame that tells the chart's numbers."""
    is_narrow: bool = False
    """Whether it is easier to see where it is not as wide as there is room."""


@dataclass(frozen=True, eq=False)
class PageSection:
    """A section: words, pictures, tables, or what to give to have it."""

    name: str
    title: str
    text: str = ""
    parts: Sequence[Sheet | Picture] = ()
    wanted: str = ""
    """How to have it; empty if it is there."""
    special: str = ""
    """What else the page shows there: "decisions", "kernels"."""


def by(frame: pd.DataFrame, name: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """The rows of each text in a column, in order of appearance."""
    texts = frame[name].unique().tolist()
    return ((text, frame[frame[name] == text]) for text in texts)
