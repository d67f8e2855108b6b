"""The surrogate of a search: what is believed of every point, corrected by what was measured.

A Gaussian process by scikit-optimize models what the belief does not explain. Its kernel is fixed:
spaces are small and alike, and a dozen trials tell no hyperparameters. `skopt.Optimizer.ask`
repeats points of a finite space, so the process and the acquisition function are used directly.
Importing scikit-optimize takes seconds: only a search should import this module.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from skopt.acquisition import gaussian_ei
from skopt.learning import GaussianProcessRegressor
from skopt.learning.gaussian_process.kernels import ConstantKernel, Matern

from bucketize.kernel.template import Implementation, Knob

Floats = NDArray[np.float64]

SPREAD = 0.15  # of log latency around what is believed
IGNORANCE = 0.5  # of log latency where nothing is believed
NOISE = 0.02  # of log latency that is measured twice
LENGTH = 1.0  # how far apart points are of which one tells little about the other
APART = 2.0  # between templates
XI = 0.01  # an improvement by less than one per cent is none


class Surrogate:
    """Expects a log latency, relative to the default's, of every point of a space."""

    def __init__(self, points: Sequence[Implementation], believed: Sequence[float] | None) -> None:
        """`believed` are log latencies relative to the default's, a point each, if any are."""
        self.encoded = encoded(points)
        known = believed is not None
        self.believed = np.array(believed, float) if known else np.zeros(len(points))
        self.spread = SPREAD if known else IGNORANCE
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
        mean, deviation = self._expected(tried)
        least = min(tried.values(), default=0.0)
        found = gaussian_ei(mean, _Known(mean, deviation), y_opt=least, xi=XI)
        return np.asarray(found, float).copy()

    def _expected(self, tried: Mapping[int, float]) -> tuple[Floats, Floats]:
        """Mean and deviation of the log latency of every point."""
        key = tuple(tried.items())
        if self._last is None or self._last[0] != key:
            self._last = (key, *self._computed(tried))
        return self._last[1], self._last[2]

    def _computed(self, tried: Mapping[int, float]) -> tuple[Floats, Floats]:
        if not tried:
            return self.believed, np.full(len(self.believed), self.spread)
        at = list(tried)
        process = self._process()
        process.fit(self.encoded[at], np.array(list(tried.values())) - self.believed[at])
        residual, deviation = process.predict(self.encoded, return_std=True)
        return self.believed + residual, np.maximum(deviation, 1e-9)

    def _process(self) -> GaussianProcessRegressor:
        kernel = ConstantKernel(self.spread**2) * Matern(length_scale=LENGTH, nu=1.5)
        return GaussianProcessRegressor(
            kernel, alpha=NOISE**2, optimizer=None, normalize_y=False, copy_X_train=False
        )


class _Known:
    """A model whose predictions are known: what the acquisition function asks."""

    def __init__(self, mean: Floats, deviation: Floats) -> None:
        self.known = mean, deviation

    def predict(self, _: Floats, return_std: bool) -> tuple[Floats, Floats]:
        assert return_std
        return self.known


def encoded(points: Sequence[Implementation]) -> Floats:
    """One row per point: its template, and for each knob of it where its value stands, 0 to 1.

    Numbers stand in order; of words each has an axis of its own.
    """
    values: dict[tuple[str, str], set[Knob]] = {}
    for point in points:
        for name, value in point.schedule.items():
            values.setdefault((point.template, name), set()).add(value)
    templates = sorted({point.template for point in points})
    columns = [_template_column(points, t) for t in templates if len(templates) > 1]
    for (template, name), known in values.items():
        if len(known) > 1:
            columns += _knob_columns(points, template, name, sorted(known, key=_order))
    return np.column_stack(columns) if columns else np.zeros((len(points), 1))


def _order(value: Knob) -> tuple[bool, float, str]:
    return (True, 0.0, value) if isinstance(value, str) else (False, value, "")


def _template_column(points: Sequence[Implementation], template: str) -> Floats:
    return np.array([APART * (p.template == template) for p in points])


def _knob_columns(
    points: Sequence[Implementation], template: str, name: str, known: Sequence[Knob]
) -> list[Floats]:
    mine = [p.schedule.get(name) if p.template == template else None for p in points]
    if any(isinstance(v, str) for v in known):
        return [np.array([float(v == word) for v in mine]) * math.sqrt(0.5) for word in known]
    places = {value: i / (len(known) - 1) for i, value in enumerate(known)}
    return [np.array([places.get(v, 0.5) for v in mine])]  # type: ignore[arg-type]
