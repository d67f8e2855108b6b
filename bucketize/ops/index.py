"""Operators about indices, among them those whose shape depends on values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bucketize.errors import TypeRelError, UnknownRankError
from bucketize.op import FREE, UNSAFE, Array, Fill, Movement, Padding, by_dims, op
from bucketize.ops.rules import check_axes, check_word, same, unsafe
from bucketize.types import Dim, Shape, TensorType, extremes, meet, rely_on_least

__all__ = [
    "gather",
    "gather_elements",
    "gather_nd",
    "scatter_elements",
    "scatter_nd",
    "tensor_scatter",
    "topk",
]

DType = np.dtype[Any]


def _indexed(x: DType, indices: DType, *_: DType, **__: Any) -> DType:
    if indices.kind not in "iu":
        raise TypeRelError(f"indices are integers, got {indices}")
    return x


# --- gathering -----------------------------------------------------------------------------------


def _gather_shape(x: Shape, indices: Shape, *, axis: int) -> Shape:
    check_axes(len(x), axis)
    return x[:axis] + indices + x[axis + 1 :]


def _gather_padding(arg: int, at: int, _x: Shape, _indices: Shape, *, axis: int) -> Padding:
    if arg == 1:
        return Fill(0)  # any index will do that is in range
    return UNSAFE if at == axis else FREE  # negative indices count from the true end


def _gather_value(x: TensorType, indices: TensorType, *, axis: int) -> Shape | None:
    if indices.value is None or not all(isinstance(i, int) for i in indices.value):
        return None
    size = x.shape[axis]
    if size == 0:  # how an exported clone refuses: only where it is run
        return None
    for i in indices.value:
        if isinstance(size, int) and not -size <= int(i) < size:  # type: ignore[arg-type]
            raise TypeRelError(f"index {i} is out of range for extent {size}")
    where = np.array(indices.value, np.int64).reshape(indices.shape)  # type: ignore[arg-type]
    return by_dims(lambda dims: np.take(dims, where, axis))(x)


@op(
    shape=_gather_shape,
    dtype=_indexed,
    padding=_gather_padding,
    value=_gather_value,
    movement=Movement.PART,
    example="float32[N, C, H], int64[M, K] in [-C, C) {axis=1}; "
    "float32[N, C], int64[] in [0, N) {axis=0}; "
    "int64[4], int64[2] in [-4, 4) {axis=0}",
)
def gather(x: Array, indices: Array, *, axis: int) -> Array:
    """The entries of `x` along `axis` at `indices`, negative ones from the back (ONNX Gather)."""
    return np.take(x, indices, axis)


def _check_grid(x: Shape, indices: Shape, axis: int) -> None:
    """Indices stand at places of `x`: only along `axis`, whose place they are, may be more."""
    for at, (extent, count) in enumerate(zip(x, indices, strict=True)):
        if at != axis:
            if extremes(extent - count)[1] < 0:
                raise TypeRelError(f"axis {at} has {count} indices, more than its extent {extent}")
            rely_on_least(extent, count)


def _gather_elements_shape(x: Shape, indices: Shape, *, axis: int) -> Shape:
    check_axes(len(x), axis)
    if len(x) != len(indices):
        raise TypeRelError(f"ranks differ: {len(x)} and {len(indices)}")
    _check_grid(x, indices, axis)
    return indices


def _gather_elements_padding(arg: int, at: int, x: Shape, indices: Shape, *, axis: int) -> Padding:
    if arg == 0:
        return UNSAFE if at == axis else FREE
    return Fill(0) if at == axis or same(x[at], indices[at]) else UNSAFE


@op(
    shape=_gather_elements_shape,
    dtype=_indexed,
    padding=_gather_elements_padding,
    movement=Movement.PART,
    example="float32[N, C], int64[N, M] in [-C, C) {axis=1}; "
    "float32[M+N, C+2], int64[M, C] in [0, M) {axis=0}",
)
def gather_elements(x: Array, indices: Array, *, axis: int) -> Array:
    """At each place, the entry of `x` there with the index along `axis` replaced."""
    grid: list[Array] = list(np.indices(indices.shape, sparse=True))
    grid[axis] = indices
    return x[tuple(grid)]


def _depth(x: Shape, indices: Shape, batch_dims: int) -> int:
    """The number of axes of `x` that a row of `indices` names."""
    if not indices:
        raise TypeRelError("indices are rows: of rank 1 at least, got rank 0")
    depth = indices[-1]
    if not isinstance(depth, int):
        raise UnknownRankError(f"the rank of the result is unknown: indices are rows of {depth}")
    if depth == 0:
        raise TypeRelError("indices are rows of 1 index at least, got 0")
    if not 0 <= batch_dims < len(indices):
        raise TypeRelError(f"batch_dims is {batch_dims}, indices have rank {len(indices)}")
    if batch_dims + depth > len(x):
        raise TypeRelError(f"rows of {depth} indices after {batch_dims} axes, of rank {len(x)}")
    return depth


def _gather_nd_shape(x: Shape, indices: Shape, *, batch_dims: int) -> Shape:
    depth = _depth(x, indices, batch_dims)
    for a, b in zip(x[:batch_dims], indices[:batch_dims], strict=True):
        meet(a, b)
    return indices[:-1] + x[batch_dims + depth :]


def _gather_nd_padding(arg: int, at: int, x: Shape, indices: Shape, *, batch_dims: int) -> Padding:
    if at < batch_dims:
        kept = FREE if arg == 0 else Fill(0)
        return kept if same(x[at], indices[at]) else UNSAFE
    if arg == 1:
        return UNSAFE if at == len(indices) - 1 else Fill(0)
    return FREE if at >= batch_dims + _depth(x, indices, batch_dims) else UNSAFE


@op(
    shape=_gather_nd_shape,
    dtype=_indexed,
    padding=_gather_nd_padding,
    movement=Movement.PART,
    example="float32[3, 3, C], int64[M, 2] in [-3, 3); "
    "float32[N, C], int64[M, 1] in [-N, N); "
    "float32[B, 2, C], int64[B, M, 1] in [0, 2) {batch_dims=1}; "
    "float32[B, 2], int64[B, 1] in [0, 2) {batch_dims=1}",
)
def gather_nd(x: Array, indices: Array, *, batch_dims: int = 0) -> Array:
    """The parts of `x` that rows of `indices` name, batch by batch (ONNX GatherND)."""
    batch = np.indices(x.shape[:batch_dims])
    rank = indices.ndim - 1
    grid = [b.reshape(b.shape + (1,) * (rank - batch_dims)) for b in batch]
    return np.asarray(x[(*grid, *np.moveaxis(indices, -1, 0))])


# --- scattering ----------------------------------------------------------------------------------


FOLDS: dict[str, np.ufunc | None] = {
    "none": None,
    "add": np.add,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}
"""How an update joins what is there; by "none" it takes the place of it."""


def _scattered(x: Array, places: tuple[Array, ...], updates: Array, reduction: str) -> Array:
    """`x` with the updates put at their places, one after the other."""
    out, fold = x.copy(), FOLDS[reduction]
    if fold is None:
        out[places] = updates
    else:
        fold.at(out, places, updates)
    return out


def _scatter_nd_shape(x: Shape, indices: Shape, updates: Shape, **_: Any) -> Shape:
    part = indices[:-1] + x[_depth(x, indices, 0) :]
    if len(part) != len(updates):
        raise TypeRelError(f"updates have rank {len(updates)}, the places {len(part)}")
    for a, b in zip(part, updates, strict=True):
        meet(a, b)
    return x


def _scatter_dtype(
    x: DType, indices: DType, updates: DType, *, reduction: str = "none", **_: Any
) -> DType:
    check_word("reduction", reduction, FOLDS)
    if x != updates:
        raise TypeRelError(f"dtypes differ: {x} and {updates}")
    return _indexed(x, indices)


def _scatter_nd_padding(
    arg: int, at: int, x: Shape, indices: Shape, updates: Shape, **_: Any
) -> Padding:
    """Free for the axes that no index names, in `x` and `updates` alike."""
    shape = (x, indices, updates)[arg]
    from_end = at - len(shape)
    unnamed = arg != 1 and len(x) + from_end >= _depth(x, indices, 0)
    return FREE if unnamed and same(x[from_end], updates[from_end]) else UNSAFE


@op(
    shape=_scatter_nd_shape,
    dtype=_scatter_dtype,
    padding=_scatter_nd_padding,
    example="float32[4, C], int64[1, 1] in [-4, 4), float32[1, C]; "
    "float32[M+2, 4], int64[3, 1] = (2, 0, 1), float32[3, 4]; "
    "float32[3, 3], int64[M, 2] in [1, 2), float32[M]; "
    'float32[3, C], int64[M, 1] in [-3, 3), float32[M, C] {reduction="add"}; '
    'int64[3, 2], int64[M, 2] in [0, 2), int64[M] {reduction="mul"}; '
    'float32[N, C], int64[M, 1] in [0, N), float32[M, C] {reduction="min"}; '
    'int32[3, C], int32[M, 1] in [-3, 3), int32[M, C] {reduction="max"}',
)
def scatter_nd(x: Array, indices: Array, updates: Array, *, reduction: str = "none") -> Array:
    """`x` with the parts that rows of `indices` name replaced; the last one wins.

    Or, by another `reduction`, with all that name a part joined to it, in order.
    """
    return _scattered(x, tuple(np.moveaxis(indices, -1, 0)), updates, reduction)


def _scatter_elements_shape(
    x: Shape, indices: Shape, updates: Shape, *, axis: int, **_: Any
) -> Shape:
    check_axes(len(x), axis)
    if not len(x) == len(indices) == len(updates):
        raise TypeRelError(f"ranks differ: {len(x)}, {len(indices)} and {len(updates)}")
    _check_grid(x, indices, axis)
    for a, b in zip(indices, updates, strict=True):
        meet(a, b)
    return x


@op(
    shape=_scatter_elements_shape,
    dtype=_scatter_dtype,
    padding=unsafe,
    example="float32[N, 4], int64[N, 1] in [-4, 4), float32[N, 1] {axis=1}; "
    'float32[3, C], int64[M, C] in [-3, 3), float32[M, C] {axis=0, reduction="add"}; '
    'int64[N, 2], int64[N, M] in [0, 2), int64[N, M] {axis=1, reduction="mul"}; '
    'int32[N, 2], int64[N, M] in [0, 2), int32[N, M] {axis=1, reduction="min"}; '
    'float32[N, C], int64[M, C] in [0, N), float32[M, C] {axis=0, reduction="max"}',
)
def scatter_elements(
    x: Array, indices: Array, updates: Array, *, axis: int, reduction: str = "none"
) -> Array:
    """`x` with each update put at its own place, the index along `axis` replaced.

    Or, by another `reduction`, joined to what is there, in order.
    """
    grid: list[Array] = list(np.indices(indices.shape, sparse=True))
    grid[axis] = indices
    return _scattered(x, tuple(grid), updates, reduction)


def _cache_shape(x: Shape, update: Shape, start: Shape, *, axis: int, **_: Any) -> Shape:
    check_axes(len(x), axis)
    if axis == 0:
        raise TypeRelError("axis 0 is that of the batch")
    if len(x) != len(update):
        raise TypeRelError(f"ranks differ: {len(x)} and {len(update)}")
    if len(start) != 1:
        raise TypeRelError(f"one index for each sequence, got rank {len(start)}")
    for at, (d, e) in enumerate(zip(x, update, strict=True)):
        if at != axis:
            meet(d, e)
    meet(x[0], start[0])
    if isinstance(x[axis], int) and isinstance(update[axis], int) and update[axis] > x[axis]:  # type: ignore[operator]
        raise TypeRelError(f"an update of {update[axis]} in a cache of {x[axis]}")
    rely_on_least(x[axis], update[axis])
    return x


def _cache_padding(
    arg: int, at: int, x: Shape, update: Shape, start: Shape, *, axis: int, **_: Any
) -> Padding:
    if arg < 2 and at == axis:
        return UNSAFE  # where a circle closes, what is not to be overwritten
    alike = same(x[at], update[at]) and (at > 0 or same(x[0], start[0]))
    return (Fill(0) if arg == 2 else FREE) if alike else UNSAFE


@op(
    shape=_cache_shape,
    dtype=lambda x, update, start, **_: _scatter_dtype(x, start, update),
    padding=_cache_padding,
    example="float32[B, N, C+2, H], float32[B, N, 2, H], int64[B] in [0, C) "
    "{axis=2, circular=False}; int64[B, N], int64[B, 1], int64[B] in [0, 9) "
    "{axis=1, circular=True}; float32[B, N+C, H], float32[B, N, H], int64[B] in [0, 99) "
    "{axis=1, circular=True}",
)
def tensor_scatter(x: Array, update: Array, start: Array, *, axis: int, circular: bool) -> Array:
    """A cache with an update in it along `axis`, from an index of each sequence on.

    What goes beyond the end of a `circular` cache goes on at its begin (ONNX TensorScatter).
    """
    _cache_shape(x.shape, update.shape, start.shape, axis=axis)
    extent, length = x.shape[axis], update.shape[axis]
    if not circular:
        for index in start[(start < 0) | (start > extent - length)]:
            raise IndexError(f"index {index} is out of range for extent {extent - length + 1}")
    around = max(extent, 1)
    begin = (start % around).astype(np.int64)
    places = np.add.outer(begin, np.arange(length)) % around
    out = np.moveaxis(x.copy(), axis, 1)
    out[np.arange(x.shape[0])[:, None], places] = np.moveaxis(update, axis, 1)
    return np.ascontiguousarray(np.moveaxis(out, 1, axis))


# --- the largest ----------------------------------------------------------------------------------


def _top_shape(x: Shape, *, k: Dim, axis: int, **_: Any) -> tuple[Shape, Shape]:
    check_axes(len(x), axis)
    size = x[axis]
    if isinstance(k, int) and (k < 0 or (isinstance(size, int) and k > size)):
        raise TypeRelError(f"expected 0 <= k <= {size} along axis {axis}, got {k}")
    rely_on_least(size, k)
    shape = (*x[:axis], k, *x[axis + 1 :])
    return shape, shape


def _top_padding(_arg: int, at: int, _x: Shape, *, axis: int, largest: bool, **_: Any) -> Padding:
    if at != axis:
        return FREE
    return Fill(-math.inf if largest else math.nan)  # behind all else: equals keep their order


@op(
    results=2,
    shape=_top_shape,
    dtype=lambda x, **_: (x, np.dtype(np.int64)),
    padding=_top_padding,
    example="float32[N, C+2] {k=2, axis=1}; int64[C+3, N] {k=C, axis=0, largest=False}; "
    "int64[N, C, 2] in [0, 2) {k=C, axis=1, sorted=False}; bool[N+1] {k=1, axis=0}",
)
def topk(
    x: Array, *, k: int, axis: int, largest: bool = True, sorted: bool = True
) -> tuple[Array, Array]:
    """The `k` greatest or smallest along `axis`, and their indices (ONNX TopK).

    Of equals the first go first, and NaN is greater than every number. They come in order of
    size, or if not `sorted` in their own.
    """
    _top_shape(x.shape, k=k, axis=axis)
    if largest:
        backwards = np.argsort(np.flip(x, axis), axis, kind="stable")
        ranking: Array = x.shape[axis] - 1 - np.flip(backwards, axis)
    else:
        ranking = np.argsort(x, axis, kind="stable")
    indices = ranking.take(range(k), axis)
    if not sorted:
        indices = np.sort(indices, axis)
    return np.take_along_axis(x, indices, axis), indices
