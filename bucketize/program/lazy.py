"""Lazy values: each is made when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from bucketize.fork import ThreadLock

K = TypeVar("K")
V = TypeVar("V")


class Lazy(Generic[K, V]):
    """Values by key, each made when first asked for, by one thread; others go on meanwhile."""

    def __init__(self, make: Callable[[K], V]) -> None:
        """Nothing is made yet."""
        self._make = make
        self._making: dict[K, ThreadLock] = {}
        """Locks of the keys whose values are not there yet."""
        self._made: dict[K, V] = {}

    def __getitem__(self, key: K) -> V:
        if key not in self._made:
            with self._making.setdefault(key, ThreadLock()):
                if key not in self._made:
                    self._made[key] = self.make(key)
            self._making.pop(key, None)  # not where it failed: others may be at it already
        return self._made[key]

    def make(self, key: K) -> V:
        """A value that is asked for."""
        return self._make(key)

    def made(self) -> dict[K, V]:
        """The values that have been asked for."""
        return dict(self._made)
