"""The IR's legality, an oracle of tests: one `check_*` for each law.

The builder keeps most laws by itself; `verify` is for transforms that place bindings by hand and
for modules that come from elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np

from bucketize.errors import BucketizeError
from bucketize.ir import (
    CALL,
    FUSED,
    IF,
    LOOP,
    ROUND,
    STRUCTURAL,
    Atom,
    Binding,
    Const,
    Function,
    Module,
    Var,
    all_bindings,
    check_fit,
    functions_of,
    infer,
)
from bucketize.text import mentioned, show_binding
from bucketize.text.reader import RESERVED
from bucketize.types import Symbol, Symbolic, TensorType


class VerifyError(BucketizeError):
    """A module that breaks a law of the IR."""


PLAIN = (int, float, str, TensorType, Symbolic, Function, type(None))


def verify(module: Module, functions: Iterable[str] | None = None) -> Module:
    """`module` itself, if `functions` of it break no law.

    By default these are main and all that is made: clones that are still recipes remain so, and
    calls of them are taken at their word.
    """
    module.function("main")
    names = module.functions.made() if functions is None else list(functions)
    chosen = {n: module.function(n) for n in names}
    made = module.functions.made()
    check_recursion(made)
    for name, fn in chosen.items():
        with _inside("@{}".format, name):
            check_name(fn, name)
            _verify_closed(fn)
            for b in bindings(fn):
                with _inside(show_binding, fn, b):
                    check_call(b, module, made)
    return module


@contextmanager
def _inside(where: Callable[..., str], *args: object) -> Iterator[None]:
    try:
        yield
    except BucketizeError as e:
        raise VerifyError(f"in {where(*args)}: {e}") from e


def bindings(fn: Function) -> Iterator[Binding]:
    """Every binding of `fn`, those of branches and groups behind their own."""
    return all_bindings(fn, functions_of)


def _verify_closed(fn: Function) -> None:
    for b in bindings(fn):
        with _inside(str, b.op.name):  # without its attributes it has no text
            check_attributes(b)
    check_parameters(fn)
    check_symbols(fn)
    _verify_block(fn, fn, set(), set())


def _verify_block(whole: Function, block: Function, visible: set[Var], defined: set[Var]) -> None:
    """A block that sees `visible`, in a function that has `defined` variables so far."""
    visible.update(block.params)
    for b in block.body:
        with _inside(show_binding, whole, b):
            check_scope(b.args, visible)
            check_definitions(b, defined)
            for law in LAWS:
                law(b)
        for inner in functions_of(b).values():
            if b.op is FUSED:
                with _inside(show_binding, whole, b):
                    _verify_closed(inner)
            else:
                _verify_block(whole, inner, set(visible), defined)
        visible.update(b.outs)
        defined.update(b.outs)
    check_scope(block.results, visible)


# --- laws of a module --------------------------------------------------------------------------


def check_recursion(functions: Mapping[str, Function]) -> None:
    """No function calls itself, not even by a detour."""
    graph = {
        n: [b.attrs["callee"] for b in bindings(f) if b.op is CALL] for n, f in functions.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as e:
        circle = " -> ".join(f"@{n}" for n in reversed(e.args[1]))
        raise VerifyError(f"functions call each other in a circle: {circle}") from None


def check_call(b: Binding, module: Module, made: Mapping[str, Function]) -> None:
    """A callee exists, takes the arguments, and returns what the caller expects."""
    if b.op is not CALL:
        return
    callee = b.attrs["callee"]
    if callee not in module.functions:
        raise VerifyError(f"no function is named {callee!r}")
    if callee in made:
        check_fit(b, made[callee])


# --- laws of a function ------------------------------------------------------------------------


def check_name(fn: Function, name: str) -> None:
    """A function goes by its own name."""
    if fn.name != name:
        raise VerifyError(f"the function's own name is {fn.name!r}")


def check_parameters(fn: Function) -> None:
    """The parameters' names differ."""
    names = [p.name for p in fn.params]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise VerifyError(f"two parameters are named {', '.join(twice)}")


def check_symbols(fn: Function) -> None:
    """Symbols of one name have one pair of bounds, and names that can be written."""
    found: dict[str, Symbol] = {}
    for s in mentioned(fn):
        if s.name in RESERVED or not s.name.isidentifier():
            raise VerifyError(f"{s.name!r} is no name for a symbol")
        if found.setdefault(s.name, s) != s:
            raise VerifyError(f"two symbols, {found[s.name]!r} and {s!r}")


# --- laws of a binding -------------------------------------------------------------------------


def check_attributes(b: Binding) -> None:
    """The attributes are those of the op, and plain values or tuples of them."""
    if b.attrs.keys() != b.op.defaults.keys():
        raise VerifyError(f"attributes {sorted(b.attrs)}, the op has {sorted(b.op.defaults)}")
    for name, value in b.attrs.items():
        if not _is_plain(value):
            raise VerifyError(f"attribute {name} is {value!r}, a {type(value).__name__}")


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return isinstance(value, PLAIN) and not isinstance(value, np.generic)


def check_scope(atoms: Iterable[Atom], visible: Collection[Var]) -> None:
    """Variables are defined before they are used, and constants hold numbers."""
    for a in atoms:
        if isinstance(a, Var) and a not in visible:
            raise VerifyError(f"{a!r} is not defined here")
        if isinstance(a, Const) and a.value.dtype.hasobject:
            raise VerifyError(f"a constant of dtype {a.value.dtype}")


def check_definitions(b: Binding, defined: Collection[Var]) -> None:
    """Every variable is defined once."""
    for v in b.outs:
        if v in defined:
            raise VerifyError(f"{v!r} is defined twice")


def check_condition(b: Binding) -> None:
    """The condition of an `if` is one truth value; its branches take no parameters."""
    if b.op is not IF:
        return
    (cond,) = b.args
    if cond.type.dtype != np.bool_ or cond.type.shape:
        raise VerifyError(f"the condition is {cond.type}, not bool[]")
    if b.attrs["then"].params or b.attrs["orelse"].params:
        raise VerifyError("a branch takes parameters")


def check_loop(b: Binding) -> None:
    """The body of a loop begins with the number of the round."""
    if b.op is LOOP and b.attrs["body"].params[0].type != ROUND:
        raise VerifyError(f"a loop counts {b.attrs['body'].params[0].type}, not {ROUND}")


def check_group(b: Binding) -> None:
    """A fused group has one result and holds nothing but ordinary ops."""
    if b.op is not FUSED:
        return
    body = b.attrs["body"]
    if len(body.results) != 1:
        raise VerifyError(f"the group has {len(body.results)} results, not 1")
    for inner in body.body:
        if inner.op in STRUCTURAL:
            raise VerifyError(f"the group holds {inner.op.name}")


def check_types(b: Binding) -> None:
    """The types are what inference says."""
    found, inferred = [v.type for v in b.outs], list(infer(b.op, [a.type for a in b.args], b.attrs))
    if found != inferred:
        raise VerifyError(f"typed {_shown(found)}, inferred {_shown(inferred)}")


def _shown(types: Iterable[TensorType]) -> str:
    known = (f"{t} of {', '.join(map(str, t.value))}" if t.value else str(t) for t in types)
    return ", ".join(known)


LAWS = (check_condition, check_loop, check_group, check_types)
