"""The virtual machine: a routine's instructions, one after the other, over registers.

What a call owns, it owns through its context: one arena, and a filled table for each segment.
Contexts of one image run side by side.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np

from bucketize.call import bind_shapes, refusal, shapes_of, too_deep
from bucketize.errors import ProgramError, ShapeError
from bucketize.interpret import compute, stacked
from bucketize.ir import Atom, Const, Var
from bucketize.link.ffi import is_too_deep
from bucketize.link.image import Image
from bucketize.link.memory import Arena, Lent
from bucketize.op import Array, Value
from bucketize.program.instruction import (
    Branch,
    Call,
    Code,
    Compute,
    Decide,
    Instruction,
    Loop,
    ReadSizes,
    Refuse,
    RunSegment,
    Segment,
)
from bucketize.program.path import clone_at
from bucketize.program.program import Routine
from bucketize.runtime.capture import CapturedCall, capture
from bucketize.runtime.output import placed
from bucketize.runtime.state import State
from bucketize.runtime.thread_pool import TEAM
from bucketize.traffic.counter import Cell, Tally
from bucketize.traffic.latency import LONG_S, SAMPLED
from bucketize.types import evaluate

CALLS = TEAM.calls
LARGEST = 1 << 62  # of an extent: sums of two stay within int64
REMEMBERED = 1_024
"""Shapes that a context knows the way of, and counts apart; beyond, it begins anew."""

Registers: TypeAlias = dict[Atom, Value]
Sizes: TypeAlias = dict[str, int]
Shapes: TypeAlias = tuple[Any, ...]
"""The shapes of arguments, from `call.shapes_of`."""


Route: TypeAlias = tuple[State, tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""A segment's state and its sizes; by number, inputs of the call that it reads, in its order, and
results of its own that are the call's, in the call's."""


@dataclass(slots=True)
class _Route:
    """Where inputs of some shapes go."""

    shapes: Shapes
    sizes: Sizes
    route: Route | None
    """Straight to a segment, or, as None, through the instructions."""
    captured: CapturedCall | None = None
    """What the instructions come to, once a call of the same shapes has come."""
    tried: bool = False
    cell: Cell | None = None
    """What counts its requests, once there was one."""


