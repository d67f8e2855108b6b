"""The arrangements of a function that may be best, cheapest first: by dynamic programming.

Layouts first: one state for each way in which the variables that are still needed may lie, of which
the cheapest is kept; a transpose is paid where a variable is first wanted in its other layout. Then
fusion: each group is cut where the sum over its parts is least. What was found is lowered and
priced again, so that an estimate on the way can cost a better arrangement, but no wrong price.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bucketize.dispatch.tree import name_dims
from bucketize.ir import Atom, Binding, Function, Module
from bucketize.kernel.workload import Workload, workload_of
from bucketize.lower.arrangement import USUAL, Arrangement
from bucketize.lower.cost import Predicted, Prices, Seconds, Weighted
from bucketize.lower.fuse import Users, groups_of, is_closed, is_taken, users_of
from bucketize.lower.layout import Layouts, anchors
from bucketize.lower.pipeline import fused, laid_out, simplified
from bucketize.machine.target import host
from bucketize.transform.dead_code import used_atoms

STATES = 64  # kept after each binding: all there are, but for very wide graphs
LAYOUTS = 2  # of the layouts found, so many are lowered, and those with all in one


@dataclass(frozen=True)
class Alternative:
    """An arrangement, and what the function takes in it, relative to the usual one."""

    arrangement: Arrangement
    price: float


def arrangements(
    module: Module,
    clone: str,
    sizes: Mapping[str, int],
    chosen: Arrangement = USUAL,
    threads: int = 1,
) -> list[Alternative]:
    """Those of a clone that may be best at sizes, the cheapest first, `chosen` among them."""
    fn = name_dims(module.functions[clone])
    asked, predicted = [(sizes, 1.0)], Predicted.of(fn, host(), threads)
    return Alternatives(fn, [asked], predicted, chosen).priced(asked, predicted)


class Alternatives:
    """The arrangements of a function that may be best, each lowered once, to be priced often."""

    def __init__(
        self, fn: Function, sizes: Iterable[Weighted], seconds: Seconds, chosen: Arrangement = USUAL
    ) -> None:
        """Look for them at each of `sizes`; the usual one is among them, and `chosen`."""
        self.simple = simplified(fn)
        self._laid = {frozenset[int](): laid_out(self.simple)}
        self.kernels = {a: self._workloads(a) for a in (USUAL, chosen)}
        for each in sizes:
            prices = Prices(self.kernels[USUAL], each, seconds)
            for arrangement in self._search(prices):
                if arrangement not in self.kernels:
                    self.kernels[arrangement] = self._workloads(arrangement)

    def _search(self, prices: Prices) -> Iterator[Arrangement]:
        able = frozenset(anchors(self.simple))
        for planar in {frozenset[int](), able, *layouts(self.simple, prices)}:
            for apart in cuts(self._laid_out(planar), prices):
                yield Arrangement(planar, apart)

    def _laid_out(self, planar: frozenset[int]) -> Function:
        if planar not in self._laid:
            self._laid[planar] = laid_out(self.simple, Arrangement(planar))
        return self._laid[planar]

    def _workloads(self, arrangement: Arrangement) -> list[Workload]:
        lowered = fused(self._laid_out(arrangement.planar), arrangement)
        return [workload_of(b)[0] for b in lowered.body if b.is_ranked]

    def priced(self, sizes: Weighted, seconds: Seconds) -> list[Alternative]:
        """The cheapest first; each of the sizes counts by its weight, relative to the usual one."""
        prices = Prices(self.kernels[USUAL], sizes, seconds)
        found = [Alternative(a, sum(map(prices.of, ws))) for a, ws in self.kernels.items()]
        return sorted(found, key=lambda a: (a.price, a.arrangement != USUAL, str(a.arrangement)))


# --- layouts -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _State:
    """A function laid out so far in one way."""

    layouts: Layouts
    planar: frozenset[int] = frozenset()
    price: float = 0.0

    def then(self, b: Binding, place: int, prices: Prices, *, planar: bool) -> _State:
        """With the next binding laid out, too."""
        layouts = self.layouts.fork()
        before = len(layouts.out.body)
        layouts.add(b, planar=planar)
        made = layouts.out.body[before:]
        price = self.price + prices.of_all(m for m in made if not _joins(m, layouts.out.body))
        return _State(layouts, self.planar | {place} if planar else self.planar, price)

    def forms(self, live: frozenset[Atom]) -> tuple[frozenset[Atom], frozenset[Atom]]:
        """Which of the variables that are still needed lie in which way."""
        both = self.layouts.nchw, self.layouts.nhwc
        nchw, nhwc = (frozenset(live.intersection(form)) for form in both)
        return nchw, nhwc


def layouts(simple: Function, prices: Prices) -> list[frozenset[int]]:
    """The sets of places that stay in NCHW, the cheapest first."""
    able, live = anchors(simple), _live(simple)
    states = [_State(Layouts())] if able else []
    for place, b in enumerate(simple.body):
        kept: dict[object, _State] = {}
        for state in states:
            for planar in (False, True) if place in able else (False,):
                then = state.then(b, place, prices, planar=planar)
                best = kept.setdefault(then.forms(live[place]), then)
                if then.price < best.price:
                    kept[then.forms(live[place])] = then
        states = sorted(kept.values(), key=lambda s: s.price)[:STATES]
    return [state.planar for state in sorted(states, key=lambda s: _ended(s, simple, prices))][
        :LAYOUTS
    ]


def _ended(state: _State, simple: Function, prices: Prices) -> float:
    """The price of a state with the results as the caller wants them."""
    before = len(state.layouts.out.body)
    state.layouts.function(simple)
    return state.price + prices.of_all(state.layouts.out.body[before:])


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
    makers = [m for m in body if m.outs[0] in b.args and m.outs[0].type.axes == b.out.type.axes]
    return any(len(m.outs) == 1 and is_taken([m, b]) for m in makers)


# --- fusion --------------------------------------------------------------------------------------


def cuts(laid: Function, prices: Prices) -> Iterator[frozenset[int]]:
    """Where groups are cut: as is best; and once more, the least worse of all other ways."""
    places = {b: i for i, b in enumerate(laid.body)}
    users = users_of(laid)
    best: set[int] = set()
    others: list[tuple[float, frozenset[int], frozenset[int]]] = []
    for members in groups_of(laid).values():
        ways = segmentations(members, users, prices)
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

    price: float = 0.0
    at: tuple[int, ...] = ()
    """Where a part begins, but for the first."""

    def then(self, begin: int, price: float) -> _Way:
        """With one more part."""
        return _Way(self.price + price, (*self.at, begin) if begin else ())


def segmentations(
    members: Sequence[Binding], users: Users, prices: Prices
) -> list[tuple[float, tuple[int, ...]]]:
    """The best ways to cut a group into kernels, and where; the cheapest two."""
    ways = [[_Way()]]
    for end in range(1, len(members) + 1):
        found = [
            way.then(begin, prices.of_group(part))
            for begin in range(end)
            if _is_kernel(part := list(members[begin:end]), users)
            for way in ways[begin]
        ]
        ways.append(sorted(found, key=lambda way: (way.price, way.at))[:2])
    return [(way.price, way.at) for way in ways[-1]]


def _is_kernel(part: list[Binding], users: Users) -> bool:
    return is_closed(part, users) and is_taken(part)
