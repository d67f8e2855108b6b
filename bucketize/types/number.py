"""Kinds of numbers: numpy's own, and the short ones that ml_dtypes registers with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes  # onnx reads bfloat16, float8 and int4 as its dtypes
import numpy as np

DType = np.dtype[Any]

HALF, BFLOAT16 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
HALVES = (HALF, BFLOAT16)
"""Floats of 16 bits: kernels compute in float32 what they hold."""
SCALE = np.dtype(ml_dtypes.float8_e8m0fnu)
"""Powers of two."""
FLOAT8 = frozenset(
    map(
        np.dtype,
        (
            ml_dtypes.float8_e4m3fn,
            ml_dtypes.float8_e4m3fnuz,
            ml_dtypes.float8_e5m2,
            ml_dtypes.float8_e5m2fnuz,
        ),
    )
)
"""Those to which ONNX can saturate."""
_FLOAT, _SIGNED, _UNSIGNED = map(np.dtype, (np.float32, np.int8, np.uint8))
SHORT: Mapping[DType, DType] = {
    BFLOAT16: _FLOAT,
    **dict.fromkeys(FLOAT8, _FLOAT),
    SCALE: _FLOAT,
    np.dtype(ml_dtypes.float4_e2m1fn): _FLOAT,
    **dict.fromkeys(map(np.dtype, (ml_dtypes.int4, ml_dtypes.int2)), _SIGNED),
    **dict.fromkeys(map(np.dtype, (ml_dtypes.uint4, ml_dtypes.uint2)), _UNSIGNED),
}
"""Dtypes that numpy does not compute with, and what their numbers are computed in."""
WIDER: Mapping[DType, DType] = {**SHORT, HALF: _FLOAT}
"""What numbers are computed in that are too short for what lies between: squares, sums, powers."""


def kind_of(dtype: DType) -> str:
    """The letter of numpy's kinds, for short numbers, too: `b`, `i`, `u`, `f`, ..."""
    return SHORT.get(dtype, dtype).kind


def integer_limits(dtype: DType) -> tuple[int, int]:
    """The least and the greatest number of a dtype of integers."""
    limits = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    return int(limits.min), int(limits.max)


def greatest_float(dtype: DType) -> float:
    """The greatest number of a dtype of floats."""
    return float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]
