"""Saving: a program, its plans, its kernels and its packed constants in one file.

The header is the program as plain data. Variables are numbers within their routine; functions
without branches, those of segments and of single ops, are text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import singledispatchmethod
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from bucketize.ir import Atom, Binding, Const, Function, Var, infer, without_value
from bucketize.kernel.object import Kernel
from bucketize.link.image import Image, core
from bucketize.link.plan import Plan, agreed
from bucketize.op import Array
from bucketize.program.instruction import (
    Branch,
    Call,
    Code,
    Compute,
    Decide,
    KernelCall,
    Loop,
    ReadSizes,
    Refuse,
    RunSegment,
    Segment,
)
from bucketize.program.program import Routine
from bucketize.release import release
from bucketize.save.container import Blob, write
from bucketize.text import constants, show
from bucketize.types import TensorType

Json: TypeAlias = dict[str, Any]

TABLES = tuple(f.name for f in fields(Plan) if f.type == "Array")
"""The fields of a plan that are arrays of words."""


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
            for call in segment.calls:
                self.code(call)
            entry["calls"] = [self.call(c) for c in segment.every]
            entry["plan"] = self.plan(self.image.linked(segment).plan)
        return self.segments[segment]

    def code(self, call: KernelCall) -> None:
        """The machine code of a call that runs."""
        if call.kernel not in self.kernels:
            _, self.kernels[call.kernel] = self.kernel(self.image.supply.kernel(call.kernel))

    def call(self, call: KernelCall) -> Json:
        """A kernel call, and the constants that its kernel wants in a layout of its own."""
        held: dict[str, int] = {}
        for i, layout in call.packs.items():
            atom = call.args[i]
            assert isinstance(atom, Const)
            held[str(i)] = self.constant(atom.value)
            if layout:
                self.pack(atom.value, layout, self.image.supply.constant(atom.value, call, i))
        return {
            "template": call.implementation.template,
            "schedule": dict(call.implementation.schedule),
            "why": call.why,
            "kernel": call.kernel,
            "packs": {str(i): layout for i, layout in call.packs.items()},
            "constants": held,
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
        """A plan: its tables as blobs, the rest as it is."""
        return {
            **{name: self.array(getattr(plan, name)) for name in TABLES},
            "symbols": list(plan.symbols),
            "constants": [list(row) for row in plan.constants],
            "held": [self.constant(c.value) for c in plan.held],
            "results": [[list(r.shape), r.source, r.index] for r in plan.results],
            "kernels": list(plan.kernels),
            "width": plan.width,
            "size": plan.size,
            "threads": plan.threads,
        }


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

    @singledispatchmethod
    def step(self, instruction: Any) -> Json:
        """An instruction as plain data; `load` reads it."""
        raise AssertionError(instruction)

    @step.register
    def _(self, i: RunSegment) -> Json:
        ends = {"args": self.atoms(i.args), "outs": self.atoms(i.outs)}
        return {"do": "run", "segment": self.saver.segment(i.segment), **ends}

    @step.register
    def _(self, i: Compute) -> Json:
        return {"do": "compute", "brings_sizes": i.brings_sizes, **self.bound(i.binding)}

    @step.register
    def _(self, i: ReadSizes) -> Json:
        names = [s.name for s in i.symbols]
        return {"do": "read_sizes", "atom": self.atom(i.atom), "symbols": names, "op": i.op}

    @step.register
    def _(self, i: Call) -> Json:
        b = i.binding
        ends = {"args": self.atoms(b.args), "outs": self.atoms(b.outs)}
        return {"do": "call", "callee": b.attrs["callee"], **ends}

    @step.register
    def _(self, i: Decide) -> Json:
        leaves = [self.code(i.leaves[k]) for k in range(len(i.leaves))]
        outs = {"outs": self.atoms(i.outs), "brings_sizes": i.brings_sizes}
        tree = {"symbols": i.symbols, "nodes": i.nodes.tolist()}
        return {"do": "decide", **tree, "leaves": leaves, **outs}

    @step.register
    def _(self, i: Branch) -> Json:
        blocks = {"then": self.code(i.then), "orelse": self.code(i.orelse)}
        outs = {"outs": self.atoms(i.outs), "brings_sizes": i.brings_sizes}
        return {"do": "branch", "condition": self.atom(i.condition), **blocks, **outs}

    @step.register
    def _(self, i: Loop) -> Json:
        ends = {"trips": self.atom(i.trips), "proceed": self.atom(i.proceed)}
        begin = {"args": self.atoms(i.args), "params": self.atoms(i.params)}
        outs = {"outs": self.atoms(i.outs), "brings_sizes": i.brings_sizes}
        body = {"body": self.code(i.body), "rounds": str(TensorType(np.dtype(int), (i.rounds,)))}
        return {"do": "loop", **ends, **begin, **body, **outs}

    @step.register
    def _(self, i: Refuse) -> Json:
        return {"do": "refuse", **self.bound(i.binding)}


def _bounds(symbols: Any) -> Json:
    return {s.name: [s.lo, s.hi] for s in symbols}
