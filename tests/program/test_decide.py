"""What a program is decided by: the machine, and how many weights pass through its caches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import bucketize
from bucketize import ops
from bucketize.ir import Builder, Const, Module, Var
from bucketize.kernel.gemm import cost
from bucketize.kernel.gemm.schedule import Tiling
from bucketize.machine.named import X86_LINUX
from bucketize.machine.speed import AMD, TYPICAL
from bucketize.machine.target import Processor, Target, target_of
from bucketize.program.configuration import defaults
from bucketize.program.decide import decide, redecided
from bucketize.program.program import Program
from bucketize.types import Symbol, tensor
from dispatchers import log_dispatcher

DEPTH, COLUMNS = 3072, 768
WEIGHTS = 4 * DEPTH * COLUMNS
ZEN = Processor(X86_LINUX, "znver5", "", "avx512f", is_restricted=False)
HELD = replace(
    target_of(ZEN, {1: 48 << 10, 2: 1 << 20, 3: 32 << 20}),
    speed=replace(TYPICAL, ghz=4.3, fma=2.0, loads=1.9, l2=60.0, l3=28.0, l3_share=0.5, memory=4.0),
    family=AMD,
)
"""Of its last cache a half is left: as much as defaults take to pass between two kernels."""


def layers(count: int, rows: int = 8) -> Module:
    """Products with weights of their own, and a table of which rows are read."""
    out, n = Builder(), Symbol("N", 1, rows)
    x, ids = Var("x", tensor("float32", n, DEPTH)), Var("ids", tensor("int64", n))
    w = [Const(np.zeros((DEPTH, COLUMNS), np.float32)) for _ in range(count)]
    y = out.emit(ops.gather, Const(np.zeros((50_000, COLUMNS), np.float32)), ids, axis=0)
    for each in w:
        y = out.emit(ops.add, y, out.emit(ops.matmul, x, each))
    return Module({"main": out.function("main", [x, ids], [y])})


def decided(mod: Module, target: Target = HELD) -> Program:
    return decide(mod, defaults, target=target, threads=1, executor="auto")


def tallest(program: Program) -> set[int]:
    """The rows of the tallest tile of any product."""
    calls = program.decide("main").calls()
    products = [c for c in calls if c.workload.anchor.op is ops.matmul]
    return {Tiling.of(c.implementation.schedule).mr for c in products}


def test_weights_that_pass_are_those_of_the_program_if_they_are_many() -> None:
    """A table of which a part is read passes none, nor do clones have weights of their own."""
    few, many = layers(1), layers(4)
    assert decided(few).target == HELD
    assert decided(many).target == replace(HELD, weight_bytes=4 * WEIGHTS)
    dispatched = bucketize.dispatch(many, log_dispatcher)
    assert len(dispatched.clones) > 2
    assert decided(dispatched).target.weight_bytes == 4 * WEIGHTS
    assert cost.cold_bytes(decided(many).target) == 4 * WEIGHTS > cost.cold_bytes(HELD)


def test_where_weights_come_slowly_eight_rows_are_one_tile() -> None:
    """Of two the second would wait for nothing, but the first for all of them."""
    fast = replace(HELD, speed=replace(HELD.speed, l3=60.0))
    assert tallest(decided(layers(1), fast)) == {6}
    assert tallest(decided(layers(1))) == {8}
    assert tallest(decided(layers(4), fast)) == {8}


def test_a_program_that_is_decided_anew_has_the_weights_of_before() -> None:
    anew = redecided(decided(layers(4)), replace(HELD, name="another"))
    assert anew.target == replace(HELD, name="another", weight_bytes=4 * WEIGHTS)


def test_a_saved_program_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "COLD", 1)  # whatever second cache this machine has
    many = bucketize.compile(layers(8))
    many.save(tmp_path / "many.bkt")
    saved = bucketize.load(tmp_path / "many.bkt").program.target
    assert saved == many.program.target
    assert saved.weight_bytes == 8 * WEIGHTS
