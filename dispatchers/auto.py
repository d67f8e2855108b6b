"""Buckets where the best kernels change, and as few as lose nothing."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from bucketize.errors import DispatchError
from bucketize.ir import Module
from bucketize.partition.partition import BUDGET, WORTH, partition
from bucketize.partition.value import Partition
from bucketize.types import Shape
from dispatchers.axis import Intervals, check_options

Rule: TypeAlias = Callable[..., Partition]


class PartitionDispatcher:
    """A dispatcher that looks at the whole module: `dispatch` asks it for a partition.

    Args:
        rule: `rule(mod, function, **options)` gives the partition.
        **options: keyword-only parameters of the rule.

    Raises:
        DispatchError: the rule has no such option.

    """

    def __init__(self, rule: Rule, **options: Any) -> None:
        functools.update_wrapper(self, rule)
        check_options(rule, options)
        self.rule, self.options = rule, options

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"<dispatcher {self.rule.__name__}({options})>"

    def with_options(self, **options: Any) -> PartitionDispatcher:
        """The same dispatcher with other options; others stay."""
        return PartitionDispatcher(self.rule, **self.options | options)

    def of_module(self, mod: Module, function: str = "main") -> Partition:
        """The partition of a function: what it says, and what it is expected to buy.

        Raises:
            DispatchError: nothing is dynamic, or the function is dispatched already.

        """
        return self.rule(mod, function, **self.options)

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
