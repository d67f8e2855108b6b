"""Ops that turn dims into tensors: what is left of shape arithmetic, and dispatch decisions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bucketize.op import FREE, UNSAFE, Array, op
from bucketize.ops.rules import limits
from bucketize.types import Dim, Interval, Shape, bounds
from bucketize.types.number import kind_of

__all__ = ["dim_less", "dims_within", "from_dims", "mask_tail"]


@op(
    shape=lambda *, dims, scalar: () if scalar else (len(dims),),
    dtype=lambda **_: np.dtype(np.int64),
    padding=lambda *_, **__: UNSAFE,
    value=lambda *, dims, **_: dims,
    example="{dims=(3, 4), scalar=False}",
)
def from_dims(*, dims: Shape, scalar: bool = False) -> Array:
    """The dims as an integer vector, or the only one as a scalar."""
    return np.asarray(dims[0] if scalar else dims, dtype=np.int64)


def _within_value(*, dims: Shape, box: tuple[Interval, ...]) -> Shape | None:
    """By the bounds alone: a tree of decisions has thousands of these."""
    inside = True
    for dim, (lo, hi) in zip(dims, box, strict=True):
        least, most = bounds(dim)
        if (hi is not None and least >= hi) or (most is not None and most < lo):
            return (0,)
        inside &= least >= lo and (hi is None or (most is not None and most < hi))
    return (1,) if inside else None


@op(
    shape=lambda **_: (),
    dtype=lambda **_: np.dtype(np.bool_),
    padding=lambda *_, **__: UNSAFE,
    value=lambda *, dim, than: _within_value(dims=(dim,), box=((0, than),)),
    example="{dim=N, than=4}",
)
def dim_less(*, dim: Dim, than: int) -> Array:
    """Whether an extent is smaller than a bound: a node of a decision tree."""
    return np.asarray(dim < than)  # type: ignore[operator]


@op(
    shape=lambda **_: (),
    dtype=lambda **_: np.dtype(np.bool_),
    padding=lambda *_, **__: UNSAFE,
    value=_within_value,
    example="{dims=(N, 4), box=((1, 4), (2, None))}",
)
def dims_within(*, dims: Shape, box: tuple[Interval, ...]) -> Array:
    """Whether extents lie in half-open intervals, one for each."""
    pairs = zip(dims, box, strict=True)
    return np.asarray(all(lo <= d and (hi is None or d < hi) for d, (lo, hi) in pairs))  # type: ignore[operator]


def fill_number(value: float, dtype: np.dtype[Any]) -> Array:
    """`value` as a scalar of `dtype`; infinities and NaN are the least or the greatest integer."""
    if kind_of(dtype) in "biu" and not math.isfinite(value):
        return np.asarray(limits(dtype)[value != -math.inf], dtype)
    return np.asarray(value).astype(dtype)


@op(
    shape=lambda x, _n, **_: x,
    dtype=lambda x, _n, **_: x,
    padding=lambda *_, **__: FREE,
    example="float32[N, C], int64[] in [0, C) {axis=1, value=0.0}",
)
def mask_tail(x: Array, n: Array, *, axis: int, value: float) -> Array:
    """`x` with everything from index `n` on along `axis` replaced by `value`."""
    index = np.arange(x.shape[axis]).reshape((-1,) + (1,) * (x.ndim - 1 - axis))
    return np.where(index < n, x, fill_number(value, x.dtype))
