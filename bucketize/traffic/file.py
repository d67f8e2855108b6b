"""Columns of a traffic in a file: CSV, or parquet by pyarrow."""

from __future__ import annotations

import csv
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bucketize.errors import TrafficError

TIME, REQUESTS = "time", "requests"
LARGEST = 1 << 62  # of a size: sums of two stay within int64


@dataclass(frozen=True)
class TableColumn:
    """Cells under a name, as text or as the file's own values."""

    name: str
    cells: Sequence[Any]

    def integers(self) -> NDArray[np.int64]:
        """Sizes or requests, from 0."""
        return np.array([self._integer(i, cell) for i, cell in enumerate(self.cells)], np.int64)

    def _integer(self, row: int, cell: Any) -> int:
        try:
            value = int(cell)
        except (TypeError, ValueError, OverflowError):
            raise self._fault(row, "a whole number") from None
        if not isinstance(cell, str) and value != cell:
            raise self._fault(row, "a whole number")
        if not 0 <= value < LARGEST:
            raise self._fault(row, "a number from 0")
        return value

    def seconds(self) -> NDArray[np.float64]:
        """Times: numbers are seconds, texts and dates are made seconds since 1970."""
        return np.array([self._second(i, cell) for i, cell in enumerate(self.cells)], np.float64)

    def _second(self, row: int, cell: Any) -> float:
        try:
            if isinstance(cell, datetime):
                return cell.timestamp()
            return float(cell)
        except (TypeError, ValueError):
            pass  # as text, it may be a date
        try:
            return datetime.fromisoformat(cell).timestamp()
        except (TypeError, ValueError):
            raise self._fault(row, "seconds, or a time as in 2023-11-16T18:15:46") from None

    def _fault(self, row: int, expected: str) -> TrafficError:
        cell = self.cells[row]
        return TrafficError(f"row {row + 1}, column {self.name}: expected {expected}, got {cell!r}")


def read_columns(path: Path) -> dict[str, TableColumn]:
    """The columns of a file by name, in its order; errors name what is wrong."""
    read: Callable[[Path], dict[str, TableColumn]]
    read = _format(path, {".csv": _read_csv, ".parquet": _read_parquet})
    return read(path)


def write_columns(path: Path, columns: Mapping[str, Sequence[object]]) -> None:
    """Write columns to a file."""
    write = _format(path, {".csv": _write_csv, ".parquet": _write_parquet})
    try:
        write(path, columns)
    except OSError as e:
        raise TrafficError(f"cannot write {path}: {e.strerror or e}") from e


def _format(path: Path, formats: Mapping[str, Any]) -> Any:
    if path.suffix not in formats:
        raise TrafficError(f"{path}: a traffic is in a file that ends in {' or '.join(formats)}")
    return formats[path.suffix]


def _read_csv(path: Path) -> dict[str, TableColumn]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            head, *rows = [row for row in csv.reader(file) if row] or [[]]
    except OSError as e:
        raise TrafficError(f"cannot read the file: {e.strerror}") from e
    except (UnicodeDecodeError, csv.Error) as e:
        raise TrafficError(f"the file is no CSV: {e}") from e
    names = [name.strip() for name in head]
    if not names:
        raise TrafficError("the file is empty; it wants a line of names: S,requests")
    if len(set(names)) < len(names):
        raise TrafficError(f"two columns have one name: {', '.join(names)}")
    for i, row in enumerate(rows):
        if len(row) != len(names):
            raise TrafficError(f"row {i + 1} has {len(row)} cells of {len(names)}")
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    return {n: TableColumn(n, cells) for n, cells in zip(names, columns, strict=True)}


def _write_csv(path: Path, columns: Mapping[str, Sequence[object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def _read_parquet(path: Path) -> dict[str, TableColumn]:
    arrow, parquet = _arrow("pyarrow"), _arrow("pyarrow.parquet")
    try:
        table = parquet.read_table(path)
        return {n: TableColumn(n, table[n].to_pylist()) for n in table.column_names}
    except (OSError, OverflowError, arrow.ArrowException) as e:
        raise TrafficError(f"cannot read the file: {e}") from e


def _write_parquet(path: Path, columns: Mapping[str, Sequence[object]]) -> None:
    arrow, parquet = _arrow("pyarrow"), _arrow("pyarrow.parquet")
    parquet.write_table(arrow.table(dict(columns)), path)


def _arrow(name: str) -> Any:
    """A module of pyarrow, which only parquet needs."""
    try:
        return importlib.import_module(name)
    except ImportError as e:
        raise TrafficError("parquet needs pyarrow: pip install 'bucketize[parquet]'") from e
