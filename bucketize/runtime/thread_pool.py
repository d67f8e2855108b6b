"""Several threads that run a table's kernels: the caller, and helpers that wait to be called.

A helper watches for some milliseconds after a run, then sleeps. The caller never waits for one that
has begun nothing, so that a core that others use costs that core's help, and no more.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from threading import Lock, Semaphore, Thread

import numpy as np

from bucketize.errors import CompileError
from bucketize.link.block import SHARE, WATCH
from bucketize.link.ffi import Native
from bucketize.link.memory import address
from bucketize.link.table import block
from bucketize.machine.target import cores
from bucketize.op import Array

ONE, NONE = np.array([1, 0]), np.array([0])
"""Orders: of a kernel that is alone, and of none at all."""
BOARD, KNOWN = SHARE.board, WATCH.known
WATCHING, RUNNING = 0, 1
PATIENCE = 5000  # looks
LINE_WORDS = 8  # of a cache line
MOST_KEPT = 8  # runs whose memory is kept without a look at whether it must be


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
        order, chunks = map(address, self.copies)
        words = {"threads": self.threads, "kernels": address(self.kernels), "order": order}
        words |= {"table": self.table, "stride": self.stride, "chunks": chunks}
        words |= {"states": address(self.states), "apart": self.apart * self.states.itemsize}
        self.words = block(SHARE, what=RUNNING, **words)
        self.place, self.word = address(self.words), self.words.data
        self.word[SHARE.place] = self.place
        self.memory = self.words, self.states, self.copies, self.kernels
        self.cut()

    def cut(self) -> None:
        """Take over order and chunks."""
        self.is_cut = True
        count, *order = self.order.tolist()
        chunks = self.chunks.tolist()
        self.alone = all(chunks[i] == 1 for i in order[:count])

    def begin(self) -> None:
        """Nothing is begun, nothing is done."""
        self.states.fill(0)
        if self.is_cut:
            for copy, of in zip(self.copies, (self.order, self.chunks), strict=True):
                copy[:] = of
            self.is_cut = False


class _Helper(Thread):
    """A thread that takes part in all runs that it hears of in time."""

    def __init__(self, board: Array, me: int, share: Native) -> None:
        super().__init__(name=f"bucketize-{me}", daemon=True)
        self.board, self.share = board, share
        words = {"board": address(board), "patience": PATIENCE}
        self.words = block(WATCH, what=WATCHING, me=me, **words)
        self.asleep, self.bell = False, Semaphore(0)

    def wake(self) -> None:
        """Have it watch again, if it does not."""
        if self.asleep:
            _keep_apart(self.native_id)
            self.bell.release()

    def run(self) -> None:
        """Watch, and sleep, for as long as the process lives."""
        while True:
            self.share(address(self.words))
            self.asleep = True
            if self.board[0, 0] == self.words[KNOWN]:
                self.bell.acquire()
            self.asleep = False


class ThreadPool:
    """The threads of a process; one run at a time."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew: a process that was forked has none of its parent's threads."""
        self._running = Lock()
        self._helpers: list[_Helper] = []
        self._kept: dict[int, object] = {}
        self._board = np.zeros((2 + cores(), LINE_WORDS), np.int64)
        self._line = address(self._board[1])

    def run(self, share: Native, run: Run) -> None:
        """Call all kernels, one after the other; `share` is the code of `link.native.share`."""
        with self._running:
            if run.place in self._board[2:, 0].tolist():
                run.renew()
            run.begin()
            run.word[BOARD] = 0 if run.alone else self._call(run, share)
            share(run.place)  # nothing can come between telling of the run and its end

    def _call(self, run: Run, share: Native) -> int:
        """Have the helpers watch; the address of the word by which they will know of the run."""
        self._keep(run)
        wanted = run.threads - 1
        while len(self._helpers) < wanted:
            self._helpers.append(_Helper(self._board, len(self._helpers) + 1, share))
            self._helpers[-1].start()
        for helper in self._helpers[:wanted]:
            helper.wake()
        return self._line

    def _keep(self, run: Run) -> None:
        """Let go of the memory that no helper reads."""
        self._kept[run.place] = run.memory
        if len(self._kept) > MOST_KEPT:
            at = {run.place, *self._board[2:, 0].tolist()}
            self._kept = {place: memory for place, memory in self._kept.items() if place in at}


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
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=TEAM.forget)


def check_threads(threads: int, most: int | None = None) -> None:
    """Refuse more threads than that, or than there are cores."""
    most = most or cores()
    if not isinstance(threads, int) or not 1 <= threads <= most:
        raise CompileError(f"threads: expected 1 to {most}, got {threads!r}")
