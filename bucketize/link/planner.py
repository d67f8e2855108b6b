"""Planning: a segment becomes a plan. A launch rule is read over dims, as a shape rule is."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TypeAlias

from bucketize.ir import Atom, Const
from bucketize.kernel.template import Launch, Rows
from bucketize.kernel.templates import TEMPLATES
from bucketize.kernel.work import work
from bucketize.link import block
from bucketize.link.block import BASE, ORIGIN, RANGE, STATE, STRIP, WORD
from bucketize.link.choice import chosen, chosen_lines, runs
from bucketize.link.dim_code import DimCode
from bucketize.link.plan import Plan, Result
from bucketize.link.strip import StripGroup, groups_of
from bucketize.link.table import table
from bucketize.machine.target import Target
from bucketize.program.instruction import KernelCall, Segment
from bucketize.types import Dim, product

RELATIONS = {"==": 0, "broadcast": 1, ">=": 2}
Pitches: TypeAlias = tuple[Dim | None, ...]
"""How far apart the rows of arguments and results lie, where they do not follow each other."""


def plan_of(
    segment: Segment, threads: int, launch_of: Callable[[KernelCall, Pitches], Launch], l2: int = 0
) -> Plan:
    """The plan of a segment whose kernels are run by so many threads.

    Groups of kernels are run in strips where that keeps their tensors in a second cache of `l2`
    bytes; with 0 none are.
    """
    launches = [launch_of(call, segment.pitches(call)) for call in segment.rows]
    return _Planner(segment, threads, launches, l2).plan()


def launch_of(call: KernelCall, pitches: Pitches, target: Target) -> Launch:
    """A kernel's launch rule, read over the dims of its workload."""
    dense = [a.type.shape for a in (*call.workload.body.params, *call.workload.body.results)]
    pairs, implementation = zip(dense, pitches, strict=True), call.implementation
    shapes = tuple(shape if pitch is None else Rows(shape, pitch) for shape, pitch in pairs)
    return TEMPLATES[implementation.template].launch(
        call.workload, implementation.schedule, shapes, target
    )


