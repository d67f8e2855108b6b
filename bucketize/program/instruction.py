"""Instructions: what a function becomes. No address, no lock, no open file is in any of them.

Segments are straight runs of kernels whose shapes follow from the shapes at their entry; everything
else is an instruction of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from typing import Any, ClassVar, get_type_hints

import numpy as np

from bucketize.ir import Atom, Binding, Const, Function, Var, mentioned
from bucketize.ir.relation import relations
from bucketize.kernel.schedule import Implementation
from bucketize.kernel.select import Select
from bucketize.kernel.workload import Workload
from bucketize.ops.dim import from_dims
from bucketize.program.aliasing import Able, Location, Places
from bucketize.program.decision_table import Nodes
from bucketize.program.lazy import Lazy
from bucketize.types import AnyDim, Assumption, Dim, Sizes, Symbol, Type, evaluate, product, symbols

UNNAMED = "any"
"""How symbols begin that stand for extents of no name, which only a run can tell: `any1`."""

LOGGED, AGREED, DEFAULT = "log", "default (log)", "default"
"""Where an implementation comes from: the log, the log that found the default best, no trial."""


@dataclass(frozen=True, eq=False)
class KernelCall:
    """One kernel of a segment: which, on what, and where the choice comes from."""

    binding: Binding
    workload: Workload
    args: tuple[Atom, ...]
    implementation: Implementation
    why: str
    """Where the implementation comes from: `LOGGED`, `AGREED` or `DEFAULT`."""
    kernel: str
    """The name of the kernel, which tells all that its code depends on."""
    packs: Mapping[int, str]
    """By the place of a constant argument: the layout that the kernel wants it in."""
    pitched: frozenset[int] = frozenset()
    """Which arguments may lie in rows that are apart: see `Template.pitched`."""
    larger: tuple[tuple[int, KernelCall], ...] = ()
    """The call by other kernels: each from a size of the workload on, rising."""

    def __str__(self) -> str:
        others = (f"  from {least}: {call}" for least, call in self.larger)
        return "\n".join([f"{self.kernel}: {self.implementation} [{self.why}]", *others])

    @property
    def each(self) -> tuple[KernelCall, ...]:
        """The call by each kernel that it may run."""
        return (self, *(call for _, call in self.larger))

    @property
    def select(self) -> Select:
        """Implementations by size."""
        least = tuple(least for least, _ in self.larger)
        return Select(tuple(call.implementation for call in self.each), least)

    def at(self, sizes: Sizes) -> KernelCall:
        """The call by the kernel that runs at sizes."""
        return self.each[self.part(sizes)]

    def part(self, sizes: Sizes) -> int:
        """Which of `each` that is."""
        return self.select.index(evaluate(self.workload.size, sizes)) if self.larger else 0


@dataclass(frozen=True, eq=False)
class Segment:
    """A straight-line function and the kernels of its bindings; views and dims have none."""

    fn: Function
    every: tuple[KernelCall, ...]
    """All kernel calls, those included whose results are there without them."""
    like: Segment | None = None
    """One of the same function, which has what follows from that alone."""

    def __repr__(self) -> str:
        return f"<segment of {len(self.calls)} kernels>"

    @cached_property
    def types(self) -> tuple[tuple[Type, ...], tuple[Type, ...]]:
        """The types of its parameters, and those of its results."""
        return tuple(p.type for p in self.fn.params), tuple(r.type for r in self.fn.results)

    @cached_property
    def calls(self) -> tuple[KernelCall, ...]:
        """The kernels that run."""
        return tuple(c for c in self.every if c.binding.outs[0] not in self.places.free)

    @cached_property
    def rows(self) -> tuple[KernelCall, ...]:
        """The kernel calls that run, and behind them what may run in the stead of one."""
        return (*self.calls, *(other for call in self.calls for _, other in call.larger))

    @cached_property
    def places(self) -> Places:
        """Where its tensors lie."""
        return Places(self.fn, {c.binding.outs[0]: Able(c.args, c.pitched) for c in self.every})

    def pitches(self, call: KernelCall) -> tuple[Dim | None, ...]:
        """How far apart the rows of its arguments lie, and then of its results.

        It is 0 of an argument that lies in the result already, where a concat would copy it to.
        """
        inside, whole = self.places.is_part, call.binding.outs[0]
        args = [0 if inside(a, whole) else self.place(a).pitch for a in call.args]
        return (*args, *(self.place(o).pitch for o in call.binding.outs))

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """The names that the segment's dims are made of, and the numbers that are known as dims."""
        if self.like is not None:
            return self.like.symbols
        values = tuple(a.type.value for b in self.fn.body for a in b.args)
        return tuple(sorted(self.fn.mentioned() | {s.name for s in mentioned(values)}))

    @cached_property
    def relations(self) -> list[Assumption]:
        """What is checked of sizes before it runs."""
        return relations(self.fn) if self.like is None else self.like.relations

    @cached_property
    def dims(self) -> dict[Atom, tuple[Dim, ...]]:
        """The tensors that hold dims."""
        return {b.out: b.attrs["dims"] for b in self.fn.body if b.op is from_dims}

    def place(self, atom: Atom) -> Location:
        """Where an atom lies."""
        return self.places.of(atom)

    def root(self, atom: Atom) -> Atom:
        """The atom in whose memory this one is."""
        return self.place(atom).root


