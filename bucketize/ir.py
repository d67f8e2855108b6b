"""The IR: functions are lists of typed bindings, each variable made once (A-normal form).

Everything is frozen and compared by identity. `Builder.emit` is the only maker of bindings and
infers their types, so IR without types cannot exist. `If` holds its branches as functions without
parameters that see the variables around them; `fused` holds its group as a closed function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NoReturn, TypeAlias

from bucketize.errors import BucketizeError, TypeRelError, unknown_name
from bucketize.op import MAX_VALUE, Array, Attrs, Op, register
from bucketize.types import (
    AnyDim,
    Dim,
    Expr,
    Symbol,
    TensorType,
    join_types,
    meet,
    meet_types,
    substitute,
)


@dataclass(frozen=True, eq=False)
class Var:
    """A name for a tensor; two variables are the same only if they are the same object."""

    name: str
    type: TensorType

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type}"


@dataclass(frozen=True, eq=False)
class Const:
    """A tensor known at compile time; never written to."""

    value: Array
    type: TensorType = field(init=False)

    def __post_init__(self) -> None:
        """Type the value, following small integers as dims."""
        v = self.value
        small = v.dtype.kind in "ib" and v.size <= MAX_VALUE
        dims = tuple(map(int, v.reshape(-1))) if small else None
        object.__setattr__(self, "type", TensorType(v.dtype, v.shape, dims))

    def __repr__(self) -> str:
        return f"const {self.type}"


Atom: TypeAlias = Var | Const


@dataclass(frozen=True, eq=False)
class Binding:
    """`outs = op(*args) {attrs}`; all ops but `If` and `call` have one out."""

    outs: tuple[Var, ...]
    op: Op
    args: tuple[Atom, ...]
    attrs: Attrs

    @property
    def out(self) -> Var:
        """The one variable that this binding makes."""
        (out,) = self.outs
        return out

    def __repr__(self) -> str:
        return f"{', '.join(map(repr, self.outs))} = {self.op.name}{self.args}"


@dataclass(frozen=True, eq=False)
class Function:
    """Parameters, bindings in order, and the atoms that it returns."""

    name: str
    params: tuple[Var, ...]
    body: tuple[Binding, ...]
    results: tuple[Atom, ...]

    def symbols(self) -> dict[str, Symbol]:
        """The symbols of the parameters, by name."""
        return {s.name: s for p in self.params for d in p.type.shape for s in _symbols(d)}

    def __repr__(self) -> str:
        return f"<function {self.name}({', '.join(map(repr, self.params))})>"


Recipe: TypeAlias = Callable[[], Function]


class Functions(Mapping[str, Function]):
    """Functions by name; those given as a recipe are made when first asked for."""

    def __init__(self, entries: Mapping[str, Function | Recipe]) -> None:
        self._entries = dict(entries)

    def __getitem__(self, name: str) -> Function:
        entry = self._entries[name]
        if not isinstance(entry, Function):
            entry = self._entries[name] = entry()
        return entry

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def made(self) -> dict[str, Function]:
        """The functions that no recipe stands for any more."""
        return {n: f for n, f in self._entries.items() if isinstance(f, Function)}

    def updated(self, entries: Mapping[str, Function | Recipe]) -> Functions:
        """These functions with `entries` put in; recipes stay recipes."""
        return Functions({**self._entries, **entries})

    def mapped(self, transform: Callable[[Function], Function]) -> Functions:
        """Each function transformed when first asked for."""
        return Functions({n: lambda n=n: transform(self[n]) for n in self})  # type: ignore[misc]


@dataclass(frozen=True, eq=False)
class Module:
    """Named functions; `main` is where a run begins.

    `opt` holds the sizes that a clone is tuned for, where a profile named them.
    """

    functions: Functions
    opt: Mapping[str, Mapping[str, int]]

    def __init__(
        self,
        functions: Mapping[str, Function | Recipe],
        opt: Mapping[str, Mapping[str, int]] | None = None,
    ) -> None:
        lazy = functions if isinstance(functions, Functions) else Functions(functions)
        object.__setattr__(self, "functions", lazy)
        object.__setattr__(self, "opt", opt or {})

    @property
    def main(self) -> Function:
        """The entry."""
        return self.functions["main"]

    def function(self, name: str) -> Function:
        """The function of this name, or an error that lists the known ones."""
        if name not in self.functions:
            raise unknown_name("function", name, self.functions)
        return self.functions[name]

    def replace(self, *functions: Function) -> Module:
        """The module with `functions` put in under their names."""
        return Module(self.functions.updated({f.name: f for f in functions}), self.opt)

    def mapped(self, transform: Callable[[Function], Function]) -> Module:
        """The module with each function transformed when first asked for."""
        return Module(self.functions.mapped(transform), self.opt)


def _symbols(dim: Dim) -> Iterator[Symbol]:
    if isinstance(dim, Symbol):
        yield dim


# --- the ops that hold functions, or call them ---------------------------------------------------


def _no_rule(*_args: Any, **_attrs: Any) -> NoReturn:
    raise AssertionError("typed by the builder, run by the interpreter")


def _structural(compute: Callable[..., Any]) -> Op:
    name = compute.__name__.strip("_")
    op = Op(
        name=name, compute=compute, shape=_no_rule, dtype=_no_rule, padding=_no_rule, example=""
    )
    return register(op)


def _fused(*args: Array, body: Function) -> Array:
    """A group of ops that one kernel computes; `body` is closed and has one result."""
    _no_rule(*args, body=body)


def _if(condition: Array, *, then: Function, orelse: Function) -> Array:
    """One of two functions without parameters, chosen at run time."""
    _no_rule(condition, then=then, orelse=orelse)


def _call(*args: Array, callee: str, types: tuple[TensorType, ...]) -> Array:
    """A call of a function of the module; `types` are what the caller knows of the results."""
    _no_rule(*args, callee=callee, types=types)


def _no_bucket(*, sizes: tuple[Dim, ...], buckets: str, types: tuple[TensorType, ...]) -> Array:
    """The leaf of a decision tree that no bucket covers."""
    _no_rule(sizes=sizes, buckets=buckets, types=types)


FUSED = _structural(_fused)
IF = _structural(_if)
CALL = _structural(_call)
NO_BUCKET = _structural(_no_bucket)
STRUCTURAL = frozenset((FUSED, IF, CALL, NO_BUCKET))  # ops that no table of rules covers


# --- building ----------------------------------------------------------------------------------


def infer(op: Op, types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The types of what `op` makes of arguments of `types`."""
    if op is FUSED:
        return tuple(r.type for r in refine(attrs["body"], types).results)
    if op is CALL or op is NO_BUCKET:
        return tuple(attrs["types"])
    if op is IF:
        then, orelse = attrs["then"].results, attrs["orelse"].results
        if len(then) != len(orelse):
            raise TypeRelError(f"branches return {len(then)} and {len(orelse)} results")
        return tuple(join_types(a.type, b.type) for a, b in zip(then, orelse, strict=True))
    return (op.infer(*types, **attrs),)


