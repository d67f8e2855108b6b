"""Export rules of what gathers, scatters and selects."""

from __future__ import annotations

import numpy as np

from bucketize.onnx.export.rule import ExportSite, exports, exports_directly
from bucketize.ops import index as i
from bucketize.ops import selection
from bucketize.ops.dyn.shape import dyn_topk

exports_directly(i.gather_nd, "GatherND", "batch_dims", int64=1)
exports_directly(i.scatter_nd, "ScatterND", "reduction", int64=1)
exports_directly(i.scatter_elements, "ScatterElements", "axis", "reduction", int64=1)
exports_directly(selection.compress, "Compress", "axis")


@exports(i.tensor_scatter)
def _tensor_scatter(s: ExportSite) -> str:
    mode = "circular" if s.attr("circular") else "linear"
    return s.node("TensorScatter", s[0], s[1], s.int64(2), axis=s.attr("axis"), mode=mode)


@exports(i.topk, dyn_topk)
def _topk(s: ExportSite) -> tuple[str, ...]:
    """TopK; where it is not sorted ONNX leaves the order open."""
    if "k" in s.binding.attrs:
        k = s.extents((s.attr("k"),))
    else:
        k = s.int64(1) if s.type(1).shape else s.node("Unsqueeze", s.int64(1), s.integers(0))
    axis, truths = s.attr("axis"), s.dtype == np.bool_
    x = s.cast(s[0], np.uint8) if truths else s[0]
    results = s.nodes("TopK", x, k, outputs=2, axis=axis, largest=s.attr("largest"))
    if not s.attr("sorted"):
        places, _ = s.nodes("TopK", results[1], k, outputs=2, axis=axis, largest=0)
        results = (s.node("GatherElements", x, places, axis=axis), places)
    return (s.cast(results[0], bool), results[1]) if truths else results
