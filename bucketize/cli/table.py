"""Rows as text: whole in a pipe or a file; on a terminal by `rich`, cut to fit its width."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pandas as pd

Format = Callable[[Any], str]
GAP = 2  # columns between two columns
FAIR, LEGIBLE = 20, 12  # columns: text that is cut to fewer says nothing


@dataclass(frozen=True)
class Field:
    """A column of a table."""

    name: str
    cells: list[str]
    numeric: bool

    @property
    def width(self) -> int:
        """Columns of its widest cell or its name."""
        return max(map(cell_len, [self.name, *self.cells]))

    @property
    def least(self) -> int:
        """How narrow it may become: numbers and heads are never cut."""
        return self.width if self.numeric else min(self.width, max(LEGIBLE, cell_len(self.name)))

    @property
    def constant(self) -> bool:
        """Whether all rows say the same."""
        return len(set(self.cells)) == 1


def table(rows: Sequence[Mapping[str, Any]], formats: Mapping[str, Format] | None = None) -> str:
    """Rows of the same keys in aligned columns, numbers to the right.

    Where they are wider than the terminal, columns that say the same in every row are told once
    below; then text is cut, and at last columns are left out, which is said.
    """
    if not rows:
        return "nothing"
    fields = [column(name, rows, (formats or {}).get(name, text)) for name in rows[0]]
    width = terminal_width()
    return whole(fields) if width is None else fitted(fields, width)


def text(value: object) -> str:
    """A value as it is, of a fraction the digits that tell something."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def column(name: str, rows: Iterable[Mapping[str, Any]], shown: Format) -> Field:
    """The column of the rows' values under a key."""
    values = [row[name] for row in rows]
    cells = ["-" if value is None else visible(shown(value)) for value in values]
    return Field(visible(name), cells, all(isinstance(value, int | float) for value in values))


def visible(cell: str) -> str:
    """The text with its control characters, which would break a row, as `\\n` and the like."""
    if cell.isprintable():
        return cell
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in cell)


def cell_len(cell: str) -> int:
    """The columns that a terminal takes for a text: two for each wide character."""
    if cell.isascii():
        return len(cell)
    from rich.cells import cell_len as measured

    return measured(cell)


def terminal_width() -> int | None:
    """The columns of the terminal that stdout is, or that COLUMNS says; None for no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def whole(fields: Sequence[Field]) -> str:
    """The table at its full width: `rich` would take a millisecond for each row."""
    padded = [list(map(partial(aligned, f, f.width), (f.name, *f.cells))) for f in fields]
    return "\n".join((GAP * " ").join(cells).rstrip() for cells in zip(*padded, strict=True))


def aligned(field: Field, width: int, cell: str) -> str:
    """A cell in so many columns, numbers to the right."""
    room = " " * (width - cell_len(cell))
    return room + cell if field.numeric else cell + room


def fitted(fields: Sequence[Field], width: int) -> str:
    """The table in `width` columns, and below it what did not fit."""
    kept, same = list(fields), []
    while total(f.width for f in kept) > width and (found := [f for f in kept if f.constant]):
        same.append(max(found, key=lambda f: f.width))
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
    """The table as `rich` draws it; texts are cut, the last columns first."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for f, w in zip(fields, widths(fields, width), strict=True):
        side: Literal["left", "right"] = "right" if f.numeric else "left"
        grid.add_column(Text(f.name, overflow="ellipsis", no_wrap=True), justify=side, width=w)
    for cells in zip(*(f.cells for f in fields), strict=True):
        grid.add_row(*(Text(cell, overflow="ellipsis", no_wrap=True) for cell in cells))
    console = Console(force_terminal=True, width=width)
    with console.capture() as captured:
        console.print(grid)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def widths(fields: Sequence[Field], width: int) -> list[int]:
    """The widths of columns that fit; the last are cut first, and none badly before all fairly."""
    made = [f.width for f in fields]
    for floor in (FAIR, LEGIBLE):
        for i in reversed(range(len(fields))):
            least = max(fields[i].least, min(fields[i].width, floor))
            made[i] = max(least, made[i] - max(total(made) - width, 0))
    return made


def frame_table(frame: pd.DataFrame, formats: Mapping[str, Format] | None = None) -> str:
    """A frame in aligned columns."""
    return table(records(frame), formats)


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame as JSON takes them: plain numbers, None for what is missing."""
    known = frame.astype(object).where(frame.notna(), None)
    return [{str(name): value for name, value in row.items()} for row in known.to_dict("records")]


def milliseconds(seconds: float) -> str:
    """`1.234 ms`."""
    return f"{1e3 * seconds:.3f} ms"
