"""A compiled module: the graph executor for what is static, the VM for everything else."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, TypeAlias

import numpy as np

from bucketize.call import arrange_inputs, bind_shapes
from bucketize.errors import BucketizeError, CompileError, unknown_name
from bucketize.ir import Const, Function, Module, Var
from bucketize.kernel.build import Kernel
from bucketize.kernel.template import Schedule, Template, Workload
from bucketize.lower.pipeline import lower
from bucketize.op import Array
from bucketize.runtime.explain import Explanation, explain, sizes_of
from bucketize.runtime.route import Route, find_route
from bucketize.runtime.segment import MAX_PLANS, Chooser, new_context
from bucketize.runtime.vm import Code, Invoke, Routine, RunSegment
from bucketize.types import bounds

EXECUTORS = ("auto", "graph", "vm")
LOGGER = logging.getLogger("bucketize")

Progress: TypeAlias = Callable[[str, int, int], None]  # (what, done, total)


class Graph:
    """The graph executor: one plan, made at compile time; takes only fully static functions."""

    def __init__(self, routine: Routine) -> None:
        """Plan the function that `routine` compiled."""
        self.fn = routine.fn
        self.code = routine.code
        self.routine = routine
        segments = [i.segment for i in self.code.instructions if isinstance(i, RunSegment)]
        self.plan = segments[0].plan({}) if segments else None

    def run(self, arrays: Sequence[Array], invoke: Invoke) -> list[Array]:
        """The results for these inputs, whose shapes are checked."""
        self.routine.sizes(arrays)
        if self.plan is None:
            return self.routine.run(arrays, invoke)
        segment = self.plan.segment
        given: dict[Any, Array] = dict(zip(self.fn.params, arrays, strict=True))
        made = self.plan.run([given[p] for p in segment.fn.params])
        given.update(zip(segment.fn.results, made, strict=True))
        return [r.value.copy() if isinstance(r, Const) else given[r] for r in self.code.results]


def is_straight(code: Code) -> bool:
    """Whether code is at most one native segment."""
    return len(code.instructions) <= 1 and all(isinstance(i, RunSegment) for i in code.instructions)


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
    for b in fn.body:
        for out in b.outs:
            if not out.type.is_static:
                raise CompileError(
                    f"{fn.name}: the graph executor takes static shapes only, but the shape of "
                    f"{b.op.name} depends on values: {out.type}"
                )


def check_native(routine: Routine) -> Routine:
    """The routine, if it is one native segment; else `CompileError` naming what is not."""
    for instruction in routine.code.instructions:
        if not isinstance(instruction, RunSegment):
            what = _named(instruction)
            raise CompileError(f"{routine.fn.name}: the graph executor has no kernel for {what}")
    return routine


def _owned(results: Sequence[Array], inputs: Sequence[Array]) -> list[Array]:
    """The results, each in memory of its own: an input that is returned, or a repeat, is copied."""
    seen = {id(a) for a in inputs}
    mine = []
    for result in results:
        mine.append(result.copy() if id(result) in seen else result)
        seen.add(id(result))
    return mine


def _zeros(param: Var) -> Array:
    shape = [bounds(d)[0] for d in param.type.shape]
    return np.zeros(shape, param.type.dtype)


def _named(instruction: object) -> str:
    binding = getattr(instruction, "binding", None)
    return binding.op.name if binding is not None else type(instruction).__name__.lower()


@dataclass
class Counts:
    """What compiling came to."""

    found: int = 0
    defaults: int = 0
    kernels: int = 0
    built: int = 0
    seconds: float = 0.0
    host: dict[str, int] = field(default_factory=dict)
    """Ops without a template, which numpy computes, and how often they occur."""

    def __str__(self) -> str:
        slow = ", ".join(f"{n} x {op}" for op, n in self.host.items())
        return (
            f"{self.found + self.defaults} workloads: {self.found} with schedules from the log, "
            f"{self.defaults} on defaults; {self.kernels} kernels, {self.built} of them compiled "
            f"now, {self.kernels - self.built} from the cache; {self.seconds:.2f} s"
            f"{slow and f'; on the host, for want of a template: {slow}'}"
        )


class Executable:
    """A compiled module. Not made directly: see `bucketize.compile`."""

    def __init__(
        self,
        module: Module,
        choose: Chooser,
        *,
        threads: int = 1,
        executor: str = "auto",
        lazy: bool = False,
        strict: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """Compile every function of `module`, or each at its first use when `lazy`."""
        if executor not in EXECUTORS:
            raise unknown_name("executor", executor, EXECUTORS)
        self.module = module
        self.counts = Counts()
        self._kernels: dict[str, Kernel] = {}
        self._compiling = RLock()
        self._choose = choose
        self._executor = executor
        self._strict = strict
        self._context = new_context(threads, self._on_kernel, self._on_host)
        self._routines: dict[str, Graph | Routine] = {}
        self._routes: dict[tuple[tuple[int, ...], ...], Route | None] = {}
        self._params = module.main.params
        names = ["main"] if lazy else list(module.functions)
        for i, name in enumerate(names):
            if progress is not None:
                progress(name, i, len(names))
            self._compile(name)
        LOGGER.info("%s", self.counts)

    # Running.

    def run(self, *arrays: Array, **named: Array) -> list[Array]:
        """The results of `main`; inputs by position or by name, outputs owned by the caller."""
        inputs = arrange_inputs(self._params, arrays, named)
        shapes = tuple([a.shape for a in inputs])
        route = self._routes.get(shapes)
        if route is not None:
            return route.run(inputs)
        results = _owned(self._invoke("main", inputs), inputs)
        if shapes not in self._routes:
            self._remember(shapes)
        return results

    def _remember(self, shapes: tuple[tuple[int, ...], ...]) -> None:
        """Note where inputs of these shapes go: straight to a plan, or None."""
        if len(self._routes) >= MAX_PLANS:
            self._routes.clear()
        sizes = bind_shapes(self._params, shapes)
        self._routes[shapes] = find_route("main", sizes, self._routines)

    def run_clone(self, clone: str, *arrays: Array, **named: Array) -> list[Array]:
        """The results of one clone, chosen by its name or its profile's, not by the sizes."""
        name = self._clone(clone)
        inputs = arrange_inputs(self.module.functions[name].params, arrays, named)
        return _owned(self._invoke(name, inputs), inputs)

    def _clone(self, clone: str) -> str:
        labelled = [n for n, c in self.module.clones.items() if c.label == clone != ""]
        if clone in self.module.functions or not labelled:
            self.module.function(clone)
            return clone
        return labelled[0]

    def _invoke(self, name: str, arrays: Sequence[Array]) -> list[Array]:
        routine = self._routines.get(name)
        if routine is None:
            if self._strict:
                raise CompileError(f"{name} is not compiled, and compiling at a call is forbidden")
            routine = self._compile(name)
        return routine.run(arrays, self._invoke)

    def warm_up(self, progress: Progress | None = None) -> None:
        """Compile and run every clone once at its smallest sizes, on zeros."""
        names = list(self.module.functions)
        for i, name in enumerate(names):
            if progress is not None:
                progress(name, i, len(names))
            routine = self._routines.get(name) or self._compile(name)
            if name != "main" or len(names) == 1:
                routine.run([_zeros(p) for p in routine.fn.params], self._invoke)

    # Compiling.

    def _compile(self, name: str) -> Graph | Routine:
        with self._compiling:
            if name not in self._routines:
                self._routines[name] = self._compiled(name)
        return self._routines[name]

    def _compiled(self, name: str) -> Graph | Routine:
        start = time.perf_counter()
        try:
            fn = lower(self.module.functions[name])
        except BucketizeError as e:
            e.add_note(f"in {name}: if the model is not legal at these sizes, bound its symbols")
            raise
        if self._executor == "graph":
            check_static(fn)
        routine = Routine(fn, self._counted(self._choose), self._context)
        made: Graph | Routine = routine
        static = all(p.type.is_static for p in fn.params)
        if self._executor == "graph" or (
            self._executor == "auto" and static and is_straight(routine.code)
        ):
            made = Graph(check_native(routine))
        self.counts.seconds += time.perf_counter() - start
        return made

    def _counted(self, choose: Chooser) -> Chooser:
        def counted(workload: Workload, template: Template) -> tuple[Schedule, str]:
            schedule, source = choose(workload, template)
            self.counts.found += source != "default"
            self.counts.defaults += source == "default"
            return schedule, source

        return counted

    def _on_host(self, op: str) -> None:
        self.counts.host[op] = self.counts.host.get(op, 0) + 1

    def _on_kernel(self, kernel: Kernel) -> None:
        if kernel.name not in self._kernels:
            self._kernels[kernel.name] = kernel
            self.counts.kernels += 1
            self.counts.built += not kernel.cached

    # What it came to.

    @property
    def kernels(self) -> dict[str, Kernel]:
        """The distinct kernels compiled so far, by name."""
        return dict(self._kernels)

    @property
    def routines(self) -> dict[str, Graph | Routine]:
        """The functions compiled so far, by name."""
        return dict(self._routines)

    def constant_bytes(self) -> int:
        """Bytes of the constants as the kernels hold them; one copy serves all clones."""
        return self._context.pool.nbytes()

    def explain(self, **shapes: Any) -> Explanation:
        """What runs for these input shapes or symbol sizes, and why; compiles what it names.

        `exe.explain(data=(3, 3, 224, 224))` or `exe.explain(N=3, H=224, W=224)`.
        """
        sizes = sizes_of(self.module.main, shapes)
        return explain("main", sizes, lambda n: self._routines.get(n) or self._compile(n))
