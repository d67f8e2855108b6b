"""The arrangements of a function that may be best, cheapest first: by dynamic programming.

Layouts first: one state for each way in which the variables that are still needed may lie, of which
the cheapest is kept; a transpose is paid where a variable is first wanted in its other layout. Then
fusion: each group is cut where the sum over its parts is least. What was found is lowered and
priced again, so that an estimate on the way can cost a better arrangement, but no wrong price.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from bucketize.ir import Atom, Binding, Function
from bucketize.lower.arrangement import USUAL, Arrangement
from bucketize.lower.fuse import Users, groups_of, is_closed, is_taken, users_of
from bucketize.lower.layout import Layouts, anchors
from bucketize.lower.pipeline import laid_out, lower
from bucketize.lower.price import Prices, Seconds, Weighted
from bucketize.transform.dead_code import used_atoms
from bucketize.transform.simplify import simplify

STATES = 64  # kept after each binding: all there are, but for very wide graphs
LAYOUTS = 2  # of the layouts found, so many are lowered, and those with all in one


@dataclass(frozen=True)
class Alternative:
    """An arrangement, and what the function takes in it, relative to the usual one."""

    arrangement: Arrangement
    price: float


def alternatives(
    fn: Function, sizes: Weighted, seconds: Seconds, chosen: Arrangement = USUAL
) -> list[Alternative]:
    """The arrangements that may be best, the cheapest first; the usual and `chosen` are among them.

    Each of the sizes counts by its weight, relative to what the usual one takes there.
    """
    simple = simplify(fn)
    known = Prices(lower(simple).body, sizes, seconds)
    found = {USUAL, chosen}
    for planar in {frozenset[int](), frozenset(anchors(simple)), *layouts(simple, known)}:
        laid = laid_out(simple, Arrangement(planar))
        found |= {Arrangement(planar, apart) for apart in cuts(laid, known)}
    whole = (Alternative(a, known.bindings(lower(simple, a).body)) for a in found)
    return sorted(whole, key=lambda a: (a.price, a.arrangement != USUAL, str(a.arrangement)))


# --- layouts -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _State:
    """A function laid out so far in one way."""

    layouts: Layouts
    planar: frozenset[int] = frozenset()
    price: float = 0.0

    def then(self, b: Binding, place: int, known: Prices, *, planar: bool) -> _State:
        """With the next binding laid out, too."""
        layouts = self.layouts.fork()
        before = len(layouts.out.body)
        layouts.add(b, planar=planar)
        made = layouts.out.body[before:]
        price = self.price + known.bindings(m for m in made if not _joins(m, layouts.out.body))
        return _State(layouts, self.planar | {place} if planar else self.planar, price)

    def forms(self, live: frozenset[Atom]) -> tuple[frozenset[Atom], frozenset[Atom]]:
        """Which of the variables that are still needed lie in which way."""
        both = self.layouts.nchw, self.layouts.nhwc
        nchw, nhwc = (frozenset(live.intersection(form)) for form in both)
        return nchw, nhwc


def layouts(simple: Function, known: Prices) -> list[frozenset[int]]:
    """The sets of places that stay in NCHW, the cheapest first."""
    able, live = anchors(simple), _live(simple)
    states = [_State(Layouts())] if able else []
    for place, b in enumerate(simple.body):
        kept: dict[object, _State] = {}
        for state in states:
            for planar in (False, True) if place in able else (False,):
                then = state.then(b, place, known, planar=planar)
                best = kept.setdefault(then.forms(live[place]), then)
                if then.price < best.price:
                    kept[then.forms(live[place])] = then
        states = sorted(kept.values(), key=lambda s: s.price)[:STATES]
    return [state.planar for state in sorted(states, key=lambda s: _ended(s, simple, known))][
        :LAYOUTS
    ]


def _ended(state: _State, simple: Function, known: Prices) -> float:
    """The price of a state with the results as the caller wants them."""
    before = len(state.layouts.out.body)
    state.layouts.function(simple)
    return state.price + known.bindings(state.layouts.out.body[before:])


def _live(fn: Function) -> list[frozenset[Atom]]:
    """What is needed after each binding."""
    needed, found = set(fn.results), []
    for b in reversed(fn.body):
        found.append(frozenset(needed))
        needed |= used_atoms(b)
    return found[::-1]


def _joins(b: Binding, body: Sequence[Binding]) -> bool:
    """Whether a template computes an elementwise op together with what it reads."""
    if b.op.scalar is None:
        return False
    makers = [m for m in body if m.outs[0] in b.args and m.outs[0].type.shape == b.out.type.shape]
    return any(len(m.outs) == 1 and is_taken([m, b]) for m in makers)


# --- fusion --------------------------------------------------------------------------------------


def cuts(laid: Function, known: Prices) -> Iterator[frozenset[int]]:
    """Where groups are cut: as is best; and once more, the least worse of all other ways."""
    places = {b: i for i, b in enumerate(laid.body)}
    users = users_of(laid)
    best: set[int] = set()
    others: list[tuple[float, frozenset[int], frozenset[int]]] = []
    for members in groups_of(laid).values():
        ways = segmentations(members, users, known)
        (least, first), *rest = (
            (price, frozenset(places[members[i]] for i in at)) for price, at in ways
        )
        best |= first
        others += [(price - least, first, second) for price, second in rest[:1]]
    yield frozenset(best)
    if others:
        _, first, second = min(others, key=lambda o: o[0])
        yield frozenset(best - first | second)


@dataclass(frozen=True)
class _Way:
    """A group's first members, cut."""

    price: float
    at: tuple[int, ...] = ()
    """Where a part begins, but for the first."""


def segmentations(
    members: Sequence[Binding], users: Users, known: Prices
) -> list[tuple[float, tuple[int, ...]]]:
    """The best ways to cut a group into kernels, and where; the cheapest two."""
    ways: list[list[_Way]] = [[_Way(0.0)]]
    for end in range(1, len(members) + 1):
        found = [
            replace(way, price=way.price + known.group(part), at=(*way.at, *[begin][: begin > 0]))
            for begin in range(end)
            if _is_kernel(part := list(members[begin:end]), users)
            for way in ways[begin]
        ]
        ways.append(sorted(found, key=lambda way: (way.price, way.at))[:2])
    return [(way.price, way.at) for way in ways[-1]]


def _is_kernel(part: list[Binding], users: Users) -> bool:
    return is_closed(part, users) and is_taken(part)
