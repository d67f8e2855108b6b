"""The timing loop, and how far results are apart."""

from __future__ import annotations

import math
import time
from functools import partial

import numpy as np
import pytest

from bucketize.compare import relative_error, worst_error
from bucketize.timing import TICK_S, interleaved, processor_seconds, wall_seconds


def test_calls_take_turns_each_after_what_goes_before_it() -> None:
    order: list[str] = []
    calls = {name: lambda name=name: order.append(name) for name in "abc"}  # type: ignore[misc]
    before = {name: lambda name=name: order.append(name.upper()) for name in "abc"}  # type: ignore[misc]
    taken = interleaved(calls, least=40, before=before)
    assert order[::2] == [name.upper() for name in order[1::2]]
    rounds = ["".join(order[i + 1 : i + 6 : 2]) for i in range(0, len(order), 6)]
    assert set(rounds) == {"abc", "acb", "bac", "bca", "cab", "cba"}, "none follows always the same"
    assert {name: len(seconds) for name, seconds in taken.items()} == {"a": 40, "b": 40, "c": 40}
    assert all(s >= 0 for seconds in taken.values() for s in seconds)


@pytest.mark.parametrize(
    ("least", "most", "enough_s", "rounds"),
    [(2, 5, math.inf, 5), (2, 5, 0.0, 2), (7, 5, math.inf, 7)],
)
def test_rounds_go_on_until_there_are_enough(
    least: int, most: int, enough_s: float, rounds: int
) -> None:
    calls = {"a": lambda: None}
    taken = interleaved(
        calls, least=least, most=most, enough_s=enough_s, stopwatch=lambda call: 1.0
    )
    assert taken == {"a": [1.0] * rounds}


@pytest.mark.parametrize(("wall", "thread", "taken"), [(5.0, 2.0, 2.0), (2.0, 2.5, 2.0)])
def test_time_that_others_had_does_not_count(
    monkeypatch: pytest.MonkeyPatch, wall: float, thread: float, taken: float
) -> None:
    """Asking the thread's clock takes longer, which does not count either."""
    now = {"perf_counter": 10.0, "thread_time": 20.0}
    for clock in now:
        monkeypatch.setattr(time, clock, partial(now.__getitem__, clock))

    def call() -> None:
        now["perf_counter"] += wall
        now["thread_time"] += thread

    assert wall_seconds(call) == wall
    assert processor_seconds(call) == taken


def test_what_is_too_short_for_the_clock_takes_a_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "thread_time", lambda: 1.0)
    assert processor_seconds(lambda: None) == TICK_S


@pytest.mark.parametrize(
    ("got", "expected", "error"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 2.5], [1.0, 2.0], 0.25),
        ([0.5], [0.0], 0.5),
        ([], [], 0.0),
        ([np.inf, 1.0], [np.inf, 1.0], 0.0),
        ([np.nan, 1.5], [np.nan, 1.0], 0.5),
        ([np.nan, 1.0], [0.0, 1.0], np.inf),
        ([np.inf, 1.0], [-np.inf, 1.0], np.inf),
        ([np.nan, 1.0], [np.inf, 1.0], np.inf),
        ([0.0, 1.0], [-np.inf, 1.0], np.inf),
        ([1, 2], [1, 2], 0.0),
        ([1, 2], [1, 3], np.inf),
    ],
)
def test_relative_error(got: list[float], expected: list[float], error: float) -> None:
    mine, theirs = np.array(got), np.array(expected)
    assert relative_error(mine, theirs) == error
    assert worst_error([theirs, mine], [theirs, theirs]) == error


def test_errors_of_scalars_and_of_nothing() -> None:
    """What has no axes is no array any more, once it was computed with."""
    assert relative_error(np.float32(3), np.float32(2)) == 0.5
    assert relative_error(np.array(3, np.float32), np.array(2, np.float32)) == 0.5
    assert relative_error(np.zeros(0, np.float32), np.zeros(0, np.float32)) == 0
