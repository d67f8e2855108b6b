"""Deciding: a module becomes a program, function by function, each when it is first asked for."""

from __future__ import annotations

from dataclasses import dataclass, field

from bucketize.dispatch.decision import TESTS
from bucketize.errors import BucketizeError, CompileError
from bucketize.ir import FUSED, IF, Atom, Binding, Const, Function, Module, all_bindings, refine
from bucketize.kernel.build import kernel_name
from bucketize.kernel.target import Target
from bucketize.kernel.template import Implementation, Workload
from bucketize.kernel.templates import TEMPLATES, candidates
from bucketize.lower.fuse import group_function
from bucketize.lower.pipeline import lower
from bucketize.program.cut import Cutter
from bucketize.program.family import Choose, Family, family_of
from bucketize.program.program import Code, KernelCall, Program, Routine, Routines, RunSegment


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
    families: dict[object, Family | None] = field(default_factory=dict)

    def routine(self, name: str) -> Routine:
        """The function as instructions."""
        try:
            family = self._family(name)
            if family is not None:
                return family.member(name, self.module.clones[name])
            return self._routine(self.module.functions[name])
        except BucketizeError as e:
            e.add_note(f"in {name}: if the model is not legal at these sizes, bound its symbols")
            raise

    def _family(self, name: str) -> Family | None:
        """The clones that differ from this one by bounds alone, and are lowered together."""
        clone = self.module.clones.get(name)
        if clone is None or clone.policy != "exact" or self.executor == "graph":
            return None
        shared = family_of(clone)
        if shared is None:
            return None
        key, function = shared
        if key not in self.families:
            base = self._routine(function())
            able = not any(b.op is IF or b.op.static for b in all_bindings(base.fn))
            self.families[key] = (
                Family(base, self.target, self.choose, self.implement) if able else None
            )
        return self.families[key]

    def _routine(self, fn: Function) -> Routine:
        def leaf(block: Function) -> Function:
            return lower(Function(named.name, named.params, block.body, block.results))

        tree = _is_tree(fn)
        cutter = Cutter(self.call, leaf) if tree else Cutter(self.call)
        named = cutter.named(fn)
        lowered = named if tree else lower(named)
        if self.executor == "graph":
            check_static(lowered)
        code = cutter.code(lowered, {})
        return Routine(fn.name, lowered.params, lowered, code, self._executor(lowered, code))

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
        able = candidates(workload)
        if not able:
            return None
        return self._implemented(b, workload, args, *self.choose(workload, able))

    def implement(self, call: KernelCall, implementation: Implementation, why: str) -> KernelCall:
        """The same call with another implementation."""
        return self._implemented(call.binding, call.workload, call.args, implementation, why)

    def _implemented(
        self,
        b: Binding,
        workload: Workload,
        args: tuple[Atom, ...],
        implementation: Implementation,
        why: str,
    ) -> KernelCall:
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
