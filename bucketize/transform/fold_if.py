"""Branches whose condition is known: the one that is taken stands in place of the `if`."""

from __future__ import annotations

from bucketize.ir import Function, rewrite


def fold_if(fn: Function) -> Function:
    """`fn` with each `if` on a known condition replaced by the branch that it takes.

    Known is what is constant, and what the bounds of dims decide.
    """
    return rewrite(fn, lambda _out, _b, _args: None)  # which folds them by itself
