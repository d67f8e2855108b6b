"""Which knobs of a template the time of its kernels hangs on, by the trials of a log."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pandas as pd

from bucketize.analysis.column import knobs, require
from bucketize.errors import BucketizeError, warn
from bucketize.log.cell import parse_shapes
from bucketize.log.trial import KERNEL
from bucketize.machine.speed import Floats

TREES, FOLDS, REPEATS = 50, 5, 5
LEAST = 30  # trials of a template: in each fold six are held out
PLACE = ["host_cpu", "threads", "workload", "shape"]
"""Where trials are alike but for their knobs."""
KERNELS = ["host_cpu", "threads", "template"]
NEEDED = [*PLACE, "template", "schedule", "schedule_hash", "level", "source", "latency_median_s"]
COLUMNS = [*KERNELS, "knob", "share", "spread", "values", "trials", "explained"]


def importance(frame: pd.DataFrame) -> pd.DataFrame:
    """How much of the variance of time goes with each knob of each template.

    A random forest learns the logarithm of latency from the knobs and the extents of the operands.
    What it says of trials that it has not seen becomes worse where one knob's values are shuffled
    among them, by twice the part of the variance that goes with that knob, alone or together with
    others and with the extents (B. Gregorutti, B. Michel, P. Saint-Pierre, "Correlation and
    variable importance in random forests", 2017). That holds for knobs that were tried
    independently: of a search that went after the best, shares tell an order.

    Args:
        frame: as of `load`. Failures do not count, nor what was timed to confirm.

    Returns:
        A row per processor, threads, template and knob, the knob first that matters most, with the
        `share` of the variance between the schedules of a workload at one shape, missing where one
        value alone was tried, and its standard deviation over folds and shuffles, `spread`; how
        many `values` were tried; the `trials`; `explained`, the share that the forest explains of
        trials that were held out; where it is small, the shares say little. A template with too few
        trials, or of which it explains nothing, is warned of, and left out.

    Raises:
        BucketizeError: columns are missing, or no template has enough trials.

    """
    require(frame, NEEDED, "load")
    rows, reasons = list[dict[str, Any]](), list[str]()
    for key, trials in _searched(frame).groupby(KERNELS, sort=False):
        named = dict(zip(KERNELS, cast("tuple[Any, ...]", key), strict=True))
        reason, ranked = _ranked(trials)
        if reason:
            reasons.append(f"{named['template']}: {reason}")
        rows += [named | row for row in ranked]
    if not rows:
        raise BucketizeError(
            f"no importance of knobs: {'; '.join(reasons) or 'no kernel was timed'}"
        )
    if reasons:
        warn(f"left out {'; '.join(reasons)}")
    return pd.DataFrame(rows, columns=COLUMNS)


def _searched(frame: pd.DataFrame) -> pd.DataFrame:
    """The trials that count, the last of each schedule where it was judged.

    `residual` is the logarithm of latency beside the mean of all schedules there; missing where
    there is but one.
    """
    timed = frame["latency_median_s"].notna() & (frame["template"] != "")
    rows = frame[timed & (frame["level"] == KERNEL) & (frame["source"] != "confirm")]
    rows = rows.drop_duplicates([*PLACE, "template", "schedule_hash"], keep="last")
    rows = rows.assign(log_s=np.log(rows["latency_median_s"]))
    peers = rows.groupby([*PLACE, "template"])["log_s"]
    mean = peers.transform("mean").where(peers.transform("size") > 1)
    return rows.assign(residual=rows["log_s"] - mean)


def _ranked(timed: pd.DataFrame) -> tuple[str, list[dict[str, Any]]]:
    """A row for each knob of a template, what matters most first; or why there is none."""
    trials = timed[timed["residual"].notna()]
    if len(trials) < LEAST:
        among = f"{len(trials)} of {len(timed)} trials"
        return f"{among} have another schedule at their shape, expected at least {LEAST}", []
    tried = knobs(trials)
    values = tried.nunique()
    varied = [str(name) for name in tried if values[str(name)] > 1]
    if not varied:
        return f"no knob has a second value in {len(trials)} trials", []
    drops, explained = _drops(_numbers(tried[varied]), _extents(trials), trials["residual"])
    if explained <= 0:
        return f"its knobs explain nothing of {len(trials)} trials that were held out", []
    shares = dict(zip(varied, drops / 2, strict=True))  # as the docstring of `importance` says
    rows = [
        {
            "knob": name,
            "share": max(float(shares[name].mean()), 0.0) if name in shares else np.nan,
            "spread": float(shares[name].std()) if name in shares else np.nan,
            "values": int(values[name]),
            "trials": len(trials),
            "explained": explained,
        }
        for name in map(str, tried)
    ]
    return "", sorted(rows, key=lambda row: -np.nan_to_num(row["share"]))


def _numbers(tried: pd.DataFrame) -> Floats:
    """The values of knobs as numbers: words by their order, -1 what a schedule lacks."""
    numbers: Floats = np.column_stack([_as_numbers(column) for _, column in tried.items()])
    return numbers


def _as_numbers(column: pd.Series[Any]) -> Floats:
    is_number = pd.api.types.is_numeric_dtype(column)
    numbers = column if is_number else pd.Series(pd.factorize(column, sort=True)[0])
    return np.asarray(numbers.astype("Float64").fillna(-1), np.float64)


def _extents(trials: pd.DataFrame) -> Floats:
    """The logarithms of the operands' extents; of those that fewer axes have, 0."""
    extents = [[n for shape in parse_shapes(text) for n in shape] for text in trials["shape"]]
    width = max(map(len, extents))
    padded = np.array([row + [0] * (width - len(row)) for row in extents], np.float64)
    return np.asarray(np.log1p(padded), np.float64)


def _drops(tried: Floats, extents: Floats, residual: pd.Series) -> tuple[Floats, float]:
    """By knob, the drops of R2 over folds and shuffles; and the R2 of what was held out."""
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.inspection import permutation_importance
    from sklearn.model_selection import KFold

    features, target = np.hstack([tried, extents]), residual.to_numpy(float)
    drops, scores = [], []
    for fit, rest in KFold(FOLDS, shuffle=True, random_state=0).split(features):
        forest = RandomForestRegressor(TREES, random_state=0).fit(features[fit], target[fit])
        scores.append(forest.score(features[rest], target[rest]))
        shuffled = permutation_importance(
            forest, features[rest], target[rest], n_repeats=REPEATS, random_state=0
        )
        drops.append(shuffled.importances[: tried.shape[1]])
    return np.concatenate(drops, axis=1), float(np.mean(scores))
