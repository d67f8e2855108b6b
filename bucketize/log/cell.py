"""Cells of a log: what they mean, and what makes a row one that cannot count."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

from bucketize.table import as_cell, of_cell

Shape = tuple[int, ...]
Cells: TypeAlias = Mapping[str, Sequence[str]]  # by column
NUMBERS = r"\d+(\.\.\d+)?"
RUN = rf"[^;]+:{NUMBERS}(,{NUMBERS})*"
CITED = re.compile(rf"{RUN}(;{RUN})*")
Check: TypeAlias = Callable[[Any], str]  # of a value: what is wrong with it, empty if nothing is


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


def split(line: bytes) -> list[str]:
    """The cells of a line; none if it has a quote without its twin."""
    try:
        cells = next(csv.reader([line.decode(errors="replace")], strict=True), [])
    except csv.Error:
        return []
    return list(map(of_cell, cells)) if b"'" in line else cells


def encoded(cells: Iterable[object]) -> bytes:
    """The inverse of `split`, with the line end; None is an empty cell."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(map(_text, cells))
    return buffer.getvalue().encode(errors="backslashreplace")


def _text(value: object) -> str:
    """The text of a value, on one line: a reader splits at line ends before it looks at quotes."""
    return "" if value is None else as_cell(re.sub(r"[\r\n]+", " ", str(value)))


def optional_number(cell: str) -> float | None:
    """The number in a cell; None in an empty one."""
    return float(cell) if cell else None


def optional_integer(cell: str) -> int | None:
    """The integer in a cell; None in an empty one."""
    return int(cell) if cell else None


def cited(rows: Iterable[tuple[str, int]]) -> str:
    """Rows of a log by their run and number: "1f00c0ffee00:3..5,9;2a00c0ffee00:0"."""
    runs: dict[str, set[int]] = {}
    for run, number in rows:
        runs.setdefault(run, set()).add(number)
    return ";".join(f"{run}:{_ranges(sorted(numbers))}" for run, numbers in runs.items())


def _ranges(numbers: Sequence[int]) -> str:
    """What follows one another differs by its place as much as by itself."""
    groups = itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    ends = [(group[0][1], group[-1][1]) for _, pairs in groups for group in [list(pairs)]]
    return ",".join(str(lo) if lo == hi else f"{lo}..{hi}" for lo, hi in ends)


def typed(
    cells: Cells, parsers: Mapping[str, Callable[[str], Any]]
) -> tuple[dict[str, list[Any]], set[int]]:
    """The columns that have a parser, and the rows with a cell that is none of its values."""
    read = {name: _parsed(cells[name], parse) for name, parse in parsers.items() if name in cells}
    values = {name: values for name, (values, _) in read.items()}
    return values, {row for _, rows in read.values() for row in rows}


def _parsed(cells: Sequence[str], parse: Callable[[str], Any]) -> tuple[list[Any], set[int]]:
    values: dict[str, Any] = {}
    torn: set[str] = set()
    for cell in set(cells):  # few are distinct
        try:
            values[cell] = parse(cell)
        except ValueError:
            torn.add(cell)
    rows = {row for row, cell in enumerate(cells) if cell in torn} if torn else set()
    return list(map(values.get, cells)), rows


def picked(columns: Mapping[str, Sequence[Any]], rows: Sequence[int]) -> dict[str, list[Any]]:
    """Some rows of columns."""
    return {name: [column[row] for row in rows] for name, column in columns.items()}


def row_faults(columns: Mapping[str, Sequence[Any]], more: Mapping[str, Check]) -> dict[int, str]:
    """Why rows cannot count though every cell has its type: by row, the first reason.

    Args:
        columns: the values, by column.
        more: checks besides those that hold for every log, by column.

    """
    faults: dict[int, str] = {}
    for name, check in (*more.items(), *CHECKS.items()):
        for row, fault in _faults(columns[name], check):
            faults.setdefault(row, f"{name} is {fault}")
    for names, check in AGREEING.items():
        for row, fault in _faults(list(zip(*(columns[n] for n in names), strict=True)), check):
            faults.setdefault(row, f"{' and '.join(names)} are {fault}")
    return dict(sorted(faults.items()))


