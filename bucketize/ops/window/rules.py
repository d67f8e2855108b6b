"""What operators share that slide a window over the last axes of images, behind batch and channels.

Pads are told as ONNX does: those before each axis, then those after each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from bucketize.errors import TypeRelError
from bucketize.op import Array
from bucketize.ops.rules import ENDLESS
from bucketize.types import Dim, Shape, Symbolic, meet, minimum, product, rely_on_least

PRECISIONS = ("default", "exact")

Numbers = tuple[int, ...]


# --- shapes --------------------------------------------------------------------------------------


def check_rank(name: str, x: Shape, axes: int) -> None:
    """An image is a batch of channels of so many axes."""
    if len(x) != axes + 2:
        raise TypeRelError(f"{name} takes images of rank {axes + 2}, got rank {len(x)}")


def check_window(kernel: Sequence[Dim], strides: Any, dilations: Any, pads: Any, axes: int) -> None:
    """A window has an extent, and a step of each kind, for each axis, and two pads."""
    check_numbers("kernel", kernel, axes, 1)
    check_numbers("strides", strides, axes, 1)
    check_numbers("dilations", dilations, axes, 1)
    check_numbers("pads", pads, 2 * axes, 0)


def check_numbers(name: str, numbers: Any, count: int, least: int) -> None:
    """Check `count` numbers, none less than `least`: of those that are dims it is relied on."""
    listed = numbers if isinstance(numbers, tuple | list) else ()
    if len(listed) != count or any(_is_below(n, least) for n in listed):
        raise TypeRelError(f"{name} must be {count} numbers from {least} up, got {numbers!r}")
    if any(isinstance(n, int) and n > ENDLESS for n in listed):
        raise TypeRelError(f"{name}, {numbers!r}: no axis is that long")
    for number in listed:
        rely_on_least(number, least)


def _is_below(number: Any, least: int) -> bool:
    """Whether it is certain that this is no number from `least` up."""
    if isinstance(number, Symbolic):
        return False
    return not isinstance(number, int | np.integer) or int(number) < least


def conv_work(out: Shape, _x: Shape, w: Shape, **_: Any) -> Dim:
    """The products of a convolution, done directly; those with pads count."""
    return product(out) * product(w[1:])


def check_channels(channels: Dim, w: Shape, groups: int) -> None:
    """Channels are those that the weights read; groups share the outputs, at least one each."""
    check_groups(w[0], groups, "output channels")
    meet(channels, w[1] * groups)


def check_groups(shared: Dim, groups: int, what: str) -> None:
    """At least one of what the groups share, and of each as many."""
    if _is_below(groups, 1) or _is_below(shared, 1) or not _divides(groups, shared):
        raise TypeRelError(f"{shared} {what} in {groups} groups")
    rely_on_least(shared, 1)


def _divides(groups: int, shared: Dim) -> bool:
    """Whether the groups may have as many each, which is relied on."""
    if isinstance(shared, int):
        return shared % groups == 0
    meet(shared % groups, 0)
    return True


def windows(
    size: Dim, kernel: Dim, stride: int, dilation: int, lo: Dim, hi: Dim, *, fewest: int = 1
) -> Dim:
    """The number of windows that fit: `fewest` of them, or more."""
    room, least = size + lo + hi - (kernel - 1) * dilation - 1, (fewest - 1) * stride
    if isinstance(room, int) and room < least:
        raise TypeRelError(f"a window of {kernel} (dilated by {dilation}) over {size}+{lo}+{hi}")
    rely_on_least(room, least)
    return room // stride + 1


def pool_windows(
    size: Dim, kernel: int, stride: int, dilation: int, lo: Dim, hi: Dim, *, ceil_mode: bool
) -> Dim:
    """The number of windows of a pool: by `ceil_mode` the last one may hang over."""
    if not ceil_mode:
        return windows(size, kernel, stride, dilation, lo, hi)
    begun = (size + lo - 1) // stride + 1  # windows must begin before the padding at the end
    return minimum(windows(size, kernel, stride, dilation, lo, hi + (stride - 1)), begun)


def along_axes(
    count: Callable[..., Dim],
    image: Shape,
    kernel: Shape,
    *,
    strides: Any,
    pads: Any,
    dilations: Any,
) -> tuple[Dim, ...]:
    """The `count` of each axis, told its extent, the window's, stride, dilation, and pads."""
    check_window(kernel, strides, dilations, pads, len(image))
    sides = pads[: len(image)], pads[len(image) :]
    axes = zip(image, kernel, strides, dilations, *sides, strict=True)
    return tuple(count(*axis) for axis in axes)