@dataclass(eq=False)
class Builder:
    """Appends bindings; the only place where types are inferred."""

    body: list[Binding] = field(default_factory=list)

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
            shown = {k: v for k, v in full.items() if not isinstance(v, Function)}
            e.add_note(f"in {op.name}({', '.join(str(a.type) for a in args)}) {shown or ''}")
            raise
        outs = tuple(Var(str(len(self.body)), t) for t in types)
        self.body.append(Binding(outs, op, args, full))
        return outs

    def repeat(self, b: Binding, args: tuple[Atom, ...]) -> tuple[Var, ...]:
        """Bind what `b` binds, on arguments of the very same types: nothing to infer."""
        outs = tuple([Var(str(len(self.body)), v.type) for v in b.outs])
        self.body.append(Binding(outs, b.op, args, b.attrs))
        return outs

    def function(self, name: str, params: Sequence[Var], results: Sequence[Atom]) -> Function:
        """The function of what was emitted so far."""
        return Function(name, tuple(params), tuple(self.body), tuple(results))


Env: TypeAlias = dict[Atom, Atom]
Rule: TypeAlias = Callable[[Builder, Binding, tuple[Atom, ...]], Atom | None]


def copy_binding(out: Builder, b: Binding, env: Env, dims: Mapping[str, Dim] | None = None) -> None:
    """Emit `b` again with `env` applied to its arguments and `dims` to its attributes."""
    args = tuple([env.get(a, a) for a in b.args])
    if (
        not dims
        and b.op is not IF
        and all(x.type is a.type for x, a in zip(args, b.args, strict=True))
    ):
        made = out.repeat(b, args)
    else:
        attrs = {k: substitute_attr(v, dims or {}, env) for k, v in b.attrs.items()}
        made = out.emit_all(b.op, *args, **attrs)
    env.update(zip(b.outs, made, strict=True))


