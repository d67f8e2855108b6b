"""Views move behind elementwise ops, so that these join the kernel of the product before the view.

Exporters lay the rows of a product out flat and give them back their axes before the activation or
the residual is computed: `op(reshape(x))` becomes `reshape(op(x))`. A view is never a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bucketize.ir import STRUCTURAL, Atom, Binding, Builder, Const, Function, rewrite
from bucketize.ops import matmul, reshape
from bucketize.types import ANY, Shape


def sink_views(fn: Function) -> Function:
    """`fn` with views of products moved behind the elementwise ops that read them."""
    views = _Views()
    new = rewrite(fn, views.rule)
    return new if views.moved else fn


@dataclass
class _Views:
    """What is known of a function while it is rebuilt."""

    made: set[Atom] = field(default_factory=set)
    """Products, and what elementwise ops make of them."""
    views: dict[Atom, Atom] = field(default_factory=dict)
    """Views of them, and what each is a view of."""
    moved: bool = False

    def rule(self, out: Builder, b: Binding, args: tuple[Atom, ...]) -> tuple[Atom, ...] | None:
        """A binding rebuilt, with its view behind it if it reads one."""
        if b.op in STRUCTURAL or len(b.outs) > 1:
            return None
        shape = b.out.type.shape
        back = self.views.get(args[0]) if b.op is reshape else None
        if back is not None and back.type.shape == shape:
            self.moved = True
            return (back,)
        below = self._below(args, shape) if b.op.scalar is not None and ANY not in shape else None
        if below is None:
            y = out.emit(b.op, *args, **b.attrs)
            self._note(b, args, y)
            return (y,)
        flat = below.type.shape
        y = out.emit(b.op, *(self._flat(out, a, shape, flat) for a in args), **b.attrs)
        view = out.emit(reshape, y, newshape=shape)
        self.made.add(y)
        self.views[view], self.moved = y, True
        return (view,)

    def _note(self, b: Binding, args: Sequence[Atom], y: Atom) -> None:
        if b.op is matmul or (b.op.scalar is not None and not self.made.isdisjoint(args)):
            self.made.add(y)
        if b.op is reshape and args[0] in self.made:
            self.views[y] = args[0]

    def _below(self, args: Sequence[Atom], shape: Shape) -> Atom | None:
        """What a view of this shape is of, if all arguments can lie as that does."""
        found = (self.views[a] for a in args if a in self.views and a.type.shape == shape)
        below = next(found, None)
        if below is None or not all(_lies(a, shape, below.type.shape) for a in args):
            return None
        return below

    def _flat(self, out: Builder, atom: Atom, shape: Shape, flat: Shape) -> Atom:
        """An argument as it lies beside what the view is of."""
        below = self.views.get(atom)
        if below is not None and below.type.shape == flat:
            return below
        if atom.type.shape == shape:
            return out.emit(reshape, atom, newshape=flat)
        if isinstance(atom, Const):
            return Const(atom.value.reshape(atom.value.shape[-1:]))
        along = atom.type.shape[-1:]
        return atom if atom.type.shape == along else out.emit(reshape, atom, newshape=along)


def _lies(atom: Atom, shape: Shape, flat: Shape) -> bool:
    """Whether an argument has the whole shape, or varies along the last axis at most."""
    if atom.type.shape == shape:
        return True
    *outer, last = atom.type.shape or (1,)
    alone = all(d == 1 for d in outer)
    return alone and (last == 1 or (flat[-1:] == shape[-1:] and last == shape[-1]))