class _Planner:
    """Reads a segment once, kernel by kernel."""

    def __init__(self, segment: Segment, threads: int, launches: Sequence[Launch], l2: int) -> None:
        self.segment, self.threads, self.launches = segment, threads, launches
        self.code = DimCode(segment.symbols)
        calls = segment.calls
        self.rows = _rows(calls)
        self.runs = [chosen(c, rows) for c, rows in zip(calls, self.rows, strict=True)]
        lines = [
            chosen_lines(c, [launches[row].lines for row in rows])
            for c, rows in zip(calls, self.rows, strict=True)
        ]
        self.groups = groups = groups_of(segment, lines, self.runs, l2)
        widths = [
            len(c.binding.outs) + len(c.args) + 1 + len(launch.dims)
            for c, launch in zip(segment.rows, launches, strict=True)
        ]
        widths += [len(STRIP)] * len(groups)
        self.width = max([1, *(n + len(RANGE) for n in widths)])
        self.size = (len(segment.rows) + len(groups)) * threads * self.width
        self.words: list[tuple[int, int]] = []
        self.parts: dict[int, tuple[int, ...]] = {}
        self.tensors: list[tuple[int, ...]] = []
        self.member = {i: g for g, s in enumerate(groups) for i in range(s.first, s.last + 1)}
        self.described = [self._reserve(len(g.words(0))) for g in groups]
        self.grouped: list[tuple[int, ...]] = []
        self.links: list[tuple[int, int, int]] = []
        self.places: dict[Atom, int] = {}
        self.fixed: list[tuple[int, ...]] = []
        self.moving: list[tuple[int, ...]] = []
        self.reports: list[tuple[int, int, int]] = []
        self.constants: list[tuple[int, int, int]] = []
        self.held: list[Const] = []
        self.dims: dict[Atom, int] = {}
        used = [(i, a) for i, c in enumerate(calls) for a in (*c.args, *c.binding.outs)]
        self.last = {segment.root(a): i for i, a in used}
        roots = [segment.root(r) for r in segment.fn.results]
        written = {segment.root(o) for c in calls for o in c.binding.outs}
        self.own = {r: i for i, r in reversed(list(enumerate(roots))) if r in written}

    def plan(self) -> Plan:
        self._hold_dims()
        for step, (call, rows) in enumerate(zip(self.segment.calls, self.rows, strict=True)):
            self._place_results(step, call)
            for row, is_run in zip(rows, runs(call), strict=True):
                self._fill_step(step, row, is_run)
        for g, group in enumerate(self.groups):
            self._fill_group(g, group)
        results = tuple(self._result(i) for i in range(len(self.segment.fn.results)))
        checks = self._checks()
        parts = [part for _, part in sorted(self.parts.items())]
        initial, code = self.code.arrays()  # all dims are in registers by now
        return Plan(
            symbols=self.segment.symbols,
            initial=initial,
            code=code,
            checks=table(block.CHECK, "relation a b", checks),
            words=table(block.GATHER, "word register", self.words),
            parts=table(block.PART, "word extent grain work runs", parts),
            tensors=table(block.TENSOR, "bytes first last copies group short", self.tensors),
            pointers=table(block.POINTER, "word base tensor copy before", self.fixed + self.moving),
            reports=table(block.REPORTER, "word step copy", self.reports),
            groups=table(block.GROUPED, "first last step words strips", self.grouped),
            links=table(block.INSIDE, "word base words", self.links),
            constants=tuple(self.constants),
            held=tuple(self.held),
            results=results,
            kernels=tuple(c.kernel for c in self.segment.rows),
            steps=len(self.segment.calls),
            width=self.width,
            size=self.size,
            threads=self.threads,
        )

    def _hold_dims(self) -> None:
        """Tensors of dims are words behind the rows."""
        for atom, dims in self.segment.dims.items():
            self.dims[atom] = self._reserve(len(dims))
            self._gather(self.dims[atom], dims)

    def _reserve(self, count: int) -> int:
        """The first of so many words behind the rows."""
        self.size += count
        return self.size - count

    def _gather(self, first: int, dims: Sequence[Dim]) -> None:
        self.words += [(first + i, self.code.register(d)) for i, d in enumerate(dims)]

    # Memory: a result that a kernel makes is written where the caller gets it; the rest that
    # kernels make lies in the arena, from when the first part of it is written.

    def _place_results(self, step: int, call: KernelCall) -> None:
        for root in map(self.segment.root, call.binding.outs):
            if root not in self.own and root not in self.places:
                size = product(root.type.shape) * root.type.dtype.itemsize
                self.places[root] = self._tensor(size, step, self.last[root], 1, self._short(step))

    def _short(self, step: int) -> int:
        """The word that tells the bytes of a buffer, if a step writes to one; -1."""
        number = self.member.get(step)
        if number is None or step == self.groups[number].last:
            return -1
        return self.described[number] + self.groups[number].buffer_bytes(step)

    def _place_workspace(self, step: int, launch: Launch, is_run: Dim) -> int:
        if launch.workspace == 0:
            return -1
        last = len(self.segment.calls) - 1 if launch.checked else step
        return self._tensor(launch.workspace * is_run, step, last, self.threads)

    def _tensor(self, size: Dim, first: int, last: int, copies: int, short: int = -1) -> int:
        """A tensor; `short` is the word that tells its bytes where it is a buffer of a group."""
        group = self.member.get(first, -1)
        self.tensors.append((self.code.register(size), first, last, copies, group, short))
        return len(self.tensors) - 1

    # Groups: their steps are behind those of the calls, their words behind the rows.

    def _fill_group(self, number: int, group: StripGroup) -> None:
        words, calls = self.described[number], self.segment.calls
        step = len(self.launches) + number
        self._gather(words, group.words(self.threads * self.width * WORD))
        for thread in range(self.threads):
            row = (step * self.threads + thread) * self.width
            states = self._reserve(len(group.calls) * len(STATE))
            rows = thread * self.width
            self.links += [
                (row + STRIP.group, ORIGIN.table, words),
                (row + STRIP.states, ORIGIN.table, states),
                (row + STRIP.rows, ORIGIN.table, rows),
                (row + STRIP.kernels, ORIGIN.kernels, 0),
            ]
            for member in range(group.first, group.last):
                tensor = self.places[calls[member].binding.outs[0]]
                self._spot(states + group.buffer(member), BASE.arena, tensor, thread)
        begin = step * self.threads * self.width + len(STRIP)
        done = sum((work(c.workload).total for c in group.calls), start=0)
        total = self.code.register(done) if self.threads > 1 else 0
        tiles, own = self.code.register(group.lines[-1].tiles), self.code.register(step)
        self.parts[step] = (begin, tiles, 1, total, own)
        strips = self.code.register(group.strips)
        self.grouped.append((group.first, group.last, step, words, strips))

    def _fill_step(self, step: int, row: int, is_run: Dim) -> None:
        """One of the rows that a step may run; `is_run` is 1 where it does, else 0."""
        call, launch = self.segment.rows[row], self.launches[row]
        space = self._place_workspace(step, launch, is_run)
        for thread in range(self.threads):
            self._fill_row(row, thread, space)
        begin = row * self.threads * self.width + len(call.binding.outs) + len(call.args) + 1
        total = self.code.register(work(call.workload).total) if self.threads > 1 else 0
        extent, own = self.code.register(launch.extent), self.code.register(self.runs[step])
        self.parts[row] = (begin, extent, launch.grain, total, own)

    def _fill_row(self, number: int, thread: int, space: int) -> None:
        call, launch = self.segment.rows[number], self.launches[number]
        row = (number * self.threads + thread) * self.width
        outs = len(call.binding.outs)
        for k, out in enumerate(call.binding.outs):
            self._point(row + k, out)
        for k, atom in enumerate(call.args):
            if isinstance(atom, Const):
                self.constants.append((row + outs + k, number, k))
            else:
                self._point(row + outs + k, atom)
        word = row + outs + len(call.args)
        if space >= 0:
            self._spot(word, BASE.arena, space, thread)
            if launch.checked:
                self.reports.append((word, number, thread))
        self._gather(word + 1 + len(RANGE), launch.dims)

    def _point(self, word: int, atom: Atom) -> None:
        place, inputs = self.segment.place(atom), self.segment.fn.params
        root, before = place.root, place.offset * atom.type.dtype.itemsize
        if root in self.own:
            self._spot(word, len(BASE) + len(inputs) + self.own[root], before=before)
        elif root in self.dims:
            self._spot(word, BASE.table, before=self.dims[root] * WORD + before)
        elif root in self.places:
            self._spot(word, BASE.arena, self.places[root], before=before)
        elif isinstance(root, Const):
            self.constants.append((word, -1, self._hold(root)))
        else:
            self._spot(word, len(BASE) + inputs.index(root), before=before)

    def _spot(self, word: int, base: int, tensor: int = -1, copy: int = 0, before: Dim = 0) -> None:
        pointers = self.fixed if base < len(BASE) else self.moving
        pointers.append((word, base, tensor, copy, self.code.register(before)))

    def _hold(self, const: Const) -> int:
        self.held.append(const)
        return len(self.held) - 1

    def _result(self, index: int) -> Result:
        atom = self.segment.fn.results[index]
        shape = tuple(self.code.register(d) for d in atom.type.shape)
        root = self.segment.root(atom)
        if root in self.own:
            mine = self.own[root] == index
            return Result(shape, "own" if mine else "result", self.own[root])
        if root in self.dims:
            return Result(shape, "dims", self.dims[root])
        if isinstance(root, Const):
            return Result(shape, "constant", self._hold(root))
        return Result(shape, "input", self.segment.fn.params.index(root))

    # What types leave to run time.

    def _checks(self) -> list[tuple[int, ...]]:
        rows = [
            (RELATIONS[relation], self.code.register(a), self.code.register(b))
            for relation, a, b in self.segment.relations
        ]
        return [row for row in dict.fromkeys(rows) if row[1] != row[2]]


def _rows(calls: Sequence[KernelCall]) -> list[list[int]]:
    """The rows of the table that each call may run, as `Segment.rows` has them."""
    behind = itertools.count(len(calls))
    return [[step, *(next(behind) for _ in call.larger)] for step, call in enumerate(calls)]
