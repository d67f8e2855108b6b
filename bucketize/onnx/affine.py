"""The converter of AffineGrid: where each place of an image is read, as products by coordinate."""

from __future__ import annotations

import numpy as np

from bucketize.ir import Atom, Const
from bucketize.onnx.node import Node, Unsupported, cast, converts
from bucketize.ops import elementwise as e
from bucketize.ops import gather, unsqueeze
from bucketize.ops.dyn import dyn_arange


@converts("AffineGrid", since=20)
def _affine_grid(n: Node) -> Atom:
    """`theta` times (x, y, 1), or (x, y, z, 1): coordinates in [-1, 1], of all of the image."""
    theta, size = n[0], n.vector(1)
    count = size.type.shape[0]
    if count not in (4, 5):
        raise Unsupported(f"size is {size.type}, expected 4 or 5 extents")
    axes, corners = int(count) - 2, bool(n.attr("align_corners", 0))
    total = _column(n, axes, axes)
    for k in range(axes):  # x goes along the last axis
        extent = n.emit(gather, size, Const(np.array(axes + 1 - k)), axis=0)
        along = _coordinates(n, extent, corners)
        along = n.emit(unsqueeze, along, axes=(*range(1, k + 2),))
        total = n.emit(e.add, n.emit(e.mul, _column(n, k, axes), along), total)
    return cast(n, total, theta.type.dtype.name)


def _column(n: Node, k: int, axes: int) -> Atom:
    """One column of each matrix: [N, 1, 1, 2] of images."""
    column = n.emit(gather, n[0], Const(np.array(k)), axis=2)
    return n.emit(unsqueeze, column, axes=tuple(range(1, axes + 1)))


def _coordinates(n: Node, extent: Atom, corners: bool) -> Atom:
    """From -1 to 1, of the middles of the elements or, with `corners`, of the first and last."""
    zero, one = (Const(np.array(k)) for k in (0, 1))
    at = cast(n, n.emit_dynamic(dyn_arange, zero, extent, one), n[0].type.dtype.name)
    whole = cast(n, extent, n[0].type.dtype.name)
    apart = n.emit(e.sub, whole, n.like(n[0], 1)) if corners else whole
    step = n.emit(e.div, n.like(n[0], 2), apart)
    if not corners:
        at = n.emit(e.add, at, n.like(n[0], 0.5))
    return n.emit(e.sub, n.emit(e.mul, at, step), n.like(n[0], 1))
