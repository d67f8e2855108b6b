"""Merging: the clones of a dispatched module become as few as lose nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

from bucketize.dispatch.bucket import fallback_name
from bucketize.dispatch.tree import dispatch, is_dispatched
from bucketize.errors import DispatchError, ShapeError
from bucketize.ir import Clone, Function, Leaf, Module, check_module, decisions, specialise
from bucketize.kernel.typical import Box
from bucketize.partition.expectation import held
from bucketize.partition.grid import Choice, narrow
from bucketize.partition.partition import WORTH, Question
from bucketize.partition.value import Frontier, Partition
from bucketize.traffic.value import Traffic, check_traffic
from bucketize.types import Interval, Symbol

Buckets: TypeAlias = Sequence[Mapping[str, Interval]]

BUDGET = 16  # clones, that may be left


@dataclass(frozen=True)
class Merge:
    """A module with fewer clones, and what they are expected to lose."""

    module: Module
    partition: Partition
    before: Frontier
    """The clones that were there."""

    @property
    def loss(self) -> float:
        """By the clones that were there, as a share of what these take; below 0 it is a gain."""
        objective = self.partition.objective
        value = self.before.value(objective)
        return self.partition.chosen.value(objective) / value - 1 if value else 0.0

    def __str__(self) -> str:
        """One sentence."""
        n = self.partition.chosen.clones
        few = "1 clone serves" if n == 1 else f"{n} clones serve"
        than = f"{abs(self.loss):.1%} {'faster' if self.loss < 0 else 'slower'}"
        return f"{few} as {self.before.clones} did, {than} by the models: {self.partition}"


def merge(  # noqa: PLR0913  options by name
    mod: Module,
    traffic: Traffic | None = None,
    *,
    function: str = "main",
    objective: str = "mean",
    log: str | Path | None = None,
    target: str | None = None,
    threads: int = 1,
    worth: float = WORTH,
) -> Merge:
    """Join clones of a dispatched function, where their kernels are the same or as good.

    New buckets begin and end where old ones do; there are 16 at most. Sizes that no clone served
    are as they were; those between clones are served by them.

    Args:
        mod: with clones that run at the true sizes.
        traffic: as that of `partition`.
        function: the name of what was cloned.
        objective: as that of `partition`.
        log: as that of `partition`.
        target: as that of `partition`.
        threads: as that of `partition`.
        worth: what each further clone has to save, as a share of the objective.

    Returns:
        The module, its partition, and what it loses.

    Raises:
        ArgumentError: as `partition`.
        CompileError: as `partition`.
        DispatchError: the function is not dispatched, or its clones are padded.
        LogError: as `partition`.
        ShapeError: as `partition`; a request that no clone serves, too.
        UnknownNameError: there is no such function, objective or target.

    """
    check_module(mod)
    if not is_dispatched(mod.function(function), mod):
        raise DispatchError(f"{function} has no clones: there is nothing to merge")
    clones = clones_of(mod, function)
    origin = origin_of(clones.values(), function)
    buckets = [clone.bucket for clone in clones.values()]
    ends = {s.name: _within(s, buckets) for s in origin.symbols().values() if s.name in buckets[0]}
    if traffic is not None:
        check_traffic(traffic)
        _check_served(traffic, ends)
    alone = Module({function: specialise(origin, dict(ends), function)})
    question = Question.of(
        alone, function, traffic, objective, log=log, target=target, threads=threads
    )
    starts = [_starts(ends.get(s.name, s), buckets) for s in question.symbols]
    its = question.answer(min(BUDGET, len(buckets)), worth, starts)
    fallback = fallback_name(function)
    gone = {function, fallback, *clones}
    # asked for by name: a clone is made when it is asked for
    others = {name: mod.functions[name] for name in mod.functions if name not in gone}
    stay = {name: clone for name, clone in mod.clones.items() if name not in clones}
    whole = Module({**others, function: origin}, stay, mod.names)
    new = dispatch(whole, its, function=function, fallback=fallback in mod.functions)
    return Merge(new, its, question.frontier(choice_of(question, buckets)))


def clones_of(mod: Module, function: str) -> dict[str, Clone]:
    """The clones that the decisions of a function lead to."""
    leaves = (step for step in decisions(mod.function(function)) if isinstance(step, Leaf))
    names = dict.fromkeys(name for leaf in leaves for name in leaf.callees)
    return {name: mod.clones[name] for name in names if name in mod.clones}


def origin_of(clones: Iterable[Clone], function: str) -> Function:
    """What they were made of."""
    first, *others = clones
    if any(c.policy != "exact" for c in (first, *others)):
        raise DispatchError(f"clones of {function} are padded: those that are exact are looked at")
    if first.origin is None or any(c.origin is not first.origin for c in others):
        raise DispatchError(f"of clones of {function} it is not told what they were made of")
    return first.origin


def _within(symbol: Symbol, buckets: Buckets) -> Symbol:
    """The symbol from where buckets begin to where they end."""
    tops = [b[symbol.name][1] for b in buckets]
    low = min(b[symbol.name][0] for b in buckets)
    high = None if None in tops else max(top for top in tops if top is not None) - 1
    return replace(symbol, lo=low, hi=high)


def _check_served(traffic: Traffic, ends: Mapping[str, Symbol]) -> None:
    """Raise ShapeError of a request that is left to the fallback: nothing merged serves it."""
    for name in (name for name in traffic.symbols if name in ends):
        for size in traffic.histogram(name):
            if not ends[name].holds(size):
                theirs = ends[name].range
                raise ShapeError(f"traffic: no clone serves {name}={size}, they serve {theirs}")


def _starts(symbol: Symbol, buckets: Buckets) -> list[int]:
    """Where buckets begin, or end and another may begin."""
    if any(symbol.name not in b for b in buckets):
        return [symbol.lo]
    ends = {end for b in buckets for end in b[symbol.name] if end is not None}
    top = np.inf if symbol.hi is None else symbol.hi
    return [symbol.lo, *sorted(end for end in ends if symbol.lo < end <= top)]


def _boxes(question: Question, buckets: Buckets) -> list[Box]:
    """The sizes of each bucket, of all symbols that are asked about."""
    symbols = question.symbols
    return [tuple(narrow(s, b.get(s.name, (s.lo, None))) for s in symbols) for b in buckets]


def check_served(question: Question, buckets: Buckets) -> None:
    """Raise ShapeError of a request that no bucket holds."""
    points = question.sample.points
    served = held(_boxes(question, buckets), points).any(axis=0)
    if not served.all():
        sizes = ", ".join(f"{s}={n}" for s, n in points[int(served.argmin())].items())
        raise ShapeError(f"traffic: no clone serves {sizes}, and there is no fallback")


def choice_of(question: Question, buckets: Buckets) -> Choice:
    """What clones come to: each point is served by the first that holds it, or by them all."""
    boxes, sample = _boxes(question, buckets), question.sample
    its = question.expect(boxes, sample.points, sample.weights)
    inside = held(boxes, sample.points)
    served = inside.any(axis=0)
    seconds = its.seconds[inside.argmax(axis=0), np.arange(len(sample.points))]
    kernels = [its.every[k] for k in sorted(frozenset[int]().union(*its.kernels))]
    single = question.single.seconds[0]
    return Choice(list(map(dict, buckets)), np.where(served, seconds, single), kernels)
