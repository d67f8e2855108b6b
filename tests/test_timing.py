"""The timing loop, and how far results are apart."""

from __future__ import annotations

import time

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
    [(2, 5, 60.0, 5), (2, 5, 0.0, 2), (7, 5, 60.0, 7)],
)
def test_rounds_go_on_until_there_are_enough(
    least: int, most: int, enough_s: float, rounds: int
) -> None:
    calls = {"a": lambda: None}
    taken = interleaved(
        calls, least=least, most=most, enough_s=enough_s, stopwatch=lambda call: 1.0
    )
    assert taken == {"a": [1.0] * rounds}


def test_a_thread_that_sleeps_takes_no_time_on_the_processor() -> None:
    assert wall_seconds(lambda: time.sleep(0.02)) >= 0.02
    assert processor_seconds(lambda: time.sleep(0.02)) < 0.02


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
        ([np.nan, 1.0], [0.0, 1.0], np.inf),
        ([0.0, 1.0], [-np.inf, 1.0], np.inf),
        ([1, 2], [1, 2], 0.0),
        ([1, 2], [1, 3], np.inf),
    ],
)
def test_relative_error(got: list[float], expected: list[float], error: float) -> None:
    mine, theirs = np.array(got), np.array(expected)
    assert relative_error(mine, theirs) == error
    assert worst_error([theirs, mine], [theirs, theirs]) == error
