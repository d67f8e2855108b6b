"""Saving: a program, its plans, its kernels and its packed constants in one file.

The header is the program as plain data. Variables are numbers within their routine; functions
without branches, those of segments and of single ops, are text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeAlias, get_args, get_origin

import numpy as np

from bucketize.ir import Atom, Binding, Const, Function, Var, infer, without_value
from bucketize.kernel.object import Kernel
from bucketize.link.image import Image, core
from bucketize.link.plan import TABLES, Plan, agreed
from bucketize.op import Array
from bucketize.program.decision_table import Nodes
from bucketize.program.instruction import (
    Code,
    Instruction,
    KernelCall,
    Leaves,
    Segment,
    field_types,
)
from bucketize.program.program import Routine
from bucketize.release import release
from bucketize.save.container import Blob, write
from bucketize.text import constants, show
from bucketize.types import Dim, Symbol, TensorType

Json: TypeAlias = dict[str, Any]


def save(image: Image, path: str | Path) -> None:
    """Write everything that an image runs on; what was not decided yet is decided and linked.

    Raises:
        ProgramError: the file cannot be written.

    """
    program, saver = image.program, _Saver(image)
    routines = [_Encoder(saver).routine(program.decide(name)) for name in program.routines]
    header = {
        "bucketize": release(),
        "blocks": agreed(),
        "target": asdict(program.target),
        "threads": program.threads,
        "outputs": list(program.outputs),
        "routines": routines,
        "clones": {name: _facts(clone) for name, clone in program.clones.items()},
        "core": {name: saver.kernel(image.supply.core(name)) for name in core(program.threads)},
    }
    write(path, {**header, **saver.header()}, saver.blobs)


def _facts(clone: Any) -> Json:
    names = ("policy", "opt", "weight", "label")
    return {"bucket": dict(clone.bucket), **{name: getattr(clone, name) for name in names}}


@dataclass(eq=False)
class _Saver:
    """Gathers segments, kernels and constants, each once."""

    image: Image
    blobs: list[Blob] = field(default_factory=list)
    segments: dict[Segment, int] = field(default_factory=dict)
    plans: list[Json] = field(default_factory=list)
    kernels: dict[str, int] = field(default_factory=dict)
    held: dict[int, tuple[int, Array]] = field(default_factory=dict)
    """By the id of an array: its number, and the array, so that the id stays its own."""
    arrays: list[Json] = field(default_factory=list)
    packed: dict[tuple[int, str], Json] = field(default_factory=dict)

    def header(self) -> Json:
        """What was gathered."""
        packed = [[array, layout, entry] for (array, layout), entry in self.packed.items()]
        return {
            "segments": self.plans,
            "kernels": self.kernels,
            "constants": self.arrays,
            "packed": packed,
        }

    def blob(self, data: Blob) -> int:
        """The number of a blob."""
        self.blobs.append(data)
        return len(self.blobs) - 1

    def kernel(self, kernel: Kernel) -> tuple[str, int]:
        """A kernel's name, and its machine code as a blob."""
        return kernel.name, self.blob(kernel.code)

    def array(self, array: Array) -> Json:
        """An array as a blob."""
        number = self.blob(np.ascontiguousarray(array))
        return {"blob": number, "dtype": array.dtype.name, "shape": list(array.shape)}

    def function(self, fn: Function) -> Json:
        """A function without branches, and the constants that its text refers to."""
        return {"text": show(fn), "constants": [self.constant(a) for a in constants(fn)]}

    def segment(self, segment: Segment) -> int:
        """A segment's function, calls and plan."""
        if segment not in self.segments:
            self.segments[segment] = len(self.plans)
            entry: Json = self.function(segment.fn)
            self.plans.append(entry)
            for call in segment.rows:
                self.code(call)
            entry["calls"] = [self.call(c) for c in segment.every]
            plan = self.image.linked(segment).plan
            entry["types"] = [list(map(str, types)) for types in segment.types]
            entry["bounds"] = _bounds(
                s for types in segment.types for t in types for s in t.symbols()
            )
            entry["reads"] = [self.read(segment, row, k) for _, row, k in plan.constants]
            entry["plan"] = self.plan(plan)
        return self.segments[segment]

    def read(self, segment: Segment, row: int, index: int) -> tuple[int, str] | None:
        """The number and the layout of a constant that a kernel reads; None: it is a result."""
        if row < 0:
            return None
        call = segment.rows[row]
        atom = call.args[index]
        assert isinstance(atom, Const)
        return self.constant(atom.value), call.packs[index]

    def code(self, call: KernelCall) -> None:
        """The machine code of a call that runs."""
        if call.kernel not in self.kernels:
            _, self.kernels[call.kernel] = self.kernel(self.image.supply.kernel(call.kernel))

    def call(self, call: KernelCall) -> Json:
        """A kernel call, and the same by other kernels."""
        larger = [[least, self.kernel_call(other)] for least, other in call.larger]
        return {**self.kernel_call(call), "larger": larger}

    def kernel_call(self, call: KernelCall) -> Json:
        """A call by one kernel, and the constants that it wants in a layout of its own."""
        numbers: dict[str, int] = {}
        for i, layout in call.packs.items():
            atom = call.args[i]
            assert isinstance(atom, Const)
            numbers[str(i)] = self.constant(atom.value)
            if layout:
                self.pack(atom.value, layout, self.image.supply.constant(atom.value, call, i))
        return {
            "template": call.implementation.template,
            "schedule": dict(call.implementation.schedule),
            "why": call.why,
            "kernel": call.kernel,
            "packs": {str(i): layout for i, layout in call.packs.items()},
            "constants": numbers,
            "pitched": sorted(call.pitched),
            "origin": call.binding.origin,
        }

    def constant(self, value: Array) -> int:
        """The number of a constant in its own layout."""
        if id(value) not in self.held:
            self.held[id(value)] = (len(self.arrays), value)
            self.arrays.append(self.array(value))
        return self.held[id(value)][0]

    def pack(self, value: Array, layout: str, packed: Array) -> None:
        """A constant in another layout."""
        key = (self.constant(value), layout)
        if key not in self.packed:
            self.packed[key] = self.array(packed)

    def plan(self, plan: Plan) -> Json:
        """A plan: its tables as blobs, constants by number, the rest as it is."""
        plain = {f.name: getattr(plan, f.name) for f in fields(plan)}
        tables = {name: self.array(plain[name]) for name in TABLES}
        numbers = [self.constant(c.value) for c in plan.held]
        return {**plain, **tables, "held": numbers, "results": [astuple(r) for r in plan.results]}


