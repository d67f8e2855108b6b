"""Segments: an axis in parts of unequal lengths, one behind the other.

`ends` say where each ends, and the next one begins. Nothing of one segment meets anything of
another.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bucketize.errors import TypeRelError
from bucketize.op import FREE, UNSAFE, Array, Op, Padding, op
from bucketize.ops.dim import fill_number
from bucketize.ops.rules import check_axes
from bucketize.types import Shape, meet
from bucketize.types.number import DType

__all__ = ["mask_segments", "segment_max", "segment_sum"]


def _first(x: DType, ends: DType, **_: Any) -> DType:
    if ends != np.int64:
        raise TypeRelError(f"ends are int64, not {ends}")
    return x


def _check_ends(ends: Shape) -> None:
    if len(ends) != 1:
        raise TypeRelError(f"ends are a vector, got rank {len(ends)}")


def _masked_shape(x: Shape, ends: Shape, **_: Any) -> Shape:
    _check_ends(ends)
    if len(x) < 2:
        raise TypeRelError(f"mask_segments takes matrices or stacks of them, got rank {len(x)}")
    meet(x[-1], x[-2])
    return x


def _apart(arg: int, axis: int, x: Shape, _ends: Shape, **_: Any) -> Padding:
    return FREE if arg == 0 and axis < len(x) - 2 else UNSAFE


@op(
    shape=_masked_shape,
    dtype=_first,
    padding=_apart,
    example="float32[N, 5, 5], int64[2] = (2, 5) {value=-1.0}; "
    "float32[4, 4], int64[3] = (1, 1, 4) {value=0.0}",
)
def mask_segments(x: Array, ends: Array, *, value: float) -> Array:
    """`x` with `value` where row and column, the last two axes, are of two segments."""
    mine = np.searchsorted(ends, np.arange(x.shape[-1]), "right")
    return np.where(mine[:, None] == mine, x, fill_number(value, x.dtype))


def _reduced_shape(x: Shape, ends: Shape, *, axis: int) -> Shape:
    check_axes(len(x), axis)
    _check_ends(ends)
    return (*x[:axis], ends[0], *x[axis + 1 :])


def _reduction(ufunc: np.ufunc, nothing: float, what: str) -> Op:
    """An operator that brings the elements of each segment together."""

    def reduced(x: Array, ends: Array, *, axis: int) -> Array:
        begin = np.concatenate([np.zeros(1, ends.dtype), ends])[: len(ends)]
        some = np.flatnonzero(ends > begin)
        shape = (*x.shape[:axis], len(begin), *x.shape[axis + 1 :])
        out = np.full(shape, fill_number(nothing, x.dtype))
        if len(some):
            before: tuple[Any, ...] = (slice(None),) * axis
            inside = x[(*before, slice(int(ends[some[-1]])))]
            out[(*before, some)] = ufunc.reduceat(inside, begin[some], axis, dtype=x.dtype)
        return out

    reduced.__doc__ = what
    return op(
        name=f"segment_{'sum' if ufunc is np.add else 'max'}",
        shape=_reduced_shape,
        dtype=_first,
        padding=lambda arg, at, *_, axis: UNSAFE if arg or at == axis else FREE,
        example="float32[N, 5], int64[2] = (2, 5) {axis=1}; "
        "float32[5, C], int64[3] = (3, 3, 5) {axis=0}; int64[4], int64[1] = (4,) {axis=0}",
    )(reduced)


segment_sum = _reduction(
    np.add, 0, "The sums of segments of `x` along `axis`; of one without elements, 0."
)
segment_max = _reduction(
    np.maximum, -math.inf, "The greatest of each segment of `x` along `axis`; of none, the least."
)
