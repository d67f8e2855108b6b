"""Measuring a machine: what its cores do and what its caches bring, in two or three seconds.

Each probe is a kernel that does one thing; the best of its rounds counts, as whatever else a
machine does makes it slower. Probes whose rounds vary are tried again.
"""

from __future__ import annotations

import logging
import math
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TypeAlias

import numpy as np

from bucketize.busy import watched
from bucketize.errors import BusyWarning, KernelError, warn
from bucketize.inspect.cores import family
from bucketize.inspect.peak import READ, TURNS
from bucketize.inspect.roofline import CHAINS, probe, round_seconds
from bucketize.kernel.emit.writer import FLOAT_BYTES
from bucketize.link.memory import address, empty_bytes
from bucketize.machine.calibration import Calibration, is_wanted, stored, write
from bucketize.machine.host import host, machine_of
from bucketize.machine.speed import TYPICAL, Speed
from bucketize.machine.target import Target, cores
from bucketize.quota import spare_memory

Words: TypeAlias = Callable[[int, int], list[int]]
"""The words of a thread's block in a round."""
LOGGER = logging.getLogger("bucketize")
ROUNDS, PASSES = 20, 2  # of a probe; all of a pass may fall into a slow moment
AGAIN_S = 0.7  # since the probes began, after which none is tried again
CYCLES = 1_000_000  # of a round, or so: long enough for the clock, short between interrupts
NOISE, LOUD = 0.1, 0.5
"""By which half of the rounds may be above the best one: more is tried again, and told."""
CYCLES_OF = ("latency", "exp", "root")  # figures that are less where a core is faster
DIGITS = 3  # that are kept: more would be noise, and let each calibration choose other kernels
NEAR = 12 << 10  # bytes of an array in the first cache: two of them fit into the smallest
PAGE = 4096  # bytes, of which a thread's memory is a multiple
PIECE = 16 << 20  # bytes of memory that are read in a round, others in the next
EIGHTHS, MOST_PART = (1, 2, 3, 4), 64 << 20
"""Eighths of the last cache that are read again and again; and bytes of it at most."""
LEAST_SHARE = 0.01  # of a cache: others leave some
LEAST_BYTES, MOST_BYTES = 2 * PIECE, 512 << 20
FREE_SHARE = 8  # of what is free, that is taken
MEMORY = Path("/proc/meminfo")


def calibrated() -> Target:
    """The machine that this runs on, measured if it never was and BUCKETIZE_CALIBRATE is not 0.

    That it is measured is told on stderr; where that cannot be kept, or done, a warning is logged.
    """
    if host().speed is TYPICAL and is_wanted() and _kept(host()):
        host.cache_clear()
    return host()


@cache
def _kept(target: Target) -> bool:
    """Measure this machine unless another process has, once in this one: whether it is known."""
    if stored(machine_of(target)) is not None:
        return True
    start = time.perf_counter()
    try:
        write(calibrate(target))
    except KernelError as e:
        LOGGER.warning("this machine is not measured, and taken for a typical one: %s", e)
        return False
    took = f"measured this machine in {time.perf_counter() - start:.1f} s, once"
    print(f"{took}: `bucketize calibrate --show`", file=sys.stderr)
    return True


def calibrate(target: Target) -> Calibration:
    """Measure this machine, one core by itself and all of them at once.

    Args:
        target: the machine, with the vectors that may be used.

    Returns:
        What was measured, not kept yet.

    Raises:
        KernelError: the probes cannot be compiled.

    """
    begin = datetime.now(UTC)
    with watched():
        speeds, spreads = zip(*(measured(target, n) for n in sorted({1, cores()})), strict=True)
    spread = max(spreads)
    if spread > LOUD:
        warn(
            f"half of the rounds of a probe took up to {spread:.0%} more than the best: other "
            f"work slows this machine; measure again with `bucketize calibrate` when it is quiet",
            BusyWarning,
        )
    when = begin.isoformat(timespec="seconds")
    machine = machine_of(target)
    alone = least_hindered(speeds[0], speeds[-1])
    its = family(replace(target, speed=alone))
    return Calibration(machine, alone, speeds[-1], its, cores(), round(spread, 3), when)


