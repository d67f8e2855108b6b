"""The virtual machine: everything that a straight run of kernels is not.

A function becomes a list of instructions over registers: native segments, ops computed on the
host because their shape depends on values, branches, and calls. A decision over dims only is
compiled to one Python function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from bucketize.call import bind_shapes, no_bucket
from bucketize.interpret import compute
from bucketize.ir import (
    CALL,
    IF,
    NO_BUCKET,
    Atom,
    Binding,
    Builder,
    Const,
    Env,
    Function,
    Var,
    copy_binding,
)
from bucketize.kernel.templates import has_template
from bucketize.lower.fuse import unfuse
from bucketize.op import Array
from bucketize.ops.dim import dim_less, dims_within, from_dims
from bucketize.runtime.segment import (
    VIEWS,
    Chooser,
    Context,
    Segment,
    attr_symbols,
    workload_of,
)
from bucketize.runtime.shape_code import compile_function, dim_source, local_names
from bucketize.transform.dead_code import used_atoms
from bucketize.types import AnyDim, Interval, Symbol, TensorType

Registers: TypeAlias = dict[Atom, Array]
Sizes: TypeAlias = dict[str, int]
Invoke: TypeAlias = Callable[[str, Sequence[Array]], list[Array]]
Typed: TypeAlias = list[tuple[Binding, bool]]  # whether sizes are known once it is run

TESTS = (dim_less, dims_within)
MAX_SHAPES = 4096  # input shapes whose sizes a routine remembers


@dataclass(frozen=True, eq=False)
class RunSegment:
    """Run native kernels."""

    segment: Segment

    def run(self, registers: Registers, sizes: Sizes, invoke: Invoke) -> None:  # noqa: ARG002
        """Read the segment's parameters and write its results."""
        fn = self.segment.fn
        arrays = [registers[p] for p in fn.params]
        results = self.segment.plan(sizes).run(arrays)
        registers.update(zip(fn.results, results, strict=True))


@dataclass(frozen=True, eq=False)
class Compute:
    """Compute one op on the host: its shape depends on values, or no template takes it."""

    binding: Binding

    def run(self, registers: Registers, sizes: Sizes, invoke: Invoke) -> None:  # noqa: ARG002
        """Write the result, and the sizes that it brings."""
        b = self.binding
        operands = _all(registers, b.args)
        value = np.asarray(compute(b, operands, sizes), order="C")
        shared = any(np.may_share_memory(value, o) for o in operands)
        registers[b.out] = value.copy() if shared else value
        _learn(b.outs, registers, sizes)


@dataclass(frozen=True, eq=False)
class Call:
    """Call a function of the module."""

    binding: Binding

    def run(self, registers: Registers, sizes: Sizes, invoke: Invoke) -> None:
        """Write the results of the callee, if they are what the caller was told."""
        b = self.binding
        results = invoke(b.attrs["callee"], _all(registers, b.args))
        registers.update(zip(b.outs, results, strict=True))
        _learn(b.outs, registers, sizes)


@dataclass(frozen=True, eq=False)
class Decide:
    """Take one of several blocks by the sizes alone."""

    choose: Callable[..., int]
    symbols: tuple[str, ...]
    blocks: tuple[Code, ...]
    outs: tuple[Var, ...]
    brings_sizes: bool

    def run(self, registers: Registers, sizes: Sizes, invoke: Invoke) -> None:
        """Run the block that serves these sizes."""
        block = self.blocks[self.choose(*[sizes[s] for s in self.symbols])]
        results = block.run(registers, sizes, invoke)
        registers.update(zip(self.outs, results, strict=True))
        if self.brings_sizes:
            _learn(self.outs, registers, sizes)


@dataclass(frozen=True, eq=False)
class Branch:
    """Take one of two blocks by a computed condition."""

    condition: Atom
    then: Code
    orelse: Code
    outs: tuple[Var, ...]
    brings_sizes: bool

    def run(self, registers: Registers, sizes: Sizes, invoke: Invoke) -> None:
        """Run the block that the condition asks for."""
        block = self.then if _read(registers, self.condition) else self.orelse
        results = block.run(registers, sizes, invoke)
        registers.update(zip(self.outs, results, strict=True))
        if self.brings_sizes:
            _learn(self.outs, registers, sizes)


@dataclass(frozen=True, eq=False)
class Refuse:
    """The leaf of a decision tree that no bucket covers."""

    binding: Binding

    def run(self, registers: Registers, sizes: Sizes, invoke: Invoke) -> None:  # noqa: ARG002
        """Raise `NoBucketError` with the sizes and the buckets."""
        raise no_bucket(self.binding, sizes)


