"""What notebooks show of modules and executables: tables and trees in HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MOST = 24  # rows or lines that are shown whole
ENDS = 8  # that are shown at either end of more

Row = Sequence[object]
SIGNS = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})


def escape(text: str) -> str:
    """Text in HTML, as `html.escape` has it, a module that reads all entities when it starts."""
    return text.translate(SIGNS)


def html_table(names: Sequence[str], rows: Sequence[Row]) -> str:
    """Rows under the names of their columns; the middle of many is left out."""
    shown = [_cells(row, "td") for row in rows]
    if len(rows) > MOST:
        gap = f"<td colspan={len(names)}>... {len(rows) - 2 * ENDS:,} more</td>"
        shown[ENDS:-ENDS] = [gap]
    body = "".join(f"<tr>{cells}</tr>" for cells in [_cells(names, "th"), *shown])
    return f"<table>{body}</table>"


def html_lines(lines: Iterable[str]) -> str:
    """Lines of text as they are; the middle of many is left out."""
    shown = list(lines)
    if len(shown) > 2 * MOST:
        shown[MOST:-MOST] = [f"... {len(shown) - 2 * MOST:,} more lines"]
    return f"<pre>{escape(chr(10).join(shown))}</pre>"


def html_heading(kind: str, text: str) -> str:
    """What it is, and of what."""
    return f"<p><b>{kind}</b> <code>{escape(text)}</code></p>"


def _cells(values: Row, tag: str) -> str:
    return "".join(f'<{tag} style="text-align: left">{escape(str(v))}</{tag}>' for v in values)
