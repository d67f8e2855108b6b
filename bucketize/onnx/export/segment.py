"""Export rules of segments."""

from __future__ import annotations

import math

import numpy as np

from bucketize.onnx.export.rule import ExportSite, exports
from bucketize.ops import segment
from bucketize.ops.dim import fill_number


def _segments(s: ExportSite, axis: int) -> str:
    """Which segment each element along an axis is of: how many end at its place or before it."""
    places = s.node("Range", s.extent(0), s.extent_of(s[0], axis), s.extent(1))
    pairs = s.node("Unsqueeze", places, s.integers(1)), s.node("Unsqueeze", s[1], s.integers(0))
    ended = s.cast(s.node("GreaterOrEqual", *pairs), np.int64)
    return s.node("ReduceSum", ended, s.integers(1), keepdims=0)


@exports(segment.mask_segments)
def _mask_segments(s: ExportSite) -> str:
    mine = _segments(s, len(s.type(0).shape) - 1)
    pair = (s.node("Unsqueeze", mine, s.integers(axis)) for axis in (1, 0))
    value = fill_number(s.attr("value"), s.dtype)
    return s.node("Where", s.node("Equal", *pair), s[0], s.constant(value))


def _reduced(s: ExportSite, reduction: str, nothing: float) -> str:
    """The elements scattered to their segments; behind the last one's end, to one more."""
    axis, rank = s.attr("axis"), len(s.type(0).shape)
    order = (axis, *(a for a in range(rank) if a != axis))
    count = s.node("Add", s.node("Shape", s[1]), s.integers(1))
    x = s.node("Transpose", s[0], perm=order) if axis else s[0]
    shape = s.node("Concat", count, s.node("Shape", x, start=1), axis=0)
    room = s.node("Expand", s.constant(fill_number(nothing, s.dtype)), shape)
    at = s.node("Unsqueeze", _segments(s, axis), s.integers(1))
    all_ = s.node("ScatterND", room, at, x, reduction=reduction)
    cut = s.node("Slice", all_, s.integers(0), s.node("Shape", s[1]), s.integers(0))
    back = tuple(order.index(a) for a in range(rank))
    return s.node("Transpose", cut, perm=back) if axis else cut


@exports(segment.segment_sum)
def _segment_sum(s: ExportSite) -> str:
    return _reduced(s, "add", 0)


@exports(segment.segment_max)
def _segment_max(s: ExportSite) -> str:
    return _reduced(s, "max", -math.inf)
