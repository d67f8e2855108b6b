"""Converters of what gathers, scatters and selects."""

from __future__ import annotations

from bucketize.ir import Atom
from bucketize.onnx.node import Node, Unsupported, converts, converts_directly
from bucketize.onnx.shape import reshaped
from bucketize.ops import index as i
from bucketize.ops.dyn import dyn_topk
from bucketize.types import product


@converts("Gather")
def _gather(n: Node) -> Atom:
    return n.emit(i.gather, n[0], n[1], axis=n.axis("axis", 0))


@converts("GatherElements")
def _gather_elements(n: Node) -> Atom:
    return n.emit(i.gather_elements, n[0], n[1], axis=n.axis("axis", 0))


@converts("GatherND")
def _gather_nd(n: Node) -> Atom:
    batch_dims = n.attr("batch_dims", 0)
    named = None if n.rank is None else len(n[1].type.shape) - 1 - batch_dims - (n.added or 0)
    return n.emit(i.gather_nd, n[0], _rows(n, named), batch_dims=batch_dims)


@converts("ScatterND")
def _scatter_nd(n: Node) -> Atom:
    _replaces(n)
    x, indices, updates = (len(o.type.shape) for o in n.operands)
    return n.emit(i.scatter_nd, n[0], _rows(n, indices - 1 + x - updates), n[2])


def _rows(n: Node, depth: int | None) -> Atom:
    """Rows of indices, of `depth` each if their type does not tell."""
    dims = n[1].type.shape
    if not dims or isinstance(dims[-1], int) or depth is None:
        return n[1]
    return reshaped(n, n[1], (*dims[:-1], depth))


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
    flags = {name: bool(n.attr(name, 1)) for name in ("largest", "sorted")}
    return n.emit_dynamic_all(dyn_topk, n[0], n.vector(1, 1), axis=n.axis("axis", -1), **flags)
