"""Export rules of what brings an axis together, or normalises along it."""

from __future__ import annotations

from bucketize.onnx.export.rule import ExportSite, exports, exports_directly
from bucketize.onnx.node import Unsupported
from bucketize.op import Op
from bucketize.ops import reduce as r
from bucketize.ops.dyn.axes import dyn_cumprod
from bucketize.ops.rules import same

REDUCTIONS = {
    r.reduce_max: "ReduceMax",
    r.reduce_mean: "ReduceMean",
    r.reduce_min: "ReduceMin",
    r.reduce_prod: "ReduceProd",
    r.reduce_sum: "ReduceSum",
}


def _reduction(op: Op, op_type: str) -> None:
    @exports(op)
    def _rule(s: ExportSite) -> str:
        axes = s.attr("axes")
        if not axes:  # which ONNX takes for all
            return s.node("Identity", s[0])
        return s.node(op_type, s[0], s.integers(*axes), **s.attrs("keepdims"))


for _op, _op_type in REDUCTIONS.items():
    _reduction(_op, _op_type)
exports_directly(r.argmax, "ArgMax", "axis", "keepdims")
exports_directly(r.argmin, "ArgMin", "axis", "keepdims")


@exports(r.cumsum)
def _cumsum(s: ExportSite) -> str:
    return s.node("CumSum", s[0], s.extent(s.attr("axis")), **s.attrs("exclusive", "reverse"))


@exports(r.cumprod, dyn_cumprod)
def _cumprod(_: ExportSite) -> str:
    raise Unsupported("ONNX has running products from opset 26 on")


@exports(r.layer_norm)
def _layer_norm(s: ExportSite) -> str:
    """With scale and bias as large as what they scale: not every engine broadcasts them."""
    factors = (_whole(s, i, s.attr("axis")) for i in (1, 2))
    return s.node("LayerNormalization", s[0], *factors, **s.attrs("axis", "epsilon"))


def _whole(s: ExportSite, index: int, axis: int) -> str:
    have, want = s.type(index).shape, s.type(0).shape[axis:]
    if len(have) == len(want) and all(map(same, have, want)):
        return s[index]
    return s.node("Expand", s[index], s.node("Shape", s[0], start=axis))
