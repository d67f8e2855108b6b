"""The threads of a process: those that call executables, and helpers that take part of the work.

All executables have them in common. A call takes helpers that no other call has, no more than there
are cores beside those of the calls under way, and never waits for one. A helper watches for some
time after a run, then sleeps. The caller never waits for one that has begun nothing, so that a core
that others use costs that core's help, and no more.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from contextlib import suppress
from threading import Lock, Semaphore, Thread
from time import monotonic

import numpy as np

from bucketize.errors import CompileError, warn
from bucketize.fork import begins_anew
from bucketize.link.block import CALL, SHARE, WATCH
from bucketize.link.ffi import Native
from bucketize.link.memory import address
from bucketize.link.table import block
from bucketize.machine.target import cores
from bucketize.op import Array

ONE, NONE = np.array([1, 0]), np.array([0])
"""Orders: of a kernel that is alone, and of none at all."""
WATCHING, RUNNING = 0, 1
HELPERS = int(SHARE.helpers)  # members of enumerations take longer to find
SPIN = "BUCKETIZE_SPIN_US"
SPIN_US = 2000
"""How long a helper watches after a run: calls that follow sooner find it awake."""
MOST_DIGITS = 12  # eleven days of watching: nanoseconds fit a word
LINE_WORDS = 8  # of a cache line
MOST_THREADS = 1024  # of a call, on whatever machine
ASKED_S = 1.0  # how often it is asked which cores the process may use


def spin_ns() -> int:
    """How long a helper watches after a run before it sleeps, as the environment has it.

    Raises CompileError if that is no number of microseconds.
    """
    text = os.environ.get(SPIN) or str(SPIN_US)
    if not text.isdecimal() or len(text) > MOST_DIGITS:
        raise CompileError(f"{SPIN}: expected microseconds, got {text!r}")
    return 1000 * int(text)


class Run:
    """A table of kernels that several threads run, as often as wanted, one run at a time."""

    def __init__(
        self, kernels: Array, order: Array, chunks: Array, table: int, stride: int, threads: int
    ) -> None:
        """What is run.

        Args:
            kernels: their addresses.
            order: how many are run, and then which.
            chunks: for each the parts in use, 1 or as many as threads; call `cut` when these two
                have changed.
            table: the address of the first block of the first kernel.
            stride: bytes between two blocks; each kernel has one for each thread.
            threads: at most as many take part.

        """
        self.kernels, self.order, self.chunks = kernels, order, chunks
        self.table, self.stride = table, stride
        self.threads, self.apart = threads, len(kernels) + LINE_WORDS
        self.renew()

    def renew(self) -> None:
        """Take new memory: a helper that came late may still read the old."""
        self.copies = self.order.copy(), self.chunks.copy()
        self.states = np.zeros((self.threads, self.apart), np.int64)
        self.lines = np.zeros(self.threads, np.int64)
        order, chunks = map(address, self.copies)
        words = {"threads": self.threads, "kernels": address(self.kernels), "order": order}
        words |= {"table": self.table, "stride": self.stride, "chunks": chunks}
        words |= {"states": address(self.states), "apart": self.apart * self.states.itemsize}
        self.words = block(SHARE, what=RUNNING, lines=address(self.lines), **words)
        self.place, self.word = address(self.words), self.words.data
        self.word[SHARE.place], self.line = self.place, self.lines.data
        self.memory = self.words, self.states, self.copies, self.kernels
        self.cut()

    def cut(self) -> None:
        """Take over order and chunks."""
        self.is_cut = True
        count, *order = self.order.tolist()
        chunks = self.chunks.tolist()
        self.alone = all(chunks[i] == 1 for i in order[:count])

    def begin(self, helpers: Sequence[_Helper]) -> None:
        """Nothing is begun, nothing is done; these take part."""
        self.states.fill(0)
        for i, helper in enumerate(helpers):
            self.line[i] = helper.line
        self.word[HELPERS] = len(helpers)
        if self.is_cut:
            for copy, of in zip(self.copies, (self.order, self.chunks), strict=True):
                copy[:] = of
            self.is_cut = False


class _Helper(Thread):
    """A thread that takes part in the runs that it is called to in time."""

    def __init__(self, number: int, lines: Array, share: Native) -> None:
        super().__init__(name=f"bucketize-{number}", daemon=True)
        self.lines, self.line, self.share = lines, address(lines), share
        self.words = block(WATCH, what=WATCHING, line=self.line, patience_ns=spin_ns())
        self.asleep, self.bell = False, Semaphore(0)
        self.lent = False
        """Whether a run has it."""
        self.kept: dict[int, object] = {}
        """The memory of the runs that it may be at, by their places."""

    def lend(self, run: Run) -> None:
        """Have it watch, and keep what it will read, and what it still reads, being late."""
        self.lent = True
        if len(self.kept) != 1 or run.place not in self.kept:
            at = self.lines[1, 0]
            self.kept = {place: memory for place, memory in self.kept.items() if place == at}
            self.kept[run.place] = run.memory
        if self.asleep:
            _keep_apart(self.native_id)
            self.bell.release()

    def run(self) -> None:
        """Watch, and sleep, for as long as the process lives."""
        while True:
            self.share(address(self.words))
            self.asleep = True
            if not self.lines[0, CALL.run]:
                self.bell.acquire()
            self.asleep = False
            while self.bell.acquire(blocking=False):
                pass  # runs that came before it was awake: it would watch anew for each


class ThreadPool:
    """The helpers of a process, and the calls that they are lent to."""

    def __init__(self) -> None:
        self.calls: set[object] = set()
        """The contexts that a call is in: each has a thread of its own."""
        self.begin_anew()

    def begin_anew(self) -> None:
        """Begin anew: a process that was forked has none of its parent's threads."""
        self.calls.clear()
        self._lending = Lock()
        self._helpers: list[_Helper] = []
        self._board = np.zeros((MOST_THREADS, 2, LINE_WORDS), np.int64)
        self._at = self._board.reshape(-1).data[LINE_WORDS :: 2 * LINE_WORDS]
        """The place of the run that each helper is at."""
        self._cores, self._asked_s = 1, -ASKED_S

    def run(self, share: Native, run: Run) -> None:
        """Call all kernels, one after the other; `share` is the code of `link.native.share`."""
        lent: list[_Helper] = []
        try:
            with self._lending:
                if run.place in self._at[: len(self._helpers)].tolist():
                    run.renew()
                if not run.alone:
                    self._lend(run, share, lent)
            run.begin(lent)
            share(run.place)  # nothing can come between telling of the run and its end
        finally:
            for helper in lent:
                helper.lent = False

    def _lend(self, run: Run, share: Native, lent: list[_Helper]) -> None:
        """Add to `lent` the helpers that a run gets."""
        now = monotonic()
        if now - self._asked_s >= ASKED_S:
            self._cores, self._asked_s = cores(), now
        idle = [helper for helper in self._helpers if not helper.lent]
        taken = len(self._helpers) - len(idle)
        room = min(run.threads, self._cores - taken - max(len(self.calls) - 1, 0)) - 1
        while len(idle) < room and self._start(share):
            idle.append(self._helpers[-1])
        for helper in idle[: max(room, 0)]:
            lent.append(helper)  # first: an interrupt leaves none lent to nobody
            helper.lend(run)

    def _start(self, share: Native) -> bool:
        """Start another helper; whether the system has one."""
        number = len(self._helpers)
        helper = _Helper(number + 1, self._board[number], share)
        try:
            helper.start()
        except RuntimeError as e:
            warn(f"calls run on fewer threads than they were compiled for: {e}")
            return False
        self._helpers.append(helper)
        return True


def _keep_apart(thread: int | None) -> None:
    """Let a thread, by the system's number, run on any core but the caller's.

    Linux often wakes a thread on the core of who wakes it, and for some milliseconds leaves both
    there, whatever else is idle.
    """
    if thread is None or not hasattr(os, "sched_setaffinity"):
        return
    here = ctypes.PyDLL(None).sched_getcpu()
    if others := os.sched_getaffinity(0) - {here}:
        with suppress(OSError):  # the system took these cores away
            os.sched_setaffinity(thread, others)


TEAM = ThreadPool()
begins_anew(TEAM)


def check_threads(threads: int, most: int | None = None) -> None:
    """Refuse more threads than that, or than there are cores, and helpers that cannot be made."""
    spin_ns()
    most = most or cores()
    if not isinstance(threads, int) or not 1 <= threads <= most:
        raise CompileError(f"threads: expected 1 to {most}, got {threads!r}")
