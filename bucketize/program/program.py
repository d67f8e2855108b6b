"""The program of a module: for each function the instructions, for each kernel what it is.

It is decided, not linked: a value that is printed, compared, saved and loaded.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bucketize.errors import CompileError
from bucketize.ir import ILLEGAL, Atom, Binding, Clone, Const, Function, Var
from bucketize.lower.arrangement import USUAL, Arrangement
from bucketize.machine.target import Target
from bucketize.program.instruction import Code, Compute, KernelCall, Refuse, Segment, instructions
from bucketize.program.lazy import Lazy
from bucketize.text import constants, show


@dataclass(frozen=True, eq=False)
class Routine:
    """A function as instructions."""

    name: str
    params: tuple[Var, ...]
    """Its inputs, with the bounds of its bucket."""
    fn: Function
    """What the code was cut from, perhaps with wider bounds; its parameters are what code reads."""
    code: Code
    executor: str
    """"graph" if it is static and one segment, else "vm"."""
    arrangement: Arrangement = USUAL
    """How it was laid out and fused."""

    def __repr__(self) -> str:
        params = ", ".join(map(repr, self.params))
        return f"<routine {self.name}({params}), {self.executor} executor, {self.code!r}>"

    @property
    def refusal(self) -> str:
        """Why it refuses every run, as it is not legal; empty if it may run."""
        refused = [i.binding for i in self.code.instructions if isinstance(i, Refuse)]
        return next((b.attrs["reason"] for b in refused if b.op is ILLEGAL), "")

    def segments(self) -> Iterator[Segment]:
        """Segments that it runs, of the blocks that are decided so far."""
        values = (value for i in instructions(self.code) for _, value in i.values())
        yield from (value for value in values if isinstance(value, Segment))

    def calls(self) -> Iterator[KernelCall]:
        """The kernels of these segments."""
        yield from (call for segment in self.segments() for call in segment.calls)

    def on_host(self) -> Iterator[Binding]:
        """The ops that numpy computes though their shapes do not depend on values."""
        steps = instructions(self.code)
        yield from (i.binding for i in steps if isinstance(i, Compute) and not i.brings_sizes)


# --- the program ---------------------------------------------------------------------------------


class Routines(Lazy[str, Routine], Mapping[str, Routine]):
    """Routines by name, each decided when first asked for."""

    def __init__(
        self,
        names: Mapping[str, object],
        decide: Callable[[str], Routine],
        params: Callable[[str], tuple[Var, ...]] | None = None,
    ) -> None:
        """None is decided yet; `params` tells the inputs of one without deciding it."""
        super().__init__(decide)
        self._names, self._params = names, params
        self.is_closed = False
        """Whether what was not decided so far stays undecided."""
        self.admitted: set[str] = set()
        """What may be decided all the same."""
        self.standby: dict[str, Routine] = {}
        """What calls run in place of a routine, for as long as that is not ready."""
        self.turn = 0
        """How often that changed: who remembers what serves a call asks again."""

    def stand_in(self, standby: Mapping[str, Routine]) -> None:
        """Have calls of routines run others."""
        self.standby |= standby
        self.turn += 1

    def take_over(self, names: Iterable[str]) -> None:
        """Have calls of these run themselves."""
        for name in names:
            self.standby.pop(name, None)
        self.turn += 1

    def begun(self) -> dict[str, Routine]:
        """The routines decided so far, and what calls begin with, which is decided for this."""
        if "main" in self._names:
            self["main"]
        return self.made()

    def params(self, name: str) -> tuple[Var, ...]:
        """The inputs of a routine, which need not be decided for that."""
        return self[name].params if self._params is None else self._params(name)

    def serving(self, name: str) -> Routine:
        """What a call of a routine runs now."""
        return self.standby.get(name) or self[name]

    def make(self, name: str) -> Routine:
        """Decide one; raises CompileError where that is over."""
        if self.is_closed and name not in self.admitted:
            raise CompileError(f"{name} is not compiled, and compiling at a call is forbidden")
        return super().make(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __repr__(self) -> str:
        return f"<{len(self)} routines, {len(self.made())} of them decided>"


@dataclass(frozen=True, eq=False)
class Program:
    """Everything decided for a module; printed, compared, saved; `link` makes it run.

    Programs are equal if their texts are, and the constants that these mention.
    """

    routines: Routines
    clones: Mapping[str, Clone]
    outputs: tuple[str, ...]
    """The names of the results of `main`."""
    threads: int
    target: Target
    """What the kernels are for."""
    sources: dict[str, str] = field(default_factory=dict)
    """The kernels' sources by name, of the routines decided so far."""

    def __repr__(self) -> str:
        """Short, unlike `str`, which is the whole text."""
        parts = f"{self.routines!r}, {len(self.sources)} kernels"
        return f"<program for {self.target.name}, {self.threads} threads: {parts}>"

    def __str__(self) -> str:
        return "\n".join(_Text(self).lines())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Program):
            return NotImplemented
        if str(self) != str(other):
            return False
        pairs = zip(_held(self), _held(other), strict=True)
        return all(a is b or a.tobytes() == b.tobytes() for a, b in pairs)

    __hash__ = None  # type: ignore[assignment]  # what is decided of it grows

    def decide(self, name: str, *, whole: bool = True) -> Routine:
        """The routine of a function; `whole`, the blocks below its decisions, too."""
        routine = self.routines[name]
        deque(instructions(routine.code, whole=whole), maxlen=0)
        return routine

    def segments(self) -> Iterator[Segment]:
        """The distinct segments decided so far."""
        routines = self.routines.begun().values()
        yield from dict.fromkeys(s for routine in routines for s in routine.segments())


