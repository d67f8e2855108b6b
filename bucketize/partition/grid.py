"""The search among boxes whose edges lie on a grid, by an objective."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from bucketize.dispatch.bucket import Bucket
from bucketize.kernel.schedule import Implementation
from bucketize.kernel.typical import Box
from bucketize.kernel.workload import Workload
from bucketize.machine.speed import Floats
from bucketize.partition.expectation import Expectation, held
from bucketize.partition.search import Cell, all_cells, cheapest
from bucketize.types import Interval, Sizes, Symbol

OBJECTIVES = ("mean", "p99", "worst")
STEPS = {1: 24, 2: 6, 3: 3}
"""Between which buckets may begin and end, of each symbol that is cut; by how many are."""
TRIED = 24  # values that p99 may come to
TIE = 1e-7  # what the mean counts among partitions that are alike otherwise
FINER = 3  # grids, each finer than that before around the cuts that it chose
BETTER = 1e-3  # what a finer grid has to save

Expect: TypeAlias = Callable[[Sequence[Box], Sequence[Sizes], Floats], Expectation]
"""What clones of boxes are expected to take at points, of which each has a weight."""
Starts: TypeAlias = Sequence[Sequence[int]]
"""For each symbol where buckets may begin, the first where its bounds do."""


@dataclass(frozen=True, eq=False)
class SizeSample:
    """Sizes that stand for all requests, and what they count."""

    points: Sequence[Sizes]
    shares: Floats
    """Shares of the requests, together 1."""
    least: Floats
    """Seconds of each, by the best kernels."""
    weights: Floats
    """The weight of a second at each point in the mean."""

    def value(self, seconds: Floats, objective: str) -> float:
        """What seconds at the points come to."""
        if objective == "mean":
            return float(seconds @ self.weights)
        if objective == "worst":
            return float((seconds / self.least).max())
        order = np.argsort(seconds)
        reached = int(np.searchsorted(np.cumsum(self.shares[order]), 0.99 - TIE))
        return float(seconds[order[min(reached, len(order) - 1)]])

    def excess(self, seconds: Floats, most: float) -> Floats:
        """The share of the requests at each point, where it takes more than `most`; else 0."""
        return np.where(seconds > most, self.shares, 0.0)


@dataclass(frozen=True, eq=False)
class Choice:
    """A partition, what its clones take at the points, and their kernels."""

    buckets: Sequence[Bucket]
    seconds: Floats
    kernels: Sequence[tuple[Workload, Implementation]]


@dataclass(frozen=True, eq=False)
class Grid:
    """Boxes between the places where buckets may begin, and what their clones take."""

    symbols: Sequence[Symbol]
    starts: Starts
    sample: SizeSample
    inside: Floats
    """1 where a box, by its place in `all_cells`, holds a point, else 0."""
    its: Expectation

    @classmethod
    def of(
        cls, symbols: Sequence[Symbol], starts: Starts, sample: SizeSample, expect: Expect
    ) -> Grid:
        """The grid of some places."""
        cells = all_cells([len(s) for s in starts])
        boxes = [
            tuple(
                narrow(s, interval(s, mine, span))
                for s, mine, span in zip(symbols, starts, cell, strict=True)
            )
            for cell in cells
        ]
        inside = held(boxes, sample.points).astype(float)
        return cls(symbols, starts, sample, inside, expect(boxes, sample.points, sample.weights))

    def best(self, budget: int, objective: str) -> list[Choice]:
        """The best partition of each number of clones, where more are better than fewer."""
        cells = self._cheapest(budget, objective)
        return [self._choice(cover) for cover in dict.fromkeys(cells)]

    def _cheapest(self, budget: int, objective: str) -> list[tuple[Cell, ...]]:
        """The cells; for the 99th percentile, by how many requests exceed values of it."""
        steps, means = [len(s) for s in self.starts], self._total(self.its.seconds)
        if objective == "mean":
            return [cover.cells for cover in cheapest(means, steps, budget)]
        if objective == "worst":
            return list(self._least_worst(means, steps, budget))
        tie = means * (TIE / max(float(means.max()), TIE))
        best: list[tuple[float, float, tuple[Cell, ...]]] = []
        for most in self._values():
            excess = (self.inside * self.sample.excess(self.its.seconds, most)).sum(1)
            covers = [cover.cells for cover in cheapest(excess + tie, steps, budget)]
            new = [self._ranked(cells, objective) for cells in covers]
            best = [min(pair) for pair in zip(best or new, new, strict=True)]
        return [cells for *_, cells in itertools.accumulate(best, min)]

    def _least_worst(
        self, means: Floats, steps: Sequence[int], budget: int
    ) -> Iterator[tuple[Cell, ...]]:
        """The cells whose worst is the least, and among partitions of that worst the mean."""
        worst = (self.inside * self.its.seconds / self.sample.least).max(axis=1)
        for k, least in enumerate(cheapest(worst, steps, budget, np.maximum)):
            able = np.where(worst <= least.cost, means, np.inf)
            yield cheapest(able, steps, k + 1)[k].cells

    def _values(self) -> Iterable[float]:
        """What the percentile may come to: from that of the oracle to that of one clone."""
        whole = all_cells([len(s) for s in self.starts]).index(self._whole)
        least, most = (
            self.sample.value(s, "p99") for s in (self.sample.least, self.its.seconds[whole])
        )
        values: list[float] = np.geomspace(least, most, TRIED).tolist()
        return values

    @property
    def _whole(self) -> Cell:
        return tuple((0, len(s)) for s in self.starts)

    def _total(self, seconds: Floats) -> Floats:
        total: Floats = (self.inside * seconds) @ self.sample.weights
        return total

    def _ranked(
        self, cells: tuple[Cell, ...], objective: str
    ) -> tuple[float, float, tuple[Cell, ...]]:
        """A partition behind what it comes to, by which it is compared."""
        seconds = self._seconds(cells)
        each = (self.sample.value(seconds, o) for o in (objective, "mean"))
        return (*each, cells)  # type: ignore[return-value]

    def _places(self, cells: Iterable[Cell]) -> list[int]:
        number = {cell: k for k, cell in enumerate(all_cells([len(s) for s in self.starts]))}
        return [number[cell] for cell in cells]

    def _seconds(self, cells: Iterable[Cell]) -> Floats:
        """What clones take at the points, each served by its own."""
        places = self._places(cells)
        seconds: Floats = (self.inside[places] * self.its.seconds[places]).sum(axis=0)
        return seconds

    def _choice(self, cells: tuple[Cell, ...]) -> Choice:
        places = frozenset[int]().union(*(self.its.kernels[k] for k in self._places(cells)))
        kernels = [self.its.every[k] for k in sorted(places)]
        return Choice([self._bucket(c) for c in cells], self._seconds(cells), kernels)

    def _bucket(self, cell: Cell) -> Bucket:
        each = zip(self.symbols, self.starts, cell, strict=True)
        return {symbol.name: interval(symbol, mine, span) for symbol, mine, span in each}


def searched(
    symbols: Sequence[Symbol],
    sample: SizeSample,
    expect: Expect,
    budget: int,
    objective: str,
    able: Starts | None = None,
) -> list[Choice]:
    """The best partitions of 1, 2, ... clones, on grids that get finer around their cuts.

    Args:
        symbols: that may be cut.
        sample: by what partitions are judged.
        expect: what clones take.
        budget: the most clones.
        objective: one of `OBJECTIVES`.
        able: where buckets of each symbol may begin, its bound the first; None: at any size that
            comes.

    """
    cut = sorted(symbols, key=lambda s: _ratio(s, sample.points))[-max(STEPS) :]
    most = STEPS[len(cut)]
    sizes = [
        sorted({p[s.name] for p in sample.points} if able is None else mine)
        for s, mine in zip(symbols, able or [()] * len(symbols), strict=True)
    ]
    starts: Starts = [
        _spread(s, mine, most if s in cut else 1) for s, mine in zip(symbols, sizes, strict=True)
    ]
    choices: list[Choice] = []
    for _ in range(FINER):
        before = _last(choices, sample, objective)
        grid = Grid.of(symbols, starts, sample, expect)
        choices = _merged([*choices, *grid.best(budget, objective)], sample, objective)
        if _last(choices, sample, objective) > before * (1 - BETTER):
            break
        used = [{b[s.name][0] for c in choices for b in c.buckets} for s in symbols]
        finer = [
            _around(s, mine, old, its, most if s in cut else 1)
            for s, mine, old, its in zip(symbols, sizes, starts, used, strict=True)
        ]
        if finer == starts:
            break
        starts = finer
    return choices


def _last(choices: Sequence[Choice], sample: SizeSample, objective: str) -> float:
    return sample.value(choices[-1].seconds, objective) if choices else np.inf


def _merged(choices: Iterable[Choice], sample: SizeSample, objective: str) -> list[Choice]:
    """Choices of several grids that are better than all of fewer clones."""
    ranked = sorted(choices, key=lambda c: (len(c.buckets), sample.value(c.seconds, objective)))
    return list(_falling(ranked, sample, objective))


def _falling(choices: Iterable[Choice], sample: SizeSample, objective: str) -> Iterator[Choice]:
    least = np.inf
    for choice in choices:
        value = sample.value(choice.seconds, objective)
        if value < least * (1 - TIE):
            least = value
            yield choice


def _ratio(symbol: Symbol, points: Sequence[Sizes]) -> float:
    """The largest size that comes by the least."""
    sizes = [p[symbol.name] for p in points]
    return max(sizes) / max(min(sizes), 1)


def _spread(symbol: Symbol, sizes: Sequence[int], most: int) -> list[int]:
    """Where buckets may begin: at the bound, then at sizes about equally many apart."""
    places = np.unique(np.linspace(0, len(sizes), most, endpoint=False).astype(int))
    return [symbol.lo, *(sizes[k] for k in places[1:] if sizes[k] > symbol.lo)]


def _around(
    symbol: Symbol, sizes: Sequence[int], old: Sequence[int], used: set[int], most: int
) -> list[int]:
    """The cuts that were chosen, and sizes between their neighbours."""
    cuts = sorted(used - {symbol.lo})
    if not cuts or most == 1:
        return list(old)
    share = max((most - 1 - len(cuts)) // len(cuts), 0)
    new = {symbol.lo, *cuts}
    for cut in cuts:
        place = list(old).index(cut) if cut in old else 0
        low = old[place - 1]
        high = old[place + 1] if place + 1 < len(old) else sizes[-1] + 1
        between = [size for size in sizes if low < size < high and size != cut]
        chosen = np.unique(np.linspace(0, len(between), share + 2)[1:-1].astype(int))
        new.update(between[k] for k in chosen if k < len(between))
    return sorted(new)


def interval(symbol: Symbol, starts: Sequence[int], span: tuple[int, int]) -> Interval:
    """The half-open interval of a span."""
    low, high = span
    top = None if symbol.hi is None else symbol.hi + 1
    return starts[low], starts[high] if high < len(starts) else top


def narrow(symbol: Symbol, ends: Interval) -> Symbol:
    """The symbol within a half-open interval."""
    low, high = ends
    return replace(symbol, lo=low, hi=None if high is None else high - 1)