Instruction: TypeAlias = RunSegment | Compute | Call | Decide | Branch | Refuse


@dataclass(frozen=True, eq=False)
class Code:
    """Instructions, and the atoms that hold the results afterwards."""

    instructions: tuple[Instruction, ...]
    results: tuple[Atom, ...]

    def run(self, registers: Registers, sizes: Sizes, invoke: Invoke) -> list[Array]:
        """Run the instructions; the results."""
        for instruction in self.instructions:
            instruction.run(registers, sizes, invoke)
        return [r.value.copy() if isinstance(r, Const) else registers[r] for r in self.results]


def _read(registers: Registers, atom: Atom) -> Array:
    return atom.value if isinstance(atom, Const) else registers[atom]


def _all(registers: Registers, atoms: Sequence[Atom]) -> list[Array]:
    return [_read(registers, a) for a in atoms]


def _learn(outs: Sequence[Var], registers: Registers, sizes: Sizes) -> None:
    """Check shapes that only the run could tell, and note the sizes that they bring."""
    sizes.update(bind_shapes(outs, [registers[v].shape for v in outs], sizes, what="result"))


# --- compiling -----------------------------------------------------------------------------------


class Routine:
    """A function compiled for the VM."""

    def __init__(self, fn: Function, choose: Chooser, context: Context) -> None:
        """Compile the lowered function `fn`, its kernels included."""
        self.fn = fn
        native = unfuse(fn, lambda b: has_template(workload_of(b)[0]))
        self.code = _Compiler(choose, context).code(native, {})
        self._sizes: dict[tuple[tuple[int, ...], ...], Sizes] = {}

    def run(self, arrays: Sequence[Array], invoke: Invoke) -> list[Array]:
        """The results for these inputs."""
        registers: Registers = dict(zip(self.fn.params, arrays, strict=True))
        return self.code.run(registers, dict(self.sizes(arrays)), invoke)

    def sizes(self, arrays: Sequence[Array]) -> Sizes:
        """What the inputs' shapes say of the symbols; checked when first seen."""
        shapes = tuple([a.shape for a in arrays])
        known = self._sizes.get(shapes)
        if known is None:
            if len(self._sizes) >= MAX_SHAPES:
                self._sizes.clear()
            known = self._sizes[shapes] = bind_shapes(self.fn.params, shapes)
        return known


@dataclass
class _Compiler:
    """Cuts a function into instructions."""

    choose: Chooser
    context: Context
    count: int = 0
    tests: dict[Atom, Binding] = field(default_factory=dict)

    def code(self, fn: Function, env: Env) -> Code:
        """The code of a function, or of a block that sees the variables of `env`."""
        env = dict(env)
        typed = self._named_sizes(fn, env)
        results = tuple(env.get(r, r) for r in fn.results)
        instructions: list[Instruction] = []
        run: list[Binding] = []
        later = _used_later(typed, results)
        for i, (b, brings_sizes) in enumerate(typed):
            if not brings_sizes and _is_native(b):
                run.append(b)
            elif b.op in TESTS and not _is_read(b, typed, results):
                self.tests[b.out] = b
            else:
                self._flush(run, instructions, later[i])
                instructions.append(self._instruction(b, brings_sizes))
        self._flush(run, instructions, set(results))
        return Code(tuple(instructions), results)

    def _named_sizes(self, fn: Function, env: Env) -> Typed:
        """The bindings, typed anew with a symbol for each extent that is known only when made."""
        typed: Typed = []
        for b in fn.body:
            out = Builder()
            copy_binding(out, b, env)
            made = out.body[0]
            outs = tuple(self._name(v) for v in made.outs)
            env.update(zip(b.outs, outs, strict=True))
            typed.append((Binding(outs, made.op, made.args, made.attrs), outs != made.outs))
        return typed

    def _name(self, var: Var) -> Var:
        if not any(isinstance(d, AnyDim) for d in var.type.shape):
            return var
        shape = tuple(self._fresh() if isinstance(d, AnyDim) else d for d in var.type.shape)
        return Var(var.name, TensorType(var.type.dtype, shape))

    def _fresh(self) -> Symbol:
        self.count += 1
        return Symbol(f"?{self.count}", 0)

    def _flush(self, run: list[Binding], to: list[Instruction], needed: set[Atom]) -> None:
        """Make a segment of the bindings gathered so far."""
        if not run:
            return
        made = {b.out for b in run}
        read = {a for b in run for a in b.args if isinstance(a, Var)} - made
        results = [b.out for b in run if b.out in needed]
        params = sorted(read, key=lambda v: v.name)
        fn = Function("", tuple(params), tuple(run), tuple(results))
        to.append(RunSegment(Segment(fn, self.choose, self.context)))
        run.clear()

    def _instruction(self, b: Binding, brings_sizes: bool) -> Instruction:
        if b.op is CALL:
            return Call(b)
        if b.op is NO_BUCKET:
            return Refuse(b)
        if b.op is not IF:
            if not brings_sizes:
                self.context.on_host(b.op.name)
            return Compute(b)
        return self._decision(b, brings_sizes)

    def _decision(self, b: Binding, brings_sizes: bool) -> Instruction:
        (condition,) = b.args
        then, orelse = b.attrs["then"], b.attrs["orelse"]
        if condition not in self.tests:
            blocks = self.code(then, {}), self.code(orelse, {})
            return Branch(condition, *blocks, b.outs, brings_sizes)
        leaves: list[Code] = []
        names = local_names(sorted(_tested_symbols(b, self.tests)))
        lines = self._choice(b, names, leaves, 1)
        source = "\n".join([f"def choose({', '.join(names.values())}):", *lines])
        choose = compile_function(source, "choose")
        return Decide(choose, tuple(names), tuple(leaves), b.outs, brings_sizes)

    def _choice(
        self, b: Binding, names: Mapping[str, str], leaves: list[Code], depth: int
    ) -> list[str]:
        """Python lines that return the number of a leaf; leaves are added in order."""
        pad = "    " * depth
        lines = [f"{pad}if {_test_source(self.tests[b.args[0]], names)}:"]
        lines += self._half(b.attrs["then"], names, leaves, depth + 1)
        return lines + self._half(b.attrs["orelse"], names, leaves, depth)

    def _half(
        self, block: Function, names: Mapping[str, str], leaves: list[Code], depth: int
    ) -> list[str]:
        inner = _inner_test(block)
        if inner is None:
            leaves.append(self.code(block, {}))
            return [f"{'    ' * depth}return {len(leaves) - 1}"]
        test, branch = inner
        self.tests[test.out] = test
        return self._choice(branch, names, leaves, depth)


