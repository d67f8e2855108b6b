"""A limit on packed weights: the layouts that stay are those whose kernels gain most by them.

A weight is packed once for each layout in which kernels read it. Sets of these are weighed for each
weight: their bytes beside what calls are expected to lose for want of the others. It is a knapsack
into which one item of each group goes (Sinha and Zoltners 1979): along the lower hull of every
weight, steps are taken in the order of what they lose for a byte, until the rest fits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from bucketize.errors import CompileError, TypeRelError
from bucketize.ir import Const
from bucketize.kernel.schedule import Implementation
from bucketize.kernel.select import Select
from bucketize.kernel.templates import TEMPLATES, candidates
from bucketize.kernel.typical import Box, cuts, least_size
from bucketize.kernel.workload import Workload
from bucketize.lower.cost import expected, is_shaped
from bucketize.machine.speed import Floats
from bucketize.machine.target import Target
from bucketize.op import Array
from bucketize.program.decide import rewritten
from bucketize.program.instruction import DEFAULT, KernelCall
from bucketize.program.program import Program

SLICES = 8  # of the sizes of a clone, in which its kernels are weighed
MIB = 2**20

Layouts: TypeAlias = frozenset[str]


def limited(program: Program, weight_bytes: int) -> Program:
    """The program with weights of so many bytes at most; itself if it needs no more.

    Args:
        program: all of it decided.
        weight_bytes: at most, of the constants of all clones, each in every layout that is read.

    Raises:
        CompileError: no choice of kernels needs so few; it says how many the least takes.

    """
    excess = constant_bytes(program) - weight_bytes
    if excess <= 0:
        return program
    weights = _weights(program)
    steps = sorted((s for w in weights for s in w.steps()), key=lambda step: step.rate)
    kept: dict[_Weight, Layouts] = {}
    for step in steps:
        if excess > 0:
            kept[step.weight] = step.layouts
            excess -= step.saved
    if excess > 0:
        least = weight_bytes + excess
        raise CompileError(
            f"weight_bytes={weight_bytes} is too few: with the kernels that read them in the least "
            f"room weights take {least} bytes ({least / MIB:.1f} MiB)"
        )
    selects = {r.call: r.select(layouts) for w, layouts in kept.items() for r in w.reads}

    def select(call: KernelCall) -> tuple[Select, str]:
        new = selects.get(call, call.select)
        return new, call.why if new == call.select else DEFAULT

    new = rewritten(program, program.target, select)
    for name in program.routines.made():
        new.decide(name)
    return new


def constant_bytes(program: Program) -> int:
    """Bytes of the constants of a program's kernels and results, each in every layout it has."""
    sizes: dict[tuple[int, str], int] = {}
    for segment in program.segments():
        plain = list(segment.fn.results)
        for call in segment.rows:
            for i, atom in enumerate(call.args):
                if not isinstance(atom, Const):
                    plain.append(atom)
                elif (key := (id(atom.value), call.packs[i])) not in sizes:
                    sizes[key] = _bytes(call.workload, call.implementation, i, atom.value)
        roots = map(segment.root, plain)
        sizes |= {(id(r.value), ""): r.value.nbytes for r in roots if isinstance(r, Const)}
    return sum(sizes.values())


def _bytes(workload: Workload, one: Implementation, place: int, value: Array) -> int:
    """What a constant takes as an implementation reads it."""
    packed = TEMPLATES[one.template].pack(workload, one.schedule, place, value)
    return value.nbytes if packed is None else packed.nbytes


