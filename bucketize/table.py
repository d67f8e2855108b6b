"""Rows as text: in aligned columns, in cells of CSV, in HTML for notebooks; anything in JSON."""

from __future__ import annotations

import importlib
import json
import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

Format = Callable[[Any], str]
GAP = 2  # columns between two columns
LEGIBLE = 12  # columns: text that is folded to fewer is hard to read
WORTH_FOLDING = 4  # rows less, for which a reader is asked to count
MOST_SHOWN = 24  # rows or lines of HTML that are shown whole
ENDS = 8  # that are shown at either end of more
SIGNS = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})


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
        """How narrow it may become: numbers and heads are never folded."""
        return self.width if self.numeric else min(self.width, max(LEGIBLE, cell_len(self.name)))

    @property
    def constant(self) -> bool:
        """Whether all rows say the same."""
        return len(set(self.cells)) == 1


def fields_of(
    rows: Sequence[Mapping[str, Any]], formats: Mapping[str, Format] | None = None
) -> list[Field]:
    """The columns of the rows, by the keys of the first."""
    return [column(name, rows, (formats or {}).get(name, text)) for name in rows[0]]


def whole(fields: Sequence[Field]) -> str:
    """The table at its full width: `rich` would take a millisecond for each row."""
    padded = [list(map(partial(aligned, f, f.width), (f.name, *f.cells))) for f in fields]
    return "\n".join((GAP * " ").join(cells).rstrip() for cells in zip(*padded, strict=True))


def aligned(field: Field, width: int, cell: str) -> str:
    """A cell in so many columns, numbers to the right."""
    room = " " * (width - cell_len(cell))
    return room + cell if field.numeric else cell + room


def text(value: object) -> str:
    """A value as it is, of a fraction the digits that tell something."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def column(name: str, rows: Iterable[Mapping[str, Any]], shown: Format) -> Field:
    """The column of the rows' values under a key."""
    values = [row[name] for row in rows]
    cells = ["-" if value is None else visible(shown(value)) for value in values]
    present = [value for value in values if value is not None]
    numeric = bool(present) and all(isinstance(value, int | float) for value in present)
    return Field(visible(name), cells, numeric)


def visible(cell: str) -> str:
    """The text with its control characters escaped: they break rows, and terminals obey them."""
    if cell.isprintable():
        return cell
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in cell)


def legible(lines: str) -> str:
    """Lines of text with their control characters escaped."""
    return lines if lines.isprintable() else "\n".join(map(visible, lines.split("\n")))


def as_cell(text: str) -> str:
    """The text as a cell of a CSV: a quote in front keeps spreadsheets from computing what it says.

    Numbers, and sizes as in "-,8x8", are as they are: there is nothing in them to call.
    """
    inert = not FORMULA.match(text) or NUMBERS.fullmatch(text)
    return text if inert else f"'{text}"


def of_cell(cell: str) -> str:
    """The inverse of `as_cell`."""
    return cell[1:] if cell.startswith("'") and FORMULA.match(cell) else cell


FORMULA = re.compile(r"'*[=+\-@\t\r]")
NUMBERS = re.compile(r"[-+]?(\d[\d_]*\.?\d*(e[-+]?\d+)?|inf|nan)|[-\dx,]+", re.IGNORECASE)


def json_text(
    value: object, indent: int | None = None, default: Callable[[Any], Any] | None = None
) -> str:
    """JSON of a value, null for NaN and infinities, which JSON has no words for.

    Args:
        value: what `json` takes.
        indent: of nested values; None: all on a line.
        default: what stands for what `json` does not take.

    """
    rest = None if default is None else lambda other: finite(default(other))
    return json.dumps(finite(value), indent=indent, default=rest, allow_nan=False)


def finite(value: Any) -> Any:
    """A value of lists and mappings, None for each of its numbers that is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [*map(finite, value)]
    return value


def cell_len(cell: str) -> int:
    """The columns that a terminal takes for a text: two for each wide character."""
    if cell.isascii():
        return len(cell)
    cells: Any = importlib.import_module("rich.cells")  # who needs it loads it
    measured: int = cells.cell_len(cell)
    return measured


class Block(NamedTuple):
    """Rows that come `times` in a row: `length` of them, from the row `first` on."""

    first: int
    length: int
    times: int

    @property
    def saved(self) -> int:
        """The rows that need not be shown."""
        return self.length * (self.times - 1)


def folded(rows: Sequence[Hashable], least: int = WORTH_FOLDING) -> Iterator[Block]:
    """The rows as blocks, in order: those that repeat, if that saves `least` rows, and single ones.

    At each row the block that saves most is taken; of several the shortest.
    """
    at = 0
    while at < len(rows):
        best = max(_blocks(rows, at), key=lambda block: (block.saved, -block.length))
        chosen = best if best.saved >= least else Block(at, 1, 1)
        yield chosen
        at += chosen.length * chosen.times


def _blocks(rows: Sequence[Hashable], at: int) -> Iterator[Block]:
    """The row `at` by itself, and each block from it on that comes again."""
    yield Block(at, 1, 1)
    for length in range(1, (len(rows) - at) // 2 + 1):
        end = at + length
        while end < len(rows) and rows[end] == rows[end - length]:
            end += 1
        if end >= at + 2 * length:
            yield Block(at, length, (end - at) // length)


NAME = 28  # columns of a table that tells more than names


def shortened(name: str, width: int = NAME, kernel: str = "") -> str:
    """The end of the first node's name, which tells the most, and how many more there are.

    `name` is nodes of a model joined by "+", `kernel` what tells apart two kernels of one node.
    """
    first, *others = name.split("+")
    more = f" [{kernel}]" if kernel else ""
    more += f" +{len(others)}" if others else ""
    left = width - len(more)
    return (first if len(first) <= left else f"…{first[1 - left :]}") + more


def pairs(values: Mapping[str, object], gap: str = ",") -> str:
    """`N=4,H=224,W=224`."""
    return gap.join(f"{name}={value}" for name, value in values.items())


def several(number: int, noun: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def escape(text: str) -> str:
    """Text in HTML, as `html.escape` has it, a module that reads all entities when it starts."""
    return text.translate(SIGNS)


def html_table(names: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Rows under the names of their columns; the middle of many is left out."""
    shown = [_tags(row, "td") for row in rows]
    if len(rows) > MOST_SHOWN:
        gap = f"<td colspan={len(names)}>... {len(rows) - 2 * ENDS:,} more</td>"
        shown[ENDS:-ENDS] = [gap]
    body = "".join(f"<tr>{cells}</tr>" for cells in [_tags(names, "th"), *shown])
    return f"<table>{body}</table>"


def html_lines(lines: Iterable[str]) -> str:
    """Lines of text as they are; the middle of many is left out."""
    shown = list(lines)
    if len(shown) > 2 * MOST_SHOWN:
        shown[MOST_SHOWN:-MOST_SHOWN] = [f"... {len(shown) - 2 * MOST_SHOWN:,} more lines"]
    return f"<pre>{escape(chr(10).join(shown))}</pre>"


def html_heading(kind: str, text: str) -> str:
    """HTML of a heading: a kind of thing, and its text."""
    return f"<p><b>{kind}</b> <code>{escape(text)}</code></p>"


def _tags(values: Sequence[object], tag: str) -> str:
    return "".join(f'<{tag} style="text-align: left">{escape(str(v))}</{tag}>' for v in values)
