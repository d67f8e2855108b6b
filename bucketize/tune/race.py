"""A clone timed against itself: on defaults, and with other implementations, round by round."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bucketize.ir import Module
from bucketize.kernel.target import host
from bucketize.op import Array
from bucketize.program.decide import decide
from bucketize.program.instruction import KernelCall
from bucketize.program.program import Routine
from bucketize.program.strategy import Strategy
from bucketize.runtime.image import Image
from bucketize.runtime.link import link
from bucketize.runtime.profile import TimedContext, stopwatch
from bucketize.runtime.vm import Context
from bucketize.timing import Call, interleaved
from bucketize.tune.case import random_array
from bucketize.types import Sizes

if TYPE_CHECKING:
    from bucketize.tune.task import Subject

Pair = tuple[list[float], list[float]]
"""The seconds of the rounds, and the default's."""

LEAST, MOST, ENOUGH_S = 9, 201, 0.6  # of 9 the interval leaves out the least and the greatest
TICK_S = 1e-9  # of the clock: what is too short for it, of which nothing is left, takes one


@dataclass(eq=False)
class Race:
    """What times one clone, in this process; a pickle of it has nothing that is linked."""

    module: Module
    function: str
    threads: int
    _last: tuple[Strategy, tuple[Image, Routine]] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, subject: Subject) -> Race:
        """That of a subject's clone."""
        return cls(subject.module, subject.function, subject.program.threads)

    def __reduce__(self) -> tuple[Any, ...]:
        return Race, (self.module, self.function, self.threads)

    @cached_property
    def baseline(self) -> tuple[Image, Routine]:
        """The clone on defaults."""
        return self.linked(Strategy())

    def contender(self, strategy: Strategy) -> tuple[Image, Routine]:
        """The clone under a strategy, linked once for all sizes of one question.

        The next question links anew: where memory lies may make a contender fast by chance.
        """
        if self._last is None or self._last[0] is not strategy:
            self._last = strategy, self.linked(strategy)
        return self._last[1]

    def linked(self, strategy: Strategy) -> tuple[Image, Routine]:
        """The clone under a strategy."""
        program = decide(
            self.module, lambda _: strategy, target=host(), threads=self.threads, executor="auto"
        )
        routine = program.decide(self.function)
        return link(program), routine

    def places(self, strategy: Strategy, sizes: Sizes) -> dict[str, Pair]:
        """The seconds of its workloads between their neighbours, of those that are alike all."""
        inputs = self.inputs(sizes)
        found: dict[str, Pair] = defaultdict(lambda: ([], []))
        runs = [
            _Watched(TimedContext(image), routine, inputs)
            for image, routine in (self.contender(strategy), self.baseline)
        ]
        self.rounds(runs)
        for side, run in enumerate(runs):
            for by_workload in run.seconds[2::2]:
                for workload in strategy.implementations:
                    found[workload][side].append(max(by_workload[workload], TICK_S))
        return dict(found)

    def whole(self, strategy: Strategy, sizes: Sizes) -> Pair:
        """The seconds of the whole clone."""
        inputs = self.inputs(sizes)
        ours, theirs = self.rounds(
            [
                partial(Context(image).invoke, routine, inputs)
                for image, routine in (self.contender(strategy), self.baseline)
            ]
        )
        return ours, theirs

    def rounds(self, runs: Sequence[Call]) -> list[list[float]]:
        """The seconds of each of some runs in each round, after one that warms up."""
        for run in runs:
            run()
        named = {str(i): run for i, run in enumerate(runs)}
        watch = stopwatch(self.threads)
        taken = interleaved(
            named, least=LEAST, most=MOST, enough_s=ENOUGH_S, before=named, stopwatch=watch
        )
        return list(taken.values())

    def inputs(self, sizes: Sizes) -> list[Array]:
        """Arrays for the clone's parameters."""
        dice = np.random.default_rng(0)
        _, routine = self.baseline
        return [random_array(dice, p.type, sizes) for p in routine.params]


class _Watched:
    """Runs of a clone whose kernels are timed one by one."""

    def __init__(self, context: TimedContext, routine: Routine, inputs: Sequence[Array]) -> None:
        self.context, self.routine, self.inputs = context, routine, inputs
        self.seconds: list[dict[str, float]] = []

    def __call__(self) -> None:
        of: dict[str, float] = defaultdict(float)
        for timed in self.context.run_once(self.routine, self.inputs):
            if isinstance(timed.what, KernelCall):
                of[timed.what.workload.hash] += timed.seconds
        self.seconds.append(of)
