"""The proof that rows may be packed, and the packed function that it gives: op by op.

Each rule says of one op what of the packed arguments its packed result is, and what is known of
its elements; an op without a rule, or one that would bring tokens of two rows together, or hidden
ones to those that are seen, is an error that names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, TypeAlias

import numpy as np

from bucketize.errors import BucketizeError, RaggedError
from bucketize.ir import Atom, Binding, Builder, Const, Function, Var, mentioned, substitute_attr
from bucketize.op import Attrs, Op
from bucketize.ops import broadcast_to, concat, gather, reshape, strided_slice, tile
from bucketize.ragged.fact import Axes, Fact, Form, Index, constant
from bucketize.ragged.name import ENDS, OWNER, POSITION
from bucketize.types import Dim, Shape, Symbol, TensorType, Type, symbols


@dataclass(frozen=True)
class PackingRule:
    """What is done with an op."""

    apply: Callable[[Packer, Binding], None]
    takes_lost: bool = False
    """Whether it takes what is lost where rows are packed, and may serve as an index."""


RuleOf: TypeAlias = Callable[[Binding], PackingRule | None]


@dataclass
class Packer:
    """Makes the packed form of a function, binding by binding."""

    axes: Axes
    tokens: Symbol
    rows: Symbol
    mask: Var | None
    """The input that says which tokens are seen; None: all are."""
    rule_of: RuleOf
    out: Builder = field(default_factory=Builder)
    atoms: dict[Atom, Atom] = field(default_factory=dict)
    facts: dict[Atom, Fact] = field(default_factory=dict)

    def packed(self, fn: Function, name: str) -> Function:
        """The packed form of a function that is simple, or a `RaggedError`."""
        taken = {ENDS, OWNER, POSITION}.intersection(p.name for p in fn.params)
        taken |= {self.tokens.name, self.rows.name} & fn.symbols().keys()
        if taken:
            raise RaggedError(f"packing adds {min(taken)!r}, which the model has: rename it there")
        params = [self._param(p) for p in fn.params]
        extra = [
            self._extra(ENDS, self.rows),
            *(self._extra(n, self.tokens) for n in (OWNER, POSITION)),
        ]
        self.ends, self.owner, self.position = extra
        if self.mask is not None:
            one = np.ones((), self.mask.type.dtype)
            self._note(self.mask, Fact(one, {-1: np.zeros((), one.dtype)}))
            self.atoms[self.mask] = self.everywhere(one, self.mask.type)
        for b in fn.body:
            self.out.origin = b.origin
            try:
                self._binding(b)
            except RaggedError:
                raise
            except BucketizeError as e:
                e.add_note(f"while packing {b.op.name}")
                raise
        for result in fn.results:
            self._check_result(result)
        results = [self._whole(r) for r in fn.results]
        given = [p for p in params if p is not None]
        return self.out.function(name, [*given, *extra], results)

    # --- what rules ask -------------------------------------------------------------------------

    def atom(self, atom: Atom) -> Atom:
        """The packed form of a value."""
        return self.atoms.get(atom, atom)

    def fact(self, atom: Atom) -> Fact:
        """What is known of a value."""
        return self.facts.get(atom) or constant(atom)

    def form(self, atom: Atom) -> Form:
        """What a value has an entry of."""
        form = self.axes.form(atom.type)
        return Form.SHARED if form is Form.ROW and self.fact(atom).alike else form

    def dims(self, form: Form) -> dict[str, Dim]:
        """What the symbols are where a value of this form is packed."""
        if form is Form.ROW:
            return {self.axes.batch.name: self.rows}
        return {self.axes.batch.name: 1, self.axes.sequence.name: self.tokens}

    def shape(self, type_: Type, form: Form | None = None) -> Shape:
        """The packed shape of a value of this type."""
        dims = self.dims(form or self.axes.form(type_))
        return tuple(substitute_attr(type_.shape, dims))

    def refuse(self, b: Binding, why: str) -> NoReturn:
        """Raise the error that names the op and the node that it comes from."""
        error = RaggedError(f"{b.op.name}: {why}")
        if b.origin:
            error.add_note(f"from {', '.join(b.origin)}")
        raise error

    def result(self, b: Binding) -> Form:
        """What the result of an op has an entry of: rows of what is the same for all are that."""
        form = self.axes.form(b.out.type)
        shared = all(self.form(a) is Form.SHARED for a in b.args)
        return Form.SHARED if form is Form.ROW and shared else form

    def emit(self, b: Binding, args: Sequence[Atom]) -> Var:
        """Emit an op again, its attributes as of values of its result's form."""
        (out,) = self._emit_all(b, args, self.result(b))
        return out

    def _emit_all(self, b: Binding, args: Sequence[Atom], form: Form) -> tuple[Var, ...]:
        return self.out.emit_all(b.op, *args, **self.attrs(b.attrs, form))

    def attrs(self, attrs: Attrs, form: Form) -> dict[str, Any]:
        """Attributes as of values of this form."""
        return {k: substitute_attr(v, self.dims(form)) for k, v in attrs.items()}

    def lost(self, b: Binding) -> str:
        """What an argument says that is lost, packed; empty: none does."""
        return next((lost for a in b.args if (lost := self.fact(a).barred)), "")

    def check_lost(self, b: Binding) -> None:
        """Refuse an op that computes with what is lost."""
        if lost := self.lost(b):
            self.refuse(b, f"it computes with {lost}, which is lost where rows are packed")

    def check_kept(self, b: Binding, summed: Sequence[int | None] = ()) -> None:
        """Refuse an op whose result lacks an axis of rows or tokens of an argument.

        But for that which is summed of each: an extent that only some sizes make equal to another,
        or to 1, is gone.
        """
        out = b.out.type.shape
        places = [*summed, *([None] * (len(b.args) - len(summed)))]
        for a, gone in zip(b.args, places, strict=True):
            for of in (self.axes.tokens, self.axes.rows):
                if not set(of(a.type.shape)) - {gone} <= set(of(out)):
                    self.refuse(b, f"rows or tokens of {a.type} vanish in {b.out.type}")

    def bar(self, b: Binding, what: str, index: tuple[Index, ...] = ()) -> None:
        """Note that what an op gives is lost, packed; that it may serve as an index."""
        zero = np.zeros((), b.out.type.dtype)
        nothing = self.everywhere(zero, b.out.type, self.result(b))
        self.put(b, nothing, Fact(index=index, barred=what))

    def put(self, b: Binding, atom: Atom, fact: Fact | None = None) -> None:
        """Note what an op gives, packed: of the type that it has, but for rows and tokens."""
        form = self.result(b)
        wanted = TensorType(b.out.type.dtype, self.shape(b.out.type, form))
        if (atom.type.dtype, atom.type.shape) != (wanted.dtype, wanted.shape):
            self.refuse(b, f"rows or tokens vanish: {b.out.type} would be {atom.type}")
        self.atoms[b.out] = atom
        self._note(b.out, replace(fact or Fact(), alike=form is Form.SHARED))

    def refit(self, b: Binding, atom: Atom, out: Type) -> Atom:
        """An argument as a result of this type can be made of it: one of rows for each token."""
        if self.form(atom) is not Form.ROW or not self.axes.tokens(out.shape):
            return self.atom(atom)
        (at,) = self.axes.rows(atom.type.shape)
        (token, *more) = self.axes.tokens(out.shape)
        shape = atom.type.shape
        between = shape[min(at, token) + 1 + len(shape) : max(at, token) + len(shape)]
        if more or -token > len(shape) or at == token or any(d != 1 for d in between):
            self.refuse(b, f"{atom.type} is of rows, {out} of tokens, in an order of its own")
        each = self.out.emit(gather, self.atom(atom), self.owner, axis=at + len(shape))
        new = list(shape)
        new[at], new[token] = 1, self.tokens
        return self.out.emit(reshape, each, newshape=tuple(new))

    def begins(self) -> Var:
        """Where rows begin."""
        before = {"begin": (0,), "end": (self.rows - 1,), "strides": (1,), "axes": (0,)}
        others = self.out.emit(strided_slice, self.ends, **before)
        return self.out.emit(concat, Const(np.zeros(1, np.int64)), others, axis=0)

    # --- inside ---------------------------------------------------------------------------------

    def _param(self, param: Var) -> Var | None:
        if not param.type.is_tensor:
            raise RaggedError(f"input {param.name!r} is {param.type}, no tensor of known rank")
        if fault := self.axes.fault(param.type) or self._crowded(param.type):
            raise RaggedError(f"input {param.name!r}: {fault}")
        form = self.form(param)
        if form is Form.PAIR:
            raise RaggedError(f"input {param.name!r} is {param.type}, of pairs of tokens")
        if form is Form.TOKEN and not self.axes.rows(param.type.shape):
            raise RaggedError(f"input {param.name!r} is {param.type}, of tokens of no row")
        if param is self.mask:
            return None
        new = Var(param.name, TensorType(param.type.dtype, self.shape(param.type)))
        self.atoms[param] = new
        return new

    def _extra(self, name: str, count: Dim) -> Var:
        return Var(name, TensorType(np.dtype(np.int64), (count,)))

    def _note(self, atom: Atom, fact: Fact) -> None:
        self.facts[atom] = fact

    def everywhere(self, number: Any, type_: Type, form: Form | None = None) -> Var:
        """One number throughout a value."""
        return self.out.emit(broadcast_to, Const(np.asarray(number)), shape=self.shape(type_, form))

    def _binding(self, b: Binding) -> None:
        for atom in (*b.args, *b.outs):
            if not atom.type.is_tensor:
                self.refuse(b, f"{atom.type} is no tensor of known rank")
            if fault := self.axes.fault(atom.type):
                self.refuse(b, fault)
        if self._is_shared(b):
            outs = self._emit_all(b, list(map(self.atom, b.args)), Form.SHARED)
            self.atoms.update(zip(b.outs, outs, strict=True))
            self.facts.update({out: Fact(alike=True) for out in b.outs})
            return
        rule = self.rule_of(b)
        if rule is None or len(b.outs) != 1:
            self.refuse(b, "nobody has proved that it keeps rows and tokens apart")
        if not rule.takes_lost:
            self.check_lost(b)
        rule.apply(self, b)

    def _is_shared(self, b: Binding) -> bool:
        """Whether what has no rows, nor tokens, gives what is the same for all rows."""
        types = [a.type for a in b.args]
        if any(self.axes.form(t) is not Form.SHARED for t in types) or self.lost(b):
            return False
        if any(self.axes.tokens(out.type.shape) for out in b.outs):
            return False
        if all(self.fact(a).seen is not None for a in b.args) and b.args:
            return False  # what becomes of one number is worth to be known
        ours = {self.axes.batch.name, self.axes.sequence.name}
        inside = {n: {s.name for s in mentioned(v)} for n, v in b.attrs.items()}
        sizing = SIZING.get(b.op, ())
        return all(ours.isdisjoint(names) or n in sizing for n, names in inside.items())

    def _whole(self, result: Atom) -> Atom:
        """A result with all its rows, also where they are alike."""
        if self.axes.form(result.type) is Form.ROW and self.fact(result).alike:
            return self.out.emit(broadcast_to, self.atom(result), shape=self.shape(result.type))
        return self.atom(result)

    def _crowded(self, type_: Type) -> str:
        """Why rows, or tokens, cannot be told apart by an axis of their own; empty if they can."""
        ours = {self.axes.batch, self.axes.sequence}
        crowded = [d for d in type_.axes if d not in ours and ours & set(symbols(d))]
        return f"an axis of its own is asked for, not {crowded[0]}" if crowded else ""

    def _check_result(self, result: Atom) -> None:
        shown = f"a result is {result.type}"
        if fault := self._crowded(result.type):
            raise RaggedError(f"{shown}: {fault}")
        if self.form(result) is Form.PAIR:
            raise RaggedError(f"{shown}, of pairs of tokens")
        if self.form(result) is Form.TOKEN and not self.axes.rows(result.type.shape):
            raise RaggedError(f"{shown}, of tokens of no row")
        if lost := self.fact(result).barred:
            raise RaggedError(f"{shown}, {lost}, which is lost where rows are packed")


SIZING: Mapping[Op, tuple[str, ...]] = {broadcast_to: ("shape",), tile: ("repeats",)}
"""Attributes that say how often what all rows have in common is repeated for them, and no more."""
