"""A limit on packed weights: what is computed stays, what it takes in memory does not."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import pytest

import bucketize
import dispatchers
from bucketize import ops, zoo
from bucketize.compare import relative_error
from bucketize.errors import ArgumentError, CompileError
from bucketize.executable import Executable
from bucketize.inspect.predict import predicted
from bucketize.interpret import evaluate_module
from bucketize.ir import Builder, Const, Module, Var
from bucketize.kernel.cost import seconds
from bucketize.kernel.schedule import Implementation
from bucketize.kernel.select import Select
from bucketize.kernel.templates import candidates
from bucketize.kernel.workload import Workload
from bucketize.link.link import link
from bucketize.machine.host import host
from bucketize.machine.speed import Floats
from bucketize.program.configuration import Configuration, defaults
from bucketize.program.decide import decide
from bucketize.program.instruction import DEFAULT, LOGGED, KernelCall
from bucketize.program.program import Program
from bucketize.program.weight_limit import constant_bytes, limited
from bucketize.types import Symbol, tensor

SIDES = (6, 20, 50)
RNG = np.random.default_rng(0)


def constant(*shape: int) -> Const:
    return Const(RNG.standard_normal(shape, dtype=np.float32) / 10)


def convolutions() -> Module:
    """Two, each of which two templates compute, whose weights lie otherwise."""
    out, x = Builder(), Var("x", tensor("float32", 1, 64, *2 * (Symbol("E", 4, 64),)))
    y = x
    for _ in range(2):
        y = out.emit(ops.relu, out.emit(ops.conv2d, y, constant(64, 64, 3, 3), pads=(1, 1, 1, 1)))
    return Module({"main": out.function("main", [x], [y])})


MODULE = convolutions()


def both(workload: Workload) -> Select:
    """The default of either template, from the size on at which it is expected to take less."""
    each = {
        t.name: Implementation(t.name, t.default(workload, host())) for t in candidates(workload)
    }
    direct, filtered = each["conv2d"], each["winograd"]

    def gains(side: int) -> bool:
        some = [seconds(workload, one, {"E": side}, host()) for one in (direct, filtered)]
        return some[1] < some[0]

    return Select((direct, filtered), (next(e**2 for e in range(5, 65) if gains(e)),))


def decided(mod: Module = MODULE) -> Program:
    """The functions of a module, convolutions by two kernels."""
    asked = partial(decide, mod, target=host(), threads=1, executor="auto")
    plain = asked(defaults)
    loads = [c.workload for c in calls(plain) if c.workload.anchor.op is ops.conv2d]
    selects = {load.hash: both(load) for load in loads}
    program = asked(lambda _: Configuration(selects))
    calls(program)
    return program


def calls(program: Program) -> Sequence[KernelCall]:
    return [call for name in program.routines for call in program.decide(name).calls()]


def packing(program: Program) -> list[KernelCall]:
    """The calls of convolutions."""
    return [call for call in calls(program) if call.workload.anchor.op is ops.conv2d]


def least(program: Program) -> int:
    """What the error names."""
    with pytest.raises(CompileError, match=r"weight_bytes=0 is too few: .* take \d+ bytes") as e:
        limited(program, 0)
    return int(str(e.value).partition("take ")[2].split()[0])


def taken(program: Program) -> Floats:
    """Seconds by the models, at sizes that grow by the same factor."""
    sides = np.geomspace(4, 64, 9).round().astype(int).tolist()
    return np.array([predicted(program, {"E": side}).seconds for side in sides])


@pytest.fixture(scope="module")
def program() -> Program:
    return decided()


def test_a_limit_holds_and_results_are_what_they_were(program: Program) -> None:
    full, low = constant_bytes(program), least(program)
    assert low < full / 2
    for limit in range(low, full, (full - low) // 4):
        exe = Executable(link(limited(program, limit)), MODULE)
        assert exe.constant_bytes() <= limit
        for side in SIDES:
            x = RNG.standard_normal((1, 64, side, side), dtype=np.float32)
            want = np.asarray(evaluate_module(MODULE, x))
            assert relative_error(np.asarray(exe.run(x=x)), want) < 1e-4


def test_the_more_bytes_the_less_time(program: Program) -> None:
    """By the models, as far as sizes take more than without a limit, in their mean."""
    full, low = constant_bytes(program), least(program)
    limits = np.linspace(low, full, 5).astype(int).tolist()
    usual = taken(program)
    ratios = [taken(limited(program, limit)) / usual for limit in limits]
    times = [float(np.maximum(ratio, 1.0).mean()) for ratio in ratios]
    assert all(more <= less for less, more in pairwise(times))
    assert times[0] > 1.0
    assert limited(program, full) is program
    assert constant_bytes(limited(program, full - 1)) < full


def test_what_it_takes_is_told_before_it_is_packed(program: Program) -> None:
    assert Executable(link(program), MODULE).constant_bytes() == constant_bytes(program)
    mod = bucketize.dispatch(
        bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, 64)}), dispatchers.log_dispatcher
    )
    exe = bucketize.compile(mod)
    assert exe.constant_bytes() == constant_bytes(exe.program)


def test_constants_that_nothing_packs_are_counted() -> None:
    """A table that rows are gathered from, one that is a result, and one seen in another shape."""
    x, out = Var("x", tensor("int64", Symbol("N", 1, 4))), Builder()
    table, result, seen = constant(8, 4), constant(3), constant(4, 2)
    rows = out.emit(ops.gather, table, x, axis=0)
    flat = out.emit(ops.relu, out.emit(ops.reshape, seen, newshape=(8,)))
    mod = Module({"main": out.function("main", [x], [rows, result, flat])})
    exe = bucketize.compile(mod)
    assert exe.constant_bytes() == constant_bytes(exe.program)


def test_a_choice_of_the_log_stays_where_it_fits(program: Program) -> None:
    few = constant_bytes(program) - 1
    before, after = packing(program), packing(limited(program, few))
    assert {call.why for call in before} == {LOGGED}
    for old, new in zip(before, after, strict=True):
        assert new.why == (LOGGED if new.select == old.select else DEFAULT)
    assert {call.why for call in after} == {LOGGED, DEFAULT}


def test_clones_share_what_they_pack() -> None:
    """All of them are within the limit together."""
    mod = bucketize.dispatch(MODULE, dispatchers.log_dispatcher)
    program = decided(mod)
    low = least(program)
    assert low == least(decided())
    exe = Executable(link(limited(program, low)), mod)
    assert exe.constant_bytes() == low
    for side in SIDES:
        x = RNG.standard_normal((1, 64, side, side), dtype=np.float32)
        want = np.asarray(evaluate_module(MODULE, x))
        assert relative_error(np.asarray(exe.run(x=x)), want) < 1e-4


def test_compile_takes_a_limit() -> None:
    full = bucketize.compile(MODULE).constant_bytes()
    assert bucketize.compile(MODULE, weight_bytes=full).constant_bytes() == full
    with pytest.raises(CompileError, match="weight_bytes=1 is too few"):
        bucketize.compile(MODULE, weight_bytes=1)
    with pytest.raises(ArgumentError, match="weight_bytes is for all clones together"):
        bucketize.compile(MODULE, weight_bytes=full, lazy=True)
