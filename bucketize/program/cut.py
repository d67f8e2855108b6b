"""Cutting: a function becomes instructions, what is native in segments as long as they can be."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from bucketize.errors import TypeRelError
from bucketize.fork import ThreadLock
from bucketize.ir import (
    CALL,
    FUSED,
    IF,
    ILLEGAL,
    LOOP,
    NO_BUCKET,
    STRUCTURAL,
    TESTS,
    Atom,
    Binding,
    Builder,
    Const,
    Env,
    Function,
    Var,
    copy_binding,
    illegal,
    rounds_of,
)
from bucketize.lower.by_kernel import by_kernels
from bucketize.op import Movement
from bucketize.ops.dim import from_dims
from bucketize.program.decision_table import Tree, tree_of
from bucketize.program.instruction import (
    UNNAMED,
    Branch,
    Call,
    Code,
    Compute,
    Decide,
    Instruction,
    KernelCall,
    Leaves,
    Loop,
    ReadSizes,
    Refuse,
    RunSegment,
    Segment,
)
from bucketize.transform.dead_code import used_atoms
from bucketize.transform.dynamic_to_static import static_form
from bucketize.types import ANY, AnyDim, Symbol, TensorType, product

LEAST = -(1 << 63)  # of what is read


@dataclass(frozen=True, eq=False)
class _Typed:
    """A binding whose extents all have names."""

    binding: Binding
    brings_sizes: bool
    """Whether some of them are known only once it is run."""
    reads: tuple[ReadSizes, ...] = ()
    """What tells them before it is run."""

    @property
    def atoms(self) -> set[Atom]:
        """The atoms that the binding reads, the numbers of its sizes included."""
        return used_atoms(self.binding) | {read.atom for read in self.reads}


@dataclass
class Cutter:
    """Cuts a function into segments and what lies between them.

    `call` gives the kernel of a binding, or None if none computes it.
    """

    call: Callable[[Binding], KernelCall | None]
    taken: set[str] = field(default_factory=set)
    """The names of symbols so far, but for those of the functions in `unnamed`."""
    unnamed: list[Function] = field(default_factory=list)
    trees: dict[Binding, Tree | None] = field(default_factory=dict)
    tests: dict[Atom, Binding] = field(default_factory=dict)
    cutting: ThreadLock = field(default_factory=ThreadLock)

    def code(self, fn: Function, outer: Mapping[Atom, Atom]) -> Code:
        """The code of a function, or of a block that sees the variables of `outer`."""
        self.unnamed.append(fn)
        env: Env = dict(outer)
        named = self._named_sizes(fn, env)
        results = tuple(env.get(r, r) for r in fn.results)
        typed = _live(named, results)
        run: list[tuple[Binding, KernelCall | None]] = []
        instructions: list[Instruction] = []
        needed = _Needed(typed, results)
        for i, step in enumerate(typed):
            b = step.binding
            if b.op in TESTS and not self._is_read(b, typed, results):
                self.tests[b.out] = b
                continue
            native = None if step.brings_sizes else self._native(b)
            if step.reads or native is None:
                self._flush(run, instructions, needed, i)
                instructions += step.reads
            if native is not None:
                run.append(native)
            else:
                instructions += self._instructions(b, step.brings_sizes, env)
        self._flush(run, instructions, needed, len(typed))
        return Code(tuple(instructions), results)

    def _native(self, b: Binding) -> tuple[Binding, KernelCall | None] | None:
        """The binding and its kernel, if a segment can hold it; views and dims need none."""
        if b.op in STRUCTURAL - {FUSED} or b.op in TESTS or not b.is_ranked:
            return None
        if b.op.movement is Movement.VIEW or b.op is from_dims:
            return b, None
        call = self.call(b)
        return None if call is None else (b, call)

    def _named_sizes(self, fn: Function, env: Env) -> list[_Typed]:
        """The bindings, typed anew with a symbol for each extent that is known only when made."""
        typed: list[_Typed] = []
        self._name(fn.body, env, typed, {})
        return typed

    def _name(
        self,
        body: Sequence[Binding],
        env: Env,
        typed: list[_Typed],
        reads: dict[tuple[Atom, int], ReadSizes],
    ) -> None:
        """Add bindings to those that are typed, and what they have become to `env`."""
        for b in body:
            if not env and b.op.static is None and not any(map(_has_unknown, b.outs)):
                typed.append(_Typed(b, False))  # nothing before it changed: neither does it
                continue
            rebuilt = _made_again(b, env)
            if rebuilt is None:
                continue
            step = self._read_before(rebuilt, reads)
            native = by_kernels(rebuilt) if step is None else None
            if native is not None:
                self._name(native.body, env, typed, reads)
                env.update(zip(b.outs, (env.get(r, r) for r in native.results), strict=True))
                continue
            step = step or self._named_after(rebuilt)
            env.update(zip(b.outs, step.binding.outs, strict=True))
            typed.append(step)

    def _named_after(self, b: Binding) -> _Typed:
        """The binding; extents that it makes known get names."""
        outs = tuple(map(self._named, b.outs))
        return _Typed(Binding(outs, b.op, b.args, b.attrs, b.origin), outs != b.outs)

    def _read_before(self, b: Binding, before: dict[tuple[Atom, int], ReadSizes]) -> _Typed | None:
        """The static twin of an op that is told numbers by tensors, which are read before it.

        What was read `before` is not read again.
        """
        if b.op.static is None or not b.is_ranked or not any(map(_has_unknown, b.outs)):
            return None
        types, reads = [a.type for a in b.args], dict[tuple[Atom, int], ReadSizes]()
        for place in sorted(b.op.reads & set(range(len(b.args)))):
            type_, least = types[place], 0 if place == b.op.extents else LEAST
            count, value = product(type_.shape), type_.value
            if value is None or ANY in value:
                if not isinstance(count, int) or type_.dtype != "int64":
                    return None
                key = (b.args[place], least)
                reads[key] = before.get(key) or self._read(b, b.args[place], count, least)
                pairs = zip(value or (ANY,) * count, reads[key].symbols, strict=True)
                value = tuple(s if isinstance(v, AnyDim) else v for v, s in pairs)
                types[place] = TensorType(type_.dtype, type_.shape, value)
        twin = b.op.static(*types, **b.attrs)
        if twin is None:
            return None
        op, attrs = twin
        out = Builder(origin=b.origin)
        out.emit_all(op, *(a for i, a in enumerate(b.args) if i not in b.op.reads), **attrs)
        (static,) = out.body
        if any(map(_has_unknown, static.outs)):
            return None
        new = tuple(read for key, read in reads.items() if key not in before)
        before |= reads
        return _Typed(static, False, new)

    def _read(self, b: Binding, atom: Atom, count: int, least: int) -> ReadSizes:
        symbols = tuple(replace(self._fresh(), lo=least) for _ in range(count))
        return ReadSizes(atom, symbols, b.op.name)

    def _named(self, var: Var) -> Var:
        if not _has_unknown(var):
            return var
        shape = tuple(self._fresh() if isinstance(d, AnyDim) else d for d in var.type.shape)
        return Var(var.name, TensorType(var.type.dtype, shape))

    def _fresh(self) -> Symbol:
        """A symbol for an extent that only a run can tell."""
        while self.unnamed:
            self.taken |= self.unnamed.pop().mentioned()
        name = next(n for i in itertools.count(1) if (n := f"{UNNAMED}{i}") not in self.taken)
        self.taken.add(name)
        return Symbol(name)

    def _flush(
        self,
        run: list[tuple[Binding, KernelCall | None]],
        to: list[Instruction],
        needed: _Needed,
        at: int,
    ) -> None:
        """Make a segment of what was gathered so far."""
        if not run:
            return
        body = tuple(b for b, _ in run)
        written = {o for b in body for o in b.outs}
        read = dict.fromkeys(a for b in body for a in b.args if isinstance(a, Var))
        results = tuple(o for b in body for o in b.outs if needed.last.get(o, -1) >= at)
        params = tuple(v for v in read if v not in written)
        calls = tuple(c for _, c in run if c is not None)
        fn = Function("", params, body, results)
        to.append(RunSegment(Segment(fn, calls), params, results))
        run.clear()

    def _instructions(self, b: Binding, brings_sizes: bool, env: Env) -> Iterator[Instruction]:
        if b.op is CALL:
            yield Call(b.attrs["callee"], b.args, b.outs)
        elif b.op in (NO_BUCKET, ILLEGAL):
            yield Refuse(b)
        elif b.op is IF:
            yield self._decision(b, brings_sizes, env)
        elif b.op is LOOP:
            yield self._loop(b, brings_sizes, env)
        else:
            yield Compute(b, brings_sizes)

    def _decision(self, b: Binding, brings_sizes: bool, env: Env) -> Instruction:
        (condition,) = b.args
        tree = self._tree(self.tests[condition], b) if condition in self.tests else None
        if tree is None:
            blocks = self._block(b.attrs["then"], env), self._block(b.attrs["orelse"], env)
            return Branch(condition, *blocks, b.outs, brings_sizes)
        leaves = Leaves(tree.leaves, lambda leaf: self._block(leaf, env))
        return Decide(tree.symbols, tree.nodes, leaves, b.outs, brings_sizes)

    def _loop(self, b: Binding, brings_sizes: bool, env: Env) -> Loop:
        body, (trips, proceed, *carried) = b.attrs["body"], b.args
        self.unnamed.append(body)
        params = tuple(map(self._named, body.params))  # other extents in each round
        inner = {**env, **dict(zip(body.params, params, strict=True))}
        code = self._block(body, inner)
        rounds = rounds_of([a.type for a in b.args], body)
        return Loop(trips, proceed, tuple(carried), params, code, rounds, b.outs, brings_sizes)

    def _tree(self, test: Binding, b: Binding) -> Tree | None:
        if b not in self.trees:
            self.trees[b] = tree_of(test, b)
        return self.trees[b]

    def _is_read(self, test: Binding, typed: Sequence[_Typed], results: Sequence[Atom]) -> bool:
        """Whether anything but an `if` on it reads a test."""
        return test.out in results or any(self._reads(t.binding, test) for t in typed)

    def _reads(self, b: Binding, test: Binding) -> bool:
        if b.op is IF and b.args == test.outs:
            return self._tree(test, b) is None
        return test.out in used_atoms(b)

    def _block(self, block: Function, env: Env) -> Code:
        with self.cutting:  # leaves are cut when they are first taken, by whichever thread
            try:
                return self.code(block, env)
            except TypeRelError as e:
                return self.code(illegal(block, e), {})


def _made_again(b: Binding, env: Env) -> Binding | None:
    """The binding on what `env` says, static if names of extents make it so; None if a constant."""
    out, static = Builder(), Builder()
    copy_binding(out, b, env)
    (copy,) = out.body
    static.origin = b.origin
    form = static_form(static, copy, copy.args)
    if isinstance(form, Const):
        env[b.out] = form
        return None
    return copy if form is None else static.body[0]


def _live(typed: Sequence[_Typed], results: Sequence[Atom]) -> list[_Typed]:
    """The steps without shape arithmetic that nothing reads any more."""
    needed, live = set(results), []
    for step in reversed(typed):
        stays = step.brings_sizes or step.reads or step.binding.op in STRUCTURAL
        if stays or not needed.isdisjoint(step.binding.outs):
            live.append(step)
            needed |= step.atoms
    return live[::-1]


def _has_unknown(var: Var) -> bool:
    return any(isinstance(d, AnyDim) for d in var.type.axes)


class _Needed:
    """Until which position of a function each variable is read."""

    def __init__(self, typed: Sequence[_Typed], results: Sequence[Atom]) -> None:
        self.typed, self.results = typed, results

    @cached_property
    def last(self) -> dict[Atom, int]:
        """The last position; behind all of them for what is a result."""
        positions = {a: i for i, t in enumerate(self.typed) for a in t.atoms}
        return positions | dict.fromkeys(self.results, len(self.typed))
