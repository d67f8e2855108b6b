"""Converters of what gathers, scatters and selects."""

from __future__ import annotations

import numpy as np

from bucketize.ir import Atom, Const
from bucketize.onnx.convert.shape import extent, iota, reshaped, scalar
from bucketize.onnx.node import Node, Unsupported, cast, converts, converts_directly
from bucketize.ops import index as i
from bucketize.ops import selection
from bucketize.ops.dyn.shape import dyn_full, dyn_topk
from bucketize.ops.elementwise import arithmetic as e
from bucketize.ops.selection import non_max_suppression, unique
from bucketize.ops.shape import transpose, unsqueeze
from bucketize.types import product

converts_directly("Gather", i.gather, int64=1, axis=0)
converts_directly("GatherElements", i.gather_elements, int64=1, axis=0)
converts_directly("NonZero", selection.nonzero)


@converts("GatherND")
def _gather_nd(n: Node) -> Atom:
    batch_dims = n.attr("batch_dims", 0)
    named = None if n.rank is None else len(n[1].type.shape) - 1 - batch_dims - (n.added or 0)
    return n.emit(i.gather_nd, n[0], _rows(n, named), batch_dims=batch_dims)


@converts("ScatterND")
def _scatter_nd(n: Node) -> Atom:
    x, indices, updates = (len(o.type.shape) for o in n.operands)
    rows = _rows(n, indices - 1 + x - updates)
    return n.emit(i.scatter_nd, n[0], rows, n[2], reduction=n.choice("reduction", *i.FOLDS))


def _rows(n: Node, depth: int | None) -> Atom:
    """Rows of indices, of `depth` each if their type does not tell."""
    dims = n[1].type.shape
    if not dims or isinstance(dims[-1], int) or depth is None:
        return n[1]
    return reshaped(n, n[1], (*dims[:-1], depth))


@converts("ScatterElements")
def _scatter_elements(n: Node) -> Atom:
    reduction = n.choice("reduction", *i.FOLDS)
    return n.emit(i.scatter_elements, *n.operands, axis=n.axis("axis", 0), reduction=reduction)


@converts("TensorScatter")
def _tensor_scatter(n: Node) -> Atom:
    circular = n.choice("mode", "linear", "circular") == "circular"
    start = n.optional(2)
    if start is None:
        batch = reshaped(n, extent(n, n[0], 0), (1,))
        start = n.emit_dynamic(dyn_full, batch, value=0, dtype="int64")
    axis = n.axis("axis", -2)
    return n.emit(i.tensor_scatter, n[0], n[1], start, axis=axis, circular=circular)


@converts("ReverseSequence")
def _reverse_sequence(n: Node) -> Atom:
    """The first elements along time turned round, so many of each sequence of the batch."""
    axes = n.attr("batch_axis", 1), n.attr("time_axis", 0)
    if sorted(axes) != [0, 1]:
        raise Unsupported(f"batch_axis {axes[0]} and time_axis {axes[1]}, expected 0 and 1")
    swap = (1, 0, *range(2, len(n[0].type.shape)))
    x = n[0] if axes == (0, 1) else n.emit(transpose, n[0], axes=swap)
    count = n.emit(unsqueeze, n.vector(1), axes=(1,))
    place = iota(n, extent(n, x, 1))
    backwards = n.emit(e.sub, n.emit(e.sub, count, Const(np.array(1))), place)
    at = n.emit(e.where, n.emit(e.less, place, count), backwards, place)
    y = n.emit(i.gather_nd, x, n.emit(unsqueeze, at, axes=(2,)), batch_dims=1)
    return y if axes == (0, 1) else n.emit(transpose, y, axes=swap)


@converts("Compress")
def _compress(n: Node) -> Atom:
    x, axis = _along(n)
    return n.emit(selection.compress, x, n[1], axis=axis)


def _along(n: Node) -> tuple[Atom, int]:
    """The first operand and an axis of it; flat where none is given."""
    axis = n.attr("axis")
    if axis is None:
        return reshaped(n, n[0], (product(n[0].type.shape),)), 0
    return n[0], n.front((axis,))[0]


@converts("OneHot")
def _one_hot(n: Node) -> Atom:
    """One of two values where an index, from the back if negative, is the place along an axis."""
    rank = len(n[0].type.shape)
    (axis,) = n.front((n.attr("axis", -1),), rank + 1)
    indices, depth = (cast(n, x, "int64") for x in (n[0], scalar(n, 1)))
    zero, one = (Const(np.array(k)) for k in (0, 1))
    below = n.emit(e.less, indices, zero)
    indices = n.emit(e.where, below, n.emit(e.add, indices, depth), indices)
    places = iota(n, depth)
    if axis < rank:
        places = n.emit(unsqueeze, places, axes=tuple(range(1, rank - axis + 1)))
    here = n.emit(e.equal, n.emit(unsqueeze, indices, axes=(axis,)), places)
    off, on = (n.emit(i.gather, n.vector(2, 2), k, axis=0) for k in (zero, one))
    return n.emit(e.where, here, on, off)


@converts("TopK", since=10)
def _topk(n: Node) -> tuple[Atom, ...]:
    flags = {name: bool(n.attr(name, 1)) for name in ("largest", "sorted")}
    return n.emit_dynamic_all(dyn_topk, n[0], n.vector(1, 1), axis=n.axis("axis", -1), **flags)


@converts("Unique")
def _unique(n: Node) -> tuple[Atom, ...]:
    x, axis = _along(n)
    return n.builder.emit_all(unique, x, axis=axis, sorted=bool(n.attr("sorted", 1)))


@converts("NonMaxSuppression")
def _non_max_suppression(n: Node) -> Atom:
    center = bool(n.attr("center_point_box", 0))
    most, overlap, least = (
        scalar(n, k) if n.optional(k) else Const(np.asarray(default))
        for k, default in enumerate((0, np.float32(0), np.float32(-np.inf)), 2)
    )
    return n.emit(non_max_suppression, n[0], n[1], most, overlap, least, center=center)
