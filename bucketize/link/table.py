"""Blocks and tables as arrays, filled by the names of their words: those of `link.block`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TypeVar

import numpy as np

from bucketize.link.memory import address
from bucketize.op import Array

T = TypeVar("T")


def row(words: type[IntEnum], /, **values: T) -> list[T | int]:
    """The values of words by their names; those that are not given are 0.

    Raises KeyError where a name is not among them.
    """
    _check(words, values)
    return [values.get(name, 0) for name in words.__members__]


def block(words: type[IntEnum], /, **values: int) -> Array:
    """The values of words by their names, as a block of int64; those that are not given are 0."""
    return np.array(row(words, **values), np.int64)


def table(words: type[IntEnum], columns: str, rows: Sequence[Sequence[int]]) -> Array:
    """Rows of numbers, which are the words that `columns` names in order; others are 0."""
    names = columns.split()
    _check(words, names)
    array = np.zeros((len(rows), len(words)), np.int64)
    array[:, [words[name] for name in names]] = np.reshape(rows, (len(rows), len(names)))
    return array


def _check(words: type[IntEnum], names: Iterable[str]) -> None:
    members = words.__members__
    if unknown := ", ".join(sorted(set(names) - members.keys())):
        raise KeyError(f"{words.__name__} has {', '.join(members)}, not {unknown}")


def rows_of(arrays: Mapping[str, Array]) -> dict[str, int]:
    """The words of arrays: address and number of rows."""
    words = {name: address(array) for name, array in arrays.items()}
    return words | {f"n_{name}": len(array) for name, array in arrays.items()}
