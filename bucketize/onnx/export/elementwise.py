"""Export rules of what acts on each element by itself."""

from __future__ import annotations

import math

import numpy as np

from bucketize.onnx.export.rule import ExportSite, exports, exports_directly
from bucketize.onnx.export.scope import OPSET, known
from bucketize.onnx.kind import data_type
from bucketize.onnx.node import Unsupported
from bucketize.ops.elementwise import activation as a
from bucketize.ops.elementwise import arithmetic as e
from bucketize.types.number import FLOAT8, kind_of

exports_directly(e.div, "Div")
exports_directly(e.trunc_div, "Div")
exports_directly(e.pow_, "Pow")
exports_directly(e.minimum_, "Min")
exports_directly(e.maximum_, "Max")
exports_directly(a.gelu, "Gelu")


@exports(e.fmod)
def _fmod(s: ExportSite) -> str:
    return s.node("Mod", *s.operands, fmod=1)


@exports(e.mod)
def _mod(s: ExportSite) -> str:
    """The remainder with the sign of the divisor; of floats ONNX has that of the dividend."""
    if kind_of(s.dtype) != "f":
        return s.node("Mod", *s.operands)
    rest, zero = s.node("Mod", *s.operands, fmod=1), s.constant(0)
    signs = s.node("Xor", s.node("Less", rest, zero), s.node("Less", s[1], zero))
    some = s.node("Not", s.node("Equal", rest, zero))
    return s.node("Where", s.node("And", signs, some), s.node("Add", rest, s[1]), rest)


@exports(e.rsqrt)
def _rsqrt(s: ExportSite) -> str:
    return s.node("Reciprocal", s.node("Sqrt", s[0]))


@exports(e.not_equal)
def _not_equal(s: ExportSite) -> str:
    return s.node("Not", s.node("Equal", *s.operands))


@exports(e.cast)
def _cast(s: ExportSite) -> str:
    dtype = np.dtype(s.attr("dtype"))
    if not known(dtype):
        raise Unsupported(f"ONNX has no {dtype} in opset {OPSET}")
    limit = {"saturate": 0} if dtype in FLOAT8 else {}
    return s.node("Cast", s[0], to=data_type(dtype), **limit)


# --- activations ---------------------------------------------------------------------------------


@exports(a.relu)
def _relu(s: ExportSite) -> str:
    """Relu; of integers the greater of 0, as not every engine has them in Relu."""
    return s.node("Relu", s[0]) if kind_of(s.dtype) == "f" else s.node("Max", s[0], s.constant(0))


@exports(a.clip)
def _clip(s: ExportSite) -> str:
    lo, hi = s.attr("lo"), s.attr("hi")
    ends = ["" if lo == -math.inf else s.constant(lo), "" if hi == math.inf else s.constant(hi)]
    return s.node("Clip", s[0], *ends)


@exports(a.silu)
def _silu(s: ExportSite) -> str:
    return s.node("Mul", s[0], s.node("Sigmoid", s[0]))


@exports(a.gelu_tanh)
def _gelu_tanh(s: ExportSite) -> str:
    return s.node("Gelu", s[0], approximate="tanh")
