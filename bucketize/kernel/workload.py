"""Workloads: what one kernel computes, with its types, up to what it may leave to run time."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeGuard, TypeVar

import numpy as np

from bucketize.ir import (
    FUSED,
    Atom,
    Binding,
    Builder,
    Const,
    Env,
    Function,
    Var,
    copy_binding,
    refine,
)
from bucketize.op import Movement
from bucketize.types import Dim, Symbol, Type, product, substitute, symbols

T = TypeVar("T")

UNSTATED = [
    ("precision", "default"),
    ("weights", "float32"),
    ("allow_zero", True),
    ("allow_zero", False),
]
"""Attributes that keys do not name: logs are older than they."""
READING = (Movement.VIEW, Movement.WHOLE)
"""How ops move elements that say how another one reads what it takes."""


@dataclass(frozen=True, eq=False)
class Workload:
    """A fused group, or one op; `constant[i]` tells that parameter i of `body` is a weight."""

    body: Function
    constant: tuple[bool, ...]

    @cached_property
    def anchor(self) -> Binding:
        """The first op that computes anything but elementwise; it decides which kernels can serve.

        Before it there may be ops that say how it reads what it takes.
        """
        ops = (b for b in self.body.body if not (b.op.scalar or b.op.movement in READING))
        return next(ops, self.body.body[0])

    @property
    def results(self) -> tuple[Type, ...]:
        """The types of what the group computes."""
        return tuple(r.type for r in self.body.results)

    @property
    def result(self) -> Type:
        """The type of the only result."""
        (type_,) = self.results
        return type_

    @cached_property
    def size(self) -> Dim:
        """The extents of its first result that no type tells, multiplied."""
        return product(d for d in self.results[0].shape if not isinstance(d, int))

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
            stated = [(k, v) for k, v in sorted(b.attrs.items()) if (k, v) not in UNSTATED]
            attrs = [f"{k}={names.attr(v)}" for k, v in stated]
            outs = [atoms.setdefault(v, f"%{len(atoms)}") for v in b.outs]
            lines.append(f"{', '.join(outs)} = {b.op.name}({', '.join(args + attrs)})")
        results = (atoms.get(r) or names.constant(r) for r in self.body.results)
        lines.append(f"return {', '.join(results)}")
        return f"({params}) " + "; ".join(lines)

    @cached_property
    def signature(self) -> Hashable:
        """Equal for workloads that one object can stand for; unlike of keys, bounds count."""
        return self.constant, signature(self.body.body, self.body.results, self.body.params)

    @cached_property
    def hash(self) -> str:
        """Sixteen digits that stand for the key."""
        return hashlib.sha256(self.key.encode()).hexdigest()[:16]


def accepted(pattern: T | None) -> T:
    """The pattern of a workload that a template has accepted."""
    assert pattern is not None, "asked of a workload that was not accepted"
    return pattern


class _Names:
    """Symbols renamed in the order in which they are met."""

    def __init__(self) -> None:
        self.env: dict[str, Dim] = {}

    def dim(self, dim: Dim) -> str:
        for symbol in sorted(symbols(dim), key=lambda s: s.name):
            self.env.setdefault(symbol.name, Symbol(f"d{len(self.env)}"))
        return str(substitute(dim, self.env))

    def type(self, type_: Type) -> str:
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


def workload_of(b: Binding) -> tuple[Workload, tuple[Atom, ...]]:
    """The workload of a binding, and the arguments that its kernel takes."""
    if b.op is FUSED:
        body, args = refine(b.attrs["body"], [a.type for a in b.args]), b.args
    else:
        inputs, body = group_function([b])
        args = tuple(inputs)
    return Workload(body, tuple(isinstance(a, Const) for a in args)), args


def group_function(members: list[Binding]) -> tuple[list[Atom], Function]:
    """The inputs of a group, and the group as a closed function; lone numbers become part of it."""
    inputs = inputs_of(members)
    params = [Var(f"x{i}", atom.type) for i, atom in enumerate(inputs)]
    out, env = Builder(), Env(zip(inputs, params, strict=True))
    for b in members:
        copy_binding(out, b, env)
    return inputs, out.function("", params, [env[v] for v in members[-1].outs])


def inputs_of(members: Sequence[Binding]) -> list[Atom]:
    """What a group reads and does not make, but for lone numbers."""
    inner = {v for b in members for v in b.outs}
    read = dict.fromkeys(a for b in members for a in b.args)
    return [a for a in read if a not in inner and not _is_number(a)]


def signature(
    members: Sequence[Binding], results: Iterable[Atom], params: Iterable[Atom] = ()
) -> Hashable:
    """Equal for groups that differ by names and by the values of weights alone.

    Templates answer equally about them. What is no parameter is numbered as it is read.
    """
    places: dict[Atom, int] = {}
    parts: list[Hashable] = []

    def place(atom: Atom) -> Hashable:
        if _is_number(atom):
            return atom.type, atom.value.tobytes()
        if atom not in places:
            places[atom] = len(places)
            parts.append((isinstance(atom, Const), atom.type))
        return places[atom]

    parts += map(place, params)
    for b in members:
        attrs = ((name, v, repr(v)) for name, v in b.attrs.items())  # -0.0 is equal to 0.0
        parts += (b.op, *map(place, b.args), *attrs, *map(place, b.outs))
    return (*parts, *map(place, results))


def _is_number(atom: Atom) -> TypeGuard[Const]:
    return isinstance(atom, Const) and atom.value.size == 1