class Context:
    """What a call in flight needs of its own; one call at a time."""

    def __init__(
        self,
        image: Image,
        tally_of: Callable[[object], Tally] | None = None,
        *,
        one_thread: bool = False,
    ) -> None:
        """An empty context: arena and tables come with the first calls; `tally_of` gives a tally.

        With `one_thread` its calls share no kernel: for calls side by side, a thread each.

        Raises ProgramError if the image is of another processor.
        """
        if not image.walk_address:
            its = image.program.target
            raise ProgramError(
                f"a program compiled for {its.name} does not run here: it needs "
                f"{its.processor.misfit}; save it, and load it there"
            )
        self.image, self.one_thread = image, one_thread
        self.lent = Lent(Arena())
        self._states: dict[Segment, State] = {}
        self._seen: dict[Routine, _Route] = {}
        """The way of each routine's last call."""
        self._routes: dict[tuple[Routine, Shapes], _Route] = {}
        self._left, self._stands_for = 0, 1
        """How many requests come before the next that is timed, and for how many it stands."""
        self._turn = image.program.routines.turn
        self._tally = None if tally_of is None else tally_of(self)

    def __repr__(self) -> str:
        size = self.lent.arena.nbytes
        return f"<context with {len(self._states)} segments, an arena of {size} bytes>"

    def state(self, segment: Segment) -> State:
        """The segment's table in this context."""
        state = self._states.get(segment)
        if state is None:
            state = self._states[segment] = self.new_state(segment)
        return state

    def forget_routes(self) -> None:
        """Ask again where inputs go, and who is counted for it: what serves them has changed."""
        self._turn = self.image.program.routines.turn
        for way in self._routes.values():
            way.cell = None  # of a call that is on it, and ends later
        self._seen.clear()
        self._routes.clear()
        if self._tally is not None:
            self._tally.forget_cells()

    def new_state(self, segment: Segment) -> State:
        """A table that is filled for no sizes yet."""
        return State(segment, self.image, self.lent, one_thread=self.one_thread)

    def enter(
        self,
        routine: Routine,
        arrays: Sequence[Value],
        is_request: bool = False,
        into: Sequence[Array | None] = (),
    ) -> list[Value]:
        """The results of the routine that a call from outside begins with, counted if asked for.

        They are in the arrays of `into`, in their order, where these can hold them as they are.
        """
        begin = perf_counter() if is_request else 0.0
        try:
            CALLS.add(self)
            results, seen = self.invoke(routine, arrays, into)
        except (RecursionError, ctypes.ArgumentError) as e:
            if is_too_deep(e):
                raise too_deep() from e
            raise
        finally:
            CALLS.discard(self)
        tally = self._tally
        if is_request and tally is not None:
            # here, as to call what counts would cost as much as the count
            cell = seen.cell
            if cell is None or begin >= tally.end:
                cell = self._cell(tally, seen, routine, begin)
            cell.requests += 1
            if left := self._left:
                self._left = left - 1
            else:
                taken = perf_counter() - begin
                cell.latencies.note(taken, self._stands_for)
                self._stands_for = 1 if taken > LONG_S else SAMPLED
                self._left = self._stands_for - 1
        return results

    def _cell(self, tally: Tally, seen: _Route, routine: Routine, begin: float) -> Cell:
        """What counts a call of the routine that began then and went this way."""
        if begin >= tally.end:
            tally.turn(begin)
        if seen.cell is None:
            clone = clone_at(self.image.program, routine.name, seen.sizes)
            seen.cell = tally.cell(seen.sizes, clone)
        return seen.cell

    def invoke(
        self, routine: Routine, arrays: Sequence[Value], into: Sequence[Array | None] = ()
    ) -> tuple[list[Value], _Route]:
        """The results of a routine, and their way: that of the last call for equal shapes."""
        shapes = shapes_of(arrays)
        seen = self._seen.get(routine)
        again = seen is not None and seen.shapes == shapes
        if seen is None or not again:
            if seen is not None:  # blocks of one shape are kept, not of all that came
                seen.tried, seen.captured = False, None
            seen = self._seen[routine] = self._way(routine, shapes)
        if seen.route is not None:
            state, key, inputs, outputs = seen.route
            state.prepare(key)
            places = placed(into, outputs, state.results, arrays) if into else None
            results = state.run([arrays[i] for i in inputs], places)
            return [results[i] for i in outputs], seen
        if again and not seen.tried:
            seen.tried, seen.captured = True, self._captured(routine, arrays, seen.sizes)
        if seen.captured is not None:
            return seen.captured.run(arrays), seen
        registers: Registers = dict(zip(routine.fn.params, arrays, strict=True))
        return self.run(routine.code, registers, dict(seen.sizes)), seen

    def _way(self, routine: Routine, shapes: Shapes) -> _Route:
        """Where inputs of these shapes go, and what counts them."""
        stale = self._turn != self.image.program.routines.turn
        if stale or len(self._routes) >= REMEMBERED:
            self.forget_routes()
        way = self._routes.get((routine, shapes))
        if way is None:
            sizes = bind_shapes(routine.params, shapes)
            way = self._routes[routine, shapes] = _Route(shapes, sizes, self._route(routine, sizes))
        return way

    def _captured(
        self, routine: Routine, arrays: Sequence[Value], sizes: Sizes
    ) -> CapturedCall | None:
        """What a routine comes to at these shapes, if it is segments and loops in a row."""
        if not all(isinstance(a, np.ndarray) for a in arrays):
            return None
        inputs = dict(zip(routine.fn.params, arrays, strict=True))
        return capture(routine.code, inputs, {}, dict(sizes), self.state)

    def _route(self, routine: Routine, sizes: Sizes) -> Route | None:
        """The one segment that these sizes lead to, if nothing else is on the way."""
        fn, code = routine.fn, routine.code
        while len(code.instructions) == 1 and isinstance(code.instructions[0], Decide):
            decide = code.instructions[0]
            if code.results != decide.outs or decide.brings_sizes:
                return None
            code = decide.leaves[decide.leaf(sizes)]
        if len(code.instructions) != 1:
            return None
        last = code.instructions[0]
        if isinstance(last, Call):
            return self._behind_call(last, routine, code, sizes)
        if not isinstance(last, RunSegment) or not set(code.results) <= set(last.outs):
            return None
        if any(a not in fn.params for a in last.args):
            return None
        state = self.state(last.segment)
        key = tuple([sizes[s] for s in state.plan.symbols])
        inputs = tuple([fn.params.index(a) for a in last.args])
        return state, key, inputs, tuple([last.outs.index(r) for r in code.results])

    def _behind_call(self, call: Call, caller: Routine, code: Code, sizes: Sizes) -> Route | None:
        """The route of a call that hands on what its caller got, and back what it made."""
        if call.args != caller.fn.params or code.results != call.outs:
            return None
        if not all(a.type.is_tensor for a in (*call.args, *call.outs)):
            return None
        callee = self.image.program.routines.serving(call.callee)
        shapes = [tuple([evaluate(d, sizes) for d in a.type.shape]) for a in call.args]
        route = self._route(callee, bind_shapes(callee.params, shapes))
        if route is not None:  # what the caller was told of the results holds at these sizes
            state, key, _, outputs = route
            state.prepare(key)
            shapes = [state.results[i][0] for i in outputs]
            bind_shapes(call.outs, shapes, sizes, what="result")
        return route

    def run(self, code: Code, registers: Registers, sizes: Sizes) -> list[Value]:
        """Run instructions; the results."""
        for instruction in code.instructions:
            self.step(instruction, registers, sizes)
        return [registers[r] if isinstance(r, Var) else r.value.copy() for r in code.results]

    def step(self, instruction: Instruction, registers: Registers, sizes: Sizes) -> None:
        """Run one instruction: write what it makes, and the sizes that it brings."""
        RUN[type(instruction)](self, instruction, registers, sizes)