# --- instructions --------------------------------------------------------------------------------

KINDS: dict[str, type[Instruction]] = {}
"""The instructions by the names that saved programs have for them."""


@dataclass(frozen=True, eq=False)
class Instruction:
    """One instruction: a frozen dataclass, and all that is known of its kind but how it runs.

    Walks, text and files follow from the types of its fields: `Atom`, `Var`, `Binding`, `Segment`,
    `Code`, `Leaves`, `Nodes`, `Symbol`, `Dim`, `str` and `bool`, or tuples of them. The function
    that runs it is in `runtime.vm.RUN`.
    """

    name: ClassVar[str]
    text: ClassVar[str]
    """Its line, with fields by name: blocks stand below it."""
    note: ClassVar[str]
    """What a path says of it, if anything."""

    def __init_subclass__(cls, *, name: str, text: str, note: str = "") -> None:
        """Declare a kind of instruction."""
        cls.name, cls.text, cls.note = name, text, note
        KINDS[name] = cls

    def taken(self, _sizes: Sizes) -> tuple[tuple[Code, int], ...]:
        """The blocks that it is known to run at these sizes, and how often each."""
        return ()

    def check(self) -> None:
        """Raise ValueError if fields that a file told do not fit together."""

    def values(self) -> Iterator[tuple[str, Any]]:
        """The fields by name."""
        return ((f.name, getattr(self, f.name)) for f in fields(self))

    def blocks(self, *, whole: bool = False) -> Iterator[tuple[str, Code]]:
        """The blocks below it: those that are decided, or `whole`, all."""
        for name, value in self.values():
            if isinstance(value, Code):
                yield name, value
            elif isinstance(value, Leaves):
                leaves = range(len(value)) if whole else sorted(value.made())
                yield from ((f"leaf {k}", value[k]) for k in leaves)


@cache
def field_types(kind: str) -> Mapping[str, Any]:
    """The types of an instruction's fields, by name."""
    hints = get_type_hints(KINDS[kind])
    return {f.name: hints[f.name] for f in fields(KINDS[kind])}


@dataclass(frozen=True, eq=False)
class RunSegment(Instruction, name="run", text="run {segment} on {args} -> {outs}"):
    """Run native kernels."""

    segment: Segment
    args: tuple[Var, ...]
    outs: tuple[Var, ...]

    def check(self) -> None:
        """Kernels believe what types say of memory: those of a segment are those around it."""
        for mine, theirs in zip(self.segment.types, (self.args, self.outs), strict=True):
            types, around = told(mine), told(a.type for a in theirs)
            if types != around:
                raise ValueError(f"a segment of {types} stands among {around}")


def told(types: Iterable[Type]) -> list[str]:
    """All that native code relies on of types: dtypes, extents, the sizes of their symbols."""
    every = tuple(types)
    return [*map(str, every), *dict.fromkeys(s.option for t in every for s in t.symbols())]


@dataclass(frozen=True, eq=False)
class Compute(Instruction, name="compute", text="{binding}"):
    """Compute one op on the host: its shape depends on values, or no template takes it."""

    binding: Binding
    brings_sizes: bool


@dataclass(frozen=True, eq=False)
class ReadSizes(Instruction, name="read_sizes", text="read {symbols} of {atom} for {op}"):
    """Learn numbers from the elements of an integer tensor; a symbol from 0 on is an extent."""

    atom: Atom
    symbols: tuple[Symbol, ...]
    op: str
    """The op whose numbers they are."""

    def check(self) -> None:
        """What a file told is read as words of 64 bits, as many as there are symbols."""
        type_ = self.atom.type
        if type_.dtype != "int64" or product(type_.shape) != len(self.symbols):
            raise ValueError(f"{len(self.symbols)} sizes are read of {type_}")


@dataclass(frozen=True, eq=False)
class Call(Instruction, name="call", text="call(callee={callee}) on {args} -> {outs}"):
    """Call a function of the module."""

    callee: str
    args: tuple[Atom, ...]
    outs: tuple[Var, ...]


@dataclass(frozen=True, eq=False)
class Branch(
    Instruction,
    name="branch",
    text="if {condition} -> {outs}",
    note="a branch that depends on values",
):
    """Take one of two blocks by a computed condition."""

    condition: Atom
    then: Code
    orelse: Code
    outs: tuple[Var, ...]
    brings_sizes: bool


