"""The search over the implementations of a workload: pure, seeded, blind to what it measures.

The order of proposals: where no model knows better, the default and what serves elsewhere, then
what the strategy says, which neighbours' trials are evidence to. The default is timed beside all
others, so that a search that believes something never asks for it. No implementation is proposed
twice, and a space that is used up ends the search.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from bucketize.errors import TuneError, unknown_name
from bucketize.kernel.schedule import Implementation, Knob
from bucketize.kernel.template import Template, combinations
from bucketize.kernel.templates import candidates
from bucketize.kernel.workload import Workload
from bucketize.log.trial import Source
from bucketize.machine.target import Target
from bucketize.tune.surrogate import Neighbour, Surrogate

ENUMERATED = 5000  # of a template with more schedules a sample is taken
FIRST_RANDOM = 4  # random points before a surrogate that knows nothing has enough to say


@dataclass(frozen=True)
class Proposal:
    """An implementation to measure, and who asked for it."""

    implementation: Implementation
    source: Source
    expected_ratio: float | None = field(default=None, compare=False)
    """The ratio of latency to the default's, by the surrogate."""
    expected_gain: float | None = field(default=None, compare=False)
    """By how much it is expected to be below the best so far, as a share of its latency."""


@dataclass(frozen=True, eq=False)
class Space:
    """The implementations that may be tried."""

    points: Sequence[Implementation]
    default: Implementation
    believed: Sequence[float] | None = None
    """For each point the expected logarithm of its latency by the default's, if any is known."""

    def __post_init__(self) -> None:
        if self.default.key not in self.index:
            raise TuneError(f"the default, {self.default}, is none that may be tried")

    @cached_property
    def index(self) -> dict[object, int]:
        """Where among the points each implementation is, by its key."""
        return {point.key: i for i, point in enumerate(self.points)}

    @cached_property
    def surrogate(self) -> Surrogate:
        """What expects something of every point."""
        return Surrogate(self.points, self.believed)


def space_of(workload: Workload, default: Implementation, target: Target) -> Space:
    """Every legal schedule of every template that takes a workload, the default's first."""
    able = candidates(workload, target)
    legal = [one for t in able for one in _legal(t, workload, target)]
    if default.key not in {one.key for one in legal}:  # of another template, or of a sample
        reason = next(
            (
                t.valid(workload, default.schedule, target)
                for t in able
                if t.name == default.template
            ),
            "no such template",
        )
        if reason:
            raise TuneError(f"the default, {default}, is invalid: {reason}")
        legal = [default, *legal]
    return Space(legal, default)


def _legal(template: Template, workload: Workload, target: Target) -> Iterator[Implementation]:
    knobs = template.knobs(workload, target)
    for schedule in schedules(knobs) if knobs else [template.default(workload, target)]:
        if template.valid(workload, schedule, target) is None:
            yield Implementation(template.name, schedule)


def schedules(knobs: Mapping[str, Sequence[Knob]]) -> list[dict[str, Knob]]:
    """The grid of some knobs in its order, or, of one too large, a fixed sample."""
    if math.prod(len(values) for values in knobs.values()) <= ENUMERATED:
        return combinations(knobs)
    dice = random.Random(0)
    drawn = [tuple(dice.choice(values) for values in knobs.values()) for _ in range(ENUMERATED)]
    return [dict(zip(knobs, values, strict=True)) for values in dict.fromkeys(drawn)]


