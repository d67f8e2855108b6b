"""Threads that share kernels: each part is run once, in order, whoever comes late."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import bucketize
from bucketize.errors import BucketizeWarning, CompileError, ShapeError
from bucketize.executable import Executable
from bucketize.ir import Builder, Const, Module, Var
from bucketize.link.link import shared
from bucketize.link.memory import address
from bucketize.machine.target import cores
from bucketize.op import Array
from bucketize.ops import matmul
from bucketize.runtime import state
from bucketize.runtime import thread_pool as team
from bucketize.runtime.thread_pool import TEAM, Run, ThreadPool, check_threads
from bucketize.runtime.vm import Context
from bucketize.types import Symbol, tensor

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
        _until(lambda helper=helper: helper.asleep)  # type: ignore[misc]


def test_a_helper_that_was_rung_for_often_watches_once() -> None:
    """As when it had no core while calls came."""
    watched: list[int] = []
    helper = team._Helper(1, np.zeros((2, team.LINE_WORDS), np.int64), watched.append)
    for _ in range(9):
        helper.bell.release()
    helper.start()
    _until(lambda: helper.asleep and len(watched) > 1)
    assert len(watched) == 2, "once as it begins"


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


class Blocked:
    """A run in another thread that goes on until it is let go."""

    def __init__(self, pool: ThreadPool, threads: int, begun: int) -> None:
        self.parts: list[int] = []
        self._begun, self._end = threading.Barrier(begun + 1), threading.Event()
        run = Kernels([self._part], [threads]).shared()
        self._thread = threading.Thread(target=pool.run, args=(shared(), run))

    def _part(self, part: int) -> None:
        self.parts.append(part)
        if not self._end.is_set():
            with suppress(threading.BrokenBarrierError):
                self._begun.wait(ENOUGH_S)
            self._end.wait(ENOUGH_S)

    def __enter__(self) -> Blocked:
        self._thread.start()
        self._begun.wait(ENOUGH_S)
        self._begun.abort()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(ENOUGH_S)
        assert not self._thread.is_alive()


def test_two_calls_at_once_have_helpers_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(team, "cores", lambda: 8)
    pool = ThreadPool()
    with Blocked(pool, 4, begun=4) as one, Blocked(pool, 3, begun=3) as other:
        assert len(pool._helpers) == 5
        assert (sorted(one.parts), sorted(other.parts)) == ([0, 1, 2, 3], [0, 1, 2])
        both = threading.Barrier(2, timeout=ENOUGH_S)
        pool.run(shared(), Kernels([lambda _: _wait(both)], [2]).shared())
    assert not any(helper.lent for helper in pool._helpers)


def test_a_call_that_finds_no_core_idle_runs_on_its_own_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It waits for nobody: the other call is still under way when it is done."""
    monkeypatch.setattr(team, "cores", lambda: 2)
    pool, threads = ThreadPool(), set()
    with Blocked(pool, 2, begun=2):
        run = Kernels([lambda _: threads.add(threading.get_ident())], [2]).shared()
        for _ in range(20):
            pool.run(shared(), run)
        assert len(pool._helpers) == 1
    assert threads == {threading.get_ident()}


@pytest.mark.parametrize(("under_way", "expected"), [(1, 3), (2, 2), (3, 1), (4, 0), (9, 0)])
def test_each_call_under_way_has_a_core(
    monkeypatch: pytest.MonkeyPatch, under_way: int, expected: int
) -> None:
    """Calls of one thread, too, which ask the pool for nothing."""
    monkeypatch.setattr(team, "cores", lambda: 4)
    pool = ThreadPool()
    pool.calls.update(range(under_way))
    pool.run(shared(), Kernels([lambda _: None], [4]).shared())
    assert len(pool._helpers) == expected


def test_a_call_is_under_way_until_it_returns_or_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    exe, x, seen = net(1), np.ones((3, 256), np.float32), list[int]()
    invoke = Context.invoke

    def counted(*args: Any) -> Any:
        seen.append(len(TEAM.calls))
        return invoke(*args)

    monkeypatch.setattr(Context, "invoke", counted)
    exe.run(x)
    exe.context()(x)
    with pytest.raises(ShapeError):
        exe.run(np.ones((3, 255), np.float32))
    assert seen == [1, 1, 1]
    assert not TEAM.calls


def test_what_the_process_may_use_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, soon_asleep: None
) -> None:
    monkeypatch.setattr(team, "ASKED_S", 0.0)
    monkeypatch.setattr(team, "cores", lambda: 2)
    done: list[int] = []
    pool, run = ThreadPool(), Kernels([lambda _: done.append(threading.get_ident())], [2]).shared()
    pool.run(shared(), run)
    (helper,) = pool._helpers
    _until(lambda: helper.asleep)
    monkeypatch.setattr(team, "cores", lambda: 1)
    lent: list[object] = []
    monkeypatch.setattr(helper, "lend", lent.append)
    done.clear()
    pool.run(shared(), run)
    assert done == [threading.get_ident()] * 2
    assert not lent


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + ENOUGH_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_where_the_system_has_no_thread_the_caller_runs_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(team._Helper, "start", start)
    monkeypatch.setattr(team, "cores", lambda: 4)
    done: list[int] = []
    pool = ThreadPool()
    with pytest.warns(BucketizeWarning, match="on fewer threads .*: can't start new thread"):
        pool.run(shared(), Kernels([done.append], [4]).shared())
    assert done == [0, 1, 2, 3]
    assert not pool._helpers


