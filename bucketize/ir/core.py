"""The values of the IR: variables, constants, bindings, functions.

Everything is frozen and compared by identity.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

from bucketize.op import MAX_VALUE, Array, Attrs, Op
from bucketize.types import AnyDim, Symbol, Symbolic, TensorType, Type, ratio_of, symbols


@dataclass(frozen=True, eq=False, slots=True)
class Var:
    """A name for a value; two variables are the same only if they are the same object."""

    name: str
    type: Type

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type}"


@dataclass(frozen=True, eq=False, slots=True)
class Const:
    """A tensor known at compile time; never written to."""

    value: Array
    type: TensorType = field(init=False)

    def __post_init__(self) -> None:
        """Type the value, following small integers as dims, and one float as a fraction."""
        v = self.value
        small = v.dtype.kind in "ib" and v.size <= MAX_VALUE
        dims = tuple(map(int, v.reshape(-1))) if small else None
        ratio = ratio_of(v.reshape(-1)[0]) if v.dtype.kind == "f" and v.size == 1 else None
        object.__setattr__(self, "type", TensorType(v.dtype, v.shape, dims, ratio))

    def __repr__(self) -> str:
        return f"const {self.type}"


Atom: TypeAlias = Var | Const


@dataclass(frozen=True, eq=False, slots=True)
class Binding:
    """`outs = op(*args) {attrs}`, with an out for each result of the op."""

    outs: tuple[Var, ...]
    op: Op
    args: tuple[Atom, ...]
    attrs: Attrs
    origin: tuple[str, ...] = ()
    """The nodes of the model that it comes from, by name; it says nothing of what is computed."""

    @property
    def is_ranked(self) -> bool:
        """Whether it takes and makes tensors of known rank only."""
        return all(a.type.is_tensor for a in (*self.args, *self.outs))

    @property
    def is_followed(self) -> bool:
        """Whether every extent of what it takes and makes is a dim that is known."""
        dims = (d for a in (*self.args, *self.outs) for d in a.type.axes)
        return self.is_ranked and not any(isinstance(d, AnyDim) for d in dims)

    @property
    def out(self) -> Var:
        """The one variable that this binding makes."""
        (out,) = self.outs
        return out

    def __repr__(self) -> str:
        return f"{', '.join(map(repr, self.outs))} = {self.op.name}{self.args}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _bound, (self.outs, self.op, self.args, dict(self.attrs), self.origin)


def _bound(
    outs: tuple[Var, ...], op: Op, args: tuple[Atom, ...], attrs: Attrs, origin: tuple[str, ...]
) -> Binding:
    """A binding out of a pickle, which has no read-only dict."""
    return Binding(outs, op, args, MappingProxyType(attrs), origin)


@dataclass(frozen=True, eq=False, slots=True)
class Function:
    """Parameters, bindings in order, and the atoms that it returns."""

    name: str
    params: tuple[Var, ...]
    body: tuple[Binding, ...]
    results: tuple[Atom, ...]
    is_simple: bool = False
    """Whether `simplify` made it: nothing is left to do, until a copy has other types."""

    def symbols(self) -> dict[str, Symbol]:
        """The symbols of the parameters, by name."""
        dims = (d for p in self.params for d in p.type.dims)
        return {d.name: d for d in dims if isinstance(d, Symbol)}

    def mentioned(self) -> set[str]:
        """The names of all symbols in its types and attributes."""
        return {s.name for s in mentioned(self)}

    def __repr__(self) -> str:
        results = ", ".join(str(r.type) for r in self.results)
        return f"<function {self.name}({', '.join(map(repr, self.params))}) -> {results}>"


def mentioned(what: Any, apart: Op | None = None) -> Iterator[Symbol]:
    """The symbols of a function, type or attribute, in order, but for what `apart` holds."""
    waiting = [what]  # the next one last: generators in one another would each pass on all of it
    while waiting:
        item = waiting.pop()
        if isinstance(item, Symbol):
            yield item
        elif isinstance(item, Symbolic):
            yield from sorted(symbols(item), key=str)  # type: ignore[arg-type]
        elif isinstance(item, Type):
            waiting += reversed(item.dims)
        elif isinstance(item, tuple):
            waiting += reversed(item)
        elif isinstance(item, Function):
            for b in reversed(item.body):
                waiting += () if b.op is apart else tuple(b.attrs.values())[::-1]
                waiting += (o.type for o in reversed(b.outs))
            waiting += (p.type for p in reversed(item.params))
