"""Building: `Builder.emit` is the only maker of bindings, and infers their types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from bucketize.errors import BucketizeError, TypeRelError
from bucketize.ir.core import Atom, Binding, Function, Var
from bucketize.ir.structure import CALL, FUSED, IF, ILLEGAL, LOOP, NO_BUCKET
from bucketize.op import Attrs, Op
from bucketize.types import (
    ANY,
    AnyDim,
    Dim,
    Expr,
    Symbol,
    Symbolic,
    TensorType,
    Type,
    UnrankedType,
    join_types,
    maximum,
    meet,
    meet_types,
    substitute,
)


def infer(op: Op, types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """The types of what `op` makes of arguments of `types`."""
    if op is FUSED:
        return tuple(r.type for r in refine(attrs["body"], types).results)
    if op in (CALL, NO_BUCKET, ILLEGAL):
        return tuple(attrs["types"])
    if op is IF:
        return _join_blocks(attrs["then"], attrs["orelse"])
    if op is LOOP:
        return _loop_types(types, attrs["body"])
    return op.infer(*types, **attrs)


def _join_blocks(then: Function, orelse: Function) -> tuple[Type, ...]:
    if len(then.results) != len(orelse.results):
        raise TypeRelError(f"branches return {len(then.results)} and {len(orelse.results)} results")
    pairs = [(a.type, b.type) for a, b in zip(then.results, orelse.results, strict=True)]
    if _is_illegal(then) or _is_illegal(orelse):  # which returns nothing
        return tuple([b if _is_illegal(then) else a for a, b in pairs])
    return tuple([a if a is b else join_types(a, b) for a, b in pairs])


def _is_illegal(block: Function) -> bool:
    return bool(block.body) and block.body[-1].op is ILLEGAL


def _loop_types(types: Sequence[Type], body: Function) -> tuple[Type, ...]:
    trips, proceed, *carried = types
    if str(trips) != str(ROUND) or str(proceed) != str(TRUTH):
        raise TypeRelError(f"a loop runs int64 times while bool, not {trips} times while {proceed}")
    state = [p.type for p in body.params[1:]]
    results = [r.type for r in body.results[1:]]
    if len(carried) != len(state) or len(results) < len(state):
        counts = f"{len(carried)} values begin it, its body takes {len(state)}"
        raise TypeRelError(f"a loop carries what its body takes and returns: {counts}")
    _check_held(state, carried)
    if not _is_illegal(body):
        _check_held(state, results[: len(state)])
    count = rounds_of(types, body)
    return (*state, *(_stack_type(count, t) for t in results[len(state) :]))


def _stack_type(count: Dim, row: Type) -> Type:
    if isinstance(row, UnrankedType):
        return row
    return TensorType(row.dtype, (count, *row.shape))


def _check_held(state: Sequence[Type], given: Sequence[Type]) -> None:
    for h, g in zip(state, given, strict=True):
        if join_types(h, g) != h:
            raise TypeRelError(f"a loop carries {h}, which {g} is not")


def rounds_of(types: Sequence[Type], body: Function) -> Dim:
    """How many rounds a loop of arguments of `types` has, where nothing but its count ends it."""
    trips, proceed = types[0].value, types[1].value
    endless = proceed == body.results[0].type.value == (1,)
    return maximum(trips[0], 0) if endless and trips is not None else ANY


ROUND = TensorType(np.dtype(np.int64), ())
"""The type of a loop's count."""
TRUTH = TensorType(np.dtype(np.bool_), ())
"""The type of its condition."""


def settle(types: Sequence[Type], make: Callable[[tuple[Var, ...]], Function]) -> Function:
    """The body of a loop that begins with values of `types`.

    `make` makes it for parameters: the number of the round, and what is carried. It is made again,
    with wider types, until what it returns is what it takes: an extent that changes becomes `?`,
    a rank that changes unknown.
    """
    state = list(map(without_value, types))  # elements change from round to round
    while True:
        names = ("i", *(f"c{i}" for i in range(len(state))))
        body = make(tuple(map(Var, names, (ROUND, *state))))
        if _is_illegal(body) or len(body.results) <= len(state):
            return body
        carried = [r.type for r in body.results[1 : len(state) + 1]]
        try:
            wider = [join_types(h, c) for h, c in zip(state, carried, strict=True)]
        except TypeRelError as e:
            e.add_note("what a loop carries keeps its dtype, and whether it is a tensor")
            raise
        if wider == state:
            return body
        state = wider


