"""Transposed convolutions become convolutions, whose kernels there are.

Of a stride s the results at every s-th place, from each of s phases on, are a convolution of their
own, by every s-th of the weights backwards. Phases that have as many weights are channels of one
convolution, others have one each; they lie apart in the end. Elementwise ops by numbers of the
channels are done before that, so that they join the convolutions' kernels. All is laid out channels
last: the transposes around it move nothing.

Nothing is multiplied that the op does not multiply: zero times what is not finite would show. So
the weights of a phase are not filled up to those of another, and weights that may not be finite do
not meet pads: they are multiplied with the image, and the columns that this makes are added up. So
are those of many phases that differ.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from bucketize.ir import STRUCTURAL, Atom, Binding, Builder, Const, Function, all_bindings, rewrite
from bucketize.op import Array
from bucketize.ops import (
    broadcast_to,
    col2im,
    concat,
    conv2d,
    conv3d,
    conv_transpose,
    full,
    gather,
    matmul,
    pad,
    reshape,
    strided_slice,
    transpose,
)
from bucketize.types import Dim, Shape, extremes, maximum, product
from bucketize.types.number import SHORT

MOST = 16  # convolutions in place of one: each is a kernel, and a concat takes no more


def split_phases(fn: Function) -> Function:
    """`fn` with transposed convolutions as convolutions."""
    has = any(b.op is conv_transpose for b in all_bindings(fn))
    return rewrite(fn, _Phases().rule) if has else fn


# --- along one axis ------------------------------------------------------------------------------


class _Axis(NamedTuple):
    """A transposed convolution along one axis, whose result is blocks of a place of each phase."""

    weights: tuple[range, ...]
    """The places of the weights of each phase; none, where the result is 0."""
    backs: tuple[int, ...]
    """How many blocks before its own the last element lies that a place of each phase meets."""
    dilation: int
    """The dilation of the convolutions."""
    whole: int
    """Blocks that the result lacks."""
    behind: Dim
    """Blocks behind the image."""
    blocks: Dim
    first: Dim
    """Places before the first one of the result."""

    @property
    def stride(self) -> int:
        return len(self.weights)

    @property
    def is_regular(self) -> bool:
        """Whether the phases are alike but for the weights themselves."""
        return len({(len(w), back) for w, back in zip(self.weights, self.backs, strict=True)}) == 1

    def taps(self, phases: range) -> Array:
        """The weights, backwards, that each place of a window has, of each of some phases."""
        return np.array([self.weights[p][::-1] for p in phases], np.int64).T

    def pads(self, phase: int) -> tuple[Dim, Dim]:
        """Pads of the convolution that makes a phase."""
        back = self.backs[phase]
        reach = (len(self.weights[phase]) - 1) * self.dilation
        return reach + back - self.whole, self.behind - back


def _axis(size: Dim, kernel: int, stride: int, dilation: int, lo: Dim, hi: Dim, more: Dim) -> _Axis:
    weights = tuple(_weights_of(phase, kernel, stride, dilation) for phase in range(stride))
    backs = tuple((w[0] * dilation - p) // stride if w else 0 for p, w in enumerate(weights))
    far = dilation // math.gcd(stride, dilation)
    befores = [(len(w) - 1) * far + back for w, back in zip(weights, backs, strict=True) if w]
    whole = min(lo // stride, *befores) if isinstance(lo, int) else 0
    least = 1 + whole - int(extremes(size)[0])  # a window fits, though the image may have nothing
    reach = (kernel - 1) * dilation + 1
    behind = maximum((reach - hi + more - 1) // stride, max(*backs, least))
    return _Axis(weights, backs, far, whole, behind, size + behind - whole, lo - whole * stride)


def _weights_of(phase: int, kernel: int, stride: int, dilation: int) -> range:
    """The weights by which elements of an image are spread to the places of a phase."""
    step = stride // math.gcd(stride, dilation)
    able = (t for t in range(min(step, kernel)) if (t * dilation - phase) % stride == 0)
    return range(next(able, kernel), kernel, step)


def _axes(b: Binding, image: Shape, kernel: Shape) -> list[_Axis]:
    attrs, count = b.attrs, len(kernel)
    steps = attrs["strides"], attrs["dilations"], attrs["pads"][:count], attrs["pads"][count:]
    axes = zip(image, kernel, *steps, attrs["output_padding"], strict=True)
    return [_axis(*axis) for axis in axes]


def _split(axes: list[_Axis]) -> list[tuple[range, ...]]:
    """Phases of each axis that a convolution computes: all, or, if they differ, one each."""
    every = [range(a.stride) for a in axes]
    if all(a.is_regular for a in axes):
        return [tuple(every)]
    return [tuple(range(p, p + 1) for p in one) for one in itertools.product(*every)]


# --- the function --------------------------------------------------------------------------------


@dataclass
class _Spread:
    """A result whose phases lie apart, and the images whose channels they are."""

    images: list[Atom]
    """One, whose channels are (group, phase of each axis, channel), or one of each phase."""
    axes: list[_Axis]
    groups: int


@dataclass
class _Phases:
    """The results of a function while it is rebuilt."""

    spread: dict[Atom, _Spread] = field(default_factory=dict)

    def rule(self, out: Builder, b: Binding, args: tuple[Atom, ...]) -> Atom | None:
        """What a binding becomes, if it is a transposed convolution or reads one's result."""
        if b.op in STRUCTURAL or not b.is_followed:
            return None
        if b.op is conv_transpose:
            return self._divided(out, b, args)
        return self._joined(out, b, args) if b.op.scalar is not None else None

    def _divided(self, out: Builder, b: Binding, args: tuple[Atom, ...]) -> Atom:
        """A transposed convolution, by phases if these are few."""
        x, w = args
        if not _is_finite(w):
            return _columns(out, x, w, b)
        axes = _axes(b, x.type.shape[2:], w.type.shape[2:])
        split = _split(axes)
        if len(split) > MOST:
            return _columns(out, x, w, b)
        images = [_conv(out, x, w, b, axes, phases) for phases in split]
        return self._made(out, _Spread(images, axes, b.attrs["groups"]), b)

    def _joined(self, out: Builder, b: Binding, args: tuple[Atom, ...]) -> Atom | None:
        """An elementwise op of one's result, of the images that it lies in."""
        read = [self.spread[a] for a in args if a in self.spread]
        if len(read) != 1 or not all(a in self.spread or _is_even(a, b) for a in args):
            return None
        if any(a in self.spread and a.type.shape != b.out.type.shape for a in args):
            return None  # the constant makes it larger
        (spread,) = read
        beside = [a if a in self.spread else _tiled(out, a, spread) for a in args]
        images: list[Atom] = [
            out.emit(b.op, *(image if a in self.spread else a for a in beside), **b.attrs)
            for image in spread.images
        ]
        return self._made(out, _Spread(images, spread.axes, spread.groups), b)

    def _made(self, out: Builder, spread: _Spread, b: Binding) -> Atom:
        result = _apart(out, spread, b.out.type.shape)
        self.spread[result] = spread
        return result


