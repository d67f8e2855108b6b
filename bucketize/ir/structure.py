"""The ops that hold functions, or call them: no table of rules covers these."""

from __future__ import annotations

from bucketize.ir.core import Function
from bucketize.op import Array, no_rule, without_rules
from bucketize.types import Dim, Type


def _fused(*args: Array, body: Function) -> Array:
    """A group of ops that one kernel computes; `body` is closed and has one result."""
    no_rule(*args, body=body)


def _if(condition: Array, *, then: Function, orelse: Function) -> Array:
    """One of two functions without parameters, chosen at run time."""
    no_rule(condition, then=then, orelse=orelse)


def _loop(trips: Array, proceed: Array, *carried: Array, body: Function) -> tuple[Array, ...]:
    """A block, run up to `trips` times, as long as it is told to proceed.

    The parameters of `body` are the number of the round and what is carried; it returns whether to
    proceed, what is carried on, and then rows. The results are what was carried last, and the
    rows of all rounds, stacked. It sees the variables around it.
    """
    no_rule(trips, proceed, *carried, body=body)


def _call(*args: Array, callee: str, types: tuple[Type, ...]) -> Array:
    """A call of a function of the module; `types` are what the caller knows of the results."""
    no_rule(*args, callee=callee, types=types)


def _no_bucket(*, sizes: tuple[Dim, ...], buckets: str, types: tuple[Type, ...]) -> Array:
    """The leaf of a decision tree that no bucket covers."""
    no_rule(sizes=sizes, buckets=buckets, types=types)


def _illegal(*, reason: str, types: tuple[Type, ...]) -> Array:
    """What is not legal at the sizes that would lead here; `types` are of what it would make."""
    no_rule(reason=reason, types=types)


FUSED = without_rules(_fused)
IF = without_rules(_if)
LOOP = without_rules(_loop)
CALL = without_rules(_call)
NO_BUCKET = without_rules(_no_bucket)
ILLEGAL = without_rules(_illegal)
STRUCTURAL = frozenset((FUSED, IF, LOOP, CALL, NO_BUCKET, ILLEGAL))
"""Ops that no table of rules covers."""
