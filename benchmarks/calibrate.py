"""Fitting: the constants of a family of cores, from what kernels took on one of known speed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from bucketize.kernel.depthwise import cost as sweep
from bucketize.kernel.depthwise.cost import DepthwiseCost
from bucketize.kernel.gemm.cost import FITTED, Knobs, ProductConstants, arrays, seconds
from bucketize.kernel.loops import cost as loops
from bucketize.kernel.loops.cost import Steps, seconds_each, table, taken
from bucketize.kernel.product import Product
from bucketize.kernel.winograd import cost as detour
from bucketize.kernel.winograd.cost import WinogradCost
from bucketize.machine.target import Target
from bucketize.tune.observation import Observation
from bucketize.tune.samples import CLOCK, Record

Floats = NDArray[np.float64]
Bounds = Mapping[str, tuple[float, float]]

BOUNDS: Bounds = {
    "tile": (5.0, 150.0),
    "row": (0.5, 30.0),
    "pixel": (0.5, 40.0),
    "store": (0.3, 6.0),
    "spill": (0.3, 6.0),
    "panel": (5.0, 300.0),
    "call": (20.0, 6000.0),
    **dict.fromkeys(("near", "far", "farthest"), (0.3, 3.0)),
    "asked": (0.5, 4.0),
    "overlap_memory": (1.0, 4.0),
    "conflict": (0.2, 20.0),
}
"""What is fitted, and within which physical bounds; the rest is the target's, or not seen.

`overlap` decides which panels are wide enough for all models: it stays as defaults want it.
"""
SWEEP: Bounds = {
    "tile": (1.0, 100.0),
    "run": (1.0, 300.0),
    "store": (0.3, 12.0),
    "call": (20.0, 1000.0),
    **dict.fromkeys(("near", "far"), (0.3, 5.0)),
    "apart": (0.1, 40.0),
    "late": (0.1, 40.0),
    "latency": (1.0, 6.0),
    "overlap": (1.0, 20.0),
}
"""Those of depthwise convolutions."""
DETOUR: Bounds = {
    **dict.fromkeys(("transform4", "transform6", "transform8"), (0.2, 40.0)),
    "row": (1.0, 200.0),
    "patch": (10.0, 2000.0),
    **dict.fromkeys(("first", "again"), (0.1, 3.0)),
}
"""Those of convolutions by minimal filtering; `overlap` is as the choice of algorithms wants it."""
STEPS: Bounds = {**dict.fromkeys(loops.KINDS, (1e-3, 1e4)), "overlap": (1.0, 20.0)}
"""Those of loop source."""
NEAR = 0.3  # of log latency: schedules that much slower than the best need not be known well
FAR_WEIGHT, LEVEL_WEIGHT = 0.4, 2.0
NOISE = 0.1  # of log latency, beyond which an error counts no more than in proportion
EVALUATIONS = 100


def nearest(
    start: Mapping[str, float], bounds: Bounds, residuals: Callable[[Mapping[str, float]], Floats]
) -> dict[str, float]:
    """The constants within bounds for which residuals are least; those without bounds stay."""
    low, high = np.log(np.array(list(bounds.values()))).T
    first = np.clip(np.log([start[name] for name in bounds]), low + 1e-3, high - 1e-3)

    def constants(logs: Floats) -> dict[str, float]:
        return {**start, **dict(zip(bounds, map(float, np.exp(logs)), strict=True))}

    found = least_squares(
        lambda logs: residuals(constants(logs)),
        first,
        loss="soft_l1",
        f_scale=NOISE,
        max_nfev=EVALUATIONS,
        bounds=(low, high),
    )
    return constants(found.x)


# --- products ------------------------------------------------------------------------------------


def expected(record: Record, constants: ProductConstants, target: Target) -> Floats:
    """The logarithms of seconds that a model expects of a record's schedules."""
    return _logs(record.product, arrays(record.schedules, record.lanes), constants, target)


def _logs(product: Product, knobs: Knobs, constants: ProductConstants, target: Target) -> Floats:
    return np.asarray(np.log(seconds(product, knobs, constants, target)[0]), float)


