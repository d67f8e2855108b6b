"""Deciding: a module becomes a program, function by function, each when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import NoneType

import numpy as np

from bucketize.dispatch.bucket import fallback_name
from bucketize.dispatch.tree import name_dims
from bucketize.errors import (
    BucketizeError,
    CompileError,
    KernelError,
    ShapeError,
    TypeRelError,
    warn,
)
from bucketize.fork import ThreadLock
from bucketize.ir import (
    CALL,
    IF,
    ILLEGAL,
    NO_BUCKET,
    TESTS,
    Atom,
    Binding,
    Const,
    Function,
    Module,
    all_bindings,
    refusing,
)
from bucketize.kernel.build import kernel_name
from bucketize.kernel.schedule import Implementation
from bucketize.kernel.select import Select
from bucketize.kernel.template import Template
from bucketize.kernel.templates import TEMPLATES, candidates
from bucketize.kernel.workload import Workload, workload_of
from bucketize.lower.arrangement import USUAL, Arrangement
from bucketize.lower.cost import default_of, read_bytes, weighed
from bucketize.lower.pipeline import lower
from bucketize.machine.target import Target
from bucketize.ops import pad, reshape, strided_slice
from bucketize.ops.dim import from_dims
from bucketize.program.configuration import Configuration, Configurations, defaults
from bucketize.program.cut import Cutter
from bucketize.program.instruction import (
    AGREED,
    DEFAULT,
    LOGGED,
    Code,
    KernelCall,
    RunSegment,
    Segment,
    with_segments,
)
from bucketize.program.program import Program, Routine, Routines
from bucketize.program.sharing import Defaults, Family, family_of
from bucketize.ragged.name import ragged_name
from bucketize.ragged.ragged import packed_of
from bucketize.types import Symbolic, TensorType


def decide(
    module: Module,
    configurations: Configurations,
    *,
    target: Target,
    threads: int,
    executor: str,
    together: bool = False,
) -> Program:
    """The program of a module; its routines are decided when they are asked for.

    With `together` all will be: the defaults of clones that differ by bounds alone are judged at
    once.
    """
    sources: dict[str, str] = {}
    target = weighed(target, read_bytes(_originals(module)))
    decider = _Decider(module, configurations, target, executor, sources, together)
    routines = Routines(module.functions, decider.routine)
    return Program(routines, module.clones, module.outputs, threads, target, sources)


def _originals(module: Module) -> Collection[Function]:
    """The functions of a module that are no clones, and what its clones specialise."""
    names = [name for name in module.functions if name not in module.clones]
    origins = [c.origin or module.functions[name] for name, c in module.clones.items()]
    return {id(fn): fn for fn in (*map(module.functions.__getitem__, names), *origins)}.values()


@dataclass(frozen=True, eq=False)
class _Decider:
    """Decides the functions of one module."""

    module: Module
    configurations: Configurations
    target: Target
    executor: str
    sources: dict[str, str]
    together: bool = False
    families: dict[object, Family | None] = field(default_factory=dict)
    founding: ThreadLock = field(default_factory=ThreadLock)
    """Taken by who makes a family: threads decide several functions at once, one family for all."""
    names: dict[str, str] = field(default_factory=dict)
    """Names of the kernels, by source: of two templates that write the same, the first one's."""
    workloads: dict[Hashable, Workload] = field(default_factory=dict)
    """By signature: what a large graph repeats is looked into once."""
    able: dict[Workload, Sequence[Template]] = field(default_factory=dict)
    written: dict[tuple[Workload, Hashable], str] = field(default_factory=dict)
    """The names of kernels, by workload and implementation."""

    @cached_property
    def usual(self) -> Defaults:
        """What runs in functions that are no family's."""
        return Defaults(self.target, {}, {})

    def routine(self, name: str) -> Routine:
        """The function as instructions."""
        configuration = self.configuration(name)
        arrangement = USUAL if configuration is None else configuration.arrangement
        try:
            family = self._family(name) if arrangement == USUAL else None
            if family is not None:
                return family.member(name)
            return self._routine(self._function(name), arrangement)
        except (TypeRelError, ShapeError) as e:
            refused = refusing(self.module, name, e)
            if refused is None:
                raise
            return self._routine(refused)

    def configuration(self, name: str) -> Configuration | None:
        """What is known of a function, if it is one of the module's."""
        return self.configurations(name) if name in self.module.functions else None

    def _function(self, name: str) -> Function:
        """The function, or what the module does without.

        A fallback is what clones specialise, a packed form what the original is proved to have.
        """
        if name in self.module.functions:
            return self.module.functions[name]
        if name == ragged_name("main"):
            return packed_of(self.module)
        for clone in self.module.clones.values():
            origin = clone.origin if clone.policy == "exact" else None
            if origin is not None and fallback_name(origin.name) == name:
                return replace(origin, name=name)
        raise KeyError(name)

    def _family(self, name: str) -> Family | None:
        """The clones that differ from this one by bounds alone, and are lowered together."""
        clone = self.module.clones.get(name)
        if clone is None or clone.policy != "exact" or self.executor == "graph":
            return None
        shared = family_of(clone)
        if shared is None:
            return None
        key, function = shared
        with self.founding:
            if key not in self.families:
                self.families[key] = self._new_family(function(), self._peers.get(key, ()))
        return self.families[key]

    @cached_property
    def _peers(self) -> Mapping[object, Sequence[str]]:
        """The clones of each family, if they are judged together."""
        peers: dict[object, list[str]] = {}
        for name, clone in self.module.clones.items() if self.together else ():
            key, _ = family_of(clone) or (None, None)
            peers.setdefault(key, []).append(name)
        return peers

    def _new_family(self, fn: Function, peers: Sequence[str]) -> Family | None:
        usual = Defaults(self.target, fn.symbols(), self.module.clones, peers)
        base = self._routine(fn, usual=usual)
        if any(b.op is IF or b.op.static for b in all_bindings(base.fn)):
            return None
        return Family(base, self.target, self.choose, self.implement, self.able, usual)

    def _routine(
        self, fn: Function, arrangement: Arrangement = USUAL, usual: Defaults | None = None
    ) -> Routine:
        fn = name_dims(fn)
        lowered = fn if _is_tree(fn) else lower(fn, arrangement, target=self.target)
        if self.executor == "graph":
            check_static(lowered)
        code = Cutter(partial(self.call, fn.name, usual or self.usual)).code(lowered, {})
        executor = self._executor(lowered, code)
        return Routine(fn.name, lowered.params, lowered, code, executor, arrangement)

    def _executor(self, fn: Function, code: Code) -> str:
        if self.executor == "graph":
            check_native(fn, code)
            return "graph"
        straight = all(isinstance(i, RunSegment) for i in code.instructions)
        static = all(p.type.is_static for p in fn.params)
        single = len(code.instructions) <= 1
        return "graph" if self.executor == "auto" and static and straight and single else "vm"

    def call(self, function: str, usual: Defaults, b: Binding) -> KernelCall | None:
        """The kernel of a binding of a function; None if no template takes it."""
        fresh, args = workload_of(b)
        workload = self.workloads.setdefault(fresh.signature, fresh)
        if workload not in self.able:
            self.able[workload] = candidates(workload, self.target)
        able = self.able[workload]
        if not able:
            return None
        chosen = self.choose(function, workload, able, usual.of(workload, able))
        return self._implemented(b, workload, args, *chosen)

    def choose(
        self, function: str, workload: Workload, able: Sequence[Template], default: Select
    ) -> tuple[Select, str]:
        """What the function's configuration says, or else the default, and which of both it is."""
        configuration = self.configuration(function)
        if configuration is None:
            return default, DEFAULT
        logged = configuration.implementations.get(workload.hash)
        if logged is None:
            return default, AGREED
        chosen = completed(logged, workload, able, self.target)
        if chosen is not None:
            return chosen, LOGGED
        warn(
            f"{function} was tuned to {logged}, which is not legal any more: its default stays; "
            f"tune again"
        )
        return default, DEFAULT

    def implement(self, call: KernelCall, select: Select, why: str) -> KernelCall:
        """The kernel call with other implementations."""
        return self._implemented(call.binding, call.workload, call.args, select, why)

    def _implemented(
        self, b: Binding, workload: Workload, args: tuple[Atom, ...], select: Select, why: str
    ) -> KernelCall:
        """The call by each implementation; tensors lie where all of them can reach them."""
        each = [self._by(b, workload, args, i, why) for i in select.implementations]
        if len(each) == 1:
            return each[0]
        pitched = frozenset.intersection(*(call.pitched for call in each))
        first, *others = (replace(call, pitched=pitched) for call in each)
        return replace(first, larger=tuple(zip(select.thresholds, others, strict=True)))

    def _by(
        self,
        b: Binding,
        workload: Workload,
        args: tuple[Atom, ...],
        implementation: Implementation,
        why: str,
    ) -> KernelCall:
        template, schedule = TEMPLATES[implementation.template], implementation.schedule
        key = workload, implementation.key
        if key not in self.written:
            self.written[key] = self._kernel(workload, implementation)
        packs = {
            i: template.pack_key(workload, schedule, i)
            for i, a in enumerate(args)
            if isinstance(a, Const)
        }
        pitched = template.pitched(workload)
        return KernelCall(b, workload, args, implementation, why, self.written[key], packs, pitched)

    def _kernel(self, workload: Workload, implementation: Implementation) -> str:
        """The name of the kernel, whose source the program has."""
        template, schedule = TEMPLATES[implementation.template], implementation.schedule
        check_words(workload)
        try:
            source = template.source(workload, schedule, self.target)
        except BucketizeError as e:
            e.add_note(f"in the kernel of {workload.key} under {implementation}")
            raise
        if source not in self.names:
            name = kernel_name(source, template.name, self.target.processor)
            self.sources[name] = source
            self.names.setdefault(source, name)
        return self.names[source]