def threads_text(count: int) -> str:
    """`2 threads`."""
    return f"{count} thread{'s' * (count > 1)}"


class _Text:
    """A program as text: routines as instructions, then the segments that they run."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.numbers = {segment: i for i, segment in enumerate(program.segments())}
        self.variables: dict[Var, str] = {}

    def lines(self) -> Iterator[str]:
        program = self.program
        threads = threads_text(program.threads)
        yield f"program for {program.target.name}, {threads}: {', '.join(program.outputs)}"
        for routine in program.routines.begun().values():
            inputs = ", ".join(f"{p.name}: {p.type}" for p in routine.params)
            arranged = "" if routine.arrangement == USUAL else f", {routine.arrangement}"
            yield f"{routine.name}({inputs}) on the {routine.executor} executor{arranged}"
            pairs = zip(routine.fn.params, routine.params, strict=True)
            self.variables = {p: f"%{named.name}" for p, named in pairs}
            yield from self.code(routine.code, 1)
        for segment, number in self.numbers.items():
            yield f"segment {number}"
            yield from (f"  {line}" for line in show(segment.fn).splitlines())
            yield from (f"  {line}" for call in segment.calls for line in str(call).splitlines())

    def code(self, code: Code, depth: int) -> Iterator[str]:
        for i in code.instructions:
            values = {name: self.value(value) for name, value in i.values()}
            yield "  " * depth + i.text.format_map(values)
            for title, block in i.blocks():
                yield "  " * depth + title
                yield from self.code(block, depth + 1)
        yield "  " * depth + f"return {self.atoms(code.results)}"

    def atoms(self, atoms: Sequence[Atom]) -> str:
        """Variables, numbered as they are met, and the types of constants."""
        return ", ".join(f"{self.name(a)}: {a.type}" for a in atoms) or "nothing"

    def name(self, atom: Atom) -> str:
        if not isinstance(atom, Var):
            return "const"
        return self.variables.setdefault(atom, f"%{len(self.variables)}")

    def value(self, value: Any) -> str:
        """A field of an instruction."""
        match value:
            case Var() | Const():
                return self.atoms([value])
            case Binding(op=op, args=args, outs=outs, attrs=attrs):
                shown = {k: v for k, v in attrs.items() if not isinstance(v, Function)}
                listed = ", ".join(f"{k}={v}" for k, v in shown.items() if k != "types")
                return f"{op.name}({listed}) on {self.atoms(args)} -> {self.atoms(outs)}"
            case Segment():
                return f"segment {self.numbers[value]}"
            case tuple():
                return ", ".join(map(self.value, value)) or "nothing"
            case _:
                return str(value.tolist() if isinstance(value, array) else value)


def _held(program: Program) -> list[np.ndarray]:
    """The constants that the text of a program refers to, in order."""
    return [array for s in program.segments() for array in constants(s.fn)]
