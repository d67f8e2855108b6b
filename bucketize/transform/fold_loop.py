"""Loops of one round, which are their bodies, and what a loop carries and never changes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bucketize.ir import (
    LOOP,
    Atom,
    Binding,
    Builder,
    Const,
    Env,
    Function,
    all_bindings,
    copy_block,
    rewrite,
    splice,
)
from bucketize.ops import unsqueeze

FIRST = Const(np.array(0, np.int64))
"""The index of the first round."""


def fold_loop(fn: Function) -> Function:
    """`fn` whose loops have several rounds, and carry what changes only.

    Of what is not carried the elements may be known.
    """
    if not any(_is_once(b.args) or _unchanged(b) for b in all_bindings(fn) if b.op is LOOP):
        return fn
    return rewrite(fn, _folded)


def _is_once(args: Sequence[Atom]) -> bool:
    """Whether a loop has one round, whatever its body says of another."""
    trips, proceed, *_ = args
    return trips.type.value == proceed.type.value == (1,)


def _unchanged(b: Binding) -> list[int]:
    """The places of what a loop carries and returns as it is."""
    body: Function = b.attrs["body"]
    pairs = zip(body.params[1:], body.results[1:], strict=False)
    return [i for i, (param, result) in enumerate(pairs) if param is result]


def _folded(out: Builder, b: Binding, args: tuple[Atom, ...]) -> Sequence[Atom] | None:
    if b.op is not LOOP:
        return None
    if _is_once(args):
        return _one_round(out, b.attrs["body"], args[2:])
    same = _unchanged(b)
    return _without(out, b, args, same) if same else None


def _one_round(out: Builder, body: Function, carried: Sequence[Atom]) -> Sequence[Atom]:
    """What the first round makes: what it would carry on, and the only row of all else."""
    _, *results = splice(out, body, dict(zip(body.params, (FIRST, *carried), strict=True)))
    rows = (out.emit(unsqueeze, r, axes=(0,)) for r in results[len(carried) :])
    return [*results[: len(carried)], *rows]


def _without(
    out: Builder, b: Binding, args: tuple[Atom, ...], same: Sequence[int]
) -> Sequence[Atom]:
    """The results of a loop that does not carry what is at these places."""
    body, (trips, proceed, *carried) = b.attrs["body"], args
    kept = [i for i in range(len(carried)) if i not in same]
    outside: Env = {body.params[1 + i]: carried[i] for i in same}
    left = Function(
        body.name,
        (body.params[0], *(body.params[1 + i] for i in kept)),
        body.body,
        (body.results[0], *(r for i, r in enumerate(body.results[1:]) if i not in same)),
    )
    begin = [carried[i] for i in kept]
    again = out.loop(trips, proceed, begin, lambda params: copy_block(left, outside, params))
    outs = iter(again)
    return [carried[i] if i in same else next(outs) for i in range(len(b.outs))]
