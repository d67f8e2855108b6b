"""Rules about dims that several families of operators share."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from bucketize.errors import TypeRelError
from bucketize.op import FREE, UNSAFE, Padding, same_dtype
from bucketize.types import ANY, AnyDim, Dim, Shape, broadcast_shapes, maximum, minimum, product
from bucketize.types.number import DType, integer_limits, kind_of

MOST = 2**60  # elements: more of them, of 8 bytes each, have no addresses
BYTES = np.dtype(np.int8), np.dtype(np.uint8)
ENDLESS = 2**31 - 1  # exporters write "to the end" as this or more; no axis is that long


def at_least(a: Dim, b: Dim) -> bool:
    """Whether `a >= b` is certain."""
    return not isinstance(a, AnyDim) and not isinstance(b, AnyDim) and minimum(a, b) == b


def same(a: Dim, b: Dim) -> bool:
    """Whether `a == b` is certain: two unknown extents are not the same."""
    return a == b and not isinstance(a, AnyDim)


def limits(dtype: DType) -> tuple[int, int]:
    """The least and the greatest number of a dtype of integers or truth values."""
    if dtype.kind == "b":
        return 0, 1
    return integer_limits(dtype)


def check_bytes(op: str, dtype: DType) -> None:
    """What an operator of bytes takes."""
    if dtype not in BYTES:
        raise TypeRelError(f"{op} takes bytes, int8 or uint8, got {dtype}")


def extreme_numbers(dtype: DType) -> tuple[float, float]:
    """The least and the greatest number of a dtype: infinities, if it has them."""
    return (-math.inf, math.inf) if kind_of(dtype) == "f" else limits(dtype)


def text(shape: Shape) -> str:
    """A shape as messages show it."""
    return f"[{', '.join(map(str, shape))}]"


def uncancelled(a: Shape, b: Shape) -> tuple[Dim, Dim]:
    """The products of two shapes without the dims that they share."""
    left, right = list(a), []
    for d in b:
        if any(same(d, e) for e in left):
            left.remove(d)
        else:
            right.append(d)
    return product(left), product(right)


def check_word(what: str, value: str, words: Collection[str]) -> None:
    """An attribute that is one of some words."""
    if value not in words:
        raise TypeRelError(f"no {what} {value!r}; known: {', '.join(words)}")


def check_extents(shape: Shape) -> Shape:
    """The shape, of which no extent may be negative as far as they are known."""
    for d in shape:
        if isinstance(d, int) and d < 0:
            raise TypeRelError(f"a negative extent in {text(shape)}")
    return shape


def check_axes(rank: int, *axes: int) -> None:
    """Axes must be those of a tensor of `rank`, counted from the front, each of them once."""
    if len(set(axes)) < len(axes):
        raise TypeRelError(f"axes {axes} name one of them twice")
    for a in axes:
        if not 0 <= a < rank:
            raise TypeRelError(f"axis {a} is out of range for rank {rank}")


def check_lengths(begin: Shape, end: Shape, strides: Shape, axes: Shape) -> None:
    """A slice is told as many of each."""
    if not len(begin) == len(end) == len(strides) == len(axes):
        lengths = ", ".join(str(len(t)) for t in (begin, end, strides, axes))
        raise TypeRelError(f"begin, end, strides and axes differ in length: {lengths}")


def broadcast_rule(*shapes: Shape, **_: Any) -> Shape:
    """The shape rule of an op that broadcasts its arguments."""
    return broadcast_shapes(*shapes)


def broadcast_padding(arg: int, axis: int, *shapes: Shape, **_: Any) -> Padding:
    """Padding an axis is free if the axes aligned with it are padded along or are 1."""
    from_end = axis - len(shapes[arg])
    dim = shapes[arg][axis]
    aligned = [s[from_end] for s in shapes if len(s) >= -from_end]
    return FREE if all(same(d, dim) or d == 1 for d in aligned) else UNSAFE


def _only(kinds: str, what: str) -> Callable[..., DType]:
    def dtype(*dtypes: DType, **_: Any) -> DType:
        if kind_of(dtypes[0]) not in kinds:
            raise TypeRelError(f"expected {what}, got {dtypes[0]}")
        return same_dtype(*dtypes)

    return dtype


floats = _only("f", "floats")
integers = _only("iu", "integers")
bools = _only("b", "bools")
numbers = _only("iufc", "numbers")


def to_bool(*dtypes: DType, **_: Any) -> DType:
    """The dtype rule of an op that says whether."""
    same_dtype(*dtypes)
    return np.dtype(bool)


def int64(*_: Any, **__: Any) -> DType:
    """The dtype rule of an op that counts."""
    return np.dtype(np.int64)


def named_dtype(*_: Any, dtype: str, **__: Any) -> DType:
    """The dtype rule of an op that is told its dtype."""
    try:
        return np.dtype(dtype)
    except TypeError as e:
        raise TypeRelError(f"no dtype {dtype!r}") from e


def unsafe(*_: Any, **__: Any) -> Padding:
    """The padding rule of an op that sees every extent."""
    return UNSAFE


def free(*_: Any, **__: Any) -> Padding:
    """The padding rule of an op that no padding reaches."""
    return FREE


def slice_ends(size: Dim, begin: Dim, end: Dim, step: int) -> tuple[Dim, Dim]:
    """Where a slice of an axis of `size` begins and ends, clamped as ONNX says."""
    if step > 0:
        return _clamped(begin, size, 0, size), _clamped(end, size, 0, size)
    return _clamped(begin, size, 0, size - 1), _clamped(end, size, -1, size - 1)


def _clamped(index: Dim, size: Dim, lo: Dim, hi: Dim) -> Dim:
    if isinstance(index, int) and abs(index) >= ENDLESS:
        return hi if index > 0 else lo
    if at_least(-1, index):
        index = index + size
        if same(index, hi):  # and no less than lo
            return hi
    elif not at_least(index, 0):  # a run tells from which end it counts
        near = minimum(maximum(index, -1 - size), size)
        index = near - size * minimum(maximum(near, -1), 0)
    return minimum(maximum(index, lo), hi)


def slice_extent(size: Dim, begin: Dim, end: Dim, step: Dim) -> Dim:
    """The extent of a slice of an axis of `size`."""
    if not isinstance(step, int):
        return ANY
    return range_extent(*slice_ends(size, begin, end, step), step)


def range_extent(start: Dim, stop: Dim, step: Dim) -> Dim:
    """The number of elements from `start` up, or down, to `stop`, which is left out."""
    if not isinstance(step, int):
        return ANY
    if step == 0:
        raise TypeRelError(f"a step of 0 from {start} to {stop}")
    way = stop - start if step > 0 else start - stop
    count = maximum((way + (abs(step) - 1)) // abs(step), 0)
    if isinstance(count, int) and count > MOST:
        raise TypeRelError(f"{count} elements from {start} to {stop}: no axis is that long")
    return count
