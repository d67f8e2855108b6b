"""The transforms that know no target, one after the other."""

from __future__ import annotations

from dataclasses import replace

from bucketize.ir import Function
from bucketize.transform.apply import Observer, Transform, apply
from bucketize.transform.cse import cse
from bucketize.transform.dead_code import dead_code
from bucketize.transform.dynamic_to_static import dynamic_to_static
from bucketize.transform.fold_constant import fold_constant
from bucketize.transform.fold_gelu import fold_gelu
from bucketize.transform.fold_if import fold_if
from bucketize.transform.fold_loop import fold_loop
from bucketize.transform.fold_sequence import fold_sequence
from bucketize.transform.hoist import hoist
from bucketize.transform.identity import drop_identities

SIMPLIFY: tuple[Transform, ...] = (
    fold_if,
    fold_loop,
    fold_sequence,
    dynamic_to_static,
    drop_identities,
    fold_constant,
    fold_gelu,
    hoist,
    cse,
    dead_code,
)


def simplify(fn: Function, observe: Observer | None = None) -> Function:
    """`fn` with known shapes static, constants and branches folded, repeats and dead code gone.

    What was simplified is so already; specialised, it is another function.
    """
    if fn.is_simple:
        return fn
    new = apply(fn, SIMPLIFY, observe)
    # constants may decide a branch, tell an extent, or how many rounds there are
    settled = all(fold(new) is new for fold in (fold_if, fold_loop, dynamic_to_static))
    return replace(new, is_simple=True) if settled else simplify(new, observe)
