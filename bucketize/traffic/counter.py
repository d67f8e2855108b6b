"""Counting of requests as they come: a tally for each context, without a lock, and their sum.

A tally is its context's alone, so that a call only adds 1 in a dict. What holds the sum takes a
lock when a bin of time is over, when a context forgets its cells, when one is new, and when
somebody asks.
"""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from bucketize.errors import unknown_name, warn
from bucketize.fork import begins_anew
from bucketize.release import rest
from bucketize.traffic.latency import Latencies
from bucketize.traffic.rows import Integers, grouped

if TYPE_CHECKING:
    from bucketize.traffic.value import Traffic

MOST_SIZES = 65_536
ENDLESS = np.iinfo(np.int64).max
"""Sizes, each once for each bin of time, that a counter tells apart; beyond, bins are made wider,
and where one is left sizes are rounded up, coarser and coarser."""
LATEST = 1 / 16
"""The share of them in a dict, where one of two symbols takes 136 bytes; in arrays it takes 32."""
MOST_TIMES = 256  # bins: of a day 8 minutes each, of a week an hour

Key: TypeAlias = tuple[int, ...]
Rows: TypeAlias = tuple[Integers, Integers]
"""A time and a size of each symbol; how many requests each of them stands for."""
Clones: TypeAlias = dict[str, Latencies]
"""By the name of a clone its requests."""
Shared: TypeAlias = tuple[Mapping[str, int], str, float]
"""The sizes of a request that shared a call, the clone that served it, its part of the seconds."""


class Cell:
    """Requests of a size: a call adds 1, and looks nothing up."""

    __slots__ = ("clone", "latencies", "requests")

    def __init__(self, clone: str, latencies: Latencies) -> None:
        self.clone, self.latencies, self.requests = clone, latencies, 0


class Tally:
    """Requests by size, of one context, in one bin of time: one call at a time adds."""

    __slots__ = (*("__weakref__", "_cells", "_counter", "_noted"), *("clones", "end", "time"))

    def __init__(self, counter: TrafficCounter, clones: Clones) -> None:
        self.clones = clones
        """Where requests of clones are handed on to."""
        self.time, self.end = 0, 0.0
        """The second that the bin began with; when it is over, as `time.perf_counter` tells."""
        self._cells: dict[Key, Cell] = {}
        self._noted: Clones = {}
        self._counter = counter

    def cell(self, sizes: Mapping[str, int], clone: str) -> Cell:
        """What counts the requests of sizes that a clone serves, until cells are forgotten.

        The size is 0 where an input that is absent would have told it.
        """
        key = tuple([sizes.get(symbol, 0) for symbol in self._counter.symbols])
        if key not in self._cells:
            self._cells[key] = Cell(clone, self._noted.setdefault(clone, Latencies()))
        return self._cells[key]

    def forget_cells(self) -> None:
        """Hand on what was counted: all sizes are new, and another clone may serve them."""
        self._counter.drain(self)
        self._cells = {}

    def turn(self, now: float) -> None:
        """Begin the bin of time that `now` is in; what was counted is handed on."""
        self._counter.drain(self)
        self.time, self.end = self._counter.bin_at(now)

    def taken(self) -> dict[Key, int]:
        """Requests counted so far, by time and size; its context may add meanwhile."""
        cells = self._cells.copy().items()
        return {(self.time, *key): cell.requests for key, cell in cells if cell.requests}

    def hand_on(self, clones: Clones) -> None:
        """Add the requests of each clone."""
        cells = self._cells.copy().values()  # first: a new one comes behind its clone
        for clone, noted in self._noted.copy().items():
            clones.setdefault(clone, Latencies()).add(noted)
        for cell in cells:
            clones[cell.clone].requests += cell.requests

    def clear(self) -> None:
        """Count from nothing."""
        for cell in self._cells.values():
            cell.requests = 0
        for noted in self._noted.values():
            noted.weights.clear()


