"""The surrogate of a search: what is believed of every point, corrected by what was measured.

A Gaussian process by scikit-optimize models what the belief does not explain, here and, less alike
the farther away they are, for neighbours. Its kernel is fixed: spaces are small and alike, and a
dozen trials tell no hyperparameters. Only how far beliefs are off is learnt, from neighbours.

`skopt.Optimizer.ask` repeats points of a finite space, so the process is used directly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bucketize.kernel.schedule import Implementation, Knob
from bucketize.machine.speed import Floats

if TYPE_CHECKING:
    from skopt.learning import GaussianProcessRegressor


# Of greatest likelihood for what the recorded products take, by what the others make believe:
SPREAD = 0.12  # of log latency around what is believed
LENGTH = 1.0  # how far apart points are of which one tells little about the other
NEIGHBOUR = 0.4  # as far as a neighbour of the same size is apart
BY_SIZE = 0.12  # and farther by this, for each factor of e between the sizes
NOISE = 0.04  # of log latency, measured or of a point by itself
# Assumed:
IGNORANCE = 0.5  # of log latency where nothing is believed
APART = 2.0  # between templates
DOUBT = 3  # trials of neighbours outweigh the spread that is assumed
XI = 0.01  # an improvement by less than one per cent is none


@dataclass(frozen=True)
class Neighbour:
    """What is known of the points of a space elsewhere, where about the same is computed."""

    away: float
    """The logarithm of its size by that of the space."""
    beyond: Mapping[int, float]
    """By point: the log latency, relative to a default's, less what was believed there."""


class Surrogate:
    """Expects a log latency, relative to the default's, of every point of a space."""

    def __init__(
        self,
        points: Sequence[Implementation],
        believed: Sequence[float] | None,
        neighbours: Sequence[Neighbour] = (),
    ) -> None:
        """`believed` are log latencies relative to the default's, a point each, if any are."""
        has_beliefs = believed is not None
        self.believed = np.array(believed, float) if has_beliefs else np.zeros(len(points))
        knobs, places = encoded(points), _places(neighbours)
        self.encoded = _placed(knobs, places[0])
        theirs = [
            _placed(knobs[[*n.beyond]], p) for n, p in zip(neighbours, places[1:], strict=True)
        ]
        self._there = np.concatenate([self.encoded[:0], *theirs])
        self._beyond = np.array([log for n in neighbours for log in n.beyond.values()])
        self.spread = _spread(SPREAD if has_beliefs else IGNORANCE, self._beyond)
        self._last: tuple[tuple[tuple[int, float], ...], Floats, Floats] | None = None
        self._gain: tuple[tuple[tuple[int, float], ...], float] | None = None

    def most_promising(self, tried: Mapping[int, float], seed: int) -> int:
        """The untried point with the greatest expected improvement; of several, one by chance."""
        improvement = self.improvement(tried).round(9)
        improvement[list(tried)] = -1.0
        best = np.flatnonzero(improvement == improvement.max())
        return int(np.random.default_rng(seed + len(tried)).choice(best))

    def gain(self, tried: Mapping[int, float]) -> float:
        """The greatest expected improvement of the untried, in log latency."""
        key = tuple(tried.items())
        if self._gain is None or self._gain[0] != key:  # asked before each batch, of all tasks
            improvement = self.improvement(tried)
            improvement[list(tried)] = 0.0
            self._gain = key, float(improvement.max())
        return self._gain[1]

    def expected(self, tried: Mapping[int, float], index: int) -> float:
        """The log latency of a point."""
        return float(self._expected(tried)[0][index])

    def improvement(self, tried: Mapping[int, float]) -> Floats:
        """By how much each point is expected to be below the least that was tried."""
        from scipy.stats import norm

        mean, deviation = self._expected(tried)
        below = min(tried.values(), default=0.0) - XI - mean
        scaled = below / deviation
        return np.asarray(below * norm.cdf(scaled) + deviation * norm.pdf(scaled), float)

    def _expected(self, tried: Mapping[int, float]) -> tuple[Floats, Floats]:
        """Mean and deviation of the log latency of every point."""
        key = tuple(tried.items())
        if self._last is None or self._last[0] != key:
            self._last = (key, *self._computed(tried))
        return self._last[1], self._last[2]

    def _computed(self, tried: Mapping[int, float]) -> tuple[Floats, Floats]:
        at = list(tried)
        process = self._process()
        own = np.array(list(tried.values())) - self.believed[at]
        process.fit(
            np.concatenate([self.encoded[at], self._there]), np.concatenate([own, self._beyond])
        )
        residual, deviation = process.predict(self.encoded, return_std=True)
        return self.believed + residual, np.maximum(deviation, 1e-9)

    def _process(self) -> GaussianProcessRegressor:
        from skopt.learning import GaussianProcessRegressor
        from skopt.learning.gaussian_process.kernels import ConstantKernel, Matern

        kernel = ConstantKernel(self.spread**2) * Matern(length_scale=LENGTH, nu=1.5)
        return GaussianProcessRegressor(
            kernel, alpha=NOISE**2, optimizer=None, normalize_y=False, copy_X_train=False
        )


def _places(neighbours: Sequence[Neighbour]) -> Floats:
    """Where the space stands, and each neighbour: all as far apart, and farther by their sizes."""
    away = BY_SIZE * np.array([0.0, *(n.away for n in neighbours)])
    return np.column_stack([away, NEIGHBOUR * math.sqrt(0.5) * np.eye(len(away))])


def _placed(knobs: Floats, place: Floats) -> Floats:
    return np.column_stack([knobs, np.tile(place, (len(knobs), 1))])


def _spread(assumed: float, beyond: Floats) -> float:
    """How far beliefs are off, as neighbours say; of a default, which is 0, they say nothing."""
    nonzero = beyond[beyond != 0]
    squares = np.maximum(nonzero**2 - NOISE**2, 0).sum()
    return math.sqrt((DOUBT * assumed**2 + float(squares)) / (DOUBT + len(nonzero)))


def encoded(points: Sequence[Implementation]) -> Floats:
    """One row per point: its template, and for each knob of it where its value stands, 0 to 1.

    Numbers stand in order; of words each has an axis of its own.
    """
    values: dict[tuple[str, str], set[Knob]] = {}
    for point in points:
        for name, value in point.schedule.items():
            values.setdefault((point.template, name), set()).add(value)
    templates = sorted({point.template for point in points})
    columns = []
    if len(templates) > 1:
        columns = [np.array([APART * (p.template == t) for p in points]) for t in templates]
    for (template, name), distinct in values.items():
        if len(distinct) > 1:
            columns += _knob_columns(points, template, name, sorted(distinct, key=_order))
    return np.column_stack(columns) if columns else np.zeros((len(points), 1))


def _order(value: Knob) -> tuple[bool, float, str]:
    return (True, 0.0, value) if isinstance(value, str) else (False, value, "")


def _knob_columns(
    points: Sequence[Implementation], template: str, name: str, distinct: Sequence[Knob]
) -> list[Floats]:
    mine = [p.schedule.get(name) if p.template == template else None for p in points]
    if any(isinstance(v, str) for v in distinct):
        return [np.array([float(v == word) for v in mine]) * math.sqrt(0.5) for word in distinct]
    places = {value: i / (len(distinct) - 1) for i, value in enumerate(distinct)}
    return [np.array([places.get(v, 0.5) for v in mine])]  # type: ignore[arg-type]
