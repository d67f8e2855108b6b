"""`Predictor`: a model over data sets, for Ray Data's `map_batches` and Dask's `map_partitions`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import repeat
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from bucketize.errors import ArgumentError, BucketizeError, RequestsError, unknown_name
from bucketize.executable import Executable
from bucketize.loader import identity, load
from bucketize.many.plan import own_notes
from bucketize.op import Array, Value
from bucketize.types import TensorType

Source: TypeAlias = str | Path | Callable[[], Executable]
"""The path of a saved program, or a function that makes an executable."""
Row: TypeAlias = Mapping[str, Any]
KEPT = 8
"""Programs that a process has open for batches to come."""


class Predictor:
    """Rows in, the same rows with the results of a model out, in order.

    It goes over to workers as its arguments: there the model is opened at its first batch, once
    for each process. Rows of a batch share calls as requests of `run_many` do, and may have
    lengths of their own.
    """

    def __init__(self, model: Source, *, key: str | None = None, trusted: bool = False) -> None:
        """Nothing is opened yet.

        Args:
            model: the path of a saved program, where the workers find it; or a function without
                arguments that makes an executable.
            key: the column that errors name a row by; None: by its place in the batch alone.
            trusted: as that of `load`.

        """
        self.model, self.key, self.trusted = model, key, trusted

    def __getstate__(self) -> dict[str, Any]:
        return {"model": self.model, "key": self.key, "trusted": self.trusted}

    @cached_property
    def executable(self) -> Executable:
        """What runs here."""
        return opened(self.model, self.trusted)

    def __call__(self, batch: Any) -> Any:
        """The batch with a column for each output of the model.

        A cell holds an input of the model, or, if all cells do, one without the first axis, whose
        size is 1 then; results are without it, too.

        Args:
            batch: columns by name, as of `map_batches(batch_format="numpy")`; a frame of pandas;
                or rows, each a mapping, as of a bag of Dask.

        Returns:
            Of the same kind, and as long.

        Raises:
            ArgumentError: none of these, or a column that is called like an output.
            BucketizeError: what `run` refuses a row by; the note says which row.
            UnknownNameError: a column is missing.

        """
        if isinstance(batch, pd.DataFrame):
            columns = {str(name): list(batch[name]) for name in batch.columns}
            return batch.assign(**self._results(columns))
        if isinstance(batch, Mapping):
            results = self._results(batch)
            return {**batch, **{name: _column(cells) for name, cells in results.items()}}
        return self._of_rows(_rows(batch))

    def _of_rows(self, rows: Sequence[Row]) -> list[Row]:
        if not rows:  # as of a bag's part that a filter left empty
            return []
        names = dict.fromkeys(name for row in rows for name in row)
        results = self._results({name: [row.get(name) for row in rows] for name in names})
        cells = zip(*results.values(), strict=True)
        return [
            {**row, **dict(zip(results, of_row, strict=True))}
            for row, of_row in zip(rows, cells, strict=True)
        ]

    def _results(self, columns: Mapping[str, Sequence[Any]]) -> dict[str, list[Value]]:
        """The cells of each output."""
        exe = self.executable
        self._check(exe, columns)
        requests, are_parts = _requests(exe, columns)
        try:
            results = exe.run_many(requests)
        except RequestsError as e:
            raise self._first(e, columns) from None
        if are_parts:
            results = [[_part(value) for value in each] for each in results]
        return {name: [each[i] for each in results] for i, name in enumerate(exe.outputs)}

    def _check(self, exe: Executable, columns: Mapping[str, Sequence[Any]]) -> None:
        for param in exe.program.routines.params("main"):
            if not isinstance(param.type, TensorType):
                raise ArgumentError(f"input {param.name!r} is {param.type}: a cell is a tensor")
        for name in exe.outputs:
            if name in columns:
                raise ArgumentError(f"column {name!r} is there already: an output is called so")
        for name in (*exe.inputs, *([] if self.key is None else [self.key])):
            if name not in columns:
                raise unknown_name("column", name, columns)

    def _first(self, error: RequestsError, columns: Mapping[str, Sequence[Any]]) -> Exception:
        """The error of the first row that has one; the note says which it is."""
        failed = [(i, e) for i, e in enumerate(error.results) if isinstance(e, Exception)]
        place, first = failed[0]
        name = "" if self.key is None else f", {self.key} {columns[self.key][place]}"
        more = f"; {len(failed) - 1} others of the batch failed" if failed[1:] else ""
        first = alone(first)
        first.add_note(f"in row {place} of the batch{name}{more}")
        return first


def alone(error: Exception) -> Exception:
    """The error without which of the requests that shared a call it was."""
    if isinstance(error, BucketizeError):
        error.notes = own_notes(error)
    return error


def opened(model: Source, trusted: bool) -> Executable:
    """What a function makes, or the program of a file, which a process opens once."""
    if isinstance(model, str | os.PathLike):
        return _loaded(os.fspath(model), trusted, identity(model))
    executable = model() if callable(model) else model
    if not isinstance(executable, Executable):
        expected = "expected a path, or a function that makes an executable"
        raise ArgumentError(f"{expected}, got {executable!r}")
    return executable


@lru_cache(maxsize=KEPT)
def _loaded(path: str, trusted: bool, _: object) -> Executable:
    return load(path, trusted=trusted)


def _rows(batch: Any) -> list[Row]:
    is_many = isinstance(batch, Iterable) and not isinstance(batch, str | bytes | np.ndarray)
    rows = list(batch) if is_many else [batch]
    for row in rows:
        if not isinstance(row, Mapping):
            kind = type(row).__name__
            raise ArgumentError(f"expected columns, a frame, or rows that are mappings, got {kind}")
    return rows


def _requests(
    exe: Executable, columns: Mapping[str, Sequence[Any]]
) -> tuple[list[dict[str, Array]], bool]:
    """A request for each row, and whether the first axis was added."""
    ranks = {p.name: len(p.type.dims) for p in exe.program.routines.params("main")}
    cells = [[np.asarray(cell) for cell in columns[name]] for name in ranks]
    rows = list(zip(*cells, strict=True))
    are_parts = all(map(_are_parts, rows, repeat(tuple(ranks.values()))))
    if are_parts:
        rows = [tuple(cell[None] for cell in row) for row in rows]
    return [dict(zip(ranks, row, strict=True)) for row in rows], are_parts


def _are_parts(row: Sequence[Array], ranks: Sequence[int]) -> bool:
    return all(cell.ndim == rank - 1 for cell, rank in zip(row, ranks, strict=True))


def _part(value: Value) -> Value:
    """A result without its first axis, if that is of size 1."""
    is_one = isinstance(value, np.ndarray) and value.shape[:1] == (1,)
    return value[0] if is_one else value


def _column(cells: Sequence[Value]) -> Array:
    """An array of all cells; of arrays, where their shapes differ."""
    arrays = [np.asarray(cell) for cell in cells if isinstance(cell, np.ndarray | np.generic)]
    if len(arrays) == len(cells) and len({array.shape for array in arrays}) == 1:
        return np.stack(arrays)
    column = np.empty(len(cells), object)
    column[:] = list(cells)
    return column
