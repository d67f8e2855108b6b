"""Counting of requests as they come: a tally for each context, without a lock, and their sum.

A tally is its context's alone, so that a call only adds 1 in a dict. What holds the sum takes a
lock when a tally is full, when a context is new, and when somebody asks.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Mapping

import numpy as np

from bucketize.errors import warn
from bucketize.traffic.value import Traffic

MOST_SIZES = 65_536
"""Distinct sizes that a counter tells apart; beyond, sizes are rounded up, coarser and coarser."""
MOST_OF_TALLY = 1_024  # distinct sizes that a context keeps before it hands them on

Key = tuple[int, ...]
_COUNTERS: weakref.WeakSet[TrafficCounter] = weakref.WeakSet()


class Tally:
    """Requests by size, of one context: one call at a time adds."""

    __slots__ = ("__weakref__", "_counter", "counts")

    def __init__(self, counter: TrafficCounter) -> None:
        self.counts: dict[Key, int] = {}
        self._counter = counter

    def key(self, sizes: Mapping[str, int]) -> Key:
        """The sizes of the symbols; 0 where an input that is absent would have told it."""
        return tuple([sizes.get(symbol, 0) for symbol in self._counter.symbols])

    def add(self, key: Key) -> None:
        """Count a request."""
        counts = self.counts
        if key in counts:
            counts[key] += 1
        else:
            if len(counts) >= MOST_OF_TALLY:
                self._counter.drain(self)
            self.counts[key] = 1


class TrafficCounter:
    """All requests of an executable in this process, in bounded memory."""

    def __init__(self, symbols: tuple[str, ...]) -> None:
        self.symbols = symbols
        self._tallies: list[tuple[weakref.ref[object], Tally]] = []
        self._start()
        _COUNTERS.add(self)

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[Key, int] = {}
        self._step = 1
        for _, tally in self._tallies:
            tally.counts = {}

    def tally(self, context: object) -> Tally:
        """A tally that lives as long as its context; then what it counted is kept here."""
        with self._lock:
            for reference, tally in self._tallies:
                if reference() is None:
                    self._add(tally.counts)
            self._tallies = [pair for pair in self._tallies if pair[0]() is not None]
            new = Tally(self)
            self._tallies.append((weakref.ref(context), new))
        return new

    def drain(self, tally: Tally) -> None:
        """Take over what a tally counted."""
        with self._lock:
            self._add(tally.counts)
            tally.counts = {}

    def _add(self, counts: Mapping[Key, int]) -> None:
        for key, requests in counts.items():
            rounded = self._rounded(key)
            self._counts[rounded] = self._counts.get(rounded, 0) + requests
        if len(self._counts) > MOST_SIZES:
            self._step *= 2
            finer, self._counts = self._counts, {}
            self._add(finer)

    def _rounded(self, key: Key) -> Key:
        step = self._step
        return key if step == 1 else tuple([max(1, -(-size // step)) * step for size in key])

    def snapshot(self) -> Traffic | None:
        """The traffic so far; None of no request, or no symbol. Warns if sizes are rounded."""
        with self._lock:
            counts, step = dict(self._counts), self._step
            for _, tally in self._tallies:
                for key, requests in tally.counts.copy().items():  # its context may add meanwhile
                    counts[key] = counts.get(key, 0) + requests
        if step > 1:
            warn(f"more than {MOST_SIZES} sizes came: they are rounded up to multiples of {step}")
        if not counts or not self.symbols:
            return None
        return Traffic(self.symbols, np.array([*counts]), np.array([*counts.values()]))


def _start_anew() -> None:
    """In a child of a fork: what the parent counted is the parent's."""
    for counter in _COUNTERS:
        counter._start()


os.register_at_fork(after_in_child=_start_anew)
