"""Families: clones that differ by bounds alone are lowered once, and share what they agree on.

A clone whose buckets have more than one size is its family's function with other bounds; all that
they change is which implementation is best. Clones that choose alike share segments and plans.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from bucketize.dispatch.bucket import narrowed
from bucketize.ir import Atom, Binding, Clone, Const, Function, Var, specialise
from bucketize.kernel.template import Implementation, Template
from bucketize.kernel.templates import candidates
from bucketize.kernel.workload import Workload
from bucketize.machine.target import Target
from bucketize.program.instruction import KernelCall, Segment, with_segments
from bucketize.program.program import Routine
from bucketize.types import Dim, Type, substitute

Choose: TypeAlias = Callable[[str, Workload, Sequence[Template]], tuple[Implementation, str]]
"""For a function, by its name, one of the candidates for a workload, its schedule, and where the
choice comes from."""
Implement: TypeAlias = Callable[[KernelCall, Implementation, str], KernelCall]
"""The same call with another implementation."""


def family_of(clone: Clone) -> tuple[object, Callable[[], Function]] | None:
    """What names the family of a clone, and its function; None for one that has none.

    Its symbols of one size are pinned: there the shapes are others, and so may the graph be.
    """
    pinned = {n: lo for n, (lo, hi) in clone.bucket.items() if hi == lo + 1}
    origin = clone.origin
    if origin is None or len(pinned) == len(clone.bucket):
        return None
    return (origin, *sorted(pinned.items())), lambda: specialise(origin, pinned, origin.name)


@dataclass(frozen=True, eq=False)
class Family:
    """A routine with the bounds of the original, and the segments that its members share."""

    base: Routine
    target: Target
    choose: Choose
    implement: Implement
    segments: dict[tuple[object, ...], Segment] = field(default_factory=dict)
    calls: dict[tuple[object, ...], KernelCall] = field(default_factory=dict)
    able: dict[KernelCall, list[Template]] = field(default_factory=dict)
    """The candidates for each call; none where there is nothing to choose."""

    def member(self, name: str, clone: Clone) -> Routine:
        """The routine of one clone."""
        symbols = self.base.fn.symbols()
        bounds = {n: narrowed(symbols[n], i) for n, i in clone.bucket.items() if n in symbols}
        narrow = _Narrowing(name, bounds)
        code = with_segments(self.base.code, lambda segment: self._segment(segment, narrow))
        params = tuple(Var(p.name, narrow.type(p.type)) for p in self.base.params)
        return Routine(name, params, self.base.fn, code, self.base.executor)

    def _segment(self, base: Segment, narrow: _Narrowing) -> Segment:
        calls = tuple(self._call(c, narrow) for c in base.every)
        if all(new is old for new, old in zip(calls, base.every, strict=True)):
            return base
        key = (base, *calls)
        if key not in self.segments:
            self.segments[key] = Segment(base.fn, calls)
        return self.segments[key]

    def _call(self, base: KernelCall, narrow: _Narrowing) -> KernelCall:
        if base not in self.able:
            able = candidates(base.workload)
            # else bounds do not matter
            is_choice = len(able) > 1 or any(t.knobs(base.workload, self.target) for t in able)
            self.able[base] = able if is_choice else []
        if not self.able[base]:
            return base
        alike = base.workload.key, *(p.type.shape for p in base.workload.body.params)
        if alike not in narrow.chosen:
            workload = narrow.workload(base.workload)
            narrow.chosen[alike] = self.choose(narrow.name, workload, self.able[base])
        chosen, why = narrow.chosen[alike]
        if chosen == base.implementation and why == base.why:
            return base
        key = (base, str(chosen), why)
        if key not in self.calls:
            self.calls[key] = self.implement(base, chosen, why)
        return self.calls[key]


class _Narrowing:
    """Types under a clone's bounds; what they are inferred from is not looked at again."""

    def __init__(self, name: str, bounds: Mapping[str, Dim]) -> None:
        self.name, self.bounds = name, bounds
        self._dims: dict[Dim, Dim] = {}
        self.chosen: dict[object, tuple[Implementation, str]] = {}
        """What was chosen for workloads, by their key and the shapes of their parameters."""

    def dim(self, dim: Dim) -> Dim:
        if isinstance(dim, int):
            return dim
        if dim not in self._dims:
            self._dims[dim] = substitute(dim, self.bounds)
        return self._dims[dim]

    def type(self, type_: Type) -> Type:
        return type_.mapped(self.dim)

    def workload(self, workload: Workload) -> Workload:
        """The same workload; what a schedule is chosen by is the bounds of its types."""
        body, env = workload.body, dict[Atom, Atom]()
        for param in body.params:
            env[param] = Var(param.name, self.type(param.type))
        bindings = []
        for b in body.body:
            outs = tuple([Var(o.name, self.type(o.type)) for o in b.outs])
            args = tuple([a if isinstance(a, Const) else env[a] for a in b.args])
            env.update(zip(b.outs, outs, strict=True))
            bindings.append(Binding(outs, b.op, args, b.attrs))
        params = tuple([env[p] for p in body.params])
        results = tuple([env.get(r, r) for r in body.results])
        fn = Function(body.name, params, tuple(bindings), results)  # type: ignore[arg-type]
        narrowed = Workload(fn, workload.constant)
        vars(narrowed)["key"] = workload.key  # which has no bounds
        return narrowed
