"""Windows laid out in columns, added up to the image that they are of."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bucketize.errors import TypeRelError
from bucketize.op import FREE, UNSAFE, Array, Attrs, op
from bucketize.ops.dyn.operand import counted, dynamic
from bucketize.ops.window.rules import along_axes, taps, windows
from bucketize.types import Dim, Shape, meet, product

__all__ = ["col2im", "dyn_col2im"]


def _shape(x: Shape, *, image: Shape, kernel: Shape, **window: Any) -> Shape:
    if len(x) != 3:
        raise TypeRelError(f"col2im takes columns of rank 3, got rank {len(x)}")
    if len(image) != len(kernel):
        raise TypeRelError(f"a window over {len(kernel)} axes of an image of {len(image)}")
    meet(x[2], product(blocks(image, kernel, **window)))
    elements = product(kernel)
    meet(x[1] % elements, 0)
    return (x[0], x[1] // elements, *image)


def blocks(image: Shape, kernel: Shape, **window: Any) -> tuple[Dim, ...]:
    """How many windows there are along each axis; none, where one more would be the first."""
    return along_axes(partial(windows, fewest=0), image, kernel, **window)


@op(
    shape=_shape,
    padding=lambda _, at, *__, **___: FREE if at == 0 else UNSAFE,
    example="float32[N, 6*C, (H+1)*(W+1)] {image=(H+2, W+1), kernel=(2, 3), strides=(1, 1), "
    "pads=(0, 1, 0, 1), dilations=(1, 1)}; "
    "float32[N, 3, W+1] {image=(2*W+5,), kernel=(3,), strides=(2,), pads=(0, 0), dilations=(2,)}; "
    "int64[N, 4*C, D*H] {image=(D+1, 2, H), kernel=(2, 2, 1), strides=(1, 3, 1), "
    "pads=(0, 0, 0, 0, 0, 0), dilations=(1, 1, 1)}; "
    "float32[N, 3*C, 0] {image=(2,), kernel=(3,), strides=(1,), pads=(0, 0), dilations=(1,)}",
)
def col2im(x: Array, *, image: Any, kernel: Any, strides: Any, pads: Any, dilations: Any) -> Array:
    """The sums of the windows `x`, [N, C * window, windows], where they lie in images (ONNX)."""
    axes = len(image)
    out: Any = blocks(image, kernel, strides=strides, pads=pads, dilations=dilations)
    batch, channels = x.shape[0], x.shape[1] // int(np.prod(kernel))
    columns = x.reshape(batch, channels, *kernel, *out)
    sizes = zip(image, pads[:axes], pads[axes:], strict=True)
    whole = np.zeros((batch, channels, *(size + lo + hi for size, lo, hi in sizes)), x.dtype)
    for place, met in taps(whole, kernel, strides, dilations, out):
        at: Any = (slice(None), slice(None), *place)
        met[...] += columns[at]
    cut: Any = [slice(lo, lo + size) for lo, size in zip(pads[:axes], image, strict=True)]
    return whole[(..., *cut)]


@dynamic(
    col2im,
    reads=(1, 2),
    example="float32[N, 6*C, (H+1)*(W+1)], int64[2] = (H+2, W+1), int64[2] = (2, 3) "
    "{strides=(1, 1), pads=(0, 1, 0, 1), dilations=(1, 1)}",
)
def dyn_col2im(_x: Shape, image: Dim | Shape, kernel: Dim | Shape, **window: Any) -> Attrs:
    """`col2im` of images and windows whose extents tensors hold."""
    extents = {"image": counted("image_shape", image), "kernel": counted("block_shape", kernel)}
    return {**extents, **window}
