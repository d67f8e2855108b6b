"""Converters of Resize, and of Upsample, which it was before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from bucketize.ir import Atom, Const
from bucketize.onnx.node import Node, Result, Unsupported, cast, converts, vector
from bucketize.ops.elementwise.arithmetic import floor, mul
from bucketize.ops.index import gather
from bucketize.ops.resample.interpolate import COORDINATES, CROP, ROUNDINGS, SHRUNK_UP
from bucketize.ops.resample.resize import MODES, POLICIES, dyn_resize, resize
from bucketize.ops.shape import shape_of
from bucketize.types import ANY, AnyDim, Dim

CHECKED = 1 << 15
"""Extents up to which a fraction must agree with the float32 product of the standard."""


converts("Upsample")(
    lambda n: _before_11(n, [1.0, 1.0, n.attr("height_scale"), n.attr("width_scale")])
)
converts("Upsample", 7)(lambda n: _before_11(n, n.attr("scales")))


def _before_11(n: Node, scales: Sequence[float]) -> Result:
    return _resize_10(replace(n, inputs=(n[0], Const(np.asarray(scales, np.float32)))))


@converts("Upsample", since=9)
@converts("Resize", since=10)
def _resize_10(n: Node) -> Result:
    """The standard does not say which is nearest; as onnxruntime has it."""
    attrs = {"mode": n.choice("mode", "nearest", "linear"), "rounding": SHRUNK_UP}
    axes = tuple(range(len(n[0].type.shape)))
    scales = _vector(n, 1, 1, axes)
    return _by_scales(n, axes, (), scales, coordinates="asymmetric", **attrs)


@converts("Resize", since=11)
def _resize(n: Node) -> Atom:
    x, roi, scales, sizes = n[0], *(_given(n, i) for i in (1, 2, 3))
    axes = n.front(n.attr("axes") or tuple(range(len(x.type.shape))))  # opset 18
    attrs = {
        "mode": n.choice("mode", *MODES),
        "coordinates": n.choice("coordinate_transformation_mode", *COORDINATES),
        "rounding": n.choice("nearest_mode", *ROUNDINGS[:-1]),
        "cubic": n.attr("cubic_coeff_a", -0.75),
        "exclude_outside": bool(n.attr("exclude_outside", 0)),
        "extrapolation": n.attr("extrapolation_value", 0.0),
        "antialias": bool(n.attr("antialias", 0)),  # opset 18
        "policy": n.choice("keep_aspect_ratio_policy", *POLICIES),  # opset 18
    }
    if (scales is None) == (sizes is None):
        raise Unsupported("scales or sizes must be given, one of them")
    crop = attrs["coordinates"] == CROP
    if crop and roi is None:
        raise Unsupported(f"{CROP} without a roi")
    ordered = tuple(sorted(axes))
    rois = (_vector(n, 1, 2, axes),) if crop else ()
    if scales is not None:
        return _by_scales(n, ordered, rois, _vector(n, 2, 1, axes), **attrs | {"policy": "stretch"})
    return n.emit_dynamic(dyn_resize, x, _vector(n, 3, 1, axes), *rois, axes=ordered, **attrs)


def _given(n: Node, index: int) -> Atom | None:
    """An operand that is there; one without elements is as good as none."""
    atom = n.optional(index)
    return None if atom is None or atom.type.shape == (0,) else atom


def _vector(n: Node, index: int, parts: int, axes: tuple[int, ...]) -> Atom:
    """An operand of so many parts, each with a number for every axis, as if axes were in order."""
    count = parts * len(axes)
    atom = n.vector(index, count)
    if atom.type.shape != (count,):
        raise Unsupported(f"input {index} is {atom.type}, expected {count} elements")
    order = sorted(range(len(axes)), key=axes.__getitem__)
    places = [len(axes) * part + k for part in range(parts) for k in order]
    return atom if places == list(range(count)) else _picked(n, atom, places)


def _picked(n: Node, atom: Atom, places: Sequence[int]) -> Atom:
    if isinstance(atom, Const):
        return Const(atom.value[list(places)])
    return n.emit(gather, atom, vector(*places), axis=0)


def _by_scales(
    n: Node, axes: tuple[int, ...], rois: tuple[Atom, ...], scales: Atom, **attrs: Any
) -> Atom:
    """`x` resized to extents that follow from scales; axes that stay as they are need no work."""
    if not isinstance(scales, Const):
        return _by_run_time_scales(n, axes, rois, scales, **attrs)
    x, dims, values = n[0], n[0].type.shape, scales.value.astype(np.float32)
    if not all(s > 0 and math.isfinite(s) for s in values):
        raise Unsupported(f"scales are {values.tolist()}, expected positive numbers")
    if not rois:
        kept = [k for k, s in enumerate(values) if s != 1]
        axes, values = tuple(axes[k] for k in kept), values[kept]
    if not axes:
        return x
    sizes = tuple(scaled(dims[a], s) for a, s in zip(axes, values, strict=True))
    if any(isinstance(d, AnyDim) for d in sizes):
        return _by_run_time_scales(n, axes, rois, Const(values), **attrs)
    if not all(map(_follows, (dims[a] for a in axes), sizes, values)):
        rois = (*rois, Const(values))
    return n.emit(resize, x, *rois, axes=axes, sizes=sizes, **attrs)


def _by_run_time_scales(
    n: Node, axes: tuple[int, ...], rois: tuple[Atom, ...], scales: Atom, **attrs: Any
) -> Atom:
    extents = cast(n, _picked(n, n.emit(shape_of, n[0]), axes), "float32")
    sizes = cast(n, n.emit(floor, n.emit(mul, extents, scales)), "int64")
    return n.emit_dynamic(dyn_resize, n[0], sizes, *rois, scales, axes=axes, **attrs)


# --- extents -------------------------------------------------------------------------------------


def scaled(dim: Dim, scale: np.float32) -> Dim:
    """The product rounded down, that of float32 numbers as ONNX has it; `?` if no dim is that."""
    if isinstance(dim, AnyDim):
        return dim
    ratio = _fraction(float(scale))
    if ratio is not None:
        return dim * ratio.numerator // ratio.denominator
    return int(np.float32(dim) * scale) if isinstance(dim, int) else ANY


@cache
def _fraction(scale: float) -> Fraction | None:
    """The simplest fraction that float32 takes for the scale, if it leads to the same extents."""
    number = np.float32(scale)
    ends = (np.nextafter(number, np.float32(end)) for end in (0, np.inf))
    low, high = ((Fraction(scale) + Fraction(float(end))) / 2 for end in ends)
    ratio = _simplest(low, high)
    if max(ratio.numerator * CHECKED, ratio.denominator) > np.iinfo(np.int64).max:
        return None
    extents = np.arange(CHECKED)
    products = np.floor(extents.astype(np.float32) * number)
    exact = extents * ratio.numerator // ratio.denominator
    return ratio if (products == exact).all() else None


def _simplest(low: Fraction, high: Fraction) -> Fraction:
    """The fraction between the two that has the least denominator."""
    whole = math.ceil(low)
    if whole <= high:
        return Fraction(whole)
    return whole - 1 + 1 / _simplest(1 / (high - whole + 1), 1 / (low - whole + 1))


def _follows(dim: Dim, size: Dim, scale: np.float32) -> bool:
    """Whether the scale is that of the two extents."""
    if isinstance(dim, int) and isinstance(size, int):
        return bool(dim and np.float32(size) / np.float32(dim) == scale)
    return bool(scale == np.rint(scale))