def _is_even(atom: Atom, b: Binding) -> bool:
    """Whether an argument is a constant that varies among the channels at most."""
    rank = len(b.out.type.shape)
    shape = (1,) * (rank - len(atom.type.shape)) + atom.type.shape
    return isinstance(atom, Const) and {shape[0], *shape[2:]} == {1} and len(shape) == rank


def _tiled(out: Builder, atom: Atom, spread: _Spread) -> Atom:
    """A constant of the channels of the result as one of the channels of an image."""
    shape = atom.type.shape
    if all(d == 1 for d in shape) or len(spread.images) > 1:
        return atom
    ones = (1,) * len(spread.axes)
    channels, groups = shape[-len(ones) - 1], spread.groups
    phases = math.prod(a.stride for a in spread.axes)
    apart = out.emit(reshape, atom, newshape=(groups, 1, channels // groups))
    all_of = out.emit(broadcast_to, apart, shape=(groups, phases, channels // groups))
    return out.emit(reshape, all_of, newshape=(channels * phases, *ones))


# --- by convolutions -----------------------------------------------------------------------------


def _conv(
    out: Builder, x: Atom, w: Atom, b: Binding, axes: list[_Axis], phases: tuple[range, ...]
) -> Atom:
    """The image whose channels are (group, phase of each axis, channel) of some phases."""
    taps = [a.taps(p) for a, p in zip(axes, phases, strict=True)]
    if not all(map(len, taps)):
        shape = (x.type.shape[0], b.out.type.shape[1], *(a.blocks for a in axes))
        return out.emit(full, shape=shape, value=0.0, dtype=b.out.type.dtype.name)
    sides = zip(*(a.pads(p[0]) for a, p in zip(axes, phases, strict=True)), strict=True)
    steps: dict[str, Any] = {"pads": tuple(itertools.chain(*sides))}
    steps |= {"strides": (1,) * len(axes), "dilations": tuple(a.dilation for a in axes)}
    steps |= {k: b.attrs[k] for k in ("groups", "precision")}
    op = conv2d if len(axes) == 2 else conv3d
    return out.emit(op, x, _weights(out, w, taps, b.attrs["groups"]), **steps)


def _weights(out: Builder, w: Atom, taps: list[Array], groups: int) -> Atom:
    """Weights of a convolution."""
    for at, places in enumerate(taps):
        w = out.emit(gather, w, Const(places), axis=2 + 2 * at)
    channels, each, *apart = w.type.shape
    w = out.emit(reshape, w, newshape=(groups, channels // groups, each, *apart))
    window, phases = range(3, len(w.type.shape), 2), range(4, len(w.type.shape), 2)
    w = out.emit(transpose, w, axes=(0, *phases, 2, 1, *window))
    outputs = groups * product(apart[1::2]) * each
    return out.emit(reshape, w, newshape=(outputs, channels // groups, *apart[::2]))


def _apart(out: Builder, spread: _Spread, result: Shape) -> Atom:
    """The result, [N, C, ...], of images with the phases among their channels."""
    axes, n, (batch, channels, *extents) = spread.axes, len(spread.axes), result
    images = [out.emit(transpose, i, axes=(0, *range(2, n + 2), 1)) for i in spread.images]
    y: Atom = out.emit(concat, *images, axis=n + 1) if len(images) > 1 else images[0]
    strides = tuple(a.stride for a in axes)
    if any(s > 1 for s in strides):
        groups = spread.groups if len(images) == 1 else 1
        blocks = y.type.shape[1:-1]
        each = (batch, *blocks, groups, *strides, channels // groups)
        y = out.emit(reshape, y, newshape=each)
        order = [a for i in range(1, n + 1) for a in (i, n + 1 + i)]
        y = out.emit(transpose, y, axes=(0, *order, n + 1, 2 * n + 2))
        whole = tuple(d * s for d, s in zip(blocks, strides, strict=True))
        y = out.emit(reshape, y, newshape=(batch, *whole, channels))
    if y.type.shape[1:-1] != tuple(extents):
        y = sliced(out, y, tuple(a.first for a in axes), tuple(extents), 1)
    return out.emit(transpose, y, axes=(0, n + 1, *range(1, n + 1)))


def sliced(out: Builder, y: Atom, begin: Shape, extents: Shape, axis: int, stride: int = 1) -> Atom:
    """Elements along axes from one on, told as they are wanted."""
    ends = [b + (e - 1) * stride + 1 for b, e in zip(begin, extents, strict=True)]
    end = tuple(maximum(e, 0) for e in ends)  # which they are, where any window fits
    axes = tuple(range(axis, axis + len(extents)))
    shape = (*y.type.shape[:axis], *extents, *y.type.shape[axis + len(extents) :])
    strides = (stride,) * len(extents)
    y = out.emit(strided_slice, y, begin=begin, end=end, strides=strides, axes=axes)
    return y if y.type.shape == shape else out.emit(reshape, y, newshape=shape)


# --- by columns ----------------------------------------------------------------------------------


def _is_finite(w: Atom) -> bool:
    """Whether weights are known, and each is a number."""
    return isinstance(w, Const) and bool(
        np.isfinite(w.value.astype(SHORT.get(w.value.dtype, w.value.dtype))).all()
    )


def _columns(out: Builder, x: Atom, w: Atom, b: Binding) -> Atom:
    """What all weights make of each element, added up where it lies in the result."""
    attrs, result, (batch, channels, *sizes) = b.attrs, b.out.type.shape, x.type.shape
    groups, (_, each, *kernel) = attrs["groups"], w.type.shape
    n, inner, count = len(kernel), channels // groups, product(sizes)
    x = out.emit(reshape, x, newshape=(batch, groups, inner, count))
    w = out.emit(reshape, w, newshape=(groups, inner, each * product(kernel)))
    columns = out.emit(matmul, out.emit(transpose, w, axes=(0, 2, 1)), x)
    columns = out.emit(reshape, columns, newshape=(batch, result[1] * product(kernel), count))
    steps = {k: attrs[k] for k in ("strides", "dilations")}
    reach = zip(sizes, kernel, *steps.values(), strict=True)
    whole = tuple((size - 1) * s + (k - 1) * d + 1 for size, k, s, d in reach)
    y = out.emit(col2im, columns, image=whole, kernel=tuple(kernel), pads=(0,) * 2 * n, **steps)
    if any(more != 0 for more in attrs["output_padding"]):
        behind = ((0, 0), (0, 0), *((0, more) for more in attrs["output_padding"]))
        y = out.emit(pad, y, pads=behind, value=0.0)
    return sliced(out, y, attrs["pads"][:n], result[2:], 2) if y.type.shape != result else y