def check_words(workload: Workload) -> None:
    """Raise `KernelError` for an attribute that may not be in a source: text that is no word."""
    for b in workload.body.body:
        for name, value in b.attrs.items():
            for part in _parts(value):
                if isinstance(part, str) and not (part.isidentifier() or not part):
                    raise KernelError(f"{b.op.name}: expected a word as {name}, got {part!r}")
                if not isinstance(part, PLAIN):
                    got = type(part).__name__
                    raise KernelError(
                        f"{b.op.name}: expected numbers or words as {name}, got {got}"
                    )


PLAIN = (int, float, bool, NoneType, str, np.dtype, Symbolic, TensorType)
"""What the attributes of a kernel are made of; in text a dtype may be a scalar's type."""


def _parts(value: object) -> Iterator[object]:
    if isinstance(value, tuple):
        for part in value:
            yield from _parts(part)
    else:
        yield value


def completed(
    select: Select, workload: Workload, able: Sequence[Template], target: Target
) -> Select | None:
    """What a log or a file says, newer knobs at their defaults; None if some is not legal here."""
    each = [_completed(i, workload, able, target) for i in select.implementations]
    legal = tuple(i for i in each if i is not None)
    return Select(legal, select.thresholds) if len(legal) == len(each) else None


def _completed(
    implementation: Implementation, workload: Workload, able: Sequence[Template], target: Target
) -> Implementation | None:
    """The implementation, completed; without a name, of logs of old, the default template's."""
    for template in able:
        if implementation.template in (template.name, ""):
            whole = {**template.default(workload, target), **implementation.schedule}
            legal = template.valid(workload, whole, target) is None
            return Implementation(template.name, whole) if legal else None
    return None


