"""Cutting: a function becomes instructions, what is native in segments as long as they can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from bucketize.dispatch.decision import TESTS, tree_of
from bucketize.ir import (
    CALL,
    IF,
    NO_BUCKET,
    Atom,
    Binding,
    Builder,
    Env,
    Function,
    Var,
    copy_binding,
    refine,
)
from bucketize.ops.dim import from_dims
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
    Refuse,
    RunSegment,
    Segment,
)
from bucketize.transform.dead_code import used_atoms
from bucketize.types import AnyDim, Symbol, TensorType

Typed: TypeAlias = list[tuple[Binding, bool]]  # whether sizes are known once it is run


def _unchanged(block: Function) -> Function:
    return block


@dataclass
class Cutter:
    """Cuts a function into segments and what lies between them.

    `call` gives the kernel of a binding, or None; `leaf` is applied to a block below a tree of
    decisions before it is cut.
    """

    call: Callable[[Binding], KernelCall | None]
    leaf: Callable[[Function], Function] = _unchanged
    count: int = 0
    tests: dict[Atom, Binding] = field(default_factory=dict)

    def named(self, fn: Function) -> Function:
        """The function with a symbol for each extent of its inputs that has no name."""
        params = tuple(map(self._named, fn.params))
        return fn if params == fn.params else refine(fn, [p.type for p in params], fn.name)

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
        call = self.call(b)
        return None if call is None else (b, call)

    def _named_sizes(self, fn: Function, env: Env) -> Typed:
        """The bindings, typed anew with a symbol for each extent that is known only when made."""
        typed: Typed = []
        for b in fn.body:
            if not env and not any(isinstance(d, AnyDim) for o in b.outs for d in o.type.shape):
                typed.append((b, False))  # nothing before it changed: neither does it
                continue
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
        leaves = Leaves(tree.leaves, lambda leaf: self._block(self.leaf(leaf), env))
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