@dataclass(eq=False)
class Builder:
    """Appends bindings; the only place where types are inferred."""

    body: list[Binding] = field(default_factory=list)
    origin: tuple[str, ...] = ()
    """The origin of what is emitted next."""

    def emit(self, op: Op, *args: Atom, **attrs: Any) -> Var:
        """Bind `op(*args)` to a new variable."""
        (out,) = self.emit_all(op, *args, **attrs)
        return out

    def emit_all(self, op: Op, *args: Atom, **attrs: Any) -> tuple[Var, ...]:
        """Bind `op(*args)` to as many new variables as it has results."""
        full = MappingProxyType(op.complete(attrs))
        try:
            types = infer(op, [a.type for a in args], full)
        except BucketizeError as e:
            e.add_note(f"in {op.name}({', '.join(str(a.type) for a in args)}){_shown(full)}")
            e.origin = e.origin or self.origin
            raise
        outs = tuple(Var(str(len(self.body)), t) for t in types)
        self.body.append(Binding(outs, op, args, full, self.origin))
        return outs

    def loop(
        self,
        trips: Atom,
        proceed: Atom,
        carried: Sequence[Atom],
        make: Callable[[tuple[Var, ...]], Function],
    ) -> tuple[Var, ...]:
        """Bind a loop of the body that `make` makes, as `settle` has it."""
        body = settle([c.type for c in carried], make)
        return self.emit_all(LOOP, trips, proceed, *carried, body=body)

    def repeat(self, b: Binding, args: tuple[Atom, ...]) -> tuple[Var, ...]:
        """Bind what `b` binds, on arguments of the very same types: nothing to infer."""
        outs = tuple([Var(str(len(self.body)), v.type) for v in b.outs])
        self.body.append(Binding(outs, b.op, args, b.attrs, self.origin))
        return outs

    def function(self, name: str, params: Sequence[Var], results: Sequence[Atom]) -> Function:
        """The function of what was emitted so far."""
        return Function(name, tuple(params), tuple(self.body), tuple(results))


Env: TypeAlias = dict[Atom, Atom]


def copy_binding(out: Builder, b: Binding, env: Env, dims: Mapping[str, Dim] | None = None) -> None:
    """Emit `b` again with `env` applied to its arguments and `dims` to its attributes.

    Under `dims`, of an `If` whose condition they decide only the branch that it takes: the types
    of the other need not fit any more.
    """
    args = tuple([env.get(a, a) for a in b.args])
    out.origin = b.origin
    if dims is not None and b.op is IF and (block := taken_block(b, args[0])):
        env.update(zip(b.outs, splice(out, block, env, dims), strict=True))
        return
    if b.op in (IF, LOOP):

        def copied(block: Function, params: tuple[Var, ...]) -> Function:
            return copy_block(block, env, params, dims)

        outs = out.emit_all(b.op, *args, **remade(b, args, copied))
    elif not dims and all(x.type is a.type for x, a in zip(args, b.args, strict=True)):
        outs = out.repeat(b, args)
    else:
        attrs = {k: substitute_attr(v, dims or {}) for k, v in b.attrs.items()}
        outs = out.emit_all(b.op, *args, **attrs)
    env.update(zip(b.outs, outs, strict=True))


def _shown(attrs: Mapping[str, Any]) -> str:
    """Attributes in an error, symbols by their names."""
    pairs = {k: v for k, v in attrs.items() if not isinstance(v, Function)}.items()
    return f" {{{', '.join(f'{k!r}: {show_attr(v)}' for k, v in pairs)}}}" if pairs else ""


def show_attr(value: Any) -> str:
    """An attribute as texts show it: symbols by their names."""
    if isinstance(value, tuple):
        return f"({', '.join(map(show_attr, value))}{',' * (len(value) == 1)})"
    return str(value) if isinstance(value, Symbolic | Type) else repr(value)


def substitute_attr(value: Any, dims: Mapping[str, Dim]) -> Any:
    """An attribute with symbols replaced."""
    if isinstance(value, Function):  # a closed group: it shares no variables, but the symbols
        return specialise(value, dims)
    if isinstance(value, tuple):
        return tuple(substitute_attr(v, dims) for v in value)
    if isinstance(value, Type):
        return value.substitute(dims)
    return substitute(value, dims) if isinstance(value, Symbol | Expr) else value


def blocks_of(b: Binding) -> dict[str, Function]:
    """The nested blocks of a binding, branches or the body of a loop, by their attribute."""
    return {k: b.attrs[k] for k in BLOCKS.get(b.op, ())}


BLOCKS: Mapping[Op, tuple[str, ...]] = {IF: ("then", "orelse"), LOOP: ("body",)}


