"""The surrogate of a tuning search: a random forest over schedules, by scikit-optimize.

`skopt.Optimizer.ask` repeats points on a finite space, so the forest and the acquisition function
are used directly, to rank the schedules that were not tried yet. Importing scikit-optimize takes
seconds: only a search should import this module.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from skopt.acquisition import gaussian_ei
from skopt.learning import RandomForestRegressor
from skopt.space import Categorical, Integer, Space

from bucketize.tune.log import Schedule

TREES = 20
FEATURES = 0.6  # the share of the knobs that a split may look at: trees that differ show doubt
VARIANCE = 0.1**2  # of log latency at a point that was measured: one tenth is soon noise
XI = 0.01  # an improvement by less than one per cent is none


def most_promising(
    knobs: Mapping[str, Sequence[int | str]],
    tried: Mapping[int, float],
    points: Sequence[Schedule],
    seed: int,
) -> int:
    """The index of the untried point with the greatest expected improvement.

    Args:
        knobs: the values of each knob.
        tried: index of a tried point -> its log latency.
        points: all points.
        seed: of the forest.

    """
    encoded = _encoded(knobs, points)
    costs = np.array(list(tried.values()))
    forest = RandomForestRegressor(
        n_estimators=TREES, max_features=FEATURES, min_variance=VARIANCE, random_state=seed
    )
    forest.fit(encoded[list(tried)], costs)
    rest = [i for i in range(len(points)) if i not in tried]
    gain = gaussian_ei(encoded[rest], forest, y_opt=costs.min(), xi=XI).round(9)
    # A forest cannot tell apart what falls into the same leaves: the first of them is no better.
    return random.Random(seed).choice(
        [i for i, g in zip(rest, gain, strict=True) if g == gain.max()]
    )


def _encoded(
    knobs: Mapping[str, Sequence[int | str]], points: Sequence[Schedule]
) -> NDArray[np.float64]:
    """One row of numbers per point: numeric knobs as they are, the others one-hot."""
    free = {name: values for name, values in knobs.items() if len(values) > 1}
    space = Space([_dimension(values) for values in free.values()])
    return np.asarray(space.transform([[point[name] for name in free] for point in points]), float)


def _dimension(values: Sequence[int | str]) -> Categorical | Integer:
    numbers = [value for value in values if isinstance(value, int)]
    return (
        Integer(min(numbers), max(numbers)) if len(numbers) == len(values) else Categorical(values)
    )
