"""The IR's legality: one `check_*` for each law, which yields what breaks it.

The builder keeps most laws by itself; `verify` is for transforms that place bindings by hand, and
for modules that come from elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from graphlib import CycleError, TopologicalSorter
from typing import Any, TypeVar

import numpy as np

from bucketize.errors import BucketizeError, VerifyError
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
    check_module,
    functions_of,
    infer,
    mentioned,
)
from bucketize.text import show_binding
from bucketize.text.reader import RESERVED
from bucketize.types import Symbol, Symbolic, Type

PLAIN = (int, float, str, Symbolic, Type, Function, type(None))
Verified = TypeVar("Verified", Module, Function)


def verify(what: Verified, functions: Iterable[str] | None = None) -> Verified:
    """A module, or one function without regard to what it calls, if it breaks no law of the IR.

    Args:
        what: what is looked at.
        functions: of a module, the names of those that are looked at. By default these are main and
            all that is made: clones that are still recipes remain so, and calls of them are taken
            at their word.

    Returns:
        `what` itself.

    Raises:
        VerifyError: a law is broken; it names the law, the binding and the function.
        UnknownNameError: there is no main, or none of `functions` by that name.

    """
    if isinstance(what, Function):
        with _inside("@{}".format, what.name):
            _verify_closed(what)
    else:
        _verify_module(what, functions)
    return what


def _verify_module(module: Module, functions: Iterable[str] | None) -> None:
    check_module(module)
    module.function("main")
    names = module.functions.made() if functions is None else list(functions)
    chosen = {n: module.function(n) for n in names}
    concrete = module.functions.made()
    _hold(check_recursion, concrete)
    for name, fn in chosen.items():
        with _inside("@{}".format, name):
            _hold(check_name, fn, name)
            _verify_closed(fn)
            for b in bindings(fn):
                with _inside(show_binding, fn, b):
                    _hold(check_call, b, module, concrete)


@contextmanager
def _inside(where: Callable[..., str], *args: object) -> Iterator[None]:
    try:
        yield
    except VerifyError as e:
        e.add_note(f"in {where(*args)}")
        raise


def _hold(law: Callable[..., Iterable[str]], *args: object) -> None:
    """Raise a `VerifyError` that names the law if something breaks it."""
    try:
        fault = next(iter(law(*args)), None)
    except BucketizeError as e:  # of inference
        fault = str(e)
    if fault is not None:
        error = VerifyError(fault)
        error.add_note(f"law: {law.__name__.removeprefix('check_')}")
        raise error


def bindings(fn: Function) -> Iterator[Binding]:
    """Every binding of `fn`, those of branches and groups behind their own."""
    return all_bindings(fn, functions_of)


def _verify_closed(fn: Function) -> None:
    for b in bindings(fn):
        with _inside(str, b.op.name):  # without its attributes it has no text
            _hold(check_attributes, b)
    _hold(check_parameters, fn)
    _hold(check_symbols, fn)
    _verify_block(fn, fn, set(), set())


def _verify_block(whole: Function, block: Function, visible: set[Var], defined: set[Var]) -> None:
    """A block that sees `visible`, in a function that has `defined` variables so far."""
    visible.update(block.params)
    for b in block.body:
        with _inside(show_binding, whole, b):
            _hold(check_scope, b.args, visible)
            _hold(check_definitions, b, defined)
            for law in LAWS:
                _hold(law, b)
        for inner in functions_of(b).values():
            if b.op is FUSED:
                with _inside(show_binding, whole, b):
                    _verify_closed(inner)
            else:
                _verify_block(whole, inner, set(visible), defined)
        visible.update(b.outs)
        defined.update(b.outs)
    _hold(check_scope, block.results, visible)


# --- laws of a module --------------------------------------------------------------------------


def check_recursion(functions: Mapping[str, Function]) -> Iterator[str]:
    """No function calls itself, not even by a detour."""
    graph = {
        n: [b.attrs["callee"] for b in bindings(f) if b.op is CALL] for n, f in functions.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as e:
        circle = " -> ".join(f"@{n}" for n in reversed(e.args[1]))
        yield f"functions call each other in a circle: {circle}"


def check_call(b: Binding, module: Module, concrete: Mapping[str, Function]) -> Iterator[str]:
    """A callee exists, takes the arguments, and returns what the caller expects."""
    if b.op is not CALL:
        return
    callee = b.attrs["callee"]
    if callee not in module.functions:
        yield f"no function is named {callee!r}"
    if callee in concrete:
        check_fit(b, concrete[callee])


# --- laws of a function ------------------------------------------------------------------------


def check_name(fn: Function, name: str) -> Iterator[str]:
    """A function goes by its own name."""
    if fn.name != name:
        yield f"the function's own name is {fn.name!r}"


def check_parameters(fn: Function) -> Iterator[str]:
    """The parameters' names differ."""
    names = [p.name for p in fn.params]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        yield f"two parameters are named {', '.join(twice)}"


