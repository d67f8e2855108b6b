"""Calls: what a caller hands on, and expects back, can be what the callee takes and returns.

Shaping is gradual: what types leave open a run checks. Refused is what no sizes make right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from bucketize.errors import TypeRelError, UnknownNameError, unknown_name
from bucketize.ir.build import matched
from bucketize.ir.core import Binding, Function, Var
from bucketize.ir.rewrite import all_bindings
from bucketize.ir.structure import CALL
from bucketize.types import Symbol, Type, meet_types


def check_calls(functions: Mapping[str, object]) -> None:
    """Refuse calls that are wrong at all sizes; a callee that is not made yet takes anything.

    Raises:
        TypeRelError: the callee takes or returns other types, or more or fewer of them.
        UnknownNameError: there is no such callee.

    """
    for fn in functions.values():
        if isinstance(fn, Function):
            for b in all_bindings(fn):
                if b.op is CALL:
                    _check_call(b, functions, fn.name)


def _check_call(b: Binding, functions: Mapping[str, object], caller: str) -> None:
    name = b.attrs["callee"]
    try:
        if name not in functions:
            raise unknown_name("function", name, functions)
        callee = functions[name]
        if isinstance(callee, Function):
            check_fit(b, callee)
    except (TypeRelError, UnknownNameError) as e:
        e.add_note(f"in a call in @{caller}")
        raise


def check_fit(b: Binding, callee: Function) -> None:
    """Raise a `TypeRelError` that names both types if a call of `callee` is wrong at all sizes."""
    took, returned = [p.type for p in callee.params], [r.type for r in callee.results]
    given, expected = [a.type for a in b.args], b.attrs["types"]
    symbols = frozenset[Symbol]().union(*(t.symbols() for t in (*took, *returned)))
    own = {s.name: replace(s, name=f"{callee.name}.{s.name}") for s in symbols}
    params = [Var(p.name, p.type.substitute(own)) for p in callee.params]
    with _both(f"@{callee.name} takes", took, given):
        dims, _ = matched(params, given)
    with _both(f"@{callee.name} returns", returned, expected):
        for result, type_ in zip(returned, expected, strict=True):
            meet_types(result.substitute(own).substitute(dims), type_)


@contextmanager
def _both(what: str, theirs: Sequence[Type], mine: Sequence[Type]) -> Iterator[None]:
    """Put the types of both sides in front of what is wrong with them."""
    shown = [", ".join(map(str, types)) for types in (theirs, mine)]
    message = f"{what} ({shown[0]}), but the call has ({shown[1]})"
    if len(theirs) != len(mine):
        raise TypeRelError(message)
    try:
        yield
    except TypeRelError as e:
        raise TypeRelError(f"{message}: {e}") from e
