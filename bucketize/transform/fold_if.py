"""Branches whose condition is known: the one that is taken stands in place of the `if`."""

from __future__ import annotations

from bucketize.ir import IF, Function, all_bindings, rewrite, taken_block


def fold_if(fn: Function) -> Function:
    """`fn` with each `if` on a known condition replaced by the branch that it takes.

    Known is what is constant, and what the bounds of dims decide.
    """
    ifs = (b for b in all_bindings(fn) if b.op is IF)
    if not any(taken_block(b, b.args[0]) for b in ifs):
        return fn
    return rewrite(fn, lambda _out, _b, _args: None)  # which folds them by itself
