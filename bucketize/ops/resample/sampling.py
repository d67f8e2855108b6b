"""Images looked at between their pixels: where a grid says, or in the boxes of regions."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from bucketize.errors import TypeRelError
from bucketize.op import FREE, UNSAFE, Array, Padding, op
from bucketize.ops.resample.interpolate import REACH, cubic_weight
from bucketize.ops.rules import check_word, same
from bucketize.ops.window.image import arrange, from_nchw, planes, to_nchw
from bucketize.types import Shape, meet, rely_on_least
from bucketize.types.number import kind_of

__all__ = ["grid_sample", "roi_align"]

DType = np.dtype[Any]
MODES = ("linear", "nearest", "cubic")
PADDINGS = ("zeros", "border", "reflection")
POOLS = ("avg", "max")
CUBIC = -0.75  # the slope of the cubic at 1
FAR = float(1 << 40)  # no pixel lies there
SAMPLES = 4096
"""Along an axis of a cell, at most, where boxes tell: such a cell is greater than any image."""


def _floats(x: DType, *others: DType, **_: Any) -> DType:
    if any(kind_of(d) != "f" for d in others[:1]):
        raise TypeRelError(f"places are floats, got {others[0]}")
    return x


# --- by a grid -----------------------------------------------------------------------------------


def _grid_shape(x: Shape, grid: Shape, *, mode: str, padding: str, layout: str, **_: Any) -> Shape:
    check_word("mode", mode, MODES)
    check_word("padding", padding, PADDINGS)
    planar = planes(layout)[0] == 1
    if len(x) < 3 or len(grid) != len(x):
        raise TypeRelError(f"images and a grid of one rank, 3 at least: got {len(x)}, {len(grid)}")
    meet(x[0], grid[0])
    meet(grid[-1], len(x) - 2)
    for dim in x[2:] if planar else x[1:-1]:
        if dim == 0:
            raise TypeRelError("an image without pixels")
        rely_on_least(dim, 1)
    return (*x[:2], *grid[1:-1]) if planar else (x[0], *grid[1:-1], x[-1])


def _grid_padding(arg: int, at: int, x: Shape, grid: Shape, *, layout: str, **_: Any) -> Padding:
    if at == 0:
        return FREE if same(x[0], grid[0]) else UNSAFE
    if arg == 0:
        return FREE if at == (1 if layout == "NCHW" else len(x) - 1) else UNSAFE
    return FREE if at < len(grid) - 1 else UNSAFE


@op(
    shape=_grid_shape,
    dtype=_floats,
    padding=_grid_padding,
    example="float32[N, C, H, W], float32[N, M, 3, 2] in [-1.5, 1.5); "
    "float32[N, C, H, W], float32[N, 2, M, 2] in [-2, 2) "
    "{mode='cubic', padding='border', align_corners=True}; "
    "float32[N, C, H, W, 3], float32[N, 2, M, 3, 3] in [-2, 2) {padding='reflection'}; "
    "float32[N, C, H, W], float32[N, 2, 2, 2] in [-2, 2) {mode='nearest', padding='reflection'}; "
    "float32[N, H, W, C], float32[N, M, 3, 2] in [-2, 2) {padding='border', layout='NHWC'}",
)
def grid_sample(
    x: Array,
    grid: Array,
    *,
    mode: str = "linear",
    padding: str = "zeros",
    align_corners: bool = False,
    layout: str = "NCHW",
) -> Array:
    """The elements of images at the places that `grid` names, from -1 to 1 (ONNX GridSample).

    A place is a row (x, y), the last axis of the image first. By `padding` what lies outside is 0,
    the nearest pixel, or the image mirrored.
    """
    _grid_shape(x.shape, grid.shape, mode=mode, padding=padding, layout=layout)
    images = np.moveaxis(x, 1, -1) if layout == "NCHW" else x
    along = [
        _axis_taps(grid[..., -1 - k], size, mode, padding, align_corners)
        for k, size in enumerate(images.shape[1:-1])
    ]
    batch = np.arange(x.shape[0]).reshape(-1, *(1,) * (grid.ndim - 2))
    total = np.zeros((*grid.shape[:-1], images.shape[-1]), np.result_type(x.dtype, np.float32))
    for taps in itertools.product(*along):
        weight = np.prod(np.broadcast_arrays(*(w for _, w in taps)), axis=0)
        total += images[(batch, *(at for at, _ in taps))] * weight[..., None]
    return (np.moveaxis(total, -1, 1) if layout == "NCHW" else total).astype(x.dtype)


def _axis_taps(
    places: Array, size: int, mode: str, padding: str, align_corners: bool
) -> list[tuple[Array, Array]]:
    """Along an axis, the neighbours of each place: indices, and weights."""
    n = places.astype(np.float32)
    last = np.float32(size - 1)
    at = (n + 1) / 2 * last if align_corners else ((n + 1) * np.float32(size) - 1) / 2
    ends = (np.float32(0), last) if align_corners else (np.float32(-0.5), last + np.float32(0.5))
    at = np.rint(at) if mode == "nearest" else at
    if (
        padding == "border" and mode != "cubic"
    ):  # there each neighbour is at the border, as in torch
        at = np.where((at < ends[0]) | (at > ends[1]), np.clip(at, 0, last), at)
    elif padding == "reflection":
        at = _mirrored(at, *ends)
    below = np.floor(at)
    if mode == "nearest":
        steps = [(0, np.ones_like(at))]
    else:
        reach, rest = REACH[mode], at - below
        offsets = range(1 - reach, 1 + reach)
        steps = [(k, _weight(mode, np.float32(k) - rest)) for k in offsets]
    return [_inside(below + k, weight, size, padding, ends) for k, weight in steps]


def _weight(mode: str, distance: Array) -> Array:
    return 1 - np.abs(distance) if mode == "linear" else cubic_weight(distance, CUBIC)


def _inside(
    at: Array, weight: Array, size: int, padding: str, ends: tuple[Any, Any]
) -> tuple[Array, Array]:
    """Indices that are in the image; what has none weighs nothing."""
    if padding == "reflection":
        at = np.trunc(_mirrored(at, *ends))
    index = np.nan_to_num(at, nan=-1, posinf=FAR, neginf=-FAR).clip(-FAR, FAR).astype(np.int64)
    if padding == "zeros":
        weight = np.where((index < 0) | (index >= size), 0, weight)
    return np.clip(index, 0, size - 1), weight


def _mirrored(at: Array, low: Any, high: Any) -> Array:
    """Places between the ends, those outside reflected as often as it takes."""
    span = high - low
    if span == 0:
        return np.full_like(at, low)
    beyond = np.where(at < low, low - at, at - high)
    times = np.trunc(beyond / span)
    rest = beyond - times * span
    up = (at < low) == (times % 2 == 0)
    return np.where((at < low) | (at > high), np.where(up, low + rest, high - rest), at)


# --- by boxes ------------------------------------------------------------------------------------


def _roi_shape(
    x: Shape,
    rois: Shape,
    batch: Shape,
    *,
    size: tuple[int, int],
    ratio: int,
    pool: str,
    layout: str,
    **_: Any,
) -> Shape:
    check_word("pool", pool, POOLS)
    channels = planes(layout)[0]
    if (len(x), len(rois), len(batch)) != (4, 2, 1):
        ranks = ", ".join(str(len(s)) for s in (x, rois, batch))
        raise TypeRelError(f"images, boxes and a vector of indices, of ranks 4, 2, 1: got {ranks}")
    if min(*size, ratio + 1) < 1:
        raise TypeRelError(f"a grid of {size} with {ratio} samples: from 1 up, and from 0 up")
    meet(rois[1], 4)
    meet(rois[0], batch[0])
    return arrange(layout, rois[0], x[channels], *size)


def _roi_dtype(x: DType, rois: DType, batch: DType, **_: Any) -> DType:
    if batch.kind not in "iu":
        raise TypeRelError(f"indices are integers, got {batch}")
    return _floats(x, rois)


def _roi_padding(arg: int, at: int, *_: Shape, layout: str, **__: Any) -> Padding:
    return FREE if arg == 0 and at in (0, planes(layout)[0]) else UNSAFE


@op(
    shape=_roi_shape,
    dtype=_roi_dtype,
    padding=_roi_padding,
    example="float32[N, C, H+1, W+2], float32[M, 4] in [-1, 9), int64[M] in [0, N) "
    "{size=(2, 3), ratio=2}; float32[N, C, H+1, W+2], float32[M, 4] in [-1, 9), int64[M] in [0, N) "
    "{size=(1, 2), scale=0.5, pool='max', half_pixel=False}; "
    "float32[N, H+1, W+2, C], float32[M, 4] in [-1, 9), int64[M] in [0, N) "
    "{size=(2, 1), half_pixel=False, layout='NHWC'}; "
    "float32[N, H+1, W+2, C], float32[M, 4] in [-1, 9), int64[M] in [0, N) "
    "{size=(2, 3), ratio=2, pool='max', layout='NHWC'}",
)
def roi_align(  # noqa: PLR0913 ONNX has as many
    x: Array,
    rois: Array,
    batch: Array,
    *,
    size: tuple[int, int],
    ratio: int = 0,
    scale: float = 1.0,
    pool: str = "avg",
    half_pixel: bool = True,
    layout: str = "NCHW",
) -> Array:
    """For each box a grid of `size`, of the mean of samples in each cell (ONNX RoiAlign).

    Boxes are (x, y, x, y), times `scale`, in image `batch[i]`. A cell has `ratio` samples along
    either axis; as many as it has pixels if that is 0, none if that is no number. By `pool` "max"
    it has the greatest product of a pixel and its weight. A sample outside of the image is 0.
    """
    x = to_nchw(x, layout)
    out = np.zeros((len(rois), x.shape[1], *size), np.result_type(x.dtype, np.float32))
    for cells, box, image in zip(out, rois.astype(np.float32), batch.tolist(), strict=True):
        if not 0 <= image < len(x):
            raise TypeRelError(f"a box of image {image}, of {len(x)}")
        corners = box.reshape(2, 2)[:, ::-1] * np.float32(scale) - np.float32(half_pixel) / 2
        extents = corners[1] - corners[0]
        if not half_pixel:
            extents = np.maximum(extents, np.float32(1))
        ends = zip(corners[0], extents, size, x.shape[2:], strict=True)
        rows, columns = (_samples(*each, ratio) for each in ends)
        cells[:] = _pooled(x[image], rows, columns, pool)
    return from_nchw(out.astype(x.dtype), layout)


@dataclass(frozen=True)
class _Samples:
    """Along an axis, `count` a cell, of which those of cell i that matter begin at `first[i]`."""

    count: int
    first: Array
    neighbours: list[tuple[Array, Array]]
    """The pixels on either side of each sample, and their weights."""


def _samples(low: Any, extent: Any, cells: int, size: int, ratio: int) -> _Samples:
    """The first and the last of a cell, which tell what lies outside, and those in the image."""
    step = extent / np.float32(cells)
    count = ratio or int(np.fmin(np.fmax(np.ceil(step), 0), SAMPLES))
    inside = (np.arange(count, dtype=np.float32) + np.float32(0.5)) * step / np.float32(count or 1)
    places = low + np.arange(cells, dtype=np.float32)[:, None] * step + inside
    seen = (places >= -1) & (places <= size)
    kept = seen.copy()
    kept[:, :1] = kept[:, -1:] = True
    places = np.clip(np.where(seen, places, 0)[kept], 0, size - 1)
    below = np.floor(places).astype(np.int64)
    rest, within = places - below, seen[kept]
    neighbours = [(below, (1 - rest) * within), (np.minimum(below + 1, size - 1), rest * within)]
    return _Samples(count, np.cumsum([0, *kept.sum(1)[:-1]]), neighbours)


def _pooled(image: Array, rows: _Samples, columns: _Samples, pool: str) -> Array:
    """The cells of a box."""
    count = rows.count * columns.count
    if not count * image.size:
        return np.zeros(())
    corners = [
        image[:, y[:, None], x] * (v[:, None] * w)
        for (y, v), (x, w) in itertools.product(rows.neighbours, columns.neighbours)
    ]
    fold = np.maximum if pool == "max" else np.add
    total = fold.reduceat(fold.reduce(corners), rows.first, axis=1)
    total = fold.reduceat(total, columns.first, axis=2)
    return np.asarray(total if pool == "max" else total / np.float32(count))
