"""Fusion: elementwise ops move into the store of what produces their input.

A group is an anchor (a convolution, a matrix product, or an elementwise op) and the elementwise
ops behind it, as long as one value leaves the group, all members have the anchor's shape, and a
template takes it: the templates say what they can do, and nothing else does. Elementwise ops are
joined by those before them, too, that nothing else reads. A product may go on
through a softmax to a product of that, with transposes around it all: attention. What brings the
last axis together has more of its like and elementwise ops on both sides: a norm, however spelled.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping, Set
from dataclasses import dataclass, field
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
from bucketize.kernel.rows.pattern import is_along
from bucketize.kernel.templates import candidates
from bucketize.kernel.workload import Workload, group_function, inputs_of, signature
from bucketize.op import Op
from bucketize.ops import (
    broadcast_to,
    concat,
    isnan,
    mask_segments,
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
"""The readers of each variable; None stands for the function's caller."""


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
    uses = _Uses.of(fn, apart)
    groups: dict[Binding, list[Binding]] = {}
    for anchor in sorted(fn.body, key=lambda b: (_is_elementwise(b), uses.order[b])):
        if anchor in uses.taken or len(anchor.outs) > 1 or not anchor.is_ranked:
            continue
        group = _grow(anchor, uses)
        group = _attended(group, uses)
        group = _rowed(group, uses)
        group = _rotated(group, uses)
        if len(group) > 1:
            uses.taken.update(group)
            uses.barred.update(group)
            groups[group[-1]] = group
    return groups


@dataclass(frozen=True)
class _Uses:
    """What is known of a function while its groups are found."""

    users: Users
    makers: Mapping[Atom, Binding]
    order: Mapping[Binding, int]
    apart: Set[Binding]
    """What joins no group."""
    barred: set[Binding]
    """What joins no group, and what is in a group already."""
    taken: set[Binding] = field(default_factory=set)
    answers: dict[Hashable, bool] = field(default_factory=dict)
    """Whether a template takes groups, by their signatures: large graphs repeat themselves."""

    @classmethod
    def of(cls, fn: Function, apart: Set[int]) -> _Uses:
        order = {b: i for i, b in enumerate(fn.body)}
        makers: dict[Atom, Binding] = {v: b for b in fn.body for v in b.outs}
        first = {b for b, i in order.items() if i in apart}
        return cls(users_of(fn), makers, order, first, set(first))

    def is_taken(self, members: list[Binding]) -> bool:
        """Whether a template computes the group."""
        key = signature(members, members[-1].outs)
        if key not in self.answers:
            self.answers[key] = is_taken(members)
        return self.answers[key]

    def is_closed(self, members: list[Binding]) -> bool:
        """Whether only the last one's value is read elsewhere."""
        inside = set(members)
        return all(u in inside for m in members[:-1] for u in self.users.get(m.out, ()))

    def reader(self, b: Binding) -> Binding | None:
        """The only reader of the one value that a binding makes, if it is free."""
        readers = self.users.get(b.out, []) if len(b.outs) == 1 else []
        first = readers[0] if len(readers) == 1 else None
        return first if first not in self.barred else None

    def sorted(self, members: Iterable[Binding]) -> list[Binding]:
        """Bindings in the order of the function."""
        return sorted(members, key=self.order.__getitem__)


def users_of(fn: Function) -> Users:
    """The readers of the variables of a function's body."""
    users: Users = {}
    for b in fn.body:
        for atom in used_atoms(b):
            users.setdefault(atom, []).append(b)
    for result in fn.results:
        users.setdefault(result, []).append(None)
    return users


def _grow(anchor: Binding, uses: _Uses) -> list[Binding]:
    """The longest run of members that a template takes and only the last one's value escapes.

    What is elementwise itself is joined by what makes arguments for it alone, too.
    """

    def near(members: list[Binding]) -> Iterable[Binding]:
        if _is_elementwise(anchor):
            neighbours = _beside(members, uses)
        else:
            readers = {u for m in members for u in uses.users.get(m.out, ())}
            neighbours = {u for u in readers.difference(members) - uses.barred if u is not None}
        return (b for b in neighbours - uses.taken if _fits(anchor, b))

    return _longest([anchor], near, uses)


def _longest(
    members: list[Binding], near: Callable[[list[Binding]], Iterable[Binding]], uses: _Uses
) -> list[Binding]:
    """The longest group that a template takes, one of those `near` at a time: the last closed one.

    Or one and what reads it, if none alone: no kernel stores whether a value is below zero.
    """
    best = members
    while len(members) < MAX_MEMBERS:
        neighbours = uses.sorted(near(members))
        more = itertools.chain(
            ([b] for b in neighbours), (_read(b, neighbours) for b in neighbours)
        )
        longer = (uses.sorted([*members, *each]) for each in more)
        grown = next((group for group in longer if uses.is_taken(group)), None)
        if grown is None:
            break
        members = grown
        if uses.is_closed(members) and len(inputs_of(members)) <= MAX_INPUTS:
            best = members
    return best


def _read(b: Binding, among: Iterable[Binding]) -> list[Binding]:
    """A binding and the first of some others that reads it."""
    return [b, *itertools.islice((r for r in among if not set(b.outs).isdisjoint(r.args)), 1)]


