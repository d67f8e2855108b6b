"""A partition: intervals of symbols, chosen by what clones are expected to take and to be worth."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
import yaml

from bucketize.compiler import MOST_THREADS
from bucketize.dispatch.tree import is_dispatched, name_dims
from bucketize.errors import ArgumentError, DispatchError, ShapeError
from bucketize.inspect.calibrate import calibrated
from bucketize.ir import Function, Module, check_module
from bucketize.kernel.typical import LENGTHS, Box, between, open_ends
from bucketize.kernel.workload import Workload
from bucketize.lower.cost import is_legal
from bucketize.machine.named import named
from bucketize.machine.speed import Floats
from bucketize.partition.expectation import Expectation, expectation, workloads
from bucketize.partition.search import Cover, cheapest, spans
from bucketize.runtime.thread_pool import check_threads
from bucketize.traffic.value import Traffic
from bucketize.types import Dim, Interval, Shape, Sizes, Symbol, show_interval

WORTH = 0.01
"""Of the expected time, what each further clone has to save: below it are models and machines, and
it would have to be compiled, tuned and kept."""
BUDGET = 8
SIZES = {1: 64, 2: 12, 3: 6}
"""Of each symbol, geometrically, where no traffic is known; by how many symbols there are."""
DRAWN = 256
"""Sizes of more symbols together."""
STEPS = {1: 24, 2: 6, 3: 3}
"""Between which buckets may begin and end, of each symbol that is cut; by how many are."""
MOST = 1024
"""Requests that stand for all, where more sizes come."""
EVER = 1e-9
"""Seconds: nothing takes less."""

Expect: TypeAlias = Callable[[Sequence[Box], Sequence[Sizes]], Expectation]
"""What clones of boxes are expected to take at points."""


@dataclass(frozen=True)
class Frontier:
    """The best partition of so many clones, and what it comes to."""

    clones: int
    seconds: float
    """Of a call in the mean, by the models."""
    kernels: int
    """Distinct ones of all clones: what is compiled."""
    intervals: Mapping[str, tuple[Interval, ...]]


@dataclass(frozen=True)
class Partition:
    """Buckets by evidence: a dispatcher, and what its clones are expected to buy.

    Called as dispatchers are, `dispatch(mod, partition)`, it gives its intervals.
    """

    chosen: Frontier
    frontier: tuple[Frontier, ...]
    """For 1, 2, ... clones the best; without those that more clones make no better."""
    oracle: float
    """Seconds of a call in the mean, if the best kernel of all served each size."""
    requests: float
    """How many calls it was chosen by; 0 where all sizes count alike."""

    def __call__(self, shapes: Mapping[str, Shape]) -> dict[str, dict[int, list[Interval]]]:
        """The intervals of each axis: what `dispatch` asks for."""
        answer: dict[str, dict[int, list[Interval]]] = {}
        for name, shape in shapes.items():
            for axis, dim in enumerate(shape):
                key = _key(name, axis, dim)
                if key in self.chosen.intervals:
                    answer.setdefault(name, {})[axis] = list(self.chosen.intervals[key])
        return answer

    @property
    def loss(self) -> float:
        """What is lost by the oracle, as a share of its time."""
        return max(self.chosen.seconds / self.oracle - 1, 0.0) if self.oracle else 0.0

    @property
    def saved(self) -> float:
        """The share of time that the chosen clones save beside a single one."""
        single = self.frontier[0].seconds
        return 1 - self.chosen.seconds / single if single else 0.0

    def __str__(self) -> str:
        """One sentence: the clones, what they save, and what is left."""
        n, more = self.chosen.clones, [f for f in self.frontier if f.clones > self.chosen.clones]
        what = "1 clone is enough" if n == 1 else f"{n} clones save {self.saved:.1%} of one's time"
        rest = f", {self.loss:.1%} above the best kernels for each size"
        if more:
            gain = 1 - more[-1].seconds / self.chosen.seconds if self.chosen.seconds else 0.0
            rest += f", of which {more[-1].clones} clones would save {gain:.1%}"
        cuts = "; ".join(
            f"{name}={', '.join(map(show_interval, intervals))}"
            for name, intervals in self.chosen.intervals.items()
        )
        return f"{what}{rest} ({cuts})"

    def write(self, path: str | Path) -> None:
        """Write the intervals as a file that `-d FILE` and `dispatchers.from_file` read.

        Raises:
            DispatchError: it cannot be written.

        """
        table = {name: [list(i) for i in each] for name, each in self.chosen.intervals.items()}
        text = f"# {self}\n" + yaml.safe_dump({"intervals": table}, default_flow_style=None)
        try:
            Path(path).write_text(text)
        except OSError as e:
            raise DispatchError(f"cannot write {path}: {e.strerror}") from e


def _key(name: str, axis: int, dim: Dim) -> str:
    """What an axis goes by in intervals: its symbol, as `dispatch` names one that has none."""
    return dim.name if isinstance(dim, Symbol) else f"{name}_{axis}"


def partition(
    mod: Module,
    traffic: Traffic | None = None,
    *,
    function: str = "main",
    budget: int = BUDGET,
    target: str | None = None,
    threads: int = 1,
    worth: float = WORTH,
) -> Partition:
    """The fewest clones that lose nothing, by the models of their kernels.

    Buckets begin at sizes that come, or at the lower bound; of these there are 24, 6 or 3 for each
    of one, two or three symbols, with about equally many sizes between them; of more symbols the
    three are cut whose sizes differ most. Among products of intervals the search is exact. It is
    spared where a single clone is so close to the best kernels of each size that nothing could save
    what is `worth` a clone.

    Args:
        mod: not dispatched.
        traffic: what sizes come, and how often; None: sizes are spread geometrically between the
            bounds, and all count alike.
        function: the name of what is to be cloned.
        budget: the most clones.
        target: where they run, by its name; None: this machine.
        threads: that share each kernel.
        worth: what each further clone has to save, as a share of time.

    Returns:
        The partition: a dispatcher, whose text says what it is expected to buy.

    Raises:
        ArgumentError: no module, no budget, or `worth` that is no share.
        CompileError: no thread, or more than cores of this machine.
        DispatchError: nothing is dynamic, or the function is dispatched already.
        ShapeError: a request without the size of a symbol, or out of its bounds.
        UnknownNameError: there is no such function, or target.

    """
    check_module(mod)
    check_threads(threads, None if target is None else MOST_THREADS)
    if not isinstance(budget, int) or budget < 1:
        raise ArgumentError(f"budget: expected at least 1 clone, got {budget!r}")
    if not isinstance(worth, int | float) or not 0 <= worth < 1:
        raise ArgumentError(f"worth: expected a share of time from 0, below 1, got {worth!r}")
    fn = name_dims(mod.function(function))
    if is_dispatched(fn, mod):
        raise DispatchError(f"{function} is dispatched already; a partition is of the original")
    symbols = [s for s in fn.symbols().values() if s.lo != s.hi]
    if not symbols:
        raise DispatchError("no axis is dynamic: there is nothing to partition")
    where = calibrated() if target is None else named(target)
    calls = workloads(mod, function, where, threads)
    expect = partial(expectation, calls, target=where, threads=threads)
    ends = {s.name: _ends(s, calls) for s in symbols}
    points, shares, count = _points(fn, ends, traffic)
    legal = [all(is_legal(workload, sizes) for workload in calls) for sizes in points]
    if not any(legal):
        raise DispatchError("kernels are legal at none of the sizes tried; bounds may tell which")
    points, shares = list(itertools.compress(points, legal)), shares[legal] / sum(shares[legal])
    alone = expect([tuple(symbols), *_static(symbols, points)], points)
    weights = shares if count else shares * np.mean(alone.least) / np.maximum(alone.least, EVER)
    single, oracle = (float(seconds @ weights) for seconds in (alone.seconds[0], alone.least))
    if budget == 1 or single * (1 - worth) <= oracle:
        whole = {s.name: (_interval(s, [s.lo], (0, 1)),) for s in symbols}
        one = Frontier(1, single, len(alone.kernels[0]), whole)
        return Partition(one, (one,), oracle, count)
    grid = _Grid.of(symbols, points, expect)
    return grid.partition(alone.least, weights, count, budget, worth)


def _points(
    fn: Function, ends: Mapping[str, tuple[int, int]], traffic: Traffic | None
) -> tuple[list[Sizes], Floats, float]:
    """Sizes, the share of each, and how many requests they stand for."""
    fixed = {s.name: s.lo for s in fn.symbols().values() if s.name not in ends}
    if traffic is None:
        points: list[Sizes] = [{**fixed, **dict(zip(ends, p, strict=True))} for p in _spread(ends)]
        return points, np.full(len(points), 1 / len(points)), 0.0
    rows = zip(traffic.sizes.tolist(), traffic.requests.tolist(), strict=True)
    pairs = [({**fixed, **dict(zip(traffic.symbols, size, strict=True))}, n) for size, n in rows]
    total = traffic.total
    for sizes, _ in pairs:
        _check(fn, sizes)
    if len(pairs) > MOST:
        return _sampled(pairs), np.full(MOST, 1 / MOST), total
    return [s for s, _ in pairs], np.array([t / total for _, t in pairs]), total


def _sampled(pairs: Sequence[tuple[Sizes, float]]) -> list[Sizes]:
    """A systematic sample: of requests in the order of their sizes, equally many apart."""
    ordered = sorted(pairs, key=lambda pair: tuple(pair[0].values()))
    served = np.cumsum([times for _, times in ordered])
    places = np.searchsorted(served, (np.arange(MOST) + 0.5) / MOST * served[-1])
    return [ordered[k][0] for k in places]


def _check(fn: Function, sizes: Sizes) -> None:
    """Raise `ShapeError` if the size of a symbol is missing, or out of its bounds."""
    for name, symbol in fn.symbols().items():
        if name not in sizes:
            raise ShapeError(
                f"traffic: it has no sizes of {name}, only of {', '.join(sizes)}; hold {name} to a "
                f"size, bounds={{{name!r}: (1, 1)}} or --dim {name}=1..1"
            )
        if sizes[name] < symbol.lo or (symbol.hi is not None and sizes[name] > symbol.hi):
            within = f"[{symbol.lo}, {'...' if symbol.hi is None else symbol.hi}]"
            raise ShapeError(f"traffic: {name}={sizes[name]} is out of its bounds {within}")


def _ends(symbol: Symbol, calls: Iterable[Workload]) -> tuple[int, int]:
    """From where to where a symbol goes; what is open, as kernels take it."""
    low = max(symbol.lo, 1)
    if symbol.hi is not None:
        return low, symbol.hi
    each = [open_ends(symbol, workload) for workload in calls]
    least, most = next((pair for pair in each if pair != LENGTHS), LENGTHS)
    low = max(low, least)
    return low, max(low, most)


def _spread(ends: Mapping[str, tuple[int, int]]) -> Iterable[tuple[int, ...]]:
    """Sizes geometrically from one end to the other: a grid, or drawn if there are many symbols."""
    shares = np.linspace(0, 1, SIZES.get(len(ends), 1)).tolist()
    if len(ends) in SIZES:
        each = (sorted({between(*pair, share) for share in shares}) for pair in ends.values())
        return itertools.product(*each)
    drawn = np.random.default_rng(0).random((DRAWN, len(ends))).tolist()
    rows = (zip(ends.values(), row, strict=True) for row in drawn)
    return (tuple(between(*pair, share) for pair, share in row) for row in rows)


def _static(symbols: Sequence[Symbol], points: Sequence[Sizes]) -> list[Box]:
    """A box of exactly its size for each point."""
    return [tuple(Symbol(s.name, p[s.name], p[s.name]) for s in symbols) for p in points]


@dataclass(frozen=True, eq=False)
class _Grid:
    """Boxes between the places where buckets may begin, and what their clones take."""

    symbols: Sequence[Symbol]
    starts: Sequence[Sequence[int]]
    """For each symbol where buckets may begin, the first where its bounds do."""
    inside: np.ndarray
    """Whether a box, by its number, holds a point."""
    seconds: Floats
    least: Floats
    kernels: Sequence[frozenset[int]]

    @classmethod
    def of(cls, symbols: Sequence[Symbol], points: Sequence[Sizes], expect: Expect) -> _Grid:
        """The grid between sizes that come."""
        cut = sorted(symbols, key=lambda s: _ratio(s, points))[-max(STEPS) :]
        starts = [_starts(s, points, STEPS[len(cut)] if s in cut else 1) for s in symbols]
        each = [
            [_narrow(s, mine, span) for span in spans(len(mine))]
            for s, mine in zip(symbols, starts, strict=True)
        ]
        boxes = list(itertools.product(*each))
        inside = np.array([[_holds(box, point) for point in points] for box in boxes])
        its = expect(boxes, points)
        return cls(symbols, starts, inside, its.seconds, its.least, its.kernels)

    def partition(
        self, least: Floats, weights: Floats, count: float, budget: int, worth: float
    ) -> Partition:
        """The cheapest partitions of few clones, and the one to take."""
        steps = [len(s) for s in self.starts]
        shape = [n * (n + 1) // 2 for n in steps]
        costs = (np.where(self.inside, self.seconds, 0.0) @ weights).reshape(shape)
        frontier = tuple(self._frontier(cheapest(costs, steps, budget), shape, steps))
        chosen = frontier[0]
        for other in frontier[1:]:
            more = other.clones - chosen.clones
            if other.seconds <= chosen.seconds * (1 - worth * more):
                chosen = other
        oracle = float(np.minimum(self.least, least) @ weights)
        return Partition(chosen, frontier, oracle, count)

    def _frontier(
        self, covers: Iterable[Cover], shape: Sequence[int], steps: Sequence[int]
    ) -> Iterator[Frontier]:
        """Each cover that is better than those of fewer clones."""
        numbers = [{span: k for k, span in enumerate(spans(n))} for n in steps]
        for cover in dict.fromkeys(covers):
            cells = itertools.product(
                *([number[s] for s in cut] for number, cut in zip(numbers, cover.cuts, strict=True))
            )
            boxes = [int(np.ravel_multi_index(cell, shape)) for cell in cells]
            kernels = frozenset[int]().union(*(self.kernels[b] for b in boxes))
            intervals = {
                s.name: tuple(_interval(s, mine, span) for span in cut)
                for s, mine, cut in zip(self.symbols, self.starts, cover.cuts, strict=True)
            }
            yield Frontier(cover.cells, cover.cost, len(kernels), intervals)


def _ratio(symbol: Symbol, points: Sequence[Sizes]) -> float:
    """The largest size that comes by the least."""
    sizes = [p[symbol.name] for p in points]
    return max(sizes) / max(min(sizes), 1)


def _starts(symbol: Symbol, points: Sequence[Sizes], most: int) -> list[int]:
    """Where buckets may begin: at the bound, then at sizes that come, about equally many apart."""
    sizes = sorted({p[symbol.name] for p in points})
    places = np.unique(np.linspace(0, len(sizes), most, endpoint=False).astype(int))
    return [symbol.lo, *(sizes[k] for k in places[1:])]


def _interval(symbol: Symbol, starts: Sequence[int], span: tuple[int, int]) -> Interval:
    """The half-open interval of a span."""
    low, high = span
    top = None if symbol.hi is None else symbol.hi + 1
    return starts[low], starts[high] if high < len(starts) else top


def _narrow(symbol: Symbol, starts: Sequence[int], span: tuple[int, int]) -> Symbol:
    """The symbol within the interval of a span."""
    low, high = _interval(symbol, starts, span)
    return Symbol(symbol.name, low, None if high is None else high - 1)


def _holds(box: Sequence[Symbol], point: Sizes) -> bool:
    return all(s.lo <= point[s.name] and (s.hi is None or point[s.name] <= s.hi) for s in box)
