"""Converters of what moves, makes or measures tensors."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from bucketize.ir import Atom, Const, Var
from bucketize.onnx.node import (
    Node,
    Unsupported,
    Untold,
    converts,
    converts_directly,
    cut,
    fitted,
    native_dtype,
    short,
    transposed,
    vector,
)
from bucketize.op import MAX_BYTES
from bucketize.ops import shape as s
from bucketize.ops.dim import from_dims
from bucketize.ops.dyn import shape as dyn
from bucketize.ops.dyn.axes import dyn_split, dyn_squeeze, dyn_unsqueeze
from bucketize.ops.dyn.operand import is_unknown
from bucketize.ops.elementwise import arithmetic as e
from bucketize.ops.index import gather
from bucketize.ops.reduce import reduce_prod
from bucketize.ops.rules import ENDLESS
from bucketize.ops.selection import nonzero
from bucketize.types import ANY, AnyDim, Shape, product
from bucketize.types.number import kind_of

PADS = ("constant", "edge", "reflect")


# --- measuring and making ------------------------------------------------------------------------


@converts("Shape")
def _shape(n: Node) -> Atom:
    rank = len(n[0].type.shape) if n[0].type.is_tensor else ENDLESS
    begin, end = n.attr("start", 0), n.attr("end", rank)  # opset 15
    dims = n.emit(s.shape_of, n[0])
    return dims if (begin, end) == (0, rank) else cut(n, dims, 0, begin, end)


converts_directly("Size", s.size_of)


@converts("Constant")
def _constant(n: Node) -> Atom:
    for name, dtype in (("value_float", "f4"), ("value_int", "i8")):
        for key in (name, name + "s"):
            if key in n.attrs:
                return Const(np.array(n.attr(key), dtype))
    if "value" not in n.attrs:
        raise Unsupported(f"the attribute {', '.join(n.attrs)} is not supported")
    return Const(n.attr("value"))


@converts("ConstantOfShape")
def _constant_of_shape(n: Node) -> Atom:
    given = n.attr("value", np.zeros(1, np.float32))
    if given.size != 1:
        raise Unsupported(f"value has {given.size} elements, expected one")
    value = given.reshape(())[()]
    return n.emit_dynamic(
        dyn.dyn_full, n.vector(0, n.rank), value=short(value), dtype=value.dtype.name
    )


@converts("Range")
def _range(n: Node) -> Atom:
    n.attr("stash_type")  # opset 27, of sums that are rounded again and again: ours are products
    operands = tuple(scalar(n, i) for i in range(3))
    if all(isinstance(o, Const) for o in operands) and kind_of(n[0].type.dtype) == "f":
        ends = [o.value for o in operands if isinstance(o, Const)]
        if dyn.arange_count(*ends) * ends[0].itemsize <= MAX_BYTES:
            return Const(dyn.dyn_arange.compute(*ends))
    return n.emit_dynamic(dyn.dyn_arange, *operands)


# --- another view of the same elements -----------------------------------------------------------


@converts("Reshape", since=5)
def _reshape(n: Node) -> Atom:
    allow_zero = bool(n.attr("allowzero", 0))  # opset 14
    return n.emit_dynamic(dyn.dyn_reshape, n[0], n.vector(1, n.rank), allow_zero=allow_zero)


@converts("Flatten")
def _flatten(n: Node) -> Atom:
    dims = n[0].type.shape
    axis = n.attr("axis", 1)
    if axis != len(dims):  # else everything is in front of it
        axis = n.front((axis,))[0]
    new = product(dims[:axis]), product(dims[axis:])
    if not all(isinstance(d, AnyDim) for d in new):
        return reshaped(n, n[0], new)
    extents = n.emit(s.shape_of, n[0])
    parts = (cut(n, extents, 0, *ends) for ends in ((0, axis), (axis, len(dims))))
    counts = [n.emit(reduce_prod, part, axes=(0,), keepdims=True) for part in parts]
    shape = n.emit(s.concat, *counts, axis=0)
    return n.emit(dyn.dyn_reshape, n[0], shape, allow_zero=True)


@converts("Transpose")
def _transpose(n: Node) -> Atom:
    axes = n.attr("perm")
    if axes is None:
        axes = tuple(reversed(range(len(n[0].type.shape))))
    return transposed(n, n[0], axes)


@converts("Squeeze", since=13)
def _squeeze(n: Node) -> Atom:
    if n.optional(1):
        return n.emit_dynamic(dyn_squeeze, n[0], n.vector(1, n.removed))
    dims = n[0].type.axes
    if n[0].type.is_tensor and all(isinstance(d, int) for d in dims):
        return n.emit(s.squeeze, n[0], axes=tuple(i for i, d in enumerate(dims) if d == 1))
    ones = n.emit(nonzero, n.emit(e.equal, n.emit(s.shape_of, n[0]), vector(1)))
    axes = n.emit(gather, ones, Const(np.array(0)), axis=0)
    if n.removed is not None and n.removed == sum(d == 1 for d in dims):
        axes = n.emit(s.reshape, axes, newshape=(n.removed,))  # the model says so: a run checks
    return n.emit(dyn_squeeze, n[0], axes)


@converts("Unsqueeze", since=13)
def _unsqueeze(n: Node) -> Atom:
    return n.emit_dynamic(dyn_unsqueeze, n[0], n.vector(1, n.added))


@converts("Expand")
def _expand(n: Node) -> Atom:
    return n.emit_dynamic(dyn.dyn_broadcast_to, n[0], n.vector(1, n.rank if n.added else None))


@converts("DepthToSpace")
def _depth_to_space(n: Node) -> Atom:
    size = _block_size(n)
    column_first = n.choice("mode", "DCR", "CRD") == "CRD"
    b, c, h, w = n[0].type.shape
    c = c // (size * size)
    split = (b, c, size, size, h, w) if column_first else (b, size, size, c, h, w)
    axes = (0, 1, 4, 2, 5, 3) if column_first else (0, 3, 4, 1, 5, 2)
    x = n.emit(s.transpose, reshaped(n, n[0], split), axes=axes)
    return reshaped(n, x, (b, c, h * size, w * size))


@converts("SpaceToDepth")
def _space_to_depth(n: Node) -> Atom:
    size = _block_size(n)
    b, c, h, w = n[0].type.shape
    h, w = h // size, w // size
    column_first = n.choice("mode", "DCR", "CRD") == "CRD"  # opset 28
    x = reshaped(n, n[0], (b, c, h, size, w, size))
    axes = (0, 1, 3, 5, 2, 4) if column_first else (0, 3, 5, 1, 2, 4)
    x = n.emit(s.transpose, x, axes=axes)
    return reshaped(n, x, (b, c * size * size, h, w))


def _block_size(n: Node) -> int:
    size: int = n.attr("blocksize")
    if size < 1:
        raise Unsupported(f"blocksize is {size}, expected 1 or more")
    if len(n[0].type.shape) != 4:
        raise Unsupported(f"blocks of {n[0].type}, which must have rank 4")
    return size


def reshaped(n: Node, x: Atom, dims: Shape) -> Atom:
    """`x` under another shape, of which at most one dim may be unknown."""
    unknown = [isinstance(d, AnyDim) for d in dims]
    if sum(unknown) > 1:
        raise Untold(f"more than one dim of ({', '.join(map(str, dims))}) is not known")
    if not any(unknown):
        return n.emit(s.reshape, x, newshape=dims)
    rest = tuple(-1 if u else d for u, d in zip(unknown, dims, strict=True))
    return n.emit(dyn.dyn_reshape, x, n.emit(from_dims, dims=rest))


def extent(n: Node, x: Atom, axis: int) -> Atom:
    """The extent of an axis, as a number."""
    return n.emit(gather, n.emit(s.shape_of, x), Const(np.array(axis)), axis=0)


def iota(n: Node, count: Atom) -> Var:
    """The numbers from 0 on, as many as `count` says."""
    return n.emit_dynamic(dyn.dyn_arange, Const(np.array(0)), count, Const(np.array(1)))


def places(n: Node, x: Atom, axis: int) -> Atom:
    """The indices along an axis, shaped to broadcast with `x`."""
    row = iota(n, extent(n, x, axis))
    behind = len(x.type.shape) - 1 - axis
    return n.emit(s.unsqueeze, row, axes=tuple(range(1, behind + 1))) if behind else row


def same_shape(n: Node, y: Atom, x: Atom) -> Var:
    """`y` under the shape of `x`, known or not."""
    dims = x.type.shape
    if not any(isinstance(d, AnyDim) for d in dims):
        return n.emit(s.reshape, y, newshape=dims)
    return n.emit(dyn.dyn_reshape, y, n.emit(s.shape_of, x), allow_zero=True)


# --- joining, cutting, repeating -----------------------------------------------------------------


converts_directly("Concat", s.concat, axis=1)


@converts("Split", since=13)
def _split(n: Node) -> tuple[Atom, ...]:
    axis = n.axis("axis", 0)
    size = n[0].type.shape[axis] if n[0].type.is_tensor else ANY
    parts = n.attr("num_outputs", n.outputs)  # opset 18
    if parts != n.outputs:
        raise Unsupported(f"num_outputs is {parts}, there are {n.outputs}")
    if n.optional(1):
        sizes, x = n.vector(1, parts), n[0]
        has_extents = x.type.is_tensor and not is_unknown(x.type.shape)  # else the op checks
        if isinstance(sizes, Const) and has_extents and not isinstance(size, int):
            x = fitted(n, x, axis, int(sizes.value.sum())) if sizes.value.sum() >= 0 else x
        return tuple(n.emit_dynamic(dyn_split, x, sizes, axis=axis, part=i) for i in range(parts))
    if isinstance(size, AnyDim):
        return _split_evenly(n, axis, parts)
    each = (size + (parts - 1)) // parts
    return tuple(cut(n, n[0], axis, i * each, (i + 1) * each) for i in range(parts))


def _split_evenly(n: Node, axis: int, parts: int) -> tuple[Atom, ...]:
    """Parts along an axis whose extent only a run can tell."""
    size = cut(n, n.emit(s.shape_of, n[0]), 0, axis, axis + 1)
    each = n.emit(e.trunc_div, n.emit(e.add, size, vector(parts - 1)), vector(parts))
    ends = [n.emit(e.mul, each, vector(i)) for i in range(parts + 1)]
    rest = vector(1), vector(axis)
    return tuple(n.emit(dyn.dyn_strided_slice, n[0], *part, *rest) for part in pairwise(ends))


@converts("Slice", since=10)
def _slice(n: Node) -> Atom:
    begin, end = n.vector(1), n.vector(2)
    (count,) = begin.type.shape
    if n[0].type.is_tensor and isinstance(count, int) and count > len(n[0].type.shape):
        raise Unsupported(f"{count} axes of rank {len(n[0].type.shape)}")
    axes = n.vector(3) if n.optional(3) else _indices(n, begin)
    strides = n.vector(4) if n.optional(4) else _ones(n, begin)
    return n.emit_dynamic(dyn.dyn_strided_slice, n[0], begin, end, strides, axes)


def _indices(n: Node, x: Atom) -> Atom:
    """The numbers from 0 on, as many as a vector has elements."""
    (count,) = x.type.shape
    return vector(*range(count)) if isinstance(count, int) else places(n, x, 0)


def _ones(n: Node, x: Atom) -> Atom:
    """Ones, as many as a vector has elements."""
    (count,) = x.type.shape
    if isinstance(count, int):
        return vector(*(1,) * count)
    return n.emit(dyn.dyn_full, n.emit(s.shape_of, x), value=1, dtype="int64")


@converts("Tile", since=6)
def _tile(n: Node) -> Atom:
    return n.emit_dynamic(dyn.dyn_tile, n[0], n.vector(1, len(n[0].type.shape)))


converts("Pad", 11)(lambda n: _padded(n, n.choice("mode", *PADS)))
converts("Pad", 19)(lambda n: _padded(n, n.choice("mode", *PADS, "wrap")))


def _padded(n: Node, mode: str) -> Atom:
    x, value = n[0], n.optional(2)
    axes = n.vector(3) if n.optional(3) else vector(*range(len(x.type.shape)))  # opset 18
    (count,) = axes.type.shape
    pads = n.vector(1, 2 * count if isinstance(count, int) else None)
    if mode != "constant" or value is None or isinstance(value, Const):
        number = n.number(2, "the value is") or 0
        return n.emit_dynamic(dyn.dyn_pad, x, pads, axes, value=number, mode=mode)
    inside = n.emit(dyn.dyn_full, n.emit(s.shape_of, x), value=True, dtype="bool")
    y, kept = (n.emit_dynamic(dyn.dyn_pad, t, pads, axes) for t in (x, inside))
    return n.emit(e.where, kept, y, scalar(n, 2))


@converts("Trilu")
def _trilu(n: Node) -> Atom:
    """The triangle where column - row is at least (upper) or at most (lower) k."""
    if len(n[0].type.shape) < 2:
        raise Unsupported(f"a triangle of {n[0].type}, which must have rank 2 or more")
    rank = len(n[0].type.shape)
    row, column = (places(n, n[0], axis) for axis in (rank - 2, rank - 1))
    if n.optional(1):
        row = n.emit(e.add, row, scalar(n, 1))
    kept = n.emit(e.greater_equal if n.attr("upper", 1) else e.less_equal, column, row)
    return n.emit(e.where, kept, n[0], n.like(n[0], 0))


def scalar(n: Node, index: int) -> Atom:
    """An operand of one element, as a scalar."""
    atom = n[index]
    size = product(atom.type.shape)
    if size != 1 and isinstance(size, int):
        raise Unsupported(f"input {index} is {atom.type}, expected one element")
    return n.emit(s.reshape, atom, newshape=()) if atom.type.shape else atom


@converts("EyeLike")
def _eye_like(n: Node) -> Atom:
    """1 on a diagonal, else 0."""
    code, k = n.attr("dtype"), Const(np.array(n.attr("k", 0)))
    dtype = n[0].type.dtype if code is None else native_dtype(code)
    row, column = places(n, n[0], 0), places(n, n[0], 1)
    return n.emit(e.cast, n.emit(e.equal, column, n.emit(e.add, row, k)), dtype=dtype.name)
