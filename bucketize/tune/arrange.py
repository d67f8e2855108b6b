"""The arrangement of a clone: what is expected to be the best, once its kernels were measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from bucketize.dispatch.tree import name_dims
from bucketize.ir import Function
from bucketize.kernel.target import Target
from bucketize.kernel.workload import Workload
from bucketize.lower.alternative import Alternative, alternatives
from bucketize.lower.arrangement import USUAL, Arrangement
from bucketize.lower.price import Predicted, default_of, is_known
from bucketize.program.decide import decide
from bucketize.program.strategy import Strategy
from bucketize.tune.cells import shape_text
from bucketize.tune.knowledge import Knowledge
from bucketize.tune.task import WHOLE, Sizes, Subject, Task, tasks_in
from bucketize.types import evaluate

WORTH = 0.02  # of the latency: less is not worth a race


@dataclass(frozen=True, eq=False)
class Arranging:
    """The choice among the arrangements of a clone."""

    subject: Subject
    target: Target
    knowledge: Knowledge
    measure: Callable[[Sequence[Task]], None]
    """Has each task's default timed at its points; what came of it is in `knowledge`."""

    def run(self) -> Arrangement:
        """What may be better than the usual: by what is known or predicted, then by measurement."""
        first = self.best
        if first != USUAL:
            ours, usual = self.tasks(first), self.tasks(USUAL)
            apart = ((ours | usual)[h] for h in sorted(ours.keys() ^ usual.keys()))
            self.measure([task for task in apart if not self.is_measured(task)])
            first = self.best
        return first

    @property
    def best(self) -> Arrangement:
        """The cheapest, if it is worth the trouble; else the usual one."""
        first, *_ = self.alternatives()
        return first.arrangement if first.price < 1 - WORTH else USUAL

    def alternatives(self) -> list[Alternative]:
        """All that may be best, the cheapest first."""
        return alternatives(self.function, self.subject.judged, self.seconds)

    @cached_property
    def function(self) -> Function:
        """What is arranged."""
        return name_dims(self.subject.module.functions[self.subject.function], least=0)

    @cached_property
    def predicted(self) -> Predicted:
        """What is expected of what was not measured."""
        return Predicted.of(self.function, self.target)

    def seconds(self, workload: Workload, sizes: Sizes) -> float:
        """What a workload takes on its default: as it was measured, or else as is expected."""
        if not is_known(workload, sizes):
            return 0.0
        shapes = (p.type.shape for p in workload.body.params)
        shape = shape_text(tuple(evaluate(d, sizes) for d in s) for s in shapes)
        made = self.knowledge.trials[workload.hash][default_of(workload, self.target).key]
        known = made[shape].latency_median_s if shape in made else None
        return self.predicted(workload, sizes) if known is None else known

    def is_measured(self, task: Task) -> bool:
        """Whether a task's default was, or failed, at all its points."""
        known = self.knowledge.made(task, task.default.key)
        return all(point.shape in known for point in task.points)

    def tasks(self, arrangement: Arrangement) -> dict[str, Task]:
        """The workloads of the clone in an arrangement, by their hash."""
        subject = self.subject
        program = decide(
            subject.module,
            lambda _: Strategy(arrangement=arrangement),
            target=self.target,
            threads=subject.program.threads,
            executor="auto",
        )
        routine = program.decide(subject.function)
        clone = subject.module.clones.get(subject.function, WHOLE)
        found = tasks_in(routine, clone, subject.clone, subject.judged, self.target)
        return {task.workload.hash: task for task in found}
