"""A clone timed against itself: on defaults, and with other implementations, round by round."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np

from bucketize.busy import machine_load
from bucketize.inspect.profile import TimedContext, stopwatch
from bucketize.ir import Module
from bucketize.link.image import Image
from bucketize.link.link import link
from bucketize.log.confidence import ratios
from bucketize.lower.cost import Weighted
from bucketize.machine.host import host
from bucketize.measure.case import random_inputs
from bucketize.op import Array
from bucketize.program.configuration import Configuration
from bucketize.program.decide import decide
from bucketize.program.instruction import KernelCall
from bucketize.program.program import Routine
from bucketize.runtime.vm import Context
from bucketize.timing import TICK_S, turns
from bucketize.types import Sizes

Pair = tuple[list[float], list[float]]
"""The seconds of the rounds, and the default's."""

LEAST, MOST = 9, 201  # rounds; of 9 an interval leaves out the least and the greatest
ENOUGH_S = 0.6  # at each size, on the average; what loses so far is given up before
LONG_S = 5e-3  # what takes longer is assumed to find in the caches what it left there itself
WHOLE = ""  # in the place of a workload


@dataclass(eq=False)
class Race:
    """What times one clone, in this process; a pickle of it has nothing that is linked."""

    module: Module
    function: str
    threads: int

    def __reduce__(self) -> tuple[Any, ...]:
        return Race, (self.module, self.function, self.threads)

    @property
    def load(self) -> float:
        """The load of this machine."""
        return machine_load()

    @cached_property
    def baseline(self) -> tuple[Image, Routine]:
        """The clone on defaults."""
        return self.linked(Configuration())

    def linked(self, configuration: Configuration) -> tuple[Image, Routine]:
        """The clone under a configuration; each time linked anew, as luck may have a part."""
        program = decide(
            self.module,
            lambda _: configuration,
            target=host(),
            threads=self.threads,
            executor="auto",
        )
        routine = program.decide(self.function)
        return link(program), routine

    def places(self, configuration: Configuration, judged: Weighted) -> list[dict[str, Pair]]:
        """At each size the seconds of its workloads between their neighbours, alike ones summed."""
        return self.raced(_Places, configuration, judged, list(configuration.implementations))

    def whole(self, configuration: Configuration, judged: Weighted) -> list[Pair]:
        """At each size the seconds of the whole clone."""
        return [pairs[WHOLE] for pairs in self.raced(_Whole, configuration, judged, [WHOLE])]

    def raced(
        self,
        kind: type[_Runner],
        configuration: Configuration,
        judged: Weighted,
        names: Sequence[str],
    ) -> list[dict[str, Pair]]:
        """Rounds of all sizes, after one that warms up, until nothing is left to be hoped for."""
        sides = self.linked(configuration), self.baseline
        runners = [[kind(*side, self.inputs(sizes)) for side in sides] for sizes, _ in judged]
        for runner in itertools.chain(*runners):
            runner()
        weights = [weight for _, weight in judged]
        rounds: list[dict[str, Pair]] = [{name: ([], []) for name in names} for _ in judged]
        end = time.perf_counter() + ENOUGH_S * len(judged)
        for number, _ in enumerate(zip(*map(_turns, runners), strict=True), 1):
            for sides_of, pairs in zip(runners, rounds, strict=True):
                for name, pair in pairs.items():
                    for seconds, runner in zip(pair, sides_of, strict=True):
                        seconds.append(max(runner.seconds[name], TICK_S))
            is_late = number >= MOST or time.perf_counter() >= end
            if number >= LEAST and (is_late or is_hopeless(rounds, weights)):
                break
        return rounds

    def inputs(self, sizes: Sizes) -> list[Array]:
        """Arrays for the clone's parameters."""
        _, routine = self.baseline
        return list(random_inputs(routine.params, sizes).values())


def is_hopeless(rounds: Sequence[Mapping[str, Pair]], weights: Sequence[float]) -> bool:
    """Whether nothing is faster than the default in more than half of the rounds.

    To stop then makes nothing look better than it is.
    """
    return all(
        np.median(ratios([pairs[name] for pairs in rounds], weights)) >= 1 for name in rounds[0]
    )


def _turns(sides: Sequence[_Runner]) -> Iterator[object]:
    """Rounds of both sides, each right after a run of its own where that makes a difference."""
    named = {str(i): side for i, side in enumerate(sides)}
    short = {name: side for name, side in named.items() if sum(side.seconds.values()) < LONG_S}
    return turns(named, before=short)


class _Places:
    """Runs of a clone whose kernels are timed one by one."""

    def __init__(self, image: Image, routine: Routine, inputs: Sequence[Array]) -> None:
        self.context, self.routine, self.inputs = TimedContext(image), routine, inputs
        self.seconds: dict[str, float] = {}

    def __call__(self) -> None:
        self.seconds = defaultdict(float)
        for timed in self.context.run_once(self.routine, self.inputs):
            if isinstance(timed.what, KernelCall):
                self.seconds[timed.what.workload.hash] += timed.seconds


class _Whole:
    """Runs of a clone that are timed from end to end."""

    def __init__(self, image: Image, routine: Routine, inputs: Sequence[Array]) -> None:
        self.run = partial(Context(image).invoke, routine, inputs)
        self.stopwatch = stopwatch(image.program.threads)
        self.seconds: dict[str, float] = {}

    def __call__(self) -> None:
        self.seconds = {WHOLE: self.stopwatch(self.run)}


_Runner: TypeAlias = _Places | _Whole
