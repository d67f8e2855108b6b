"""Deciding: a module becomes a program, function by function, each when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from bucketize.dispatch.decision import tree_of
from bucketize.errors import BucketizeError, CompileError
from bucketize.ir import (
    CALL,
    FUSED,
    IF,
    NO_BUCKET,
    Atom,
    Binding,
    Builder,
    Const,
    Env,
    Function,
    Module,
    Var,
    all_bindings,
    copy_binding,
    refine,
)
from bucketize.kernel.build import kernel_name
from bucketize.kernel.target import Target
from bucketize.kernel.template import TEMPLATES, Implementation, Workload
from bucketize.lower.fuse import group_function
from bucketize.lower.pipeline import lower
from bucketize.ops.dim import dim_less, dims_within, from_dims
from bucketize.program.program import (
    VIEWS,
    Branch,
    Call,
    Code,
    Compute,
    Decide,
    Instruction,
    KernelCall,
    Leaves,
    Program,
    Refuse,
    Routine,
    Routines,
    RunSegment,
    Segment,
)
from bucketize.transform.dead_code import used_atoms
from bucketize.types import AnyDim, Symbol, TensorType

Choose: TypeAlias = Callable[[Workload], tuple[Implementation, str] | None]
"""An implementation of a workload and where it comes from; None if no template takes it."""
Typed: TypeAlias = list[tuple[Binding, bool]]  # whether sizes are known once it is run

TESTS = (dim_less, dims_within)


def decide(
    module: Module, choose: Choose, *, target: Target, threads: int, executor: str
) -> Program:
    """The program of a module; its routines are decided when they are asked for."""
    sources: dict[str, str] = {}
    decider = _Decider(module, choose, target, executor, sources)
    routines = Routines(module.functions, decider.routine)
    return Program(routines, module.clones, module.outputs, threads, target, sources)


@dataclass(frozen=True, eq=False)
class _Decider:
    """Decides the functions of one module."""

    module: Module
    choose: Choose
    target: Target
    executor: str
    sources: dict[str, str]

    def routine(self, name: str) -> Routine:
        """The function as instructions."""
        fn = self.module.functions[name]
        try:
            lowered = fn if _is_tree(fn) else lower(fn)
        except BucketizeError as e:
            e.add_note(f"in {name}: if the model is not legal at these sizes, bound its symbols")
            raise
        if self.executor == "graph":
            check_static(lowered)
        code = _Cutter(self).code(lowered, {})
        return Routine(name, lowered, code, self._executor(lowered, code))

    def _executor(self, fn: Function, code: Code) -> str:
        if self.executor == "graph":
            check_native(fn, code)
            return "graph"
        straight = all(isinstance(i, RunSegment) for i in code.instructions)
        static = all(p.type.is_static for p in fn.params)
        single = len(code.instructions) <= 1
        return "graph" if self.executor == "auto" and static and straight and single else "vm"

    def call(self, b: Binding) -> KernelCall | None:
        """The kernel of a binding; None if no template takes it."""
        workload, args = workload_of(b)
        chosen = self.choose(workload)
        if chosen is None:
            return None
        implementation, why = chosen
        template, schedule = TEMPLATES[implementation.template], implementation.schedule
        types = [a.type for a in (*workload.body.params, *workload.body.results)]
        shapes = tuple(t.shape for t in types)
        try:
            source = template.source(workload, schedule, self.target)
            launch = template.launch(workload, schedule, shapes, self.target)
        except BucketizeError as e:
            e.add_note(f"in the kernel of {workload.key} under {implementation}")
            raise
        name = kernel_name(source, template.name)
        self.sources.setdefault(name, source)
        packs = {
            i: template.pack_key(workload, schedule, i)
            for i, a in enumerate(args)
            if isinstance(a, Const)
        }
        return KernelCall(b, workload, args, implementation, why, name, launch, packs)


def workload_of(b: Binding) -> tuple[Workload, tuple[Atom, ...]]:
    """The workload of a binding, and the arguments that its kernel takes."""
    if b.op is FUSED:
        body, args = refine(b.attrs["body"], [a.type for a in b.args]), b.args
    else:
        inputs, body = group_function([b])
        args = tuple(inputs)
    return Workload(body, tuple(isinstance(a, Const) for a in args)), args


def _is_tree(fn: Function) -> bool:
    """Whether a function does nothing but decide by sizes: only its leaves want lowering."""
    *tests, last = fn.body or (None,)
    return last is not None and last.op is IF and bool(tests) and all(b.op in TESTS for b in tests)


# --- cutting a function into instructions --------------------------------------------------------


@dataclass
class _Cutter:
    """Cuts a function into segments and what lies between them."""

    decider: _Decider
    count: int = 0
    tests: dict[Atom, Binding] = field(default_factory=dict)

    def code(self, fn: Function, outer: Mapping[Atom, Atom]) -> Code:
        """The code of a function, or of a block that sees the variables of `outer`."""
        env: Env = dict(outer)
        typed = self._named_sizes(fn, env)
        results = tuple(env.get(r, r) for r in fn.results)
        run: list[tuple[Binding, KernelCall | None]] = []
        instructions: list[Instruction] = []
        later = _used_later([b for b, _ in typed], results)
        for i, (b, brings_sizes) in enumerate(typed):
            if b.op in TESTS and not _is_read(b, typed, results):
                self.tests[b.out] = b
                continue
            native = None if brings_sizes else self._native(b)
            if native is not None:
                run.append(native)
                continue
            self._flush(run, instructions, later[i])
            instructions += self._instructions(b, brings_sizes, env)
        self._flush(run, instructions, set(results))
        return Code(tuple(instructions), results)

    def _native(self, b: Binding) -> tuple[Binding, KernelCall | None] | None:
        """The binding and its kernel, if a segment can hold it; views and dims need none."""
        if b.op in (IF, CALL, NO_BUCKET) or b.op in TESTS:
            return None
        if b.op in VIEWS or b.op is from_dims:
            return b, None
        call = self.decider.call(b)
        return None if call is None else (b, call)

    def _named_sizes(self, fn: Function, env: Env) -> Typed:
        """The bindings, typed anew with a symbol for each extent that is known only when made."""
        typed: Typed = []
        for b in fn.body:
            out = Builder()
            copy_binding(out, b, env)
            (made,) = out.body
            outs = tuple(map(self._named, made.outs))
            env.update(zip(b.outs, outs, strict=True))
            typed.append((Binding(outs, made.op, made.args, made.attrs), outs != made.outs))
        return typed

    def _named(self, var: Var) -> Var:
        if not any(isinstance(d, AnyDim) for d in var.type.shape):
            return var
        shape = tuple(self._fresh() if isinstance(d, AnyDim) else d for d in var.type.shape)
        return Var(var.name, TensorType(var.type.dtype, shape))

    def _fresh(self) -> Symbol:
        self.count += 1
        return Symbol(f"?{self.count}", 0)

    def _flush(
        self,
        run: list[tuple[Binding, KernelCall | None]],
        to: list[Instruction],
        needed: set[Atom],
    ) -> None:
        """Make a segment of what was gathered so far."""
        if not run:
            return
        body = tuple(b for b, _ in run)
        made = {o for b in body for o in b.outs}
        read = {a for b in body for a in b.args if isinstance(a, Var)} - made
        results = tuple(o for b in body for o in b.outs if o in needed)
        params = tuple(sorted(read, key=lambda v: v.name))
        calls = tuple(c for _, c in run if c is not None)
        to.append(RunSegment(Segment(Function("", params, body, results), calls)))
        run.clear()

    def _instructions(self, b: Binding, brings_sizes: bool, env: Env) -> Iterator[Instruction]:
        if b.op is CALL:
            yield Call(b)
        elif b.op is NO_BUCKET:
            yield Refuse(b)
        elif b.op is IF:
            yield self._decision(b, brings_sizes, env)
        else:
            yield Compute(b, brings_sizes)

    def _decision(self, b: Binding, brings_sizes: bool, env: Env) -> Instruction:
        (condition,) = b.args
        test = self.tests.get(condition)
        tree = None if test is None else tree_of(test, b)
        if tree is None:
            blocks = self._block(b.attrs["then"], env), self._block(b.attrs["orelse"], env)
            return Branch(condition, *blocks, b.outs, brings_sizes)
        leaves = Leaves(tree.leaves, lambda leaf: self._block(leaf, env))
        return Decide(tree.nodes, leaves, b.outs, brings_sizes)

    def _block(self, block: Function, env: Env) -> Code:
        return self.code(block, env)


def _is_read(test: Binding, typed: Typed, results: Sequence[Atom]) -> bool:
    """Whether anything but an `if` on it reads a test."""
    if test.out in results:
        return True
    readers = [b for b, _ in typed if test.out in used_atoms(b)]
    return any(b.op is not IF or tree_of(test, b) is None for b in readers)


def _used_later(body: Sequence[Binding], results: Sequence[Atom]) -> list[set[Atom]]:
    """For each position, what the bindings from there on and the results read."""
    needed, sets = set(results), []
    for b in reversed(body):
        needed = needed | used_atoms(b)
        sets.append(needed)
    return sets[::-1]


# --- what the graph executor asks for ------------------------------------------------------------


def check_static(fn: Function) -> None:
    """Raise `CompileError` naming the first dynamic binding and the input axis it comes from."""
    for param in fn.params:
        for axis, dim in enumerate(param.type.shape):
            if not isinstance(dim, int):
                users = [b for b in fn.body if any(dim in o.type.shape for o in b.outs)]
                first = f"; first in {users[0].op.name}: {users[0].outs[0].type}" if users else ""
                raise CompileError(
                    f"{fn.name}: the graph executor takes static shapes only, but input "
                    f"{param.name!r}, axis {axis} is {dim}{first}"
                )
    for b in all_bindings(fn):
        for out in b.outs:
            if not out.type.is_static:
                raise CompileError(
                    f"{fn.name}: the graph executor takes static shapes only, but the shape of "
                    f"{b.op.name} depends on values: {out.type}"
                )


def check_native(fn: Function, code: Code) -> None:
    """Raise `CompileError` naming what is no native kernel."""
    for instruction in code.instructions:
        if not isinstance(instruction, RunSegment):
            binding = getattr(instruction, "binding", None)
            what = binding.op.name if binding else type(instruction).__name__.lower()
            raise CompileError(f"{fn.name}: the graph executor has no kernel for {what}")
