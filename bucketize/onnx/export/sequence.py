"""How operators on sequences, and on what is optional, leave."""

from __future__ import annotations

import numpy as np
from onnx import helper

from bucketize.onnx.export.rule import Site, exports, exports_directly
from bucketize.onnx.kind import proto_of
from bucketize.ops import sequence as s

exports_directly(s.sequence_construct, "SequenceConstruct")
exports_directly(s.sequence_at, "SequenceAt")
exports_directly(s.sequence_insert, "SequenceInsert")
exports_directly(s.sequence_erase, "SequenceErase")
exports_directly(s.sequence_length, "SequenceLength")
exports_directly(s.optional_some, "Optional")
exports_directly(s.optional_has_element, "OptionalHasElement")
exports_directly(s.optional_get_element, "OptionalGetElement")


@exports(s.sequence_empty)
def _empty(site: Site) -> str:
    dtype = helper.np_dtype_to_tensor_dtype(np.dtype(site.attr("dtype")))
    return site.node("SequenceEmpty", dtype=dtype)


@exports(s.split_to_sequence)
def _split(site: Site) -> str:
    attrs = {"axis": site.attr("axis"), "keepdims": int(site.attr("keepdims"))}
    return site.node("SplitToSequence", *site.operands, **attrs)


@exports(s.concat_from_sequence)
def _concat(site: Site) -> str:
    attrs = {"axis": site.attr("axis"), "new_axis": int(site.attr("new_axis"))}
    return site.node("ConcatFromSequence", site[0], **attrs)


@exports(s.optional_none)
def _none(site: Site) -> str:
    return site.node("Optional", type=proto_of(site.attr("type")))