def _faults(values: Sequence[Any], check: Check) -> Iterator[tuple[int, str]]:
    """What is wrong with which of the values."""
    verdicts = {value: check(value) for value in set(values)}  # few are distinct
    if any(verdicts.values()):
        yield from ((row, verdicts[value]) for row, value in enumerate(values) if verdicts[value])


def moment(text: str) -> datetime:
    """The moment of a timestamp, in UTC where it names no zone; a ValueError if it is none."""
    read = datetime.fromisoformat(text)
    return read if read.tzinfo else read.replace(tzinfo=UTC)


def _are_sizes(text: str) -> bool:
    return all(size >= 0 for shape in parse_shapes(text) for size in shape)


def _is_schedule(text: str) -> bool:
    schedule = json.loads(text)
    return isinstance(schedule, dict) and all(type(v) in (int, str) for v in schedule.values())


def _expected(what: str, fits: Callable[[Any], object]) -> Check:
    """The check that a value is such; what cannot be read is none, and None is no value."""

    def check(value: Any) -> str:
        try:
            good = value is None or fits(value)
        except (ValueError, RecursionError):
            good = False
        return "" if good else f"{value!r}, {what}"

    return check


def one_of(allowed: Iterable[str]) -> Check:
    """The check of a column that holds one of some words."""
    words = tuple(allowed)
    listed = ", ".join(word or repr("") for word in words)
    return lambda text: "" if text in words else f"{text!r}, expected one of {listed}"


def _same_end(cells: tuple[str, str]) -> str:
    status, kind = cells
    agree = (status == "ok") == (kind == "none")
    return "" if agree else f"{status!r} and {kind!r}, of which one alone tells a failure"


def _untimed(cells: tuple[str, float | None]) -> str:
    status, seconds = cells
    return "" if status == "ok" or seconds is None else f"{status!r} and {seconds}, expected none"


POSITIVE = _expected("expected a number above 0", lambda x: 0 < x < math.inf)
AMOUNT = _expected("expected a number from 0 on", lambda x: 0 <= x < math.inf)
COUNT = _expected("expected a number from 0 on, of 64 bits", lambda x: 0 <= x < 2**63)
FINITE = _expected("expected a finite number", math.isfinite)
INTEGER = _expected("more than 64 bits hold", lambda x: -(2**63) <= x < 2**63)
ROWS = _expected("expected rows such as 1f00c0ffee00:3..5,9", lambda s: not s or CITED.fullmatch(s))
CHECKS: Mapping[str, Check] = {
    "weight": POSITIVE,  # means are made of these: of their logarithms, by shares of their sum
    "latency_median_s": POSITIVE,
    "baseline_s": POSITIVE,
    "ratio_low": POSITIVE,
    "ratio_high": POSITIVE,
    "shape": _expected("expected sizes such as 128x768,768x768", _are_sizes),
    "schedule": _expected("expected a JSON object of integers and words", _is_schedule),
    "timestamp": _expected("expected a time such as 2026-01-31T12:00:00+00:00", moment),
    **dict.fromkeys(("flops", "bytes", "graph_bytes", "packed_bytes"), COUNT),
    **dict.fromkeys(("latency_q1_s", "latency_q3_s", "baseline_q1_s", "baseline_q3_s"), POSITIVE),
    "expected_ratio": POSITIVE,
    **dict.fromkeys(("expected_gain", "load"), AMOUNT),
    **dict.fromkeys(("rests_on", "replaces"), ROWS),
    "left_s": FINITE,
    **dict.fromkeys(
        ("schema_version", "trial", "host_cores", "threads", "repeats", "seed"), INTEGER
    ),
}
AGREEING: Mapping[tuple[str, ...], Check] = {
    ("status", "error_kind"): _same_end,
    ("status", "latency_median_s"): _untimed,
}
"""Checks of columns that say the same in two ways: one of them was damaged."""
