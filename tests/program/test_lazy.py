"""Lazy values and forks: a key waits for no other key, a child for no thread of its parent."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from threading import Barrier, Event, Lock, Thread, Timer, current_thread
from typing import Any

import pytest

from bucketize import zoo
from bucketize.dispatch.tree import dispatch
from bucketize.fork import ThreadLock, begins_anew
from bucketize.kernel import build
from bucketize.link.link import core_source
from bucketize.machine.host import host
from bucketize.onnx import from_onnx
from bucketize.program.configuration import defaults
from bucketize.program.decide import decide
from bucketize.program.lazy import Lazy
from dispatchers import log_dispatcher

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


@forking
def test_a_fork_waits_for_the_kernel_that_is_compiled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """LLVM's lock is not taken in the child, which may compile."""
    monkeypatch.setenv("BUCKETIZE_CACHE", str(tmp_path))
    slow, compiled = Slow(), build.compiled

    def slowly(*args: Any) -> bytes:
        with llvm:
            slow("slow" if current_thread() is thread else "fast")
            return compiled(*args)

    sources = [f"{core_source('fill')}# {k}\n" for k in range(2)]
    llvm, thread = Lock(), Thread(target=lambda: build.build(sources[0], "fill"))
    monkeypatch.setattr(build, "compiled", slowly)
    thread.start()
    assert slow.begun.wait(WAIT_S)
    Timer(0.05, slow.may_end.set).start()
    assert in_child(lambda: build.build(sources[1], "fill").address != 0)
    thread.join()


def test_functions_that_differ_are_decided_at_once() -> None:
    """What clones share is one object, whichever thread asks first."""
    mod = dispatch(from_onnx(zoo.build("mlp"), bounds={"N": (1, 64)}), log_dispatcher)
    program = decide(mod, defaults, target=host(), threads=1, executor="auto")
    wanted = decide(mod, defaults, target=host(), threads=1, executor="auto")
    together = Barrier(len(mod.functions))

    def ask(name: str) -> None:
        together.wait(WAIT_S)
        program.decide(name)

    threads = [Thread(target=ask, args=[name]) for name in mod.functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert program.routines.made().keys() == set(mod.functions)
    for name, routine in program.routines.made().items():
        one, other = ([str(c) for c in r.calls()] for r in (routine, wanted.decide(name)))
        assert one == other
    assert len([*program.segments()]) == len([*wanted.segments()])
    assert program.sources == wanted.sources


def test_what_was_made_is_told_without_making_any() -> None:
    mod = from_onnx(zoo.build("mlp"), bounds={"N": (1, 64)})
    routines = decide(mod, defaults, target=host(), threads=1, executor="auto").routines
    assert routines.made() == {}
    assert "0 of them decided" in repr(routines)
    assert set(routines.begun()) == set(routines.made()) == {"main"}