class TrafficCounter:
    """All requests of an executable in this process, in bounded memory."""

    def __init__(
        self, symbols: tuple[str, ...], ends: Mapping[str, tuple[int, int | None]] | None = None
    ) -> None:
        """Nothing came yet.

        Args:
            symbols: whose sizes are counted.
            ends: by symbol what its sizes are multiples of, and the largest; None: it has no end.

        """
        self.symbols = symbols
        self._units, self._most = np.zeros((2, len(symbols)), np.int64)
        self.widen(ends or {})
        self._tallies: list[tuple[weakref.ref[object], Tally]] = []
        self.begin_anew()
        begins_anew(self)

    def widen(self, ends: Mapping[str, tuple[int, int | None]]) -> None:
        """Count sizes of these ends, too."""
        for i, symbol in enumerate(self.symbols):
            unit, most = ends.get(symbol, (1, None))
            self._units[i] = math.gcd(self._units[i], unit)
            self._most[i] = max(self._most[i], ENDLESS if most is None else most)

    def begin_anew(self) -> None:
        """Count from nothing: in a child of a fork what the parent counted is the parent's."""
        self._lock = threading.Lock()
        self._latest: dict[Key, int] = {}
        """Requests by time and size: seconds since it began, and a size of each symbol."""
        self._settled: Rows = np.empty((0, 1 + len(self.symbols)), np.int64), np.empty(0, np.int64)
        """All that came before."""
        self._step = self._span = 1
        now = time.time()
        self._began = int(now)
        self._origin = time.perf_counter() - (now - self._began)
        for _, tally in self._tallies:
            tally.clear()
            tally.clones.clear()
            tally.end = 0.0

    def tally(self, context: object, clones: Clones) -> Tally:
        """A tally that lives as long as its context; then what it counted is kept here.

        Requests by clone go to `clones`.
        """
        with self._lock:
            new = Tally(self, clones)
            living = [(weakref.ref(context), new)]
            for reference, tally in self._tallies:
                if reference() is None:
                    self._take(tally)
                else:  # asked once: it may die meanwhile
                    living.append((reference, tally))
            self._tallies = living
        return new

    def count(self, requests: Iterable[Shared], clones: Clones) -> None:
        """Count requests that came together; no context serves one by itself."""
        second, _ = self.bin_at(time.perf_counter())
        with self._lock:
            for sizes, clone, seconds in requests:
                self._add((second, *[sizes.get(symbol, 0) for symbol in self.symbols]), 1)
                its = clones.setdefault(clone, Latencies())
                its.requests += 1
                its.note(seconds, 1)

    def drain(self, tally: Tally) -> None:
        """Take over what a tally counted."""
        with self._lock:
            self._take(tally)
            tally.clear()

    def _take(self, tally: Tally) -> None:
        tally.hand_on(tally.clones)
        for key, requests in tally.taken().items():
            self._add(key, requests)

    def _add(self, key: Key, requests: int) -> None:
        self._latest[key] = self._latest.get(key, 0) + requests
        if len(self._latest) > LATEST * MOST_SIZES:
            self._settle()

    def _settle(self) -> None:
        latest, self._latest = self._latest, {}
        self._settled = self._joined(self._settled, latest)
        while len(self._settled[0]) > MOST_SIZES:
            if self._settled[0][:, 0].max() >= self._span:
                self._span *= 2
            else:
                self._step *= 2
            self._settled = self._joined(self._settled, {})

    def _joined(self, rows: Rows, more: Mapping[Key, int]) -> Rows:
        """Rows and some more, as coarse as all are by now, each once, by time."""
        keys, each = (np.array([*its], np.int64) for its in (more, more.values()))
        whole = np.concatenate([rows[0], keys.reshape(len(each), -1)]) if more else rows[0].copy()
        whole[:, 0] -= whole[:, 0] % self._span
        whole[:, 1:] = self._rounded(whole[:, 1:], slice(None))
        order, starts = grouped([*whole.T])
        requests = np.concatenate([rows[1], each])[order]
        return whole[order][starts], np.add.reduceat(requests, starts)

    def _rounded(self, sizes: Integers, symbols: slice | list[int]) -> Integers:
        """Sizes of some symbols as coarse as they are by now."""
        if self._step == 1:
            return sizes
        unit = self._step * self._units[symbols]
        rounded: Integers = np.minimum(-(-sizes // unit) * unit, self._most[symbols])
        return rounded

    def as_counted(self, traffic: Traffic) -> Traffic:
        """A traffic of some of the symbols with its sizes rounded, as those counted are by now.

        Raises ArgumentError for no traffic, UnknownNameError for another symbol.
        """
        rest("bucketize.traffic.value").check_traffic(traffic)
        for symbol in traffic.symbols:
            if symbol not in self.symbols:
                raise unknown_name("symbol", symbol, self.symbols)
        places = [self.symbols.index(symbol) for symbol in traffic.symbols]
        return replace(traffic, sizes=self._rounded(traffic.sizes, places))

    def bin_at(self, now: float) -> tuple[int, float]:
        """The bin of a moment: `Tally.time` and `Tally.end`. All are twice as wide if too many."""
        with self._lock:
            second = max(int(now - self._origin), 0)
            if second >= self._span * MOST_TIMES:
                while second >= self._span * MOST_TIMES:
                    self._span *= 2
                self._settle()
            begin = second // self._span * self._span
            return begin, self._origin + begin + self._span

    def snapshot(self) -> Traffic | None:
        """The traffic so far; None of no request, or no symbol. Warns if sizes are rounded."""
        with self._lock:
            self._settle()
            settled, step, began = self._settled, self._step, self._began
            for _, tally in self._tallies:
                settled = self._joined(settled, tally.taken())
        if step > 1:
            warn(f"more than {MOST_SIZES} sizes came: they are rounded up, {step} of them to one")
        rows, each = settled
        if not len(each) or not self.symbols:
            return None
        value = rest("bucketize.traffic.value")
        traffic: Traffic = value.Traffic(self.symbols, rows[:, 1:], each, began + rows[:, 0])
        return traffic

    def by_clone(self, clones: Clones) -> Clones:
        """The requests so far of contexts whose requests go to `clones`."""
        every: Clones = {}
        with self._lock:
            for clone, latencies in clones.items():
                every.setdefault(clone, Latencies()).add(latencies)
            for _, tally in self._tallies:
                if tally.clones is clones:
                    tally.hand_on(every)
        return every
