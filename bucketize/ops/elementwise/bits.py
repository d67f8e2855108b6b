"""Operators on the bits of integers, element by element."""

from __future__ import annotations

import numpy as np

from bucketize.errors import TypeRelError
from bucketize.op import Array, op
from bucketize.ops.elementwise.arithmetic import elementwise
from bucketize.ops.rules import free, integers, named_dtype
from bucketize.types.number import DType

__all__ = [
    "bitcast",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "left_shift",
    "right_shift",
]

EXAMPLE = (
    "int64[N, C], int64[C]; int8[N, 1, C], int8[M, 1]; uint16[N] in [0, 2**16), uint16[] in [0, 99)"
)


@elementwise("x0 & x1", EXAMPLE, integers)
def bitwise_and(x: Array, y: Array) -> Array:
    """The bits that both have."""
    return np.bitwise_and(x, y)


@elementwise("x0 | x1", EXAMPLE, integers)
def bitwise_or(x: Array, y: Array) -> Array:
    """The bits that one of them has."""
    return np.bitwise_or(x, y)


@elementwise("x0 ^ x1", EXAMPLE, integers)
def bitwise_xor(x: Array, y: Array) -> Array:
    """The bits that just one of them has."""
    return np.bitwise_xor(x, y)


@elementwise("~x0", "int64[N, C]; int8[N]; uint16[N] in [0, 2**16)", integers)
def bitwise_not(x: Array) -> Array:
    """The bits that `x` does not have."""
    return np.bitwise_not(x)


SHIFTS = "int64[N, C] in [-99, 99), int64[C] in [0, 9); int8[N], int8[] in [0, 9); "
SHIFTS += "uint16[N] in [0, 2**16), uint16[N] in [0, 9); int32[N], int32[] in [64, 99); "
SHIFTS += "int32[N] in [-99, 99), int32[N] in [-99, 9)"
INSIDE = "(x1 >= 0) & (x1 < 64)"


@elementwise(f"where({INSIDE}, x0 << max(min(x1, 63), 0), 0)", SHIFTS, integers)
def left_shift(x: Array, y: Array) -> Array:
    """`x` with its bits `y` places higher; 0 where that is more than it has, or negative."""
    return np.left_shift(x, y)


@elementwise(f"x0 >> where({INSIDE}, max(x1, 0), 63) >> where({INSIDE}, 0, 1)", SHIFTS, integers)
def right_shift(x: Array, y: Array) -> Array:
    """`x` with its bits `y` places lower; those that come in are that of the sign.

    By a negative number no bit is left, as by more than there are.
    """
    return np.right_shift(x, y)


def _bitcast_dtype(x: DType, *, dtype: str) -> DType:
    other = named_dtype(dtype=dtype)
    if other.itemsize != x.itemsize:
        raise TypeRelError(f"the bits of {x} are not as many as those of {other}")
    return other


@op(
    shape=lambda x, **_: x,
    dtype=_bitcast_dtype,
    padding=free,
    example='float32[N, C] {dtype="int32"}; int64[N] {dtype="float64"}; bool[N] {dtype="uint8"}',
    bits=True,
)
def bitcast(x: Array, *, dtype: str) -> Array:
    """The bits of `x` read as another dtype of the same size (ONNX BitCast)."""
    return x.view(dtype)
