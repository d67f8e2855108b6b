"""A saved program: read from its file as far as it is asked for."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from operator import index
from typing import Any, TypeAlias, get_args, get_origin
from weakref import WeakValueDictionary

from bucketize.errors import KernelError
from bucketize.fork import ThreadLock
from bucketize.ir import Atom, Binding, Clone, Const, Function, Var
from bucketize.kernel.object import Kernel
from bucketize.kernel.object import load as load_object
from bucketize.kernel.schedule import Implementation
from bucketize.kernel.workload import workload_of
from bucketize.link.memory import aligned
from bucketize.link.plan import TABLES, Plan, Result, agreed
from bucketize.lower.arrangement import Arrangement
from bucketize.machine.speed import speed_of
from bucketize.machine.target import Processor, Target
from bucketize.op import Array, Movement
from bucketize.ops.dim import from_dims
from bucketize.program.decision_table import Nodes
from bucketize.program.instruction import (
    KINDS,
    Code,
    Instruction,
    KernelCall,
    Leaves,
    Segment,
    field_types,
    told,
)
from bucketize.program.program import Program, Routine, Routines
from bucketize.release import release
from bucketize.save.container import File, sound
from bucketize.text import parse_function, parse_type
from bucketize.types import Dim, Symbol, Type

Json: TypeAlias = Mapping[str, Any]


class SavedProgram:
    """A file as the supply of an image: `link.image.Supply`."""

    def __init__(self, file: File) -> None:
        """Nothing but the header is read before it is asked for."""
        self.file = file
        self.header = file.header
        self._kernels: dict[str, Kernel] = {}
        self._consts: dict[int, Const] = {}
        self._numbers: dict[int, int] = {}
        """The number of a constant, by the id of its array."""
        self._packed = {(i, layout): entry for i, layout, entry in self.header["packed"]}
        self._arrays: dict[tuple[int, str], Array] = {}
        self._segments = WeakValueDictionary[int, StoredSegment]()
        """Weak, for they know the file, and weights are not to be kept until a collection."""
        self.reading = ThreadLock()

    def foreign(self) -> str | None:
        """Why the machine code is of no use here; None if it is."""
        mine, theirs = release(), self.header["bucketize"]
        if mine != theirs:
            return f"is of bucketize {theirs}, this is {mine}"
        there = self._target()
        if misfit := there.processor.misfit:
            return f"was compiled for {there.name}, and does not run here: it needs {misfit}"
        same = self.header["blocks"] == agreed()
        return None if same else f"is of another build of bucketize {mine}, whose files differ"

    def _target(self) -> Target:
        with sound(self.file.path):
            return _target(self.header["target"])

    def program(self) -> Program:
        """The program; each routine is read when it is asked for."""
        entries = {entry["name"]: entry for entry in self.header["routines"]}
        routines = Routines(
            entries,
            lambda name: self._routine(entries[name]),
            lambda name: self._params(entries[name]),
        )
        clones = {name: _clone(facts) for name, facts in self.header["clones"].items()}
        target = self._target()
        return Program(
            routines, clones, tuple(self.header["outputs"]), self.header["threads"], target
        )

    def _params(self, entry: Json) -> tuple[Var, ...]:
        with sound(self.file.path):
            return _Decoder(self, entry).params()

    def _routine(self, entry: Json) -> Routine:
        with sound(self.file.path):
            return _Decoder(self, entry).routine()

    # What an image asks for.

    def core(self, name: str) -> Kernel:
        return self._loaded(*self.header["core"][name])

    def plan(self, segment: Segment) -> Plan:
        with sound(self.file.path):
            stored = _entry(segment)["plan"]
            decoded: Json = {
                **{name: self._array(stored[name]) for name in TABLES},
                "symbols": tuple(stored["symbols"]),
                "constants": tuple(tuple(row) for row in stored["constants"]),
                "held": tuple(self.const(i) for i in stored["held"]),
                "results": tuple(Result(tuple(s), *rest) for s, *rest in stored["results"]),
                "kernels": tuple(stored["kernels"]),
            }
            return Plan(**{**stored, **decoded})

    def kernel(self, name: str) -> Kernel:
        if name not in self._kernels:
            with sound(self.file.path):
                self._kernels[name] = self._loaded(name, self.header["kernels"][name])
        return self._kernels[name]

    def _loaded(self, name: str, blob: int) -> Kernel:
        code = bytes(self.file.blob(blob))
        try:
            return Kernel(name, code, load_object(name, code))
        except KernelError as e:
            e.add_note(f"in {self.file.path}")
            raise

    def kernels(self) -> dict[str, Kernel]:
        return dict(self._kernels)

    def constant(self, value: Array, call: KernelCall | None, argument: int) -> Array:
        with sound(self.file.path):
            number, layout = self._numbers[id(value)], "" if call is None else call.packs[argument]
            return self._constant(number, layout)

    def constants(self, segment: Segment) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        with sound(self.file.path):
            entry = _entry(segment)
            plan, reads = entry["plan"], entry["reads"]
            results = tuple(self._constant(number, "") for number in plan["held"])
            constants = tuple(
                results[k] if read is None else self._constant(*read)
                for (*_, k), read in zip(plan["constants"], reads, strict=True)
            )
            return constants, results

    def _constant(self, number: int, layout: str) -> Array:
        key = (number, layout)
        if key not in self._arrays:
            entry = self._packed[key] if layout else self.header["constants"][number]
            self._arrays.setdefault(key, aligned(self._array(entry)))
        return self._arrays[key]

    def constant_bytes(self) -> int:
        return sum(array.nbytes for array in self._arrays.values())

    # What decoding asks for.

    def _array(self, entry: Json, *, check: bool = True) -> Array:
        return self.file.array(entry["blob"], entry["dtype"], entry["shape"], check=check)

    def const(self, number: int) -> Const:
        """A constant in its own layout, one for all; it is checked when a kernel reads it."""
        with self.reading:
            if number not in self._consts:
                entry = self.header["constants"][number]
                const = Const(self._array(entry, check=False))
                self._consts[number] = const
                self._numbers[id(const.value)] = number
            return self._consts[number]

    def function(self, entry: Json) -> Function:
        """A function without branches."""
        table = [self.const(i).value for i in entry["constants"]]
        return parse_function(entry["text"], table)

    def check(self, numbers: Iterable[int] | None = None) -> None:
        """Constants in their own layout, all or some, are what was saved."""
        entries = self.header["constants"]
        for number in range(len(entries)) if numbers is None else numbers:
            self.file.blob(entries[number]["blob"])

    def call(self, b: Binding, facts: Json) -> KernelCall:
        """A kernel call; its constants are the file's, whatever the text says of them."""
        b = replace(b, origin=tuple(facts["origin"]))
        workload, args = workload_of(b)
        constants = {int(i): self.const(number) for i, number in facts["constants"].items()}
        for i, const in constants.items():
            if told([const.type]) != told([args[i].type]):
                raise ValueError(f"a constant of {const.type} stands where {args[i].type} is read")
        args = tuple(constants.get(i, a) for i, a in enumerate(args))
        implementation = Implementation(facts["template"], facts["schedule"])
        packs = {int(i): layout for i, layout in facts["packs"].items()}
        pitched = frozenset(facts["pitched"])
        why, kernel = facts["why"], facts["kernel"]
        call = KernelCall(b, workload, args, implementation, why, kernel, packs, pitched)
        others = facts.get("larger", ())  # of these none has others
        larger = tuple((least, self.call(b, other)) for least, other in others)
        return replace(call, larger=larger) if larger else call

    def segment(self, number: int) -> Segment:
        """A segment, one object for all who run it."""
        with self.reading:
            segment = self._segments.get(number)
            if segment is None:
                segment = StoredSegment(self, self.header["segments"][number])
                self._segments[number] = segment
            return segment


