"""Converters of what looks at images between their pixels."""

from __future__ import annotations

import numpy as np

from bucketize.ir import Atom, Const
from bucketize.onnx.convert.shape import iota, reshaped
from bucketize.onnx.node import Node, Unsupported, Untold, cast, converts
from bucketize.ops.elementwise import arithmetic as e
from bucketize.ops.index import gather
from bucketize.ops.resample.sampling import MODES, PADDINGS, POOLS, grid_sample, roi_align
from bucketize.ops.shape import unsqueeze
from bucketize.types import product

MODES_16 = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}
CENTRES = ("half_pixel", "output_half_pixel")

converts("GridSample", 16)(lambda n: _sampled(n, MODES_16[n.choice("mode", *MODES_16)]))
converts("GridSample", 20)(lambda n: _sampled(n, n.choice("mode", *MODES)))
converts("RoiAlign", 10)(lambda n: _aligned(n, CENTRES[1]))
converts("RoiAlign", 16)(
    lambda n: _aligned(n, n.choice("coordinate_transformation_mode", *CENTRES))
)


def _sampled(n: Node, mode: str) -> Atom:
    padding = n.choice("padding_mode", *PADDINGS)
    aligned = bool(n.attr("align_corners", 0))
    return n.emit(grid_sample, n[0], n[1], mode=mode, padding=padding, align_corners=aligned)


def _aligned(n: Node, centres: str) -> Atom:
    return n.emit(
        roi_align,
        *n.operands,
        size=(n.attr("output_height", 1), n.attr("output_width", 1)),
        ratio=n.attr("sampling_ratio", 0),
        scale=n.attr("spatial_scale", 1.0),
        pool=n.choice("mode", *POOLS),
        half_pixel=centres == "half_pixel",
    )


@converts("AffineGrid", since=20)
def _affine_grid(n: Node) -> Atom:
    """The places of pixels, from -1 to 1, times a matrix for each image."""
    sizes = n.vector(1, None if n.rank is None else n.rank)
    rank = product(sizes.type.shape) - 2
    if not isinstance(rank, int):
        raise Untold(f"how many numbers size has is not known of {sizes.type}")
    if rank not in (2, 3):
        raise Unsupported(f"size is {sizes.type}, expected 4 or 5 numbers")
    if len(n[0].type.shape) != 3:
        raise Unsupported(f"theta is {n[0].type}, expected rank 3")
    theta = reshaped(n, n[0], (n[0].type.shape[0], rank, rank + 1))
    aligned = bool(n.attr("align_corners", 0))
    columns = [_column(n, theta, k, rank) for k in range(rank + 1)]
    total = columns[rank]
    for k in range(rank):  # the last axis of the image first
        axis = rank - 1 - k
        count = n.emit(gather, sizes, Const(np.array(2 + axis)), axis=0)
        places = _places(n, theta, count, aligned)
        places = n.emit(unsqueeze, places, axes=tuple(range(1, k + 2)))
        total = n.emit(e.add, total, n.emit(e.mul, places, columns[k]))
    return total


def _column(n: Node, theta: Atom, k: int, rank: int) -> Atom:
    """A column of each matrix, as rows of a grid of one place."""
    kept = n.emit(gather, theta, Const(np.array(k)), axis=2)
    return n.emit(unsqueeze, kept, axes=tuple(range(1, rank + 1)))


def _places(n: Node, theta: Atom, count: Atom, aligned: bool) -> Atom:
    """The middles of `count` parts of -1 to 1, or the ends of the parts between."""
    one = Const(np.array(1))
    index = cast(n, iota(n, count), theta.type.dtype.name)
    parts = n.emit(e.maximum_, n.emit(e.sub, count, one), one) if aligned else count
    twice = n.emit(e.mul, index, n.like(theta, 2))
    first = twice if aligned else n.emit(e.add, twice, n.like(theta, 1))
    scaled = n.emit(e.div, first, cast(n, parts, theta.type.dtype.name))
    return n.emit(e.sub, scaled, n.like(theta, 1))
