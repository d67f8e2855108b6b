"""Export rules of what moves or measures tensors, static ops beside their `dyn` twins."""

from __future__ import annotations

from bucketize.onnx.export.rule import ExportSite, exports, exports_directly
from bucketize.onnx.node import Unsupported
from bucketize.op import Op
from bucketize.ops import shape as sh
from bucketize.ops.dim import fill_number
from bucketize.ops.dyn import shape as dyn
from bucketize.ops.dyn.axes import dyn_squeeze, dyn_unsqueeze
from bucketize.ops.rules import at_least

exports_directly(sh.shape_of, "Shape")


# --- another view of the same elements -----------------------------------------------------------


@exports(sh.reshape)
def _reshape(s: ExportSite) -> str:
    """A 0 would copy an axis, unless it is said to be one."""
    shape = s.attr("newshape")
    zeros = {} if all(at_least(d, 1) for d in shape) else {"allowzero": s.attr("allow_zero")}
    return s.node("Reshape", s[0], s.extents(shape), **zeros)


@exports(dyn.dyn_reshape)
def _dyn_reshape(s: ExportSite) -> str:
    return s.node("Reshape", s[0], s.int64(1), allowzero=s.attr("allow_zero"))


@exports(dyn.dyn_view)
def _dyn_view(s: ExportSite) -> str:
    return s.node("Reshape", s[0], s.int64(1), allowzero=1)


@exports(dyn.dyn_with_rank)
def _dyn_with_rank(s: ExportSite) -> str:
    shape = s.node("Reshape", s.node("Shape", s[0]), s.integers(s.attr("rank")), allowzero=1)
    return s.node("Reshape", s[0], shape, allowzero=1)


@exports(sh.transpose)
def _transpose(s: ExportSite) -> str:
    axes = s.attr("axes")  # ONNX cannot write that there are none
    return s.node("Transpose", s[0], perm=axes) if axes else s.node("Identity", s[0])


def _by_vector(op_type: str, name: str, *ops: Op) -> None:
    """Declare the rule of an operator and its `dyn` twin, told by a vector: of no axes nothing."""

    @exports(*ops)
    def _rule(s: ExportSite) -> str:
        if name == "axes" and s.binding.attrs.get(name) == ():
            return s.node("Identity", s[0])
        return s.node(op_type, s[0], s.vector(name, 1))


_by_vector("Squeeze", "axes", sh.squeeze, dyn_squeeze)
_by_vector("Unsqueeze", "axes", sh.unsqueeze, dyn_unsqueeze)
_by_vector("Expand", "shape", sh.broadcast_to, dyn.dyn_broadcast_to)
_by_vector("Tile", "repeats", sh.tile, dyn.dyn_tile)


# --- joining, cutting, repeating -----------------------------------------------------------------


@exports(sh.strided_slice, dyn.dyn_strided_slice)
def _strided_slice(s: ExportSite) -> str:
    if s.binding.attrs.get("axes") == ():
        return s.node("Identity", s[0])
    names = ("begin", "end", "strides", "axes")
    begin, end, strides, axes = (s.vector(name, i) for i, name in enumerate(names, 1))
    return s.node("Slice", s[0], begin, end, axes, strides)


@exports(sh.pad)
def _pad(s: ExportSite) -> str:
    pads = s.attr("pads")
    return _padded(s, s.extents((*(lo for lo, _ in pads), *(hi for _, hi in pads))))


@exports(dyn.dyn_pad)
def _dyn_pad(s: ExportSite) -> str:
    return _padded(s, s.int64(1), s.int64(2))


def _padded(s: ExportSite, pads: str, *axes: str) -> str:
    mode = s.attr("mode")
    if mode == "symmetric":
        raise Unsupported("ONNX Pad has no mode symmetric")
    value = s.constant(fill_number(s.attr("value"), s.dtype))
    return s.node("Pad", s[0], pads, value, *axes, mode=mode)
