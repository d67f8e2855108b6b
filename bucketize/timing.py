"""How long calls take: the one timing loop of the tree."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from typing import TypeAlias

Call: TypeAlias = Callable[[], object]


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
    return min(seconds, time.thread_time() - start)


def interleaved(
    calls: Mapping[str, Call],
    *,
    least: int = 15,
    most: float = math.inf,
    enough_s: float = 0.0,
    before: Mapping[str, Call] | None = None,
    stopwatch: Callable[[Call], float] = wall_seconds,
) -> dict[str, list[float]]:
    """The seconds of every call in each of some rounds; whatever slows the machine, slows all.

    Args:
        calls: what is timed, by name; they take turns, each round in another order, as one may be
            slower after some than after others.
        least: rounds at least.
        most: rounds at most, if they are more than `least`.
        enough_s: no round begins after this time, once there were `least`.
        before: what runs, not timed, right before the call of the same name.
        stopwatch: the seconds of a call.

    """
    taken: dict[str, list[float]] = {name: [] for name in calls}
    rounds, end = 0, time.perf_counter() + enough_s
    order, dice = list(calls), random.Random(0)
    while rounds < least or (rounds < most and time.perf_counter() < end):
        dice.shuffle(order)
        for name in order:
            if before is not None:
                before[name]()
            taken[name].append(stopwatch(calls[name]))
        rounds += 1
    return taken
