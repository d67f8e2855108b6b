"""The virtual machine: a routine's instructions, one after the other, over registers.

What a call owns, it owns through its context: one arena, and a filled table for each segment.
Contexts of one image run side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from bucketize.call import bind_shapes, no_bucket
from bucketize.errors import ShapeError
from bucketize.interpret import compute
from bucketize.ir import Atom, Const, Var
from bucketize.op import Array
from bucketize.program.program import (
    Branch,
    Call,
    Code,
    Compute,
    Decide,
    ReadSizes,
    Refuse,
    Routine,
    RunSegment,
    Segment,
)
from bucketize.runtime.image import Image
from bucketize.runtime.state import State
from bucketize.runtime.storage import Arena

Registers: TypeAlias = dict[Atom, Array]
Sizes: TypeAlias = dict[str, int]
Shapes: TypeAlias = tuple[tuple[int, ...], ...]


class Context:
    """What a call in flight needs of its own; one call at a time."""

    def __init__(self, image: Image) -> None:
        """An empty context: arena and tables come with the first calls."""
        self.image = image
        self.arena = Arena()
        self._states: dict[Segment, State] = {}
        self._seen: dict[Routine, tuple[Shapes, Sizes]] = {}
        self.told: dict[Call, tuple[Shapes, Sizes]] = {}
        """The last results of calls that were as the caller was told, at which sizes."""

    def state(self, segment: Segment) -> State:
        """The segment's table in this context."""
        state = self._states.get(segment)
        if state is None:
            linked = self.image.linked(segment)
            state = self._states[segment] = State(segment, linked, self.image, self.arena)
        return state

    def invoke(self, routine: Routine, arrays: Sequence[Array]) -> list[Array]:
        """The results of a routine."""
        sizes = self._sizes(routine, arrays)
        registers: Registers = dict(zip(routine.fn.params, arrays, strict=True))
        return self.run(routine.code, registers, dict(sizes))

    def _sizes(self, routine: Routine, arrays: Sequence[Array]) -> Sizes:
        """What the inputs' shapes say of the symbols; checked, unless they are the last ones."""
        shapes = tuple([a.shape for a in arrays])
        seen = self._seen.get(routine)
        if seen is None or seen[0] != shapes:
            seen = self._seen[routine] = shapes, bind_shapes(routine.fn.params, shapes)
        return seen[1]

    def run(self, code: Code, registers: Registers, sizes: Sizes) -> list[Array]:
        """Run instructions; the results."""
        for instruction in code.instructions:
            _RUN[type(instruction)](self, instruction, registers, sizes)
        return [registers[r] if isinstance(r, Var) else r.value.copy() for r in code.results]


def _run_segment(context: Context, i: RunSegment, registers: Registers, sizes: Sizes) -> None:
    segment = i.segment
    state = context.state(segment)
    arrays = [registers[p] for p in segment.fn.params]
    results = state.run(tuple([sizes[s] for s in segment.symbols]), arrays)
    registers.update(zip(segment.fn.results, results, strict=True))


def _compute(_: Context, i: Compute, registers: Registers, sizes: Sizes) -> None:
    """Write the results, and the sizes that they bring."""
    operands = _all(registers, i.binding.args)
    for out, value in zip(i.binding.outs, compute(i.binding, operands, sizes), strict=True):
        own = np.asarray(value, order="C")
        shared = any(np.may_share_memory(own, o) for o in operands)
        registers[out] = own.copy() if shared else own
    _learn(i.binding.outs, registers, sizes)


def _read_sizes(_: Context, i: ReadSizes, registers: Registers, sizes: Sizes) -> None:
    elements = _read(registers, i.atom).reshape(-1).tolist()
    for symbol, size in zip(i.symbols, elements, strict=True):
        if size < 0:
            raise ShapeError(f"in {i.op}: a negative extent in {elements}")
        sizes[symbol.name] = size


def _call(context: Context, i: Call, registers: Registers, sizes: Sizes) -> None:
    """Write the results of the callee, if they are what the caller was told."""
    b = i.binding
    routine = context.image.program.routines[b.attrs["callee"]]
    results = context.invoke(routine, _all(registers, b.args))
    registers.update(zip(b.outs, results, strict=True))
    seen = tuple([r.shape for r in results]), sizes
    if context.told.get(i) != seen:
        before = dict(sizes)
        _learn(b.outs, registers, sizes)
        if sizes == before:
            context.told[i] = seen


def _decide(context: Context, i: Decide, registers: Registers, sizes: Sizes) -> None:
    results = context.run(i.leaves[i.leaf(sizes)], registers, sizes)
    registers.update(zip(i.outs, results, strict=True))
    if i.brings_sizes:
        _learn(i.outs, registers, sizes)


def _branch(context: Context, i: Branch, registers: Registers, sizes: Sizes) -> None:
    block = i.then if _read(registers, i.condition) else i.orelse
    results = context.run(block, registers, sizes)
    registers.update(zip(i.outs, results, strict=True))
    if i.brings_sizes:
        _learn(i.outs, registers, sizes)


def _refuse(_: Context, i: Refuse, _registers: Registers, sizes: Sizes) -> None:
    raise no_bucket(i.binding, sizes)


_RUN: Mapping[type, Callable[[Context, Any, Registers, Sizes], None]] = {
    RunSegment: _run_segment,
    Compute: _compute,
    ReadSizes: _read_sizes,
    Call: _call,
    Decide: _decide,
    Branch: _branch,
    Refuse: _refuse,
}


def _read(registers: Registers, atom: Atom) -> Array:
    return atom.value if isinstance(atom, Const) else registers[atom]


def _all(registers: Registers, atoms: Sequence[Atom]) -> list[Array]:
    return [_read(registers, a) for a in atoms]


def _learn(outs: Sequence[Var], registers: Registers, sizes: Sizes) -> None:
    """Check shapes that only the run could tell, and note the sizes that they bring."""
    sizes.update(bind_shapes(outs, [registers[v].shape for v in outs], sizes, what="result"))