def measured(record: Record) -> Floats:
    """Seconds that it took on a quiet machine: by the default's, in the best of all jobs.

    In each it is a median, so that the least is no stroke of luck.
    """
    taken = np.exp(record.logs) * min(record.baselines) - CLOCK.get(record.host, 0.0)
    return np.asarray(np.log(taken), float)


def fitted(records: Sequence[Record], target: Target) -> ProductConstants:
    """The constants with which the model is nearest to what was measured on a processor."""
    start = FITTED[target.family]
    each = [(r.product, arrays(r.schedules, r.lanes), measured(r)) for r in records]

    def residuals(constants: Mapping[str, float]) -> Floats:
        made = replace(start, **constants)
        errors = (_logs(product, knobs, made, target) - logs for product, knobs, logs in each)
        return np.concatenate([_residuals(r, e) for r, e in zip(records, errors, strict=True)])

    return replace(start, **nearest(asdict(start), BOUNDS, residuals))


def _residuals(record: Record, error: Floats) -> Floats:
    """How schedules compare counts first, the level of the better ones as one number more."""
    near = np.array(record.logs) < min(record.logs) + NEAR
    level = np.median(error[near])
    weights = np.where(near, 1.0, FAR_WEIGHT) / np.sqrt(len(error))
    return np.append((error - level) * weights * 6, LEVEL_WEIGHT * level)


# --- convolutions that are no products -----------------------------------------------------------

M = TypeVar("M", sweep.DepthwiseConstants, detour.WinogradConstants)
C = TypeVar("C", DepthwiseCost, WinogradCost)


def fitted_to(
    observed: Mapping[Target, Sequence[Observation[C]]],
    start: M,
    bounds: Bounds,
    modelled: Callable[[Observation[C], Target, M], Floats],
) -> M:
    """The constants of convolutions of a kind; each of those observed counts the same."""

    def residuals(constants: Mapping[str, float]) -> Floats:
        made = replace(start, **constants)
        errors = [modelled(o, t, made) - o.logs for t, each in observed.items() for o in each]
        return np.concatenate([e / np.sqrt(len(e)) * 6 for e in errors])

    return replace(start, **nearest(asdict(start), bounds, residuals))


def fitted_sweep(
    observed: Sequence[Observation[DepthwiseCost]], target: Target
) -> sweep.DepthwiseConstants:
    """Constants of depthwise convolutions."""
    return fitted_to({target: observed}, sweep.FITTED[target.family], SWEEP, swept)


def swept(
    observed: Observation[DepthwiseCost], target: Target, constants: sweep.DepthwiseConstants
) -> Floats:
    """The logarithms of seconds that a model expects of a depthwise convolution's schedules."""
    found = observed.cost.modelled(observed.schedules, observed.points, target, constants)[0]
    return np.asarray(np.log(found), float)


def fitted_detour(
    observed: Mapping[Target, Sequence[Observation[WinogradCost]]],
) -> detour.WinogradConstants:
    """Constants of convolutions by minimal filtering, on several machines."""
    return fitted_to(observed, detour.FITTED, DETOUR, detoured)


def detoured(
    observed: Observation[WinogradCost], target: Target, constants: detour.WinogradConstants
) -> Floats:
    """The same by minimal filtering."""
    told = observed.points, target, constants, observed.cold_bytes
    found = observed.cost.modelled(observed.schedules, *told)[0]
    return np.asarray(np.log(found), float)


# --- loop source ---------------------------------------------------------------------------------


def counted(observed: Sequence[Observation[Steps]], target: Target) -> tuple[Floats, Floats]:
    """What loops did, a row for each kernel and schedule, and the logarithms of its seconds."""
    counts = [
        count
        for o in observed
        for schedule in o.schedules
        for count in o.cost.counted(schedule, o.points, target, o.cold_bytes)
    ]
    return table(counts), np.concatenate([o.logs for o in observed])


def fitted_steps(observed: Sequence[Observation[Steps]], target: Target) -> dict[str, float]:
    """The constants of loop source."""
    counts, logs = counted(observed, target)
    return nearest(
        loops.FITTED[target.family],
        STEPS,
        lambda each: np.log(taken(counts, seconds_each(each, target.speed))) - logs,
    )
