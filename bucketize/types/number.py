"""Kinds of numbers: numpy's own, and the short ones that ml_dtypes registers with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

ml_dtypes: Any
try:  # onnx reads bfloat16, float8 and int4 as its dtypes; the runtime alone does without
    import ml_dtypes
except ImportError:
    ml_dtypes = None

DType = np.dtype[Any]


def _short(name: str) -> DType:
    """A dtype of ml_dtypes; without it, one that no array has."""
    return np.dtype([(name, np.uint8)] if ml_dtypes is None else getattr(ml_dtypes, name))


HALF, BFLOAT16 = np.dtype(np.float16), _short("bfloat16")
HALVES = (HALF, BFLOAT16)
"""Floats of 16 bits: kernels compute in float32 what they hold."""
SCALE = _short("float8_e8m0fnu")
"""Powers of two."""
FLOAT8 = frozenset(
    map(_short, ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"))
)
"""Dtypes to which ONNX can saturate."""
_FLOAT, _SIGNED, _UNSIGNED = map(np.dtype, (np.float32, np.int8, np.uint8))
SHORT: Mapping[DType, DType] = {
    BFLOAT16: _FLOAT,
    **dict.fromkeys(FLOAT8, _FLOAT),
    SCALE: _FLOAT,
    _short("float4_e2m1fn"): _FLOAT,
    **dict.fromkeys(map(_short, ("int4", "int2")), _SIGNED),
    **dict.fromkeys(map(_short, ("uint4", "uint2")), _UNSIGNED),
}
"""Dtypes that numpy does not compute with, and what their numbers are computed in."""
LACKING = frozenset(d.names[0] for d in SHORT if d.names)
"""The names of those that are not here, for want of ml_dtypes."""
WIDER: Mapping[DType, DType] = {**SHORT, HALF: _FLOAT}
"""What numbers are computed in that are too short for what lies between: squares, sums, powers."""


def kind_of(dtype: DType) -> str:
    """The letter of numpy's kinds, for short numbers, too: `b`, `i`, `u`, `f`, ..."""
    return SHORT.get(dtype, dtype).kind


def integer_limits(dtype: DType) -> tuple[int, int]:
    """The least and the greatest number of a dtype of integers."""
    limits = ml_dtypes.iinfo(dtype)
    return int(limits.min), int(limits.max)


def greatest_float(dtype: DType) -> float:
    """The greatest number of a dtype of floats."""
    return float(ml_dtypes.finfo(dtype).max)
