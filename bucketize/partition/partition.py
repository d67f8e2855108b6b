"""Partitions: the fewest clones that lose nothing, by models of kernels and by trials."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from bucketize.dispatch.tree import is_dispatched, name_dims
from bucketize.errors import (
    ArgumentError,
    BucketizeError,
    DispatchError,
    ShapeError,
    UnboundedError,
    unknown_name,
    warn,
)
from bucketize.inspect.calibrate import calibrated
from bucketize.ir import Function, Module, check_module, specialise
from bucketize.ir.relation import broken
from bucketize.kernel.templates import TEMPLATES
from bucketize.kernel.typical import LENGTHS, Box, between, open_ends
from bucketize.kernel.workload import Workload
from bucketize.log.environment import HOST, VERSIONS, here
from bucketize.log.log import LogWarning, rows, select
from bucketize.lower.cost import is_legal
from bucketize.machine.named import named
from bucketize.machine.speed import Floats
from bucketize.machine.target import Target
from bucketize.partition.evidence import Evidence
from bucketize.partition.expectation import (
    Expectation,
    expectation,
    packed_bytes,
    relations_of,
    routine_of,
    workloads,
)
from bucketize.partition.grid import (
    OBJECTIVES,
    Choice,
    Expect,
    SizeSample,
    Starts,
    interval,
    searched,
)
from bucketize.partition.value import Frontier, Partition
from bucketize.runtime.thread_pool import MOST_THREADS, check_threads
from bucketize.traffic.value import Traffic, check_traffic
from bucketize.types import Assumption, Sizes, Symbol

WORTH = 0.01
"""The share of the expected time that each further clone has to save: below it are models and
machines, and it would have to be compiled, tuned and kept."""
BUDGET = 8
SIZES = {1: 64, 2: 12, 3: 6}
"""Sizes of each symbol, geometrically, where no traffic is known; by how many symbols there are."""
DRAWN = 256
"""Sizes of more symbols together."""
TURNS = 4
"""Sizes of what a traffic lacks."""
MOST = 1024
"""Requests that stand for all, where more sizes come."""
EVER = 1e-9
"""Seconds: nothing takes less."""


def partition(  # noqa: PLR0913  options by name
    mod: Module,
    traffic: Traffic | None = None,
    *,
    function: str = "main",
    budget: int = BUDGET,
    objective: str = "mean",
    log: str | Path | None = None,
    target: str | None = None,
    threads: int = 1,
    worth: float = WORTH,
) -> Partition:
    """The fewest clones that lose nothing, by the models of their kernels and by trials.

    Buckets begin at sizes that come, or at the lower bound; of these there are 24, 6 or 3 for each
    of one, two or three symbols, with about equally many sizes between them; of more symbols the
    three are cut whose sizes differ most. Among boxes between them the search is exact for all
    cuts that go through the whole of what they cut, but for the 99th percentile, of which 24 values
    are tried, so that one or two per cent may be missed. It is repeated with other boxes near the
    cuts that it chose, and spared where a single clone is so close to the best kernels of each size
    that nothing could save what is `worth` a clone. What `loss` says bounds what any other
    partition gains.

    Args:
        mod: not dispatched.
        traffic: what sizes come, and how often; of symbols that it lacks they come from one bound
            to the other, in turns. None: sizes are spread geometrically between the bounds, and all
            count alike.
        function: the name of what is to be cloned.
        budget: the most clones.
        objective: what is to be small: "mean", the seconds of a call; "p99", the seconds that 99 %
            of the calls do not exceed; "worst", what a call takes by the best kernels for its size,
            where that is most.
        log: of trials on the target, with these versions: kernels are expected to take what they
            did there, beyond noise, and clones to run those that it shows to be the best, as `tune`
            finds them; where it says nothing, models do. Other rows are left out with a warning.
        target: where they run, by its name; None: this machine.
        threads: that share each kernel.
        worth: what each further clone has to save, as a share of the objective.

    Returns:
        The partition, a dispatcher whose text says what it is expected to buy.

    Raises:
        ArgumentError: no module, no budget, or `worth` that is no share.
        CompileError: no thread, or more than cores of this machine.
        DispatchError: nothing is dynamic, or the function is dispatched already.
        LogError: the log cannot be read.
        ShapeError: a request out of bounds.
        UnboundedError: a traffic that lacks a symbol without an upper bound, or all symbols.
        UnknownNameError: there is no such function, objective or target.

    """
    check_module(mod)
    if is_dispatched(mod.function(function), mod):
        raise DispatchError(
            f"{function} is dispatched already; a partition is of the original, and merge joins "
            f"clones"
        )
    question = Question.of(
        mod, function, traffic, objective, log=log, target=target, threads=threads
    )
    return question.answer(budget, worth)


@dataclass(frozen=True, eq=False)
class Question:
    """What partitions of a function are judged by."""

    symbols: Sequence[Symbol]
    calls: Mapping[Workload, int]
    sample: SizeSample
    single: Expectation
    """What the clone of all sizes takes, and those of a single size for each point."""
    requests: float
    objective: str
    expect: Expect
    """What clones of boxes take at the points."""

    @classmethod
    def of(
        cls,
        mod: Module,
        function: str,
        traffic: Traffic | None,
        objective: str,
        *,
        log: str | Path | None,
        target: str | None,
        threads: int,
    ) -> Question:
        """Ask about a function and its traffic; errors are those of `partition`."""
        check_threads(threads, None if target is None else MOST_THREADS)
        if traffic is not None:
            check_traffic(traffic)
        if objective not in OBJECTIVES:
            raise unknown_name("objective", objective, OBJECTIVES)
        fn = name_dims(mod.function(function))
        symbols = [s for s in fn.symbols().values() if s.lo != s.hi]
        if not symbols:
            raise DispatchError("no axis is dynamic: there is nothing to partition")
        where = calibrated() if target is None else named(target)
        routine = routine_of(mod, function, where, threads)
        calls = workloads(routine, where)
        ends = {s: _ends(s, calls) for s in symbols}
        points, shares, count = _points(fn, ends, traffic and requests_of(fn, traffic))
        reasons = [_refusal(calls, relations_of(routine), sizes) for sizes in points]
        legal = [not reason for reason in reasons]
        if not any(legal):
            raise DispatchError(
                f"kernels are legal at none of the sizes tried; bounds may tell which: "
                f"{_first(points, reasons)}"
            )
        if count and not all(legal):
            taken = round(count * float(sum(shares[legal])))
            warn(
                f"traffic: the model refuses {count - taken:.0f} of {count:.0f} requests, which "
                f"are left out, the first {_first(points, reasons)}"
            )
            count = float(taken)
        points, shares = list(itertools.compress(points, legal)), shares[legal] / sum(shares[legal])
        evidence = (
            None if log is None else _evidence(log, where, threads, is_named=target is not None)
        )
        boxes = [tuple(symbols), *_static(symbols, points)]
        expect = partial(expectation, calls, target=where, threads=threads, evidence=evidence)
        single = expect(boxes, points, shares)
        least = np.maximum(single.least, EVER)
        weights = shares if count else shares * np.mean(least) / least
        sample = SizeSample(points, shares, least, weights)
        return cls(symbols, calls, sample, single, count, objective, expect)

    def answer(self, budget: int, worth: float, able: Starts | None = None) -> Partition:
        """The partition to take, of so many clones at most; errors are those of `partition`.

        Where `able` is given, buckets begin there alone.
        """
        if not isinstance(budget, int) or budget < 1:
            raise ArgumentError(f"budget: expected at least 1 clone, got {budget!r}")
        if not isinstance(worth, int | float) or not 0 <= worth < 1:
            raise ArgumentError(f"worth: expected a share of time from 0, below 1, got {worth!r}")
        choices = [self._whole()]
        value = partial(self.sample.value, objective=self.objective)
        if budget > 1 and value(choices[0].seconds) * (1 - worth) > value(self.sample.least):
            how = budget, self.objective, able
            choices = searched(self.symbols, self.sample, self.expect, *how)
        frontier = tuple(map(self.frontier, choices))
        chosen = frontier[0]
        for other in frontier[1:]:
            gained = worth * (other.clones - chosen.clones)
            if other.value(self.objective) <= chosen.value(self.objective) * (1 - gained):
                chosen = other
        taken = choices[frontier.index(chosen)].seconds
        by_size = self._by_size(choices[0].seconds, taken)
        oracle = value(self.sample.least)
        return Partition(chosen, frontier, oracle, self.requests, self.objective, by_size)

    def frontier(self, choice: Choice) -> Frontier:
        """What a choice comes to."""
        mean, p99, worst = (self.sample.value(choice.seconds, o) for o in OBJECTIVES)
        weights = packed_bytes(self.calls, choice.kernels)
        return Frontier(tuple(choice.buckets), mean, p99, worst, len(choice.kernels), weights)

    def _whole(self) -> Choice:
        bucket = {s.name: interval(s, [s.lo], (0, 1)) for s in self.symbols}
        kernels = [self.single.every[k] for k in sorted(self.single.kernels[0])]
        return Choice([bucket], self.single.seconds[0], kernels)

    def _by_size(self, single: Floats, chosen: Floats) -> dict[str, Floats]:
        names = [s.name for s in self.symbols]
        sizes = {n: np.array([p[n] for p in self.sample.points]) for n in names}
        taken = {"one_clone_s": single, "chosen_s": chosen, "oracle_s": self.sample.least}
        return {**sizes, "share": self.sample.shares, **taken}


def _evidence(log: str | Path, target: Target, threads: int, *, is_named: bool) -> Evidence:
    """What a log says of kernels on a target; a warning if that is nothing, or little of it.

    Of a target that is named any machine counts whose processor has the name; else this one.
    """
    trials, its = rows(log, TEMPLATES), replace(here(), host_cpu=target.name)
    names = ("host_cpu", *VERSIONS) if is_named else HOST + VERSIONS
    evidence = Evidence.of(select(trials, environment=its, names=names), target, threads)
    if not evidence.trials:
        warn(
            f"{log}: none of its {len(trials)} rows times a kernel on {target.name} with "
            f"threads={threads}, so models alone count",
            LogWarning,
        )
    return evidence


def _refusal(calls: Iterable[Workload], relations: Iterable[Assumption], sizes: Sizes) -> str:
    """Why a function cannot be called at sizes; empty if it can."""
    legal = all(is_legal(workload, sizes) for workload in calls)
    return broken(relations, sizes) or ("" if legal else "an extent is below 0")


def _first(points: Iterable[Sizes], reasons: Iterable[str]) -> str:
    """The first sizes that are refused, and why."""
    sizes, why = next((sizes, why) for sizes, why in zip(points, reasons, strict=True) if why)
    return f"at {', '.join(f'{s}={n}' for s, n in sizes.items())}: {why}"


def _points(
    fn: Function, ends: Mapping[Symbol, tuple[int, int]], traffic: Traffic | None
) -> tuple[list[Sizes], Floats, float]:
    """Sizes, the share of each, and how many requests they stand for."""
    if traffic is None:
        fixed = {s.name: s.lo for s in fn.symbols().values() if s not in ends}
        names = [s.name for s in ends]
        points: list[Sizes] = [{**fixed, **dict(zip(names, p, strict=True))} for p in _spread(ends)]
        return points, np.full(len(points), 1 / len(points)), 0.0
    rows = zip(traffic.sizes.tolist(), traffic.requests.tolist(), strict=True)
    pairs = [(dict(zip(traffic.symbols, size, strict=True)), n) for size, n in rows]
    total = traffic.total
    if len(pairs) > MOST:
        return _sampled(pairs), np.full(MOST, 1 / MOST), total
    return [s for s, _ in pairs], np.array([t / total for _, t in pairs]), total


def _sampled(pairs: Sequence[tuple[Sizes, float]]) -> list[Sizes]:
    """A systematic sample: of requests in the order of their sizes, equally many apart."""
    ordered = sorted(pairs, key=lambda pair: tuple(pair[0].values()))
    served = np.cumsum([times for _, times in ordered])
    places = np.searchsorted(served, (np.arange(MOST) + 0.5) / MOST * served[-1])
    return [ordered[k][0] for k in places]


def requests_of(fn: Function, traffic: Traffic) -> Traffic:
    """The requests by all symbols of a function, whenever they came.

    Of symbols that the traffic lacks they have sizes from one bound to the other, in turns. Raises
    `UnboundedError` where those have no upper bound, or it has none of the function's symbols, and
    `ShapeError` if a size is out of its bounds.
    """
    own = fn.symbols()
    lacking = {name: s for name, s in own.items() if name not in traffic.symbols}
    no_end = [name for name, s in lacking.items() if s.hi is None or len(lacking) == len(own)]
    if no_end:
        raise _unbounded(no_end, traffic)
    for name in (name for name in own if name not in lacking):
        for size in traffic.histogram(name):
            if not own[name].holds(size):
                raise _out_of_bounds(fn, own[name], size)
    return _in_turns(traffic, list(lacking.values())) if lacking else traffic.without_times()


def _out_of_bounds(fn: Function, symbol: Symbol, size: int) -> ShapeError:
    """The error of a size, with what refuses it if the bounds follow from an op."""
    name = symbol.name
    error = ShapeError(f"traffic: {name}={size} is out of its bounds {symbol.range}")
    try:
        specialise(fn, {name: size})
    except BucketizeError as e:
        error.add_note(f"the model takes no other: at {name}={size} {e.message}")
        for note in e.notes:
            error.add_note(note)
    return error


def _unbounded(names: Sequence[str], traffic: Traffic) -> UnboundedError:
    pairs = ", ".join(f"{name!r}: (1, 1)" for name in names)
    return UnboundedError(
        f"traffic: it has no sizes of {', '.join(names)}, only of {', '.join(traffic.symbols)}; "
        f"bound what it lacks, or hold it to a size, bounds={{{pairs}}}",
        names,
    )


def _in_turns(traffic: Traffic, lacking: Sequence[Symbol]) -> Traffic:
    """Requests by turns at each size of what they lack, whose symbols grow together."""
    reached = np.cumsum(traffic.requests)
    rows, requests = [], []
    for turn in range(TURNS):
        at = [_size(s, (max(s.lo, s.step), s.hi), turn / (TURNS - 1)) for s in lacking]
        rows.append(np.insert(traffic.sizes, len(traffic.symbols), at, axis=1))
        until, before = ((n + turn) // TURNS for n in (reached, reached - traffic.requests))
        requests.append(until - before)
    names = (*traffic.symbols, *(s.name for s in lacking))
    return Traffic(names, np.concatenate(rows), np.concatenate(requests))


def _ends(symbol: Symbol, calls: Iterable[Workload]) -> tuple[int, int]:
    """From where to where a symbol goes; what is open, as kernels take it."""
    low = max(symbol.lo, symbol.step)
    if symbol.hi is not None:
        return low, symbol.hi
    each = [open_ends(symbol, workload) for workload in calls]
    least, most = next((pair for pair in each if pair != LENGTHS), LENGTHS)
    low = max(low, least)
    return low, max(low, most)


def _spread(ends: Mapping[Symbol, tuple[int, int]]) -> Iterable[tuple[int, ...]]:
    """Sizes geometrically from one end to the other: a grid, or drawn if there are many symbols."""
    shares = np.linspace(0, 1, SIZES.get(len(ends), 1)).tolist()
    if len(ends) in SIZES:
        each = [sorted({_size(s, pair, share) for share in shares}) for s, pair in ends.items()]
        return itertools.product(*each)
    drawn = np.random.default_rng(0).random((DRAWN, len(ends))).tolist()
    rows = (zip(ends.items(), row, strict=True) for row in drawn)
    return (tuple(_size(s, pair, share) for (s, pair), share in row) for row in rows)


def _size(symbol: Symbol, ends: tuple[int, int | None], share: float) -> int:
    """The size of a symbol so far from one end to the other."""
    return symbol.rounded(between(*ends, share))


def _static(symbols: Sequence[Symbol], points: Sequence[Sizes]) -> list[Box]:
    """A box of exactly its size for each point."""
    return [tuple(Symbol(s.name, p[s.name], p[s.name]) for s in symbols) for p in points]
