"""Where the elements of a resized axis come from: coordinates, and weights of their neighbours.

All of it is float32 arithmetic, step by step as written, so that a kernel finds the same neighbours
as numpy does.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bucketize.op import Array

Floats = NDArray[np.float32]
Indices = NDArray[np.int64]

SHRUNK_UP = "ceil_if_shrunk"
"""The rounding that is up where an axis shrinks, else down: the first opsets left it open."""
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", SHRUNK_UP)
COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
*_, EARLY, CROP = COORDINATES  # EARLY: of opset 11 alone
REACH = {"linear": 1, "cubic": 2}
"""Elements on either side of a place that its value is made of."""


def coordinates(
    kind: str, size: int, count: int, scale: Any, width: Any, roi: Array | None = None
) -> Floats:
    """The places in an axis of `size` that the `count` elements of the resized one come from.

    `width` is the extent before it was rounded down to `count`; `roi` the part that is cut out.
    """
    one, half = np.float32(1), np.float32(0.5)
    y: Floats = np.arange(count, dtype=np.float32)
    last = np.float32(size - 1)
    if kind in ("asymmetric", EARLY):
        y = (y + half if kind == EARLY else y) / scale
    elif kind == "align_corners":
        y = y * last / (width - one) if width != 1 else y * 0
    elif kind == CROP:
        assert roi is not None
        low, high = roi.astype(np.float32)
        if width == 1:
            y = y * 0 + half * (low + high) * last
        else:
            y = low * last + y * (high - low) * last / (width - one)
    elif kind == "pytorch_half_pixel" and count == 1:
        y = y * 0
    else:
        symmetric = kind == "half_pixel_symmetric"
        offset = np.float32(size) * half * (one - np.float32(count) / width) if symmetric else 0
        y = offset + (y + half) / scale - half
    return y.astype(np.float32)


def rounded(places: Floats, rounding: str, scale: Any) -> Indices:
    """The index nearest to each place, by one of `ROUNDINGS`."""
    below = np.floor(places)
    if rounding == SHRUNK_UP:
        rounding = "ceil" if scale < 1 else "floor"
    beyond = {
        "round_prefer_floor": places - below > 0.5,
        "round_prefer_ceil": places - below >= 0.5,
        "floor": places < below,
        "ceil": places > below,
    }[rounding]
    return (below + beyond).astype(np.int64)


def cubic_weight(distance: Floats, a: float) -> Floats:
    """The weight of an element at a distance below 2; `a` is the cubic's slope at 1."""
    x, a = np.abs(distance), np.float32(a)  # type: ignore[assignment]
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0)).astype(np.float32)


def taps_of(mode: str, scale: Any, *, antialias: bool) -> int:
    """How many neighbours a value is made of: those in reach, further away if it is shrunk."""
    narrow = min(float(scale), 1.0) if antialias else 1.0
    return 2 * math.ceil(REACH[mode] / narrow)


def neighbours(
    mode: str,
    places: Floats,
    size: int,
    scale: Any,
    cubic: float,
    *,
    exclude_outside: bool,
    antialias: bool,
) -> tuple[Indices, Floats]:
    """For each place its neighbours, those outside at the edge, and their weights."""
    count = taps_of(mode, scale, antialias=antialias)
    below = np.floor(places)
    rest = (places - below)[:, None]
    steps = np.arange(1 - count // 2, count // 2 + 1)
    distances = steps.astype(np.float32) - rest
    if antialias:
        distances = distances * np.float32(min(float(scale), 1.0))
    if mode == "linear":
        weights = np.maximum(1 - np.abs(distances), 0)
    else:
        weights = cubic_weight(distances, cubic)
    index = below.astype(np.int64)[:, None] + steps
    if exclude_outside:
        weights = np.where((index < 0) | (index >= size), 0, weights)
    if exclude_outside or antialias:
        weights = weights / weights.sum(-1, keepdims=True)
    return np.clip(index, 0, size - 1), weights.astype(np.float32)
