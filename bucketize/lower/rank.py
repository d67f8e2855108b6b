"""Windows over depth, height and width become windows over two axes, which have kernels.

A volume is folded: its depth joins the batch, as [N * D, C, H, W]. The taps of a convolution along
the depth become channels; a pool is one over height and width and then one over the depth, exact as
both greatest elements and means of rectangles are those of their rows. Elementwise ops between them
stay folded, so that they join the kernels as those of images do. Transposes around what is folded
are those between the layouts, which move nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bucketize.ir import STRUCTURAL, Atom, Binding, Builder, Const, Function, all_bindings, rewrite
from bucketize.lower.layout import to_nchw, to_nhwc
from bucketize.lower.polyphase import sliced
from bucketize.ops import (
    avg_pool2d,
    avg_pool3d,
    concat,
    conv2d,
    conv3d,
    max_pool2d,
    max_pool3d,
    pad,
    reshape,
    strided_slice,
    transpose,
)
from bucketize.types import Dim, Shape, product

RANK = 5
LAST = (0, 2, 3, 4, 1)  # [N, D, H, W, C] of [N, C, D, H, W]
FIRST = (0, 4, 1, 2, 3)  # and back
MOVING = (transpose, reshape, strided_slice)
ALONG_DEPTH = {"strides": (1, 1), "dilations": (1, 1), "pads": (0, 0, 0, 0)}
"""Attributes of a window of one element, in its plane."""
PLANES = {max_pool3d: max_pool2d, avg_pool3d: avg_pool2d}


def fold_volumes(fn: Function) -> Function:
    """`fn` with windows over three axes as windows over two.

    What has extents that only a run can tell stays, and a convolution by weights whose depth is a
    symbol.
    """
    has = any(b.op is conv3d or b.op in PLANES for b in all_bindings(fn))
    return rewrite(fn, _Volumes().rule) if has else fn


@dataclass
class _Volumes:
    """The folded form of the volumes of a function while it is rebuilt."""

    folded: dict[Atom, Atom] = field(default_factory=dict)
    lying: set[Atom] = field(default_factory=set)
    """What is moved of volumes that lie with the channels last."""

    def rule(self, out: Builder, b: Binding, args: tuple[Atom, ...]) -> Atom | None:
        """What a binding becomes, if it works on volumes."""
        if b.op in STRUCTURAL or not b.is_followed:
            return None
        if b.op in MOVING and len(b.out.type.shape) >= RANK:
            return self._moved(out, args[0], b)
        if b.op in PLANES:
            return self._made(out, _pool(out, self._last(out, args[0]), b), b)
        if b.op is conv3d and isinstance(args[1].type.shape[2], int):
            return self._made(out, _conv(out, self._last(out, args[0]), args[1], b), b)
        if b.op.scalar is not None and self._joins(args, b):
            return self._made(out, out.emit(b.op, *map(self._beside, args), **b.attrs), b)
        return None

    def _moved(self, out: Builder, x: Atom, b: Binding) -> Atom | None:
        """What has a volume with the channels last, on the way from that or back to it."""
        if b.op is transpose and b.attrs["axes"] == LAST and x in self.folded:
            moved = self._last(out, x)
        elif x in self.lying:
            moved = out.emit(b.op, x, **b.attrs)
        else:
            return None
        if b.op is transpose and b.attrs["axes"] == FIRST:
            self.folded[moved] = _folded(out, x)
        else:
            self.lying.add(moved)
        return moved

    def _made(self, out: Builder, image: Atom, b: Binding) -> Atom:
        """The volume that is folded as `image`."""
        volume = out.emit(transpose, _unfolded(out, image, b.out.type.shape), axes=FIRST)
        self.folded[volume] = image
        return volume

    def _last(self, out: Builder, volume: Atom) -> Atom:
        """A volume as [N, D, H, W, C]."""
        if volume in self.folded:
            return _unfolded(out, self.folded[volume], volume.type.shape)
        return out.emit(transpose, volume, axes=LAST)

    def _joins(self, args: tuple[Atom, ...], b: Binding) -> bool:
        """Whether an elementwise op reads what is folded, beside its like and constants."""
        shapes = [a.type.shape for a in args if a in self.folded]
        rest = [a for a in args if a not in self.folded]
        return shapes == [b.out.type.shape] * max(len(shapes), 1) and all(map(_is_even, rest))

    def _beside(self, atom: Atom) -> Atom:
        """An argument of an elementwise op as it lies beside what is folded."""
        if atom in self.folded:
            return self.folded[atom]
        if not isinstance(atom, Const) or not atom.value.shape:
            return atom
        channels = atom.value.shape[-4:-3]
        return Const(atom.value.reshape((*channels, 1, 1)))


def _is_even(atom: Atom) -> bool:
    """Whether an argument is a number, or a constant that varies among the channels at most."""
    shape = atom.type.shape
    plain = shape[:-4] in ((), (1,)) and set(shape[-3:]) <= {1}
    return not shape or (isinstance(atom, Const) and plain)


def _folded(out: Builder, last: Atom) -> Atom:
    """An image of NCHW, of [N, D, H, W, C]."""
    batch, depth, *plane = last.type.shape
    return out.emit(
        transpose, out.emit(reshape, last, newshape=(batch * depth, *plane)), axes=to_nchw(4)
    )


def _unfolded(out: Builder, image: Atom, volume: Shape) -> Atom:
    """[N, D, H, W, C] of an image of NCHW that holds a volume [N, C, D, H, W]."""
    last = out.emit(transpose, image, axes=to_nhwc(4))
    return out.emit(reshape, last, newshape=tuple(volume[a] for a in LAST))


def _of(attrs: Any, *axes: int) -> dict[str, Any]:
    """The attributes of a window along some of the three axes."""
    pads = attrs["pads"]
    window = {k: tuple(attrs[k][a] for a in axes) for k in ("strides", "dilations")}
    return window | {"pads": (*(pads[a] for a in axes), *(pads[a + 3] for a in axes))}


def _tall(out: Builder, x: Atom) -> Atom:
    """An image of NCHW whose height is the depth of [N, D, H, W, C], and whose rows are planes."""
    batch, depth, *plane, channels = x.type.shape
    rows = out.emit(reshape, x, newshape=(batch, depth, product(plane), channels))
    return out.emit(transpose, rows, axes=to_nchw(4))


def _level(out: Builder, tall: Atom, volume: Shape) -> Atom:
    """A tall image of NCHW as a volume [N, C, D, H, W] is folded."""
    last = out.emit(transpose, tall, axes=to_nhwc(4))
    return _folded(out, out.emit(reshape, last, newshape=tuple(volume[a] for a in LAST)))


def _deep(attrs: Any) -> dict[str, Any]:
    """The attributes of a window along the depth, of one over tall images."""
    window = _of(attrs, 0)
    before, after = window.pop("pads")
    return {k: (*v, 1) for k, v in window.items()} | {"pads": (before, 0, after, 0)}


# --- convolutions --------------------------------------------------------------------------------


def _conv(out: Builder, x: Atom, weights: Atom, b: Binding) -> Atom:
    """The folded result of a convolution of [N, D, H, W, C] by weights [O, C / groups, ...]."""
    options = {k: b.attrs[k] for k in ("groups", "precision")}
    outputs, inner, depth, *window = weights.type.shape
    plane = _of(b.attrs, 1, 2)
    if (*window, plane) == (1, 1, ALONG_DEPTH):
        weights = out.emit(reshape, weights, newshape=(outputs, inner, depth, 1))
        tall = out.emit(conv2d, _tall(out, x), weights, **_deep(b.attrs), **options)
        return _level(out, tall, b.out.type.shape)
    planes = _folded(out, _taps(out, x, weights, b))
    weights = out.emit(transpose, weights, axes=(0, 2, 1, 3, 4))
    weights = out.emit(reshape, weights, newshape=(outputs, depth * inner, *window))
    return out.emit(conv2d, planes, weights, **plane, **options)


def _taps(out: Builder, x: Atom, weights: Atom, b: Binding) -> Atom:
    """[N, D, H, W, (group, tap, channel)]: what each step along the depth meets."""
    attrs, depth, count = b.attrs, weights.type.shape[2], b.out.type.shape[2]
    (stride, *_), (dilation, *_) = attrs["strides"], attrs["dilations"]
    before, after = attrs["pads"][0], attrs["pads"][3]
    if (before, after) != (0, 0):
        pads = ((0, 0), (before, after), (0, 0), (0, 0), (0, 0))
        x = out.emit(pad, x, pads=pads, value=0.0)
    assert isinstance(depth, int)
    steps = (_planes(out, x, tap * dilation, count, stride) for tap in range(depth))
    groups = attrs["groups"]
    if groups == 1:
        return _joined(out, [*steps])
    channels = x.type.shape[-1]
    apart = [_regrouped(out, s, (groups, channels // groups)) for s in steps]
    return _regrouped(out, _joined(out, apart), (channels * depth,), 2)


def _planes(out: Builder, x: Atom, begin: int, count: Dim, stride: int) -> Atom:
    """Planes of [N, D, H, W, C], `count` of them from `begin` on."""
    if (begin, count, stride) == (0, x.type.shape[1], 1):
        return x
    return sliced(out, x, (begin,), (count,), 1, stride)


def _joined(out: Builder, parts: list[Atom]) -> Atom:
    rank = len(parts[0].type.shape)
    return parts[0] if len(parts) == 1 else out.emit(concat, *parts, axis=rank - 1)


def _regrouped(out: Builder, x: Atom, channels: Shape, last: int = 1) -> Atom:
    """`x` with its `last` axes as those of `channels`."""
    return out.emit(reshape, x, newshape=(*x.type.shape[:-last], *channels))


# --- pools ---------------------------------------------------------------------------------------


def _pool(out: Builder, x: Atom, b: Binding) -> Atom:
    """The folded result of a pool of [N, D, H, W, C]: over the planes, then over the depth."""
    op, attrs, shape = PLANES[b.op], b.attrs, b.out.type.shape
    kernel = attrs["kernel"]
    flags = {k: v for k, v in attrs.items() if k in ("ceil_mode", "count_include_pad")}
    image = out.emit(op, _folded(out, x), kernel=kernel[1:], **_of(attrs, 1, 2), **flags)
    batch, channels, _, *plane = shape
    planes = _unfolded(out, image, (batch, channels, x.type.shape[1], *plane))
    tall = out.emit(op, _tall(out, planes), kernel=(kernel[0], 1), **_deep(attrs), **flags)
    return _level(out, tall, shape)
