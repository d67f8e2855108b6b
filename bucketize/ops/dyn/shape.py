"""Operators told by tensors which extents they give, where they cut, and what they fill."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bucketize.errors import TypeRelError
from bucketize.op import Array, Attrs, op
from bucketize.ops.dyn.operand import Twin, counted, dynamic, elements, front_axes, lone, read, twin
from bucketize.ops.fill import arange, arange_value, full, full_value
from bucketize.ops.index import topk
from bucketize.ops.rules import (
    at_least,
    check_extents,
    check_lengths,
    range_extent,
    same,
    text,
    uncancelled,
    unsafe,
)
from bucketize.ops.selection import nonzero_rows
from bucketize.ops.shape import (
    Pads,
    broadcast_to,
    pad,
    rely_on_extents,
    reshape,
    strided_slice,
    tile,
)
from bucketize.types import ANY, Dim, Shape, TensorType, Type, assumptions
from bucketize.types.number import kind_of

__all__ = [
    "dyn_arange",
    "dyn_broadcast_to",
    "dyn_first_rows",
    "dyn_full",
    "dyn_nonzero_rows",
    "dyn_pad",
    "dyn_reshape",
    "dyn_strided_slice",
    "dyn_tile",
    "dyn_topk",
    "dyn_view",
    "dyn_with_rank",
]

# --- reshape and broadcast -----------------------------------------------------------------------


def resolve_reshape(x: Shape, shape: Shape, *, allow_zero: bool = False) -> Shape:
    """`shape` with its 0 (copy the axis) and -1 (what is left) replaced (ONNX Reshape)."""
    new = [_resolve_extent(x, i, d, allow_zero) for i, d in enumerate(shape)]
    if new.count(-1) > 1:
        raise TypeRelError(f"more than one -1 in {text(shape)}")
    if ANY in new and ANY not in shape:
        meant = _filled(x, shape, [x[i] if d == 0 else d for i, d in enumerate(shape)], allow_zero)
        if same(*uncancelled(x, meant)):  # as many elements, whatever the sizes: 0 stands for 0
            rely_on_extents(x, meant)
            return meant
    return _filled(x, shape, new, allow_zero)


def _filled(x: Shape, shape: Shape, new: list[Dim], allow_zero: bool) -> Shape:
    """The extents with what is left in place of the -1."""
    if -1 in new:
        copied = [i for i, d in enumerate(shape) if d == 0 and not allow_zero]
        rest = [d for i, d in enumerate(new) if i not in copied and d != -1]
        have = tuple(d for i, d in enumerate(x) if i not in copied)
        new[new.index(-1)] = _quotient(x, shape, *uncancelled(have, tuple(rest)))
    return tuple(new)


def _resolve_extent(x: Shape, at: int, dim: Dim, allow_zero: bool) -> Dim:
    if dim == -1 or at_least(dim, 0 if allow_zero else 1):
        return dim
    if dim == 0:
        if at >= len(x):
            raise TypeRelError(f"the 0 at {at} copies no axis of {text(x)}")
        return x[at]
    if isinstance(dim, int):
        raise TypeRelError(f"an extent of {dim}: only -1 stands for what is left")
    return dim if at < len(x) and same(dim, x[at]) else ANY


def _quotient(x: Shape, shape: Shape, have: Dim, rest: Dim) -> Dim:
    if isinstance(have, int) and isinstance(rest, int) and (not rest or have % rest):
        raise TypeRelError(f"{text(x)} cannot be {text(shape)}: {have} elements in rows of {rest}")
    return have // rest


def _reshape_unranked(_x: Type, shape: Type, *, allow_zero: bool) -> Shape:
    """A shape of the extents that `shape` has as elements; those that are numbers are known."""
    least = 0 if allow_zero else 1
    return tuple(d if isinstance(d, int) and d >= least else ANY for d in elements("shape", shape))


@dynamic(
    reshape,
    unranked=_reshape_unranked,
    example="float32[N, C, 6], int64[3] = (0, -1, 3); float32[N, C, 6], int64[4] = (N, C, 2, -1); "
    "float32[N, C+1, 6], int64[3] = (-1, C+1, 2); float32[N, C], int64[1] = (-1,); "
    "float32[N, C], int64[3] = (1, C, N) {allow_zero=True}",
)
def dyn_reshape(x: Shape, shape: Dim | Shape, *, allow_zero: bool = False) -> Attrs:
    """The elements of `x` under the shape that `shape` holds; 0 copies, -1 is what is left."""
    with assumptions() as relied:
        newshape = resolve_reshape(x, counted("shape", shape), allow_zero=allow_zero)
    return {"newshape": newshape, **({"allow_zero": False} if relied else {})}


@dynamic(reshape, extents=1, example="float32[N, C], int64[2] = (C, N); int64[N], int64[1] = (N,)")
def dyn_view(_x: Shape, shape: Dim | Shape) -> Attrs:
    """The elements of `x` under the extents that `shape` holds, as they are."""
    return {"newshape": check_extents(counted("shape", shape))}


@dynamic(
    reshape,
    reads=(),
    unranked=lambda _, rank: (ANY,) * rank,
    example="float32[N, C] {rank=2}; int64[] {rank=0}",
)
def dyn_with_rank(x: Shape, *, rank: int) -> Attrs:
    """`x`, which must have so many axes."""
    if len(x) != rank:
        raise TypeRelError(f"expected {rank} axes, got {text(x)}")
    return {"newshape": x}


@dynamic(
    broadcast_to,
    extents=1,
    example="float32[N, 1], int64[3] = (M, N, C); float32[N, C], int64[1] = (1,)",
)
def dyn_broadcast_to(_x: Shape, shape: Dim | Shape) -> Attrs:
    """`x` repeated so that its shape is `x.shape` and `shape` broadcast together (ONNX Expand)."""
    return {"shape": counted("shape", shape)}


# --- cutting, padding, repeating -----------------------------------------------------------------


@dynamic(
    strided_slice,
    reads=(1, 2, 3, 4),
    example="float32[N, C], int64[1] = (1,), int64[1] = (-1,), int64[1] = (2,), int64[1] = (1,); "
    "float32[9, C], int64[1] = (N-1,), int64[1] = (C,), int64[1] = (1,), int64[1] = (0,); "
    "float32[9], int64[1] = (N-C,), int64[1] = (99,), int64[1] = (1,), int64[1] = (0,); "
    "float32[N, C], int64[2] = (-1, 0), int64[2] = (-9, 2**63-1), int64[2] = (-1, 1), "
    "int64[2] = (-2, 1); float32[N], int64[0] = (), int64[0] = (), int64[0] = (), int64[0] = ()",
)
def dyn_strided_slice(
    x: Shape, begin: Dim | Shape, end: Dim | Shape, strides: Dim | Shape, axes: Dim | Shape
) -> Attrs | Shape:
    """`x` cut to `begin:end:stride` along `axes`, negative ends counted from the back."""
    listed = [o for o in (begin, end, strides, axes) if isinstance(o, tuple)]
    if len(listed) < 4:  # any axis may be cut
        return (ANY,) * len(x)
    front = front_axes(len(x), listed[3])
    if ANY in front:
        check_lengths(*listed)
        return (ANY,) * len(x)
    steps = tuple(s if isinstance(s, int) else ANY for s in listed[2])
    return {"begin": begin, "end": end, "strides": steps, "axes": front}


@dynamic(nonzero_rows, extents=1, example="float32[N, C], int64[] = N")
def dyn_nonzero_rows(_x: Shape, count: Dim | Shape) -> Attrs:
    """The indices of elements that are not zero, of which there are as many as `count` holds."""
    return {"count": lone("count", count)}


@dynamic(strided_slice, extents=1, example="float32[N, C], int64[] = 0; int64[N], int64[] = N")
def dyn_first_rows(_x: Shape, count: Dim | Shape) -> Attrs:
    """The first rows of `x`, as many as `count` holds: without what is left of a room for all."""
    end = lone("count", count)
    if isinstance(end, int) and end < 0:
        raise TypeRelError(f"expected at least 0 rows, got {end}")
    return {"begin": (0,), "end": (end,), "strides": (1,), "axes": (0,)}


def _pads(rank: int, pads: Shape, axes: Shape) -> Pads:
    """The numbers before and after each axis, from all befores then all afters (ONNX Pad)."""
    if len(pads) != 2 * len(axes):
        raise TypeRelError(f"{len(pads)} pads for {len(axes)} axes")
    front = front_axes(rank, axes)
    if ANY in front:
        return ((ANY, ANY),) * rank
    at = {a: (pads[i], pads[i + len(axes)]) for i, a in enumerate(front)}
    return tuple(at.get(i, (0, 0)) for i in range(rank))


@dynamic(
    pad,
    reads=(1, 2),
    example="float32[N, C], int64[4] = (1, 0, C, 2), int64[2] = (0, 1); "
    'float32[N, C+2], int64[2] = (1, 1), int64[1] = (-1,) {mode="reflect"}; '
    "float32[N, C+2], int64[2] = (-1, 1), int64[1] = (1,) {value=7.0}",
)
def dyn_pad(x: Shape, pads: Dim | Shape, axes: Dim | Shape, **attrs: Any) -> Attrs | Shape:
    """`x` with elements before and after each of `axes`; negative numbers cut off."""
    if not isinstance(pads, tuple) or not isinstance(axes, tuple):
        return (ANY,) * len(x)
    return {"pads": _pads(len(x), pads, axes), **attrs}


@dynamic(tile, extents=1, example="float32[N, C], int64[2] = (2, N)")
def dyn_tile(x: Shape, repeats: Dim | Shape) -> Attrs:
    """`x` repeated along each axis."""
    return {"repeats": repeats if isinstance(repeats, tuple) else (ANY,) * len(x)}


@dynamic(
    topk,
    extents=1,
    example="float32[N, C+2], int64[1] = (2,) {axis=1}; "
    "int64[C+3, N], int64[1] = (C,) {axis=0, largest=False}",
)
def dyn_topk(_x: Shape, k: Dim | Shape, **attrs: Any) -> Attrs:
    """The greatest or smallest along `axis`, as many as `k` holds, and their indices."""
    return {"k": lone("k", k), **attrs}


# --- making --------------------------------------------------------------------------------------


def _full_value(shape: TensorType, *, value: float, **_: Any) -> Shape | None:
    return None if shape.value is None else full_value(shape.value, value)


@dynamic(
    full,
    reads=(0,),
    value=_full_value,
    extents=0,
    example='int64[2] = (N, C) {value=1.5, dtype="float32"}; '
    'int64[1] = (2,) {value=3, dtype="int64"}',
)
def dyn_full(shape: Dim | Shape, **attrs: Any) -> Attrs:
    """A tensor of one value throughout (ONNX ConstantOfShape)."""
    return {"shape": counted("shape", shape), **attrs}


def _arange_value(*ends: TensorType) -> Shape | None:
    start, stop, step = (read(e)[0] for e in ends)
    return arange_value(start, stop, step)


def _arange_twin(start: TensorType, stop: TensorType, step: TensorType) -> Twin:
    first, last, by = (read(t)[0] for t in (start, stop, step))
    if not isinstance(by, int):
        return None
    return twin(arange, start=first, stop=last, step=by, dtype=str(start.dtype))


@np.errstate(all="ignore")
def arange_count(start: Array, stop: Array, step: Array) -> int:
    """The number of elements from `start` up, or down, to `stop`, which is left out."""
    if kind_of(start.dtype) != "f":
        return int(range_extent(int(start), int(stop), int(step)))  # type: ignore[arg-type]
    steps = (stop - start) / step
    if not np.isfinite(steps):
        raise TypeRelError(f"no number of steps of {step} leads from {start} to {stop}")
    return max(0, math.ceil(steps))


@op(
    name="dyn.arange",
    shape=lambda start, stop, step: (range_extent(start, stop, step),),
    shape_from_values=lambda *ends: (arange_count(*ends),),
    padding=unsafe,
    reads=(0, 1, 2),
    value=_arange_value,
    static=_arange_twin,
    example="int64[] = 1, int64[] = N, int64[] = 1; int64[] = N, int64[] = 0, int64[] = -2; "
    "int64[] = 1, int64[] = 7, int64[] = 2; float32[], float32[], float32[] in [0.5, 2)",
)
def dyn_arange(start: Array, stop: Array, step: Array) -> Array:
    """The numbers from `start` to `stop`, which is left out (ONNX Range)."""
    count = arange_count(start, stop, step)
    return np.asarray(start + np.arange(count, dtype=start.dtype) * step)