def _attended(members: list[Binding], uses: _Uses) -> list[Binding]:
    """A product with the softmax behind it and the product of that, if a template takes them.

    Transposes of what they read and of what they make join them where it takes those, too, and
    elementwise ops of what the first one reads.
    """
    anchor, group = members[0], _through(members, uses)
    if group is None or not uses.is_closed(group) or not uses.is_taken(group):
        return members
    read = (*anchor.args, group[-1].args[1]) if anchor not in uses.barred else ()
    for atom in reversed(read):
        front = _makers(atom, uses, group)
        while front and uses.is_closed([*front, *group]) and uses.is_taken([*front, *group]):
            group = [*front, *group]
            front = [m for a in front[0].args for m in _makers(a, uses, group)]
    behind = uses.reader(group[-1])
    if behind is not None and behind.op is transpose and uses.is_taken([*group, behind]):
        group.append(behind)
    return group


def _through(members: list[Binding], uses: _Uses) -> list[Binding] | None:
    """The members, elementwise ops behind them, a softmax, and then one more of the first's op."""
    anchor, group = members[0], list(members)
    while (b := uses.reader(group[-1])) and len(group) < MAX_MEMBERS:
        if not _fits(anchor, b) and b.op not in (mask_segments, mask_tail):
            break
        group.append(b)
    if b is None or b.op is not softmax:
        return None
    group += _weights(b, uses)
    last = uses.reader(group[-1])
    return [*group, last] if last is not None and last.op is anchor.op else None


def _weights(soft: Binding, uses: _Uses) -> list[Binding]:
    """A softmax, and what puts 0 in the place of weights: of padding, of no numbers."""
    users = uses.users.get(soft.out, [])
    readers = {b.op: b for b in users if b is not None and b not in uses.barred}
    more = [readers[op] for op in (isnan, where, mask_tail) if op in readers]
    return [soft, *more] if len(more) == len(users) else [soft]


def _rowed(members: list[Binding], uses: _Uses) -> list[Binding]:
    """A group that brings the last axis together, with what else a template does to each row.

    What its arguments are made by joins it if nothing outside reads that; what reads its values, if
    that leads to a group of one result.
    """
    if not is_along(members[0].op):
        return members

    def near(members: list[Binding]) -> Iterable[Binding]:
        beside = _beside(members, uses) - uses.taken
        return (b for b in beside if _is_elementwise(b) or is_along(b.op))

    return _longest(members, near, uses)


def _rotated(members: list[Binding], uses: _Uses) -> list[Binding]:
    """A concatenation of halves with what makes them and what they go into: a rotary embedding.

    A transpose before it joins it if nothing else reads that.
    """
    (anchor, *more) = members
    product = uses.reader(anchor) if anchor.op is concat and not more else None
    total = uses.reader(product) if product is not None else None
    if total is None:
        return members

    def made_by(readers: Iterable[Binding], *ops: Op) -> set[Binding]:
        makers = {uses.makers[a] for b in readers for a in b.args if a in uses.makers}
        return {b for b in makers - uses.barred if b.op in ops}

    halves = made_by([anchor], neg, strided_slice)
    halves |= made_by((b for b in halves if b.op is neg), strided_slice)
    group = {anchor, total} | made_by([total], mul) | halves
    ways = map(uses.sorted, (group | made_by(halves, transpose), group))
    return next((g for g in ways if uses.is_closed(g) and uses.is_taken(g)), members)


def _beside(members: list[Binding], uses: _Uses) -> set[Binding]:
    """What reads the values of members, and what makes their arguments for them alone.

    One that is apart may be what a group begins with.
    """
    inside, apart = set(members), uses.apart
    readers = {u for m in members for u in uses.users.get(m.out, ()) if u is not None}
    begun = (m for m in members if m not in apart)
    makers = {uses.makers[a] for m in begun for a in m.args if a in uses.makers}
    lone = (b for b in makers if len(b.outs) == 1)
    alone = {b for b in lone if all(u in inside for u in uses.users[b.out])}
    return ((readers - apart) | (alone - (readers & apart))) - inside


def _makers(atom: Atom, uses: _Uses, group: list[Binding]) -> list[Binding]:
    """What makes an atom, if it is free: a transpose, an elementwise op, or heads repeated."""
    b = uses.makers.get(atom)
    if b is None or b in uses.barred or b in group:
        return []
    if b.op in (unsqueeze, broadcast_to, reshape):
        return _repeating(b, uses, group)
    return [b] if b.op is transpose or _is_elementwise(b) else []


def _repeating(last: Binding, uses: _Uses, group: list[Binding]) -> list[Binding]:
    """A new axis, what is spread along it, and the axis made one with another: all or nothing."""
    chain: list[Binding] = []
    b: Binding | None = last
    for op in (reshape, broadcast_to, unsqueeze):
        if b is None or b.op is not op or b in uses.barred or b in group:
            return []
        chain = [b, *chain]
        b = uses.makers.get(b.args[0])
    return chain


def _is_elementwise(b: Binding) -> bool:
    return b.op.scalar is not None


def _fits(anchor: Binding, b: Binding) -> bool:
    return _is_elementwise(b) and b.is_ranked and b.out.type.shape == anchor.out.type.shape


def is_taken(members: list[Binding]) -> bool:
    """Whether a template computes the group.

    None where others read the constant that an op may have packed: a group has one of it.
    """
    for b in members:
        weights = [a for a in b.args[1:2] if isinstance(a, Const) and b.op.scalar is None]
        if any(a in other.args for a in weights for other in members if other is not b):
            return False
    inputs, body = group_function(members)
    return bool(candidates(Workload(body, tuple(isinstance(a, Const) for a in inputs))))
