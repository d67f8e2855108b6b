"""Drift: whether requests come as they did when buckets were chosen, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bucketize.dispatch.bucket import fallback_name
from bucketize.dispatch.tree import is_dispatched
from bucketize.errors import ArgumentError, DispatchError
from bucketize.ir import Module, check_module
from bucketize.partition.merge import BUDGET, check_served, choice_of, clones_of, origin_of
from bucketize.partition.partition import Question
from bucketize.partition.value import Frontier, Partition
from bucketize.table import several
from bucketize.traffic.drift import ALPHA, SizeChange, changes
from bucketize.traffic.value import Traffic, check_traffic

LOSS = 0.03


@dataclass(frozen=True)
class Drift:
    """A traffic beside the one that buckets were chosen by."""

    changes: tuple[SizeChange, ...]
    """The change of each symbol's sizes, beyond chance or not."""
    now: Frontier
    """What the clones come to on the traffic."""
    best: Partition
    """The partition of as many clones at most for the traffic."""
    limit: float
    """The loss that is borne."""

    @property
    def is_other(self) -> bool:
        """Whether sizes of a symbol differ beyond chance; of few requests little is shown."""
        return any(c.chance < ALPHA / len(self.changes) for c in self.changes)

    @property
    def loss(self) -> float:
        """What clones take more than those that would be chosen now, as a share of these."""
        objective = self.best.objective
        return max(self.now.value(objective) / self.best.chosen.value(objective) - 1, 0.0)

    @property
    def is_costly(self) -> bool:
        """Whether the loss is more than is borne."""
        return self.loss > self.limit

    def __str__(self) -> str:
        """What changed, what it costs, and what to do."""
        of = several(int(self.best.requests), "request")
        what = f"in {of} no change of sizes is shown"
        if self.is_other:
            what = "; ".join(map(str, self.changes))
        cost = f"the clones take {self.loss:.1%} more than those that would be chosen now"
        advice = "choose again" if self.is_costly else "they may stay"
        return f"{what}; {cost}: {advice}"


def drift(  # noqa: PLR0913  options by name
    mod: Module,
    planned: Traffic,
    traffic: Traffic,
    *,
    loss: float = LOSS,
    function: str = "main",
    objective: str = "mean",
    log: str | Path | None = None,
    target: str | None = None,
    threads: int = 1,
) -> Drift:
    """Compare a traffic with the one that the buckets of a dispatched module were chosen by.

    Sizes are compared symbol by symbol: that they come in other pairs is no change. The loss counts
    requests as they are.

    Args:
        mod: dispatched; clones run at the true sizes.
        planned: what the buckets were chosen by.
        traffic: what comes now.
        loss: what is borne: the share that clones may take more than those that would be chosen
            now.
        function: the name of what was cloned.
        objective: as that of `partition`.
        log: as that of `partition`.
        target: as that of `partition`.
        threads: as that of `partition`.

    Returns:
        Whether sizes differ beyond chance, and what that costs by the models.

    Raises:
        ArgumentError: no module, or a loss below 0.
        CompileError: as `partition`.
        DispatchError: the function is not dispatched, or its clones are padded.
        LogError: as `partition`.
        ShapeError: as `partition`; a request that no clone serves, where there is no fallback.
        UnknownNameError: there is no such function, objective, symbol or target.

    """
    check_module(mod)
    for its in (planned, traffic):
        check_traffic(its)
    if not (isinstance(loss, int | float) and loss >= 0):
        raise ArgumentError(f"loss: expected a share from 0, got {loss!r}")
    if not is_dispatched(mod.function(function), mod):
        raise DispatchError(f"{function} has no clones that could fit requests better or worse")
    clones = clones_of(mod, function)
    whole = Module({function: origin_of(clones.values(), function)})
    requests = traffic.without_times()
    question = Question.of(
        whole, function, requests, objective, log=log, target=target, threads=threads
    )
    buckets = [clone.bucket for clone in clones.values()]
    if fallback_name(function) not in mod.functions:
        check_served(question, buckets)
    now = question.frontier(choice_of(question, buckets))
    best = question.answer(min(len(buckets), BUDGET), 0.0)
    return Drift(tuple(changes(planned.without_times(), requests)), now, best, loss)