# --- calls that read a weight --------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Read:
    """A call that reads a weight, and what may compute it."""

    call: KernelCall
    place: int
    """The place of the weight among its arguments."""
    able: Sequence[Implementation]
    shares: Floats
    """What each of them takes of all its clone takes: a row for each, a column for each slice."""
    parts: Sequence[int]
    """Which of its implementations the call runs, as it was decided, in each slice."""

    @cached_property
    def layouts(self) -> list[str]:
        """The layout of the weight that each implementation reads."""
        return [_layout(self.call.workload, one, self.place) for one in self.able]

    @property
    def own(self) -> Layouts:
        """The layouts that it reads as it was decided."""
        return frozenset(call.packs[self.place] for call in self.call.each)

    def select(self, layouts: Layouts) -> Select:
        """The choice where the weight has these layouts alone, of which it can read one."""
        return self.call.select.mapped([self.able[row] for row in self._rows(layouts)])

    def loss(self, layouts: Layouts) -> float:
        """Time lost with these layouts, by its clone's, mean over slices; infinite: none fits."""
        if layouts.isdisjoint(self.layouts):
            return math.inf
        rows, slices = self._rows(layouts), np.arange(len(self.parts))
        mine = [self.able.index(one) for one in self.call.select.implementations]
        new, old = (np.array(each)[list(self.parts)] for each in (rows, mine))
        more = self.shares[new, slices] - self.shares[old, slices]
        return float(np.maximum(more, 0.0).mean())

    def _rows(self, layouts: Layouts) -> list[int]:
        """For each implementation of the call that, or what is best in its stead."""
        return [
            self._row(k, one, layouts) for k, one in enumerate(self.call.select.implementations)
        ]

    def _row(self, part: int, one: Implementation, layouts: Layouts) -> int:
        row = self.able.index(one)
        if self.layouts[row] in layouts:
            return row
        slices = [s for s, at in enumerate(self.parts) if at == part] or range(len(self.parts))
        takes = self.shares[:, slices].sum(axis=1)
        legal = [i for i, layout in enumerate(self.layouts) if layout in layouts]
        return min(legal, key=lambda i: float(takes[i]))


def _layout(workload: Workload, one: Implementation, place: int) -> str:
    return TEMPLATES[one.template].pack_key(workload, one.schedule, place)


# --- weights -------------------------------------------------------------------------------------


class _Step(NamedTuple):
    """From one set of layouts of a weight to a smaller one."""

    rate: float
    """What calls lose for a byte."""
    saved: int
    weight: _Weight
    layouts: Layouts


@dataclass(frozen=True, eq=False)
class _Weight:
    """A constant that kernels read packed."""

    value: Array
    reads: Sequence[_Read]

    @cached_property
    def bytes(self) -> dict[str, int]:
        """Bytes of the weight in each layout that a call may read."""
        firsts = {
            layout: (read, one)
            for read in self.reads
            for layout, one in zip(read.layouts, read.able, strict=True)
        }
        return {
            layout: _bytes(read.call.workload, one, read.place, self.value)
            for layout, (read, one) in firsts.items()
        }

    def steps(self) -> Iterator[_Step]:
        """The lower hull of what it may lose, from the layouts of now to the least."""
        here, loss, rate = self._own, 0.0, 0.0
        options = {layouts: self._loss(layouts) for layouts in self._options()}
        while True:
            rates = {
                layouts: (lost - loss) / (self._room(here) - self._room(layouts))
                for layouts, lost in options.items()
                if self._room(layouts) < self._room(here) and lost < math.inf
            }
            if not rates:
                return
            best = min(rates, key=lambda layouts: (rates[layouts], self._room(layouts)))
            rate = max(rate, rates[best])  # rising, however it rounds: steps are taken in order
            yield _Step(rate, self._room(here) - self._room(best), self, best)
            here, loss = best, options[best]

    @cached_property
    def _own(self) -> Layouts:
        return frozenset().union(*(read.own for read in self.reads))

    def _options(self) -> Iterator[Layouts]:
        """Each layout alone; those of now, less one after the other that is missed the least."""
        yield from (frozenset([layout]) for layout in self.bytes)
        here = self._own
        while len(here) > 1:
            here = min((here - {x} for x in here), key=lambda s: (self._loss(s), self._room(s)))
            yield here

    def _loss(self, layouts: Layouts) -> float:
        return sum(read.loss(layouts) for read in self.reads)

    def _room(self, layouts: Layouts) -> int:
        return sum(self.bytes[layout] for layout in layouts)


