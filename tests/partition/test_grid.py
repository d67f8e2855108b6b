"""Objectives of partitions, and grids that get finer: as good as any that trying all finds."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from bucketize.kernel.typical import Box
from bucketize.machine.speed import Floats
from bucketize.partition.expectation import Expectation
from bucketize.partition.grid import OBJECTIVES, SizeSample, searched
from bucketize.types import Sizes, Symbol

SIZES = [*range(1, 13)]
SYMBOL = Symbol("N", 1, 12)


def expected(boxes: Sequence[Box], points: Sequence[Sizes], _weights: Floats) -> Expectation:
    """A clone is the slower the farther a size is from the middle of its bucket."""
    sizes = np.array([p["N"] for p in points], float)
    ends = np.array([[s.lo, s.hi or 999] for (s,) in boxes], float)
    far = np.abs(sizes - ends.mean(axis=1)[:, None])
    return Expectation(sizes + far * (1 + sizes % 5), sizes, [frozenset()] * len(boxes), [])


def sample(seed: int) -> SizeSample:
    shares = np.random.default_rng(seed).dirichlet(np.ones(len(SIZES)))
    points = [{"N": n} for n in SIZES]
    return SizeSample(points, shares, np.array(SIZES, float), shares)


def best(mine: SizeSample, objective: str, clones: int) -> float:
    """By trying all cuts."""
    values = []
    for inner in itertools.combinations(range(2, 13), clones - 1):
        starts = (1, *inner, 13)
        boxes = [(Symbol("N", a, b - 1),) for a, b in itertools.pairwise(starts)]
        taken = expected(boxes, mine.points, mine.weights).seconds
        rows = [next(k for k, (s,) in enumerate(boxes) if s.lo <= n <= s.hi) for n in SIZES]  # type: ignore[operator]
        values.append(mine.value(taken[rows, np.arange(len(SIZES))], objective))
    return min(values)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("seed", range(3))
def test_no_partition_is_better(objective: str, seed: int) -> None:
    mine = sample(seed)
    choices = searched([SYMBOL], mine, expected, 4, objective)
    least = best(mine, objective, len(choices[-1].buckets))
    value = mine.value(choices[-1].seconds, objective)
    near = 0.1 if objective == "p99" else 1e-9  # values are tried, so many between both ends
    assert least * (1 - 1e-9) <= value <= least * (1 + near)
    values = [mine.value(c.seconds, objective) for c in choices]
    assert values == sorted(values, reverse=True)


def test_the_worst_size_counts_however_rare_it_is() -> None:
    """Of partitions that are as good there the one of the best mean is taken."""
    sizes = np.array(SIZES)
    kernels = np.array([np.where(sizes > 11, 3.0, 1.05), np.where(sizes > 11, 1.0, 2.0)])
    rare = np.where(sizes > 11, 1e-11, 1.0)
    shares = rare / rare.sum()

    def tuned(boxes: Sequence[Box], _points: Sequence[Sizes], _: Floats) -> Expectation:
        ends = [(s.lo, s.hi or 12) for (s,) in boxes]
        inside = np.array([(sizes >= low) & (sizes <= high) for low, high in ends])
        chosen = ((inside * shares) @ kernels.T).argmin(axis=1)
        return Expectation(kernels[chosen], kernels.min(axis=0), [frozenset()] * len(boxes), [])

    mine = SizeSample([{"N": n} for n in SIZES], shares, kernels.min(axis=0), shares)
    one, two = searched([SYMBOL], mine, tuned, 2, "worst")
    assert [len(c.buckets) for c in (one, two)] == [1, 2]
    assert mine.value(one.seconds, "worst") == 3.0
    assert mine.value(two.seconds, "worst") == 1.0
    assert two.buckets == [{"N": (1, 12)}, {"N": (12, 13)}]


def test_quantiles_are_of_requests() -> None:
    shares = np.array([0.98, 0.015, 0.005])
    mine = SizeSample([{"N": n} for n in (1, 2, 3)], shares, np.ones(3), shares)
    assert mine.value(np.array([5.0, 7.0, 9.0]), "p99") == 7.0
    assert mine.value(np.array([5.0, 7.0, 9.0]), "worst") == 9.0
    assert mine.value(np.array([9.0, 7.0, 5.0]), "p99") == 9.0


def test_grids_get_finer_around_cuts() -> None:
    """One kernel changes at 701 of 1,000 sizes, between places of the first grid."""
    sizes = np.arange(1, 1001, dtype=float)

    def changing(boxes: Sequence[Box], _points: Sequence[Sizes], _: Floats) -> Expectation:
        wide = np.array([s.lo < 701 <= (s.hi or 1000) for (s,) in boxes])
        taken = np.where(wide[:, None], 2 * sizes, sizes)
        return Expectation(taken, sizes, [frozenset()] * len(boxes), [])

    shares = np.full(1000, 1e-3)
    mine = SizeSample([{"N": int(n)} for n in sizes], shares, sizes, shares)
    last = searched([Symbol("N", 1, 1000)], mine, changing, 3, "mean")[-1]
    assert mine.value(last.seconds, "mean") < mine.value(sizes, "mean") * 1.02
