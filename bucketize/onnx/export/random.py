"""Export rules of what draws numbers: another engine draws others, of the same law."""

from __future__ import annotations

from bucketize.onnx.export.rule import ExportSite, exports
from bucketize.onnx.kind import data_type
from bucketize.op import Op
from bucketize.ops.random import normal_like, uniform_like
from bucketize.types.number import kind_of


def _drawn(op: Op, op_type: str, *names: str) -> None:
    @exports(op)
    def _rule(s: ExportSite) -> str:
        law = {name: float(s.attr(name)) for name in (*names, "seed")}
        to = data_type(s.attr("dtype"))
        like = s[0] if kind_of(s.dtype) == "f" else s.node("Cast", s[0], to=to)
        return s.node(op_type, like, **law, dtype=to)


_drawn(normal_like, "RandomNormalLike", "mean", "scale")
_drawn(uniform_like, "RandomUniformLike", "low", "high")
