"""Transposed convolutions become convolutions, whose kernels there are.

Of a stride s the results at every s-th place, from each of s phases on, are a convolution of their
own, by every s-th of the weights backwards. The phases are channels of one convolution, which lie
apart in the end. Elementwise ops by numbers of the channels are done before that, so that they join
the convolution's kernel. All is laid out channels last: the transposes around it move nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bucketize.ir import STRUCTURAL, Atom, Binding, Builder, Const, Function, all_bindings, rewrite
from bucketize.ops import (
    broadcast_to,
    conv2d,
    conv3d,
    conv_transpose,
    pad,
    reshape,
    strided_slice,
    transpose,
)
from bucketize.types import Dim, Shape, maximum


def split_phases(fn: Function) -> Function:
    """`fn` with transposed convolutions as convolutions."""
    has = any(b.op is conv_transpose for b in all_bindings(fn))
    return rewrite(fn, _Phases().rule) if has else fn


class _Axis(NamedTuple):
    """A transposed convolution along one axis, of which a block has a place of each phase."""

    stride: int
    dilation: int
    """Of the convolution."""
    taps: Dim
    """Of each phase."""
    before: Dim
    after: Dim
    """Pads of the convolution."""
    first: Dim
    """Places before the first one of the result."""
    extent: Dim
    """Of the result."""


def _axis(
    kernel: Dim, stride: int, dilation: int, lo: Dim, hi: Dim, more: Dim, extent: Dim
) -> _Axis:
    reach = (kernel - 1) * dilation + 1
    taps = kernel if stride == 1 else (reach + stride - 1) // stride
    step = dilation if stride == 1 else 1
    before = (taps - 1) * step
    whole = 0  # blocks that the result lacks
    if isinstance(lo, int) and isinstance(before, int):
        whole = min(lo // stride, before)
    after = maximum((reach - hi + more - 1) // stride, 0)
    return _Axis(stride, step, taps, before - whole, after, lo - whole * stride, extent)


def _axes(b: Binding, kernel: Shape) -> list[_Axis]:
    attrs, count = b.attrs, len(kernel)
    steps = attrs["strides"], attrs["dilations"], attrs["pads"][:count], attrs["pads"][count:]
    told = zip(kernel, *steps, attrs["output_padding"], b.out.type.shape[2:], strict=True)
    return [_axis(*axis) for axis in told]


@dataclass
class _Spread:
    """A result whose phases lie apart, and the image of whose channels they are."""

    image: Atom
    axes: list[_Axis]
    groups: int

    @property
    def phases(self) -> int:
        return math.prod(a.stride for a in self.axes)


@dataclass
class _Phases:
    """The results of a function while it is rebuilt."""

    spread: dict[Atom, _Spread] = field(default_factory=dict)

    def rule(self, out: Builder, b: Binding, args: tuple[Atom, ...]) -> Atom | None:
        """What a binding becomes, if it is a transposed convolution or reads one's result."""
        if b.op in STRUCTURAL or not b.is_followed:
            return None
        if b.op is conv_transpose:
            x, w = args
            axes, groups = _axes(b, w.type.shape[2:]), b.attrs["groups"]
            return self._made(out, _Spread(_conv(out, x, w, axes, b), axes, groups), b)
        if b.op.scalar is None:
            return None
        read = [self.spread[a] for a in args if a in self.spread]
        if len(read) != 1 or not all(a in self.spread or _is_even(a, b) for a in args):
            return None
        (found,) = read
        beside = [found.image if a in self.spread else _tiled(out, a, found) for a in args]
        image = out.emit(b.op, *beside, **b.attrs)
        return self._made(out, _Spread(image, found.axes, found.groups), b)

    def _made(self, out: Builder, spread: _Spread, b: Binding) -> Atom:
        made = _apart(out, spread, b.out.type.shape)
        self.spread[made] = spread
        return made


def _is_even(atom: Atom, b: Binding) -> bool:
    """Whether an argument is a constant that varies among the channels at most."""
    rank = len(b.out.type.shape)
    shape = (1,) * (rank - len(atom.type.shape)) + atom.type.shape
    return isinstance(atom, Const) and {shape[0], *shape[2:]} == {1} and len(shape) == rank


