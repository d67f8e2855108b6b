"""Rows of numbers, told by their columns: in order, and each once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Integers: TypeAlias = NDArray[np.int64]


def grouped(columns: Sequence[NDArray[Any]]) -> tuple[Integers, Integers]:
    """An order of rows in which equal ones are neighbours.

    Args:
        columns: at least one, the one that is sorted by first before others.

    Returns:
        The places of rows, in order, and where in it the first of equal ones are: what
        `numpy.add.reduceat` takes.

    """
    order = np.lexsort(columns[::-1])
    first = np.zeros(len(order), bool)
    first[:1] = True
    for column in columns:
        first[1:] |= np.diff(column[order]) != 0
    return order, np.flatnonzero(first)
