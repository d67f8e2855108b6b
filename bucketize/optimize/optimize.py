"""Buckets by prediction, schedules by requests, and the whole timed on the traffic."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np

from bucketize.analysis.benchmark import cross_checked, late, pause
from bucketize.analysis.engines import ENGINES, Run, session
from bucketize.busy import watched
from bucketize.compiler import compile
from bucketize.dispatch.bucket import Bucket
from bucketize.dispatch.tree import dispatch, name_dims
from bucketize.errors import ArgumentError, EngineError, warn
from bucketize.executable import Executable
from bucketize.ir import Module, check_module, specialise
from bucketize.measure.case import random_inputs
from bucketize.op import Array
from bucketize.partition.partition import BUDGET, partition, requests_of
from bucketize.partition.value import Partition
from bucketize.progress import Tell
from bucketize.table import several
from bucketize.timing import interleaved
from bucketize.traffic.value import Traffic
from bucketize.tune.api import opened
from bucketize.tune.budget import GRACE
from bucketize.tune.options import Options
from bucketize.types import Sizes, Symbol

SIZES = 30
"""Quantiles of the traffic, at which engines are timed: the 95th percentile is amid those that one
of them stands for; of 20 it would lie between two."""
PASSES = 3  # over them at least
ROUNDS = 3  # of each in a pass
CONFIRMING = 0.15  # of the time
LEAST_S = 1.0
WORTH = 0.01  # of the latency: what further trials should be expected to save
PEER = "onnxruntime"
OURS, UNTUNED = "optimized", "untuned"
Pass: TypeAlias = dict[str, list[list[float]]]
"""By engine the seconds of its calls at each size."""


@dataclass(frozen=True)
class Latency:
    """What an engine took of all its calls, as many at each of 30 quantiles of a traffic."""

    engine: str
    mean_s: float
    p50_s: float
    p95_s: float
    ratio: float
    """Its medians by those of the optimised module in the same pass, each summed over the sizes;
    above 1 it is slower. The median of all passes."""
    ratio_low: float
    ratio_high: float
    """The least and the greatest of all passes."""

    @property
    def requests_s(self) -> float:
        """How many requests a second it serves, one after the other."""
        return 1 / self.mean_s


@dataclass(frozen=True, eq=False)
class Optimized:
    """An executable for a traffic, what was chosen, and what it buys."""

    executable: Executable
    partition: Partition | None
    """None where all requests have one size: it has a static clone."""
    latencies: tuple[Latency, ...]
    """Latencies of the optimised module, the untuned one, and onnxruntime where that runs it."""
    tuned: str
    """What tuning did, in a sentence."""
    promise: float
    """The share of the latency that the next trial of every kernel is expected to save."""
    seconds: float
    waiting: int = 0
    """Clones that tuning had no time to confirm anything for."""

    def __str__(self) -> str:
        """One figure for it, what was chosen and why, and whether to go on."""
        ours = self.latencies[0]
        lines = [
            f"{1e3 * ours.mean_s:.3f} ms a request in the mean, {ours.requests_s:.0f} requests a "
            f"second (p50 {1e3 * ours.p50_s:.3f} ms, p95 {1e3 * ours.p95_s:.3f} ms)",
            *(f"  {_beside(other)}" for other in self.latencies[1:]),
            f"buckets: {self.partition or 'a static clone, for all requests have one size'}",
            f"schedules: {self.tuned}",
        ]
        if self.waiting:
            more = f"{several(self.waiting, 'clone')} not confirmed for want of time: go on"
        elif self.promise < WORTH:
            more = f"the next trials are expected to save less than {WORTH:.0%}: this is it"
        else:
            more = f"the next trial of every kernel is expected to save {self.promise:.1%}: go on"
        return "\n".join([*lines, f"{self.seconds:.0f} s; {more}"])


def _beside(other: Latency) -> str:
    spread = f"{other.ratio_low:.2f} to {other.ratio_high:.2f}"
    return (
        f"{other.engine}: {1e3 * other.mean_s:.3f} ms, {other.ratio:.2f} times as long ({spread}; "
        f"p50 {1e3 * other.p50_s:.3f}, p95 {1e3 * other.p95_s:.3f})"
    )


def optimize(  # noqa: PLR0913  options by name
    mod: Module,
    traffic: Traffic,
    *,
    log: str | Path,
    seconds: float = 600.0,
    trials: int = Options.trials,
    budget: int = BUDGET,
    threads: int = 1,
    model: str | Path | None = None,
    progress: Tell | bool | None = None,
) -> Optimized:
    """Choose buckets for a traffic, tune them by its requests, and time the whole on it.

    Buckets lie within the sizes that came; others go to the original, which serves all. Trials are
    added to the log: the same call goes on where it stopped, also after it was interrupted.

    Args:
        mod: not dispatched.
        traffic: the requests, as that of `partition`.
        log: the CSV file of trials; made if there is none.
        seconds: for all of it; 15 % are for timing what came of it.
        trials: as that of `tune`.
        budget: the most clones.
        threads: that share each kernel.
        model: the ONNX file that the module is of: onnxruntime is timed beside it, if it is
            installed and runs it.
        progress: as that of `compile`.

    Returns:
        The executable, what was chosen, and figures.

    Raises:
        ArgumentError: no module, no traffic, or no time.
        CompileError: as `compile`.
        DispatchError: as `partition`.
        LogError: a log that cannot be read or written.
        ShapeError: as `partition`.
        TuneError: as `tune`.

    """
    check_module(mod)
    if not isinstance(traffic, Traffic):
        raise ArgumentError(f"expected a Traffic, got {traffic!r}: Traffic.read(path) reads one")
    if not isinstance(seconds, int | float) or not LEAST_S <= seconds < math.inf:
        raise ArgumentError(f"seconds: expected a number from {LEAST_S:.0f}, got {seconds!r}")
    begin = time.monotonic()
    fn = name_dims(mod.main)
    requests = requests_of(fn, traffic)
    chosen = _partition(mod, traffic, Path(log), budget, threads)
    bounds = {s: (lo, hi + 1) for s, (lo, hi) in traffic.bounds.items() if s in fn.symbols()}
    cuts: Sequence[Bucket] = [{}] if chosen is None else chosen.chosen.buckets
    buckets: list[Bucket] = [{**bounds, **bucket} for bucket in cuts]
    module = dispatch(mod, lambda _: buckets)
    left = (1 - CONFIRMING) * seconds / (1 + GRACE) - (time.monotonic() - begin)
    how = Options(
        log=log, trials=trials, traffic=requests, seconds=max(left, LEAST_S), threads=threads,
        progress=bool(progress),
    )  # fmt: skip
    with opened(module, how) as tuning:
        tuning.work()
        promise = tuning.scheduler.promise()
        standing = [v for s in tuning.subjects if (v := tuning.database.verdicts.get(s.clone))]
        faster = several(sum(verdict.pays for verdict in standing), "clone")
        tuned = f"{several(len(tuning.written), 'measurement')}, {faster} faster"
        waiting = len(tuning.unreached)
    confirmed_in = log if standing else None
    ours, plain = (
        compile(m, log=at, threads=threads, progress=progress)
        for m, at in ((module, confirmed_in), (mod, None))
    )
    params = name_dims(mod.main).params
    inputs = [random_inputs(params, sizes) for sizes in quantiles(requests, SIZES)]
    runs: dict[str, Run] = {OURS: _run(ours), UNTUNED: _run(plain)}
    if model is not None and ENGINES[PEER].is_installed:
        runs |= _peer(model, threads, inputs)
    end = max(begin + seconds, time.monotonic() + LEAST_S)
    wait = pause(threads) if PEER in runs else 0.0
    latencies = _timed(runs, inputs, end, wait)
    taken = time.monotonic() - begin
    return Optimized(ours, chosen, latencies, tuned, promise, taken, waiting)


def _partition(
    mod: Module, traffic: Traffic, log: Path, budget: int, threads: int
) -> Partition | None:
    """Buckets within the sizes that came; None if that is one."""
    fn = name_dims(mod.main)
    bounds = {s: (lo, hi) for s, (lo, hi) in traffic.bounds.items() if s in fn.symbols()}
    own = fn.symbols()
    dims = {s: own[s].within(lo, hi) for s, (lo, hi) in bounds.items()}
    if len(dims) == len(fn.symbols()) and not any(isinstance(d, Symbol) for d in dims.values()):
        return None
    within = Module({"main": specialise(fn, dims, "main")}, names=mod.names)
    measured_in = log if log.exists() else None
    return partition(within, traffic, budget=budget, log=measured_in, threads=threads)


def _run(executable: Executable) -> Run:
    return lambda inputs: executable.run(**inputs)


def _peer(model: str | Path, threads: int, inputs: Sequence[Mapping[str, Array]]) -> dict[str, Run]:
    """What runs the model by onnxruntime, if that takes it and the inputs; a warning if not."""
    try:
        run = session(PEER, model, threads).run
        for each in inputs:
            run(each)
    except EngineError as e:
        warn(f"not timed beside {PEER}: {e.message}")
        return {}
    return {PEER: run}


def _timed(
    runs: Mapping[str, Run], inputs: Sequence[Mapping[str, Array]], end: float, pause_s: float
) -> tuple[Latency, ...]:
    """What engines take of inputs, in turns, in several passes over all."""
    points = [{name: partial(run, each) for name, run in runs.items()} for each in inputs]
    for calls in points:
        cross_checked({name: call() for name, call in calls.items()})
    passes: list[Pass] = []
    with watched():
        while len(passes) < PASSES or time.monotonic() < end:
            taken: Pass = {name: [] for name in runs}
            for calls in points:
                # each after one of its own, whose caches are warm
                before = {name: late(call, pause_s) for name, call in calls.items()}
                for name, seconds in interleaved(calls, least=ROUNDS, before=before).items():
                    taken[name].append(seconds)
            passes.append(taken)
    return tuple(_latency(name, passes) for name in runs)


def _latency(name: str, passes: Sequence[Pass]) -> Latency:
    mine, ours = (np.array([taken[n] for taken in passes]) for n in (name, OURS))
    each, beside = (np.median(calls, axis=2).sum(axis=1) for calls in (mine, ours))
    ratios = each / beside
    p50, p95 = np.quantile(mine, [0.5, 0.95])
    ends = float(np.median(ratios)), float(ratios.min()), float(ratios.max())
    return Latency(name, float(mine.mean()), float(p50), float(p95), *ends)


def quantiles(traffic: Traffic, count: int) -> list[Sizes]:
    """Sizes that stand for equally many requests each, from the smallest to the largest."""
    order = np.argsort(traffic.sizes.prod(axis=1), kind="stable")
    reached = np.cumsum(traffic.requests[order])
    places = np.searchsorted(reached, (np.arange(count) + 0.5) / count * reached[-1])
    rows = traffic.sizes[order[places]].tolist()
    return [dict(zip(traffic.symbols, row, strict=True)) for row in rows]
