"""The search over a template's finite space of schedules: pure, seeded, blind to what it measures.

The order of proposals: the default, then the best schedules of neighbouring buckets, then what the
strategy says. No schedule is proposed twice, and a space that is used up ends the search.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from bucketize.errors import TuneError, unknown_name
from bucketize.tune.log import Schedule, Source, schedule_hash
from bucketize.tune.surrogate import most_promising

ENUMERATED = 5000  # a space with more points is sampled
FIRST_RANDOM = 4  # random points before the surrogate has enough to say


@dataclass(frozen=True)
class Proposal:
    """A schedule to measure, and who asked for it."""

    schedule: Schedule
    source: Source


Measure = Callable[[Proposal], float | None]  # a cost in seconds; None: the schedule failed
History = Sequence[tuple[Schedule, float | None]]


def _always(_: Schedule) -> str | None:
    return None


@dataclass(frozen=True, eq=False)
class Space:
    """Every combination of a workload's knobs that `invalid` has no reason to refuse."""

    knobs: Mapping[str, Sequence[int | str]]
    default: Schedule
    invalid: Callable[[Schedule], str | None] = field(default=_always)

    def __post_init__(self) -> None:
        reason = self.invalid(self.default)
        if reason:
            raise TuneError(f"the default schedule {dict(self.default)} is invalid: {reason}")

    @cached_property
    def points(self) -> list[Schedule]:
        """The valid schedules in the order of the grid, or, of too many, a fixed sample."""
        return list(self._valid())

    @cached_property
    def index(self) -> dict[str, int]:
        """Where among the points each schedule is, by its hash."""
        return {schedule_hash(schedule): i for i, schedule in enumerate(self.points)}

    def count(self, most: int) -> int:
        """How many points there are, up to `most`: so many are found sooner than all."""
        return sum(1 for _ in itertools.islice(self._valid(), most))

    def _valid(self) -> Iterator[Schedule]:
        size = math.prod(len(values) for values in self.knobs.values())
        schedules = self._grid() if size <= ENUMERATED else self._sample()
        return (schedule for schedule in schedules if not self.invalid(schedule))

    def _grid(self) -> Iterator[Schedule]:
        for values in itertools.product(*self.knobs.values()):
            yield dict(zip(self.knobs, values, strict=True))

    def _sample(self) -> Iterator[Schedule]:
        dice = random.Random(0)
        drawn = (
            {name: dice.choice(values) for name, values in self.knobs.items()}
            for _ in range(ENUMERATED)
        )
        return iter({schedule_hash(schedule): schedule for schedule in drawn}.values())


def search(
    space: Space,
    measure: Measure,
    trials: int,
    *,
    strategy: str = "skopt",
    seed: int = 0,
    transfer: Sequence[Schedule] = (),
    history: History = (),
) -> Iterator[tuple[Proposal, float | None]]:
    """Measured proposals, until `trials` schedules are tried or the space is used up.

    Args:
        space: what to search.
        measure: a proposal's cost, or None when it failed.
        trials: how many schedules to try, those of `history` included.
        strategy: "skopt", "random" or "grid".
        seed: of the strategy; the same seed and costs give the same proposals.
        transfer: the best schedules of neighbouring buckets, to try right after the default.
        history: schedules with known costs, which are not measured again.

    """
    known = list(history)
    while len(known) < trials:
        proposal = propose(space, known, strategy=strategy, seed=seed, transfer=transfer)
        if proposal is None:
            return
        cost = measure(proposal)
        known.append((proposal.schedule, cost))
        yield proposal, cost


def propose(
    space: Space,
    history: History,
    *,
    strategy: str = "skopt",
    seed: int = 0,
    transfer: Sequence[Schedule] = (),
) -> Proposal | None:
    """The next schedule to measure after `history`; None when every schedule has been tried."""
    if strategy not in STRATEGIES:
        raise unknown_name("search strategy", strategy, STRATEGIES)
    tried = {schedule_hash(schedule): cost for schedule, cost in history}
    for schedule, source in _first(space, transfer):
        if schedule_hash(schedule) not in tried:
            return Proposal(schedule, source)
    costs = {space.index[key]: cost for key, cost in tried.items() if key in space.index}
    if len(costs) == len(space.points):
        return None
    index, source = STRATEGIES[strategy](space, costs, seed)
    return Proposal(space.points[index], source)


def _first(space: Space, transfer: Sequence[Schedule]) -> Iterator[tuple[Schedule, Source]]:
    """What is measured before any strategy has a say."""
    yield space.default, "default"
    for schedule in transfer:
        fits = all(schedule.get(name) in values for name, values in space.knobs.items())
        if fits and len(schedule) == len(space.knobs) and not space.invalid(schedule):
            yield schedule, "transfer"


# Strategies: tried points (index -> cost) to the index of the next, and its source.
Costs = Mapping[int, float | None]


def _by_grid(space: Space, tried: Costs, _seed: int) -> tuple[int, Source]:
    return next(i for i in range(len(space.points)) if i not in tried), "grid"


def _by_chance(space: Space, tried: Costs, seed: int) -> tuple[int, Source]:
    order = list(range(len(space.points)))
    random.Random(seed).shuffle(order)
    return next(i for i in order if i not in tried), "random"


def _by_surrogate(space: Space, tried: Costs, seed: int) -> tuple[int, Source]:
    """A few random points, then the greatest expected improvement.

    A failure counts as twice the worst latency.
    """
    latencies = [cost for cost in tried.values() if cost is not None]
    if len(tried) < FIRST_RANDOM or not latencies:
        return _by_chance(space, tried, seed)
    penalty = 2 * max(latencies)
    logs = {i: math.log(penalty if cost is None else cost) for i, cost in tried.items()}
    return most_promising(space.knobs, logs, space.points, seed + len(tried)), "skopt"


STRATEGIES: dict[str, Callable[[Space, Costs, int], tuple[int, Source]]] = {
    "skopt": _by_surrogate,
    "random": _by_chance,
    "grid": _by_grid,
}
