"""Operators on the bits of integers, element by element."""

from __future__ import annotations

import numpy as np

from bucketize.errors import TypeRelError
from bucketize.op import Array, Op, op
from bucketize.ops.elementwise.arithmetic import elementwise, of_numpy
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


def bitwise(name: str, scalar: str, ufunc: np.ufunc, what: str, example: str = EXAMPLE) -> Op:
    """An operator on the bits of integers, each by itself."""
    return of_numpy(name, ufunc, what, elementwise(scalar, example, integers))


ONE = "int64[N, C]; int8[N]; uint16[N] in [0, 2**16)"
bitwise_and = bitwise("bitwise_and", "x0 & x1", np.bitwise_and, "The bits that both have.")
bitwise_or = bitwise("bitwise_or", "x0 | x1", np.bitwise_or, "The bits that one of them has.")
bitwise_xor = bitwise(
    "bitwise_xor", "x0 ^ x1", np.bitwise_xor, "The bits that just one of them has."
)
bitwise_not = bitwise("bitwise_not", "~x0", np.bitwise_not, "The bits that `x` does not have.", ONE)

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
