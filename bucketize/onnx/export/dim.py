"""Export rules of what turns dims into tensors, and of what is made of nothing else."""

from __future__ import annotations

from functools import reduce

import numpy as np
from onnx import numpy_helper

from bucketize.onnx.export.rule import ExportSite, exports, exports_directly
from bucketize.ops import dim as d
from bucketize.ops.dyn.shape import dyn_arange, dyn_full
from bucketize.ops.fill import arange, full
from bucketize.types import Dim


@exports(d.from_dims)
def _from_dims(s: ExportSite) -> str:
    dims = s.attr("dims")
    return s.extent(dims[0]) if s.attr("scalar") else s.extents(dims)


@exports(d.dim_less)
def _dim_less(s: ExportSite) -> str:
    return _compared(s, "Less", s.attr("dim"), s.attr("than"))


@exports(d.dims_within)
def _dims_within(s: ExportSite) -> str:
    tests = []
    for dim, (lo, hi) in zip(s.attr("dims"), s.attr("box"), strict=True):
        if lo > 0:  # no extent is negative
            tests.append(_compared(s, "GreaterOrEqual", dim, lo))
        if hi is not None:
            tests.append(_compared(s, "Less", dim, hi))
    return reduce(lambda a, b: s.node("And", a, b), tests) if tests else s.constant(True, bool)


def _compared(s: ExportSite, op_type: str, dim: Dim, bound: int) -> str:
    return s.node(op_type, s.extent(dim), s.constant(bound, np.int64))


@exports(d.mask_tail)
def _mask_tail(s: ExportSite) -> str:
    axis, rank = s.attr("axis"), len(s.type(0).shape)
    index = s.node("Range", s.extent(0), s.extent_of(s[0], axis), s.extent(1))
    kept = s.node("Less", index, s.int64(1))
    if axis < rank - 1:
        kept = s.node("Unsqueeze", kept, s.integers(*range(1, rank - axis)))
    return s.node("Where", kept, s[0], s.constant(d.fill_number(s.attr("value"), s.dtype)))


# --- making --------------------------------------------------------------------------------------


@exports(full, dyn_full)
def _full(s: ExportSite) -> str:
    value = np.full(1, s.attr("value"), s.attr("dtype"))
    shape = s.vector("shape", 0)
    return s.node("ConstantOfShape", shape, value=numpy_helper.from_array(value))


@exports(arange)
def _arange(s: ExportSite) -> str:
    ends = (s.extent(s.attr(name)) for name in ("start", "stop", "step"))
    integers, dtype = s.node("Range", *ends), np.dtype(s.attr("dtype"))
    return integers if dtype == np.int64 else s.cast(integers, dtype)


exports_directly(dyn_arange, "Range")