def substitute_attr(value: Any, dims: Mapping[str, Dim], env: Env | None = None) -> Any:
    """An attribute with symbols replaced; in the branches of an `if`, variables of `env` too."""
    if isinstance(value, Function):
        if value.params:  # a closed group: it shares no variables, but the symbols
            return specialise(value, dims) if dims else value
        return copy_block(value, env or {}, dims)
    if isinstance(value, tuple):
        return tuple(substitute_attr(v, dims, env) for v in value)
    if isinstance(value, TensorType):
        return value.substitute(dims)
    return substitute(value, dims) if isinstance(value, Symbol | Expr) else value


def copy_block(block: Function, env: Env, dims: Mapping[str, Dim] | None = None) -> Function:
    """A branch of an `If` again, with the variables around it replaced."""
    inner, out = dict(env), Builder()
    for b in block.body:
        copy_binding(out, b, inner, dims)
    return out.function(block.name, (), [inner.get(r, r) for r in block.results])


def rewrite(fn: Function, rule: Rule) -> Function:
    """`fn` rebuilt; where `rule` gives an atom, that atom stands for the binding.

    The rule sees the new arguments and may emit bindings of its own. Branches of an `If` are
    rewritten by the same rule. Returns `fn` itself when the rule never answers.
    """
    env: Env = {}
    out, changed = _rewrite_block(fn, rule, env)
    return out if changed else fn


def _rewrite_block(fn: Function, rule: Rule, env: Env) -> tuple[Function, bool]:
    out, changed = Builder(), False
    for b in fn.body:
        args = tuple(env.get(a, a) for a in b.args)
        if b.op is IF:
            halves = {k: _rewrite_block(b.attrs[k], rule, dict(env)) for k in ("then", "orelse")}
            changed |= any(c for _, c in halves.values())
            made = out.emit_all(IF, *args, **{k: f for k, (f, _) in halves.items()})
            env.update(zip(b.outs, made, strict=True))
            continue
        before = len(out.body)
        atom = rule(out, b, args)
        if atom is None:
            assert len(out.body) == before, "a rule that declines must not emit"
            copy_binding(out, b, env)
        else:
            changed, env[b.out] = True, atom
    return out.function(fn.name, fn.params, [env.get(r, r) for r in fn.results]), changed


def refine(fn: Function, types: Sequence[TensorType], name: str | None = None) -> Function:
    """`fn` with its parameters' types met with `types` and its body inferred anew."""
    if len(types) != len(fn.params):
        raise TypeRelError(f"{fn.name} takes {len(fn.params)} arguments, got {len(types)}")
    if name is None and all(p.type == t for p, t in zip(fn.params, types, strict=True)):
        return fn
    dims: dict[str, Dim] = {}
    for param, type_ in zip(fn.params, types, strict=True):
        _match_type(param, type_, dims)
    pairs = zip(fn.params, types, strict=True)
    met = [meet_types(p.type.substitute(dims), _without_value(t)) for p, t in pairs]
    params = [
        Var(p.name, TensorType(m.dtype, m.shape, t.value))
        for p, m, t in zip(fn.params, met, types, strict=True)
    ]
    return _copy(fn, params, dims, name or fn.name)


def _without_value(t: TensorType) -> TensorType:
    return TensorType(t.dtype, t.shape)


def _match_type(param: Var, type_: TensorType, dims: dict[str, Dim]) -> None:
    if len(param.type.shape) != len(type_.shape):
        raise TypeRelError(f"ranks differ: {param.type} and {type_}")
    for mine, given in zip(param.type.shape, type_.shape, strict=True):
        if isinstance(mine, Symbol) and not isinstance(given, AnyDim):
            meet(mine, given)  # substituted, the bounds are no longer seen
            dims.setdefault(mine.name, given)


def specialise(fn: Function, dims: Mapping[str, Dim], name: str | None = None) -> Function:
    """`fn` with the symbols that `dims` names replaced everywhere."""
    params = [Var(p.name, p.type.substitute(dims)) for p in fn.params]
    return _copy(fn, params, dims, name or fn.name)


def _copy(fn: Function, params: Sequence[Var], dims: Mapping[str, Dim], name: str) -> Function:
    env: Env = dict(zip(fn.params, params, strict=True))
    out = Builder()
    for b in fn.body:
        copy_binding(out, b, env, dims)
    return out.function(name, params, [env.get(r, r) for r in fn.results])
