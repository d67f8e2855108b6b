"""Operators that make tensors of nothing but their attributes, which may hold dims."""

from __future__ import annotations

import numpy as np

from bucketize.op import Array, op
from bucketize.ops.rules import check_extents, free, named_dtype, range_extent
from bucketize.types import Dim, Shape, product

__all__ = ["arange", "full"]


def full_value(shape: Shape, value: float) -> Shape:
    """The elements of a tensor of `shape` that holds one value."""
    size = product(shape)
    assert isinstance(size, int)
    return (int(value),) * size


@op(
    shape=lambda shape, **_: check_extents(shape),
    dtype=named_dtype,
    padding=free,
    value=lambda shape, value, **_: full_value(shape, value),
    total=True,
    sizing=("shape",),
    example='{shape=(N, C), value=1.5, dtype="float32"}; {shape=(2, 3), value=7, dtype="int64"}; '
    '{shape=(), value=True, dtype="bool"}',
)
def full(*, shape: tuple[int, ...], value: float, dtype: str) -> Array:
    """A tensor of one value throughout."""
    return np.full(shape, value, dtype)


def arange_value(start: Dim, stop: Dim, step: Dim) -> Shape:
    """The elements of an `arange` whose number is known."""
    count = range_extent(start, stop, step)
    assert isinstance(count, int)
    return tuple(start + i * step for i in range(count))


@op(
    shape=lambda start, stop, step, **_: (range_extent(start, stop, step),),
    dtype=named_dtype,
    padding=free,
    value=lambda start, stop, step, **_: arange_value(start, stop, step),
    sizing=("stop",),
    example="{stop=N}; {start=2, stop=N}; {start=N, stop=-3, step=-2}; "
    '{start=1, stop=9, step=3, dtype="int32"}; {start=N, stop=N+3}',
)
def arange(*, start: int = 0, stop: int, step: int = 1, dtype: str = "int64") -> Array:
    """The integers from `start` to `stop`, which is left out."""
    return np.arange(start, stop, step).astype(dtype)
