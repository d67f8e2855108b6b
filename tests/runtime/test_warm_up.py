"""Warming up: what is asked for most comes first, within a budget of seconds, beside requests."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread, current_thread
from typing import Any

import numpy as np
import pytest

import bucketize
from bucketize import zoo
from bucketize.background import WarmUp
from bucketize.dispatch.bucket import Bucket
from bucketize.dispatch.tree import dispatch
from bucketize.errors import ArgumentError, CompileError, KernelError
from bucketize.executable import Executable
from bucketize.kernel import build
from bucketize.op import Array
from bucketize.program.instruction import Decide
from bucketize.runtime import vm
from bucketize.text import constants, parse, show
from bucketize.traffic.value import Traffic

BUCKETS: list[Bucket] = [{"N": (1, 4)}, {"N": (4, 16)}, {"N": (16, 65)}]
NAMES = ["main[N=1..3]", "main[N=4..15]", "main[N=16..64]"]


def lazy(
    buckets: list[Bucket] = BUCKETS, *, strict: bool = False, policy: str = "exact"
) -> Executable:
    mod = bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, 64)})
    clones = dispatch(mod, lambda _: buckets, policy=policy)
    return bucketize.compile(clones, lazy=True, strict=strict)


def traffic(counts: dict[int, int]) -> Traffic:
    return Traffic(("N",), np.array([*counts])[:, None], np.array([*counts.values()]))


@pytest.mark.parametrize(
    ("counts", "order"),
    [({2: 9, 8: 1, 20: 1}, [2, 0, 1]), ({2: 100, 8: 2, 20: 1}, [0, 2, 1]), ({8: 1}, [1, 0, 2])],
)
def test_what_is_asked_for_most_comes_first(counts: dict[int, int], order: list[int]) -> None:
    told: list[str] = []
    exe = lazy()
    cold = exe.warm_up(lambda what, *_: told.append(what), traffic=traffic(counts))
    assert [name for name in told if name in NAMES] == [NAMES[k] for k in order]
    assert cold == []
    assert exe.traffic is None


def test_without_time_nothing_is_begun() -> None:
    exe = lazy()
    assert exe.warm_up(traffic=traffic({20: 1}), seconds=0) == [NAMES[2], *NAMES[:2]]
    assert set(exe.routines) == {"main"}


def test_the_load_of_a_bucket_is_that_of_its_requests() -> None:
    mine = Traffic(("N", "S"), np.array([[2, 3], [2, 8], [9, 3]]), np.array([5, 1, 7]))
    assert mine.load({"N": (1, 4)}) == 5 * 6 + 16
    assert mine.load({"N": (1, 4), "S": (3, 8)}) == 30
    assert mine.load({"S": (8, None)}) == 16
    assert mine.load({"N": (50, None)}) == 0
    assert mine.load({"H": (1, 2)}) == 30 + 16 + 7 * 27


@pytest.mark.parametrize("how", ["warm_up", "warm_up_in_background"])
def test_arguments_are_checked(how: str) -> None:
    begin = getattr(lazy(), how)
    with pytest.raises(
        ArgumentError, match=r"traffic: expected a bucketize.Traffic, got \{20: 1\}"
    ):
        begin(traffic={20: 1})
    for seconds in ("5", -1, float("nan")):
        with pytest.raises(ArgumentError, match="seconds: expected a number from 0, got"):
            begin(seconds=seconds)


# --- in the background ----------------------------------------------------------------------------

FALLBACK = "main[fallback]"


def rows(count: int) -> Array:
    return np.random.default_rng(count).standard_normal((count, 784), np.float32)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Event:
    """Nothing is decided behind it: clones stay cold until it is set."""
    opened, make = Event(), WarmUp._make

    def held(self: WarmUp, *args: object) -> None:
        assert opened.wait(60)
        make(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(WarmUp, "_make", held)
    return opened


def served_by(exe: Executable, count: int) -> str:
    return exe.explain(N=count).clone


@pytest.mark.parametrize("strict", [False, True])
def test_the_original_serves_what_is_cold(gate: Event, *, strict: bool) -> None:
    exe, x = lazy(strict=strict), rows(5)
    warming = exe.warm_up_in_background(traffic=traffic({20: 1}))
    (meanwhile,) = exe.run(x)
    assert served_by(exe, 5) == FALLBACK
    assert set(exe.routines) == {"main", FALLBACK}
    assert warming.cold == [NAMES[2], *NAMES[:2]]
    assert repr(warming) == "<warm-up, on its way: 3 clones are cold>"
    gate.set()
    assert warming.wait() == warming.cold == []
    assert repr(warming) == "<warm-up, over: 0 clones are cold>"
    (then,) = exe.run(x)
    np.testing.assert_allclose(meanwhile, then, rtol=1e-5, atol=1e-6)
    assert served_by(exe, 5) == NAMES[1]
    requests = {bucket.clone: bucket.requests for bucket in exe.report().buckets}
    assert requests == {FALLBACK: 1, NAMES[1]: 1}


def test_a_clone_serves_as_soon_as_it_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, opened, make = Event(), Event(), WarmUp._make

    def held(self: WarmUp, name: str, *args: object) -> None:
        if name == NAMES[1]:
            begun.set()
            assert opened.wait(60)
        make(self, name, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(WarmUp, "_make", held)
    exe = lazy()
    exe.run(rows(1))  # compiled at its first use: no original stands in for it
    warming = exe.warm_up_in_background(traffic=traffic({20: 1}))
    assert begun.wait(60)
    assert [served_by(exe, n) for n in (2, 5, 20)] == [NAMES[0], FALLBACK, NAMES[2]]
    opened.set()
    assert warming.wait() == []


def test_what_no_time_is_left_for_compiles_at_its_first_use() -> None:
    exe = lazy()
    assert exe.warm_up_in_background(seconds=0).wait() == NAMES
    exe.run(rows(5))
    assert served_by(exe, 5) == NAMES[1]


def test_or_never_if_that_is_forbidden() -> None:
    exe = lazy(strict=True)
    with pytest.raises(CompileError, match="compiling at a call is forbidden"):
        exe.run(rows(5))
    assert exe.warm_up_in_background(seconds=0).wait() == NAMES
    exe.run(rows(5))
    assert served_by(exe, 5) == FALLBACK
    with pytest.raises(CompileError, match="compiling at a call is forbidden"):
        exe.run_clone(NAMES[1], rows(5))


def test_who_stops_it_waits_for_the_clone_on_its_way(gate: Event) -> None:
    exe = lazy()
    warming = exe.warm_up_in_background()
    warming._stopped.set()
    assert warming.wait(timeout=0.01) == NAMES
    gate.set()
    assert len(warming.stop()) >= 2
    exe.run(rows(60))
    assert served_by(exe, 60) == NAMES[2]


def test_what_went_wrong_is_told_to_who_waits_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise KernelError("no room in the cache")

    exe = lazy()
    monkeypatch.setattr(WarmUp, "_make", fails)
    warming = exe.warm_up_in_background()
    with pytest.raises(KernelError, match="no room in the cache"):
        warming.wait()
    assert "warming up ended with 3 clones cold: no room in the cache" in caplog.text
    exe.run(rows(5))
    assert served_by(exe, 5) == NAMES[1]


def test_kernels_are_built_by_another_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of one row it is known that it goes with each of the other's: another kernel."""
    asked, here = list[str](), set[str]()
    build_one, compiled = build.Builders.build, build._compile
    monkeypatch.setenv("BUCKETIZE_CACHE", str(tmp_path))
    monkeypatch.setattr(build, "_built", {})

    def counted(self: build.Builders, source: str, hint: str) -> None:
        asked.append(hint)
        build_one(self, source, hint)

    def noted(*args: Any) -> Any:
        here.add(current_thread().name)
        return compiled(*args)

    monkeypatch.setattr(build.Builders, "build", counted)
    monkeypatch.setattr(build, "_compile", noted)
    mod = parse("def @main(%x: float32[N, 8], %y: float32[M, 8]) { %0 = add(%x, %y) return %0 }")
    exe = bucketize.compile(dispatch(mod, lambda _: [{"N": (1, 2)}]), lazy=True)
    assert exe.warm_up_in_background().wait() == []
    assert asked
    assert here == {"MainThread"}  # the original's


