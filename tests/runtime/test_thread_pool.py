"""Threads that share kernels: each part is run once, in order, whoever comes late."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
import pytest

from bucketize.errors import CompileError
from bucketize.link.link import shared
from bucketize.link.memory import address
from bucketize.machine.target import cores
from bucketize.op import Array
from bucketize.runtime import thread_pool as team
from bucketize.runtime.thread_pool import Run, ThreadPool, check_threads

PROTOTYPE = ctypes.CFUNCTYPE(None, ctypes.c_int64)
WORD = 8
ENOUGH_S = 600.0  # only what hangs takes as long


class Kernels:
    """Kernels in Python: each is told its number and its part."""

    alive: ClassVar[list[Kernels]] = []
    """A run has their addresses alone."""

    def __init__(self, bodies: Sequence[Callable[[int], None]], chunks: Sequence[int]) -> None:
        self.alive.append(self)
        self.threads, count = max([2, *chunks]), len(bodies)
        self.table = np.zeros((count, self.threads), np.int64)
        self.made = [PROTOTYPE(self._kernel(k, body)) for k, body in enumerate(bodies)]
        places = [ctypes.cast(f, ctypes.c_void_p).value or 0 for f in self.made]
        self.kernels, self.chunks = np.array(places, np.int64), np.array(chunks, np.int64)

    def _kernel(self, k: int, body: Callable[[int], None]) -> Callable[[int], None]:
        def call(place: int) -> None:
            body((place - address(self.table)) // WORD - k * self.threads)

        return call

    def shared(self) -> Run:
        """All of them as one run."""
        order = np.array([len(self.made), *range(len(self.made))])
        return Run(self.kernels, order, self.chunks, address(self.table), WORD, self.threads)


def test_each_part_is_run_once_and_kernels_follow_each_other() -> None:
    done: list[tuple[int, int]] = []
    chunks = [2, 1, 1, 2, 1, 2]
    kernels = Kernels(
        [lambda part, k=k: done.append((k, part)) for k in range(6)],  # type: ignore[misc]
        chunks,
    )
    run, together = kernels.shared(), ThreadPool()
    for _ in range(200):
        done.clear()
        together.run(shared(), run)
        assert [k for k, _ in done] == sorted(k for k, _ in done)
        assert sorted(done) == [(k, part) for k in range(6) for part in range(chunks[k])]


def test_parts_are_run_side_by_side() -> None:
    """Each waits until the other has begun: one thread alone would never end."""
    both = threading.Barrier(2, timeout=ENOUGH_S)
    kernels = Kernels([lambda _: _wait(both)] * 3, [2] * 3)
    ThreadPool().run(shared(), kernels.shared())
    assert not both.broken


def _wait(barrier: threading.Barrier) -> None:
    barrier.wait()


@pytest.fixture
def soon_asleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Helpers sleep before they offer their core: on a busy one each offer takes milliseconds."""
    monkeypatch.setenv(team.SPIN, "0")


def test_a_helper_that_sleeps_is_woken(soon_asleep: None) -> None:
    together = ThreadPool()
    for _ in range(2):
        both = threading.Barrier(2, timeout=ENOUGH_S)
        kernels = Kernels([lambda _, both=both: _wait(both)], [2])  # type: ignore[misc]
        together.run(shared(), kernels.shared())
        assert not both.broken
        (helper,) = together._helpers
        end = time.monotonic() + ENOUGH_S
        while not helper.asleep:
            assert time.monotonic() < end
            time.sleep(0.001)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no such call")
@pytest.mark.skipif(cores() == 1, reason="there is no other core")
def test_a_helper_that_is_woken_runs_on_another_core_than_its_caller(soon_asleep: None) -> None:
    mine = os.sched_getaffinity(0)
    cpu = min(mine)
    run, together = Kernels([lambda _: None], [2]).shared(), ThreadPool()
    together.run(shared(), run)
    (helper,) = together._helpers
    begun = time.monotonic()
    while not helper.asleep:
        assert time.monotonic() - begun < ENOUGH_S
        time.sleep(0.01)
    assert helper.native_id
    before = os.sched_getaffinity(helper.native_id)
    try:
        os.sched_setaffinity(0, {cpu})  # the caller is on this core, and may use no other
        together.run(shared(), run)
        assert os.sched_getaffinity(helper.native_id) == before
    finally:
        os.sched_setaffinity(0, mine)
    while len(mine - os.sched_getaffinity(helper.native_id)) != 1:  # it may be awake at times
        assert time.monotonic() - begun < ENOUGH_S
        time.sleep(0.01)
        together.run(shared(), run)


def test_without_helpers_the_caller_runs_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the others never got a core."""
    monkeypatch.setattr(team._Helper, "start", lambda _: None)
    done: list[int] = []
    kernels = Kernels([done.append] * 2, [2, 2])
    ThreadPool().run(shared(), kernels.shared())
    assert done == [0, 1, 0, 1]


def test_what_cannot_be_shared_calls_nobody() -> None:
    together, done = ThreadPool(), []
    kernels = Kernels([done.append] * 3, [1, 1, 1])
    together.run(shared(), kernels.shared())
    together.run(shared(), Kernels([], []).shared())
    assert done == [0, 0, 0]
    assert not together._helpers


def test_new_chunks_are_taken_over_when_told() -> None:
    done: list[int] = []
    kernels = Kernels([done.append], [2])
    run, together = kernels.shared(), ThreadPool()
    kernels.chunks[0] = 1
    run.cut()
    together.run(shared(), run)
    assert done == [0]


def test_memory_that_a_late_helper_reads_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The helper is no thread: it is where the test says that it is."""
    monkeypatch.setattr(team._Helper, "start", lambda _: None)
    done: list[int] = []
    together, run = ThreadPool(), Kernels([done.append], [2]).shared()
    together.run(shared(), run)
    (helper,), old = together._helpers, run.place
    together._board[0, 1, 0] = old  # as a helper says that is still there
    together.run(shared(), run)
    assert run.place != old
    assert set(helper.kept) == {old, run.place}
    others = [Kernels([done.append], [2]).shared() for _ in range(8)]
    for other in others:
        together.run(shared(), other)
        assert set(helper.kept) == {old, other.place}
    together._board[0, 1, 0] = 0
    together.run(shared(), run)
    assert set(helper.kept) == {run.place}
    assert done == [0, 1] * 11


def test_callers_from_several_threads_share_a_pool() -> None:
    together, counts = ThreadPool(), np.zeros(4, np.int64)

    def serve(i: int) -> None:
        def count(_: int) -> None:
            counts[i] += 1

        run = Kernels([count] * 2, [1, 1]).shared() if i % 2 else _shared(counts, i)
        for _ in range(50):
            together.run(shared(), run)

    callers = [threading.Thread(target=serve, args=(i,)) for i in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(ENOUGH_S)
    assert counts.tolist() == [100] * 4


def _shared(counts: Array, i: int) -> Run:
    guard = threading.Lock()

    def count(_: int) -> None:
        with guard:
            counts[i] += 1

    return Kernels([count], [2]).shared()


@pytest.mark.parametrize("threads", [0, cores() + 1, 1.5])
def test_no_more_threads_than_cores(threads: int) -> None:
    with pytest.raises(CompileError, match=f"threads: expected 1 to {cores()}, got {threads}"):
        check_threads(threads)
