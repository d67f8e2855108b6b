"""How operators on sequences, and on what is optional, leave."""

from __future__ import annotations

from bucketize.onnx.export.rule import ExportSite, exports, exports_directly
from bucketize.onnx.kind import data_type, proto_of
from bucketize.ops import sequence as s

exports_directly(s.sequence_at, "SequenceAt")
exports_directly(s.sequence_insert, "SequenceInsert")
exports_directly(s.sequence_erase, "SequenceErase")
exports_directly(s.split_to_sequence, "SplitToSequence", "axis", "keepdims")
exports_directly(s.concat_from_sequence, "ConcatFromSequence", "axis", "new_axis")
exports_directly(s.optional_some, "Optional")
exports_directly(s.optional_has_element, "OptionalHasElement")
exports_directly(s.optional_get_element, "OptionalGetElement")


@exports(s.sequence_empty)
def _empty(site: ExportSite) -> str:
    return site.node("SequenceEmpty", dtype=data_type(site.attr("dtype")))


@exports(s.optional_none)
def _none(site: ExportSite) -> str:
    return site.node("Optional", type=proto_of(site.attr("type")))
