"""What every round of a loop computes alike: it is computed once, before the loop."""

from __future__ import annotations

from collections.abc import Sequence

from bucketize.ir import (
    LOOP,
    Atom,
    Binding,
    Builder,
    Env,
    Function,
    Var,
    all_bindings,
    copy_binding,
    copy_block,
    infer,
    rewrite,
)
from bucketize.transform.dead_code import used_atoms
from bucketize.types import assumptions, extremes, lone_term


def hoist(fn: Function) -> Function:
    """`fn` with what no round changes computed before each loop.

    A loop of no round computes it in vain, so only what cannot fail is moved.
    """
    if not any(b.op is LOOP and _alike(b.attrs["body"]) for b in all_bindings(fn)):
        return fn
    return rewrite(fn, _hoisted)


def _hoisted(out: Builder, b: Binding, args: tuple[Atom, ...]) -> Sequence[Atom] | None:
    if b.op is not LOOP:
        return None
    body: Function = b.attrs["body"]
    moved = _alike(body)
    if not moved:
        return None
    before: Env = {}
    for each in moved:
        copy_binding(out, each, before)
    rest = tuple(each for each in body.body if each not in moved)
    left = Function(body.name, body.params, rest, body.results)
    trips, proceed, *carried = args
    return out.loop(trips, proceed, carried, lambda params: copy_block(left, before, params))


def _alike(body: Function) -> dict[Binding, None]:
    """The bindings that read nothing of the round and cannot fail, in order."""
    inside: set[Var] = set(body.params)
    moved: dict[Binding, None] = {}
    for b in body.body:
        if _cannot_fail(b) and inside.isdisjoint(used_atoms(b)):
            moved[b] = None
        else:
            inside.update(b.outs)
    return moved


def _cannot_fail(b: Binding) -> bool:
    if not (b.op.total and b.is_ranked):
        return False
    with assumptions() as relied_on:
        infer(b.op, [a.type for a in b.args], b.attrs)
    given = {d for a in b.args for d in a.type.shape}
    new = {d for o in b.outs for d in o.type.shape} - given
    return not (relied_on or any(extremes(d)[0] < 0 or lone_term(d, "broadcast") for d in new))
