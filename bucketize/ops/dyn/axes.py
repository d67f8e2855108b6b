"""Operators told by a tensor which axes they work on, or how they cut one."""

from __future__ import annotations

from typing import Any

from bucketize.errors import TypeRelError
from bucketize.op import Array, Op, first_dtype, op
from bucketize.ops.dyn.operand import Twin, counted, front_axes, integers, lone, read, twin
from bucketize.ops.reduce import (
    cumprod,
    cumsum,
    reduce_max,
    reduce_mean,
    reduce_min,
    reduce_prod,
    reduce_sum,
)
from bucketize.ops.rules import check_axes, check_extents, same, text, unsafe
from bucketize.ops.shape import squeeze, strided_slice, unsqueeze
from bucketize.types import ANY, Dim, Shape, TensorType, meet

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


def _reduced(x: Shape, axes: Dim | Shape, *, keepdims: bool, noop: bool) -> Shape:
    if keepdims and not isinstance(axes, tuple):
        return tuple(1 if d == 1 else ANY for d in x)
    front = _reduced_axes(len(x), counted("axes", axes), noop)
    if ANY not in front:
        return tuple(reduce_sum.shape(x, axes=front, keepdims=keepdims))
    if keepdims:
        return tuple(1 if i in front or d == 1 else ANY for i, d in enumerate(x))
    return (ANY,) * (len(x) - len(front))


def _reduction(static: Op) -> Op:
    """Declare the reduction whose axes a tensor holds."""

    def twin_of(x: TensorType, axes: TensorType, *, keepdims: bool, noop: bool) -> Twin:
        front = _reduced_axes(len(x.shape), read(axes), noop)
        return twin(static, axes=front, keepdims=keepdims)

    def compute(x: Array, axes: Array, *, keepdims: bool = False, noop: bool = False) -> Array:
        front = _reduced_axes(x.ndim, integers(axes), noop)
        return static.compute(x, axes=front, keepdims=keepdims)  # type: ignore[no-any-return]

    compute.__doc__ = f"`{static.name}` along `axes`: all if there are none, or if `noop` none."
    declare = op(
        name=f"dyn.{static.name}",
        shape=_reduced,
        dtype=first_dtype,
        padding=unsafe,
        reads=(1,),
        static=twin_of,
        example="float32[N, C, H], int64[2] = (0, -1) {keepdims=True}; "
        "float32[N, C, H], int64[2] = (2, 1); float32[N, C], int64[0] = () {keepdims=True}; "
        "float32[N, C], int64[0] = () {noop=True}; int64[2, 3], int64[1] = (-1,)",
    )
    return declare(compute)


dyn_reduce_sum = _reduction(reduce_sum)
dyn_reduce_prod = _reduction(reduce_prod)
dyn_reduce_mean = _reduction(reduce_mean)
dyn_reduce_max = _reduction(reduce_max)
dyn_reduce_min = _reduction(reduce_min)


# --- running sums and products --------------------------------------------------------------------


def _running_shape(x: Shape, axis: Dim | Shape, **_: Any) -> Shape:
    front_axes(len(x), (lone("axis", axis),))
    return x


def _running(static: Op) -> Op:
    """Declare the running sum, or product, along an axis that a tensor holds."""

    def twin_of(x: TensorType, axis: TensorType, **attrs: Any) -> Twin:
        (front,) = front_axes(len(x.shape), (lone("axis", read(axis)),))
        return twin(static, axis=front, **attrs)

    def compute(x: Array, axis: Array, *, exclusive: bool = False, reverse: bool = False) -> Array:
        (front,) = front_axes(x.ndim, (lone("axis", integers(axis)),))
        return static.compute(x, axis=front, exclusive=exclusive, reverse=reverse)  # type: ignore[no-any-return]

    compute.__doc__ = f"`{static.name}` along the axis that `axis` holds."
    declare = op(
        name=f"dyn.{static.name}",
        shape=_running_shape,
        dtype=first_dtype,
        padding=unsafe,
        reads=(1,),
        static=twin_of,
        example="float32[N, C], int64[] = -1; "
        "int64[N, C], int64[1] = (0,) {exclusive=True, reverse=True}",
    )
    return declare(compute)


dyn_cumsum = _running(cumsum)
dyn_cumprod = _running(cumprod)


# --- another view of the same elements -----------------------------------------------------------


def _squeeze_shape(x: Shape, axes: Dim | Shape) -> Shape:
    front = front_axes(len(x), counted("axes", axes))
    if ANY in front:
        return (ANY,) * (len(x) - len(front))
    return tuple(squeeze.shape(x, axes=front))


@op(
    name="dyn.squeeze",
    shape=_squeeze_shape,
    dtype=first_dtype,
    padding=unsafe,
    reads=(1,),
    static=lambda x, axes: twin(squeeze, axes=front_axes(len(x.shape), read(axes))),
    example="float32[N, 1, C, 1], int64[2] = (1, -1); float32[1], int64[1] = (0,)",
)
def dyn_squeeze(x: Array, axes: Array) -> Array:
    """`x` without the axes that `axes` holds, each of extent 1."""
    return squeeze.compute(x, axes=front_axes(x.ndim, integers(axes)))  # type: ignore[no-any-return]


def _new_axes(rank: int, axes: Shape) -> Any:
    front = front_axes(rank + len(axes), axes)
    return front if ANY in front else tuple(sorted(front))


def _unsqueeze_shape(x: Shape, axes: Dim | Shape) -> Shape:
    front = _new_axes(len(x), counted("axes", axes))
    if ANY in front:
        return (1 if all(d == 1 for d in x) else ANY,) * (len(x) + len(front))
    return tuple(unsqueeze.shape(x, axes=front))


@op(
    name="dyn.unsqueeze",
    shape=_unsqueeze_shape,
    dtype=first_dtype,
    padding=unsafe,
    reads=(1,),
    static=lambda x, axes: twin(unsqueeze, axes=_new_axes(len(x.shape), read(axes))),
    example="float32[N, C], int64[2] = (-1, 0); int64[1], int64[1] = (1,)",
)
def dyn_unsqueeze(x: Array, axes: Array) -> Array:
    """`x` with new axes of extent 1, at the places of the result that `axes` holds."""
    return unsqueeze.compute(x, axes=_new_axes(x.ndim, integers(axes)))  # type: ignore[no-any-return]


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


def _split_twin(x: TensorType, sizes: TensorType, *, axis: int, part: int) -> Twin:
    told = read(sizes)
    begin, end = _part(x.shape, told, axis, part)
    if not same(sum(told), x.shape[axis]):
        return None  # a slice would not ask whether the parts are the axis
    return twin(strided_slice, begin=(begin,), end=(end,), strides=(1,), axes=(axis,))


@op(
    name="dyn.split",
    shape=_split_shape,
    dtype=first_dtype,
    padding=unsafe,
    reads=(1,),
    static=_split_twin,
    example="float32[N+C, M], int64[2] = (N, C) {axis=0, part=1}; "
    "int64[N, 6], int64[3] = (2, 0, 4) {axis=1, part=2}",
)
def dyn_split(x: Array, sizes: Array, *, axis: int, part: int) -> Array:
    """One of the parts, of `sizes`, that `x` falls into along `axis` (ONNX Split)."""
    begin, end = _part(x.shape, integers(sizes), axis, part)
    return x[(slice(None),) * axis + (slice(begin, end),)]
