"""Converters of what holds graphs: functions without parameters that see the values around."""

from __future__ import annotations

from bucketize.ir import IF, Atom
from bucketize.onnx.node import Node, Unsupported, converts
from bucketize.ops.shape import reshape


@converts("If")
def _if(n: Node) -> tuple[Atom, ...]:
    then, orelse = n.attr("then_branch"), n.attr("else_branch")
    if then is None or orelse is None:
        raise Unsupported("a branch is left out")
    cond = n[0]
    if cond.type.shape:
        cond = n.emit(reshape, cond, newshape=())
    return n.builder.emit_all(IF, cond, then=then, orelse=orelse)