class StoredSegment(Segment):
    """A segment whose function is read when somebody asks what it computes: a run does not."""

    def __init__(self, stored: SavedProgram, entry: Json) -> None:
        """Nothing is read yet."""
        vars(self).update(stored=stored, entry=entry)  # it is as frozen as others

    stored: SavedProgram
    entry: Json

    @cached_property
    def types(self) -> tuple[tuple[Type, ...], tuple[Type, ...]]:
        """The types of parameters and results, by the file."""
        bounds = _symbols(self.entry["bounds"])
        params, results = (
            tuple(parse_type(text, bounds) for text in types) for types in self.entry["types"]
        )
        return params, results

    @property
    def fn(self) -> Function:
        return self._content[0]

    @property
    def every(self) -> tuple[KernelCall, ...]:
        return self._content[1]

    @property
    def _content(self) -> tuple[Function, tuple[KernelCall, ...]]:
        """Read once, by one thread: the kernels are those of the function's own bindings."""
        with self.stored.reading:
            if "content" not in vars(self):
                with sound(self.stored.file.path):
                    fn = self._function()
                    vars(self)["content"] = fn, self._kernels(fn)
            content: tuple[Function, tuple[KernelCall, ...]] = vars(self)["content"]
            return content

    def _function(self) -> Function:
        fn = self.stored.function(self.entry)
        for mine, theirs in zip((fn.params, fn.results), self.types, strict=True):
            read, types = told(a.type for a in mine), told(theirs)
            if read != types:
                raise ValueError(f"a segment of types {types} is a function of types {read}")
        return fn

    def _kernels(self, fn: Function) -> tuple[KernelCall, ...]:
        kernels = [
            b for b in fn.body if b.op.movement is not Movement.VIEW and b.op is not from_dims
        ]
        pairs = zip(kernels, self.entry["calls"], strict=True)
        return tuple(self.stored.call(b, facts) for b, facts in pairs)


def _entry(segment: Segment) -> Json:
    assert isinstance(segment, StoredSegment)
    return segment.entry


def _target(facts: Json) -> Target:
    values = _known(Target, facts)
    values |= {n: speed_of(values[n]) for n in ("speed", "beside") if n in values}
    its = Processor(**_known(Processor, facts["processor"]))
    return Target(**{**values, "processor": its})