def test_a_helper_watches_for_so_long_as_the_environment_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(team.SPIN, "3000")
    helper = team._Helper(1, np.zeros((2, team.LINE_WORDS), np.int64), shared())
    begun = time.monotonic_ns()
    helper.share(address(helper.words))
    assert time.monotonic_ns() - begun >= 3_000_000
    monkeypatch.setenv(team.SPIN, "")
    assert team.spin_ns() == 1000 * team.SPIN_US


@pytest.mark.parametrize("text", ["1ms", "-1", "0.5", "9" * 20])
def test_a_time_that_is_none_is_refused_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv(team.SPIN, text)
    with pytest.raises(
        CompileError, match=f"BUCKETIZE_SPIN_US: expected microseconds, got '{text}'"
    ):
        check_threads(1)


N = Symbol("N", 1, 64)


def net(threads: int) -> Executable:
    """A product whose rows threads share."""
    x, b = Var("x", tensor("float32", N, 256)), Builder()
    w = Const(np.random.default_rng(0).random((256, 512), np.float32))
    fn = b.function("main", [x], [b.emit(matmul, x, w)])
    return bucketize.compile(Module({"main": fn}), threads=threads)


@pytest.mark.skipif(cores() == 1, reason="there is no other core")
def test_executables_of_other_threads_called_at_once_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were more cores, so that calls have helpers, lose them, and come late."""
    monkeypatch.setattr(team, "cores", lambda: 4)
    pool = ThreadPool()
    monkeypatch.setattr(state, "TEAM", pool)
    exes, wrong = [net(1), net(2)], list[int]()
    xs = [np.random.default_rng(n).random((n, 256), np.float32) for n in (16, 33, 64)]
    expected = [exes[0].run(x)[0] for x in xs]

    def serve(exe: Executable) -> None:
        for i in range(150):
            (got,) = exe.run(xs[i % 3])
            wrong.extend([i] * (not np.array_equal(got, expected[i % 3])))

    callers = [threading.Thread(target=serve, args=(exes[i > 0],)) for i in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(ENOUGH_S)
    assert not wrong
    assert pool._helpers
    assert not any(helper.lent for helper in pool._helpers)


@pytest.mark.skipif(cores() == 1, reason="there is no other core")
@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_child_of_a_fork_in_the_midst_of_calls_has_a_pool_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exe, x = net(2), np.ones((64, 256), np.float32)
    (before,) = exe.run(x)
    monkeypatch.setattr(team, "cores", lambda: 3)
    with TEAM._lending, Blocked(ThreadPool(), 2, begun=2):
        TEAM.calls.update(range(8))
        child = os.fork()
        if child == 0:
            (after,) = exe.run(x)
            fresh = len(TEAM._helpers) == 1 and not TEAM.calls
            os._exit(0 if fresh and np.array_equal(before, after) else 3)
        TEAM.calls.clear()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_program_for_more_threads_than_there_are_runs_on_those(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As compiled on a large machine, and loaded in a small container."""
    monkeypatch.setattr(team, "cores", lambda: 3)
    exe, x = net(3), np.ones((64, 256), np.float32)
    exe.save(tmp_path / "net.bkt")
    for module in ("loader", "runtime.thread_pool"):
        monkeypatch.setattr(f"bucketize.{module}.cores", lambda: 1)
    with pytest.warns(BucketizeWarning, match="compiled for 3 threads; this process may use 1, wh"):
        loaded = bucketize.load(tmp_path / "net.bkt")
    pool, parts = ThreadPool(), list[int]()
    run = pool.run
    monkeypatch.setattr(pool, "run", lambda share, it: (parts.extend(it.chunks), run(share, it)))
    monkeypatch.setattr(state, "TEAM", pool)
    np.testing.assert_array_equal(loaded.run(x)[0], exe.run(x)[0])
    assert max(parts) == 3
    assert not pool._helpers


ENDS = """
import sys, numpy, bucketize
from bucketize.runtime.thread_pool import TEAM
exe = bucketize.load(sys.argv[1])
exe.run(numpy.ones((64, 256), "float32"))
print(len(TEAM._helpers), TEAM._helpers[0].asleep)
"""


@pytest.mark.skipif(cores() == 1, reason="there is no other core")
def test_a_process_ends_while_a_helper_watches(tmp_path: Path) -> None:
    """A helper would watch for an hour; it is a process that was started anew, too."""
    net(2).save(tmp_path / "net.bkt")
    path = os.pathsep.join(p for p in sys.path if p)
    environment = {**os.environ, "PYTHONPATH": path, team.SPIN: "3600000000"}
    command = [sys.executable, "-P", "-c", ENDS, str(tmp_path / "net.bkt")]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=ENOUGH_S, check=True
    )
    assert (done.stdout.split(), done.stderr) == (["1", "False"], "")


@pytest.mark.parametrize("threads", [0, cores() + 1, 1.5])
def test_no_more_threads_than_cores(threads: int) -> None:
    with pytest.raises(CompileError, match=f"threads: expected 1 to {cores()}, got {threads}"):
        check_threads(threads)
