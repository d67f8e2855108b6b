"""A fair benchmark: engines on the same arrays, taking turns, checked against each other."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pandas as pd

from bucketize.analysis.engines import Run
from bucketize.analysis.stream import Window, windows
from bucketize.busy import Machine, watched
from bucketize.compare import worst_error
from bucketize.errors import ArgumentError, warn
from bucketize.machine.energy import Energy
from bucketize.op import Array
from bucketize.progress import Tell, announced, progress_bar, shown, steps
from bucketize.timing import Call, interleaved

T = TypeVar("T")

OURS = "bucketize"
APART = 1e-2
"""Relative error from which on two engines do not compute the same: float32 in another order, and
approximate exponentials, are a hundred times closer."""
PAUSE_S = 0.02
"""Seconds before an engine's turn where there are several threads: those of the one before wait
busily for its next call, OpenMP's for up to 9 ms, on a core that this one needs."""
PERCENTILES = (90, 95, 99)
LEAST = 5  # windows of each engine: ratios have quartiles
Runs: TypeAlias = Run | Sequence[Run]


@dataclass(frozen=True)
class Effort:
    """What is done around the rounds that are asked for."""

    warmup: int = 2
    """Rounds that are not timed: the first calls of a shape may prepare what later ones use."""
    duration_s: float = 0.0
    """Seconds, of all engines together, for which rounds go on at least."""
    energy: Energy | None = None
    """The counters by which joules are told; where turns are calls, by windows after them."""


USUAL = Effort()


@dataclass(frozen=True)
class Measured:
    """Engines that took turns on the same arrays."""

    turns: Mapping[str, Sequence[Window]]
    """By engine, what its turn came to in each round: one call, or those of all its callers."""
    errors: Mapping[str, float]
    """By engine, the worst relative difference of its outputs from another one's."""
    machine: Machine = field(default_factory=Machine)
    """What else was done at that time."""
    joules: Mapping[str, float] = field(default_factory=dict)
    """By engine, of a call, where that was asked for."""

    @property
    def seconds(self) -> Mapping[str, Sequence[float]]:
        """By engine, of a call in each round."""
        return {name: [turn.per_call_s for turn in of] for name, of in self.turns.items()}


def bench(
    runs: Mapping[str, Runs],
    inputs: Mapping[str, Array],
    rounds: int,
    *,
    effort: Effort = USUAL,
    pause_s: float = 0.0,
    progress: Tell | bool | None = None,
) -> pd.DataFrame:
    """Time engines on the same inputs, in turns.

    A turn is a call; of engines with several callers it is a window of time in which all of them
    call, a thread each. Engines whose outputs are apart are warned of, and so is a busy machine.

    Args:
        runs: what is timed, by engine, one for each of its callers if there are several, of which
            all engines have as many; the others are held against the first.
        inputs: arrays by the name of the input.
        rounds: how often each engine, or each of its callers, calls at least.
        effort: what comes before, and how long it goes on.
        pause_s: seconds that pass before each turn, as `pause` says.
        progress: told which engine runs, and how many turns of how many are done; True shows a bar
            on stderr.

    Returns:
        A row for each engine, with engine, time_s, time_q1_s and time_q3_s (median and quartiles of
        all calls), ratio, ratio_q1 and ratio_q3 (the first one's time for a call by this one's in
        the same round; below 1 the first is faster; of several callers the time of a window by its
        calls), error (the worst relative difference of its outputs from another engine's), calls,
        min_s, mean_s, p90_s, p95_s and p99_s (missing of too few calls to have one beyond), calls_s
        and rows_s (a second; rows are the extent of the first axis of the first input that has
        one), and joules, of a call, with counters. `attrs["machine"]` is what else the machine did,
        a `bucketize.busy.Machine`.

    Raises:
        ArgumentError: no engine, no round, callers that differ in number, or a `progress` of
            another kind.

    """
    measurement = measured(runs, inputs, rounds, effort=effort, pause_s=pause_s, progress=progress)
    frame = _frame(measurement, rows_of(inputs))
    frame.attrs["machine"] = measurement.machine
    return frame


def measured(
    runs: Mapping[str, Runs],
    inputs: Mapping[str, Array],
    rounds: int,
    *,
    effort: Effort = USUAL,
    pause_s: float = 0.0,
    progress: Tell | bool | None = None,
) -> Measured:
    """What `bench` makes its rows of, round by round; arguments and errors are the same."""
    callers = _callers(runs, inputs)
    if not isinstance(rounds, int) or rounds < 1:
        raise ArgumentError(f"rounds: expected at least 1, got {rounds!r}")
    has_windows = any(len(of) > 1 for of in callers.values())
    with shown(progress, progress_bar("timing")) as tell:
        turns_each = LEAST if has_windows else rounds
        step = steps(tell, len(runs) * (1 + effort.warmup + turns_each))
        before = {name: announced(late(of[0], pause_s), step, name) for name, of in callers.items()}
        errors = cross_checked({name: call() for name, call in before.items()})
        rests = {name: announced(late(_nothing, pause_s), step, name) for name in callers}
        if not has_windows:
            interleaved(before, least=effort.warmup)
        with watched() as watch:
            turns: Mapping[str, Sequence[Window]]
            if has_windows:
                turns = _windows(callers, rests, rounds, effort)
            else:
                turns = _calls(callers, before, rounds, effort)
            watch.rounds({name: [t.per_call_s for t in of] for name, of in turns.items()})
        joules = _joules(turns, callers, rests, effort)
    return Measured(turns, errors, watch.machine, joules)


