"""Converters of what gathers, scatters and selects."""

from __future__ import annotations

from bucketize.ir import Atom
from bucketize.onnx.node import Node, Unsupported, converts, converts_directly
from bucketize.onnx.shape import reshaped
from bucketize.ops import index as i
from bucketize.types import product


@converts("Gather")
def _gather(n: Node) -> Atom:
    return n.emit(i.gather, n[0], n[1], axis=n.axis("axis", 0))


@converts("GatherElements")
def _gather_elements(n: Node) -> Atom:
    return n.emit(i.gather_elements, n[0], n[1], axis=n.axis("axis", 0))


@converts("GatherND")
def _gather_nd(n: Node) -> Atom:
    return n.emit(i.gather_nd, n[0], n[1], batch_dims=n.attr("batch_dims", 0))


@converts("ScatterND")
def _scatter_nd(n: Node) -> Atom:
    _replaces(n)
    return n.emit(i.scatter_nd, *n.operands)


@converts("ScatterElements")
def _scatter_elements(n: Node) -> Atom:
    _replaces(n)
    return n.emit(i.scatter_elements, *n.operands, axis=n.axis("axis", 0))


def _replaces(n: Node) -> None:
    if (reduction := n.attr("reduction", "none")) != "none":  # opset 16
        raise Unsupported(f"reduction is {reduction}")


converts_directly("NonZero", i.nonzero)


@converts("Compress")
def _compress(n: Node) -> Atom:
    axis = n.attr("axis")
    if axis is None:
        flat = reshaped(n, n[0], (product(n[0].type.shape),))
        return n.emit(i.compress, flat, n[1], axis=0)
    return n.emit(i.compress, n[0], n[1], axis=n.front((axis,))[0])


@converts("TopK")
def _topk(n: Node) -> tuple[Atom, ...]:
    n.attr("sorted")  # they always are
    (k,) = n.dims(1, "k is") or (0,)
    attrs = {"k": k, "axis": n.axis("axis", -1), "largest": bool(n.attr("largest", 1))}
    return n.emit(i.topk, n[0], **attrs), n.emit(i.topk_indices, n[0], **attrs)
