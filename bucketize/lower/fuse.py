"""Fusion: elementwise ops move into the store of what produces their input.

A group is an anchor (a convolution, a matrix product, or an elementwise op) and the elementwise
ops behind it, as long as one value leaves the group, all members have the anchor's shape, and a
template takes it: the templates say what they can do, and nothing else does. Elementwise ops are
joined by those before them, too, that nothing else reads. A product may go on
through a softmax to a product of that, with transposes around it all: attention. What brings the
last axis together has more of its like and elementwise ops on both sides: a norm, however spelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from typing import TypeAlias

from bucketize.ir import (
    FUSED,
    Atom,
    Binding,
    Builder,
    Const,
    Env,
    Function,
    copy_binding,
    map_blocks,
)
from bucketize.kernel.gemm.rowstep import is_along
from bucketize.kernel.templates import candidates
from bucketize.kernel.workload import Workload, group_function
from bucketize.op import Op
from bucketize.ops import (
    broadcast_to,
    concat,
    isnan,
    mask_tail,
    mul,
    neg,
    reshape,
    softmax,
    strided_slice,
    transpose,
    unsqueeze,
    where,
)
from bucketize.transform.dead_code import used_atoms

MAX_MEMBERS = 16
MAX_INPUTS = 8

Users: TypeAlias = dict[Atom, list[Binding | None]]
"""Who reads each variable; None stands for the function's caller."""


def fuse(fn: Function, apart: Set[int] = frozenset()) -> Function:
    """`fn` with groups of ops bound as `fused`, each of the members of one block.

    What is at the places `apart` of its body joins no group; others may join it.
    """
    return _block(map_blocks(fn, _block), apart)


def _block(fn: Function, apart: Set[int] = frozenset()) -> Function:
    groups = groups_of(fn, apart)
    if not groups:
        return fn
    inside = {b for g in groups.values() for b in g}
    out = Builder()
    env: Env = {}
    for b in fn.body:
        if b in groups:
            inputs, body = group_function(groups[b])
            out.origin = tuple(dict.fromkeys(name for m in groups[b] for name in m.origin))
            env[b.out] = out.emit(FUSED, *(env.get(a, a) for a in inputs), body=body)
        elif b not in inside:
            copy_binding(out, b, env)
    return out.function(fn.name, fn.params, [env.get(r, r) for r in fn.results])


def groups_of(fn: Function, apart: Set[int] = frozenset()) -> dict[Binding, list[Binding]]:
    """The groups of more than one member, by their last one; elementwise anchors come last."""
    users = users_of(fn)
    taken: set[Binding] = set()
    first = {b for i, b in enumerate(fn.body) if i in apart}
    groups: dict[Binding, list[Binding]] = {}
    order = {b: i for i, b in enumerate(fn.body)}
    makers: dict[Atom, Binding] = {v: b for b in fn.body for v in b.outs}
    for anchor in sorted(fn.body, key=lambda b: (_is_elementwise(b), order[b])):
        if anchor in taken or len(anchor.outs) > 1 or not anchor.is_ranked:
            continue
        group = _grow(anchor, users, makers, taken, first, order)
        group = _attended(group, users, makers, frozenset(taken | first))
        group = _rowed(group, users, makers, taken, first, order)
        group = _rotated(group, users, makers, taken | first, order)
        if len(group) > 1:
            taken.update(group)
            groups[group[-1]] = group
    return groups


def users_of(fn: Function) -> Users:
    """Who reads the variables of a function's body."""
    users: Users = {}
    for b in fn.body:
        for atom in used_atoms(b):
            users.setdefault(atom, []).append(b)
    for result in fn.results:
        users.setdefault(result, []).append(None)
    return users


def _grow(
    anchor: Binding,
    users: Users,
    makers: Mapping[Atom, Binding],
    taken: Set[Binding],
    apart: Set[Binding],
    order: dict[Binding, int],
) -> list[Binding]:
    """The longest run of members that a template takes and only the last one's value escapes.

    What is elementwise itself is joined by what makes arguments for it alone, too.
    """

    def near(members: list[Binding]) -> Iterable[Binding]:
        if _is_elementwise(anchor):
            found = _beside(members, users, makers, apart)
        else:
            readers = {u for m in members for u in users.get(m.out, ())}
            found = {u for u in readers - apart - set(members) if u is not None}
        return (b for b in found - taken if _fits(anchor, b))

    return _longest([anchor], near, users, order)


def _longest(
    members: list[Binding],
    near: Callable[[list[Binding]], Iterable[Binding]],
    users: Users,
    order: Mapping[Binding, int],
) -> list[Binding]:
    """As many as a template takes, one of those `near` at a time: the last group that is closed."""
    best = members
    while len(members) < MAX_MEMBERS:
        more = sorted(near(members), key=order.__getitem__)
        longer = (sorted([*members, b], key=order.__getitem__) for b in more)
        grown = next((group for group in longer if is_taken(group)), None)
        if grown is None:
            break
        members = grown
        if is_closed(members, users) and len(group_function(members)[0]) <= MAX_INPUTS:
            best = members
    return best


def _attended(
    members: list[Binding], users: Users, makers: Mapping[Atom, Binding], taken: frozenset[Binding]
) -> list[Binding]:
    """A product with the softmax behind it and the product of that, if a template takes them.

    Transposes of what they read and of what they make join them where it takes those, too, and
    elementwise ops of what the first one reads.
    """
    anchor, group = members[0], _through(members, users, taken)
    if group is None or not is_closed(group, users) or not is_taken(group):
        return members
    read = (*anchor.args, group[-1].args[1]) if anchor not in taken else ()
    for atom in reversed(read):
        front = _makers(atom, makers, taken.union(group))
        while front and is_closed([*front, *group], users) and is_taken([*front, *group]):
            group = [*front, *group]
            front = [m for a in front[0].args for m in _makers(a, makers, taken.union(group))]
    behind = _reader(group[-1], users, taken)
    if behind is not None and behind.op is transpose and is_taken([*group, behind]):
        group.append(behind)
    return group


