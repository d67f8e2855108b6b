"""Rows as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

Format = Callable[[Any], str]


def table(rows: Sequence[Mapping[str, Any]], formats: Mapping[str, Format] | None = None) -> str:
    """Rows of the same keys in aligned columns, numbers to the right."""
    if not rows:
        return "nothing"
    columns = [column(name, rows, (formats or {}).get(name, str)) for name in rows[0]]
    return "\n".join("  ".join(cells).rstrip() for cells in zip(*columns, strict=True))


def column(name: str, rows: Iterable[Mapping[str, Any]], shown: Format) -> list[str]:
    """The cells of one column under its name, of one width."""
    values = [row[name] for row in rows]
    cells = [name, *("-" if value is None else shown(value) for value in values)]
    width = max(map(len, cells))
    right = all(isinstance(value, int | float) for value in values)
    return [cell.rjust(width) if right else cell.ljust(width) for cell in cells]


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