@dataclass(frozen=True, eq=False)
class Decide(Instruction, name="decide", text="decide by {symbols}: {nodes} -> {outs}"):
    """Take one of several blocks by the sizes alone.

    `nodes` is a tree: see `program.decision_table.Nodes`.
    """

    symbols: tuple[str, ...]
    nodes: Nodes
    leaves: Leaves
    outs: tuple[Var, ...]
    brings_sizes: bool

    def check(self) -> None:
        """Every node asks for a symbol, and leads to one behind it, or to a leaf."""
        nodes = np.array(self.nodes).reshape(-1, 4)
        symbol, _, *sides = nodes.T
        here, end = np.arange(len(nodes)) * 4, nodes.size
        further = [(here < n) & (n < end) & (n % 4 == 0) for n in sides]
        leaf = [(-len(self.leaves) <= n) & (n < 0) for n in sides]
        asks = (symbol >= 0) & (symbol < len(self.symbols))
        if not nodes.size or not (asks & np.logical_or(further, leaf)).all():
            raise ValueError("a decision leads to nowhere")

    def leaf(self, sizes: Mapping[str, int]) -> int:
        """The leaf that serves these sizes."""
        nodes, at = self.nodes, 0
        while at >= 0:
            size = sizes[self.symbols[nodes[at]]]
            at = nodes[at + 2] if size < nodes[at + 1] else nodes[at + 3]
        return ~at

    def taken(self, sizes: Sizes) -> tuple[tuple[Code, int], ...]:
        """The leaf that serves the sizes, once."""
        return ((self.leaves[self.leaf(sizes)], 1),)


@dataclass(frozen=True, eq=False)
class Loop(
    Instruction,
    name="loop",
    text="loop {params} from {args} to {trips} while {proceed} -> {outs}",
    note="a loop, of which a round is shown",
):
    """Run a block again and again, each round on what the one before it made."""

    trips: Atom
    proceed: Atom
    args: tuple[Atom, ...]
    """What is carried into the first round."""
    params: tuple[Var, ...]
    """The number of the round, and what is carried into it."""
    body: Code
    """Its results: whether to proceed, what is carried on, rows."""
    rounds: Dim
    """How many there are, or `?`."""
    outs: tuple[Var, ...]
    brings_sizes: bool

    def check(self) -> None:
        """What is carried in is what the body takes, and carries on."""
        carried, taken = len(self.args), len(self.params) - 1
        results, outs = len(self.body.results) - 1, len(self.outs)
        if not (carried == taken <= results == outs):
            raise ValueError(f"a loop carries {carried} of {taken} and returns {outs} of {results}")

    @cached_property
    def alone(self) -> RunSegment | None:
        """The segment that makes all of a round of tensors, which nothing but the count ends."""
        steps, (proceed, *rest) = self.body.instructions, self.body.results
        tensors = all(p.type.is_tensor for p in self.params)
        if len(steps) != 1 or not isinstance(steps[0], RunSegment) or not tensors:
            return None
        endless = isinstance(proceed, Const) and bool(proceed.value)
        return steps[0] if endless and all(m in steps[0].outs for m in rest) else None

    def taken(self, sizes: Sizes) -> tuple[tuple[Code, int], ...]:
        """The body, in each round, or once if only a run tells how many there are."""
        is_count = not isinstance(self.rounds, AnyDim)
        countable = is_count and all(s.name in sizes for s in symbols(self.rounds))
        return ((self.body, evaluate(self.rounds, sizes) if countable else 1),)


@dataclass(frozen=True, eq=False)
class Refuse(Instruction, name="refuse", text="{binding}"):
    """The leaf of a decision tree that no bucket covers, or a branch that is not legal."""

    binding: Binding


# --- code ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Code:
    """Instructions, and the atoms that hold the results afterwards."""

    instructions: tuple[Instruction, ...]
    results: tuple[Atom, ...]

    def __repr__(self) -> str:
        kinds = Counter(type(i).__name__ for i in self.instructions)
        return f"<code: {', '.join(f'{n} {kind}' for kind, n in kinds.items()) or 'nothing'}>"


class Leaves(Lazy[int, Code]):
    """The blocks below a tree."""

    def __init__(self, blocks: Sequence[Any], make: Callable[[Any], Code]) -> None:
        """What is to be made of each of `blocks`."""
        super().__init__(lambda index: make(blocks[index]))
        self.blocks = blocks

    def __len__(self) -> int:
        return len(self.blocks)


def with_segments(code: Code, new: Callable[[Segment], Segment]) -> Code:
    """Code that runs other segments on the same variables; unchanged, it is the same object."""
    steps = tuple(_with_segments(i, new) for i in code.instructions)
    if all(a is b for a, b in zip(steps, code.instructions, strict=True)):
        return code
    return Code(steps, code.results)


def _with_segments(i: Instruction, new: Callable[[Segment], Segment]) -> Instruction:
    def renewed(value: Any) -> Any:
        if isinstance(value, Segment):
            return new(value)
        if isinstance(value, Code):
            return with_segments(value, new)
        if isinstance(value, Leaves):
            return Leaves(range(len(value)), lambda k: with_segments(value[k], new))
        return value

    others = {name: other for name, v in i.values() if (other := renewed(v)) is not v}
    return replace(i, **others) if others else i


def instructions(code: Code, *, whole: bool = False) -> Iterator[Instruction]:
    """The instructions of code and of the blocks below: those that are decided, or `whole`, all."""
    for instruction in code.instructions:
        yield instruction
        for _, block in instruction.blocks(whole=whole):
            yield from instructions(block, whole=whole)
