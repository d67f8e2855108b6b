"""Courses: segments and loops one after the other, at the shapes of the calls before.

What lies between them keeps its memory, and blocks keep addresses: of a call that comes again only
those of its inputs and of its results are put in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from bucketize.call import bind_shapes
from bucketize.ir import Atom, Const, Var
from bucketize.link.memory import address, contiguous, empty_result
from bucketize.op import Array
from bucketize.program.instruction import Code, Loop, RunSegment, Segment
from bucketize.runtime.loop import Rounds, Word
from bucketize.runtime.state import State

Put: TypeAlias = tuple[memoryview, int, int]
"""Where an address goes, and how many bytes further it is than its array."""
ALIASES = ("input", "result")
"""Sources of results that are the memory of something else."""


@dataclass(frozen=True, eq=False)
class _Held:
    """Where a tensor lies."""

    root: Array | int
    """Memory that the course keeps; or the number of an array of the call: inputs, then results."""
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int = 0
    """In elements."""
    known: bool = False
    """Whether it holds the same at all calls of these shapes."""

    def of(self, arrays: Sequence[Array]) -> Array:
        """The tensor, of a call with these arrays."""
        root = arrays[self.root] if isinstance(self.root, int) else self.root
        end = self.offset + math.prod(self.shape)
        return root.reshape(-1)[self.offset : end].reshape(self.shape)


COUNTER = _Held(np.zeros((), np.int64), (), np.dtype(np.int64))
"""In the place of the number of a round, which lies with its rounds."""


class Course:
    """What a code comes to at some shapes; one call at a time."""

    def __init__(self, inputs: int) -> None:
        """Nothing to do yet."""
        self.puts: list[list[Put]] = [[] for _ in range(inputs)]
        """By array of the call."""
        self.fresh: list[tuple[tuple[int, ...], np.dtype[Any]]] = []
        """Shape and dtype of the results that steps write."""
        self.steps: list[Callable[[], None]] = []
        self.results: list[_Held] = []
        self.kept: list[Array] = []
        """What blocks have addresses of."""

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """The results, each in memory of its own."""
        arrays = [a if a.flags.c_contiguous else contiguous(a) for a in inputs]
        arrays += [empty_result(*result) for result in self.fresh]
        for array, puts in zip(arrays, self.puts, strict=True):
            at = address(array)
            for words, index, offset in puts:
                words[index] = at + offset
        for step in self.steps:
            step()
        given = set(range(len(inputs), len(arrays)))
        return [self._own(held, arrays, given) for held in self.results]

    def _own(self, held: _Held, arrays: Sequence[Array], given: set[int]) -> Array:
        if isinstance(held.root, int) and held.root in given:
            array = arrays[held.root]
            if array.size == math.prod(held.shape):  # all of it, however it is seen
                given.discard(held.root)
                return array.reshape(held.shape)
        return held.of(arrays).copy()


def course_of(
    code: Code,
    params: Sequence[Var],
    inputs: Sequence[Array],
    sizes: Mapping[str, int],
    state_of: Callable[[Segment], State],
) -> Course | None:
    """The course of a code at the shapes of these inputs; None if their shapes do not tell it."""
    maker = _Maker(code, params, inputs, sizes, state_of)
    return maker.course if maker.make() else None


class _Maker:
    """Goes through a code once, to see where all lies."""

    def __init__(
        self,
        code: Code,
        params: Sequence[Var],
        inputs: Sequence[Array],
        sizes: Mapping[str, int],
        state_of: Callable[[Segment], State],
    ) -> None:
        self.code, self.state_of, self.sizes = code, state_of, dict(sizes)
        self.course = Course(len(inputs))
        at = [_Held(i, a.shape, a.dtype) for i, a in enumerate(inputs)]
        self.held: dict[Atom, _Held] = dict(zip(params, at, strict=True))

    def make(self) -> bool:
        """Whether all of it is told by shapes."""
        for i in self.code.instructions:
            if isinstance(i, RunSegment):
                self.segment(i)
            elif not (isinstance(i, Loop) and self.loop(i)):
                return False
        self.course.results = [self.where(r) for r in self.code.results]
        return True

    def where(self, atom: Atom) -> _Held:
        """Where an atom lies."""
        if isinstance(atom, Const):
            value = np.ascontiguousarray(atom.value).reshape(atom.value.shape)
            return _Held(value, value.shape, value.dtype, known=True)
        return self.held[atom]

    def memory(self, shape: tuple[int, ...], dtype: np.dtype[Any], asked: bool) -> _Held:
        """Memory for what a step writes; each call's own, if it is asked for."""
        if not asked:
            return _Held(empty_result(shape, dtype), shape, dtype)
        self.course.puts.append([])
        self.course.fresh.append((shape, dtype))
        return _Held(len(self.course.puts) - 1, shape, dtype)

    def put(self, held: _Held, words: Iterable[Word]) -> None:
        """Put an address where it goes, now or in each call."""
        further = held.offset * held.dtype.itemsize
        for memory, index in words:
            if isinstance(held.root, int):
                self.course.puts[held.root].append((memory, index, further))
            else:
                memory[index] = address(held.root) + further
                self.course.kept.append(held.root)

    def segment(self, i: RunSegment) -> None:
        """A segment is a step."""
        state = self.state_of(i.segment)
        key = tuple([self.sizes[s] for s in state.plan.symbols])
        state.prepare(key)
        inputs = [self.where(a) for a in i.args]
        made: list[_Held] = []
        for n, (result, out) in enumerate(zip(state.plan.results, i.outs, strict=True)):
            shape, dtype = state.results[n]
            if result.source == "own":
                made.append(self.memory(shape, dtype, out in self.code.results))
            elif result.source in ALIASES:
                of = inputs if result.source == "input" else made
                made.append(replace(of[result.index], shape=shape))
            else:
                made.append(_Held(state.known(n), shape, dtype, known=True))
        words = np.zeros(len(inputs) + len(made), np.int64).data
        for k, held in enumerate((*inputs, *made)):
            self.put(held, [(words, k)])
        self.held.update(zip(i.outs, made, strict=True))
        self.course.steps.append(partial(_run_segment, state, key, words))

    def loop(self, i: Loop) -> bool:
        """Whether a loop is one that this can run again: it is, then."""
        rounds = self._rounds(i)
        if rounds is None:
            return False
        self.held.update(zip(i.outs, self._made(i, rounds), strict=True))
        if i.brings_sizes:
            made = [self.held[out].shape for out in i.outs]
            self.sizes = bind_shapes(i.outs, made, self.sizes, what="result")
        return True

    def _rounds(self, i: Loop) -> Rounds | None:
        """The rounds of a loop, a step by now, if their number is told and each is alike."""
        proceed, trips = self.where(i.proceed), self.where(i.trips)
        if i.alone is None or not (proceed.known and trips.known and proceed.of(())):
            return None
        count, state = int(trips.of(())), self.state_of(i.alone.segment)
        first: dict[Atom, _Held] = dict(
            zip(i.params, (COUNTER, *map(self.where, i.args)), strict=True)
        )
        shapes = [held.shape for held in first.values()]
        inside = bind_shapes(i.params, shapes, self.sizes, what="carried")
        if count < 1 or state.linked.copies or len(inside) > len(self.sizes):
            return None
        key = tuple([inside[s] for s in state.plan.symbols])
        state.prepare(key)
        rounds = Rounds(state, i, i.alone, count)
        read = [first[a] if a in first else self.where(a) for a in i.alone.args]
        if not (state.undivided and rounds.keeps_shapes([held.shape for held in read])):
            return None
        for k, held in enumerate(read):
            self.put(held, rounds.reading(k))
        self.course.steps.append(partial(_run_rounds, state, key, rounds))
        return rounds

    def _made(self, i: Loop, rounds: Rounds) -> list[_Held]:
        """What a loop carries last, and its rows."""
        rows = i.outs[len(rounds.carried) :]
        asked = {j for j, out in zip(rounds.rows, rows, strict=True) if out in self.code.results}
        buffers = [self.memory(*b, j in asked) for j, b in enumerate(rounds.buffers)]
        for j, held in enumerate(buffers):
            self.put(held, rounds.writing(j))
        last = []
        for j in rounds.carried:
            shape, _ = rounds.state.results[j]
            begin = rounds.last(j) * math.prod(shape)
            last.append(replace(buffers[j], shape=shape, offset=begin))
        return [*last, *(buffers[j] for j in rounds.rows)]


def _run_segment(state: State, key: tuple[int, ...], words: memoryview) -> None:
    state.prepare(key)
    state.run_at(words)


def _run_rounds(state: State, key: tuple[int, ...], rounds: Rounds) -> None:
    state.prepare(key)
    rounds.run()
