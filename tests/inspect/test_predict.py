"""What calls take by the models of their kernels: of clones, of what they serve, in a profile."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_model import shallow

import bucketize
from bucketize import ops, zoo
from bucketize.dispatch.tree import dispatch
from bucketize.errors import NoBucketError, ShapeError
from bucketize.inspect.predict import CALL_S, constant_bytes, passed_bytes, predicted
from bucketize.inspect.roofline import Roofline
from bucketize.ir import Builder, Const, Module, Var
from bucketize.kernel.cost import seconds
from bucketize.kernel.work import FORK_S
from bucketize.machine.host import host
from bucketize.program.configuration import defaults
from bucketize.program.decide import decide
from bucketize.program.instruction import Compute, KernelCall
from bucketize.program.program import Program
from bucketize.types import Symbol, tensor
from dispatchers import log_dispatcher

WIDTH = 64
BYTES = WIDTH * WIDTH * 4


def module() -> Module:
    """Two layers of one weight each, and a transpose."""
    x, b = Var("x", tensor("float32", Symbol("N", 1, 8192), WIDTH)), Builder()
    y = b.emit(ops.matmul, x, Const(np.ones((WIDTH, WIDTH), np.float32)))
    y = b.emit(ops.matmul, y, Const(np.full((WIDTH, WIDTH), 2, np.float32)))
    return Module({"main": b.function("main", [x], [b.emit(ops.transpose, y, axes=(1, 0))])})


def program(mod: Module, threads: int = 1) -> Program:
    return decide(mod, defaults, target=host(), threads=threads, executor="auto")


def test_a_call_takes_what_its_kernels_take_with_weights_as_cold_as_there() -> None:
    found = predicted(program(module()), {"N": 8})
    assert [k.what.implementation.template for k in found.kernels if kernel(k.what)] == [
        *("matmul", "matmul", "transpose")
    ]
    alone = [
        seconds(k.what.workload, k.what.implementation, {"N": 8}, host(), 2 * BYTES)
        for k in found.kernels
        if isinstance(k.what, KernelCall)
    ]
    assert [k.seconds for k in found.kernels] == alone
    assert found.seconds == pytest.approx(CALL_S + sum(alone))
    assert predicted(program(module()), {"N": 800}).seconds > found.seconds


def kernel(what: object) -> bool:
    return isinstance(what, KernelCall)


def test_a_table_of_which_rows_are_read_does_not_pass_through_the_caches() -> None:
    """What a product multiplies by does."""
    ids, table = Var("ids", tensor("int64", Symbol("N", 1))), np.ones((1000, 16), np.float32)
    b = Builder()
    alone = Module(
        {"main": b.function("main", [ids], [b.emit(ops.gather, Const(table), ids, axis=0)])}
    )
    b = Builder()
    rows = b.emit(ops.relu, b.emit(ops.gather, Const(table), ids, axis=0))
    logits = b.emit(ops.matmul, rows, Const(np.ones((16, 1000), np.float32)))
    scored = Module({"main": b.function("main", [ids], [logits])})
    for mod, passed, whole in ((alone, 0, 64_000), (scored, 64_000, 128_000)):
        calls = [k.what for k in predicted(program(mod), {"N": 3}).kernels]
        assert (passed_bytes(calls), constant_bytes(calls)) == (passed, whole)


def test_of_clones_the_one_that_serves_the_sizes_is_predicted() -> None:
    mod = dispatch(module(), log_dispatcher)
    decided = program(mod)
    found = predicted(decided, {"N": 5})
    assert found.clone == "main[N=4..7]"
    assert predicted(decided, {"N": 5}, found.clone) == found
    assert predicted(decided, {"N": 1}).clone == "main[N=1]"


def test_threads_share_what_is_worth_a_fork() -> None:
    one, two = (predicted(program(module(), n), {"N": 8192}).kernels for n in (1, 2))
    assert one[0].seconds is not None
    assert two[0].seconds == pytest.approx(one[0].seconds / 2 + FORK_S)
    one, two = (predicted(program(module(), n), {"N": 1}).kernels for n in (1, 2))
    assert [k.seconds for k in one] == [k.seconds for k in two]


@pytest.mark.usefixtures("by_numpy")
def test_what_no_model_tells_is_left_out() -> None:
    x, b = Var("x", tensor("float32", Symbol("N"))), Builder()
    y = b.emit(ops.relu, b.emit_all(ops.unique, b.emit(ops.neg, x), axis=0)[0])
    found = predicted(program(Module({"main": b.function("main", [x], [y])})), {"N": 8})
    negated, unique, rectified = found.kernels
    assert isinstance(unique.what, Compute)
    assert (unique.seconds, rectified.seconds) == (None, None)  # as many as values say
    assert found.seconds == CALL_S + (negated.seconds or 0)


def test_sizes_must_be_told_and_served() -> None:
    for mod in (module(), dispatch(module(), log_dispatcher)):
        with pytest.raises(ShapeError, match=r"the size of N is missing; got {'M': 3}"):
            predicted(program(mod), {"M": 3})
    mod = dispatch(module(), lambda _: {"x": {0: [(1, 4)]}}, fallback=False)
    with pytest.raises(NoBucketError, match="N=9"):
        predicted(program(mod), {"N": 9})


def test_a_profile_has_the_prediction_beside_each_time() -> None:
    exe = bucketize.compile(bucketize.dispatch(module(), log_dispatcher))
    roof = Roofline(gflops=100.0, gbytes_s=10.0)
    frame = exe.profile(np.ones((5, WIDTH), np.float32), repetitions=1, roofline=roof)
    found = predicted(exe.program, {"N": 5})
    assert frame["predicted_s"].tolist() == [*(k.seconds for k in found.kernels), CALL_S]
    assert frame.attrs["predicted_s"] == pytest.approx(found.seconds)


@pytest.mark.sweep
@pytest.mark.parametrize("name", zoo.NAMES)
def test_every_kernel_of_the_zoo_is_predicted(name: str) -> None:
    mod = bucketize.from_onnx(shallow(name))
    sizes = {s: min(64, high) for s, (_, high) in zoo.BOUNDS[name].items()}
    found = predicted(program(mod), sizes)
    assert all(k.seconds for k in found.kernels)
