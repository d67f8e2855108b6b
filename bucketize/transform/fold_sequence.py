"""Sequences whose elements are known: what takes them apart takes the elements themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from bucketize.ir import Atom, Atoms, Binding, Builder, Const, Function, all_bindings, rewrite
from bucketize.op import MAX_VALUE
from bucketize.ops import concat, squeeze, strided_slice, unsqueeze
from bucketize.ops import sequence as s
from bucketize.ops.dyn.axes import dyn_split
from bucketize.ops.dyn.operand import front_axes
from bucketize.types import ANY


def fold_sequence(fn: Function) -> Function:
    """`fn` where elements of sequences, and what is optional, are read from where they come.

    A split into known parts is as many slices; what nothing reads any more is dead code.
    """
    if not any(b.op.relation for b in all_bindings(fn)):
        return fn
    sequences = _Sequences()
    new = rewrite(fn, sequences.rule)
    return new if sequences.folded else fn


@dataclass
class _Sequences:
    """What is known of a function while it is rebuilt."""

    elements: dict[Atom, list[Atom]] = field(default_factory=dict)
    """The elements of sequences."""
    inside: dict[Atom, Atom | None] = field(default_factory=dict)
    """The values in what is optional, None where there is none."""
    folded: bool = False

    def rule(self, out: Builder, b: Binding, args: tuple[Atom, ...]) -> Atoms | None:
        """A binding, or what stands for its result."""
        if b.op.relation is None or len(b.outs) > 1:
            return None
        element = self._read(out, b, args)
        if element is not None:
            self.folded = True
            return element
        y = out.emit(b.op, *args, **b.attrs)
        elements = self._made(out, b, args)
        if elements is not None:
            self.elements[y] = elements
        elif b.op in (s.optional_some, s.optional_none):
            self.inside[y] = args[0] if args else None
        return y

    def _read(self, out: Builder, b: Binding, args: tuple[Atom, ...]) -> Atom | None:
        """What an op that takes apart gives, if it is known."""
        if b.op is s.optional_has_element and args[0] in self.inside:
            return Const(np.array(self.inside[args[0]] is not None))
        if b.op is s.optional_get_element:
            return self.inside.get(args[0])
        elements = self.elements.get(args[0]) if args else None
        if elements is None:
            return None
        if b.op is s.sequence_at:
            at = _place(args[1:], len(elements), len(elements))
            return None if at is None else elements[at]
        if b.op is s.concat_from_sequence:
            return _concatenated(out, elements, **b.attrs)
        return None

    def _made(self, out: Builder, b: Binding, args: tuple[Atom, ...]) -> list[Atom] | None:
        """The elements of the sequence that an op makes, if they are known."""
        if b.op in (s.sequence_empty, s.sequence_construct):
            return list(args)
        if b.op is s.split_to_sequence:
            return _parts(out, b, args)
        if b.op not in (s.sequence_insert, s.sequence_erase) or args[0] not in self.elements:
            return None
        elements = self.elements[args[0]]
        count, adds = len(elements), b.op is s.sequence_insert
        where = args[2:] if adds else args[1:]
        last = count if adds else count - 1
        at = _place(where, count, count + adds) if where else last
        if at is None or at < 0:
            return None
        return [*elements[:at], *([args[1]] if adds else []), *elements[at + (not adds) :]]


def _place(position: Sequence[Atom], count: int, end: int) -> int | None:
    """A position from the front, if it is known and in range; else a run refuses it."""
    match position[0].type.value:
        case (int(at),) if -count <= at < end:
            return at + count if at < 0 else at
    return None


def _concatenated(out: Builder, elements: list[Atom], *, axis: int, new_axis: bool) -> Atom | None:
    if not elements or not all(x.type.is_tensor for x in elements):
        return None
    rank = len(elements[0].type.shape) + new_axis
    (front,) = front_axes(rank, (axis,))
    if new_axis:
        elements = [out.emit(unsqueeze, x, axes=(front,)) for x in elements]
    return elements[0] if len(elements) == 1 else out.emit(concat, *elements, axis=front)


def _parts(out: Builder, b: Binding, args: tuple[Atom, ...]) -> list[Atom] | None:
    """The parts of a tensor, if it is known how many there are and where each begins."""
    x, *split = args
    if not x.type.is_tensor:
        return None
    (axis,) = front_axes(len(x.type.shape), (b.attrs["axis"],))
    count, _ = s.parts_of(x.type, [t.type for t in split], axis)
    if not isinstance(count, int) or count > MAX_VALUE:
        return None
    if split and split[0].type.shape:
        if not isinstance(split[0], Const):
            return None
        return [out.emit(dyn_split, x, split[0], axis=axis, part=i) for i in range(count)]
    return _even_parts(out, x, axis, count, split[0] if split else None, b.attrs["keepdims"])


def _even_parts(
    out: Builder, x: Atom, axis: int, count: int, split: Atom | None, keepdims: bool
) -> list[Atom] | None:
    """Parts of as many numbers, but for the last; of one, if nothing is told."""
    (size,) = (1,) if split is None else split.type.value or (ANY,)
    if not isinstance(size, int):
        return None
    parts = [_slice(out, x, axis, i * size, (i + 1) * size) for i in range(count)]
    if keepdims or split is not None:
        return parts
    return [out.emit(squeeze, p, axes=(axis,)) for p in parts]


def _slice(out: Builder, x: Atom, axis: int, begin: int, end: int) -> Atom:
    return out.emit(strided_slice, x, begin=(begin,), end=(end,), strides=(1,), axes=(axis,))
