"""Families: clones that differ by bounds alone are lowered once, and share what they agree on.

A clone whose buckets have more than one size is its family's function with other bounds; all that
they change is which implementation is best. Clones that choose alike share segments and plans.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from bucketize.dispatch.bucket import held, narrowed
from bucketize.ir import Clone, Function, Var, specialise
from bucketize.kernel.select import Select
from bucketize.kernel.template import Template
from bucketize.kernel.typical import Box
from bucketize.kernel.workload import Workload
from bucketize.lower.cost import selects_of
from bucketize.machine.target import Target
from bucketize.program.instruction import KernelCall, Segment, with_segments
from bucketize.program.program import Routine
from bucketize.types import Dim, Symbol, Symbolic, substitute

Choose: TypeAlias = Callable[[str, Workload, Sequence[Template], Select], tuple[Select, str]]
"""For a function, by its name, one of the candidates for a workload, whose default is told, and
where the choice comes from."""
Implement: TypeAlias = Callable[[KernelCall, Select, str], KernelCall]
"""A kernel call with another implementation."""


def family_of(clone: Clone) -> tuple[object, Callable[[], Function]] | None:
    """What names the family of a clone, and its function; None for one that has none.

    Its symbols of one size are pinned: there the shapes are others, and so may the graph be.
    """
    origin = clone.origin
    if origin is None:
        return None
    pinned = held(clone.bucket, origin.symbols())
    if len(pinned) == len(clone.bucket):
        return None
    return (origin, *sorted(pinned.items())), lambda: specialise(origin, pinned, origin.name)


@dataclass(frozen=True, eq=False)
class Defaults:
    """What runs where nothing is known: in a function's own bounds, and in those of clones."""

    target: Target
    symbols: Mapping[str, Symbol]
    """The symbols of the function, by name."""
    clones: Mapping[str, Clone]
    """Clones that differ from the function by bounds alone, and others."""
    together: Sequence[str] = ()
    """The clones that are judged with it; none: each alone."""
    known: dict[Workload, dict[str, Select]] = field(default_factory=dict)

    def of(self, workload: Workload, able: Sequence[Template], name: str = "") -> Select:
        """The default within the bounds of one clone, or without a name in the function's own."""
        by_name = self.known.setdefault(workload, {})
        if name not in by_name:
            is_alone = name not in self._boxes or not has_choice(workload, able, self.target)
            boxes = {name: self.box(name)} if is_alone else self._boxes
            selects = selects_of(workload, able, self.target, tuple(boxes.values()))
            by_name.update(zip(boxes, selects, strict=True))
        return by_name[name]

    def box(self, name: str) -> Box:
        """The symbols with the bounds of a clone; without a name none has others than its own."""
        bucket = self.clones[name].bucket if name else {}
        narrow = (narrowed(s, bucket[n]) for n, s in self.symbols.items() if n in bucket)
        return tuple(s for s in narrow if isinstance(s, Symbol))

    @cached_property
    def _boxes(self) -> dict[str, Box]:
        return {name: self.box(name) for name in ("", *self.together)}


def has_choice(workload: Workload, able: Sequence[Template], target: Target) -> bool:
    """Whether a workload may be computed by several implementations."""
    return len(able) > 1 or any(template.knobs(workload, target) for template in able)


@dataclass(frozen=True, eq=False)
class Family:
    """A routine with the bounds of the original, and the segments that its members share."""

    base: Routine
    target: Target
    choose: Choose
    implement: Implement
    able: Mapping[Workload, Sequence[Template]]
    """The candidates for each workload of the base."""
    defaults: Defaults
    segments: dict[tuple[object, ...], Segment] = field(default_factory=dict)
    calls: dict[tuple[object, ...], KernelCall] = field(default_factory=dict)

    def member(self, name: str) -> Routine:
        """The routine of one clone; `TypeRelError` if an extent has no value within its bounds."""
        box: dict[str, Dim] = {s.name: s for s in self.defaults.box(name)}
        for dim in self._dims:
            substitute(dim, box)
        code = with_segments(self.base.code, lambda segment: self._segment(segment, name))
        params = tuple(
            Var(p.name, p.type.mapped(lambda dim: substitute(dim, box))) for p in self.base.params
        )
        return Routine(name, params, self.base.fn, code, self.base.executor)

    @cached_property
    def _dims(self) -> frozenset[Dim]:
        """The extents in all that kernels compute."""
        bodies = (call.workload.body for call in self._calls)
        atoms = (
            a for body in bodies for a in (*body.params, *(o for b in body.body for o in b.outs))
        )
        return frozenset(d for a in atoms for d in a.type.axes if isinstance(d, Symbolic))

    @cached_property
    def _calls(self) -> list[KernelCall]:
        return [call for segment in self.base.segments() for call in segment.every]

    @cached_property
    def _choices(self) -> set[KernelCall]:
        """The calls that may run by several implementations: of others bounds change nothing."""
        return {
            call
            for call in self._calls
            if has_choice(call.workload, self.able[call.workload], self.target)
        }

    def _segment(self, base: Segment, name: str) -> Segment:
        calls = tuple(self._call(c, name) for c in base.every)
        if all(new is old for new, old in zip(calls, base.every, strict=True)):
            return base
        key = (base, *calls)
        if key not in self.segments:
            self.segments.setdefault(key, Segment(base.fn, calls, base))
        return self.segments[key]

    def _call(self, base: KernelCall, name: str) -> KernelCall:
        if base not in self._choices:
            return base
        able = self.able[base.workload]
        default = self.defaults.of(base.workload, able, name)
        chosen, why = self.choose(name, base.workload, able, default)
        if chosen == base.select and why == base.why:
            return base
        key = (base, str(chosen), why)
        if key not in self.calls:
            self.calls.setdefault(key, self.implement(base, chosen, why))
        return self.calls[key]
