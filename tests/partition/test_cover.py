"""The search for partitions of a grid: as cheap as any that trying all of them finds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from bucketize.machine.speed import Floats
from bucketize.partition.search import Cuts, Span, cheapest, spans


def every(steps: int) -> Iterator[tuple[Span, ...]]:
    """All ways to cut an axis."""
    for count in range(steps):
        for inner in itertools.combinations(range(1, steps), count):
            yield tuple(itertools.pairwise((0, *inner, steps)))


def cost(costs: Floats, steps: Sequence[int], cuts: Cuts) -> float:
    """The sum over the cells of a product of cuts."""
    numbers = [{span: k for k, span in enumerate(spans(n))} for n in steps]
    cells = itertools.product(
        *([number[s] for s in cut] for number, cut in zip(numbers, cuts, strict=True))
    )
    return float(sum(costs[cell] for cell in cells))


@pytest.mark.parametrize("steps", [(1,), (5,), (4, 3), (1, 4), (3, 2, 3)])
@pytest.mark.parametrize("seed", range(3))
def test_no_product_of_cuts_is_cheaper(steps: tuple[int, ...], seed: int) -> None:
    costs = np.random.default_rng(seed).random([n * (n + 1) // 2 for n in steps])
    covers = cheapest(costs, steps, 6)
    all_cuts = list(itertools.product(*map(every, steps)))
    for budget, cover in enumerate(covers, start=1):
        able = [c for c in all_cuts if np.prod([len(spans) for spans in c]) <= budget]
        assert cover.cost == pytest.approx(min(cost(costs, steps, c) for c in able))
        assert cover.cost == pytest.approx(cost(costs, steps, cover.cuts))
        assert cover.cells <= budget


def test_more_cells_than_help_are_not_taken() -> None:
    costs = np.array([1.0, 1.0, 0.5, 1.0, 1.0, 1.0])  # of (0, 1), (0, 2), (0, 3), (1, 2), ...
    assert [cover.cells for cover in cheapest(costs, (3,), 3)] == [1, 1, 1]
