"""Fusion: elementwise ops move into the store of what produces their input.

A group is an anchor (a convolution, a matrix product, or an elementwise op) and the elementwise
ops behind it, as long as one value leaves the group and all members have the anchor's shape.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bucketize.ir import (
    FUSED,
    Atom,
    Binding,
    Builder,
    Const,
    Env,
    Function,
    Var,
    copy_binding,
    map_blocks,
    rewrite,
)
from bucketize.ops import conv2d, matmul
from bucketize.transform.dead_code import used_atoms
from bucketize.types import TensorType

HEAVY = (conv2d, matmul)
MAX_MEMBERS = 16
MAX_INPUTS = 8


def fuse(fn: Function) -> Function:
    """`fn` with groups of ops bound as `fused`, each of the members of one block."""
    return _block(map_blocks(fn, _block))


def _block(fn: Function) -> Function:
    groups = _groups(fn)
    if not groups:
        return fn
    inside = {b for g in groups.values() for b in g}
    out = Builder()
    env: Env = {}
    for b in fn.body:
        if b in groups:
            inputs, body = group_function(groups[b])
            env[b.out] = out.emit(FUSED, *(env.get(a, a) for a in inputs), body=body)
        elif b not in inside:
            copy_binding(out, b, env)
    return out.function(fn.name, fn.params, [env.get(r, r) for r in fn.results])


def unfuse(fn: Function, keep: Callable[[Binding], bool]) -> Function:
    """`fn` with the groups that `keep` declines bound op by op again."""

    def rule(out: Builder, b: Binding, args: tuple[Atom, ...]) -> Atom | None:
        if b.op is not FUSED or keep(b):
            return None
        body: Function = b.attrs["body"]
        env: Env = dict(zip(body.params, args, strict=True))
        for inner in body.body:
            copy_binding(out, inner, env)
        return env[body.results[0]]

    return rewrite(fn, rule)


def group_function(members: list[Binding]) -> tuple[list[Atom], Function]:
    """The inputs of a group, and the group as a closed function; lone numbers become part of it."""
    out = Builder()
    env: Env = {}
    inputs: list[Atom] = []
    for b in members:
        for atom in b.args:
            if atom not in env and not _is_number(atom):
                env[atom] = Var(f"x{len(inputs)}", atom.type)
                inputs.append(atom)
        copy_binding(out, b, env)
    params = [p for a in inputs if isinstance(p := env[a], Var)]
    return inputs, out.function("", params, [env[v] for v in members[-1].outs])


def _is_number(atom: Atom) -> bool:
    return isinstance(atom, Const) and atom.value.size == 1


def _groups(fn: Function) -> dict[Binding, list[Binding]]:
    """The groups of more than one member, by their last one."""
    users = _users(fn)
    taken: set[Binding] = set()
    groups: dict[Binding, list[Binding]] = {}
    order = {b: i for i, b in enumerate(fn.body)}
    by_weight = sorted(fn.body, key=lambda b: (b.op not in HEAVY, order[b]))
    for anchor in by_weight:
        if anchor in taken or not (anchor.op in HEAVY or _is_elementwise(anchor)):
            continue
        group = _grow(anchor, users, taken, order)
        if len(group) > 1:
            taken.update(group)
            groups[group[-1]] = group
    return groups


def _users(fn: Function) -> dict[Atom, list[Binding | None]]:
    """Who reads each variable; None stands for the function's caller."""
    users: dict[Atom, list[Binding | None]] = {}
    for b in fn.body:
        for atom in used_atoms(b):
            users.setdefault(atom, []).append(b)
    for result in fn.results:
        users.setdefault(result, []).append(None)
    return users


def _grow(
    anchor: Binding,
    users: dict[Atom, list[Binding | None]],
    taken: set[Binding],
    order: dict[Binding, int],
) -> list[Binding]:
    """The longest run of members from which only the last one's value escapes."""
    members, best = [anchor], [anchor]
    while len(members) < MAX_MEMBERS:
        readers = {u for m in members for u in users.get(m.out, ())} - set(members)
        fitting = [u for u in readers if u is not None and u not in taken and _fits(anchor, u)]
        if not fitting:
            break
        members = sorted([*members, min(fitting, key=order.__getitem__)], key=order.__getitem__)
        if _closed(members, users) and len(group_function(members)[0]) <= MAX_INPUTS:
            best = members
    return best


def _closed(members: list[Binding], users: dict[Atom, list[Binding | None]]) -> bool:
    inside = set(members)
    return all(u in inside for m in members[:-1] for u in users.get(m.out, ()))


def _is_elementwise(b: Binding) -> bool:
    return b.op.scalar is not None


def _fits(anchor: Binding, b: Binding) -> bool:
    if not _is_elementwise(b) or b.out.type.shape != anchor.out.type.shape:
        return False
    if anchor.op not in HEAVY:
        return True
    types = [b.out.type, *(a.type for a in b.args)]
    if any(t.dtype != np.float32 for t in types):
        return False
    return all(_rides_along(a.type, anchor) for a in b.args)


def _rides_along(type_: TensorType, anchor: Binding) -> bool:
    """Whether a tile's store can read it: along each axis it varies as the result does, or not.

    The rows of a convolution's tile run on from line to line: there an operand varies along all
    rows or none.
    """
    out = anchor.out.type.shape
    if len(type_.shape) > len(out):
        return False
    shape = (1,) * (len(out) - len(type_.shape)) + type_.shape
    if anchor.op is conv2d and shape[:-1] not in (out[:-1], (1,) * (len(out) - 1)):
        return False
    return all(d in (1, o) for d, o in zip(shape, out, strict=True))
