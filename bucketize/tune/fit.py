"""Fitting: the constants of a processor, from what kernels took on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from bucketize.kernel.gemm.cost import GENERIC, Constants, arrays, seconds
from bucketize.kernel.target import Target
from bucketize.tune.record import Record

Floats = NDArray[np.float64]

BOUNDS: Mapping[str, tuple[float, float]] = {
    "ghz": (1.5, 5.0),
    "latency": (3.0, 6.0),
    "tile": (5.0, 150.0),
    "row": (0.5, 30.0),
    "pixel": (0.5, 40.0),
    "store": (0.3, 6.0),
    "spill": (0.3, 6.0),
    "panel": (5.0, 300.0),
    "call": (300.0, 6000.0),
    "l2": (25.0, 120.0),
    "l3": (3.0, 25.0),
    "asked": (0.5, 4.0),
    "overlap": (1.5, 20.0),
    "conflict": (0.2, 20.0),
}
"""What is fitted, and within which physical bounds; the rest is the target's, or not seen."""
NEAR = 0.3  # of log latency: schedules that much slower than the best need not be known well
FAR_WEIGHT, LEVEL_WEIGHT = 0.4, 2.0
QUIET = 0.25  # the quantile of the default's times in all rounds that tells a quiet machine's
NOISE = 0.1  # of log latency, beyond which an error counts no more than in proportion
EVALUATIONS = 100


def expected(record: Record, constants: Constants, target: Target) -> Floats:
    """The logarithms of seconds that a model expects of a record's schedules."""
    found = seconds(record.product, arrays(record.schedules, record.lanes), constants, target)
    return np.asarray(np.log(found[0]), float)


def measured(record: Record) -> Floats:
    """Those that it took on a quiet machine: by the default's, at its better times."""
    return np.asarray(np.array(record.logs) + np.log(np.quantile(record.baselines, QUIET)), float)


def fitted(records: Sequence[Record], target: Target, start: Constants = GENERIC) -> Constants:
    """The constants with which the model is nearest to what was measured on a processor."""
    low, high = np.log(np.array(list(BOUNDS.values()))).T
    first = np.clip(np.log([getattr(start, name) for name in BOUNDS]), low + 1e-3, high - 1e-3)

    def constants(logs: Floats) -> Constants:
        return replace(start, **dict(zip(BOUNDS, map(float, np.exp(logs)), strict=True)))

    def residuals(logs: Floats) -> Floats:
        return np.concatenate([_residuals(r, constants(logs), target) for r in records])

    found = least_squares(
        residuals,
        first,
        loss="soft_l1",
        f_scale=NOISE,
        max_nfev=EVALUATIONS,
        bounds=(low, high),
    )
    return constants(found.x)


def _residuals(record: Record, constants: Constants, target: Target) -> Floats:
    """How schedules compare counts first, the level of a record as one number more."""
    error = expected(record, constants, target) - measured(record)
    level = np.median(error)
    near = np.array(record.logs) < min(record.logs) + NEAR
    weights = np.where(near, 1.0, FAR_WEIGHT) / np.sqrt(len(error))
    return np.append((error - level) * weights * 6, LEVEL_WEIGHT * level)
