"""Views move behind elementwise ops, so that these join the kernel of the product before the view.

Exporters lay the rows of a product out flat and give them back their axes before the activation or
the residual is computed: `op(reshape(x))` becomes `reshape(op(x))`. A convolution or a pool along
one axis is one along two and a `squeeze`: moved behind, also behind pads and slices, it meets the
next one's `unsqueeze`. No view is a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bucketize.ir import STRUCTURAL, Atom, Binding, Builder, Const, Function, rewrite
from bucketize.op import Attrs, Movement
from bucketize.ops import (
    avg_pool2d,
    conv2d,
    matmul,
    max_pool2d,
    pad,
    reshape,
    squeeze,
    strided_slice,
    transpose,
)
from bucketize.types import ANY, Shape

IMAGES = (conv2d, max_pool2d, avg_pool2d)
TURNED = (0, 3, 1, 2)
"""The axes of images whose channels lay last: of the phases of a transposed convolution."""


def sink_views(fn: Function) -> Function:
    """`fn` with views of products moved behind the elementwise ops that read them."""
    views = _Views()
    new = rewrite(fn, views.rule)
    return new if views.moved else fn


class _View(NamedTuple):
    of: Atom
    gone: tuple[int, ...] | None
    """The axes of one element that it leaves out, if it does no more."""


@dataclass
class _Views:
    """What is known of a function while it is rebuilt."""

    made: set[Atom] = field(default_factory=set)
    """Products and convolutions, and what elementwise ops make of them."""
    images: set[Atom] = field(default_factory=set)
    """Values with a layout: what joins them has to be constant, else it is laid out anew."""
    views: dict[Atom, _View] = field(default_factory=dict)
    moved: bool = False

    def rule(self, out: Builder, b: Binding, args: tuple[Atom, ...]) -> tuple[Atom, ...] | None:
        """A binding rebuilt, with its view behind it if it reads one."""
        if b.op in STRUCTURAL or len(b.outs) > 1 or not b.is_ranked:
            return None
        shape = b.out.type.shape
        back = self.views.get(args[0]) if b.op.movement is Movement.VIEW else None
        if back is not None and ANY not in shape and back.of.type.shape == shape:
            self.moved = True
            return (back.of,)
        cut = self.views.get(args[0]) if b.op in (pad, strided_slice) and ANY not in shape else None
        if cut is not None and cut.gone is not None:
            y = out.emit(b.op, cut.of, **_with_axes(b, cut.gone))
            return (self._behind(out, y, shape, cut),)
        view = self._read(args, shape) if b.op.scalar is not None and ANY not in shape else None
        if view is None:
            y = out.emit(b.op, *args, **b.attrs)
            self._note(b, args, y)
            return (y,)
        y = out.emit(b.op, *(self._beside(out, a, shape, view) for a in args), **b.attrs)
        return (self._behind(out, y, shape, view),)

    def _behind(self, out: Builder, y: Atom, shape: Shape, view: _View) -> Atom:
        """A view moved behind what made `y` of that which it was of."""
        self._join(y, [view.of])
        again = out.emit(reshape, y, newshape=shape)
        self.views[again], self.moved = _View(y, view.gone), True
        return again

    def _note(self, b: Binding, args: Sequence[Atom], y: Atom) -> None:
        turned = b.op is transpose and b.attrs["axes"] == TURNED
        if b.op is matmul:
            self.made.add(y)
        elif b.op in IMAGES or turned:
            self.made.add(y)
            self.images.add(y)
        elif b.op.scalar is not None:
            self._join(y, args)
        elif b.op in (reshape, squeeze) and args[0] in self.made:
            self.views[y] = _View(args[0], b.attrs["axes"] if b.op is squeeze else None)

    def _join(self, y: Atom, args: Sequence[Atom]) -> None:
        for family in (self.made, self.images):
            if not family.isdisjoint(args):
                family.add(y)

    def _read(self, args: Sequence[Atom], shape: Shape) -> _View | None:
        """A view of this shape that an op reads, if all arguments can lie as what it is of."""
        views = (self.views[a] for a in args if a in self.views and a.type.shape == shape)
        view = next(views, None)
        return view if view and all(self._lies(a, shape, view) for a in args) else None

    def _is_alike(self, atom: Atom, view: _View) -> bool:
        other = self.views.get(atom)
        return other is not None and other.of.type.shape == view.of.type.shape

    def _lies(self, atom: Atom, shape: Shape, view: _View) -> bool:
        """Whether an argument has the whole shape, or varies along the last axis at most."""
        if self._is_alike(atom, view):
            return True
        if view.of in self.images and not isinstance(atom, Const):
            return False
        if atom.type.shape == shape or view.gone is not None:
            return ANY not in atom.type.shape
        *outer, last = atom.type.shape or (1,)
        flat = view.of.type.shape
        alone = all(d == 1 for d in outer)
        return alone and (last == 1 or (flat[-1:] == shape[-1:] and last == shape[-1]))

    def _beside(self, out: Builder, atom: Atom, shape: Shape, view: _View) -> Atom:
        """An argument as it lies beside what the view is of."""
        if self._is_alike(atom, view):
            return self.views[atom].of
        if atom.type.shape == shape:
            return _reshaped(out, atom, view.of.type.shape)
        if view.gone is None:
            return _reshaped(out, atom, atom.type.shape[-1:])
        full = [1] * (len(shape) - len(atom.type.shape)) + [*atom.type.shape]
        for axis in sorted(view.gone):
            full.insert(axis, 1)
        return _reshaped(out, atom, tuple(full))


def _with_axes(b: Binding, gone: Sequence[int]) -> Attrs:
    """The attributes of a pad or a slice of what has the axes `gone`, too, which it leaves."""
    rank = len(b.out.type.shape) + len(gone)
    kept = [a for a in range(rank) if a not in gone]
    if b.op is strided_slice:
        return {**b.attrs, "axes": tuple(kept[a] for a in b.attrs["axes"])}
    pads = dict(zip(kept, b.attrs["pads"], strict=True))
    return {**b.attrs, "pads": tuple(pads.get(a, (0, 0)) for a in range(rank))}


def _reshaped(out: Builder, atom: Atom, shape: Shape) -> Atom:
    if atom.type.shape == shape:
        return atom
    if isinstance(atom, Const):
        return Const(atom.value.reshape(tuple(map(int, shape))))  # type: ignore[arg-type]
    return out.emit(reshape, atom, newshape=shape)