def remade(
    b: Binding, args: Sequence[Atom], make: Callable[[Function, tuple[Var, ...]], Function]
) -> dict[str, Function]:
    """The blocks of `b` as `make` makes them of a block and parameters, when `b` reads `args`.

    One that does not type is `illegal`, its error: it need not be run.
    """

    def tried(block: Function, params: tuple[Var, ...]) -> Function:
        try:
            return make(block, params)
        except TypeRelError as e:
            return illegal(block, e, params)

    blocks = blocks_of(b)
    if b.op is not LOOP:
        return {k: tried(block, ()) for k, block in blocks.items()}
    types = [a.type for a in args[2:]]
    return {k: settle(types, partial(tried, block)) for k, block in blocks.items()}


def copy_block(
    block: Function,
    env: Env,
    params: Sequence[Var],
    dims: Mapping[str, Dim] | None = None,
    name: str | None = None,
) -> Function:
    """A block again, with the variables around it and its parameters replaced."""
    out, inner = Builder(), env | dict(zip(block.params, params, strict=True))
    return out.function(name or block.name, params, splice(out, block, inner, dims))


def illegal(fn: Function, error: BucketizeError, params: Sequence[Var] | None = None) -> Function:
    """A function, or a block, whose run is an error: at the sizes that lead to it, `fn` is one."""
    reason = ", ".join([error.message, *(n.rstrip() for n in error.notes)])
    out = Builder()
    outs = out.emit_all(ILLEGAL, reason=reason, types=tuple(rank_only(r.type) for r in fn.results))
    return out.function(fn.name, fn.params if params is None else params, outs)


def rank_only(t: Type) -> Type:
    """The type without dims that are no integers."""
    return t.mapped(lambda d: d if isinstance(d, int) else ANY)


def splice(
    out: Builder, block: Function, env: Env, dims: Mapping[str, Dim] | None = None
) -> list[Atom]:
    """Emit the bindings of a block again; what its results have become."""
    inner = dict(env)
    for b in block.body:
        copy_binding(out, b, inner, dims)
    return [inner.get(r, r) for r in block.results]


def taken_block(b: Binding, condition: Atom) -> Function | None:
    """The branch that an `If` takes on this condition, or None if that is not known."""
    match condition.type.value:
        case (int(truth),):
            block: Function = b.attrs["then" if truth else "orelse"]
            return block
    return None


def refine(fn: Function, types: Sequence[Type]) -> Function:
    """`fn` with its parameters' types met with `types` and its body inferred anew."""
    if len(types) != len(fn.params):
        raise TypeRelError(f"{fn.name} takes {len(fn.params)} arguments, got {len(types)}")
    if all(p.type == t for p, t in zip(fn.params, types, strict=True)):
        return fn
    dims, met = matched(fn.params, types)
    params = [
        Var(p.name, replace(m, value=t.value) if isinstance(m, TensorType) else m)
        for p, m, t in zip(fn.params, met, types, strict=True)
    ]
    return copy_block(fn, {}, params, dims)


def without_value(t: Type) -> Type:
    """The type without the elements that are known."""
    return TensorType(t.dtype, t.shape) if isinstance(t, TensorType) else t


def matched(params: Sequence[Var], types: Sequence[Type]) -> tuple[dict[str, Dim], list[Type]]:
    """What the symbols of parameters are, given values of `types`, and both types, met."""
    dims: dict[str, Dim] = {}
    for param, type_ in zip(params, types, strict=True):
        _match_type(param, type_, dims)
    pairs = zip(params, types, strict=True)
    return dims, [meet_types(p.type.substitute(dims), without_value(t)) for p, t in pairs]


def _match_type(param: Var, type_: Type, dims: dict[str, Dim]) -> None:
    if not param.type.is_tensor or not type_.is_tensor:
        return
    if len(param.type.shape) != len(type_.shape):
        raise TypeRelError(f"ranks differ: {param.type} and {type_}")
    for mine, given in zip(param.type.shape, type_.shape, strict=True):
        if isinstance(mine, Symbol) and not isinstance(given, AnyDim):
            meet(mine, given)  # substituted, the bounds are no longer seen
            dims.setdefault(mine.name, given)


def specialise(fn: Function, dims: Mapping[str, Dim], name: str | None = None) -> Function:
    """`fn` with the symbols that `dims` names replaced everywhere; without any, as it is."""
    if not dims:
        return replace(fn, name=name or fn.name)
    params = [Var(p.name, p.type.substitute(dims)) for p in fn.params]
    return copy_block(fn, {}, params, dims, name)
