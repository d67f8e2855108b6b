"""The search for partitions of a grid: as cheap as any that trying all of them finds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pytest

from bucketize.partition.search import Cell, all_cells, cheapest


def every(cell: Cell, budget: int) -> Iterator[tuple[Cell, ...]]:
    """All ways to cut a box into so many at most, some more than once."""
    yield (cell,)
    for axis, (lo, hi) in enumerate(cell):
        for at in range(lo + 1, hi):
            low, high = ((*cell[:axis], span, *cell[axis + 1 :]) for span in ((lo, at), (at, hi)))
            for few in range(1, budget):
                for one, other in itertools.product(every(low, few), every(high, budget - few)):
                    yield (*one, *other)


def tabled(steps: Sequence[int], seed: int) -> Mapping[Cell, float]:
    cells = all_cells(steps)
    return dict(zip(cells, np.random.default_rng(seed).random(len(cells)).tolist(), strict=True))


@pytest.mark.parametrize("steps", [(1,), (6,), (4, 3), (1, 4), (1, 3, 1, 2), (2, 2, 2)])
@pytest.mark.parametrize("seed", range(3))
def test_no_cuts_are_cheaper(steps: tuple[int, ...], seed: int) -> None:
    costs, whole = tabled(steps, seed), tuple((0, n) for n in steps)
    covers = cheapest(list(costs.values()), steps, 4)
    for budget, cover in enumerate(covers, start=1):
        least = min(sum(costs[c] for c in cells) for cells in every(whole, budget))
        assert cover.cost == pytest.approx(least)
        assert cover.cost == pytest.approx(sum(costs[c] for c in cover.cells))
        assert len(cover.cells) <= budget


@pytest.mark.parametrize("seed", range(3))
def test_the_cells_cover_each_place_once(seed: int) -> None:
    steps = (5, 4)
    for cover in cheapest(list(tabled(steps, seed).values()), steps, 6):
        places = np.zeros(steps, int)
        for (a, b), (c, d) in cover.cells:
            places[a:b, c:d] += 1
        assert (places == 1).all()


def test_cuts_of_one_axis_may_differ_by_the_other() -> None:
    steps = (2, 2)
    wanted = {((0, 1), (0, 2)), ((1, 2), (0, 1)), ((1, 2), (1, 2))}
    costs = [1.0 if cell in wanted else 5.0 for cell in all_cells(steps)]
    assert set(cheapest(costs, steps, 4)[3].cells) == wanted


def test_there_are_no_more_cells_than_places() -> None:
    costs = list(tabled((2, 3), 0).values())
    assert cheapest(costs, (2, 3), 10**9) == cheapest(costs, (2, 3), 6)


def test_more_cells_than_help_are_not_taken() -> None:
    costs = [1.0, 1.0, 0.5, 1.0, 1.0, 1.0]  # of (0, 1), (0, 2), (0, 3), (1, 2), ...
    assert [len(cover.cells) for cover in cheapest(costs, (3,), 3)] == [1, 1, 1]
