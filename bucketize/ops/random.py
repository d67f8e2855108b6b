"""Operators that draw numbers. What is drawn follows from seed and shape: each call draws the same.

The numbers are those of numpy's `RandomState`, which never change, as in `onnx.reference`.
"""

from __future__ import annotations

import numpy as np

from bucketize.op import Array, op
from bucketize.ops.rules import named_dtype, unsafe

__all__ = ["normal_like", "uniform_like"]


@op(
    shape=lambda x, **_: x,
    dtype=named_dtype,
    padding=unsafe,
    example='float32[N, C] {seed=3, dtype="float32"}; '
    'int64[M, 2] {mean=2.0, scale=0.5, seed=4, dtype="float64"}',
)
def normal_like(x: Array, *, mean: float = 0.0, scale: float = 1.0, seed: int, dtype: str) -> Array:
    """Numbers of a normal distribution, as many as `x` has (ONNX RandomNormalLike)."""
    drawn = np.asarray(np.random.RandomState(seed).randn(*x.shape))
    with np.errstate(over="ignore"):
        return (drawn * scale + mean).astype(dtype)


@op(
    shape=lambda x, **_: x,
    dtype=named_dtype,
    padding=unsafe,
    example='float32[N, C] {seed=3, dtype="float32"}; '
    'int64[M, 2] {low=2.0, high=2.5, seed=4, dtype="float16"}',
)
def uniform_like(x: Array, *, low: float = 0.0, high: float = 1.0, seed: int, dtype: str) -> Array:
    """Numbers from `low` up to below `high`, as many as `x` has (ONNX RandomUniformLike)."""
    drawn = np.asarray(np.random.RandomState(seed).rand(*x.shape))
    with np.errstate(over="ignore"):
        numbers = (drawn * (high - low) + low).astype(dtype)
    if not low < high:
        return numbers
    below = np.nextafter(numbers.dtype.type(high), numbers.dtype.type(low))
    return np.asarray(np.minimum(numbers, below))  # a number may have been rounded up to `high`
