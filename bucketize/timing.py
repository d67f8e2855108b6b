"""How long calls take: the one timing loop of the tree."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

Call: TypeAlias = Callable[[], object]
TICK_S = 1e-9
"""What is too short for a clock takes a tick of it: times are divided by one another."""
NOTHING: Mapping[str, Call] = {}


def wall_seconds(call: Call) -> float:
    """How long a call takes by the clock on the wall."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def processor_seconds(call: Call) -> float:
    """By the wall's clock, or by the thread's if that is less: asking it takes longer.

    Leaves out time that the system gave to other processes in the midst of a call of one thread.
    """
    start = time.thread_time()
    seconds = wall_seconds(call)
    return max(min(seconds, time.thread_time() - start), TICK_S)


def turns(
    calls: Mapping[str, Call],
    *,
    before: Mapping[str, Call] = NOTHING,
    stopwatch: Callable[[Call], float] = wall_seconds,
) -> Iterator[dict[str, float]]:
    """The seconds of every call, round by round, without end; what slows the machine, slows all.

    Args:
        calls: what is timed, by name; they take turns, each round in another order, as one may be
            slower after some than after others.
        before: what runs, not timed, right before the call of the same name, if anything.
        stopwatch: the seconds of a call.

    """
    order, dice = list(calls), random.Random(0)
    while True:
        dice.shuffle(order)
        taken = {}
        for name in order:
            if name in before:
                before[name]()
            taken[name] = stopwatch(calls[name])
        yield taken


def interleaved(
    calls: Mapping[str, Call],
    *,
    least: int = 15,
    most: float = math.inf,
    enough_s: float = 0.0,
    before: Mapping[str, Call] = NOTHING,
    stopwatch: Callable[[Call], float] = wall_seconds,
) -> dict[str, list[float]]:
    """The seconds of every call in each of some rounds; as `turns`.

    Args:
        calls: as those of `turns`.
        least: rounds at least.
        most: rounds at most, if they are more than `least`.
        enough_s: no round begins after this time, once there were `least`.
        before: as that of `turns`.
        stopwatch: as that of `turns`.

    """
    taken: dict[str, list[float]] = {name: [] for name in calls}
    rounds, end = turns(calls, before=before, stopwatch=stopwatch), time.perf_counter() + enough_s
    number = 0
    while number < least or (number < most and time.perf_counter() < end):
        for name, seconds in next(rounds).items():
            taken[name].append(seconds)
        number += 1
    return taken