def redecided(program: Program, target: Target) -> Program:
    """A program for another target: its implementations where they are legal there."""
    target = replace(target, weight_bytes=program.target.weight_bytes)

    def select(call: KernelCall) -> tuple[Select, str]:
        able = candidates(call.workload, target)
        if not able:
            raise CompileError(f"no template of this version takes {call.workload.key}")
        kept = completed(call.select, call.workload, able, target)
        if kept is not None:
            return kept, call.why
        return default_of(call.workload, able, target), DEFAULT

    return rewritten(program, target, select)


def rewritten(
    program: Program, target: Target, select: Callable[[KernelCall], tuple[Select, str]]
) -> Program:
    """The program for a target whose calls run what is selected for each, and why that is."""
    sources: dict[str, str] = {}
    decider = _Decider(Module({}), defaults, target, "auto", sources)
    calls: dict[KernelCall, KernelCall] = {}
    segments: dict[Segment, Segment] = {}

    def call(old: KernelCall) -> KernelCall:
        if old not in calls:
            calls[old] = decider.implement(old, *select(old))
        return calls[old]

    def segment(old: Segment) -> Segment:
        if old not in segments:
            segments[old] = Segment(old.fn, tuple(map(call, old.every)), old)
        return segments[old]

    def routine(name: str) -> Routine:
        old = program.routines[name]
        return replace(old, code=with_segments(old.code, segment))

    routines = Routines(program.routines, routine)
    return replace(program, routines=routines, target=target, sources=sources)


LEAN = frozenset((*TESTS, IF, CALL, ILLEGAL, NO_BUCKET, from_dims, pad, strided_slice, reshape))
"""What dispatch puts around clones: there is nothing to lower, however many there are."""


def _is_tree(fn: Function) -> bool:
    """Whether a function only decides, calls, pads and crops."""
    return any(b.op is IF for b in fn.body) and all(b.op in LEAN for b in all_bindings(fn))


# --- what the graph executor asks for ------------------------------------------------------------


def check_static(fn: Function) -> None:
    """Raise `CompileError` naming the first dynamic binding and the input axis it comes from."""
    dynamic = next(_dynamic(fn), None)
    if dynamic is not None:
        raise CompileError(f"{fn.name}: the graph executor takes static shapes only, but {dynamic}")


def _dynamic(fn: Function) -> Iterator[str]:
    for param in fn.params:
        if not param.type.is_tensor:
            yield f"input {param.name!r} is {param.type}"
        for axis, dim in enumerate(param.type.axes):
            if not isinstance(dim, int):
                users = [b for b in fn.body if any(dim in o.type.axes for o in b.outs)]
                first = f"; first in {users[0].op.name}: {users[0].outs[0].type}" if users else ""
                yield f"input {param.name!r}, axis {axis} is {dim}{first}"
    for b in all_bindings(fn):
        unknown = (out.type for out in b.outs if not out.type.is_static)
        yield from (f"the shape of {b.op.name} depends on values: {type_}" for type_ in unknown)


def check_native(fn: Function, code: Code) -> None:
    """Raise `CompileError` naming what is no native kernel."""
    for instruction in code.instructions:
        if not isinstance(instruction, RunSegment):
            binding = getattr(instruction, "binding", None)
            what = binding.op.name if binding else instruction.name
            raise CompileError(f"{fn.name}: the graph executor has no kernel for {what}")
