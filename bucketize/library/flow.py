"""What a program does, as steps that native code takes one after the other: for a library.

Blocks and calls are put in line, with jumps between them. Each tensor has a slot, each symbol of
each call a size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bucketize.errors import ProgramError
from bucketize.ir import NO_BUCKET, Atom, Const, Function, Var
from bucketize.library.block import KIND, UNKNOWN
from bucketize.op import Array
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
from bucketize.program.program import Program, Routine
from bucketize.types import MOST_EXTENT, AnyDim, Dim, Expr, Symbol, TensorType, Type, symbols

NOT_TOLD = Symbol("?")
ONE_BOOL = TensorType(np.dtype(np.bool_), ())


@dataclass(eq=False)
class Label:
    """A step that others go to."""

    at: int = -1


@dataclass(frozen=True, eq=False)
class Slot:
    """What holds a tensor."""

    type: Type
    constant: Array | None = None


@dataclass(frozen=True, eq=False)
class Step:
    """What is done; on what are numbers, texts, labels and segments, or tuples of them."""

    kind: KIND
    operands: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class _Frame:
    """What a call of a routine knows of its variables and symbols, by number."""

    routine: Routine
    slots: dict[Atom, int]
    sizes: dict[str, int] = field(default_factory=dict)

    def inside(self) -> _Frame:
        """The frame of a block: sizes that it learns are its own."""
        return replace(self, sizes=dict(self.sizes))


class Flow:
    """The steps of a program, its slots and how many sizes they have."""

    def __init__(self, program: Program) -> None:
        """Raise ProgramError, which names the operator, if numpy computes anything."""
        self.program = program
        self.steps: list[Step] = []
        self.slots: list[Slot] = []
        self.n_sizes = UNKNOWN + 1
        self._constants: dict[int, int] = {}
        main = program.decide("main")
        inputs = [self._slot(p.type) for p in main.params]
        outputs = [self._slot(r.type) for r in main.code.results]
        self._code(main.code, self._frame(main, inputs), outputs)
        self._step(KIND.end)
        self.shapes = len(self.steps)
        """From which step on the shapes of outputs are told."""
        self._shapes(main.code, self._frame(main, inputs), outputs)
        self._step(KIND.end)

    def segments(self) -> list[Segment]:
        """The segments of all steps, each once."""
        operands = (o for step in self.steps for o in step.operands)
        return list(dict.fromkeys(o for o in operands if isinstance(o, Segment)))

    def _step(self, kind: KIND, *operands: Any) -> None:
        self.steps.append(Step(kind, operands))

    def _mark(self, label: Label) -> None:
        label.at = len(self.steps)

    def _slot(self, type_: Type, constant: Array | None = None) -> int:
        if not isinstance(type_, TensorType):
            said = "tensors of known rank, no sequences and nothing that may be absent"
            raise ProgramError(f"a library takes {said}; got {type_}")
        self.slots.append(Slot(type_, constant))
        return len(self.slots) - 1

    def _place(self, frame: _Frame, atom: Atom) -> int:
        """The slot of an atom."""
        if isinstance(atom, Const):
            key = id(atom.value)
            if key not in self._constants:
                self._constants[key] = self._slot(atom.type, atom.value)
            return self._constants[key]
        if atom not in frame.slots:
            frame.slots[atom] = self._slot(atom.type)
        return frame.slots[atom]

    def _places(self, frame: _Frame, atoms: Sequence[Atom]) -> tuple[int, ...]:
        return tuple(self._place(frame, a) for a in atoms)

    def _copy(self, here: int, there: int) -> None:
        if here != there:
            self._step(KIND.copy, here, there)

    def _frame(self, routine: Routine, inputs: Sequence[int]) -> _Frame:
        """The frame of a call, whose inputs are held against their types."""
        frame = _Frame(routine, dict(zip(routine.fn.params, inputs, strict=True)))
        self._bind(frame, routine.params, inputs, "input")
        return frame

    # Sizes.

    def _bind(
        self, frame: _Frame, variables: Sequence[Var], slots: Sequence[int], what: str
    ) -> None:
        """Hold tensors against types, and learn the sizes of symbols that are met first."""
        rows = [
            self._axis(frame, (slot, axis), dim, f"{what} {variable.name}: dim {axis} must be")
            for variable, slot in zip(variables, slots, strict=True)
            for axis, dim in enumerate(variable.type.shape)
            if not isinstance(dim, AnyDim)
        ]
        self._hold([row for row in rows if row[3]])
        later = [row for row in rows if not row[3]]
        derived = [row[2] for row in later if isinstance(row[2], Expr)]
        numbers = dict(zip(derived, self._sized(frame, derived), strict=True))
        self._hold([(*row[:2], numbers.get(row[2], row[2]), *row[3:]) for row in later])

    def _axis(self, frame: _Frame, at: tuple[int, int], dim: Dim, where: str) -> tuple[Any, ...]:
        """A row of `DIM`; an expression stands for its size."""
        if isinstance(dim, Symbol):
            is_first = dim.name not in frame.sizes
            number = frame.sizes.setdefault(dim.name, self.n_sizes)
            self.n_sizes += is_first
            most = MOST_EXTENT if dim.hi is None else dim.hi
            texts = _text(where, f"{dim.name}="), _text(where, f"{dim.name} in {dim.range}", "")
            return (*at, number, int(is_first), dim.lo, most, dim.step, *texts)
        if isinstance(dim, int):
            return (*at, -1, 0, dim, dim, 1, *[_text(where, "")] * 2)
        return (*at, dim, 0, 0, MOST_EXTENT, 1, *[_text(where, f"{dim}=")] * 2)

    def _hold(self, rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            self._step(KIND.bind, tuple(rows), len(rows))

    def _sized(self, frame: _Frame, dims: Sequence[Dim]) -> Sequence[int]:
        """The sizes, one behind the other, that dims have from here on; -1 of what is not told."""
        if not dims:
            return ()
        dims = tuple(d if _is_told(frame, d) else NOT_TOLD for d in dims)
        variable = Var("", TensorType(np.dtype(np.int64), dims))
        segment = Segment(Function("", (variable,), (), (variable,)), ())
        first, self.n_sizes = self.n_sizes, self.n_sizes + len(dims)
        self._step(KIND.sizes, segment, first, _numbers(frame, segment))
        return range(first, self.n_sizes)

    def _shape(self, frame: _Frame, slot: int, dims: Sequence[Dim]) -> None:
        """Give a tensor a shape."""
        if dims:
            self._step(KIND.shaped, slot, self._sized(frame, dims)[0])

    def _shapes(self, code: Code, frame: _Frame, outputs: Sequence[int]) -> None:
        """Tell the shapes of outputs, as far as they follow from those of inputs."""
        match code.instructions:
            case (Decide() as i,) if code.results == i.outs:
                self._decision(i, frame, lambda leaf: self._shapes(leaf, frame, outputs))
            case (Call() as i,) if code.results == i.outs:
                self._shapes_behind(i, frame, outputs)
            case (Refuse() as i,):
                self._refuse(i, frame)
            case _:
                for result, slot in zip(code.results, outputs, strict=True):
                    self._shape(frame, slot, result.type.shape)

    def _shapes_behind(self, i: Call, frame: _Frame, outputs: Sequence[int]) -> None:
        callee = self.program.decide(i.callee)
        self._shapes(callee.code, self._frame(callee, self._places(frame, i.args)), outputs)

    # Instructions.

    def _code(self, code: Code, frame: _Frame, into: Sequence[int]) -> None:
        """Run a block, whose results go to these slots."""
        straight = {o for i in code.instructions if not isinstance(i, Loop) for o in _outs(i)}
        for result, slot in zip(code.results, into, strict=True):
            if result in straight:
                frame.slots.setdefault(result, slot)
        self._instructions(code, frame)
        for result, slot in zip(code.results, into, strict=True):
            self._copy(self._place(frame, result), slot)

    def _instructions(self, code: Code, frame: _Frame) -> None:
        for i in code.instructions:
            FLOW[type(i)](self, i, frame)

    def _run(self, i: RunSegment, frame: _Frame) -> None:
        places = self._places(frame, i.args), self._places(frame, i.outs)
        self._step(KIND.run, i.segment, *places, _numbers(frame, i.segment))

    def _compute(self, i: Compute, frame: _Frame) -> None:
        name, op = frame.routine.name, i.binding.op.name
        said = f"{name} is no native code alone (numpy computes {op}): no library has it"
        raise ProgramError(said)

    def _read(self, i: ReadSizes, frame: _Frame) -> None:
        frame.sizes.update({s.name: self.n_sizes + k for k, s in enumerate(i.symbols)})
        self.n_sizes += len(i.symbols)
        numbers = tuple(frame.sizes[s.name] for s in i.symbols)
        is_extent = all(s.lo == 0 for s in i.symbols)
        text = f"in {i.op}: no extent can be %lld" if is_extent else 0
        self._step(KIND.read, self._place(frame, i.atom), numbers, len(numbers), text)

    def _call(self, i: Call, frame: _Frame) -> None:
        callee, outs = self.program.decide(i.callee), self._places(frame, i.outs)
        self._code(callee.code, self._frame(callee, self._places(frame, i.args)), outs)
        self._bind(frame, i.outs, outs, "result")

    def _decide(self, i: Decide, frame: _Frame) -> None:
        outs = self._places(frame, i.outs)
        self._decision(i, frame, lambda leaf: self._code(leaf, frame.inside(), outs))
        self._learn(i, frame)

    def _decision(self, i: Decide, frame: _Frame, behind: Callable[[Code], None]) -> None:
        nodes, labels, end = list(i.nodes), tuple(Label() for _ in range(len(i.leaves))), Label()
        nodes[::4] = [frame.sizes[i.symbols[n]] for n in nodes[::4]]
        self._step(KIND.decide, tuple(nodes), labels)
        for k, label in enumerate(labels):
            self._mark(label)
            behind(i.leaves[k])
            self._step(KIND.jump, end)
        self._mark(end)

    def _branch(self, i: Branch, frame: _Frame) -> None:
        outs, orelse, end = self._places(frame, i.outs), Label(), Label()
        self._step(KIND.test, self._place(frame, i.condition), orelse)
        self._code(i.then, frame.inside(), outs)
        self._step(KIND.jump, end)
        self._mark(orelse)
        self._code(i.orelse, frame.inside(), outs)
        self._mark(end)
        self._learn(i, frame)

    def _loop(self, i: Loop, frame: _Frame) -> None:
        count = len(i.args)
        number, *carried = params = [self._slot(p.type) for p in i.params]
        going, rows = self._slot(ONE_BOOL), [self._slot(o.type) for o in i.outs[count:]]
        trips, head, end = self._place(frame, i.trips), Label(), Label()
        self._copy(self._place(frame, i.proceed), going)
        for arg, slot in zip(i.args, carried, strict=True):
            self._copy(self._place(frame, arg), slot)
        self._step(KIND.begin, number)
        self._mark(head)
        self._step(KIND.test, going, end)
        self._step(KIND.less, number, trips, end)
        inner = frame.inside()
        inner.slots.update(zip(i.params, params, strict=True))
        self._bind(inner, i.params, params, "carried")
        self._instructions(i.body, inner)
        proceed, results = i.body.results[0], self._places(inner, i.body.results[1:])
        for row, slot, out in zip(results[count:], rows, i.outs[count:], strict=True):
            text = f"in loop: rows of {_escaped(repr(out))} differ: %lld and %lld"
            self._step(KIND.append, row, slot, number, text)
        self._copy(self._place(inner, proceed), going)
        self._carry(results[:count], carried, self._places(inner, _made(i.body)))
        self._step(KIND.next, number, head)
        self._mark(end)
        self._no_rows(i.outs[count:], frame, rows, number)
        frame.slots.update(zip(i.outs, [*carried, *rows], strict=True))
        self._learn(i, frame)

    def _carry(self, here: Sequence[int], there: Sequence[int], own: Sequence[int]) -> None:
        """Move what a round made to where the next one reads it; copy what is there for others."""
        moves: dict[int, int] = {}
        for result, slot in zip(here, there, strict=True):
            if result not in own or result in moves:
                between = self._slot(self.slots[slot].type)
                self._copy(result, between)
                moves[between] = slot
            else:
                moves[result] = slot
        for result, slot in moves.items():
            self._step(KIND.swap, result, slot)

    def _no_rows(
        self, outs: Sequence[Var], frame: _Frame, rows: Sequence[int], number: int
    ) -> None:
        """Have no rows of no round: an extent that only rounds could tell is 0."""
        if not outs:
            return
        none, end = Label(), Label()
        self._step(KIND.test, number, none)
        self._step(KIND.jump, end)
        self._mark(none)
        for out, slot in zip(outs, rows, strict=True):
            axes = out.type.shape[1:]
            self._shape(frame, slot, (0, *(d if _is_told(frame, d) else 0 for d in axes)))
        self._mark(end)

    def _refuse(self, i: Refuse, _frame: _Frame) -> None:
        is_uncovered = i.binding.op is NO_BUCKET
        fault = "no bucket holds" if is_uncovered else "the model is not legal at"
        self._step(KIND.fail, _escaped(i.binding.attrs.get("reason", f"{fault} these sizes")))

    def _learn(self, i: Decide | Branch | Loop, frame: _Frame) -> None:
        """Hold results of which only the run can tell the shapes against their types."""
        if i.brings_sizes:
            self._bind(frame, i.outs, self._places(frame, i.outs), "result")


FLOW: Mapping[type[Instruction], Callable[[Flow, Any, _Frame], None]] = {
    RunSegment: Flow._run,
    Compute: Flow._compute,
    ReadSizes: Flow._read,
    Call: Flow._call,
    Branch: Flow._branch,
    Decide: Flow._decide,
    Loop: Flow._loop,
    Refuse: Flow._refuse,
}
"""How the steps of each instruction are written."""


def _outs(i: Instruction) -> Sequence[Var]:
    outs: Sequence[Var] = getattr(i, "outs", ())
    return outs


def _made(code: Code) -> list[Var]:
    """What the instructions of a block make."""
    return [out for i in code.instructions for out in _outs(i)]


def _is_told(frame: _Frame, dim: Dim) -> bool:
    """Whether the sizes so far tell a dim."""
    return not isinstance(dim, AnyDim) and all(s.name in frame.sizes for s in symbols(dim))


def _numbers(frame: _Frame, segment: Segment) -> tuple[int, ...]:
    """The sizes of the symbols of a segment."""
    return tuple(frame.sizes.get(s, UNKNOWN) for s in segment.symbols)


def _text(where: str, wanted: str, number: str = "%lld") -> str:
    """What is wrong with an axis, as a format of C."""
    return f"{_escaped(f'{where} {wanted}')}{number}, got %lld"


def _escaped(text: str) -> str:
    """A text as a format of C shows it."""
    return text.replace("%", "%%")