def _callers(
    runs: Mapping[str, Runs], inputs: Mapping[str, Array]
) -> dict[str, Sequence[Callable[[], Sequence[Array]]]]:
    """The calls of each engine, one for each caller."""
    if not runs:
        raise ArgumentError(
            'runs: expected at least one engine, as in {"mine": lambda inputs: exe.run(**inputs)}'
        )
    several = {name: (of,) if callable(of) else tuple(of) for name, of in runs.items()}
    counts = {name: len(of) for name, of in several.items()}
    if len({*counts.values()}) > 1 or not all(counts.values()):
        raise ArgumentError(f"runs: expected as many callers of each engine, got {counts}")
    return {name: [partial(run, inputs) for run in of] for name, of in several.items()}


def _calls(
    callers: Mapping[str, Sequence[Call]], before: Mapping[str, Call], rounds: int, effort: Effort
) -> dict[str, list[Window]]:
    """A call in each turn, each after one of its own.

    So caches are its own, and the threads of the engine before have gone to sleep.
    """
    calls = {name: of[0] for name, of in callers.items()}
    times = interleaved(calls, least=rounds, enough_s=effort.duration_s, before=before)
    return {name: [Window((s,), s) for s in taken] for name, taken in times.items()}


def _windows(
    callers: Mapping[str, Sequence[Call]], before: Mapping[str, Call], rounds: int, effort: Effort
) -> dict[str, list[Window]]:
    """Windows of each engine until there are enough, of calls and of time."""
    taken: dict[str, list[Window]] = {name: [] for name in callers}
    end = time.perf_counter() + effort.duration_s
    wanted = rounds * max(map(len, callers.values()))
    for turn in windows(callers, before, effort.warmup, effort.energy):
        for name, of in turn.items():
            taken[name].append(of)
        fewest = min(sum(len(w.latencies) for w in of) for of in taken.values())
        rounds_done = min(map(len, taken.values()))
        if fewest >= wanted and rounds_done >= LEAST and time.perf_counter() >= end:
            break
    return taken


def _joules(
    turns: Mapping[str, Sequence[Window]],
    callers: Mapping[str, Sequence[Call]],
    before: Mapping[str, Call],
    effort: Effort,
) -> dict[str, float]:
    """The joules of a call by engine; a counter moves too seldom to tell that of a single one."""
    if effort.energy is None:
        return {}
    if any(turn.joules is None for of in turns.values() for turn in of):
        turns = _windows(callers, before, 1, replace(effort, duration_s=0.0))
    sums = {name: sum(t.joules or 0.0 for t in of) for name, of in turns.items()}
    return {name: j / sum(len(t.latencies) for t in turns[name]) for name, j in sums.items()}


def _nothing() -> None:
    pass


def rows_of(inputs: Mapping[str, Array]) -> int | None:
    """The extent of the first axis of the first input that has one."""
    return next((array.shape[0] for array in inputs.values() if array.ndim), None)


def pause(threads: int) -> float:
    """What passes before the turn of an engine with so many threads."""
    return PAUSE_S if threads > 1 else 0.0


def late(call: Callable[[], T], pause_s: float) -> Callable[[], T]:
    """The call after a pause."""

    def paused_and_called() -> T:
        time.sleep(pause_s)
        return call()

    return paused_and_called


def _frame(measurement: Measured, rows_each: int | None) -> pd.DataFrame:
    seconds = measurement.seconds
    first = np.array(next(iter(seconds.values())))
    rows: list[dict[str, Any]] = []
    for name, turns in measurement.turns.items():
        ratios = first / np.array(seconds[name]) if rows else np.full(3, np.nan)
        latencies = np.array([s for turn in turns for s in turn.latencies])
        rate = len(latencies) / sum(turn.seconds for turn in turns)
        rows.append(
            {
                "engine": name,
                **quartiles("time{}_s", latencies),
                **quartiles("ratio{}", ratios),
                "error": measurement.errors[name],
                "calls": len(latencies),
                "min_s": float(latencies.min()),
                "mean_s": float(latencies.mean()),
                **{f"p{p}_s": percentile(latencies, p) for p in PERCENTILES},
                "calls_s": rate,
                "rows_s": np.nan if rows_each is None else rate * rows_each,
                **({"joules": joules[name]} if (joules := measurement.joules) else {}),
            }
        )
    return pd.DataFrame(rows)


def percentile(values: Array, percent: int) -> float:
    """What so many of a hundred values are not above; NaN of too few to have one above."""
    enough = len(values) * (100 - percent) >= 100
    return float(np.quantile(values, percent / 100)) if enough else np.nan


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
