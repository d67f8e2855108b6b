"""Buckets where the best kernels change, and as few as lose nothing."""

from __future__ import annotations

from collections.abc import Mapping

from bucketize.errors import DispatchError
from bucketize.ir import Module
from bucketize.partition.partition import BUDGET, WORTH, partition
from bucketize.partition.value import Partition
from bucketize.types import Shape
from dispatchers.axis import Intervals, RuleDispatcher


class PartitionDispatcher(RuleDispatcher):
    """A dispatcher that looks at the whole module: `dispatch` asks it for a partition.

    Args:
        rule: `rule(mod, function, **options)` gives the partition.
        **options: keyword-only parameters of the rule.

    Raises:
        DispatchError: the rule has no such option.

    """

    def of_module(self, mod: Module, function: str = "main") -> Partition:
        """The partition of a function: what it says, and what it is expected to buy.

        Raises:
            DispatchError: nothing is dynamic, or the function is dispatched already.

        """
        its: Partition = self.rule(mod, function, **self.options)
        return its

    def __call__(self, _shapes: Mapping[str, Shape]) -> Intervals:
        """Raise: shapes alone do not tell where kernels change."""
        name = self.rule.__name__
        raise DispatchError(f"{name} goes by the model: pass it to dispatch(mod, {name})")


@PartitionDispatcher
def auto(
    mod: Module,
    function: str,
    *,
    budget: int = BUDGET,
    threads: int = 1,
    target: str | None = None,
    worth: float = WORTH,
) -> Partition:
    """Choose as few buckets as lose nothing, by the models of kernels; one where one is enough.

    Args:
        mod: the module.
        function: what is cloned.
        budget: the most clones.
        threads: that share each kernel.
        target: where they run, by its name; None: this machine.
        worth: what each further clone has to save, as a share of time.

    Returns:
        The partition; its text says what it is expected to buy.

    """
    return partition(
        mod, function=function, budget=budget, target=target, threads=threads, worth=worth
    )
