"""The cheapest partitions of a grid: products of intervals, each cell with a cost of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from bucketize.machine.speed import Floats

Span: TypeAlias = tuple[int, int]
"""From one place between steps of an axis to a later one."""
Cuts: TypeAlias = tuple[tuple[Span, ...], ...]
"""For each axis its spans, in order; a cell for each of their combinations."""

ROUNDING = 1e-9


class Cover(NamedTuple):
    """A partition of the grid."""

    cost: float
    cuts: Cuts

    @property
    def cells(self) -> int:
        """How many there are."""
        return int(np.prod([len(spans) for spans in self.cuts]))


def spans(steps: int) -> list[Span]:
    """All spans of an axis of so many steps, in the order of the axes of a table of costs."""
    return list(itertools.combinations(range(steps + 1), 2))


def cheapest(costs: Floats, steps: Sequence[int], budget: int) -> list[Cover]:
    """For 1, 2, ... cells at most the partition of least cost: exact, among products of spans.

    The spans of all axes but the last are tried one set after the other; those of the last are
    found by dynamic programming.

    Args:
        costs: of a cell, an axis for each axis of the grid, over its `spans`.
        steps: of each axis.
        budget: the most cells.

    """
    best = [Cover(np.inf, ())] * budget
    number = {span: k for k, span in enumerate(spans(steps[-1]))}
    table = np.full((steps[-1] + 1, steps[-1] + 1), np.inf)
    lows, highs = (np.array(side) for side in zip(*number, strict=True))
    for others in _products(steps[:-1], budget):
        cells = int(np.prod([len(o) for o in others], dtype=int))
        places = [[_place(span, n) for span in o] for o, n in zip(others, steps, strict=False)]
        table[lows, highs] = costs[np.ix_(*places)].sum(axis=tuple(range(len(others))))
        for count, (cost, last) in enumerate(_line(table, budget // cells), start=1):
            k = count * cells - 1
            if cost < best[k].cost:
                best[k] = Cover(cost, (*others, last))
    return _falling(best)


def _place(span: Span, steps: int) -> int:
    """The number of a span among all of its axis."""
    low, high = span
    return low * steps - low * (low - 1) // 2 + high - low - 1


def _products(steps: Sequence[int], budget: int) -> Iterator[Cuts]:
    """Spans of several axes, whose combinations are no more than the budget."""
    if not steps:
        yield ()
        return
    first, *rest = steps
    for count in range(1, min(first, budget) + 1):
        for inner in itertools.combinations(range(1, first), count - 1):
            mine = tuple(itertools.pairwise((0, *inner, first)))
            for others in _products(rest, budget // count):
                yield (mine, *others)


def _line(table: Floats, budget: int) -> list[tuple[float, tuple[Span, ...]]]:
    """For 1, 2, ... spans of one axis the least cost, and the spans."""
    steps = len(table) - 1
    total, before = table[0], []
    lines: list[tuple[float, tuple[Span, ...]]] = [(float(total[steps]), ((0, steps),))]
    for _ in range(min(budget, steps) - 1):
        sums = total[:, None] + table
        before.append(sums.argmin(axis=0))
        total = sums.min(axis=0)
        ends = [steps]
        for places in reversed(before):
            ends.append(int(places[ends[-1]]))
        lines.append((float(total[steps]), tuple(itertools.pairwise((0, *reversed(ends))))))
    return lines


def _falling(covers: Sequence[Cover]) -> list[Cover]:
    """Each no more costly than one of fewer cells: more need not be better."""
    return list(itertools.accumulate(covers, _cheaper))


def _cheaper(one: Cover, other: Cover) -> Cover:
    """The other if it is, beyond rounding."""
    return other if other.cost < one.cost * (1 - ROUNDING) else one
