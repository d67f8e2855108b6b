"""Export rules of what brings an axis together, or normalises along it."""

from __future__ import annotations

from bucketize.onnx.export.rule import ExportSite, exports, exports_directly
from bucketize.onnx.node import Unsupported
from bucketize.op import Op
from bucketize.ops import reduce as r
from bucketize.ops.dyn import axes as d
from bucketize.ops.rules import same

REDUCTIONS = {
    "ReduceMax": (r.reduce_max, d.dyn_reduce_max),
    "ReduceMean": (r.reduce_mean, d.dyn_reduce_mean),
    "ReduceMin": (r.reduce_min, d.dyn_reduce_min),
    "ReduceProd": (r.reduce_prod, d.dyn_reduce_prod),
    "ReduceSum": (r.reduce_sum, d.dyn_reduce_sum),
}


def _reduction(op_type: str, op: Op, dyn: Op) -> None:
    @exports(op, dyn)
    def _rule(s: ExportSite) -> str:
        if s.binding.attrs.get("axes") == ():  # which ONNX takes for all
            return s.node("Identity", s[0])
        noop = {"noop_with_empty_axes": s.attr("noop")} if s.binding.op is dyn else {}
        return s.node(op_type, s[0], s.vector("axes", 1), **noop, **s.attrs("keepdims"))


for _op_type, _ops in REDUCTIONS.items():
    _reduction(_op_type, *_ops)
exports_directly(r.argmax, "ArgMax", "axis", "keepdims")
exports_directly(r.argmin, "ArgMin", "axis", "keepdims")


@exports(r.cumsum)
def _cumsum(s: ExportSite) -> str:
    return s.node("CumSum", s[0], s.extent(s.attr("axis")), **s.attrs("exclusive", "reverse"))


@exports(r.cumprod, d.dyn_cumprod)
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
