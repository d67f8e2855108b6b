"""Aliasing: which tensors of a segment lie inside of others, so that nothing need be copied.

Of a concat the operands are written into the result, its kernel copies the others; one of operands
that lie side by side already is a view of them, and a slice one of what it cuts. Parts of the first
axis that has more than one element are whole pieces of memory, which any kernel writes and reads.
Parts of the last axis are rows that lie apart: what a kernel can do with these its template says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bucketize.ir import Atom, Binding, Const, Function
from bucketize.op import Movement
from bucketize.ops.rules import slice_ends
from bucketize.ops.shape import concat, strided_slice
from bucketize.types import ANY, Dim, Shape, product


@dataclass(frozen=True)
class Able:
    """What a kernel reads and writes, and which of it may lie in rows that are apart."""

    args: tuple[Atom, ...]
    pitched: frozenset[int]
    """The places of such arguments; -1 stands for the result."""

    @property
    def writes(self) -> bool:
        """Whether its result may."""
        return -1 in self.pitched

    def reads(self, atom: Atom) -> bool:
        """Whether an argument may, wherever it is one."""
        return all(k in self.pitched for k, a in enumerate(self.args) if a is atom)


@dataclass(frozen=True)
class Location:
    """Where a tensor lies."""

    root: Atom
    """The tensor in whose memory it is."""
    offset: Dim = 0
    """Elements before it there."""
    pitch: Dim | None = None
    """Elements from a row to the next one, where they do not follow each other."""


@dataclass(frozen=True)
class Part:
    """What a tensor is of another one: along an axis, from an index on."""

    whole: Atom
    axis: int
    begin: Dim


class Places:
    """The places of the tensors of a straight-line function."""

    def __init__(self, fn: Function, able: Mapping[Atom, Able]) -> None:
        """`able` has what kernels make: of a binding of several results the first."""
        self.free: set[Atom] = set()
        """What is there without a kernel that makes it."""
        self._able = able
        self._makers: dict[Atom, Binding] = {o: b for b in fn.body for o in b.outs}
        self._views = {b.out: b.args[0] for b in fn.body if b.op.movement is Movement.VIEW}
        self._parts: dict[Atom, Part] = {}
        """What lies inside of what."""
        self._readers: dict[Atom, list[Binding | None]] = {r: [None] for r in fn.results}
        for b in fn.body:
            for atom in dict.fromkeys(b.args):
                self._readers.setdefault(atom, []).append(b)
        moves = [b for b in reversed(fn.body) if b.op in (concat, strided_slice) and b.out in able]
        for b in moves:
            if b.op is concat:
                self._join(b)
            else:
                self._cut(b)
        for b in moves:  # an operand is where it saves the whole copy, before a part of one
            if b.op is concat and b.out not in self.free:
                self._join(b, partly=True)

    def of(self, atom: Atom) -> Location:
        """Where a tensor lies; by itself, if nothing says otherwise."""
        base = self._base(atom)
        return self._place(self._parts[base]) if base in self._parts else Location(base)

    def is_part(self, atom: Atom, whole: Atom) -> bool:
        """Whether a tensor is written where it lies in another one."""
        part = self._parts.get(self._base(atom))
        return part is not None and part.whole is whole

    def _base(self, atom: Atom) -> Atom:
        """What an atom is a view of."""
        while atom in self._views:
            atom = self._views[atom]
        return atom

    def _place(self, part: Part) -> Location:
        there, shape = self.of(part.whole), part.whole.type.shape
        row = shape[-1] if there.pitch is None else there.pitch
        if part.axis < len(shape) - 1:
            step = product((*shape[part.axis + 1 : -1], row))
            return Location(there.root, there.offset + part.begin * step, there.pitch)
        pitch = there.pitch if _is_one(shape[:-1]) else row
        return Location(there.root, there.offset + part.begin, pitch)

    def _join(self, b: Binding, *, partly: bool = False) -> None:
        """Put the operands of a concat where its result is, all of them or those that can."""
        axis = b.attrs["axis"]
        if not _is_even(b.out.type.shape, axis):
            return
        row = None if b.out in self._parts else self._side_by_side(b)  # it has but one place
        if row is not None and self._may_be(b.out, row):
            self._parts[b.out] = row
            self.free.add(b.out)
            return
        parts: dict[Atom, Part] = {}
        begin: Dim = 0
        for a in b.args:
            part = Part(b.out, axis, begin)
            if self._may_be_written(b, a, part):
                parts[self._base(a)] = part
            begin += a.type.shape[axis]
        whole = len(parts) == len(b.args)
        if whole or partly:
            self._parts |= parts
            self.free |= {b.out} if whole else set()

    def _side_by_side(self, b: Binding) -> Part | None:
        """What the operands of a concat are parts of, one behind the other."""
        first = self._parts.get(b.args[0])
        if first is None or first.axis != b.attrs["axis"]:
            return None
        begin = first.begin
        for a in b.args:
            if self._parts.get(a) != Part(first.whole, first.axis, begin):
                return None
            begin += a.type.shape[first.axis]
        return first

    def _may_be_written(self, b: Binding, a: Atom, part: Part) -> bool:
        """Whether an operand of a concat can be made as this part, and has no other place to be."""
        base = self._base(a)
        maker = self._makers.get(base)
        able = None if maker is None else self._able.get(maker.outs[0])
        if able is None or base in self._parts or list(map(self._base, b.args)).count(base) > 1:
            return False
        if self._place(part).pitch is None:
            return not self._is_result(base)
        return base is a and able.writes and self._may_be_apart(a, b)

    def _may_be(self, atom: Atom, part: Part) -> bool:
        """Whether all that read a tensor read it as this part."""
        if self._place(part).pitch is None:
            return not self._is_result(atom)
        return self._may_be_apart(atom)

    def _is_result(self, atom: Atom) -> bool:
        """Whether a tensor, or a view of it, is a result of the function."""
        return any(
            r is None or (r.op.movement is Movement.VIEW and self._is_result(r.out))
            for r in self._readers.get(atom, [])
        )

    def _may_be_apart(self, atom: Atom, but: Binding | None = None) -> bool:
        """Whether all that read a tensor, but for one, read rows that are apart."""
        return all(
            r is not None and (r is but or self._reads_apart(r, atom))
            for r in self._readers.get(atom, [])
        )

    def _reads_apart(self, reader: Binding, atom: Atom) -> bool:
        if reader.outs[0] in self.free:
            return self._may_be_apart(reader.out)
        able = self._able.get(reader.outs[0])
        return able is not None and able.reads(atom)

    def _cut(self, b: Binding) -> None:
        """Leave what a slice cuts out where it is."""
        (x,), attrs = b.args, b.attrs
        if len(attrs["axes"]) > 1 or tuple(attrs["strides"]) != (1,) or b.out in self._parts:
            return
        (axis,), (begin,), (end,) = attrs["axes"], attrs["begin"], attrs["end"]
        shape = x.type.shape
        first, _ = slice_ends(shape[axis], begin, end, 1)
        if first is ANY or isinstance(self._base(x), Const) or not _is_even(shape, axis):
            return
        part = Part(x, axis, first)
        if self._may_be(b.out, part):
            self._parts[b.out] = part
            self.free.add(b.out)


def _is_even(shape: Shape, axis: int) -> bool:
    """Whether what is cut along an axis lies in whole pieces of memory, or in rows."""
    return axis == len(shape) - 1 or _is_one(shape[:axis])


def _is_one(shape: Shape) -> bool:
    """Whether an array of this shape has one element, at all sizes."""
    return all(d == 1 for d in shape)
