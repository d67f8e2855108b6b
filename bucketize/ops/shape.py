"""Operators that move or measure tensors, and compute nothing.

Their attributes may hold dims, so that a static op can say `newshape=(B, S*12)`.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from bucketize.errors import TypeRelError
from bucketize.op import FREE, UNSAFE, Array, Fill, Movement, Padding, by_dims, op
from bucketize.ops.dim import fill_number
from bucketize.ops.rules import (
    at_least,
    broadcast_padding,
    check_axes,
    check_extents,
    check_lengths,
    free,
    int64,
    same,
    slice_ends,
    slice_extent,
    text,
    uncancelled,
    unsafe,
)
from bucketize.types import (
    ANY,
    Dim,
    Shape,
    TensorType,
    broadcast_shapes,
    maximum,
    meet,
    minimum,
    positive,
    product,
    rely_on_least,
    symbols,
    total,
)

__all__ = [
    "broadcast_to",
    "concat",
    "pad",
    "reshape",
    "shape_of",
    "size_of",
    "squeeze",
    "strided_slice",
    "tile",
    "transpose",
    "unsqueeze",
]

# --- measuring -----------------------------------------------------------------------------------


@op(
    shape=lambda x: (len(x),),
    dtype=int64,
    padding=unsafe,
    value=lambda x: x.shape,
    unranked=lambda _: (ANY,),
    total=True,
    example="float32[N, C]; float32[]",
)
def shape_of(x: Array) -> Array:
    """The extents of `x`."""
    return np.array(x.shape, np.int64)


@op(
    shape=lambda _: (),
    dtype=int64,
    padding=unsafe,
    value=lambda x: (product(x.shape),),
    unranked=lambda _: (),
    total=True,
    example="float32[N, C]; float32[]",
)
def size_of(x: Array) -> Array:
    """The number of elements of `x`."""
    return np.array(x.size, np.int64)


# --- another view of the same elements -----------------------------------------------------------


def rely_on_extents(x: Shape, newshape: Shape) -> None:
    """Rely on `newshape` where ONNX has a 0 copy an axis of `x`: what it copies must be 0, too."""
    for i, d in enumerate(newshape):
        have = x[i] if i < len(x) else 1
        if d == 0 and isinstance(have, int) and have:
            raise TypeRelError(f"the 0 at {i} of {text(newshape)} copies none of {text(x)}")
        if not same(d, have):
            rely_on_least(d, positive(have))


def _reshape_shape(x: Shape, *, newshape: Shape, allow_zero: bool = True) -> Shape:
    if not allow_zero:
        rely_on_extents(x, newshape)
    if 0 in x and 0 in newshape:
        return newshape
    before, after = uncancelled(x, newshape)
    try:
        meet(before, after)
    except TypeRelError:
        sizes = f"{product(x)} elements, not {product(newshape)}"
        raise TypeRelError(f"{text(x)} has {sizes} as {text(newshape)}") from None
    return newshape


def _reshape_padding(_arg: int, axis: int, x: Shape, *, newshape: Shape, **_: Any) -> Padding:
    """Free if the axis keeps its place, or is the outermost and goes into the outermost."""
    dim, inner = x[axis], product(x[axis + 1 :])
    for i, d in enumerate(newshape):
        if same(d, dim) and same(inner, product(newshape[i + 1 :])):
            return FREE
    kept = frozenset[Any]().union(*(symbols(d) for d in newshape[1:]))
    outermost = all(d == 1 for d in x[:axis]) and symbols(dim)
    return FREE if outermost and not symbols(dim) & kept else UNSAFE


@op(
    shape=_reshape_shape,
    padding=_reshape_padding,
    value=True,
    unranked=lambda _, newshape, **__: newshape,
    movement=Movement.VIEW,
    total=True,
    sizing=("newshape",),
    example="float32[B, S, 6] {newshape=(B, S, 2, 3)}; float32[B, S, 6] {newshape=(B*S, 6)}; "
    "float32[B, S, 2, 3] {newshape=(1, B, S, 6)}; float32[B, S] {newshape=(S, B)}; "
    "int64[2, 3] {newshape=(6,)}; int64[1] {newshape=()}; float32[N, N, 2] {newshape=(N, 2*N)}; "
    "float32[B*S, 4] {newshape=(B, S, 4)}; float32[N, 2*C] {newshape=(2, N*C)}",
)
def reshape(x: Array, *, newshape: tuple[int, ...], allow_zero: bool = True) -> Array:
    """The elements of `x`, in order, under another shape.

    Without `allow_zero` an extent is 0 only where that of `x` is: ONNX would copy another.
    """
    if not allow_zero:
        rely_on_extents(x.shape, newshape)
    return x.reshape(newshape)


def _transpose_shape(x: Shape, *, axes: tuple[int, ...]) -> Shape:
    if sorted(axes) != list(range(len(x))):
        raise TypeRelError(f"axes {axes} do not permute rank {len(x)}")
    return tuple(x[a] for a in axes)


@op(
    shape=_transpose_shape,
    padding=free,
    value=True,
    movement=Movement.WHOLE,
    total=True,
    example="float32[N, C, H] {axes=(2, 0, 1)}; int64[2, 3] {axes=(1, 0)}",
)
def transpose(x: Array, *, axes: tuple[int, ...]) -> Array:
    """`x` with its axes in the order of `axes`."""
    return x.transpose(axes)


def _squeeze_shape(x: Shape, *, axes: tuple[int, ...]) -> Shape:
    check_axes(len(x), *axes)
    for a in axes:
        meet(x[a], 1)
    return tuple(d for i, d in enumerate(x) if i not in axes)


@op(
    shape=_squeeze_shape,
    padding=lambda _arg, axis, _x, axes: UNSAFE if axis in axes else FREE,
    value=True,
    movement=Movement.VIEW,
    total=True,
    example="float32[N, 1, C, 1] {axes=(1, 3)}; int64[1] {axes=(0,)}",
)
def squeeze(x: Array, *, axes: tuple[int, ...]) -> Array:
    """`x` without `axes`, each of extent 1."""
    return np.squeeze(x, axes)


def _unsqueeze_shape(x: Shape, *, axes: tuple[int, ...]) -> Shape:
    rank = len(x) + len(axes)
    check_axes(rank, *axes)
    rest = iter(x)
    return tuple(1 if i in axes else next(rest) for i in range(rank))


@op(
    shape=_unsqueeze_shape,
    padding=free,
    value=True,
    movement=Movement.VIEW,
    total=True,
    example="float32[N, C] {axes=(0, 2)}; int64[] {axes=(0,)}",
)
def unsqueeze(x: Array, *, axes: tuple[int, ...]) -> Array:
    """`x` with new axes of extent 1, at these places of the result."""
    return np.expand_dims(x, axes)


@op(
    shape=lambda x, shape: broadcast_shapes(x, check_extents(shape)),
    padding=lambda arg, axis, x, *, shape: broadcast_padding(arg, axis, x, shape),
    value=True,
    movement=Movement.WHOLE,
    total=True,
    sizing=("shape",),
    example="float32[N, 1] {shape=(M, N, C)}; float32[N, C] {shape=(1, C)}; "
    "float32[N] {shape=(1,)}; int64[1] {shape=(3,)}; int64[] {shape=(2, 2)}",
)
def broadcast_to(x: Array, *, shape: tuple[int, ...]) -> Array:
    """`x` repeated so that its shape is `x.shape` and `shape` broadcast together (ONNX Expand)."""
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, shape))


# --- joining, cutting, repeating -----------------------------------------------------------------


def _concat_shape(*xs: Shape, axis: int) -> Shape:
    ranks = sorted({len(x) for x in xs})
    if len(ranks) > 1 or axis >= ranks[0]:
        raise TypeRelError(f"concat along axis {axis} of ranks {', '.join(map(str, ranks))}")
    along = zip(*xs, strict=True)
    return tuple(total(d) if i == axis else reduce(meet, d) for i, d in enumerate(along))


def _concat_padding(arg: int, at: int, *xs: Shape, axis: int) -> Padding:
    if at == axis:  # what follows the last argument is cropped
        return FREE if arg == len(xs) - 1 else UNSAFE
    return FREE if all(same(x[at], xs[arg][at]) for x in xs) else UNSAFE


@op(
    shape=_concat_shape,
    padding=_concat_padding,
    value=True,
    total=True,
    example="float32[N, C], float32[N, D], float32[N, E] {axis=1}; int64[2], int64[1] {axis=0}; "
    "float32[N, C] {axis=0}",
)
def concat(*xs: Array, axis: int) -> Array:
    """`xs` joined along `axis`; they agree on every other axis."""
    return np.concatenate(xs, axis)


def _slice_shape(
    x: Shape,
    *,
    begin: tuple[Dim, ...],
    end: tuple[Dim, ...],
    strides: tuple[int, ...],
    axes: tuple[int, ...],
) -> Shape:
    check_lengths(begin, end, strides, axes)
    check_axes(len(x), *axes)
    out = list(x)
    for b, e, s, a in zip(begin, end, strides, axes, strict=True):
        out[a] = slice_extent(x[a], b, e, s)
    return tuple(out)


def _slice_padding(
    _arg: int,
    axis: int,
    x: Shape,
    *,
    begin: tuple[Dim, ...],
    end: tuple[Dim, ...],  # noqa: ARG001  only how much is kept depends on it, and that is cropped
    strides: tuple[int, ...],
    axes: tuple[int, ...],
) -> Padding:
    if axis not in axes:
        return FREE
    at = axes.index(axis)
    fixed = at_least(begin[at], 0) and not symbols(begin[at]) & symbols(x[axis])
    return FREE if fixed and strides[at] > 0 else UNSAFE


def _slice_value(x: TensorType, **attrs: Any) -> Shape | None:
    ends = (*attrs["begin"], *attrs["end"])
    cut = by_dims(strided_slice.compute)
    return cut(x, **attrs) if all(isinstance(d, int) for d in ends) else None


@op(
    shape=_slice_shape,
    padding=_slice_padding,
    value=_slice_value,
    movement=Movement.PART,
    total=True,
    sizing=("end",),
    example="float32[N, C+2] {begin=(1, 0), end=(9, -1), strides=(1, 2), axes=(0, 1)}; "
    "float32[N, C] {begin=(-1,), end=(-9,), strides=(-2,), axes=(1,)}; "
    "float32[N, C] {begin=(3,), end=(-9,), strides=(-1,), axes=(1,)}; "
    "float32[8, C] {begin=(0,), end=(C,), strides=(1,), axes=(0,)}; "
    "float32[N] {begin=(N-1,), end=(2**63-1,), strides=(1,), axes=(0,)}; "
    "int64[4] {begin=(1,), end=(3,), strides=(1,), axes=(0,)}",
)
def strided_slice(
    x: Array,
    *,
    begin: tuple[int, ...],
    end: tuple[int, ...],
    strides: tuple[int, ...],
    axes: tuple[int, ...],
) -> Array:
    """`x` cut to `begin:end:stride` along `axes`, negative ends from the back (ONNX Slice)."""
    at = [slice(None)] * x.ndim
    for b, e, s, a in zip(begin, end, strides, axes, strict=True):
        first, last = slice_ends(x.shape[a], int(b), int(e), int(s))
        at[a] = slice(first, last if last != -1 else None, int(s))
    return x[tuple(at)]


Pads = tuple[tuple[Dim, Dim], ...]

MODES = ("constant", "edge", "reflect", "symmetric", "wrap")


def _pad_shape(x: Shape, *, pads: Pads, mode: str = "constant", **_: Any) -> Shape:
    """The extents with pads; a mode that repeats elements wants one at least."""
    if mode not in MODES:
        raise TypeRelError(f"no mode {mode!r} of pads; known: {', '.join(MODES)}")
    if len(pads) != len(x):
        raise TypeRelError(f"pads for {len(pads)} axes, of rank {len(x)}")
    for d, (lo, hi) in zip(x, pads, strict=True) if mode != "constant" else ():
        least = minimum(maximum(lo, hi), 1)
        if d == 0 and least == 1:
            raise TypeRelError(f"pads of {text(x)} by {mode}: an axis of no elements has no {mode}")
        rely_on_least(d, least)
    out = tuple(lo + d + hi for d, (lo, hi) in zip(x, pads, strict=True))
    if any(isinstance(d, int) and d < 0 for d in out):
        raise TypeRelError(f"pads {pads} cut more than there is of {text(x)}")
    return out


def _pad_padding(
    _arg: int, axis: int, _x: Shape, *, pads: Pads, value: float, mode: str
) -> Padding:
    lo, hi = pads[axis]
    if not isinstance(lo, int) or not isinstance(hi, int):
        return UNSAFE
    if mode != "constant":
        return UNSAFE if lo or hi else FREE
    return Fill(value) if hi > 0 else FREE


@op(
    shape=_pad_shape,
    padding=_pad_padding,
    example="float32[N, C] {pads=((0, 0), (1, 2))}; float32[N, C] {pads=((0, N), (1, 0))}; "
    "float32[N, C+2] {pads=((2, 0), (-1, -1)), value=7}; "
    "int32[N, C] {pads=((1, 0), (0, 2)), value=-1e999}; "
    'float32[N+2, C] {pads=((2, 1), (0, 0)), mode="reflect"}; '
    'float32[N, C] {pads=((2, 1), (0, 0)), mode="edge"}',
)
def pad(
    x: Array, *, pads: tuple[tuple[int, int], ...], value: float = 0.0, mode: str = "constant"
) -> Array:
    """`x` with elements before and after each axis; negative numbers cut off. Modes as in numpy."""
    _pad_shape(x.shape, pads=pads, mode=mode)
    width = [(max(lo, 0), max(hi, 0)) for lo, hi in pads]
    filled = {"constant_values": fill_number(value, x.dtype)} if mode == "constant" else {}
    out = np.pad(x, width, mode, **filled)  # type: ignore[call-overload]
    ends = zip(out.shape, pads, strict=True)
    kept = tuple(slice(max(-lo, 0), n - max(-hi, 0)) for n, (lo, hi) in ends)
    return np.asarray(out[kept])


def _tile_shape(x: Shape, *, repeats: tuple[Dim, ...]) -> Shape:
    if len(repeats) != len(x):
        raise TypeRelError(f"repeats for {len(repeats)} axes, of rank {len(x)}")
    check_extents(repeats)
    return tuple(d * r for d, r in zip(x, repeats, strict=True))


@op(
    shape=_tile_shape,
    padding=lambda _arg, axis, _x, repeats: FREE if repeats[axis] == 1 else UNSAFE,
    value=True,
    movement=Movement.WHOLE,
    example="float32[N, C] {repeats=(1, 3)}; float32[N, C] {repeats=(C, 1)}; "
    "int64[2] {repeats=(2,)}",
)
def tile(x: Array, *, repeats: tuple[int, ...]) -> Array:
    """`x` repeated along each axis."""
    return np.tile(x, repeats)
