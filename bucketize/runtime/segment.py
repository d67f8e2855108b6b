"""Segments: straight runs of kernels whose shapes follow from the shapes at their entry.

A `Segment` is compiled once; at each new set of symbol values it makes a `Plan`: concrete launch
arguments, memory offsets, and one table of argument blocks that a native loop walks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from ctypes import c_int64
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeAlias

import numpy as np
from numba import set_num_threads

from bucketize.errors import BucketizeError, ShapeError
from bucketize.ir import FUSED, Atom, Binding, Const, Function, Var, refine, specialise
from bucketize.kernel.build import Kernel, build
from bucketize.kernel.target import Target, host
from bucketize.kernel.template import Launch, Schedule, Template, Workload
from bucketize.kernel.templates import template_for
from bucketize.lower.fuse import group_function
from bucketize.op import Array
from bucketize.ops import from_dims, reshape, squeeze, unsqueeze
from bucketize.runtime.launch import WORD, run_parallel, run_serial, use_threads, warn_of_workqueue
from bucketize.runtime.parallel import parts, split
from bucketize.runtime.shape_code import compile_dims
from bucketize.runtime.storage import (
    Arena,
    ConstantPool,
    Lifetime,
    address,
    plan_memory,
    round_up,
)
from bucketize.types import Shape, Symbol, Symbolic, symbols

VIEWS = (reshape, squeeze, unsqueeze)
MAX_PLANS = 64  # shapes whose plans a segment keeps

Choice: TypeAlias = tuple[Schedule, str]  # a schedule and where it comes from
Chooser: TypeAlias = Callable[[Workload, Template], Choice]
Root: TypeAlias = Atom


# --- choosing and building -----------------------------------------------------------------------


def workload_of(b: Binding) -> tuple[Workload, tuple[Atom, ...]]:
    """The workload of a binding, and the arguments that its kernel takes."""
    if b.op is FUSED:
        body, args = refine(b.attrs["body"], [a.type for a in b.args]), b.args
    else:
        inputs, body = group_function([b])
        args = tuple(inputs)
    return Workload(body, tuple(isinstance(a, Const) for a in args)), args


@dataclass(frozen=True, eq=False)
class Step:
    """One kernel of a segment."""

    binding: Binding
    workload: Workload
    args: tuple[Atom, ...]
    template: Template
    schedule: Schedule
    source: str
    """Where the schedule comes from: "log" or "default"."""
    kernel: Kernel
    constants: Mapping[int, Array]
    """The constant arguments, by position, as the kernel wants them."""


@dataclass(frozen=True)
class Context:
    """What the segments of one executable share."""

    pool: ConstantPool
    arena: Arena
    threads: int
    lock: Lock
    target: Target
    on_kernel: Callable[[Kernel], None]
    on_host: Callable[[str], None]


def new_context(
    threads: int, on_kernel: Callable[[Kernel], None], on_host: Callable[[str], None]
) -> Context:
    """Shared state for the segments of an executable, and who is told what they are made of."""
    use_threads(threads)
    return Context(ConstantPool(), Arena(), threads, Lock(), host(), on_kernel, on_host)


def compile_step(b: Binding, choose: Chooser, context: Context) -> Step:
    """Choose a schedule for a binding and build its kernel."""
    workload, args = workload_of(b)
    template = template_for(workload)
    schedule, source = choose(workload, template)
    try:
        text = template.source(workload, schedule, context.target)
        kernel = build(text, name_hint=template.name)
    except BucketizeError as e:
        e.add_note(f"in the kernel of {workload.key} under {dict(schedule)}")
        raise
    context.on_kernel(kernel)
    constants = {
        i: _constant(a.value, i, workload, template, schedule, context)
        for i, a in enumerate(args)
        if isinstance(a, Const)
    }
    return Step(b, workload, args, template, schedule, source, kernel, constants)


def _constant(
    value: Array,
    index: int,
    workload: Workload,
    template: Template,
    schedule: Schedule,
    context: Context,
) -> Array:
    key = template.pack_key(workload, schedule, index)
    if not key:
        return context.pool.plain(value)
    return context.pool.packed(
        value, key, lambda v: _packed(template.pack(workload, schedule, index, v), v)
    )


def _packed(packed: Array | None, value: Array) -> Array:
    return value if packed is None else packed


# --- a segment and its plans ---------------------------------------------------------------------


class Segment:
    """A straight-line function whose kernels are built; runs at any sizes of its symbols."""

    def __init__(self, fn: Function, choose: Chooser, context: Context) -> None:
        """Build the kernels of `fn`, a lowered function without branches or calls."""
        self.fn = fn
        self.context = context
        self.steps = [
            compile_step(b, choose, context)
            for b in fn.body
            if b.op not in VIEWS and b.op is not from_dims
        ]
        self.views = {b.out: b.args[0] for b in fn.body if b.op in VIEWS}
        self.dims = {b.out: b.attrs["dims"] for b in fn.body if b.op is from_dims}
        self.variables = [*fn.params, *(b.out for b in fn.body)]
        self.symbols = tuple(sorted(_symbol_names(fn)))
        flat = [d for v in self.variables for d in v.type.shape]
        flat += [d for dims in self.dims.values() for d in dims]
        self._evaluate = compile_dims(flat, self.symbols)
        self._plans: OrderedDict[tuple[int, ...], Plan] = OrderedDict()

    def plan(self, env: Mapping[str, int]) -> Plan:
        """The plan for these sizes, made at their first call."""
        key = tuple([env[s] for s in self.symbols])
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = Plan(self, key)
            if len(self._plans) > MAX_PLANS:
                self._plans.popitem(last=False)
        else:
            self._plans.move_to_end(key)
        return plan

    def evaluate(self, key: tuple[int, ...]) -> tuple[dict[Var, Shape], dict[Var, Array]]:
        """The shapes of all variables, and the values of those that are made of dims."""
        values = iter(self._evaluate(*key))
        shapes = {v: tuple([next(values) for _ in v.type.shape]) for v in self.variables}
        dims = {
            v: np.array([next(values) for _ in d], np.int64).reshape(shapes[v])
            for v, d in self.dims.items()
        }
        return shapes, dims  # type: ignore[return-value]

    def root(self, atom: Atom) -> Root:
        """The atom whose memory this one is a view of."""
        while atom in self.views:
            atom = self.views[atom]
        return atom


def _symbol_names(fn: Function) -> set[str]:
    types = [v.type for v in (*fn.params, *(b.out for b in fn.body))]
    names = {s.name for t in types for s in t.symbols()}
    return names | {s.name for b in fn.body for s in attr_symbols(tuple(b.attrs.values()))}


def attr_symbols(value: Any) -> Iterable[Symbol]:
    """The symbols in an attribute, fused groups included."""
    if isinstance(value, tuple):
        for v in value:
            yield from attr_symbols(v)
    elif isinstance(value, Function):
        for b in value.body:
            yield from attr_symbols(tuple(b.attrs.values()))
    elif isinstance(value, Symbolic):
        yield from symbols(value)  # type: ignore[arg-type]


class Plan:
    """A segment at concrete sizes: where everything lives and what each kernel is called with."""

    def __init__(self, segment: Segment, key: tuple[int, ...]) -> None:
        """Evaluate shapes, plan memory, and fill the table of argument blocks."""
        self.segment = segment
        self.shapes, self._held = segment.evaluate(key)
        sizes = dict(zip(segment.symbols, key, strict=True))
        self._check_views(sizes)
        self.launches = [self._launch(s, sizes) for s in segment.steps]
        self._place()
        self._fill()

    # Memory: a result that a kernel makes is written where the caller gets it; the rest that
    # kernels make lies in the arena.

    def _place(self) -> None:
        segment = self.segment
        roots = [segment.root(r) for r in segment.fn.results]
        made = {s.binding.out for s in segment.steps}
        self.slots = {r: i for i, r in reversed(list(enumerate(roots))) if r in made}
        last: dict[Atom, int] = {}
        for i, step in enumerate(segment.steps):
            last.update((segment.root(a), i) for a in step.args)
        names: list[Any] = []
        lives: list[Lifetime] = []
        for i, (step, launch) in enumerate(zip(segment.steps, self.launches, strict=True)):
            out = step.binding.out
            if out not in self.slots:
                names.append(out)
                lives.append(Lifetime(self._nbytes(out), i, last.get(out, i)))
            names.append(step)
            size = round_up(launch.workspace) * segment.context.threads
            lives.append(Lifetime(size, i, len(segment.steps) - 1 if launch.checked else i))
        offsets, self.arena_bytes = plan_memory(lives)
        self.offsets: dict[Any, int] = dict(zip(names, offsets, strict=True))

    def _check_views(self, sizes: Mapping[str, int]) -> None:
        """A view has no kernel whose types would be inferred again at these sizes."""
        for out, source in self.segment.views.items():
            have, want = self._shape(source), self._shape(out)
            if int(np.prod(have, dtype=np.int64)) != int(np.prod(want, dtype=np.int64)):
                where = f"reshape of {source.type} to {out.type}"
                raise ShapeError(f"{where} at {dict(sizes)}: {have} does not fit {want}")

    def _nbytes(self, var: Var) -> int:
        return int(np.prod(self._shape(var), dtype=np.int64)) * var.type.dtype.itemsize

    def _launch(self, step: Step, sizes: Mapping[str, int]) -> Launch:
        shapes = tuple(self._shape(a) for a in (*step.args, step.binding.out))
        body = specialise(step.workload.body, sizes)
        workload = Workload(body, step.workload.constant)
        target = self.segment.context.target
        return step.template.launch(workload, step.schedule, shapes, target)

    def _shape(self, atom: Atom) -> tuple[int, ...]:
        return atom.value.shape if isinstance(atom, Const) else self.shapes[atom]  # type: ignore[return-value]

    # The table: one row of words a kernel and thread. What moves between calls is patched.

    def _fill(self) -> None:
        steps, threads = self.segment.steps, self.segment.context.threads
        pairs = list(zip(steps, self.launches, strict=True))
        self.width = max((len(s.args) + 4 + len(n.dims) for s, n in pairs), default=1)
        self.table = np.zeros(len(steps) * threads * self.width, np.int64)
        self.kernels = np.array([s.kernel.address for s in steps], np.int64)
        self.chunks = np.ones(len(steps), np.int64)
        self._inputs: list[list[int]] = [[] for _ in self.segment.fn.params]
        self._outputs: list[list[int]] = [[] for _ in self.segment.fn.results]
        self._reports: list[tuple[int, Step]] = []
        arena: list[tuple[int, int]] = []
        params: dict[Atom, int] = {p: i for i, p in enumerate(self.segment.fn.params)}
        for i, (step, launch) in enumerate(pairs):
            shapes = tuple(self._shape(a) for a in (*step.args, step.binding.out))
            self.chunks[i] = parts(step.workload, shapes, threads)
            for t, cut in enumerate(split(launch, int(self.chunks[i]))):
                row = (i * threads + t) * self.width
                self._fill_row(row, step, launch, params, arena)
                word = row + len(step.args) + 1
                self.table[word + 1 : word + 3] = cut
                if launch.workspace:
                    own = self.offsets[step] + t * round_up(launch.workspace)
                    arena.append((word, own))
                if launch.checked:
                    self._reports.append((own, step))
        self._arena_words = np.array([w for w, _ in arena], np.int64)
        self._arena_offsets = np.array([o for _, o in arena], np.int64)
        self._generation = 0
        self._blocks = address(self.table)

    def _fill_row(
        self,
        row: int,
        step: Step,
        launch: Launch,
        params: Mapping[Atom, int],
        arena: list[tuple[int, int]],
    ) -> None:
        for k, atom in enumerate((step.binding.out, *step.args)):
            root, word = self.segment.root(atom), row + k
            if k and k - 1 in step.constants:
                self.table[word] = address(step.constants[k - 1])
            elif root in params:
                self._inputs[params[root]].append(word)
            elif root in self.slots:
                self._outputs[self.slots[root]].append(word)
            elif isinstance(root, Const):
                self.table[word] = address(self.segment.context.pool.plain(root.value))
            elif root in self._held:
                self.table[word] = address(self._held[root])
            else:
                arena.append((word, self.offsets[root]))
        first = row + len(step.args) + 4
        self.table[first : first + len(launch.dims)] = launch.dims

    # Running.

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """The results for these inputs; the caller owns them."""
        inputs = [a if a.flags.c_contiguous else np.ascontiguousarray(a) for a in arrays]
        outputs = self._new_outputs()
        context = self.segment.context
        with context.lock:
            base = context.arena.reserve(self.arena_bytes)
            if self._generation != context.arena.generation:
                self.table[self._arena_words] = self._arena_offsets + base
                self._generation = context.arena.generation
            _patch(self.table, self._inputs, inputs)
            _patch(self.table, self._outputs, outputs)
            self._call(context.threads)
            for offset, step in self._reports:
                _check_report(base + offset, step)
        return [self._result(i, inputs, outputs) for i in range(len(outputs))]

    def _call(self, threads: int) -> None:
        stride = self.width * WORD
        if threads == 1:
            run_serial(self.kernels, self._blocks, stride)
        else:
            set_num_threads(threads)  # of the calling thread, whichever it is
            run_parallel(self.kernels, self._blocks, stride, threads, self.chunks)
            warn_of_workqueue()

    def _new_outputs(self) -> list[Array]:
        fn = self.segment.fn
        return [np.empty(self._shape(r), r.type.dtype) for r in fn.results]

    def _result(self, index: int, inputs: Sequence[Array], outputs: Sequence[Array]) -> Array:
        atom = self.segment.fn.results[index]
        root = self.segment.root(atom)
        if root in self.slots and self.slots[root] == index:
            return outputs[index]
        outputs[index][...] = self._source(root, inputs, outputs).reshape(outputs[index].shape)
        return outputs[index]

    def _source(self, root: Atom, inputs: Sequence[Array], outputs: Sequence[Array]) -> Array:
        if isinstance(root, Const):
            return root.value
        if root in self.slots:
            return outputs[self.slots[root]]
        if root in self._held:
            return self._held[root]
        return inputs[self.segment.fn.params.index(root)]


def _check_report(place: int, step: Step) -> None:
    """What a checked kernel says of its indices."""
    if c_int64.from_address(place).value:
        _, index, extent = (c_int64 * 3).from_address(place)
        where = f"in {step.workload.anchor.op.name}"
        raise ShapeError(f"{where}: index {index} is out of range for extent {extent}")


def _patch(table: Array, words: Sequence[Sequence[int]], arrays: Sequence[Array]) -> None:
    for places, array in zip(words, arrays, strict=True):
        where = address(array)
        for word in places:
            table[word] = where