def _weights(program: Program) -> list[_Weight]:
    """What may be packed otherwise: constants that are one argument of calls, all modelled."""
    boxes, target = _boxes(program), program.target
    totals: dict[Box, Floats] = {}
    for call, within in boxes.items():
        for box in within:
            taken = _taken(call, box, target)
            totals[box] = totals.get(box, np.zeros(SLICES)) + taken
    weights = []
    for value, places in _packed(boxes):
        pool = _pool(places, target)
        reads = [
            _read(c, i, pool, {b: totals[b] for b in boxes[c]}, target) for c, i in places.items()
        ]
        modelled = [read for read in reads if read is not None]
        if len(modelled) == len(reads):
            weights.append(_Weight(value, modelled))
    return weights


def _boxes(program: Program) -> dict[KernelCall, list[Box]]:
    """Each call, and for the functions that make it the symbols of their inputs."""
    boxes: dict[KernelCall, dict[Box, None]] = {}
    for routine in program.routines.made().values():
        box = tuple(dict.fromkeys(s for p in routine.params for s in p.type.symbols()))
        for call in routine.calls():
            boxes.setdefault(call, {})[box] = None
    return {call: list(within) for call, within in boxes.items()}


def _packed(calls: Iterable[KernelCall]) -> list[tuple[Array, dict[KernelCall, int]]]:
    """Constants that calls read packed and nothing reads as it is, and which arguments they are."""
    packed: dict[int, tuple[Array, dict[KernelCall, int]]] = {}
    others: set[int] = set()
    for call in calls:
        places = [i for i in call.packs if any(one.packs[i] for one in call.each)]
        for i, atom in enumerate(call.args):
            if places == [i] and isinstance(atom, Const):
                packed.setdefault(id(atom.value), (atom.value, {}))[1][call] = i
            elif isinstance(atom, Const):
                others.add(id(atom.value))
    return [one for key, one in packed.items() if key not in others]


def _pool(places: Mapping[KernelCall, int], target: Target) -> list[Implementation]:
    """What calls that read a weight run, and the default of each template that takes one."""
    each = [one for call in places for one in call.select.implementations]
    each += [
        Implementation(template.name, template.default(workload, target))
        for workload in dict.fromkeys(call.workload for call in places)
        for template in candidates(workload, target)
    ]
    return list({one.key: one for one in each}.values())


def _read(
    call: KernelCall,
    place: int,
    pool: Sequence[Implementation],
    totals: Mapping[Box, Floats],
    target: Target,
) -> _Read | None:
    """A call that reads a weight; None where nobody knows what it takes."""
    able = [
        one for one in pool if one in call.select.implementations or _is_legal(call, one, target)
    ]
    each = [(_seconds(call, able, box, target), total) for box, total in totals.items()]
    shares = [
        seconds / np.where(total > 0, total, 1.0) for seconds, total in each if seconds is not None
    ]
    if len(shares) < len(each):
        return None
    parts = [part for box in totals for part in _parts(call, box)]
    return _Read(call, place, able, np.concatenate(shares, axis=1), parts)


def _is_legal(call: KernelCall, one: Implementation, target: Target) -> bool:
    """Whether an implementation whose time is modelled can compute a call."""
    template = TEMPLATES[one.template]
    accepted = template.cost is not None and template.accepts(call.workload)
    return accepted and template.valid(call.workload, one.schedule, target) is None


def _taken(call: KernelCall, box: Box, target: Target) -> Floats:
    """Seconds of a call in each slice of a box; 0 where nobody knows."""
    seconds = _seconds(call, call.select.implementations, box, target)
    return np.zeros(SLICES) if seconds is None else seconds[_parts(call, box), np.arange(SLICES)]


def _seconds(
    call: KernelCall, each: Sequence[Implementation], box: Box, target: Target
) -> Floats | None:
    """A row for each implementation, a column for each slice of a box."""
    with suppress(TypeRelError):  # some sizes have no value
        if all(TEMPLATES[one.template].cost for one in each) and is_shaped(call.workload):
            return expected(call.workload, each, box, target, SLICES)
    return None


def _parts(call: KernelCall, box: Box) -> list[int]:
    """Which implementation runs in each slice of a box."""
    if not call.larger:
        return [0] * SLICES
    slices = cuts(call.workload, box, SLICES)
    return [call.select.index(least_size(call.workload, one)) for one in slices]
