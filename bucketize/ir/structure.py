"""The ops that hold functions, or call them: no table of rules covers these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from bucketize.ir.core import Function
from bucketize.op import Array, Op, register
from bucketize.types import Dim, Type


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


def _loop(trips: Array, proceed: Array, *carried: Array, body: Function) -> tuple[Array, ...]:
    """A block, run up to `trips` times, as long as it is told to proceed.

    The parameters of `body` are the number of the round and what is carried; it returns whether to
    proceed, what is carried on, and then rows. The results are what was carried last, and the
    rows of all rounds, stacked. It sees the variables around it.
    """
    _no_rule(trips, proceed, *carried, body=body)


def _call(*args: Array, callee: str, types: tuple[Type, ...]) -> Array:
    """A call of a function of the module; `types` are what the caller knows of the results."""
    _no_rule(*args, callee=callee, types=types)


def _no_bucket(*, sizes: tuple[Dim, ...], buckets: str, types: tuple[Type, ...]) -> Array:
    """The leaf of a decision tree that no bucket covers."""
    _no_rule(sizes=sizes, buckets=buckets, types=types)


def _illegal(*, reason: str, types: tuple[Type, ...]) -> Array:
    """What is not legal at the sizes that would lead here; `types` are of what it would make."""
    _no_rule(reason=reason, types=types)


FUSED = _structural(_fused)
IF = _structural(_if)
LOOP = _structural(_loop)
CALL = _structural(_call)
NO_BUCKET = _structural(_no_bucket)
ILLEGAL = _structural(_illegal)
STRUCTURAL = frozenset((FUSED, IF, LOOP, CALL, NO_BUCKET, ILLEGAL))
"""Ops that no table of rules covers."""