def test_another_executable_takes_over(gate: Event) -> None:
    exe, other = lazy(), lazy([{"N": (1, 30)}, {"N": (30, 65)}])
    warming = exe.warm_up_in_background()
    exe.replace(other)
    gate.set()
    assert warming.wait() == NAMES[1:]
    assert exe.image is other.image
    exe.run(rows(5))
    assert served_by(exe, 5) == "main[N=1..29]"
    assert set(exe.routines) == {"main", "main[N=1..29]"}


def test_one_warm_up_gives_way_to_another(gate: Event) -> None:
    exe = lazy()
    gate.set()
    first = exe.warm_up_in_background()
    second = exe.warm_up_in_background()
    assert "over" in repr(first)
    assert second.wait() == []
    assert [served_by(exe, n) for n in (2, 5, 20)] == NAMES


def test_a_clone_that_failed_is_stood_in_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is decided, and not compiled."""

    def fails(*_: object) -> None:
        raise KernelError("no room in the cache")

    exe = lazy(strict=True)
    with monkeypatch.context() as patch:
        patch.setattr("bucketize.background.warm", lambda *_: None)
        patch.setattr("bucketize.background.sources", fails)
        patch.setattr(WarmUp, "_compile", lambda *_: None)
        warming = exe.warm_up_in_background()
        with pytest.raises(KernelError, match="no room"):
            warming.wait()
    assert NAMES[0] in exe.routines
    exe.warm_up_in_background(seconds=0).wait()
    assert [served_by(exe, n) for n in (2, 5, 20)] == [FALLBACK] * 3


def test_what_is_told_of_the_original(gate: Event) -> None:
    exe = lazy()
    exe.warm_up_in_background()
    assert "main[fallback]" in str(exe.explain(N=5))
    assert exe.program.routines.get("nobody") is None
    gate.set()


def test_padded_clones_have_no_original() -> None:
    exe = lazy(policy="pad")
    assert exe.warm_up_in_background(seconds=0).wait() == NAMES
    assert set(exe.routines) == {"main"}
    exe.run(rows(5))
    assert set(exe.routines) == {"main", NAMES[1]}


@pytest.mark.parametrize("own", [False, True], ids=["run", "context"])
def test_requests_are_those_of_the_clone_that_serves_them(gate: Event, *, own: bool) -> None:
    exe = lazy()
    run = exe.context() if own else exe.run
    warming = exe.warm_up_in_background()
    run(rows(5))
    gate.set()
    warming.wait()
    for count in (20, 5, 20, 5):
        run(rows(count))
    requests = {bucket.clone: bucket.requests for bucket in exe.report().buckets}
    assert requests == {FALLBACK: 1, NAMES[1]: 2, NAMES[2]: 2}


def test_a_call_in_flight_gives_back_a_context_that_nobody_takes(gate: Event) -> None:
    exe = lazy()
    warming = exe.warm_up_in_background()
    exe.run(rows(5))
    before = exe._serving
    taken = before.idle.pop()
    gate.set()
    warming.wait()
    before.idle.append(taken)
    exe.run(rows(5))
    requests = {bucket.clone: bucket.requests for bucket in exe.report().buckets}
    assert requests == {FALLBACK: 1, NAMES[1]: 1}


def test_clones_that_were_parsed_have_no_original() -> None:
    mod = bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, 64)})
    mod = dispatch(mod, lambda _: BUCKETS)
    exe = bucketize.compile(parse(show(mod), constants(mod)), lazy=True)
    assert exe.warm_up_in_background().wait() == []
    assert set(exe.routines) == {"main", *NAMES}


def test_what_is_compiled_or_loaded_is_run(tmp_path: Path) -> None:
    compiled = bucketize.compile(lazy().module)  # type: ignore[arg-type]
    compiled.save(tmp_path / "mlp.bkt")
    for exe in (compiled, bucketize.load(tmp_path / "mlp.bkt")):
        assert exe.warm_up_in_background(seconds=0).wait() == NAMES
        assert exe.warm_up_in_background().wait() == []
        assert set(exe.routines) == {"main", *NAMES}


def test_requests_from_many_threads_meanwhile() -> None:
    exe, wrong = lazy(), list[int]()
    want = {n: bucketize.compile(lazy().module).run(rows(n))[0] for n in (1, 5, 20, 64)}  # type: ignore[arg-type]
    over = Event()

    def ask(sizes: list[int], run: Callable[..., list[Array]]) -> None:
        while not over.is_set():
            for n in sizes:
                (got,) = run(rows(n))
                if not np.allclose(got, want[n], rtol=1e-4, atol=1e-5):
                    wrong.append(n)

    own = exe.context()
    threads = [
        Thread(target=ask, args=a) for a in (([1, 20], exe.run), ([64, 5], exe.run), ([5], own))
    ]
    for thread in threads:
        thread.start()
    warming = exe.warm_up_in_background()
    assert warming.wait() == []
    over.set()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_serves_may_change_within_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that calls on (`nonzero` is no single segment) has its results, and is counted."""
    mod = parse("def @main(%x: float32[N, 4]) { %0 = nonzero(%x) return %0 }")
    exe = bucketize.compile(dispatch(mod, lambda _: [{"N": (1, 4)}, {"N": (4, 17)}]))
    decide, routines = vm.RUN[Decide], exe.program.routines

    def changing(*args: Any) -> None:
        routines.take_over([])  # as a warm-up does, from a thread of its own
        decide(*args)

    monkeypatch.setitem(vm.RUN, Decide, changing)
    for count in (2, 3, 3, 3, 5, 16, 2):
        (indices,) = exe.run(np.ones((count, 4), np.float32))
        assert indices.shape == (2, 4 * count)
    assert exe.traffic is not None
    assert exe.traffic.total == 7


def test_the_last_of_what_was_warmed_up_goes_when_it_is_replaced() -> None:
    exe = lazy()
    warming = exe.warm_up_in_background()
    assert warming.wait() == []
    image = weakref.ref(exe.image)
    exe.replace(lazy())
    gc.collect()
    assert image() is None
    assert repr(warming) == "<warm-up, over: 0 clones are cold>"
