"""Resizing: values between those of a tensor, on a grid that is finer or coarser."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from bucketize.errors import TypeRelError
from bucketize.op import FREE, UNSAFE, Array, Attrs, first_dtype, op
from bucketize.ops.dyn.operand import Twin, dynamic, read, twin
from bucketize.ops.resample.interpolate import (
    COORDINATES,
    CROP,
    REACH,
    ROUNDINGS,
    Floats,
    neighbours,
    rounded,
)
from bucketize.ops.resample.interpolate import coordinates as places_of
from bucketize.ops.rules import check_axes, check_extents, check_word, same
from bucketize.ops.shape import reshape
from bucketize.types import ANY, Dim, Shape, TensorType, maximum, meet, minimum, rely_on_least

__all__ = ["dyn_resize", "resize"]

MODES = ("nearest", *REACH)
POLICIES = ("stretch", "not_larger", "not_smaller")
Axes = tuple[int, ...]


def _check(x: Shape, beside: tuple[Shape, ...], axes: Axes, sizes: Shape, **attrs: Any) -> None:
    """The attributes, and the operands that go with them."""
    check_word("mode", attrs["mode"], MODES)
    check_word("coordinates", attrs["coordinates"], COORDINATES)
    check_word("rounding", attrs["rounding"], ROUNDINGS)
    check_word("policy", attrs["policy"], POLICIES)
    check_axes(len(x), *axes)
    if list(axes) != sorted(axes) or len(sizes) != len(axes):
        raise TypeRelError(f"axes in order, and a size for each: got {axes}, {len(sizes)} sizes")
    if attrs["antialias"] and attrs["mode"] == "nearest":
        raise TypeRelError("the nearest element is not antialiased")
    crop = int(attrs["coordinates"] == CROP)
    if not crop <= len(beside) <= crop + 1:
        raise TypeRelError(f"{crop} to {crop + 1} vectors beside x, got {len(beside)}")
    lengths = ([2 * len(axes)] if crop else []) + [len(axes)]
    for vector, length in zip(beside, lengths, strict=False):
        if len(vector) != 1:
            raise TypeRelError(f"scales and roi are vectors, got rank {len(vector)}")
        meet(vector[0], length)


def _extents(x: Shape, sizes: Shape, policy: str) -> Shape:
    """The extents of the resized axes: as they are told, or all by one scale, rounded."""
    if policy == "stretch":
        return sizes
    choose = minimum if policy == "not_larger" else maximum
    pairs = list(zip(x, sizes, strict=True))
    return tuple(
        reduce(choose, (size if d is e else _scaled(d, size, e) for e, size in pairs)) for d in x
    )


def _scaled(dim: Dim, size: Dim, of: Dim) -> Dim:
    """The integer nearest to dim * size / of."""
    whole = maximum(of, 1)
    return (2 * dim * size + whole) // (2 * whole)


def _resize_shape(x: Shape, *beside: Shape, axes: Axes, sizes: Shape, **attrs: Any) -> Shape:
    check_extents(sizes)
    _check(x, beside, axes, sizes, **attrs)
    old = tuple(x[a] for a in axes)
    new = _extents(old, sizes, attrs["policy"])
    for dim, size in zip(old, new, strict=True):
        _check_grown(dim, size)
        rely_on_least(dim, minimum(size, 1))
    at = dict(zip(axes, new, strict=True))
    return tuple(at.get(a, d) for a, d in enumerate(x))


def _check_grown(dim: Dim, size: Dim) -> None:
    if dim == 0 and isinstance(size, int) and size > 0:
        raise TypeRelError(f"an axis without elements cannot have {size}")


@op(
    shape=_resize_shape,
    dtype=first_dtype,
    padding=lambda arg, at, *_, axes, **__: FREE if arg == 0 and at not in axes else UNSAFE,
    example="float32[N, C, H, W] {axes=(2, 3), sizes=(2*H, 2*W)}; "
    "float32[N, H, W] {axes=(1, 2), sizes=(H+2, 5), mode='linear'}; "
    "float32[H, W, C] {axes=(0, 1), sizes=(5, W), mode='linear'}; "
    "float32[1, C, H, W] {axes=(2, 3), sizes=(2, W), mode='linear', antialias=True}; "
    "float32[N, H, W], float32[2] in [0.5, 2) "
    "{axes=(1, 2), sizes=(3, W), mode='cubic', coordinates='half_pixel_symmetric'}; "
    "float32[N, H, W], float32[4] in [0, 1) "
    "{axes=(1, 2), sizes=(H+3, W+2), mode='linear', coordinates='tf_crop_and_resize'}; "
    "int64[H, W] {axes=(0, 1), sizes=(3, 4), policy='not_smaller', rounding='ceil'}",
)
def resize(  # noqa: PLR0913 ONNX has as many
    x: Array,
    *beside: Array,
    axes: Axes,
    sizes: Shape,
    mode: str = "nearest",
    coordinates: str = "half_pixel",
    rounding: str = "round_prefer_floor",
    cubic: float = -0.75,
    exclude_outside: bool = False,
    antialias: bool = False,
    extrapolation: float = 0.0,
    policy: str = "stretch",
) -> Array:
    """`x` on a grid of `sizes` along `axes` (ONNX Resize).

    `beside` are floats: of tf_crop_and_resize the part that is cut out, all its begins, then its
    ends; then scales, if they are not to be those of the extents. By `policy` one scale serves all
    axes: the least ("not_larger") or the greatest ("not_smaller") that `sizes` ask for. Floats are
    added up in float32, or in their own dtype if that is longer, integers in float64.
    """
    old = tuple(x.shape[a] for a in axes)
    new: Any = _extents(old, sizes, policy)
    for before, after in zip(old, new, strict=True):
        _check_grown(before, after)
    if 0 in (*x.shape, *new):
        at = dict(zip(axes, new, strict=True))
        return np.zeros([at.get(a, n) for a, n in enumerate(x.shape)], x.dtype)
    roi = beside[0] if coordinates == CROP else None
    scales, widths = _scales(old, new, sizes, policy, beside[roi is not None :])
    kind = x.dtype
    out = x if mode == "nearest" else x.astype(np.result_type(kind, np.float32))
    outside = []
    for i, axis in reversed([*enumerate(axes)]):
        part = None if roi is None else roi[[i, len(axes) + i]]
        places = places_of(coordinates, old[i], new[i], scales[i], widths[i], part)
        if part is not None:
            outside.append((axis, (places < 0) | (places > old[i] - 1)))
        if mode == "nearest":
            out = out.take(np.clip(rounded(places, rounding, scales[i]), 0, old[i] - 1), axis)
            continue
        out = _weighted(
            out,
            axis,
            *neighbours(
                mode,
                places,
                old[i],
                scales[i],
                cubic,
                exclude_outside=exclude_outside,
                antialias=antialias,
            ),
        )
    for axis, where in outside:
        out[(slice(None),) * axis + (where,)] = extrapolation
    return _stored(out, kind)


def _scales(
    old: Any, new: Any, sizes: Any, policy: str, given: tuple[Array, ...]
) -> tuple[Floats, Floats]:
    """The scale of each axis, and the extent that it leads to before it is rounded."""
    before, after = (np.array(n, np.float32) for n in (old, new))
    if given:
        scales = given[0].astype(np.float32)
        return scales, scales * before
    if policy == "stretch":
        return after / before, after
    ratios = np.array(sizes, np.float32) / before
    scales = np.full_like(ratios, ratios.min() if policy == "not_larger" else ratios.max())
    return scales, scales * before


def _weighted(x: Array, axis: int, index: Array, weights: Floats) -> Array:
    """The sums of neighbours along an axis."""
    behind = (1,) * (x.ndim - 1 - axis)
    taps = (
        x.take(at, axis) * w.astype(x.dtype).reshape(-1, *behind)
        for at, w in zip(index.T, weights.T, strict=True)
    )
    return reduce(np.add, taps)


def _stored(values: Array, dtype: np.dtype[Any]) -> Array:
    """In a dtype; integers as near as they come."""
    if dtype.kind == "f" or values.dtype == dtype:
        return values.astype(dtype)
    limits = np.iinfo(dtype)
    return np.clip(np.rint(values), limits.min, limits.max).astype(dtype)


# --- the extents in a tensor ---------------------------------------------------------------------


def _dyn_twin(
    x: TensorType, sizes: TensorType, *beside: TensorType, axes: Axes, **attrs: Any
) -> Twin:
    """Axes that stay as they are need no work."""
    extents = read(sizes)
    if beside or attrs["policy"] != "stretch":
        return twin(resize, axes=axes, sizes=extents, **attrs)
    kept = [(a, d) for a, d in zip(axes, extents, strict=True) if not same(d, x.shape[a])]
    if not kept:
        return twin(reshape, newshape=x.shape)
    axes, extents = (tuple(each) for each in zip(*kept, strict=True))
    return twin(resize, axes=axes, sizes=extents, **attrs)


@dynamic(
    resize,
    static=_dyn_twin,
    extents=1,
    example="float32[N, C, H, W], int64[4] = (N, C, 2*H, 5) {axes=(0, 1, 2, 3)}; "
    "float32[N, H], int64[2] = (N, H) {axes=(0, 1), mode='linear'}; "
    "float32[H, W], int64[2] = (3, 4) {axes=(0, 1), mode='cubic', policy='not_larger'}; "
    "float32[N, H], int64[1] = (H+1,), float32[1] in [0.5, 2) "
    "{axes=(1,), mode='linear', coordinates='asymmetric'}",
)
def dyn_resize(_x: Shape, sizes: Dim | Shape, *_beside: Shape, axes: Axes, **attrs: Any) -> Attrs:
    """`resize` to the extents that `sizes` holds."""
    extents = sizes if isinstance(sizes, tuple) else (ANY,) * len(axes)
    return {"axes": axes, "sizes": extents, **attrs}
