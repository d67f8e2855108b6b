"""Converters of what gathers, scatters and selects."""

from __future__ import annotations

import numpy as np

from bucketize.ir import Atom, Const
from bucketize.onnx.node import Node, Unsupported, cast, converts, converts_directly
from bucketize.onnx.shape import reshaped
from bucketize.ops import elementwise as e
from bucketize.ops import index as i
from bucketize.ops.dyn import dyn_arange, dyn_topk
from bucketize.ops.shape import reshape, unsqueeze
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


@converts("OneHot")
def _one_hot(n: Node) -> Atom:
    """One of two values where an index, from the back if negative, is the place along an axis."""
    rank = len(n[0].type.shape)
    (axis,) = n.front((n.attr("axis", -1),), rank + 1)
    indices, depth = (cast(n, n[k], "int64") for k in (0, 1))
    if depth.type.shape:
        depth = n.emit(reshape, depth, newshape=())
    zero, one = (Const(np.array(k)) for k in (0, 1))
    below = n.emit(e.less, indices, zero)
    indices = n.emit(e.where, below, n.emit(e.add, indices, depth), indices)
    places = n.emit_dynamic(dyn_arange, zero, depth, one)
    if axis < rank:
        places = n.emit(unsqueeze, places, axes=tuple(range(1, rank - axis + 1)))
    here = n.emit(e.equal, n.emit(unsqueeze, indices, axes=(axis,)), places)
    off, on = (n.emit(i.gather, n.vector(2), k, axis=0) for k in (zero, one))
    return n.emit(e.where, here, on, off)


@converts("TopK", since=10)
def _topk(n: Node) -> tuple[Atom, ...]:
    flags = {name: bool(n.attr(name, 1)) for name in ("largest", "sorted")}
    return n.emit_dynamic_all(dyn_topk, n[0], n[1], axis=n.axis("axis", -1), **flags)
