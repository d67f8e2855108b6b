"""Operators told by a tensor which axes they work on, or how they cut one."""

from __future__ import annotations

from typing import Any

from bucketize.errors import TypeRelError
from bucketize.op import Attrs, Op
from bucketize.ops.dyn.operand import counted, dynamic, front_axes, lone
from bucketize.ops.reduce import (
    cumprod,
    cumsum,
    reduce_max,
    reduce_mean,
    reduce_min,
    reduce_prod,
    reduce_sum,
)
from bucketize.ops.rules import check_axes, check_extents, same, text
from bucketize.ops.shape import squeeze, strided_slice, unsqueeze
from bucketize.types import ANY, Dim, Shape, meet

__all__ = [
    "dyn_cumprod",
    "dyn_cumsum",
    "dyn_reduce_max",
    "dyn_reduce_mean",
    "dyn_reduce_min",
    "dyn_reduce_prod",
    "dyn_reduce_sum",
    "dyn_split",
    "dyn_squeeze",
    "dyn_unsqueeze",
]

# --- reductions ----------------------------------------------------------------------------------


def _reduced_axes(rank: int, axes: Shape, noop: bool) -> Any:
    """The axes in order; none means all of them, or with `noop` none."""
    front = front_axes(rank, axes)
    if len(front) == rank or not (front or noop):
        return tuple(range(rank))
    return front if ANY in front else tuple(sorted(front))


def _reduction(static: Op) -> Op:
    """Declare the reduction whose axes a tensor holds."""

    def reduction(
        x: Shape, axes: Dim | Shape, *, keepdims: bool = False, noop: bool = False
    ) -> Attrs | Shape:
        if keepdims and not isinstance(axes, tuple):
            return tuple(1 if d == 1 else ANY for d in x)
        front = _reduced_axes(len(x), counted("axes", axes), noop)
        if ANY not in front:
            return {"axes": front, "keepdims": keepdims}
        if keepdims:
            return tuple(1 if i in front or d == 1 else ANY for i, d in enumerate(x))
        return (ANY,) * (len(x) - len(front))

    reduction.__name__ = f"dyn_{static.name}"
    reduction.__doc__ = f"`{static.name}` along `axes`: all if there are none, or if `noop` none."
    return dynamic(
        static,
        example="float32[N, C, H], int64[2] = (0, -1) {keepdims=True}; "
        "float32[N, C, H], int64[2] = (2, 1); float32[N, C], int64[0] = () {keepdims=True}; "
        "float32[N, C], int64[0] = () {noop=True}; int64[2, 3], int64[1] = (-1,)",
    )(reduction)


dyn_reduce_sum = _reduction(reduce_sum)
dyn_reduce_prod = _reduction(reduce_prod)
dyn_reduce_mean = _reduction(reduce_mean)
dyn_reduce_max = _reduction(reduce_max)
dyn_reduce_min = _reduction(reduce_min)


# --- running sums and products --------------------------------------------------------------------


def _running(static: Op) -> Op:
    """Declare the running sum, or product, along an axis that a tensor holds."""

    def running(x: Shape, axis: Dim | Shape, **attrs: Any) -> Attrs | Shape:
        (front,) = front_axes(len(x), (lone("axis", axis),))
        return {"axis": front, **attrs} if isinstance(front, int) else x

    running.__name__ = f"dyn_{static.name}"
    running.__doc__ = f"`{static.name}` along the axis that `axis` holds."
    return dynamic(
        static,
        example="float32[N, C], int64[] = -1; "
        "int64[N, C], int64[1] = (0,) {exclusive=True, reverse=True}",
    )(running)


dyn_cumsum = _running(cumsum)
dyn_cumprod = _running(cumprod)


# --- another view of the same elements -----------------------------------------------------------


@dynamic(squeeze, example="float32[N, 1, C, 1], int64[2] = (1, -1); float32[1], int64[1] = (0,)")
def dyn_squeeze(x: Shape, axes: Dim | Shape) -> Attrs | Shape:
    """`x` without the axes that `axes` holds, each of extent 1."""
    front = front_axes(len(x), counted("axes", axes))
    return (ANY,) * (len(x) - len(front)) if ANY in front else {"axes": front}


@dynamic(unsqueeze, example="float32[N, C], int64[2] = (-1, 0); int64[1], int64[1] = (1,)")
def dyn_unsqueeze(x: Shape, axes: Dim | Shape) -> Attrs | Shape:
    """`x` with new axes of extent 1, at the places of the result that `axes` holds."""
    places = counted("axes", axes)
    front = front_axes(len(x) + len(places), places)
    if ANY in front:
        return (1 if all(d == 1 for d in x) else ANY,) * (len(x) + len(front))
    return {"axes": tuple(sorted(front))}


# --- cutting -------------------------------------------------------------------------------------


def _part(x: Shape, sizes: Shape, axis: int, part: int) -> tuple[Dim, Dim]:
    """Where a part begins and ends; all of them together are the axis."""
    check_extents(sizes)
    if not 0 <= part < len(sizes):
        raise TypeRelError(f"part {part} of {len(sizes)}")
    total, begin = sum(sizes), sum(sizes[:part])
    try:
        meet(total, x[axis])
    except TypeRelError:
        raise TypeRelError(f"axis {axis} of {text(x)} in parts of {text(sizes)}") from None
    return begin, begin + sizes[part]


def _split_shape(x: Shape, sizes: Dim | Shape, *, axis: int, part: int) -> Shape:
    check_axes(len(x), axis)
    if isinstance(sizes, tuple):
        _part(x, sizes, axis, part)
    return (*x[:axis], sizes[part] if isinstance(sizes, tuple) else ANY, *x[axis + 1 :])


@dynamic(
    strided_slice,
    shape=_split_shape,
    example="float32[N+C, M], int64[2] = (N, C) {axis=0, part=1}; "
    "int64[N, 6], int64[3] = (2, 0, 4) {axis=1, part=2}",
)
def dyn_split(x: Shape, sizes: Shape, *, axis: int, part: int) -> Attrs | Shape:
    """One of the parts, of `sizes`, that `x` falls into along `axis` (ONNX Split)."""
    begin, end = _part(x, sizes, axis, part)
    if not same(sum(sizes), x[axis]):  # a slice would not ask whether the parts are the axis
        return _split_shape(x, sizes, axis=axis, part=part)
    return {"begin": (begin,), "end": (end,), "strides": (1,), "axes": (axis,)}
