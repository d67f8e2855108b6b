"""The arrangement of a clone: what is expected to be the best, once its kernels were measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from bucketize.dispatch.bucket import held
from bucketize.ir import Function
from bucketize.kernel.workload import Workload
from bucketize.log.cell import shape_text
from bucketize.lower.alternative import Alternatives
from bucketize.lower.arrangement import USUAL, Arrangement
from bucketize.lower.cost import Seconds, Weighted, is_known
from bucketize.lower.pipeline import simplified
from bucketize.machine.target import Target
from bucketize.program.configuration import Configuration
from bucketize.program.decide import decide
from bucketize.text import show
from bucketize.transform.simplify import simplify
from bucketize.tune.database import Database
from bucketize.tune.samples import kernel_seconds
from bucketize.tune.sizes import WHOLE
from bucketize.tune.task import Point, Spaces, Subject, Task, tasks_in
from bucketize.types import Sizes, evaluate

WORTH = 0.02  # of the latency: less is not worth a race


Known: TypeAlias = dict[Function | str, Alternatives]
"""By the function, and by its text: modules of one model have the same."""


@dataclass(frozen=True, eq=False)
class Arranging:
    """The choice among the arrangements of a clone."""

    subject: Subject
    target: Target
    database: Database
    known: Known
    """What was lowered for other clones of the same function is not lowered again."""
    measure: Callable[[Sequence[tuple[Task, Point]]], None]
    """Has each task's default timed at a point; what came of it is in `database`."""

    def run(self) -> Arrangement:
        """What should be better by the model, and is by what its kernels take; else the usual.

        By the model alone: what is measured of one arrangement says little beside what is expected
        of another.
        """
        hopeful = self.better(self.alternatives.predicted)
        if not hopeful or not self.is_alike:
            return USUAL
        self.measure(self.unknown(hopeful))
        return next((a for a in self.better(self.seconds) if a in hopeful), USUAL)

    def better(self, seconds: Seconds) -> list[Arrangement]:
        """What is worth the trouble by these costs, the best first."""
        ranked = self.alternatives.priced(self.sizes, seconds)
        return [a.arrangement for a in ranked if a.price < 1 - WORTH]

    def unknown(self, hopeful: Sequence[Arrangement]) -> list[tuple[Task, Point]]:
        """The kernels that tell arrangements from the usual one, where they were not measured."""
        usual, apart = self.tasks(USUAL), dict[str, Task]()
        for arrangement in hopeful:
            ours = self.tasks(arrangement)
            differ = ours.keys() ^ usual.keys()
            apart |= {h: task for h, task in (ours | usual).items() if h in differ}
        return [
            (task, point)
            for task in apart.values()
            for point in task.points
            if point.shape not in self.database.made(task, task.default.key)
        ]

    @cached_property
    def alternatives(self) -> Alternatives:
        """The arrangements of the function."""
        function = self.function
        if function not in self.known:
            text = show(simplify(function))
            if text not in self.known:
                threads = self.subject.program.threads
                self.known[text] = Alternatives(function, self.target, threads)
            self.known[function] = self.known[text]
        return self.known[function]

    @cached_property
    def function(self) -> Function:
        """What is arranged: a clone whose shapes are its own, or what clones have in common."""
        module, name = self.subject.module, self.subject.function
        clone = module.clones.get(name, WHOLE)
        if clone.origin is None or clone.policy != "exact":
            return module.functions[name]
        return clone.origin

    @cached_property
    def sizes(self) -> Weighted:
        """Where the clone is judged, those of its symbols that have one size included."""
        clone = self.subject.module.clones.get(self.subject.function, WHOLE)
        pinned = held(clone.bucket, clone.origin.symbols() if clone.origin else {})
        return [({**pinned, **sizes}, weight) for sizes, weight in self.subject.judged]

    @property
    def is_alike(self) -> bool:
        """Whether the clone has the function's ops in the same places: bounds may fold some."""
        fn = self.subject.module.functions[self.subject.function]
        mine = simplified(fn, target=self.alternatives.predicted.target)
        return [b.op for b in mine.body] == [b.op for b in self.alternatives.simple.body]

    def seconds(self, workload: Workload, sizes: Sizes) -> float:
        """What a workload takes: the least that was measured, or else what is expected."""
        if not is_known(workload, sizes):
            return 0.0
        shapes = (p.type.shape for p in workload.body.params)
        shape = shape_text(tuple(evaluate(d, sizes) for d in s) for s in shapes)
        rows = (by_shape.get(shape) for by_shape in self.database.trials[workload.hash].values())
        measured = [kernel_seconds(row) for row in rows if row and row.latency_median_s]
        return min(measured) if measured else self.alternatives.predicted(workload, sizes)

    def tasks(self, arrangement: Arrangement) -> dict[str, Task]:
        """The workloads of the clone in an arrangement, by their hash."""
        subject = self.subject
        program = decide(
            subject.module,
            lambda _: Configuration(arrangement=arrangement),
            target=self.target,
            threads=subject.program.threads,
            executor="auto",
        )
        routine = program.decide(subject.function)
        tasks = tasks_in(routine, subject, subject.judged, Spaces(self.target))
        return {task.workload.hash: task for task in tasks}
