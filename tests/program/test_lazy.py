"""Lazy values and forks: a key waits for no other key, a child for no thread of its parent."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from threading import Event, Thread

import pytest

from bucketize.fork import ThreadLock, begins_anew
from bucketize.program.lazy import Lazy

WAIT_S = 60.0  # only what hangs takes as long
forking = pytest.mark.filterwarnings("ignore:.*fork")


def in_child(does: Callable[[], bool]) -> bool:
    """Whether a child of a fork ends, and says so."""
    child = os.fork()
    if child == 0:
        os._exit(0 if does() else 3)
    end = time.monotonic() + 10
    while (done := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < end:
        time.sleep(0.005)
    if done == (0, 0):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return done == (child, 0)


class Slow:
    """Makes keys, "slow" when it is let."""

    def __init__(self) -> None:
        self.begun, self.may_end, self.calls = Event(), Event(), list[str]()

    def __call__(self, key: str) -> str:
        self.calls.append(key)
        if key == "slow":
            self.begun.set()
            assert self.may_end.wait(WAIT_S)
        return key.upper()


def test_a_key_waits_for_no_other() -> None:
    make = Slow()
    lazy = Lazy(make)
    thread = Thread(target=lambda: lazy["slow"])
    thread.start()
    assert make.begun.wait(WAIT_S)
    asked = Thread(target=lambda: lazy["fast"], daemon=True)
    asked.start()
    asked.join(WAIT_S / 6)
    is_there = "fast" in lazy.made()
    make.may_end.set()
    thread.join()
    assert is_there
    assert lazy.made() == {"slow": "SLOW", "fast": "FAST"}


def test_a_value_is_made_once() -> None:
    make, values = Slow(), list[str]()
    lazy = Lazy(make)
    threads = [Thread(target=lambda: values.append(lazy["slow"])) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert make.begun.wait(WAIT_S)
    make.may_end.set()
    for thread in threads:
        thread.join()
    assert make.calls == ["slow"]
    assert all(value is values[0] for value in values)
    assert not lazy._making


def test_what_could_not_be_made_is_tried_again() -> None:
    tries: list[int] = []

    def make(key: int) -> int:
        tries.append(key)
        if len(tries) == 1:
            raise ValueError("not yet")
        return key

    lazy = Lazy(make)
    with pytest.raises(ValueError, match="not yet"):
        lazy[3]
    assert lazy.made() == {}
    assert lazy[3] == 3


@forking
def test_a_child_makes_what_a_thread_of_its_parent_is_at() -> None:
    make = Slow()
    lazy = Lazy(make)
    thread = Thread(target=lambda: lazy["slow"])
    thread.start()
    assert make.begun.wait(WAIT_S)

    def does() -> bool:
        make.may_end.set()  # the child's own
        return lazy["slow"] == "SLOW" and lazy["fast"] == "FAST"

    try:
        assert in_child(does)
    finally:
        make.may_end.set()
        thread.join()


@forking
def test_who_forks_within_a_lock_has_it_in_the_child() -> None:
    lock = ThreadLock()

    def takes() -> bool:
        taken = list[bool]()
        thread = Thread(target=lambda: taken.append(lock._lock.acquire(blocking=False)))
        thread.start()
        thread.join()
        return taken == [True]

    with lock, lock:
        assert in_child(lambda: not takes())
    assert takes()


@forking
def test_only_what_lives_begins_anew() -> None:
    begun: list[str] = []

    class Noting:
        def begin_anew(self) -> None:
            begun.append("again")

    mine, gone = Noting(), Noting()
    begins_anew(mine)
    begins_anew(gone)
    del gone
    assert in_child(lambda: begun == ["again"])
    assert begun == []
