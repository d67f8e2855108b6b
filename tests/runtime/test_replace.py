"""`exe.replace`: another executable serves from the next call on, and no call is lost."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import bucketize
from bucketize import ops, zoo
from bucketize.dispatch.tree import dispatch
from bucketize.errors import ArgumentError, CompileError, ShapeError
from bucketize.executable import Executable
from bucketize.ir import Builder, Const, Module, Var
from bucketize.many import many
from bucketize.runtime.serving import Serving
from bucketize.types import Symbol, tensor
from dispatchers import log_dispatcher

CALLS, THREADS = 200, 3


def mlp(dispatched: bool, most: int = 64) -> Executable:
    mod = bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, most)})
    return bucketize.compile(dispatch(mod, log_dispatcher) if dispatched else mod)


def product(depth: int) -> Executable:
    """A product of two matrices by each row, of the same results whatever their depth."""
    x, out = Var("x", tensor("float32", Symbol("N", 1, 8), 4)), Builder()
    between = out.emit(ops.matmul, x, Const(np.full((4, depth), 1 / depth, np.float32)))
    y = out.emit(ops.matmul, between, Const(np.ones((depth, 2), np.float32)))
    return bucketize.compile(Module({"main": out.function("main", [x], [y])}))


def test_calls_go_on_while_it_is_replaced() -> None:
    exe, other = mlp(False), mlp(True)
    x = {n: np.random.default_rng(n).random((n, 784), np.float32) for n in (1, 3, 17)}
    wanted = {n: exe(a)[0] for n, a in x.items()}
    faults: list[object] = []

    def call() -> None:
        for k in range(CALLS):
            n = (1, 3, 17)[k % 3]
            if not np.allclose(exe(x[n])[0], wanted[n], rtol=1e-5, atol=1e-6):
                faults.append(n)

    threads = [threading.Thread(target=call) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    old = mlp(False)
    for k in range(20):
        exe.replace((other, old)[k % 2])
    exe.replace(other)
    for thread in threads:
        thread.join()
    assert faults == []
    assert exe.traffic is not None
    assert exe.traffic.total == THREADS * CALLS + 3
    assert exe.explain(N=3).clone == "main[N=2..3]"


def test_what_was_begun_goes_on() -> None:
    exe = mlp(False)
    run = exe.context()
    x = np.ones((2, 784), np.float32)
    before = run(x)[0]
    exe.replace(mlp(True))
    np.testing.assert_allclose(run(x)[0], before)


def test_kernels_in_common_are_not_built_again() -> None:
    exe, other = mlp(True), mlp(True)
    again = other.kernels
    assert all(again[name] is kernel for name, kernel in exe.kernels.items())
    exe.replace(other)
    assert (exe.image, exe.module) == (other.image, other.module)


def test_what_is_of_another_model_is_refused() -> None:
    exe = mlp(False)
    other = bucketize.compile(bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (3, 3)}))
    with pytest.raises(ArgumentError, match=r"cannot stand for .*: inputs or outputs differ$"):
        exe.replace(other)
    with pytest.raises(ArgumentError, match=r"^replace takes an executable, got 'mlp\.bkt'$"):
        exe.replace("mlp.bkt")  # type: ignore[arg-type]
    exe.replace(mlp(False, 8))
    assert exe(np.ones((2, 784), np.float32))[0].shape == (2, 10)


def test_the_limit_is_that_of_who_serves() -> None:
    """It holds for the weights of what comes, whose own limit goes for its own calls."""
    exe, other, heavy = product(8), product(16), product(4096)
    x = np.ones((1, 4), np.float32)
    exe.limit(20_000)
    other.limit(other.constant_bytes() + 1)
    exe.replace(other)
    np.testing.assert_allclose(exe(x)[0], np.full((1, 2), 4), rtol=1e-5)
    with pytest.raises(ShapeError, match="1 are left by a limit of"):
        other(x)
    with pytest.raises(CompileError, match=r"weights take .* bytes, more than a limit of 20,000"):
        exe.replace(heavy)
    assert exe.image is other.image
    exe.limit(None)
    exe.replace(heavy)
    np.testing.assert_allclose(exe(x)[0], np.full((1, 2), 4), rtol=1e-5)


def test_requests_share_calls_of_one_program_while_it_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is found out about one is not kept for another that came meanwhile."""
    exe, other, of = product(8), product(16), many.many_of

    def slowly(*args: Any) -> Any:
        its = of(*args)
        if exe.image is not other.image:
            exe.replace(other)
        return its

    monkeypatch.setattr(many, "many_of", slowly)
    exe.run_many([{"x": np.ones((1, 4), np.float32)}] * 2)
    assert exe._sharing is None
    exe.run_many([{"x": np.ones((1, 4), np.float32)}] * 2)
    assert exe._sharing is not None
    assert exe._sharing[0].image is other.image


def test_what_was_begun_on_one_program_ends_on_it() -> None:
    """A warm-up, and what asks for a clone by its name: the other has none of that."""
    exe, other = mlp(True), mlp(False)

    def replacing(what: str, *_: object) -> None:
        if what == "main[N=2..3]":
            exe.replace(other)

    assert exe.warm_up(replacing) == []
    assert exe.image is other.image
    exe, x, serving = mlp(True), np.ones((2, 784), np.float32), exe._serving
    run = Serving.gated

    def late(*args: Any) -> Any:
        exe.replace(other)
        return run(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Serving, "gated", late)
        assert exe.run_clone("main[N=2..3]", x)[0].shape == (2, 10)
    assert exe.image is serving.image
