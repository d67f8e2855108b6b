"""Weights in fewer bits: the numbers nearest to them that a short format holds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

FORMATS = ("float32", "bfloat16", "int8")
LEVELS = 127  # of int8, to either side of 0


def bfloat16_bits(y: Array) -> NDArray[np.uint16]:
    """The bfloat16 nearest to each element, the even one of two; no number stays no number."""
    bits = np.ascontiguousarray(y, np.float32).view(np.uint32)
    odd = (bits >> 16) & 1
    near = (bits + (np.uint32(0x7FFF) + odd)) >> 16
    return np.where(np.isnan(y), (bits >> 16) | 0x40, near).astype(np.uint16)


def int8_columns(y: Array) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Of a stack of matrices: int8, and the float32 that 1 stands for in each column."""
    y = np.asarray(y, np.float32)
    most = np.abs(y).max(axis=-2, keepdims=True, initial=0)
    step = np.maximum(most / np.float32(LEVELS), np.finfo(np.float32).tiny)
    with np.errstate(invalid="ignore"):  # the step of a column that is not finite is not, either
        return np.rint(y / step).astype(np.int8), step


def rounded(y: Array, weights: str) -> Array:
    """`y` in its own dtype; floats as numbers that the format holds.

    bfloat16: within 2**-8 of each element. int8: within a 254th of its column's largest magnitude.
    """
    if y.dtype.kind != "f":
        return y
    if weights == "bfloat16":
        bits = bfloat16_bits(y).astype(np.uint32) << 16
        return bits.view(np.float32).astype(y.dtype)
    if weights == "int8":
        levels, step = int8_columns(y)
        with np.errstate(invalid="ignore"):
            return (levels * step).astype(y.dtype)
    return y