def _tiled(out: Builder, atom: Atom, spread: _Spread) -> Atom:
    """A constant of the channels of the result as one of the channels of the image."""
    shape = atom.type.shape
    ones = (1,) * len(spread.axes)
    if all(d == 1 for d in shape):
        return atom
    channels, groups = shape[-len(ones) - 1], spread.groups
    each = (groups, spread.phases, channels // groups)
    apart = out.emit(reshape, atom, newshape=(groups, 1, channels // groups))
    all_of = out.emit(broadcast_to, apart, shape=each)
    return out.emit(reshape, all_of, newshape=(channels * spread.phases, *ones))


def _conv(out: Builder, x: Atom, w: Atom, axes: list[_Axis], b: Binding) -> Atom:
    """The image whose channels are (group, phase of each axis, channel)."""
    pads = (*(a.before for a in axes), *(a.after for a in axes))
    steps: dict[str, Any] = {"pads": pads, "dilations": tuple(a.dilation for a in axes)}
    steps |= {k: b.attrs[k] for k in ("groups", "precision")}
    op = conv2d if len(axes) == 2 else conv3d
    return out.emit(op, x, _weights(out, w, axes, b), strides=(1,) * len(axes), **steps)


def _weights(out: Builder, w: Atom, axes: list[_Axis], b: Binding) -> Atom:
    """Those of the convolution."""
    groups, (channels, each, *_) = b.attrs["groups"], w.type.shape
    apart: list[Dim] = []
    for at, (axis, dilation) in enumerate(zip(axes, b.attrs["dilations"], strict=True), 2):
        if axis.stride > 1:
            w = _filled(out, w, at, dilation, axis.taps * axis.stride)
        apart += [axis.taps, axis.stride]
    w = out.emit(reshape, w, newshape=(groups, channels // groups, each, *apart))
    taps, phases = range(3, len(w.type.shape), 2), range(4, len(w.type.shape), 2)
    back = tuple(w.type.shape[a] for a in taps)
    w = _backwards(out, w, tuple(taps)) if any(t != 1 for t in back) else w
    w = out.emit(transpose, w, axes=(0, *phases, 2, 1, *taps))
    outputs = groups * math.prod(a.stride for a in axes) * each
    return out.emit(reshape, w, newshape=(outputs, channels // groups, *back))


def _filled(out: Builder, w: Atom, axis: int, dilation: int, extent: Dim) -> Atom:
    """Weights with zeros where a dilated window has none, and behind it up to an extent."""
    shape = w.type.shape
    if dilation > 1:
        w = out.emit(reshape, w, newshape=(*shape[: axis + 1], 1, *shape[axis + 1 :]))
        w = _longer(out, w, axis + 1, dilation)
        spread = (*shape[:axis], shape[axis] * dilation, *shape[axis + 1 :])
        w = out.emit(reshape, w, newshape=spread)
        last = (shape[axis] - 1) * dilation + 1
        w = out.emit(strided_slice, w, begin=(0,), end=(last,), strides=(1,), axes=(axis,))
    return _longer(out, w, axis, extent)


def _longer(out: Builder, w: Atom, axis: int, extent: Dim) -> Atom:
    more = extent - w.type.shape[axis]
    pads = tuple((0, more if a == axis else 0) for a in range(len(w.type.shape)))
    return w if more == 0 else out.emit(pad, w, pads=pads, value=0.0)


def _backwards(out: Builder, w: Atom, axes: tuple[int, ...]) -> Atom:
    last = tuple(w.type.shape[a] - 1 for a in axes)
    ends = tuple(-extent - 1 for extent in (w.type.shape[a] for a in axes))
    return out.emit(strided_slice, w, begin=last, end=ends, strides=(-1,) * len(axes), axes=axes)


def _apart(out: Builder, spread: _Spread, result: Shape) -> Atom:
    """The result, [N, C, ...], of an image with the phases among its channels."""
    axes, places = spread.axes, [*range(2, len(result))]
    batch, channels, *_ = result
    y: Atom = out.emit(transpose, spread.image, axes=(0, *places, 1))
    if spread.phases > 1:
        blocks = y.type.shape[1:-1]
        strides = tuple(a.stride for a in axes)
        groups = spread.groups
        each = (batch, *blocks, groups, *strides, channels // groups)
        y = out.emit(reshape, y, newshape=each)
        n = len(axes)
        order = [a for i in range(1, n + 1) for a in (i, n + 1 + i)]
        y = out.emit(transpose, y, axes=(0, *order, n + 1, 2 * n + 2))
        whole = tuple(b * s for b, s in zip(blocks, strides, strict=True))
        y = out.emit(reshape, y, newshape=(batch, *whole, channels))
    y = _cut(out, y, axes)
    return out.emit(transpose, y, axes=(0, len(result) - 1, *range(1, len(result) - 1)))


def _cut(out: Builder, y: Atom, axes: list[_Axis]) -> Atom:
    """The places of [N, ..., C] that are the result's."""
    shape = (y.type.shape[0], *(a.extent for a in axes), y.type.shape[-1])
    if y.type.shape == shape:
        return y
    begin = tuple(a.first for a in axes)
    end = tuple(maximum(a.first + a.extent, 0) for a in axes)  # which they are
    places = tuple(range(1, len(axes) + 1))
    ones = (1,) * len(axes)
    y = out.emit(strided_slice, y, begin=begin, end=end, strides=ones, axes=places)
    return y if y.type.shape == shape else out.emit(reshape, y, newshape=shape)
