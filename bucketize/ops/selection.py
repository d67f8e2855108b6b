"""Operators that keep as many of their elements as the elements say."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bucketize.errors import TypeRelError
from bucketize.op import FREE, Array, Attrs, Fill, Op, op
from bucketize.ops.rules import check_axes, int64, unsafe
from bucketize.types import ANY, Dim, Shape, Type, meet, minimum

__all__ = ["compress", "kept_boxes", "non_max_suppression", "nonzero", "nonzero_rows"]
__all__ += ["row_order", "unique"]

DType = np.dtype[Any]
Shapes = tuple[Shape, ...]

# --- what is not zero, or where a mask holds ------------------------------------------------------


@op(
    shape=lambda x: (len(x), ANY),
    shape_from_values=lambda x: (x.ndim, int(np.count_nonzero(x))),
    dtype=lambda _: np.dtype(np.int64),
    padding=lambda *_: Fill(0),
    example="float32[N, C]; bool[N]; int64[N, 1, 2] in [0, 2)",
)
def nonzero(x: Array) -> Array:
    """The indices of the elements that are not zero, one column for each."""
    return np.stack(np.nonzero(np.atleast_1d(x)))[: x.ndim].astype(np.int64)


def _rows_shape(x: Shape, *, count: Dim) -> Shape:
    if isinstance(count, int) and count < 0:
        raise TypeRelError(f"the first {count} rows")
    return (count, len(x))


@op(
    shape=_rows_shape,
    dtype=lambda _, **__: np.dtype(np.int64),
    padding=unsafe,
    example="float32[N, C] {count=N}; int64[N, 1, 2] in [1, 3) {count=2*N}",
)
def nonzero_rows(x: Array, *, count: int) -> Array:
    """A row of indices of each of the first `count` elements that are not zero, or of zeros."""
    rows, places = np.zeros((count, x.ndim), np.int64), np.argwhere(x)[:count]
    rows[: len(places)] = places
    return rows


def _compress_shape(x: Shape, mask: Shape, *, axis: int) -> Shape:
    check_axes(len(x), axis)
    if len(mask) != 1:
        raise TypeRelError(f"a mask has rank 1, got {len(mask)}")
    return (*x[:axis], ANY, *x[axis + 1 :])


def _compress_run(x: Array, mask: Array, *, axis: int) -> Shape:
    return (*x.shape[:axis], int(np.count_nonzero(mask)), *x.shape[axis + 1 :])


def _compress_dtype(x: DType, mask: DType, **_: Any) -> DType:
    if mask.kind != "b":
        raise TypeRelError(f"a mask is bool, got {mask}")
    return x


@op(
    shape=_compress_shape,
    shape_from_values=_compress_run,
    dtype=_compress_dtype,
    padding=lambda arg, *_, **__: FREE if arg == 0 else Fill(0),
    example="float32[N, C], bool[C] {axis=1}; int64[N, C], bool[N] {axis=0}",
)
def compress(x: Array, mask: Array, *, axis: int) -> Array:
    """The entries of `x` along `axis` where `mask` holds."""
    return np.compress(mask, x, axis)


# --- different ones ------------------------------------------------------------------------------


def _unique_shapes(x: Shape, axis: int, count: Dim) -> Shapes:
    check_axes(len(x), axis)
    return (*x[:axis], count, *x[axis + 1 :]), (count,), (x[axis],), (count,)


@op(
    results=4,
    shape=lambda x, *, axis, **_: _unique_shapes(x, axis, ANY),
    shape_from_values=lambda x, *, axis, **_: _unique_shapes(
        x.shape, axis, np.unique(x, axis=axis).shape[axis]
    ),
    dtype=lambda x, **_: (x, *[np.dtype(np.int64)] * 3),
    padding=unsafe,
    example="int64[N] in [0, 3) {axis=0}; int64[2, N] in [0, 2) {axis=1, sorted=False}",
)
def unique(x: Array, *, axis: int, sorted: bool = True) -> tuple[Array, ...]:
    """What differs in `x` along `axis`, where it is first, which each is, and how often it occurs.

    In order of size, or if not `sorted` in that of the first occurrences (ONNX Unique).
    """
    parts, first, which, counts = np.unique(x, True, True, True, axis=axis)
    if not sorted:
        order = np.argsort(first)
        parts, first, counts = parts.take(order, axis), first[order], counts[order]
        which = np.argsort(order)[which]
    return parts, *(k.reshape(-1).astype(np.int64) for k in (first, which, counts))


@op(
    results=2,
    shape=lambda x: ((x[0],),) * 2,
    dtype=lambda _: (np.dtype(np.int64),) * 2,
    padding=unsafe,
    example="int64[N] in [0, 3); float32[N, 2, C] in [0, 2); bool[N, 2]",
)
def row_order(x: Array) -> tuple[Array, Array]:
    """The order of rows by their elements, equal ones as they come, and where others begin in it.

    NaN is greater than every number; it equals itself among scalars, not in rows (`numpy.unique`).
    """
    rows = x.reshape(len(x), math.prod(x.shape[1:]))
    order = np.lexsort(rows.T[::-1]) if rows.size else np.arange(len(x))
    behind, before = rows[order[1:]], rows[order[:-1]]
    differs = behind != before
    if x.ndim == 1:
        differs &= (behind == behind) | (before == before)  # noqa: PLR0124  all but NaN
    differs = differs.any(1)
    return order, np.concatenate([np.ones(min(len(x), 1), np.int64), differs])


# --- boxes ---------------------------------------------------------------------------------------


def _boxes_shape(boxes: Shape, scores: Shape, *limits: Shape, **_: Any) -> Shape:
    if len(boxes) != 3 or len(scores) != 3 or any(limits):
        raise TypeRelError(
            f"boxes and scores of rank 3 and scalars, got ranks "
            f"{', '.join(str(len(s)) for s in (boxes, scores, *limits))}"
        )
    meet(boxes[2], 4)
    meet(boxes[0], scores[0])
    meet(boxes[1], scores[2])
    return (ANY, 3)


def _kept(
    boxes: Array, scores: Array, most: Array, overlap: Array, least: Array, *, center: bool
) -> list[tuple[int, int, int]]:
    corners = _corners(boxes, center)
    return [
        (b, c, k)
        for b, classes in enumerate(scores)
        for c, of_class in enumerate(classes)
        for k in _best(corners[b], of_class, int(most), float(overlap), float(least))
    ]


def _room_shape(boxes: Shape, scores: Shape, *limits: Shape, limit: int | None, **_: Any) -> Shapes:
    _boxes_shape(boxes, scores, *limits)
    each = boxes[1] if limit is None else minimum(boxes[1], limit)
    return (boxes[0] * scores[1] * each, 3), ()


@op(
    results=2,
    shape=_room_shape,
    dtype=lambda *_, **__: (np.dtype(np.int64),) * 2,
    padding=unsafe,
    example="float32[B, N, 4], float32[B, C, N], int64[] = N, float32[] in [0, 1), float32[]; "
    "float32[1, N, 4], float32[1, C, N], int64[] = 2, float32[] in [0, 1), float32[] "
    "{center=True, limit=3}",
)
def kept_boxes(
    boxes: Array,
    scores: Array,
    most: Array,
    overlap: Array,
    least: Array,
    *,
    center: bool = False,
    limit: int | None = None,
) -> tuple[Array, Array]:
    """The rows of `non_max_suppression`, as many as there may be, and how many there are.

    There is room for `limit` boxes of each class, which bounds `most`, too; without it for all. The
    rows that are left over hold 0.
    """
    (room, _), _ = _room_shape(boxes.shape, scores.shape, (), (), (), limit=limit)
    most = most if limit is None else np.minimum(most, limit)
    kept = _kept(boxes, scores, most, overlap, least, center=center)
    rows = np.zeros((room, 3), np.int64)  # type: ignore[type-var]
    rows[: len(kept)] = np.array(kept, np.int64).reshape(-1, 3)
    return rows, np.array(len(kept))


def _room_twin(*types: Type, **attrs: Any) -> tuple[Op, Attrs]:
    most = types[2].value
    limit = max(most[0], 0) if most and isinstance(most[0], int) else None
    return kept_boxes, {**attrs, "limit": limit}


@op(
    shape=_boxes_shape,
    shape_from_values=lambda *args, center: (len(_kept(*args, center=center)), 3),
    dtype=int64,
    padding=unsafe,
    room=_room_twin,
    example="float32[B, N, 4], float32[B, C, N], int64[] = 2, float32[] in [0, 1), float32[]; "
    "float32[1, N, 4], float32[1, 1, N], int64[] = 9, float32[] in [0, 1), float32[] "
    "{center=True}",
)
def non_max_suppression(
    boxes: Array, scores: Array, most: Array, overlap: Array, least: Array, *, center: bool = False
) -> Array:
    """Rows (batch, class, box): the best boxes of each class that do not overlap a better one.

    At most `most` of each class, of scores above `least`; the intersection of two is at most
    `overlap` of their union. Boxes are any two opposite corners (y, x, y, x), or (x, y, width,
    height) with `center`, where none overlaps one of a width or height below 0 (ONNX
    NonMaxSuppression).
    """
    rows = _kept(boxes, scores, most, overlap, least, center=center)
    return np.array(rows, np.int64).reshape(-1, 3)


def _corners(boxes: Array, center: bool) -> Array:
    """The lower corners of boxes, then the upper ones; a width below 0 puts them the other way."""
    a, b = boxes[..., :2], boxes[..., 2:]
    ends = (a - b / 2, a + b / 2) if center else (np.minimum(a, b), np.maximum(a, b))
    return np.concatenate(ends, -1)


def _best(boxes: Array, scores: Array, most: int, overlap: float, least: float) -> list[int]:
    """The boxes of one class that are kept, the best first.

    Shares are found in the dtype of the boxes: which side of `overlap` they lie on may hang on it.
    """
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] > least]
    sides = np.ascontiguousarray(boxes[order].T)
    kept = np.empty((4, len(order)), boxes.dtype)  # side by side: few of them are near in a column
    chosen: list[int] = []
    for k, box in zip(order.tolist(), sides.T, strict=True):
        count = len(chosen)
        if count >= most:
            break
        beside = (kept[1, :count] < box[3]) & (kept[3, :count] > box[1])
        if not (_shares(kept[:, np.flatnonzero(beside)], box) > overlap).any():
            kept[:, count] = box
            chosen.append(k)
    return chosen


def _shares(boxes: Array, box: Array) -> Array:
    """Which part of their union with `box` each intersection is."""
    height = np.minimum(boxes[2], box[2]) - np.maximum(boxes[0], box[0])
    width = np.minimum(boxes[3], box[3]) - np.maximum(boxes[1], box[1])
    common = np.maximum(width, 0) * np.maximum(height, 0)
    union = _area(boxes) + _area(box) - common
    return np.asarray(np.divide(common, union, out=np.zeros_like(common), where=union > 0))


def _area(box: Array) -> Array:
    return np.asarray((box[3] - box[1]) * (box[2] - box[0]))
