"""How far a result is from the one that is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]


def relative_error(got: Array, expected: Array) -> float:
    """The largest difference by the largest magnitude of what is finite.

    Infinite where NaN or an infinity is in one alone.
    """
    if got.dtype.isbuiltin != 1:  # short numbers, which numpy does not compute with
        got, expected = got.astype(np.float32), expected.astype(np.float32)
    if got.dtype.kind != "f":
        return 0.0 if np.array_equal(got, expected) else float("inf")
    finite = np.isfinite(expected)
    if not np.array_equal(finite, np.isfinite(got)):
        return float("inf")
    if not finite.all():
        if not np.array_equal(got[~finite], expected[~finite], equal_nan=True):
            return float("inf")
        got, expected = got[finite], expected[finite]
    scale = np.abs(expected).max(initial=0.0) or 1.0
    apart = np.subtract(got, expected, dtype=np.float64)
    return float(np.abs(apart).max(initial=0.0) / scale)


def worst_error(got: Sequence[Array], expected: Sequence[Array]) -> float:
    """The largest relative error of several results."""
    return max(relative_error(a, b) for a, b in zip(got, expected, strict=True))
