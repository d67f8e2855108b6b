"""Counting of requests as they come: a tally for each context, without a lock, and their sum.

A tally is its context's alone, so that a call only adds 1 in a dict. What holds the sum takes a
lock when a tally is full, when a context is new, and when somebody asks.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from bucketize.errors import warn
from bucketize.traffic.value import Traffic

MOST_SIZES = 65_536
"""Distinct sizes that a counter tells apart; beyond, sizes are rounded up, coarser and coarser."""
MOST_OF_TALLY = 1_024  # distinct sizes that a context keeps before it hands them on

Key: TypeAlias = tuple[int, ...]
Cell: TypeAlias = list[int]
"""Of one number: a call adds 1 to it, and looks nothing up."""
_COUNTERS: weakref.WeakSet[TrafficCounter] = weakref.WeakSet()


class Tally:
    """Requests by size, of one context: one call at a time adds."""

    __slots__ = ("__weakref__", "_counter", "counts")

    def __init__(self, counter: TrafficCounter) -> None:
        self.counts: dict[Key, Cell] = {}
        self._counter = counter

    def cell(self, sizes: Mapping[str, int]) -> Cell:
        """What counts the requests of sizes, until the next cell is asked for.

        The size is 0 where an input that is absent would have told it.
        """
        key = tuple([sizes.get(symbol, 0) for symbol in self._counter.symbols])
        cell = self.counts.get(key)
        if cell is None:
            if len(self.counts) >= MOST_OF_TALLY:
                self._counter.drain(self)
            cell = self.counts[key] = [0]
        return cell

    def taken(self) -> dict[Key, int]:
        """What it counted so far; its context may add meanwhile."""
        return {key: cell[0] for key, cell in self.counts.copy().items()}


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
            for cell in tally.counts.values():
                cell[0] = 0

    def tally(self, context: object) -> Tally:
        """A tally that lives as long as its context; then what it counted is kept here."""
        with self._lock:
            for reference, tally in self._tallies:
                if reference() is None:
                    self._add(tally.taken())
            self._tallies = [pair for pair in self._tallies if pair[0]() is not None]
            new = Tally(self)
            self._tallies.append((weakref.ref(context), new))
        return new

    def drain(self, tally: Tally) -> None:
        """Take over what a tally counted."""
        with self._lock:
            self._add(tally.taken())
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
        return key if step == 1 else tuple([-(-size // step) * step for size in key])

    def snapshot(self) -> Traffic | None:
        """The traffic so far; None of no request, or no symbol. Warns if sizes are rounded."""
        with self._lock:
            counts, step = dict(self._counts), self._step
            for _, tally in self._tallies:
                for key, requests in tally.taken().items():
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