def check_symbols(fn: Function) -> Iterator[str]:
    """Symbols of one name have one pair of bounds, and names that can be written."""
    symbols: dict[str, Symbol] = {}
    for s in mentioned(fn, FUSED):
        if s.name in RESERVED or not s.name.isidentifier():
            yield f"{s.name!r} is no name for a symbol"
        if symbols.setdefault(s.name, s) != s:
            yield f"two symbols: {s} in {symbols[s.name].range}, and in {s.range}"


# --- laws of a binding -------------------------------------------------------------------------


def check_attributes(b: Binding) -> Iterator[str]:
    """The attributes are those of the op, and plain values or tuples of them."""
    if b.attrs.keys() != b.op.defaults.keys():
        yield f"attributes {sorted(b.attrs)}, the op has {sorted(b.op.defaults)}"
    for name, value in b.attrs.items():
        if not _is_plain(value):
            yield f"attribute {name} is {value!r}, a {type(value).__name__}"


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return isinstance(value, PLAIN) and not isinstance(value, np.generic)


def check_scope(atoms: Iterable[Atom], visible: Collection[Var]) -> Iterator[str]:
    """Variables are defined before they are used, and constants hold numbers."""
    for a in atoms:
        if isinstance(a, Var) and a not in visible:
            yield f"{a!r} is not defined here"
        if isinstance(a, Const) and a.value.dtype.hasobject:
            yield f"a constant of dtype {a.value.dtype}"


def check_definitions(b: Binding, defined: Collection[Var]) -> Iterator[str]:
    """Every variable is defined once."""
    for v in b.outs:
        if v in defined:
            yield f"{v!r} is defined twice"


def check_condition(b: Binding) -> Iterator[str]:
    """The condition of an `if` is one truth value; its branches take no parameters."""
    if b.op is not IF:
        return
    (cond,) = b.args
    if cond.type.dtype != np.bool_ or cond.type.shape:
        yield f"the condition is {cond.type}, not bool[]"
    if b.attrs["then"].params or b.attrs["orelse"].params:
        yield "a branch takes parameters"


def check_loop(b: Binding) -> Iterator[str]:
    """The body of a loop begins with the number of the round."""
    if b.op is LOOP and b.attrs["body"].params[0].type != ROUND:
        yield f"a loop counts {b.attrs['body'].params[0].type}, not {ROUND}"


def check_group(b: Binding) -> Iterator[str]:
    """A fused group has one result and holds nothing but ordinary ops."""
    if b.op is not FUSED:
        return
    body = b.attrs["body"]
    if len(body.results) != 1:
        yield f"the group has {len(body.results)} results, not 1"
    for inner in body.body:
        if inner.op in STRUCTURAL:
            yield f"the group holds {inner.op.name}"


def check_types(b: Binding) -> Iterator[str]:
    """The types are what inference says."""
    written = [v.type for v in b.outs]
    inferred = list(infer(b.op, [a.type for a in b.args], b.attrs))
    if written != inferred:
        yield f"typed {_shown(written)}, inferred {_shown(inferred)}"


def _shown(types: Iterable[Type]) -> str:
    shown = (f"{t} of {', '.join(map(str, t.value))}" if t.value else str(t) for t in types)
    return ", ".join(shown)


LAWS = (check_condition, check_loop, check_group, check_types)
