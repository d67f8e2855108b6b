"""What a kernel template is, what it takes and gives, and the table of all templates."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from bucketize.ir import Atom, Binding, Const, Function
from bucketize.kernel.target import Target
from bucketize.op import Array
from bucketize.types import Dim, Shape, Symbol, TensorType, evaluate, substitute, symbols

Knob: TypeAlias = int | str
Schedule: TypeAlias = Mapping[str, Knob]
Shapes: TypeAlias = tuple[Shape, ...]


@dataclass(frozen=True, eq=False)
class Workload:
    """A fused group, or one op; `constant[i]` tells that parameter i of `body` is a weight."""

    body: Function
    constant: tuple[bool, ...]

    @cached_property
    def anchor(self) -> Binding:
        """The first op that is not elementwise; it decides which kernels can serve the group."""
        return next((b for b in self.body.body if b.op.scalar is None), self.body.body[0])

    @property
    def results(self) -> tuple[TensorType, ...]:
        """The types of what the group computes."""
        return tuple(r.type for r in self.body.results)

    @property
    def result(self) -> TensorType:
        """The type of the only result."""
        (type_,) = self.results
        return type_

    @cached_property
    def key(self) -> str:
        """Canonical text: symbols are d0, d1, ... in order of appearance, without bounds."""
        names = _Names()
        params = ", ".join(
            f"{names.type(p.type)}{' const' if c else ''}"
            for p, c in zip(self.body.params, self.constant, strict=True)
        )
        atoms: dict[Atom, str] = {p: f"%{i}" for i, p in enumerate(self.body.params)}
        lines = []
        for b in self.body.body:
            args = [atoms.get(a) or names.constant(a) for a in b.args]
            attrs = [f"{k}={names.attr(v)}" for k, v in sorted(b.attrs.items())]
            made = [atoms.setdefault(v, f"%{len(atoms)}") for v in b.outs]
            lines.append(f"{', '.join(made)} = {b.op.name}({', '.join(args + attrs)})")
        results = (atoms.get(r) or names.constant(r) for r in self.body.results)
        lines.append(f"return {', '.join(results)}")
        return f"({params}) " + "; ".join(lines)

    @cached_property
    def hash(self) -> str:
        """Sixteen digits that stand for the key."""
        return hashlib.sha256(self.key.encode()).hexdigest()[:16]


class _Names:
    """Symbols renamed in the order in which they are met."""

    def __init__(self) -> None:
        self.env: dict[str, Dim] = {}

    def dim(self, dim: Dim) -> str:
        for symbol in sorted(symbols(dim), key=lambda s: s.name):
            self.env.setdefault(symbol.name, Symbol(f"d{len(self.env)}"))
        return str(substitute(dim, self.env))

    def type(self, type_: TensorType) -> str:
        return f"{type_.dtype}[{', '.join(map(self.dim, type_.shape))}]"

    def attr(self, value: Any) -> str:
        if isinstance(value, tuple):
            return f"({', '.join(map(self.attr, value))})"
        return self.dim(value) if isinstance(value, Dim) else repr(value)

    def constant(self, atom: Atom) -> str:
        assert isinstance(atom, Const), f"{atom} is not bound in the group"
        if atom.value.size == 1:
            return f"{atom.value.dtype}{list(atom.value.shape)}({atom.value.item()!r})"
        digest = hashlib.sha256(np.ascontiguousarray(atom.value).tobytes()).hexdigest()[:16]
        return f"{self.type(atom.type)}({digest})"


@dataclass(frozen=True)
class Launch:
    """How a kernel is run, over dims: a launch rule is read once, at link time.

    The block is [out_0, ..., in_0, ..., workspace, begin, end, dims...]; begin..end is a part of
    range(extent) that begins at a multiple of `grain`; each thread has its own `workspace` bytes.
    """

    dims: tuple[Dim, ...]
    extent: Dim
    grain: int = 1
    workspace: Dim = 0
    checked: bool = False
    """Whether the workspace begins with a report: 0 if all was well, or 1, an index that is out of
    range, and the extent of its axis. The kernel writes it before all else, in each part."""

    def at(self, sizes: Mapping[str, int]) -> Launch:
        """The launch when the symbols have these sizes."""
        dims = tuple(evaluate(d, sizes) for d in self.dims)
        extent, workspace = evaluate(self.extent, sizes), evaluate(self.workspace, sizes)
        return replace(self, dims=dims, extent=extent, workspace=workspace)


REPORT = 3 * 8  # bytes


@dataclass(frozen=True, eq=False)
class Template:
    """A generator of kernels. `Shapes` are those of the arguments, then of all results."""

    name: str
    accepts: Callable[[Workload], bool]
    knobs: Callable[[Workload, Target], dict[str, tuple[Knob, ...]]]
    """The values of each knob that may be tried; none, nothing to tune."""
    default: Callable[[Workload, Target], dict[str, Knob]]
    valid: Callable[[Workload, Schedule, Target], str | None]
    """Why the schedule is not legal, or None."""
    source: Callable[[Workload, Schedule, Target], str]
    """The whole text of the kernel's file, for `build`."""
    launch: Callable[[Workload, Schedule, Shapes, Target], Launch]
    pack: Callable[[Workload, Schedule, int, Array], Array | None]
    """Constant argument i as the schedule wants it laid out; None: as it is."""
    pack_key: Callable[[Workload, Schedule, int], str]
    """Equal keys: equal layouts, so that packed copies can be shared."""


TEMPLATES: dict[str, Template] = {}
"""By name, in order of preference: the first that accepts a workload is its default."""


def candidates(workload: Workload) -> list[Template]:
    """All templates that can compute the workload, the default one first."""
    return [t for t in TEMPLATES.values() if t.accepts(workload)]


@dataclass(frozen=True)
class Implementation:
    """One way to compute a workload: a template, and a value for each of its knobs."""

    template: str
    schedule: Schedule

    def __str__(self) -> str:
        return " ".join([self.template, *(f"{k}={v}" for k, v in self.schedule.items())])


def combinations(knobs: Mapping[str, Sequence[Knob]]) -> list[dict[str, Knob]]:
    """Every schedule that the values of `knobs` allow, legal or not."""
    return [dict(zip(knobs, v, strict=True)) for v in itertools.product(*knobs.values())]
