"""Rows as text: whole in a pipe or a file; on a terminal by `rich`, folded to fit its width."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bucketize.table import GAP, Field, Format, as_cell, fields_of, whole

if TYPE_CHECKING:
    import pandas as pd

WIDTH = 80  # columns, of a table that is to fit whatever reads it


def table(rows: Sequence[Mapping[str, Any]], formats: Mapping[str, Format] | None = None) -> str:
    """Rows of the same keys in aligned columns, numbers to the right.

    Where they are wider than the terminal, columns that say the same in every row are told once
    below; then text is folded, and at last columns are left out, which is said.
    """
    if not rows:
        return "nothing"
    fields = fields_of(rows, formats)
    width = terminal_width()
    return whole(fields) if width is None else fitted(fields, width)


def narrow(rows: Sequence[Mapping[str, Any]]) -> str:
    """All cells of a small table in the width of the terminal, 80 columns where there is none.

    A table that is too wide is turned, rows for columns, or cut into several, one below the other,
    each with the first column.
    """
    width = terminal_width() or WIDTH
    for form in (rows, turned(rows)):
        fields = fields_of(form)
        if total(f.width for f in fields) <= width:
            return whole(fields)
    return "\n\n".join(map(whole, parts(fields_of(rows), width)))


def turned(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each column but the first, whose cells head the columns."""
    corner, *names = rows[0]
    return [{corner: name, **{str(row[corner]): row[name] for row in rows}} for name in names]


def parts(fields: Sequence[Field], width: int) -> Iterator[list[Field]]:
    """The first column and as many of the others as fit, until each was there."""
    first, *others = fields
    part = [first]
    for field in others:
        if len(part) > 1 and total(f.width for f in (*part, field)) > width:
            yield part
            part = [first]
        part.append(field)
    yield part


def terminal_width() -> int | None:
    """The columns of the terminal that stdout is, or that COLUMNS says; None for no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def fitted(fields: Sequence[Field], width: int) -> str:
    """The table in `width` columns, and below it what did not fit."""
    kept, same = list(fields), []
    while total(f.width for f in kept) > width and (constant := [f for f in kept if f.constant]):
        same.append(max(constant, key=lambda f: f.width))
        kept.remove(same[-1])
    left_out: list[Field] = []
    while total(f.least for f in kept) > width and len(kept) > 1:
        left_out.append(kept.pop())
    notes = [f"{f.name}: {f.cells[0]}" for f in sorted(same, key=fields.index)]
    if left_out:
        names = ", ".join(f.name for f in reversed(left_out))
        notes.append(f"left out for want of width (a pipe gets all): {names}")
    return "\n".join([*([drawn(kept, width)] if kept else []), *(fitting(n, width) for n in notes)])


def fitting(line: str, width: int | None = None) -> str:
    """A line on as many as it takes in `width` columns, the terminal's, broken between words."""
    columns = width or terminal_width()
    indent = " " * (2 + len(line) - len(line.lstrip()))
    if columns is None or len(line) <= columns:
        return line
    return textwrap.fill(line, columns, subsequent_indent=indent, break_long_words=False)


def total(widths: Iterable[int]) -> int:
    """The width of a table of such columns."""
    every = list(widths)
    return sum(every) + GAP * (len(every) - 1)


def drawn(fields: Sequence[Field], width: int) -> str:
    """The table as `rich` draws it: the widest texts are folded, numbers are not."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="")
    for f in fields:
        side: Literal["left", "right"] = "right" if f.numeric else "left"
        grid.add_column(Text(f.name), justify=side, overflow="fold", no_wrap=f.least == f.width)
    for cells in zip(*(f.cells for f in fields), strict=True):
        grid.add_row(*map(Text, cells))
    console = Console(color_system=None, width=width)
    with console.capture() as captured:
        console.print(grid)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def frame_table(frame: pd.DataFrame, formats: Mapping[str, Format] | None = None) -> str:
    """A frame in aligned columns."""
    return table(records(frame), formats)


def write_csv(frame: pd.DataFrame, path: Path) -> None:
    """Write a frame that people open in a spreadsheet, which computes none of its texts."""
    safe = frame.copy()
    for name, column in frame.select_dtypes(exclude="number").items():
        safe[name] = column.map(lambda cell: as_cell(cell) if isinstance(cell, str) else cell)
    safe.to_csv(path, index=False, errors="backslashreplace")


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame as JSON takes them: plain numbers, None for what is missing."""
    values = frame.astype(object).where(frame.notna(), None)
    return [{str(name): value for name, value in row.items()} for row in values.to_dict("records")]


def milliseconds(seconds: float) -> str:
    """`1.234 ms`."""
    return f"{1e3 * seconds:.3f} ms"
