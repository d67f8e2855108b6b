"""What a loop carries and never changes: its body sees it from outside."""

from __future__ import annotations

from collections.abc import Sequence

from bucketize.ir import (
    LOOP,
    Atom,
    Binding,
    Builder,
    Env,
    Function,
    all_bindings,
    copy_block,
    rewrite,
)


def fold_loop(fn: Function) -> Function:
    """`fn` whose loops carry what changes only; of the rest, the elements may be known."""
    if not any(_unchanged(b) for b in all_bindings(fn)):
        return fn
    return rewrite(fn, _folded)


def _unchanged(b: Binding) -> list[int]:
    """The places of what is carried and returned as it is."""
    if b.op is not LOOP:
        return []
    body: Function = b.attrs["body"]
    pairs = zip(body.params[1:], body.results[1:], strict=False)
    return [i for i, (param, result) in enumerate(pairs) if param is result]


def _folded(out: Builder, b: Binding, args: tuple[Atom, ...]) -> Sequence[Atom] | None:
    same = _unchanged(b)
    if not same:
        return None
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
