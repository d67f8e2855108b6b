"""Memory that calls lend each other, that is given back, and a limit to it."""

from __future__ import annotations

import os
import signal
import threading
import time
import weakref
from collections.abc import Iterator

import numpy as np
import pytest
from onnx_model import parse

import bucketize
from bucketize import ops, zoo
from bucketize.errors import ArgumentError, CompileError, ShapeError
from bucketize.executable import Executable
from bucketize.ir import Builder, Const, Module, Var
from bucketize.link import memory
from bucketize.link.memory import ARENAS, HUGE_PAGE, UNLENT, Arena, ArenaPool
from bucketize.onnx import from_onnx
from bucketize.runtime.gate import Gate
from bucketize.runtime.serving import Serving
from bucketize.types import Symbol, tensor

pytestmark = pytest.mark.usefixtures("few_registers")


@pytest.fixture(autouse=True)
def empty() -> Iterator[None]:
    ARENAS.trim()
    yield
    ARENAS.trim()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that all believe."""
    now = [0.0]
    monkeypatch.setattr(memory, "monotonic", lambda: now[0])
    return now


def mlp() -> Executable:
    return bucketize.compile(bucketize.from_onnx(zoo.build("mlp")))


def mixing() -> Executable:
    """Rows do not keep apart."""
    x, b = Var("x", tensor("float32", Symbol("N", 1), 64)), Builder()
    y = b.emit(ops.matmul, x, Const(np.ones((64, 64), np.float32)))
    y = b.emit(ops.sub, y, b.emit(ops.reduce_sum, y, axes=(0,), keepdims=True))
    return bucketize.compile(Module({"main": b.function("main", [x], [y])}))


def data(n: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal((n, 784)).astype(np.float32)


# --- arenas ---------------------------------------------------------------------------------------


def test_executables_lend_each_other_their_memory() -> None:
    one, other = mlp(), mlp()
    want = other.run(data(300))
    ARENAS.trim()
    one.run(data(300))
    base = ARENAS._idle[0].base
    np.testing.assert_array_equal(other.run(data(300))[0], want[0])
    assert [arena.base for arena in ARENAS._idle] == [base]
    assert {c.lent.arena for exe in (one, other) for c in exe._serving.idle} == {UNLENT}


def test_calls_of_the_same_sizes_take_memory_where_it_is_gone() -> None:
    exe = mlp()
    want = exe.run(data(300))
    for _ in range(3):
        assert ARENAS.trim() > 0
        np.testing.assert_array_equal(exe.run(data(300))[0], want[0])


def test_what_calls_of_late_did_not_need_is_given_back(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "LOOKED_AT", 1)
    exe, large = mlp(), 3 * HUGE_PAGE // 4096
    exe.run(data(large))
    held = ARENAS._idle[0].nbytes
    assert held > HUGE_PAGE
    want = exe.run(data(3))
    clock[0] = memory.KEPT_S + 1
    exe.run(data(3))  # the large call is of this period, too
    assert ARENAS._idle[0].nbytes == held
    clock[0] *= 2
    exe.run(data(3))
    assert ARENAS._idle[0].nbytes < HUGE_PAGE
    np.testing.assert_array_equal(exe.run(data(3))[0], want[0])
    exe.run(data(large))
    assert ARENAS._idle[0].nbytes >= held // 2


def test_memory_that_nobody_borrows_is_given_back(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "LOOKED_AT", 1)
    pool = ArenaPool()
    arenas = [pool.lend() for _ in range(3)]
    for arena in arenas:
        arena.reserve(100)
        pool.take_back(arena)
    for seconds in (11, 22):
        clock[0] = seconds
        pool.take_back(pool.lend())
    assert list(pool._idle) == arenas[2:]
    clock[0] = 33  # it was borrowed since
    pool.take_back(pool.lend())
    assert list(pool._idle) == arenas[2:]


def test_small_memory_stays(clock: list[float]) -> None:
    arena = Arena()
    arena.reserve(1000)
    for seconds in (11, 22, 33):
        clock[0] = seconds
        arena.settle(seconds)
    assert (arena.nbytes, arena.most) == (1000, 0)


def test_without_a_call_nothing_is_lent() -> None:
    with pytest.raises(AssertionError, match="no arena was lent to a call that needs 5 bytes"):
        UNLENT.reserve(5)


def test_threads_have_each_their_own() -> None:
    exe = mlp()
    want = {n: exe.run(data(n))[0] for n in range(1, 40)}
    wrong: list[int] = []

    def serve(seed: int) -> None:
        for n in np.random.default_rng(seed).integers(1, 40, 60).tolist():
            if not np.array_equal(exe.run(data(n))[0], want[n]):
                wrong.append(n)
            if n % 7 == 0:
                exe.trim()

    threads = [threading.Thread(target=serve, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_trim_gives_back_what_no_call_uses() -> None:
    exe = mlp()
    want = exe.run(data(100))
    arena = exe.memory(N=100).arena
    assert exe.trim() >= arena
    assert (exe.trim(), len(exe._serving.idle)) == (0, 0)
    np.testing.assert_array_equal(exe.run(data(100))[0], want[0])


# --- a limit --------------------------------------------------------------------------------------


def test_rows_that_keep_apart_are_computed_in_several_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exe = mlp()
    want = exe.run(data(64))
    most = exe.constant_bytes() + exe.memory(N=20).of_call + 20 * 784 * 4
    ran: list[int] = []
    run = Serving.run
    monkeypatch.setattr(
        Serving,
        "run",
        lambda self, n, arrays, *a: (ran.append(len(arrays[0])), run(self, n, arrays, *a))[1],
    )
    exe.limit(most)
    np.testing.assert_allclose(exe.run(data(64))[0], want[0], rtol=1e-5, atol=1e-6)
    assert ran == [16] * 4
    exe.limit(None)
    exe.run(data(64))
    assert ran[-1] == 64


def test_what_cannot_be_cut_is_refused_with_the_numbers() -> None:
    exe = mixing()
    x = np.ones((100, 64), np.float32)
    want = exe.run(x)
    told = exe.memory(N=100)
    exe.limit(told.weights + told.of_call)
    np.testing.assert_array_equal(exe.run(x)[0], want[0])
    exe.limit(told.weights + told.of_call - 1)
    with pytest.raises(ShapeError, match=f"the call takes {told.of_call:,} bytes, and"):
        exe.run(x)
    with pytest.raises(ShapeError, match=r"the call takes [\d,]+ bytes, and [\d,]+ are left by a"):
        exe.run_clone("main", x)
    assert exe.run(x[:5])[0].shape == (5, 64)


def test_many_requests_keep_to_it() -> None:
    exe = mlp()
    requests = [{"data": data(n)} for n in (1, 30, 2)]
    want = exe.run_many(requests)
    exe.limit(exe.constant_bytes() + exe.memory(N=16).of_call)
    for got, wanted in zip(exe.run_many(requests), want, strict=True):
        np.testing.assert_allclose(got[0], wanted[0], rtol=1e-5, atol=1e-6)


def test_a_call_waits_for_room_and_who_comes_first_goes_first() -> None:
    gate, order = Gate(100), list[str]()
    holds, may_end = threading.Event(), threading.Event()

    def call(name: str, size: int) -> None:
        with gate.room(size, 10):
            order.append(name)
            if name == "first":
                holds.set()
                may_end.wait(10)

    threads = []
    for name, size in (("first", 60), ("large", 90), ("small", 10)):
        threads.append(threading.Thread(target=call, args=(name, size)))
        threads[-1].start()
        if name == "first":
            holds.wait(10)
        else:
            while len(gate._waiting) < len(threads) - 1:
                time.sleep(0.001)
    assert order == ["first"]  # there would be room for the small one, but the large came before
    may_end.set()
    for thread in threads:
        thread.join(10)
    assert order == ["first", "large", "small"]
    assert (gate._taken, len(gate._waiting)) == (0, 0)


def test_a_call_that_fails_gives_its_room_back() -> None:
    gate = Gate(10)
    with pytest.raises(KeyError), gate.room(10, 0):
        raise KeyError
    with gate.room(10, 0):
        pass
    with pytest.raises(ShapeError, match="the call takes 11 bytes, and 10 are left by a limit of"):
        gate.room(11, 0).__enter__()


def test_another_limit_is_that_of_calls_that_wait() -> None:
    exe = mlp()
    exe.limit(1 << 30)
    gate = exe._serving.gate
    assert gate is not None
    order: list[str] = []
    with gate.room(1 << 29, 0):
        exe.limit((1 << 29) + 10)
        assert exe._serving.gate is gate
        thread = threading.Thread(target=lambda: (exe.run(data(1)), order.append("waited")))
        thread.start()
        while not gate._waiting:
            time.sleep(0.001)
        assert order == []
        exe.limit(1 << 30)
        thread.join(10)
        assert order == ["waited"]
    with gate.room(1 << 30, 0):
        thread = threading.Thread(target=lambda: order.append(refusal(exe)))
        thread.start()
        while not gate._waiting:
            time.sleep(0.001)
        gate.change(10)
        thread.join(10)
    assert order[1].startswith("the call takes")


def refusal(exe: Executable) -> str:
    with pytest.raises(ShapeError) as e:
        exe._serving.gated("main", [data(1)])
    return str(e.value)


def test_a_child_of_a_fork_waits_for_no_call_of_its_parent() -> None:
    gate = Gate(10)
    with gate.room(10, 0):
        child = os.fork()
        if child == 0:
            with gate.room(10, 0):
                os._exit(0)
        end = time.monotonic() + 10
        while (done := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < end:
            time.sleep(0.01)
    if done == (0, 0):
        os.kill(child, signal.SIGKILL)
    assert done == (child, 0)


def test_what_was_replaced_is_let_go() -> None:
    exe = mlp()
    exe.plan_many([{"data": data(1)}])
    before = weakref.ref(exe.image)
    exe.replace(mlp())
    exe.run(data(1))
    assert before() is None


ONES = "(int64[2] s) => (y) { y = ConstantOfShape(s) }"


def test_shapes_that_are_values_are_held_against_the_limit() -> None:
    """Of what was run without it or within it, too."""
    exe = bucketize.compile(from_onnx(parse(ONES)))
    large = np.array([1000, 1000], np.int64)
    assert exe.run(s=large)[0].size == large.prod()
    for most in (1_000_000, None, 100_000_000):
        exe.limit(most)
        if most == 1_000_000:
            with pytest.raises(
                ShapeError, match=r"takes 4,000,000 bytes, a limit leaves 1,000,000"
            ):
                exe.run(s=large)
        else:
            assert exe.run(s=large)[0].size == large.prod()


def test_limits_that_are_none_and_weights_that_pass_them() -> None:
    exe = mlp()
    for wrong in (0, True, 1.5):
        with pytest.raises(ArgumentError, match="bytes: expected a number from 1"):
            exe.limit(wrong)  # type: ignore[arg-type]
    with pytest.raises(CompileError, match=r"weights take .* bytes, more than a limit of 1,000"):
        exe.limit(1000)
    with pytest.raises(ArgumentError, match="limit_bytes: expected a number from 1, got 0"):
        bucketize.compile(bucketize.from_onnx(zoo.build("mlp")), limit_bytes=0)
    with pytest.raises(CompileError, match="weights take"):
        bucketize.compile(bucketize.from_onnx(zoo.build("mlp")), limit_bytes=1000)
    limited = bucketize.compile(bucketize.from_onnx(zoo.build("mlp")), limit_bytes=1 << 30)
    assert limited._serving.gate is not None
    limited.replace(exe)
    assert limited._serving.gate.most == 1 << 30
