"""Forks: a child has one thread of its parent's, so what the others were at begins anew there."""

from __future__ import annotations

import os
from threading import RLock
from typing import Protocol
from weakref import WeakSet


class BeginsAnew(Protocol):
    """What has to begin anew in a child of a fork."""

    def begin_anew(self) -> None:
        """Forget what only other threads could end."""


_EVERY: WeakSet[BeginsAnew] = WeakSet()


def begins_anew(one: BeginsAnew) -> None:
    """Have an object begin anew in each child of a fork, for as long as it lives."""
    _EVERY.add(one)


def _in_child() -> None:
    for one in _EVERY:
        one.begin_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


class ThreadLock:
    """A lock, for `with`, that its thread may take again; in a child no other thread has it."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = RLock()
        begins_anew(self)

    def begin_anew(self) -> None:
        """Be free, but for the thread that forked, which goes on with what it has."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._lock = RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
