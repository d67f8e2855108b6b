"""A fair benchmark: engines on the same arrays, taking turns, checked against each other."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from bucketize.analysis.engines import Run
from bucketize.busy import Machine, watched
from bucketize.compare import worst_error
from bucketize.errors import ArgumentError, warn
from bucketize.op import Array
from bucketize.progress import Tell, announced, progress_bar, shown, steps
from bucketize.timing import interleaved

T = TypeVar("T")

OURS = "bucketize"
APART = 1e-2
"""Relative error from which on two engines do not compute the same: float32 in another order, and
approximate exponentials, are a hundred times closer."""
PAUSE_S = 0.02
"""Seconds before an engine's turn where there are several threads: those of the one before wait
busily for its next call, OpenMP's for up to 9 ms, on a core that this one needs."""
WARMING = 2  # rounds: the first calls of a shape may prepare what later ones use


@dataclass(frozen=True)
class Measured:
    """Engines that took turns on the same arrays."""

    seconds: Mapping[str, Sequence[float]]
    """By engine, of its call in each round."""
    errors: Mapping[str, float]
    """By engine, the worst relative difference of its outputs from another one's."""
    machine: Machine = field(default_factory=Machine)
    """What else was done at that time."""


def bench(
    runs: Mapping[str, Run],
    inputs: Mapping[str, Array],
    rounds: int,
    *,
    pause_s: float = 0.0,
    progress: Tell | bool | None = None,
) -> pd.DataFrame:
    """Time engines on the same inputs, in turns.

    Engines whose outputs are apart are warned of, and so is a busy machine.

    Args:
        runs: what is timed, by engine; the others are held against the first.
        inputs: arrays by the name of the input.
        rounds: how often each engine has its turn.
        pause_s: seconds that pass before each turn, as `pause` says.
        progress: told which engine runs, and how many calls of how many are done; True shows a bar
            on stderr.

    Returns:
        A row for each engine, with engine, time_s, time_q1_s and time_q3_s (median and quartiles),
        ratio, ratio_q1 and ratio_q3 (the first one's time by this one's in the same round: below 1
        the first is faster), error (the worst relative difference of its outputs from another
        engine's). `attrs["machine"]` is what else the machine did, a `bucketize.busy.Machine`.

    Raises:
        ArgumentError: no engine, no round, or a `progress` of another kind.

    """
    measurement = measured(runs, inputs, rounds, pause_s=pause_s, progress=progress)
    frame = _frame(measurement.seconds, measurement.errors)
    frame.attrs["machine"] = measurement.machine
    return frame


def measured(
    runs: Mapping[str, Run],
    inputs: Mapping[str, Array],
    rounds: int,
    *,
    pause_s: float = 0.0,
    progress: Tell | bool | None = None,
) -> Measured:
    """What `bench` makes its rows of, round by round; arguments and errors are the same."""
    if not runs:
        raise ArgumentError(
            'runs: expected at least one engine, as in {"mine": lambda inputs: exe.run(**inputs)}'
        )
    if not isinstance(rounds, int) or rounds < 1:
        raise ArgumentError(f"rounds: expected at least 1, got {rounds!r}")
    calls = {name: partial(run, inputs) for name, run in runs.items()}
    with shown(progress, progress_bar("timing")) as tell:
        step = steps(tell, len(runs) * (1 + WARMING + rounds))
        before = {name: announced(_late(call, pause_s), step, name) for name, call in calls.items()}
        errors = cross_checked({name: call() for name, call in before.items()})
        interleaved(before, least=WARMING)
        # each after one of its own: caches are its own, and the threads of the last went to sleep
        with watched() as watch:
            times = interleaved(calls, least=rounds, before=before)
            watch.rounds(times)
    return Measured(times, errors, watch.machine)


def pause(threads: int) -> float:
    """What passes before the turn of an engine with so many threads."""
    return PAUSE_S if threads > 1 else 0.0


def _late(call: Callable[[], T], pause_s: float) -> Callable[[], T]:
    """The call after a pause."""

    def paused_and_called() -> T:
        time.sleep(pause_s)
        return call()

    return paused_and_called


def _frame(times: Mapping[str, Sequence[float]], errors: Mapping[str, float]) -> pd.DataFrame:
    first = np.array(next(iter(times.values())))
    rows: list[dict[str, Any]] = []
    for name, taken in times.items():
        ratios = first / np.array(taken) if rows else np.full(3, np.nan)
        rows.append(
            {
                "engine": name,
                **quartiles("time{}_s", taken),
                **quartiles("ratio{}", ratios),
                "error": errors[name],
            }
        )
    return pd.DataFrame(rows)


def quartiles(name: str, values: Any) -> dict[str, float]:
    """The median under `name` with nothing put in, the quartiles with `_q1` and `_q3`."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return {
        name.format(""): float(middle),
        name.format("_q1"): float(low),
        name.format("_q3"): float(high),
    }


def cross_checked(results: Mapping[str, Sequence[Array]]) -> dict[str, float]:
    """By engine, the worst error beside another one; what is more than `APART` is warned of."""
    worst = dict.fromkeys(results, 0.0)
    for (a, got), (b, expected) in itertools.combinations(results.items(), 2):
        error = output_error(got, expected)
        worst[a], worst[b] = max(worst[a], error), max(worst[b], error)
        if error > APART:
            warn(
                f"the outputs of {a} and {b} are apart: relative error {error:.1e}", RuntimeWarning
            )
    return worst


def output_error(got: Sequence[Array], expected: Sequence[Array]) -> float:
    """The worst relative difference; infinite where the shapes differ."""
    if [a.shape for a in got] != [a.shape for a in expected]:
        return float("inf")
    return worst_error(got, expected)