def _run_segment(context: Context, i: RunSegment, registers: Registers, sizes: Sizes) -> None:
    state = context.state(i.segment)
    state.prepare(tuple([sizes[s] for s in state.plan.symbols]))
    results = state.run(_all(registers, i.args))
    registers.update(zip(i.outs, results, strict=True))


def _compute(_: Context, i: Compute, registers: Registers, sizes: Sizes) -> None:
    """Write the results, and the sizes that they bring."""
    operands = _all(registers, i.binding.args)
    results = compute(i.binding, operands, sizes)
    if i.binding.op.relation is None:  # what others hand on is an operand, whole, or is new
        owned = (np.asarray(value, order="C") for value in results)
        results = [
            a.copy() if any(np.may_share_memory(a, o) for o in operands) else a for a in owned
        ]
    _put(i.binding.outs, results, registers, sizes)


def _read_sizes(_: Context, i: ReadSizes, registers: Registers, sizes: Sizes) -> None:
    elements = _read(registers, i.atom).reshape(-1).tolist()
    for symbol, size in zip(i.symbols, elements, strict=True):
        if symbol.lo == 0 and not 0 <= size < LARGEST:
            kind = "a negative extent" if size < 0 else "an extent that is too large"
            raise ShapeError(f"in {i.op}: {kind} in {elements}")
        sizes[symbol.name] = size


def _call(context: Context, i: Call, registers: Registers, sizes: Sizes) -> None:
    """Write the results of the callee, if they are what the caller was told."""
    routine = context.image.program.routines.serving(i.callee)
    results, _ = context.invoke(routine, _all(registers, i.args))
    _put(i.outs, results, registers, sizes)


def _decide(context: Context, i: Decide, registers: Registers, sizes: Sizes) -> None:
    results = context.run(i.leaves[i.leaf(sizes)], registers, sizes)
    _put(i.outs, results, registers, sizes, learns=i.brings_sizes)


def _branch(context: Context, i: Branch, registers: Registers, sizes: Sizes) -> None:
    block = i.then if _read(registers, i.condition) else i.orelse
    results = context.run(block, registers, sizes)
    _put(i.outs, results, registers, sizes, learns=i.brings_sizes)


def _loop(context: Context, i: Loop, registers: Registers, sizes: Sizes) -> None:
    results = _at_once(context, i, registers, sizes)
    if results is not None:
        registers.update(zip(i.outs, results, strict=True))
        return
    trips, proceed = int(_read(registers, i.trips)), _read(registers, i.proceed)
    carried = [a.value.copy() if isinstance(a, Const) else registers[a] for a in i.args]
    rounds: list[list[Array]] = []
    before: Shapes = ()
    while proceed and len(rounds) < trips:
        arrays = [np.array(len(rounds)), *carried]
        if before != (shapes := shapes_of(arrays)):
            before, inside = shapes, bind_shapes(i.params, shapes, sizes, what="carried")
        registers.update(zip(i.params, arrays, strict=True))
        proceed, *results = context.run(i.body, registers, dict(inside))
        carried, rows = results[: len(carried)], results[len(carried) :]
        rounds.append(rows)
    rows = stacked(i.outs[len(carried) :], rounds, sizes)
    _put(i.outs, [*carried, *rows], registers, sizes, learns=i.brings_sizes)


def _at_once(context: Context, i: Loop, registers: Registers, sizes: Sizes) -> list[Array] | None:
    """The results of a loop by one native call; None if a round is more than one, or not alike."""
    captured = capture(Code((i,), i.outs), {}, registers, sizes, context.state)
    return None if captured is None else captured.run(())


def _refuse(_: Context, i: Refuse, _registers: Registers, sizes: Sizes) -> None:
    raise refusal(i.binding, sizes)


RUN: dict[type[Instruction], Callable[[Context, Any, Registers, Sizes], None]] = {
    RunSegment: _run_segment,
    Compute: _compute,
    ReadSizes: _read_sizes,
    Call: _call,
    Decide: _decide,
    Branch: _branch,
    Loop: _loop,
    Refuse: _refuse,
}
"""How each instruction is run: it writes what it makes, and the sizes that it brings."""


def _read(registers: Registers, atom: Atom) -> Value:
    return atom.value if isinstance(atom, Const) else registers[atom]


def _all(registers: Registers, atoms: Sequence[Atom]) -> list[Value]:
    return [_read(registers, a) for a in atoms]


def _put(
    outs: Sequence[Var],
    results: Sequence[Value],
    registers: Registers,
    sizes: Sizes,
    *,
    learns: bool = True,
) -> None:
    """Write results; where only the run could tell their shapes, check them and note the sizes."""
    registers.update(zip(outs, results, strict=True))
    if learns:
        sizes.update(bind_shapes(outs, shapes_of(results), sizes, what="result"))
