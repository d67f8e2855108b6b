"""Matrix products and determinants."""

from __future__ import annotations

from typing import Any

import numpy as np

from bucketize.errors import TypeRelError
from bucketize.op import FREE, UNSAFE, Array, Fill, Padding, op
from bucketize.ops.rounding import FORMATS, PLAIN, rounded
from bucketize.ops.rules import broadcast_padding, check_bytes, check_word, floats, same
from bucketize.types import Dim, Shape, broadcast_shapes, meet, product
from bucketize.types.number import DType

__all__ = ["det", "matmul", "matmul_integer"]


def _matmul_shape(x: Shape, y: Shape, *, weights: str = PLAIN) -> Shape:
    check_word("weights of", weights, FORMATS)
    if len(x) < 2 or len(y) < 2:
        raise TypeRelError(f"matmul takes matrices or stacks of them, got ranks {len(x)}, {len(y)}")
    meet(x[-1], y[-2])
    return (*broadcast_shapes(x[:-2], y[:-2]), x[-2], y[-1])


def _matmul_padding(arg: int, axis: int, x: Shape, y: Shape, **_: Any) -> Padding:
    from_end = axis - len((x, y)[arg])
    if from_end < -2:
        return broadcast_padding(arg, axis, x, y)
    if from_end == (-1, -2)[arg]:  # the axis that is summed
        return Fill(0) if same(x[-1], y[-2]) else UNSAFE
    return FREE


def _matmul_work(out: Shape, x: Shape, _y: Shape, **_: Any) -> Dim:
    return product(out) * x[-1]


@op(
    shape=_matmul_shape,
    padding=_matmul_padding,
    total=True,
    work=_matmul_work,
    example="float32[M, K], float32[K, N]; float32[B, 1, M, K], float32[H, K, N]; "
    "float32[B, M, K], float32[B, K, N]; int32[M, K], int32[K, N]; "
    "float32[M, K], float32[K, N] {weights='bfloat16'}; "
    "float32[M, K], float32[K, N] {weights='int8'}",
)
def matmul(x: Array, y: Array, *, weights: str = "float32") -> Array:
    """The matrix product over the last two axes; the others broadcast.

    By `weights` floats of `y` are rounded first: "bfloat16" each within 2**-8 of itself, "int8"
    within a 254th of its column's largest magnitude. A product is off by so much of |x| @ |y| at
    most, or of the sum of a row's |x| times that magnitude.
    """
    return np.asarray(np.matmul(x, rounded(y, weights)))


def _det_shape(x: Shape) -> Shape:
    if len(x) < 2:
        raise TypeRelError(f"det takes matrices or stacks of them, got rank {len(x)}")
    meet(x[-1], x[-2])
    return x[:-2]


@op(
    shape=_det_shape,
    dtype=floats,
    padding=lambda _, axis, x: FREE if axis < len(x) - 2 else UNSAFE,
    example="float32[N, C, C]; float64[3, 3]; float32[B, 1, 2, 2]",
)
def det(x: Array) -> Array:
    """The determinants of square matrices (ONNX Det)."""
    return np.asarray(np.linalg.det(x.astype(np.float64)), x.dtype)


def _sum_dtype(x: DType, y: DType) -> DType:
    for dtype in (x, y):
        check_bytes("matmul_integer", dtype)
    return np.dtype(np.int32)


@op(
    shape=_matmul_shape,
    dtype=_sum_dtype,
    padding=_matmul_padding,
    work=_matmul_work,
    example="uint8[M, K] in [0, 256), int8[K, N] in [-128, 128); "
    "int8[B, 1, M, K] in [-128, 128), int8[H, K, N] in [-128, 128); "
    "uint8[B, M, K] in [0, 256), uint8[K, N] in [0, 256); "
    "int8[M, K] in [-128, 128), uint8[B, K, N] in [0, 256)",
)
def matmul_integer(x: Array, y: Array) -> Array:
    """The product of matrices of bytes, as sums of 32 bits that wrap around."""
    wide = np.matmul(x.astype(np.float64), y.astype(np.float64))  # exact up to 2**53
    return np.asarray(wide.astype(np.int64).astype(np.int32))
