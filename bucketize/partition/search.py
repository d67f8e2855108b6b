"""The cheapest partitions of a grid into boxes that cuts make, each through the whole of a box."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from bucketize.machine.speed import Floats

Span: TypeAlias = tuple[int, int]
"""From one place between steps of an axis to a later one."""
Cell: TypeAlias = tuple[Span, ...]
"""A box of the grid: its span of each axis."""

Join: TypeAlias = Callable[[Any, Any], Any]
"""What the costs of two parts, or tables of them, come to together."""

ROUNDING = 1e-9


class Cover(NamedTuple):
    """A partition of the grid."""

    cost: float
    cells: tuple[Cell, ...]


def spans(steps: int) -> list[Span]:
    """All spans of an axis of so many steps."""
    return list(itertools.combinations(range(steps + 1), 2))


def all_cells(steps: Sequence[int]) -> list[Cell]:
    """All boxes of a grid."""
    return list(itertools.product(*map(spans, steps)))


def cheapest(
    costs: Sequence[float] | Floats, steps: Sequence[int], budget: int, join: Join = np.add
) -> list[Cover]:
    """For 1, 2, ... cells at most the partition of least cost: exact, among guillotine cuts.

    Partitions into products of intervals are such, and so are those whose cuts of one axis differ
    by the other. By dynamic programming over all boxes: the best of so many cells is the best of
    fewer, or of any cut with so many cells on either side of it.

    Args:
        costs: of each of `all_cells`, in their order.
        steps: of each axis.
        budget: the most cells; no more than the grid has are told.
        join: what the costs of two parts come to together: they add up, or the greater one counts.

    """
    cut = [axis for axis, n in enumerate(steps) if n > 1]
    covers = _cheapest(costs, [steps[axis] for axis in cut], budget, join)
    return [
        Cover(cost, tuple(_in_full(c, cut, len(steps)) for c in cells)) for cost, cells in covers
    ]


def _in_full(cell: Cell, cut: Sequence[int], axes: int) -> Cell:
    """A box with the axes of a single step."""
    own = dict(zip(cut, cell, strict=True))
    return tuple(own.get(axis, (0, 1)) for axis in range(axes))


def _cheapest(
    costs: Sequence[float] | Floats, steps: Sequence[int], budget: int, join: Join
) -> list[Cover]:
    """The partitions of a grid whose axes have several steps each."""
    budget = min(budget, math.prod(steps))
    best = [_table(costs, steps)]
    for count in range(2, budget + 1):
        least = best[-1]
        for few in range(1, count):
            for axis in range(len(steps)):
                for at in range(1, steps[axis]):
                    low, high = best[few - 1], best[count - few - 1]
                    both = join(_below(low, axis, at), _above(high, axis, at))
                    least = np.minimum(least, both)
        best.append(least)
    whole = tuple((0, n) for n in steps)
    covers = (_cover(best[:k], whole, join) for k in range(1, budget + 1))
    return list(itertools.accumulate(covers, _cheaper))


def _table(costs: Sequence[float] | Floats, steps: Sequence[int]) -> Floats:
    """Costs by both ends of each axis; infinite where there is no box."""
    table = np.full([n + 1 for n in steps for _ in range(2)], np.inf)
    for cell, cost in zip(all_cells(steps), costs, strict=True):
        table[_index(cell)] = cost
    return table


def _index(cell: Cell) -> tuple[int, ...]:
    return tuple(itertools.chain(*cell))


def _below(table: Floats, axis: int, at: int) -> Floats:
    """What each box costs from its begin to a cut."""
    return np.take(table, [at], axis=2 * axis + 1)


def _above(table: Floats, axis: int, at: int) -> Floats:
    """What each box costs from a cut to its end."""
    return np.take(table, [at], axis=2 * axis)


def _cover(best: Sequence[Floats], cell: Cell, join: Join) -> Cover:
    """The cells that come to the least cost of a box."""
    return Cover(float(best[-1][_index(cell)]), tuple(_cells(best, cell, join)))


def _cells(best: Sequence[Floats], cell: Cell, join: Join) -> Iterator[Cell]:
    index, least = _index(cell), best[-1][_index(cell)]
    count = next(k for k, table in enumerate(best, 1) if table[index] == least)
    if count == 1:
        yield cell
        return
    for (few, low), (many, high) in _splits(cell, count):
        if join(best[few - 1][_index(low)], best[many - 1][_index(high)]) == least:
            yield from _cells(best[:few], low, join)
            yield from _cells(best[:many], high, join)
            return


def _splits(cell: Cell, count: int) -> Iterator[tuple[tuple[int, Cell], tuple[int, Cell]]]:
    """All cuts of a box, with all shares of its cells for the two sides."""
    for axis, (lo, hi) in enumerate(cell):
        for at in range(lo + 1, hi):
            low, high = ((*cell[:axis], span, *cell[axis + 1 :]) for span in ((lo, at), (at, hi)))
            for few in range(1, count):
                yield (few, low), (count - few, high)


def _cheaper(one: Cover, other: Cover) -> Cover:
    """The cheaper of two covers, beyond rounding, else `one`; more cells need not be better."""
    return other if other.cost < one.cost * (1 - ROUNDING) else one
