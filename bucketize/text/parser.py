"""Parsing: the upper half of the grammar, functions, blocks and bindings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np

from bucketize.errors import BucketizeError, ParseError
from bucketize.ir import (
    CALL,
    FUSED,
    IF,
    LOOP,
    ROUND,
    Atom,
    Builder,
    Clone,
    Const,
    Function,
    Module,
    Var,
    copy_block,
    settle,
    without_value,
)
from bucketize.op import Array, get
from bucketize.text.clone import read_clone
from bucketize.text.reader import TYPES, Reader, Token, joined, unquoted
from bucketize.types import Symbol, Type, evaluate, product

Made: TypeAlias = tuple[Var, ...]


def parse(text: str, constants: Sequence[Array] = ()) -> Module:
    """The module that `text` shows; types are inferred anew and must agree with the text."""
    parser = _Parser(text, constants)
    functions: dict[str, Function] = {}
    while parser.now.kind != "end":
        at, fn = parser.now, parser.function()
        if fn.name in functions:
            parser.fail(f"function {fn.name!r} is defined twice", at)
        functions[fn.name] = fn
    return Module(functions, parser.clones)


def parse_function(text: str, constants: Sequence[Array] = ()) -> Function:
    """The one function that `text` shows."""
    parser = _Parser(text, constants)
    fn = parser.function()
    parser.kind("end")
    return fn


class _Parser(Reader):
    """Recursive descent over functions, blocks and bindings."""

    def __init__(self, text: str, table: Sequence[Array]) -> None:
        super().__init__(text)
        self.table = [Const(a) for a in table]
        self.names: dict[str, Atom] = {}
        self.clones: dict[str, Clone] = {}
        self.structural = {
            "if": self.conditional,
            "loop": self.loop,
            "fused": self.fused,
            "call": self.call,
        }

    @contextmanager
    def scope(self, names: Mapping[str, Atom], bounds: Mapping[str, Symbol]) -> Iterator[None]:
        before = self.names, self.bounds
        self.names, self.bounds = dict(names), dict(bounds)
        yield
        self.names, self.bounds = before

    def define(self, token: str, atom: Atom) -> None:
        if token in self.names:
            self.fail(f"{token} is defined twice")
        self.names[token] = atom

    # functions and blocks

    def function(self) -> Function:
        self.expect("def")
        name = unquoted(self.kind("function"))
        with self.scope({}, self.bounds_ahead({})):
            self.expect("(")
            params = self.listed(self.parameter, ")")
            at = self.now
            types = self.several(self.type) if self.accept("->") else None
            self.where()  # read by `bounds_ahead`
            if self.accept("clone"):
                self.clones[name] = read_clone(self)
            fn = self.block(name, params, "return")
            self.agree(types, fn.results, at)
        return fn

    def bounds_ahead(self, outer: Mapping[str, Symbol]) -> dict[str, Symbol]:
        """The bounds that a head states, read before the types in front of them."""
        begin = self.at
        while self.now.text not in ("where", "{") and self.now.kind != "end":
            self.at += 1
        bounds = {**outer, **self.where()}
        self.at = begin
        return bounds

    def parameter(self) -> Var:
        token = self.kind("variable")
        self.expect(":")
        var = Var(unquoted(token), self.type())
        self.define(token, var)
        return var

    def block(self, name: str, params: Sequence[Var], end: str) -> Function:
        self.expect("{")
        out = Builder()
        while not self.accept(end):
            self.binding(out)
        results = [] if self.accept("}") else self.listed(self.atom, "}")
        return out.function(name, params, results)

    # bindings

    def binding(self, out: Builder) -> None:
        tokens = []
        if self.now.kind == "variable":
            tokens = self.several(lambda: self.kind("variable"))
            self.expect("=")
        at = self.now
        try:
            outs = self.structural.get(self.kind("name"), self.ordinary)(out, at)
        except ParseError:
            raise
        except BucketizeError as e:
            e.add_note(f"at {self.place(at)}")
            raise
        if len(outs) != len(tokens):
            self.fail(f"expected {len(outs)} variables, got {len(tokens)}", at)
        self.agree(self.several(self.type) if self.accept(":") else None, outs, at)
        for token, var in zip(tokens, outs, strict=True):
            self.define(token, var)

    def agree(self, types: list[Type] | None, atoms: Sequence[Atom], at: Token) -> None:
        inferred = [a.type for a in atoms]
        if types is None or types == inferred:
            return
        if joined(types) != joined(inferred):  # text has no elements that are known
            self.fail(f"written {joined(types)}, inferred {joined(inferred)}", at)

    def ordinary(self, out: Builder, at: Token) -> Made:
        op, attrs = get(at.text), dict[str, Any]()
        self.expect("(")
        args = self.listed(lambda: self.argument(attrs), ")")
        if TYPES in op.defaults:
            attrs[TYPES] = self.types_ahead()
        return out.emit_all(op, *(a for a in args if a is not None), **attrs)

    def argument(self, attrs: dict[str, Any]) -> Atom | None:
        if self.now.kind != "name" or self.tokens[self.at + 1].text != "=":
            return self.atom()
        name = self.kind("name")
        self.expect("=")
        attrs[name] = self.value()
        return None

    def conditional(self, out: Builder, _at: Token) -> Made:
        cond, then = self.atom(), self.branch("then")
        self.expect("else")
        return out.emit_all(IF, cond, then=then, orelse=self.branch("orelse"))

    def branch(self, name: str) -> Function:
        with self.scope(self.names, self.bounds):
            return self.block(name, (), "yield")

    def loop(self, out: Builder, _at: Token) -> Made:
        number = self.kind("variable")
        self.expect("to")
        trips = self.atom()
        self.expect("while")
        proceed = self.atom()
        self.expect("(")
        carried = self.listed(self.operand, ")")
        with self.scope(self.names, self.bounds):
            types = [without_value(p.type) for _, p, _ in carried]
            tokens = [number, *(token for token, _, _ in carried)]
            params = list(map(Var, map(unquoted, tokens), (ROUND, *types)))
            for token, param in zip(tokens, params, strict=True):
                self.define(token, param)
            written = self.block("body", params, "yield")
        body = settle(types, lambda new: copy_block(written, {}, new))  # wider than they begin
        return out.emit_all(LOOP, trips, proceed, *(a for _, _, a in carried), body=body)

    def call(self, out: Builder, _at: Token) -> Made:
        callee = unquoted(self.kind("function"))
        self.expect("(")
        args = self.listed(self.atom, ")")
        return out.emit_all(CALL, *args, callee=callee, types=self.types_ahead())

    def types_ahead(self) -> tuple[Type, ...]:
        begin = self.at
        types = self.several(self.type) if self.accept(":") else []
        self.at = begin
        return tuple(types)

    def fused(self, out: Builder, _at: Token) -> Made:
        name = unquoted(self.kind("function")) if self.now.kind == "function" else ""
        self.expect("(")
        with self.scope(self.names, self.bounds_ahead(self.bounds)):
            operands = self.listed(self.operand, ")")
            bounds = self.bounds
        self.where()  # read by `bounds_ahead`
        with self.scope({}, bounds):
            for token, param, _ in operands:
                self.define(token, param)
            body = self.block(name, [p for _, p, _ in operands], "yield")
        return out.emit_all(FUSED, *(a for _, _, a in operands), body=body)

    def operand(self) -> tuple[str, Var, Atom]:
        token = self.kind("variable")
        type_ = self.type() if self.accept(":") else None
        self.expect("=")
        atom = self.atom()
        return token, Var(unquoted(token), type_ or atom.type), atom

    # atoms

    def atom(self) -> Atom:
        at = self.now
        if at.kind != "variable":
            return self.entry(at) if self.accept("const") else self.literal(at)
        if at.text not in self.names:
            self.fail(f"{at.text} is not defined; known: {', '.join(self.names) or 'none'}")
        return self.names[self.kind("variable")]

    def entry(self, at: Token) -> Const:
        self.expect("[")
        i = self.integer()
        self.expect("]")
        if not 0 <= i < len(self.table):
            self.fail(f"const[{i}] of a table of {len(self.table)} constants", at)
        self.agree([self.type()] if self.accept(":") else None, [self.table[i]], at)
        return self.table[i]

    def literal(self, at: Token) -> Const:
        type_ = self.type()
        self.expect("(")
        elements = self.listed(self.value, ")")
        if not type_.is_static or product(type_.shape) != len(elements):
            self.fail(f"{len(elements)} elements for {type_}", at)
        try:
            array = np.array(elements, dtype=type_.dtype)
        except (TypeError, ValueError, OverflowError) as e:
            self.fail(f"elements that are no {type_.dtype} ({e})", at)
        return Const(array.reshape([evaluate(d, {}) for d in type_.shape]))