class _Encoder:
    """One routine as plain data."""

    def __init__(self, saver: _Saver) -> None:
        self.saver = saver
        self.numbers: dict[Var, int] = {}

    def routine(self, routine: Routine) -> Json:
        inputs = [self.atom(p) for p in routine.fn.params]
        code = self.code(routine.code)
        symbols = {s.name: s for v in self.numbers for s in v.type.symbols()}
        return {
            "name": routine.name,
            "executor": routine.executor,
            "arrangement": str(routine.arrangement),
            "names": [p.name for p in routine.params],
            "bounds": _bounds(s for p in routine.params for s in p.type.symbols()),
            "inputs": inputs,
            "code": code,
            "symbols": _bounds(symbols.values()),
            "types": [str(v.type) for v in self.numbers],
        }

    def atom(self, atom: Atom) -> int | Json:
        """The number of a variable, or a constant."""
        if isinstance(atom, Const):
            return {"constant": self.saver.constant(atom.value)}
        return self.numbers.setdefault(atom, len(self.numbers))

    def atoms(self, atoms: Sequence[Atom]) -> list[int | Json]:
        return [self.atom(a) for a in atoms]

    def code(self, code: Code) -> Json:
        steps = [self.step(i) for i in code.instructions]
        return {"steps": steps, "results": self.atoms(code.results)}

    def bound(self, b: Binding) -> Json:
        """One op, as a function of what it reads."""
        params = tuple(dict.fromkeys(a for a in b.args if isinstance(a, Var)))
        seen = [without_value(a.type) if isinstance(a, Var) else a.type for a in b.args]
        types = infer(b.op, seen, b.attrs)  # as text has them: without names and known elements
        outs = tuple(Var(str(i), t) for i, t in enumerate(types))
        fn = Function("", params, (Binding(outs, b.op, b.args, b.attrs),), outs)
        ends = {"args": self.atoms(params), "outs": self.atoms(b.outs)}
        return {**self.saver.function(fn), **ends, "origin": b.origin}

    def step(self, i: Instruction) -> Json:
        """An instruction as plain data: its fields by name, the facts of its op among them."""
        types = field_types(i.name)
        step: Json = {"do": i.name}
        for name, value in i.values():
            facts = self.field(types[name], value)
            step |= facts if types[name] is Binding else {name: facts}
        return step

    def field(self, type_: Any, value: Any) -> Any:
        """A field of an instruction."""
        if get_origin(type_) is tuple:
            return [ENCODE[get_args(type_)[0]](self, v) for v in value]
        return ENCODE[type_](self, value)


ENCODE: Mapping[Any, Callable[[_Encoder, Any], Any]] = {
    Atom: _Encoder.atom,
    Var: _Encoder.atom,
    Binding: _Encoder.bound,
    Segment: lambda e, segment: e.saver.segment(segment),
    Code: _Encoder.code,
    Leaves: lambda e, leaves: [e.code(leaves[k]) for k in range(len(leaves))],
    Nodes: lambda _, nodes: list(nodes),
    Symbol: lambda _, symbol: [symbol.name, *symbol.bounds],
    Dim: lambda _, dim: str(TensorType(np.dtype(int), (dim,))),
    str: lambda _, text: text,
    bool: lambda _, flag: flag,
}
"""How a field of an instruction is saved, by its type; `save.read.DECODE` is the inverse."""


def _bounds(symbols: Any) -> Json:
    return {s.name: list(s.bounds) for s in symbols}
