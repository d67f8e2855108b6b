"""Captured calls: segments and loops one after the other, at the shapes of the calls before.

What lies between them keeps its memory, and blocks keep addresses: of a call that is replayed only
those of its inputs and of its results are put in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from bucketize.call import bind_shapes, check_kinds
from bucketize.ir import Atom, Const, Var
from bucketize.kernel.work import FORK
from bucketize.link.memory import address, contiguous, empty_result
from bucketize.op import Array, Value
from bucketize.program.instruction import Code, Loop, RunSegment, Segment
from bucketize.runtime.loop import ROUND_FORK, NativeLoop, Word
from bucketize.runtime.state import State

Put: TypeAlias = tuple[memoryview, int, int]
"""Where an address goes, and how many bytes further it is than its array."""
ALIASES = ("input", "result")
"""Sources of results that are the memory of something else."""


@dataclass(eq=False, slots=True)
class _Location:
    """Where a tensor lies."""

    root: Array | int
    """Memory that the captured call keeps; or the number of an array: inputs, then results."""
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int = 0
    """In elements."""
    known: bool = False
    """Whether it holds the same at all calls of these shapes."""

    def of(self, arrays: Sequence[Array]) -> Array:
        """The tensor, of a call with these arrays."""
        root = arrays[self.root] if isinstance(self.root, int) else self.root
        if root.shape == self.shape:
            return root
        end = self.offset + math.prod(self.shape)
        return root.reshape(-1)[self.offset : end].reshape(self.shape)


class CapturedCall:
    """What a code comes to at some shapes; one call at a time."""

    def __init__(self, inputs: int) -> None:
        """Nothing to do yet."""
        self.puts: list[list[Put]] = [[] for _ in range(inputs)]
        """By array of the call."""
        self.fresh: list[tuple[tuple[int, ...], np.dtype[Any]]] = []
        """Shape and dtype of the results that steps write."""
        self.steps: list[Callable[[], None]] = []
        self.results: list[_Location] = []
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
        return [self._own(result, arrays, given) for result in self.results]

    def _own(self, result: _Location, arrays: Sequence[Array], given: set[int]) -> Array:
        if isinstance(result.root, int) and result.root in given:
            array = arrays[result.root]
            if array.size == math.prod(result.shape):  # all of it, however it is seen
                given.discard(result.root)
                return array.reshape(result.shape)
        return result.of(arrays).copy()


def capture(
    code: Code,
    inputs: Mapping[Var, Array],
    registers: Mapping[Atom, Value],
    sizes: dict[str, int],
    state_of: Callable[[Segment], State],
) -> CapturedCall | None:
    """The call of a code on inputs of these shapes; None if the shapes do not tell all of it.

    What lies in `registers` is read where it is, the same in all calls. `sizes` are those of the
    symbols; what the code tells of others is added.
    """
    capturing = _Capturing(code, inputs, registers, sizes, state_of)
    for i in code.instructions:
        if isinstance(i, RunSegment):
            capturing.segment(i)
        elif not (isinstance(i, Loop) and capturing.loop(i)):
            return None
    capturing.call.results = [capturing.where(r) for r in code.results]
    return capturing.call


class _Capturing:
    """Goes through a code once, to see where all lies."""

    def __init__(
        self,
        code: Code,
        inputs: Mapping[Var, Array],
        registers: Mapping[Atom, Value],
        sizes: dict[str, int],
        state_of: Callable[[Segment], State],
    ) -> None:
        self.code, self.state_of, self.sizes = code, state_of, sizes
        self.registers, self.call = registers, CapturedCall(len(inputs))
        self.locations: dict[Atom, _Location] = {
            p: _Location(i, a.shape, a.dtype) for i, (p, a) in enumerate(inputs.items())
        }

    def where(self, atom: Atom) -> _Location:
        """Where an atom lies."""
        if atom in self.locations:
            return self.locations[atom]
        value = atom.value if isinstance(atom, Const) else self.registers[atom]
        root = value if value.flags.c_contiguous else contiguous(value)
        return _Location(root, value.shape, value.dtype, known=True)

    def memory(self, shape: tuple[int, ...], dtype: np.dtype[Any], asked: bool) -> _Location:
        """Memory for what a step writes; each call's own, if it is asked for."""
        if not asked:
            return _Location(empty_result(shape, dtype), shape, dtype)
        self.call.puts.append([])
        self.call.fresh.append((shape, dtype))
        return _Location(len(self.call.puts) - 1, shape, dtype)

    def put(self, place: _Location, words: Iterable[Word]) -> None:
        """Put an address where it goes, now or in each call."""
        further = place.offset * place.dtype.itemsize
        if isinstance(place.root, int):
            self.call.puts[place.root] += [(memory, index, further) for memory, index in words]
            return
        self.call.kept.append(place.root)
        at = address(place.root) + further
        for memory, index in words:
            memory[index] = at

    def segment(self, i: RunSegment) -> None:
        """A segment is a step."""
        state = self.state_of(i.segment)
        key = tuple([self.sizes[s] for s in state.plan.symbols])
        state.prepare(key)
        inputs = [self.where(a) for a in i.args]
        results: list[_Location] = []
        for n, (result, out) in enumerate(zip(state.plan.results, i.outs, strict=True)):
            shape, dtype = state.results[n]
            if result.source == "own":
                results.append(self.memory(shape, dtype, out in self.code.results))
            elif result.source in ALIASES:
                of = inputs if result.source == "input" else results
                results.append(replace(of[result.index], shape=shape))
            else:
                results.append(_Location(state.known(n), shape, dtype, known=True))
        words = np.zeros(len(inputs) + len(results), np.int64).data
        for k, place in enumerate((*inputs, *results)):
            self.put(place, [(words, k)])
        self.locations.update(zip(i.outs, results, strict=True))
        self.call.steps.append(partial(_run_segment, state, key, words))

    def loop(self, i: Loop) -> bool:
        """Whether a loop is one native call: it is a step, then."""
        native = self._native(i)
        if native is None:
            return False
        last = self._made(i, native)
        self.sizes.update(self._bound(i.outs, last, "result"))
        self.locations.update(zip(i.outs, last, strict=True))
        return True

    def _bound(self, outs: Sequence[Var], places: Sequence[_Location], what: str) -> dict[str, int]:
        """The sizes that results in these places bind; types are checked as by `call.bind`."""
        check_kinds(outs, places, what)
        return bind_shapes(outs, [place.shape for place in places], self.sizes, what)

    def _native(self, i: Loop) -> NativeLoop | None:
        """The native loop, if the number of its rounds is told, and each is a segment, alike."""
        if i.alone is None:
            return None
        proceed, trips = self.where(i.proceed), self.where(i.trips)
        if not (proceed.known and trips.known and proceed.of(())):
            return None
        count, state = int(trips.of(())), self.state_of(i.alone.segment)
        carried = [self.where(a) for a in i.args]
        number = _Location(np.zeros((), np.int64), (), np.dtype(np.int64))
        inside = self._bound(i.params, (number, *carried), "carried")
        if count < 1 or state.linked.copies or len(inside) > len(self.sizes):
            return None
        key = tuple([inside[s] for s in state.plan.symbols])
        state.share_from(ROUND_FORK)
        state.prepare(key)
        native = NativeLoop(state, key, i, i.alone, count)
        number = replace(number, root=native.number)
        self.locations.update(zip(i.params, (number, *carried), strict=True))
        read = [self.where(a) for a in i.alone.args]
        alike = all((read[k].shape, read[k].dtype) == state.results[j] for k, j in native.fed)
        if not (alike and state.undivided):
            state.share_from(FORK)
            return None
        for place, words in zip(read, native.reads, strict=True):
            self.put(place, words)
        self.call.steps.append(native.run)
        return native

    def _made(self, i: Loop, native: NativeLoop) -> list[_Location]:
        """What a loop carries last, and its rows."""
        rows = i.outs[len(native.carried) :]
        asked = {j for j, out in zip(native.rows, rows, strict=True) if out in self.code.results}
        buffers = [self.memory(*b, j in asked) for j, b in enumerate(native.buffers)]
        for place, words in zip(buffers, native.writes, strict=True):
            self.put(place, words)
        last = []
        for j in native.carried:
            shape, dtype = native.state.results[j]
            begin = (native.trips - 1) % buffers[j].shape[0] * math.prod(shape)
            last.append(_Location(buffers[j].root, shape, dtype, begin))
        return [*last, *(buffers[j] for j in native.rows)]


def _run_segment(state: State, key: tuple[int, ...], words: memoryview) -> None:
    state.prepare(key)
    state.run_at(words)
