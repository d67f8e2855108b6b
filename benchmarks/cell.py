"""A cell of the sweep: a model at some sizes on some threads, everything that runs it in turns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from benchmarks.side import DISPATCHED, PEERS, TUNED, Sides
from bucketize.analysis.benchmark import (
    APART,
    OURS,
    Measured,
    measured,
    output_error,
    pause,
    quartiles,
)
from bucketize.errors import BucketizeError, EngineError
from bucketize.inspect.roofline import peak_gflops
from bucketize.ir import Module
from bucketize.kernel.work import multiplications
from bucketize.machine.host import host
from bucketize.op import Array
from bucketize.progress import Tell
from bucketize.table import pairs
from bucketize.timing import wall_seconds
from bucketize.types import AnyDim, evaluate

Row: TypeAlias = dict[str, Any]
Sizes: TypeAlias = Mapping[str, int]
Results: TypeAlias = Mapping[str, Sequence[Array]]

MOST = 201  # rounds
KEY = ("model", "sizes", "threads")
COLUMNS = (
    *(*KEY, "engine", "version", "settings", "time_s", "time_q1_s", "time_q3_s"),
    *("ratio", "ratio_q1", "ratio_q3", "flops", "peak_gflops", "of_peak", "error", "rounds"),
    *("others", "why", "cpu", "date"),
)
"""Of the rows: `ratio` is the time by that of the best peer in the same round, `error` the worst
relative difference from another's outputs, `others` the processors that other processes took, `why`
the reason of an engine without a time."""


class WrongOutputError(BucketizeError):
    """An output of bucketize that no engine agrees with."""


@dataclass(frozen=True)
class Cell:
    """What is measured."""

    model: str
    sizes: Sizes
    threads: int

    @property
    def key(self) -> tuple[str, str, int]:
        """What names it in a file."""
        return self.model, pairs(dict(self.sizes)), self.threads

    def rows(
        self,
        sides: Sides,
        inputs: Mapping[str, Array],
        flops: float,
        effort: tuple[float, int],
        tell: Tell | None = None,
    ) -> list[Row]:
        """A row for each side; timing takes the seconds of `effort`, or its rounds at least.

        Raises:
            WrongOutputError: what bucketize computes is not what the others do.

        """
        results, refused, round_s = tried(sides, inputs)
        refused |= odd(results)
        runs = {n: s.run for n, s in sides.sessions.items() if n not in refused}
        (enough_s, least), wait = effort, pause(self.threads)
        whole_s = 2 * round_s + wait * len(runs)  # each call comes twice
        rounds = max(least, min(MOST, int(enough_s / whole_s)))
        found = measured(runs, inputs, rounds, pause_s=wait, progress=tell)
        peak, same = peak_gflops(self.threads), dict(zip(KEY, self.key, strict=True))
        same |= {"flops": flops, "peak_gflops": peak, "rounds": rounds, "cpu": host().name}
        same["others"] = found.machine.others
        same |= {"date": datetime.now(UTC).isoformat(timespec="seconds")}
        rows = [same | row for row in timed(sides, found, flops / (peak * 1e9))]
        return rows + [same | {"engine": name, "why": why} for name, why in refused.items()]


def tried(sides: Sides, inputs: Mapping[str, Array]) -> tuple[Results, dict[str, str], float]:
    """What each computes, why some do not, and the seconds of a round of the others' calls.

    Each is called twice: a shape may be new to it.
    """
    results, refused, round_s = {}, dict(sides.refused), 0.0
    for name, session in sides.sessions.items():
        try:
            results[name] = session.run(inputs)
            round_s += wall_seconds(partial(session.run, inputs))
        except EngineError as e:
            refused[name] = str(e)
    return results, refused, round_s


def odd(results: Results) -> dict[str, str]:
    """The peers whose outputs are apart from ours, and those of fewer than ours; what to say of it.

    Raises:
        WrongOutputError: one of them is no more alone than bucketize is, or a way of bucketize is
            apart from its defaults.

    """
    for way in (TUNED, DISPATCHED):
        if way in results and (error := output_error(results[way], results[OURS])) > APART:
            raise WrongOutputError(f"{way}: {_told({OURS: error})}")
    votes = {name: result for name, result in results.items() if name not in (TUNED, DISPATCHED)}
    apart = {a: _apart(result, votes) for a, result in votes.items()}
    found = {a: _told(of) for a, of in apart.items() if OURS in of}
    if any(len(apart[a]) <= len(apart[OURS]) for a in found):
        raise WrongOutputError(f"{OURS}: {_told(apart[OURS])}")
    return found


def _apart(result: Sequence[Array], votes: Results) -> dict[str, float]:
    """The errors by those that do not agree with a result."""
    errors = {name: output_error(result, other) for name, other in votes.items()}
    return {name: error for name, error in errors.items() if error > APART}


def _told(errors: Mapping[str, float]) -> str:
    error, names = max(errors.values()), ", ".join(errors)
    return f"its outputs are apart from those of {names}: relative error {error:.1e}"


def timed(sides: Sides, found: Measured, least_s: float) -> list[Row]:
    """A row for each that ran, beside the peer with the least median; `least_s` is at the peak."""
    seconds = {name: np.array(taken) for name, taken in found.seconds.items()}
    peers = {name: float(np.median(s)) for name, s in seconds.items() if name in PEERS}
    best = seconds[min(peers, key=peers.__getitem__)] if peers else np.nan
    rows = []
    for name, taken in seconds.items():
        session, times = sides.sessions[name], quartiles("time{}_s", taken)
        row: Row = {"engine": name, "version": session.version, "settings": session.settings}
        row |= times | quartiles("ratio{}", taken / best)
        rows.append(row | {"of_peak": least_s / times["time_s"], "error": found.errors[name]})
    return rows


def flops(mod: Module, sizes: Sizes) -> float:
    """The operations of a model's products and convolutions, done directly, at some sizes.

    NaN where they hang on values, as those of a detector on the boxes that it finds.
    """
    counts = [multiplications(binding) for binding in mod.main.body]
    if any(isinstance(count, AnyDim) for count in counts):
        return math.nan
    return 2 * sum(evaluate(count, sizes) for count in counts)