def least_hindered(alone: Speed, beside: Speed) -> Speed:
    """The speed of a core by itself, which is no slower at anything than one beside others.

    Where it was, others were at work that these probes do not know of. What prefetches are worth is
    no speed: it stays as it was.
    """
    pairs = {name: (value, getattr(beside, name)) for name, value in asdict(alone).items()}
    best = {n: min(both) if n in CYCLES_OF else max(both) for n, both in pairs.items()}
    return Speed(**best | {"prefetch": alone.prefetch})


def measured(target: Target, threads: int) -> tuple[Speed, float]:
    """The speed of each of some threads that work at once, and how noisy the probes were."""
    probes = Probes(target, threads)
    return probes.speed(), probes.spread


class Probes:
    """The probes of some threads that work at once, each on memory of its own."""

    def __init__(self, target: Target, threads: int) -> None:
        """Memory is written to: pages that nobody wrote to are all the same one."""
        self.lanes, self.l1 = target.lanes, target.l1
        self.l2, self.l3 = target.l2, target.l3
        self._last = min(4 * self.l2, (self.l2 + self.l3) // 2)
        self.threads, self.spread = range(threads), 0.0
        self._rounds: defaultdict[tuple[str | int, ...], list[float]] = defaultdict(list)
        self._pool, self._end = ThreadPoolExecutor(threads), time.perf_counter() + AGAIN_S
        share = memory_bytes(target) // threads
        self._piece = min(PIECE, share) // PAGE * PAGE
        self._pieces = share // self._piece
        self._bytes = self._pieces * self._piece
        self._memory = empty_bytes(threads * self._bytes)
        self._near = empty_bytes(threads * 2 * NEAR)
        for array in (self._memory, self._near):
            array.view(np.float32).fill(0.5)

    def speed(self) -> Speed:
        """What each of the threads does."""
        with self._pool:
            for _ in range(PASSES):
                figures = self._figures()
        return Speed(**{name: float(f"{value:.{DIGITS}g}") for name, value in figures.items()})

    def _figures(self) -> dict[str, float]:
        """Figures of a `Speed`, by all rounds so far and some more."""
        hz = self._clock()
        return {
            "ghz": hz / 1e9,
            "fma": CHAINS / (self._multiplied(CHAINS) * hz),
            "loads": self._streamed(self.l1 // 2) / hz / (self.lanes * FLOAT_BYTES),
            "latency": self._multiplied(1) * hz,
            "exp": self._passed("exp") * hz,
            "root": self._passed("root") * hz,
            "l2": self._streamed(self.l2 // 2) / hz,
            "l3": self._streamed(self._last) / hz,
            "l3_share": self._held() / self.l3 if self.l3 > self.l2 else TYPICAL.l3_share,
            "memory": self._streamed(self._piece, self._pieces) / hz,
            "prefetch": self._tiled(prefetches=1) / self._tiled(prefetches=0),
        }

    def _held(self) -> float:
        """Bytes that the last cache usually holds, of so many that it holds the most.

        What others drive out comes from memory: the best of some rounds has the least of that.
        """
        near, far = self._usual(self._last), self._usual(self._piece, self._pieces)
        sizes = sorted({min(self.l3 * n // 8, MOST_PART, self._bytes) for n in EIGHTHS})
        saved = [(far - self._usual(size)) / max(far - near, 1e-15) for size in sizes]
        shares = np.clip(saved, LEAST_SHARE, 1)
        return float((np.array(sizes) * shares).max())

    def _usual(self, size: int, pieces: int = 1) -> float:
        """Seconds for a byte, by the middle one of all rounds: how much is held, varies."""
        size, words = self._stream(size, pieces)
        return float(np.median(self._more("read", words, lanes=self.lanes))) / size

    def _clock(self) -> float:
        """Cycles in a second, by sums of a cycle each."""
        steps = CYCLES // (2 * TURNS)
        return 2 * TURNS * steps / self._best("wait", lambda *_: [steps, 3, 5, 0], lanes=self.lanes)

    def _multiplied(self, chains: int) -> float:
        """Seconds of so many multiply-adds that do not wait for each other."""
        steps = CYCLES // (4 * chains)
        options = {"lanes": self.lanes, "chains": chains}
        return self._best("multiply", lambda i, _: [steps, self._out(i)], **options) / steps

    def _passed(self, name: str) -> float:
        """Seconds for each vector of an array in the first cache."""
        floats, times = NEAR // FLOAT_BYTES, CYCLES * FLOAT_BYTES // NEAR

        def words(i: int, _: int) -> list[int]:
            return [floats, self._out(i) - NEAR, times, self._out(i)]

        seconds = self._best(name, words, lanes=self.lanes)
        return seconds / times / (floats // self.lanes)

    def _out(self, thread: int) -> int:
        """Where a thread writes, behind what it reads."""
        return address(self._near) + (2 * thread + 1) * NEAR

    def _tiled(self, *, prefetches: int) -> float:
        """Bytes a second from memory, read by a product of few rows."""
        return self._streamed(self._piece, self._pieces, "tile", prefetches=prefetches)

    def _streamed(self, size: int, pieces: int = 1, name: str = "read", **options: int) -> float:
        """Bytes a second, read in order: so many in a round, of one of some pieces."""
        size, words = self._stream(size, pieces)
        return size / self._best(name, words, pieces, lanes=self.lanes, **options)

    def _stream(self, size: int, pieces: int) -> tuple[int, Words]:
        """How many bytes a round reads, and its words."""
        step = READ * self.lanes * FLOAT_BYTES
        size = max(min(size, self._bytes) // step, 1) * step
        times = max(PIECE // size, 1) if pieces == 1 else 1

        def words(i: int, turn: int) -> list[int]:
            start = (i * self._pieces + turn % pieces) * self._piece
            floats = size // FLOAT_BYTES
            return [floats, address(self._memory) + start, times, self._out(i)]

        return size * times, words

    def _best(self, name: str, words: Words, pieces: int = 1, **options: int) -> float:
        """The least seconds of all rounds of a probe, of which these are more if they vary.

        Of several pieces it is a lower quartile: a cache may keep some, whatever is read between.
        """
        spread = math.inf
        while spread == math.inf or (spread > NOISE and time.perf_counter() < self._end):
            rounds = self._more(name, words, **options)
            spread = float(np.median(rounds[-ROUNDS:])) / min(rounds) - 1
        self.spread = max(self.spread, spread)
        least = [min(rounds[i::pieces]) for i in range(min(pieces, len(rounds)))]
        return float(np.quantile(least, 0.25, method="higher"))

    def _more(self, name: str, words: Words, **options: int) -> list[float]:
        """The seconds of all rounds of a probe, of which some are made now."""
        kernel = probe(name, **options)
        rounds = self._rounds[name, *words(0, 1), *options.values()]  # one piece has one start
        for turn in range(len(rounds), len(rounds) + ROUNDS):
            blocks = [np.array(words(i, turn), np.int64) for i in self.threads]
            rounds.append(round_seconds(self._pool, kernel, blocks))
        return rounds


def memory_bytes(target: Target) -> int:
    """Bytes that are read from memory: more than the last cache holds, where so much is free."""
    free = {name: int(cells.split()[0]) for name, cells in _told(MEMORY)}
    spare = [free["MemAvailable"] << 10] if "MemAvailable" in free else []
    left = spare_memory()
    spare += [left] if left is not None else []
    most = min([MOST_BYTES, *(n // FREE_SHARE for n in spare)])
    return max(min(4 * max(target.l2, target.l3), most), LEAST_BYTES)


def _told(path: Path) -> Iterator[tuple[str, str]]:
    """The lines of a file of the system: a name and what it says; none where it has no such."""
    with suppress(OSError):
        for line in path.read_text().splitlines():
            name, _, value = line.partition(":")
            yield name, value