def _known(kind: type[Target | Processor], facts: Json) -> dict[str, Any]:
    """The facts that are fields: another version's may have others."""
    return {f.name: facts[f.name] for f in fields(kind) if f.name in facts}


def _clone(facts: Json) -> Clone:
    bucket = {name: (lo, hi) for name, (lo, hi) in facts["bucket"].items()}
    return Clone(bucket, facts["policy"], facts["opt"], facts["weight"], facts["label"])


class _Decoder:
    """One routine from plain data: the inverse of `save.write._Encoder`."""

    def __init__(self, stored: SavedProgram, entry: Json) -> None:
        self.stored, self.entry = stored, entry
        self.symbols = _symbols(entry["symbols"])
        self.vars = [
            Var(str(i), parse_type(text, self.symbols)) for i, text in enumerate(entry["types"])
        ]

    def inputs(self) -> tuple[Var, ...]:
        """The variables that the code begins with."""
        return tuple(self.vars[i] for i in self.entry["inputs"])

    def params(self) -> tuple[Var, ...]:
        """The parameters, with names and bounds that calls have, which are within the code's."""
        narrow = _symbols(self.entry["bounds"])
        for name, symbol in narrow.items():
            wide = self.symbols[name]
            ends = wide.hi is None or (symbol.hi is not None and symbol.hi <= wide.hi)
            if not (wide.lo <= symbol.lo and ends and symbol.step % wide.step == 0):
                raise ValueError(f"calls of {symbol.option} reach code of {wide.option}")
        return tuple(
            Var(name, v.type.substitute(narrow))
            for name, v in zip(self.entry["names"], self.inputs(), strict=True)
        )

    def routine(self) -> Routine:
        entry = self.entry
        inputs, params = self.inputs(), self.params()
        code = self.code(entry["code"])
        fn = Function(entry["name"], inputs, (), code.results)
        arrangement = Arrangement.parse(entry["arrangement"])
        return Routine(entry["name"], params, fn, code, entry["executor"], arrangement)

    def atom(self, number: int | Json) -> Atom:
        if isinstance(number, int):
            return self.vars[number]
        self.stored.check([number["constant"]])
        return self.stored.const(number["constant"])

    def var(self, number: int) -> Var:
        return self.vars[number]

    def code(self, entry: Json) -> Code:
        steps = tuple(self.step(step) for step in entry["steps"])
        return Code(steps, tuple(self.atom(r) for r in entry["results"]))

    def leaf(self, entry: Json) -> Code:
        """A block that is read when it is asked for."""
        with sound(self.stored.file.path):
            return self.code(entry)

    def bound(self, step: Json) -> Binding:
        """One op, on the routine's variables."""
        self.stored.check(step["constants"])
        fn = self.stored.function(step)
        (b,) = fn.body
        env = dict(zip(fn.params, map(self.var, step["args"]), strict=True))
        args = tuple(env[a] if isinstance(a, Var) else a for a in b.args)
        outs = tuple(map(self.var, step["outs"]))
        return Binding(outs, b.op, args, b.attrs, tuple(step["origin"]))

    def step(self, step: Json) -> Instruction:
        """An instruction: the inverse of `save.write._Encoder.step`."""
        types = field_types(step["do"])
        instruction = KINDS[step["do"]](**{n: self.field(t, n, step) for n, t in types.items()})
        instruction.check()
        return instruction

    def field(self, type_: Any, name: str, step: Json) -> Any:
        """A field of an instruction."""
        if type_ is Binding:
            return self.bound(step)
        if get_origin(type_) is tuple:
            return tuple(DECODE[get_args(type_)[0]](self, facts) for facts in step[name])
        return DECODE[type_](self, step[name])

    def symbol(self, saved: Sequence[Any]) -> Symbol:
        symbol = Symbol(name := saved[0], *saved[1:])
        if symbol != (own := self.symbols.get(name, symbol)):
            raise ValueError(f"{symbol.option} is read where code is of {own.option}")
        return symbol

    def dim(self, text: str) -> Dim:
        (dim,) = parse_type(text, self.symbols).shape
        return dim


DECODE: Mapping[Any, Callable[[_Decoder, Any], Any]] = {
    Atom: _Decoder.atom,
    Var: _Decoder.var,
    Segment: lambda d, number: d.stored.segment(number),
    Code: _Decoder.code,
    Leaves: lambda d, entries: Leaves(entries, d.leaf),
    Nodes: lambda _, nodes: array("q", nodes),
    Symbol: _Decoder.symbol,
    Dim: _Decoder.dim,
    str: lambda _, text: text,
    bool: lambda _, flag: flag,
}
"""How a field of an instruction is read, by its type; an op's facts stand in the step itself."""


def _symbols(bounds: Json) -> dict[str, Symbol]:
    return {
        name: Symbol(name, index(lo), None if hi is None else index(hi), *map(index, step))
        for name, (lo, hi, *step) in bounds.items()
    }
