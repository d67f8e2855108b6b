"""Placement: which tensors of a segment lie inside of others, so that nothing need be copied.

Only rows along the last axis can lie apart. Of a concat the operands are written into the result,
by kernels that can; one of operands that lie side by side already is a view of them, and a slice
one of what it cuts, where their readers can. What a kernel can do its template says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bucketize.ir import Atom, Binding, Const, Function, Var
from bucketize.ops import concat, reshape, squeeze, strided_slice, unsqueeze
from bucketize.types import Dim

VIEWS = (reshape, squeeze, unsqueeze)
"""Ops whose result is their argument's memory: they have no kernel."""


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
class Place:
    """Where a tensor lies."""

    root: Atom
    """Whose memory it is in."""
    offset: Dim = 0
    """Elements before it there."""
    pitch: Dim | None = None
    """Elements from a row to the next one, where they do not follow each other."""


class Places:
    """The places of the tensors of a straight-line function."""

    def __init__(self, fn: Function, able: Mapping[Atom, Able]) -> None:
        """`able` has what kernels make: of a binding of several results the first."""
        self.free: set[Atom] = set()
        """What is there without a kernel that makes it."""
        self._able = able
        self._makers = {o: b for b in fn.body for o in b.outs}
        self._views = {b.out: b.args[0] for b in fn.body if b.op in VIEWS}
        self._within: dict[Atom, tuple[Atom, Dim]] = {}
        """What lies inside of what, behind so many elements of a row."""
        self._readers: dict[Atom, list[Binding | None]] = {r: [None] for r in fn.results}
        for b in fn.body:
            for atom in dict.fromkeys(b.args):
                self._readers.setdefault(atom, []).append(b)
        for b in reversed(fn.body):
            if b.op is concat and b.out in able:
                self._join(b)
            elif b.op is strided_slice and b.out in able:
                self._cut(b)

    def of(self, atom: Atom) -> Place:
        """Where a tensor lies; by itself, if nothing says otherwise."""
        if atom in self._views:
            return self.of(self._views[atom])
        if atom not in self._within:
            return Place(atom)
        whole, before = self._within[atom]
        there = self.of(whole)
        pitch = whole.type.shape[-1] if there.pitch is None else there.pitch
        return Place(there.root, there.offset + before, pitch)

    def _join(self, b: Binding) -> None:
        if b.attrs["axis"] != len(b.out.type.shape) - 1 or b.attrs["axis"] == 0:
            return
        whole = self._side_by_side(b)
        if whole is not None and self._may_be_apart(b.out):
            self._within[b.out] = whole
            self.free.add(b.out)
        elif all(self._may_be_written_into(b, a) for a in b.args):
            before: Dim = 0
            for a in b.args:
                self._within[a] = (b.out, before)
                before += a.type.shape[-1]
            self.free.add(b.out)

    def _side_by_side(self, b: Binding) -> tuple[Atom, Dim] | None:
        """What the operands of a concat lie in, one behind the other, and where they begin."""
        first = self._within.get(b.args[0])
        if first is None:
            return None
        whole, before = first
        for a in b.args:
            if self._within.get(a) != (whole, before):
                return None
            before += a.type.shape[-1]
        return first

    def _may_be_written_into(self, b: Binding, a: Atom) -> bool:
        """Whether an operand of a concat has no other place to be."""
        if not isinstance(a, Var) or a in self._within or b.args.count(a) > 1:
            return False
        maker = self._makers.get(a)
        able = None if maker is None else self._able.get(maker.outs[0])
        return able is not None and able.writes and self._may_be_apart(a, b)

    def _may_be_apart(self, atom: Atom, but: Binding | None = None) -> bool:
        """Whether all that read a tensor, but for one, read rows that are apart."""
        return all(
            r is not None and (r is but or r.outs[0] in self.free or self._reads_apart(r, atom))
            for r in self._readers.get(atom, [])
        )

    def _reads_apart(self, reader: Binding, atom: Atom) -> bool:
        able = self._able.get(reader.outs[0])
        return able is not None and able.reads(atom)

    def _cut(self, b: Binding) -> None:
        (x,), last = b.args, len(b.out.type.shape) - 1
        attrs = b.attrs
        if tuple(attrs["axes"]) != (last,) or tuple(attrs["strides"]) != (1,) or last == 0:
            return
        (begin,) = attrs["begin"]
        known = isinstance(begin, int) and begin >= 0 and not isinstance(x, Const)
        if known and self._may_be_apart(b.out):
            self._within[b.out] = (x, begin)
            self.free.add(b.out)
