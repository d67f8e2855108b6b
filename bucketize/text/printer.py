"""Printing: modules and functions as text."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from bucketize.ir import (
    CALL,
    FUSED,
    IF,
    LOOP,
    Atom,
    Binding,
    Clone,
    Function,
    Module,
    Var,
    check_module,
    left_out,
    mentioned,
    show_attr,
)
from bucketize.op import Array
from bucketize.text.clone import show_clone
from bucketize.text.reader import PLAIN_FUNCTION, PLAIN_NAME, TYPES, joined, quoted
from bucketize.types import Symbol

Bounds: TypeAlias = Mapping[str, Symbol]

INLINE = 8  # elements of a constant that is written where it is used


def show(what: Module | Function, functions: Iterable[str] | None = None) -> str:
    """A module, or one function, as text.

    Of a tree of more than 10,000 leaves the first and last are shown; `parse` does not take that.

    Args:
        what: what is shown.
        functions: of a module, the names of those that are; None: all.

    Returns:
        The text, in which larger constants are places in the table of `constants`.

    Raises:
        ArgumentError: neither a module nor a function.
        UnknownNameError: there is no such function.

    """
    if not isinstance(what, Function):
        check_module(what)
    printer = _Printer(clones=what.clones if isinstance(what, Module) else {})
    texts = (printer.function(f, left_out(f)) for f in _chosen(what, functions))
    return "\n\n".join(map("\n".join, texts))


def constants(what: Module | Function, functions: Iterable[str] | None = None) -> list[Array]:
    """The table that the `const[i]` of `show` refer to."""
    printer = _Printer()
    _ = [list(printer.function(f)) for f in _chosen(what, functions)]
    return printer.table


def show_binding(fn: Function, binding: Binding) -> str:
    """The first line of `binding` as it stands in `show(fn)`."""
    printer = _Printer()
    list(printer.function(fn))
    return printer.heads[binding].removesuffix(" {")


def _chosen(what: Module | Function, names: Iterable[str] | None) -> Iterator[Function]:
    if isinstance(what, Function):
        return iter((what,))
    return map(what.function, what.functions if names is None else names)


@dataclass
class _Scope:
    """The names and bounds inside one closed function."""

    bounds: Bounds
    names: dict[Var, str] = field(default_factory=dict)
    fresh: Iterator[int] = field(default_factory=itertools.count)

    def param(self, var: Var) -> str:
        name, taken = quoted("%", PLAIN_NAME, var.name), set(self.names.values())
        for i in itertools.count(1):
            if name not in taken:
                break
            name = quoted("%", PLAIN_NAME, f"{var.name}.{i}")
        return self.names.setdefault(var, name)

    def number(self, var: Var) -> str:
        return self.names.setdefault(var, f"%{next(self.fresh)}")

    def of(self, var: Var) -> str:
        return self.names.get(var, f"%?{var.name}")  # no legal function has it, but errors show it


@dataclass
class _Printer:
    clones: Mapping[str, Clone] = field(default_factory=dict)
    table: list[Array] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)
    heads: dict[Binding, str] = field(default_factory=dict)

    gaps: Mapping[Function, int] = field(default_factory=dict)

    def function(self, fn: Function, gaps: Mapping[Function, int] | None = None) -> Iterator[str]:
        self.gaps = gaps or {}
        own = _symbols_of(fn)
        scope = _Scope(own)
        params = joined(f"{scope.param(p)}: {p.type}" for p in fn.params)
        returns = joined((r.type for r in fn.results), " -> ")
        clone = f" {show_clone(self.clones[fn.name])}" if fn.name in self.clones else ""
        yield f"def {_function_name(fn.name)}({params}){returns}{_where(own, {})}{clone} {{"
        yield from self.block(fn, scope, "return")
        yield "}"

    def block(self, fn: Function, scope: _Scope, end: str) -> Iterator[str]:
        if fn in self.gaps:
            yield f"  ... (leaves left out: {self.gaps[fn]:,})"
            return
        for b in fn.body:
            yield from (f"  {line}" for line in self.binding(b, scope))
        yield "  " + end + joined((self.atom(r, scope) for r in fn.results), " ")

    def binding(self, b: Binding, scope: _Scope) -> Iterator[str]:
        outs = joined(scope.number(v) for v in b.outs)
        first, *rest = self.operation(b, scope)
        lines = [f"{outs} = {first}" if outs else first, *rest]
        lines[-1] += joined((v.type for v in b.outs), " : ")
        self.heads[b] = lines[0]
        yield from lines

    def operation(self, b: Binding, scope: _Scope) -> Iterator[str]:
        args = [self.atom(a, scope) for a in b.args]
        if b.op is IF:
            yield f"if {joined(args)} {{"
            yield from self.block(b.attrs["then"], scope, "yield")
            yield "} else {"
            yield from self.block(b.attrs["orelse"], scope, "yield")
            yield "}"
        elif b.op is LOOP:
            yield from self.loop(b, args, scope)
        elif b.op is FUSED:
            yield from self.fused(b, args, scope)
        elif b.op is CALL:
            yield f"call {_function_name(b.attrs['callee'])}({joined(args)})"
        else:
            attrs = (f"{k}={show_attr(v)}" for k, v in b.attrs.items() if _is_stated(b, k, v))
            yield f"{b.op.name}({joined((*args, *attrs))})"

    def loop(self, b: Binding, args: Sequence[str], scope: _Scope) -> Iterator[str]:
        body, (trips, proceed, *carried) = b.attrs["body"], args
        number, *state = map(scope.number, body.params)
        pairs = zip(state, body.params[1:], b.args[2:], carried, strict=False)
        begin = joined(
            name + ("" if str(p.type) == str(a.type) else f": {p.type}") + f" = {text}"
            for name, p, a, text in pairs
        )
        yield f"loop {number} to {trips} while {proceed} ({begin}) {{"
        yield from self.block(body, scope, "yield")
        yield "}"

    def fused(self, b: Binding, args: Sequence[str], scope: _Scope) -> Iterator[str]:
        body = b.attrs["body"]
        own = _symbols_of(body)
        inner = _Scope({**scope.bounds, **own})
        params = joined(
            inner.param(p) + ("" if p.type == a.type else f": {p.type}") + f" = {text}"
            for p, a, text in zip(body.params, b.args, args, strict=False)
        )
        name = " " + _function_name(body.name) if body.name else ""
        yield f"fused{name}({params}){_where(own, scope.bounds)} {{"
        yield from self.block(body, inner, "yield")
        yield "}"

    def atom(self, atom: Atom, scope: _Scope) -> str:
        if isinstance(atom, Var):
            return scope.of(atom)
        array = atom.value
        if array.size <= INLINE and array.dtype.kind in "biuf":
            shape = f"[{joined(array.shape)}]" if array.ndim else ""
            return f"{array.dtype}{shape}({joined(map(_element, array.reshape(-1)))})"
        if id(array) not in self.places:
            self.places[id(array)] = len(self.table)
            self.table.append(array)
        return f"const[{self.places[id(array)]}]: {atom.type}"


def _function_name(name: str) -> str:
    return quoted("@", PLAIN_FUNCTION, name)


def _element(x: Any) -> str:
    text = str(x)
    if x.dtype.kind == "f" and np.isfinite(x) and x.dtype.type(float(text)) != x:
        return repr(float(x))  # the shortest text, rounded twice, is a neighbour
    return text


def _is_stated(b: Binding, name: str, value: Any) -> bool:
    default = b.op.defaults.get(name)
    usual = type(default) is type(value) and show_attr(default) == show_attr(value)
    return not usual and name != TYPES


def _where(own: Bounds, outer: Bounds) -> str:
    stated = (s for n, s in own.items() if outer.get(n, Symbol(n)) != s)
    return joined(map(_bounds, stated), " where ")


def _bounds(s: Symbol) -> str:
    bounds = f"{s.name} >= {s.lo}" if s.hi is None else f"{s.name} in [{s.lo}, {s.hi}]"
    return f"{bounds} by {s.step}" if s.step > 1 else bounds


def _symbols_of(fn: Function) -> dict[str, Symbol]:
    return {s.name: s for s in mentioned(fn, FUSED)}
