"""The arrangement of a clone: what is expected to be the best, once its kernels were measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from bucketize.dispatch.tree import name_dims
from bucketize.ir import Function
from bucketize.kernel.target import Target
from bucketize.kernel.workload import Workload
from bucketize.lower.alternative import Alternatives
from bucketize.lower.arrangement import USUAL, Arrangement
from bucketize.lower.price import Predicted, Seconds, is_known
from bucketize.program.decide import decide
from bucketize.program.family import family_of
from bucketize.program.strategy import Strategy
from bucketize.transform.simplify import simplify
from bucketize.tune.cells import shape_text
from bucketize.tune.knowledge import Knowledge
from bucketize.tune.record import CLOCK
from bucketize.tune.task import WHOLE, Point, Sizes, Spaces, Subject, Task, tasks_in
from bucketize.types import evaluate

WORTH = 0.02  # of the latency: less is not worth a race


Known: TypeAlias = dict[object, Alternatives]
"""By the family of clones, or the clone."""


@dataclass(frozen=True, eq=False)
class Arranging:
    """The choice among the arrangements of a clone."""

    subject: Subject
    target: Target
    knowledge: Knowledge
    known: Known
    """What other clones of the family have looked for is not looked for again."""
    measure: Callable[[Sequence[tuple[Task, Point]]], None]
    """Has each task's default timed at a point; what came of it is in `knowledge`."""

    def run(self) -> Arrangement:
        """What should be better by the model, and is by what its kernels take; else the usual.

        By the model alone: what is measured of one arrangement says little beside what is expected
        of another.
        """
        hopeful = self.better(self.predicted)
        if not hopeful or not self.is_alike:
            return USUAL
        self.measure(self.unknown(hopeful))
        return next((a for a in self.better(self.seconds) if a in hopeful), USUAL)

    def better(self, seconds: Seconds) -> list[Arrangement]:
        """What is worth the trouble by these costs, the best first."""
        found = self.alternatives.priced(self.subject.judged, seconds)
        return [a.arrangement for a in found if a.price < 1 - WORTH]

    def unknown(self, hopeful: Sequence[Arrangement]) -> list[tuple[Task, Point]]:
        """The kernels that tell arrangements from the usual one, where they were not measured."""
        usual, found = self.tasks(USUAL), dict[str, Task]()
        for arrangement in hopeful:
            ours = self.tasks(arrangement)
            found |= {h: (ours | usual)[h] for h in ours.keys() ^ usual.keys()}
        return [
            (task, point)
            for task in found.values()
            for point in task.points
            if point.shape not in self.knowledge.made(task, task.default.key)
        ]

    @cached_property
    def alternatives(self) -> Alternatives:
        """Those of the family, looked for at the sizes of the first of it that asks."""
        key, function = self.family
        if key not in self.known:
            ends = sorted(self.subject.judged, key=lambda size: math.prod(size[0].values()))
            sizes = [ends[:1], ends[-1:]]
            self.known[key] = Alternatives(function(), sizes, self.predicted)
        return self.known[key]

    @property
    def family(self) -> tuple[object, Callable[[], Function]]:
        """What names the clones that are lowered alike, and their function."""
        module, name = self.subject.module, self.subject.function
        clone = module.clones.get(name)
        found = None if clone is None or clone.policy != "exact" else family_of(clone)
        key, function = found or (self.subject.clone, lambda: module.functions[name])
        return key, lambda: name_dims(function(), least=0)

    @property
    def is_alike(self) -> bool:
        """Whether the clone has the ops of its family in the same places: bounds may fold some."""
        mine = simplify(name_dims(self.subject.module.functions[self.subject.function], least=0))
        return [b.op for b in mine.body] == [b.op for b in self.alternatives.simple.body]

    @cached_property
    def predicted(self) -> Predicted:
        """What is expected of what was not measured."""
        subject = self.subject
        function = subject.module.functions[subject.function]
        return Predicted.of(function, self.target, subject.program.threads)

    def seconds(self, workload: Workload, sizes: Sizes) -> float:
        """What a workload takes: the least that was measured, or else what is expected."""
        if not is_known(workload, sizes):
            return 0.0
        shapes = (p.type.shape for p in workload.body.params)
        shape = shape_text(tuple(evaluate(d, sizes) for d in s) for s in shapes)
        rows = (made.get(shape) for made in self.knowledge.trials[workload.hash].values())
        known = [
            max(row.latency_median_s - CLOCK.get(row.host_cpu, 0.0), row.latency_median_s / 2)
            for row in rows
            if row and row.latency_median_s
        ]
        return min(known) if known else self.predicted(workload, sizes)

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
        found = tasks_in(routine, clone, subject.clone, subject.judged, Spaces(self.target))
        return {task.workload.hash: task for task in found}