def _inner_test(block: Function) -> tuple[Binding, Binding] | None:
    """The test and the `if` of a block that does nothing but decide by the sizes."""
    if len(block.body) != 2 or block.body[0].op not in TESTS or block.body[1].op is not IF:
        return None
    test, branch = block.body
    same = branch.args == (test.out,) and block.results == branch.outs
    return (test, branch) if same and not _reads_inside(branch, test.out) else None


def _test_source(test: Binding, names: Mapping[str, str]) -> str:
    if test.op is dim_less:
        return f"{dim_source(test.attrs['dim'], names)} < {test.attrs['than']}"
    pairs = zip(test.attrs["dims"], test.attrs["box"], strict=True)
    return " and ".join(_within(dim_source(d, names), i) for d, i in pairs)


def _within(dim: str, interval: Interval) -> str:
    lo, hi = interval
    return f"{lo} <= {dim}" if hi is None else f"{lo} <= {dim} < {hi}"


def _tested_symbols(b: Binding, tests: Mapping[Atom, Binding]) -> set[str]:
    """The symbols that decide, all the way down the tree."""
    test = tests[b.args[0]]
    found = {s.name for s in attr_symbols(tuple(test.attrs.values()))}
    for block in (b.attrs["then"], b.attrs["orelse"]):
        if inner := _inner_test(block):
            found |= _tested_symbols(inner[1], {inner[0].out: inner[0]})
    return found


def _is_read(b: Binding, typed: Typed, results: tuple[Atom, ...]) -> bool:
    """Whether anything but an `if` reads the test."""
    readers = [t for t, _ in typed if b.out in used_atoms(t)]
    return b.out in results or any(t.op is not IF or _reads_inside(t, b.out) for t in readers)


def _reads_inside(branch: Binding, atom: Atom) -> bool:
    blocks = branch.attrs["then"], branch.attrs["orelse"]
    return any(atom in f.results or any(atom in used_atoms(b) for b in f.body) for f in blocks)


def _is_native(b: Binding) -> bool:
    """Whether a segment can hold the binding."""
    if b.op in (IF, CALL, NO_BUCKET) or b.op in TESTS:
        return False
    return b.op in VIEWS or b.op is from_dims or has_template(workload_of(b)[0])


def _used_later(typed: Typed, results: tuple[Atom, ...]) -> list[set[Atom]]:
    """For each position, what the bindings from there on and the results read."""
    needed, sets = set(results), []
    for b, _ in reversed(typed):
        needed = needed | used_atoms(b)
        sets.append(needed)
    return sets[::-1]