def _through(members: list[Binding], users: Users, taken: Set[Binding]) -> list[Binding] | None:
    """The members, elementwise ops behind them, a softmax, and then one more of the first's op."""
    anchor, group = members[0], list(members)
    while (b := _reader(group[-1], users, taken)) and len(group) < MAX_MEMBERS:
        if not _fits(anchor, b) and b.op is not mask_tail:
            break
        group.append(b)
    if b is None or b.op is not softmax:
        return None
    group += _weights(b, users, taken)
    last = _reader(group[-1], users, taken)
    return [*group, last] if last is not None and last.op is anchor.op else None


def _weights(soft: Binding, users: Users, taken: Set[Binding]) -> list[Binding]:
    """A softmax, and what puts 0 in the place of weights: of padding, of no numbers."""
    readers = {b.op: b for b in users.get(soft.out, []) if b is not None and b not in taken}
    more = [readers[op] for op in (isnan, where, mask_tail) if op in readers]
    return [soft, *more] if len(more) == len(users.get(soft.out, [])) else [soft]


def _rowed(
    members: list[Binding],
    users: Users,
    makers: Mapping[Atom, Binding],
    taken: Set[Binding],
    apart: Set[Binding],
    order: Mapping[Binding, int],
) -> list[Binding]:
    """A group that brings the last axis together, with what else a template does to each row.

    What its arguments are made by joins it if nothing outside reads that; what reads its values, if
    that leads to a group of one result.
    """
    if not is_along(members[0].op):
        return members

    def near(members: list[Binding]) -> Iterable[Binding]:
        beside = _beside(members, users, makers, apart) - taken
        return (b for b in beside if _is_elementwise(b) or is_along(b.op))

    return _longest(members, near, users, order)


def _rotated(
    members: list[Binding],
    users: Users,
    makers: Mapping[Atom, Binding],
    taken: Set[Binding],
    order: Mapping[Binding, int],
) -> list[Binding]:
    """A concatenation of halves with what makes them and what they go into: a rotary embedding.

    A transpose before it joins it if nothing else reads that.
    """
    (anchor, *more) = members
    product = _reader(anchor, users, taken) if anchor.op is concat and not more else None
    total = _reader(product, users, taken) if product is not None else None
    if total is None:
        return members

    def made(readers: Iterable[Binding], *ops: Op) -> set[Binding]:
        found = {makers[a] for b in readers for a in b.args if a in makers}
        return {b for b in found - taken if b.op in ops}

    halves = made([anchor], neg, strided_slice)
    halves |= made((b for b in halves if b.op is neg), strided_slice)
    group = {anchor, total} | made([total], mul) | halves
    ways = (group | made(halves, transpose), group)
    listed = (sorted(way, key=order.__getitem__) for way in ways)
    return next((g for g in listed if is_closed(g, users) and is_taken(g)), members)


def _beside(
    members: list[Binding], users: Users, makers: Mapping[Atom, Binding], apart: Set[Binding]
) -> set[Binding]:
    """What reads the values of members, and what makes their arguments for them alone.

    One that is apart may be what a group begins with.
    """
    inside = set(members)
    readers = {u for m in members for u in users.get(m.out, ()) if u is not None}
    begun = (m for m in members if m not in apart)
    made = {makers[a] for m in begun for a in m.args if a in makers}
    alone = {b for b in made if len(b.outs) == 1 and set(users[b.out]) <= inside}
    return ((readers - apart) | (alone - (readers & apart))) - inside


def _makers(atom: Atom, makers: Mapping[Atom, Binding], taken: Set[Binding]) -> list[Binding]:
    """What makes an atom, if it is free: a transpose, an elementwise op, or heads repeated."""
    b = makers.get(atom)
    if b is None or b in taken:
        return []
    if b.op in (unsqueeze, broadcast_to, reshape):
        return _repeating(b, makers, taken)
    return [b] if b.op is transpose or _is_elementwise(b) else []


def _repeating(last: Binding, makers: Mapping[Atom, Binding], taken: Set[Binding]) -> list[Binding]:
    """A new axis, what is spread along it, and the axis made one with another: all or nothing."""
    found: list[Binding] = []
    b: Binding | None = last
    for op in (reshape, broadcast_to, unsqueeze):
        if b is None or b.op is not op or b in taken:
            return []
        found = [b, *found]
        b = makers.get(b.args[0])
    return found


def _reader(b: Binding, users: Users, taken: Set[Binding]) -> Binding | None:
    """The only reader of the one value that a binding makes, if it is free."""
    readers = users.get(b.out, []) if len(b.outs) == 1 else []
    first = readers[0] if len(readers) == 1 else None
    return first if first not in taken else None


def is_closed(members: list[Binding], users: Users) -> bool:
    """Whether only the last one's value is read elsewhere."""
    inside = set(members)
    return all(u in inside for m in members[:-1] for u in users.get(m.out, ()))


def _is_elementwise(b: Binding) -> bool:
    return b.op.scalar is not None


def _fits(anchor: Binding, b: Binding) -> bool:
    return _is_elementwise(b) and b.is_ranked and b.out.type.shape == anchor.out.type.shape


def is_taken(members: list[Binding]) -> bool:
    """Whether a template computes the group."""
    inputs, body = group_function(members)
    return bool(candidates(Workload(body, tuple(isinstance(a, Const) for a in inputs))))