@dataclass
class Search:
    """The search over one space: told costs, it says what to try next."""

    space: Space
    strategy: str = "skopt"
    seed: int = 0
    transfer: Sequence[Implementation] = ()
    """What serves elsewhere, to try right after the default."""
    neighbours: Sequence[Neighbour] = ()
    """What is known elsewhere, which moves and narrows what is expected here."""
    tried: dict[int, float | None] = field(default_factory=dict)
    _heard: Surrogate | None = None

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise unknown_name("search strategy", self.strategy, STRATEGIES)

    def tell(self, implementation: Implementation, cost: float | None) -> None:
        """Learn what an implementation costs relative to the default; None: it failed."""
        if implementation.key in self.space.index:
            self.tried[self.space.index[implementation.key]] = cost

    def hear(self, neighbours: Sequence[Neighbour]) -> None:
        """Learn what neighbours know by now."""
        self.neighbours, self._heard = neighbours, None

    @property
    def surrogate(self) -> Surrogate:
        """What expects something of every point."""
        if not self.neighbours:
            return self.space.surrogate
        if self._heard is None:
            self._heard = Surrogate(self.space.points, self.space.believed, self.neighbours)
        return self._heard

    def ask(self, count: int = 1) -> list[Proposal]:
        """The next so many proposals, fewer when the space is used up; nothing is changed."""
        later, asked = self, list[Proposal]()
        while len(asked) < count and (chosen := later.next()) is not None:
            index, source = chosen
            asked.append(later.proposal(index, source))
            later = later.expecting(asked[-1:])
        return asked

    def proposal(self, index: int, source: Source) -> Proposal:
        """The proposal of a point, with what is expected of it by now."""
        implementation, ratio = self.space.points[index], self.expected(index)
        if ratio is None:
            return Proposal(implementation, source)
        gain = float(self.surrogate.improvement(self.logs())[index])
        return Proposal(implementation, source, ratio, gain)

    def expecting(self, asked: Sequence[Proposal]) -> Search:
        """The search as it will be if proposals turn out as expected."""
        later = replace(self, tried=dict(self.tried))
        for proposal in asked:
            index = self.space.index[proposal.implementation.key]
            later.tried[index] = later.expected(index)
        return later

    def next(self) -> tuple[int, Source] | None:
        """The point to try next, and who says so."""
        for implementation, source in self.first():
            index = self.space.index.get(implementation.key)
            if index is not None and index not in self.tried:
                return index, source
        if self.is_over:
            return None
        return STRATEGIES[self.strategy](self)

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to be tried."""
        return len(self.logs() if self.believes else self.tried) == len(self.space.points)

    @property
    def believes(self) -> bool:
        """Whether the strategy expects something of what nobody has tried."""
        return self.strategy == "skopt" and self.space.believed is not None

    def first(self) -> Iterator[tuple[Implementation, Source]]:
        """What is measured before any strategy has a say."""
        if not self.believes:
            yield self.space.default, "default"
        for implementation in self.transfer:
            yield implementation, "transfer"

    def expected(self, index: int) -> float | None:
        """What a point is taken to cost until it is measured."""
        if self.strategy != "skopt":
            return None
        return math.exp(self.surrogate.expected(self.logs(), index))

    def logs(self) -> dict[int, float]:
        """Logarithms of costs, the default's among them; a failure counts as twice the worst."""
        costs = {self.space.index[self.space.default.key]: 1.0, **self.tried}
        penalty = 2 * max(cost for cost in [1.0, *costs.values()] if cost is not None)
        return {i: math.log(penalty if c is None else c) for i, c in costs.items()}

    @property
    def best(self) -> tuple[Implementation, float] | None:
        """What costs least of all that was tried, and how much."""
        costs = [(cost, i) for i, cost in self.tried.items() if cost is not None]
        return (self.space.points[min(costs)[1]], min(costs)[0]) if costs else None

    def better(self, few: int) -> list[Implementation]:
        """The best few of those that cost less than the default."""
        default = self.space.index[self.space.default.key]
        costs = [(cost, i) for i, cost in self.tried.items() if cost is not None and i != default]
        return [self.space.points[i] for cost, i in sorted(costs)[:few] if cost < 1]

    def gain(self) -> float:
        """By how much, as a share of its latency, the next trial is expected to better the best."""
        if self.is_over:
            return 0.0
        return self.surrogate.gain(self.logs())


def _by_grid(search: Search) -> tuple[int, Source]:
    return next(i for i in range(len(search.space.points)) if i not in search.tried), "grid"


def _by_chance(search: Search) -> tuple[int, Source]:
    order = list(range(len(search.space.points)))
    random.Random(search.seed).shuffle(order)
    return next(i for i in order if i not in search.tried), "random"


def _by_surrogate(search: Search) -> tuple[int, Source]:
    """The greatest expected improvement; without any belief, a few random points before."""
    blind = search.space.believed is None and not search.neighbours
    if blind and len(search.tried) < FIRST_RANDOM:
        return _by_chance(search)
    return search.surrogate.most_promising(search.logs(), search.seed), "skopt"


STRATEGIES: dict[str, Callable[[Search], tuple[int, Source]]] = {
    "skopt": _by_surrogate,
    "random": _by_chance,
    "grid": _by_grid,
}
