"""Export rules of what is told by a tensor which axes it works on, or how it cuts one."""

from __future__ import annotations

import numpy as np

from bucketize.onnx.export.rule import ExportSite, exports
from bucketize.ops.dyn import axes as d
from bucketize.ops.dyn.shape import dyn_first_rows, dyn_nonzero_rows
from bucketize.ops.selection import kept_boxes, non_max_suppression, nonzero_rows, row_order, unique


@exports(d.dyn_cumsum)
def _cumsum(s: ExportSite) -> str:
    axis = s.int64(1)
    if s.type(1).shape:
        axis = s.node("Reshape", axis, s.integers())
    return s.node("CumSum", s[0], axis, **s.attrs("exclusive", "reverse"))


@exports(d.dyn_split)
def _split(s: ExportSite) -> str:
    """One part, from the sum of those before it: how many there are need not be known."""
    part, sizes, axis = s.attr("part"), s.int64(1), s.integers(0)
    before = s.node("Slice", sizes, axis, s.integers(part), axis)
    begin = s.node("ReduceSum", before, axis, keepdims=1)
    end = s.node("Add", begin, s.node("Gather", sizes, s.integers(part), axis=0))
    return s.node("Slice", s[0], begin, end, s.integers(s.attr("axis")))


@exports(unique)
def _unique(s: ExportSite) -> tuple[str, ...]:
    return s.nodes("Unique", s[0], outputs=4, **s.attrs("axis", "sorted"))


@exports(row_order)
def _row_order(s: ExportSite) -> tuple[str, str]:
    """By the numbers that `Unique` gives rows: what has not that of the one before begins."""
    _, _, which, _ = s.nodes("Unique", s[0], outputs=4, axis=0)
    numbers, order = s.nodes("TopK", which, s.node("Shape", which), outputs=2, axis=0, largest=0)
    zero, last = s.integers(0), s.integers(-1)
    before = s.node("Slice", s.node("Concat", last, numbers, axis=0), zero, last)
    return order, s.cast(s.node("Not", s.node("Equal", numbers, before)), np.int64)


@exports(non_max_suppression)
def _non_max_suppression(s: ExportSite) -> str:
    return _boxes(s, s[2])


def _boxes(s: ExportSite, most: str) -> str:
    limits = (s.node("Unsqueeze", o, s.integers(0)) for o in (most, s[3], s[4]))
    return s.node("NonMaxSuppression", s[0], s[1], *limits, center_point_box=s.attr("center"))


@exports(kept_boxes)
def _kept_boxes(s: ExportSite) -> tuple[str, str]:
    limit = s.attr("limit")
    rows = _boxes(s, s[2] if limit is None else s.node("Min", s[2], s.extent(limit)))
    count = s.extent_of(rows, 0)
    left = s.node("Sub", s.extent(s.binding.outs[0].type.shape[0]), count)
    zero = s.integers(0)
    pads = s.node("Concat", s.integers(0, 0), s.node("Unsqueeze", left, zero), zero, axis=0)
    return s.node("Pad", rows, pads), count


@exports(dyn_first_rows)
def _first_rows(s: ExportSite) -> str:
    return _first(s, s[0], s.node("Unsqueeze", s[1], s.integers(0)))


@exports(dyn_nonzero_rows)
def _counted_places(s: ExportSite) -> str:
    return _first(s, _places(s), s.node("Unsqueeze", s[1], s.integers(0)))


@exports(nonzero_rows)
def _nonzero_rows(s: ExportSite) -> str:
    return _first(s, _places(s), s.extents((s.attr("count"),)))


def _places(s: ExportSite) -> str:
    return s.node("Transpose", s.node("NonZero", s[0]), perm=[1, 0])


def _first(s: ExportSite, rows: str, count: str) -> str:
    zero = s.integers(0)
    return s.node("Slice", rows, zero, count, zero)