def conv_extents(image: Shape, kernel: Shape, **window: Any) -> tuple[Dim, ...]:
    """The extents that a convolution gives to those of an image."""
    return along_axes(windows, image, kernel, **window)


def pool_extents(image: Shape, *, kernel: Any, ceil_mode: bool, **window: Any) -> tuple[Dim, ...]:
    """The extents that a pool gives to those of an image."""
    return along_axes(partial(pool_windows, ceil_mode=ceil_mode), image, kernel, **window)


# --- meanings ------------------------------------------------------------------------------------


def convolved(x: Array, w: Array, *, strides: Any, pads: Any, dilations: Any, groups: int) -> Array:
    """Images [N, C, ...] convolved with `w` [O, C / groups, ...]."""
    kernel = w.shape[2:]
    steps = {"strides": strides, "pads": pads, "dilations": dilations}
    out: Any = conv_extents(x.shape[2:], kernel, **steps)
    grown_ = grown(x, pads, 0)
    n, c, *sizes = grown_.shape
    o, inner = w.shape[:2]
    images = grown_.reshape(n, groups, c // groups, *sizes)
    weights = w.reshape(groups, o // groups, inner, *kernel)
    total = np.zeros((n, groups, o // groups, math.prod(out)), x.dtype)
    for place, tap in taps(images, kernel, strides, dilations, out):
        at: Any = (..., *place)
        total += weights[at] @ tap.reshape(n, groups, inner, math.prod(out))
    return total.reshape(n, o, *out)


def greatest(
    x: Array, *, kernel: Any, strides: Any, pads: Any, dilations: Any, ceil_mode: bool
) -> Array:
    """The greatest element of each window."""
    steps = {"strides": strides, "pads": pads, "dilations": dilations}
    out: Any = pool_extents(x.shape[2:], kernel=kernel, ceil_mode=ceil_mode, **steps)
    least = -math.inf if x.dtype.kind == "f" else int(np.iinfo(x.dtype).min)
    covered = grown(x, _enough(pads, strides), least)
    best = np.full((*x.shape[:2], *out), least, x.dtype)
    for _, tap in taps(covered, kernel, strides, dilations, out):
        np.maximum(best, tap, out=best)
    return best


def mean(
    x: Array,
    *,
    kernel: Any,
    strides: Any,
    pads: Any,
    dilations: Any,
    ceil_mode: bool,
    count_include_pad: bool,
) -> Array:
    """The mean of each window, over what of it lies in the image, or in its pads too."""
    steps = {"strides": strides, "pads": pads, "dilations": dilations}
    out: Any = pool_extents(x.shape[2:], kernel=kernel, ceil_mode=ceil_mode, **steps)
    counted = np.ones((1, 1, *x.shape[2:]), x.dtype)
    if count_include_pad:
        x, counted = grown(x, pads, 0), grown(counted, pads, 1)
        pads = (0,) * len(pads)
    x, counted = (grown(a, _enough(pads, strides), 0) for a in (x, counted))
    sums, counts = (
        reduce(np.add, (tap for _, tap in taps(a, kernel, strides, dilations, out)))
        for a in (x, counted)
    )
    return np.asarray(sums / counts)


def taps(
    x: Array, kernel: Sequence[int], strides: Numbers, dilations: Numbers, out: Numbers
) -> Iterator[tuple[Numbers, Array]]:
    """For each place in the window, the elements (in the last axes) that it meets."""
    for place in np.ndindex(*kernel):
        begin = [at * step for at, step in zip(place, dilations, strict=True)]
        axes = zip(begin, strides, out, strict=True)
        met: Any = [slice(b, b + s * n, s) for b, s, n in axes]
        yield place, x[(..., *met)]


def grown(x: Array, pads: Sequence[int], value: float) -> Array:
    """`x` with pads of `value` around the last axes."""
    axes = len(pads) // 2
    sides = [(0, 0)] * (x.ndim - axes) + list(zip(pads[:axes], pads[axes:], strict=True))
    return np.pad(x, sides, constant_values=value)


def _enough(pads: Sequence[int], strides: Numbers) -> Numbers:
    """Pads that also hold the part of a last window which hangs over (`ceil_mode`)."""
    axes = len(strides)
    hanging = (hi + stride - 1 for hi, stride in zip(pads[axes:], strides, strict=True))
    return (*pads[:axes], *hanging)
