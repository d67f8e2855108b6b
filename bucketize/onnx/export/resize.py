"""Export rules of what puts images on other grids."""

from __future__ import annotations

from typing import Any

from bucketize.ir import Const
from bucketize.onnx.convert.resize import scaled
from bucketize.onnx.export.rule import ExportSite, exports
from bucketize.onnx.export.window import laid_out, planar
from bucketize.onnx.node import Unsupported
from bucketize.ops.resample.interpolate import CROP, EARLY, SHRUNK_UP
from bucketize.ops.resample.resize import dyn_resize, resize
from bucketize.ops.resample.sampling import grid_sample, roi_align
from bucketize.ops.rules import at_least
from bucketize.types import Shape


@exports(resize)
def _resize(s: ExportSite) -> str:
    """By its sizes, or by scales that lead to them."""
    crop, sizes = s.attr("coordinates") == CROP, s.attr("sizes")
    scales = s.args[1 + crop :]
    if not scales:
        return _resized(s, _rounding(s, sizes), "", s.extents(sizes))
    dims = [s.type(0).shape[a] for a in s.attr("axes")]
    (factors,) = scales
    if not isinstance(factors, Const) or tuple(map(scaled, dims, factors.value)) != sizes:
        raise Unsupported("its sizes do not follow from its scales")
    pairs = zip(dims, factors.value, strict=True)
    grown = tuple(dim if factor >= 1 else dim - 1 for dim, factor in pairs)
    return _resized(s, _rounding(s, grown), s[1 + crop], "")


@exports(dyn_resize)
def _dyn_resize(s: ExportSite) -> str:
    """By its sizes; by scales, and what that makes must have the sizes."""
    sizes, place = s.int64(1), 2 + (s.attr("coordinates") == CROP)
    if len(s.args) == place:
        return _resized(s, _rounding(s, None), "", sizes)
    dims = [s.integers(0)] * len(s.type(0).shape)  # an extent that is copied
    for k, axis in enumerate(s.attr("axes")):
        dims[axis] = s.node("Slice", sizes, s.integers(k), s.integers(k + 1))
    resized = _resized(s, _rounding(s, None), s[place], "")
    return s.node("Reshape", resized, s.node("Concat", *dims, axis=0))


def _rounding(s: ExportSite, sizes: Shape | None) -> str:
    """What is rounded up only if it shrinks is rounded one way where it is known to."""
    rounding: str = s.attr("rounding")
    if rounding != SHRUNK_UP:
        return rounding
    dims = [s.type(0).shape[a] for a in s.attr("axes")]
    pairs = list(zip(dims, sizes or (), strict=False))
    if pairs and all(at_least(size, dim) for dim, size in pairs):
        return "floor"
    if pairs and all(at_least(dim, size + 1) for dim, size in pairs):
        return "ceil"
    raise Unsupported("it rounds up where it shrinks, and may do both")


def _resized(s: ExportSite, rounding: str, scales: str, sizes: str) -> str:
    kind = s.attr("coordinates")
    if kind == EARLY:
        raise Unsupported(f"coordinates of {EARLY} are of opset 11 alone")
    attrs: dict[str, Any] = {
        "coordinate_transformation_mode": kind,
        "nearest_mode": rounding,
        "cubic_coeff_a": s.attr("cubic"),
        "extrapolation_value": s.attr("extrapolation"),
        "keep_aspect_ratio_policy": s.attr("policy"),
        **s.attrs("mode", "exclude_outside", "antialias", "axes"),
    }
    roi = s[len(s.args) - 1 - bool(scales)] if kind == CROP else ""
    return s.node("Resize", s[0], roi, scales, sizes, **attrs)


@exports(grid_sample)
def _grid_sample(s: ExportSite) -> str:
    attrs = {"padding_mode": s.attr("padding"), **s.attrs("mode", "align_corners")}
    return laid_out(s, s.node("GridSample", planar(s), s[1], **attrs))


@exports(roi_align)
def _roi_align(s: ExportSite) -> str:
    height, width = s.attr("size")
    kind = "half_pixel" if s.attr("half_pixel") else "output_half_pixel"
    y = s.node(
        "RoiAlign",
        planar(s),
        s[1],
        s.int64(2),
        mode=s.attr("pool"),
        output_height=height,
        output_width=width,
        sampling_ratio=s.attr("ratio"),
        spatial_scale=s.attr("scale"),
        coordinate_transformation_mode=kind,
    )
    return laid_out(s, y)
