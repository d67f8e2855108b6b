"""Weights in fewer bits: the numbers nearest to them that a short format holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bucketize.types.number import BFLOAT16, DType

Array = NDArray[Any]

LEVELS = 127  # of int8, to either side of 0


def bfloat16_bits(y: Array) -> NDArray[np.uint16]:
    """The bfloat16 nearest to each element, the even one of two; no number stays no number."""
    bits = np.ascontiguousarray(y, np.float32).view(np.uint32)
    odd = (bits >> 16) & 1
    near = (bits + (np.uint32(0x7FFF) + odd)) >> 16
    return np.where(np.isnan(y), (bits >> 16) | 0x40, near).astype(np.uint16)


def int8_columns(y: Array) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """A stack of matrices as int8, and the float32 that 1 stands for in each column."""
    y = np.asarray(y, np.float32)
    most = np.abs(y).max(axis=-2, keepdims=True, initial=0)
    step = np.maximum(most / np.float32(LEVELS), np.finfo(np.float32).tiny)
    with np.errstate(invalid="ignore"):  # the step of a column that is not finite is not, either
        return np.rint(y / step).astype(np.int8), step


@dataclass(frozen=True)
class Format:
    """A format of weights: floats of fewer bits, or multiples of a step for each column."""

    dtype: DType
    """The dtype of an element in memory."""
    held: Callable[[Array], Array | tuple[Array, Array]]
    """The elements of a stack of matrices, and their steps, if they have such."""
    stepped: bool = False


PLAIN = "float32"
FORMATS = {
    PLAIN: Format(np.dtype(np.float32), lambda y: y),
    "bfloat16": Format(BFLOAT16, lambda y: bfloat16_bits(y).view(BFLOAT16)),
    "int8": Format(np.dtype(np.int8), int8_columns, stepped=True),
}


def rounded(y: Array, weights: str) -> Array:
    """`y` in its own dtype; floats as numbers that the format holds.

    bfloat16: within 2**-8 of each element. int8: within a 254th of its column's largest magnitude.
    """
    if y.dtype.kind != "f" or weights == PLAIN:
        return y
    codes = FORMATS[weights].held(y)
    with np.errstate(invalid="ignore"):
        exact = codes[0] * codes[1] if isinstance(codes, tuple) else codes.astype(np.float32)
        return np.asarray(exact, y.dtype)
