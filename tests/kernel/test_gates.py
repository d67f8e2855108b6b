"""Gates: parts of rows that elementwise kernels read where they lie, and the steps made of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_model import parse

import bucketize
from bucketize import ops
from bucketize.interpret import run_function
from bucketize.ir import Builder, Function, Module, Var
from bucketize.lower.fuse import groups_of
from bucketize.onnx import from_onnx
from bucketize.program.instruction import Loop, RunSegment, instructions
from bucketize.types import Dim, Symbol, tensor

N, T = Symbol("N", 0, 40), Symbol("T", 0, 9)


def cut(b: Builder, x: Var, k: int, size: int) -> Var:
    ends = {"begin": (k * size,), "end": ((k + 1) * size,)}
    return b.emit(ops.strided_slice, x, strides=(1,), axes=(len(x.type.shape) - 1,), **ends)


def gated(*outer: Dim, size: int, gates: int = 3) -> Function:
    """sigmoid(a) * tanh(b) + c of the parts of a row, and an operand that is whole."""
    x, h = (Var(n, tensor("float32", *outer, k * size)) for n, k in (("x", gates), ("h", 1)))
    b = Builder()
    parts = [cut(b, x, k, size) for k in range(gates)]
    product = b.emit(ops.mul, b.emit(ops.sigmoid, parts[0]), b.emit(ops.tanh, parts[1]))
    total = b.emit(ops.add, product, b.emit(ops.mul, parts[2], h))
    return b.function("main", [x, h], [total])


def kernels(code: Any) -> list[str]:
    return [
        call.implementation.template
        for i in code.instructions
        if isinstance(i, RunSegment)
        for call in i.segment.calls
    ]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("size", [1, 3, 16, 17, 70])
@pytest.mark.parametrize("outer", [(N,), (T, N), (T, 1, N)], ids=str)
def test_parts_of_rows_are_read_where_they_lie(
    outer: tuple[Dim, ...], size: int, threads: int
) -> None:
    fn = gated(*outer, size=size)
    exe = bucketize.compile(Module({"main": fn}), threads=threads)
    copies = 3 if size == 1 else 0  # a column has no rows
    found = kernels(exe.routines["main"].code)
    assert found == [*["strided_slice"] * copies, "elementwise"]
    random = np.random.default_rng(0)
    for n, t in ((1, 1), (2, 3), (40, 9), (7, 0), (0, 2)):
        shape = [{"N": n, "T": t}[d.name] if isinstance(d, Symbol) else d for d in outer]
        x, h = (random.standard_normal((*shape, k * size)).astype(np.float32) for k in (3, 1))
        (want,) = run_function(fn, [x, h])
        (got,) = exe.run(x, h)
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


def test_what_makes_an_argument_for_nobody_else_joins() -> None:
    x, y = Var("x", tensor("float32", N, 4)), Var("y", tensor("float32", N, 4))
    b = Builder()
    left, right = b.emit(ops.sigmoid, x), b.emit(ops.tanh, y)
    total = b.emit(ops.add, left, right)
    alone = b.function("main", [x, y], [total])
    assert [len(g) for g in groups_of(alone).values()] == [3]
    shared = b.function("main", [x, y], [total, right])
    assert [len(g) for g in groups_of(shared).values()] == [2]
    assert groups_of(alone, frozenset({2})) == {}  # the sum is apart: it may begin, others not end


LAYER = """(float[T, N, 8] x, float[1, {rows}, 8] w, float[1, {rows}, 16] r{more}) => ({made}) {{
  {made_names} = {op}<hidden_size = 16, linear_before_reset = {behind}>(x, w, r{names})
}}"""
STEPS = [
    ("GRU", 3, 1, "", 4),
    ("GRU", 3, 1, "int32[N] lengths", 5),
    ("LSTM", 4, 0, "", 4),
    ("LSTM", 4, 0, "int32[N] lengths", 6),
    ("RNN", 1, 0, "", 2),
]


@pytest.mark.parametrize(("op", "gates", "behind", "lengths", "most"), STEPS)
def test_a_step_is_a_product_and_few_kernels_more(
    op: str, gates: int, behind: int, lengths: str, most: int
) -> None:
    text = LAYER.format(
        rows=16 * gates,
        more=f", {lengths}" if lengths else "",
        names=", , lengths" if lengths else "",
        made="float[T, 1, N, 16] y",
        made_names="y",
        op=op,
        behind=behind,
    )
    text = text if op == "GRU" else text.replace(", linear_before_reset = 0", "")
    exe = bucketize.compile(from_onnx(parse(text)))
    (loop,) = (i for i in instructions(exe.routines["main"].code) if isinstance(i, Loop))
    found = kernels(loop.body)
    assert loop.alone is not None
    assert sum(name.startswith("matmul") for name in found) == 1  # of few rows by loops, perhaps
    assert len(found) <= most + (op == "RNN")
