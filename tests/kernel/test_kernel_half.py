"""Halves in loop source: conversions to the last bit, and every op that loop kernels know."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from kernel_call import Group, M, N, check, loop_template, number, readable, run, workload
from llvmlite import ir
from test_kernel_loops import CASES, workload_of

from bucketize import ops
from bucketize.kernel.emit.half import narrowed, widened
from bucketize.op import Array, Op
from bucketize.ops.sample import Sample, samples
from bucketize.types import tensor

pytestmark = pytest.mark.usefixtures("few_registers")

HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
FINITE = np.sort(HALVES[np.isfinite(HALVES)]).astype(np.float64)
TIES = (FINITE[1:] + FINITE[:-1]) / 2


def converted(x: Array, dtype: str) -> Array:
    load = workload(ops.cast, tensor(x.dtype.name, N), dtype=dtype)
    template = loop_template(load)
    assert template is not None
    with np.errstate(all="ignore"):
        want = x.astype(dtype)
    (got,) = run(template, load, {}, [x], {"N": x.size}, [want], 1)
    for a, b in ((got, want), (np.signbit(got), np.signbit(want))):
        np.testing.assert_array_equal(readable(a), readable(b))
    return got


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_half_is_read_and_written_as_it_is(dtype: str) -> None:
    back = converted(converted(HALVES, dtype), "float16")
    np.testing.assert_array_equal(back, HALVES)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ties_go_to_the_even_half_and_their_neighbours_to_the_nearest(dtype: str) -> None:
    ties = TIES.astype(dtype)
    edges = np.array([65519.99, 65520, 65536, 1e30, np.inf, np.nan, 1e-30, 2.0**-25, 0], dtype)
    for x in (ties, np.nextafter(ties, ties - 1), np.nextafter(ties, ties + 1), edges, -edges):
        converted(x, "float16")


UPPERS = np.arange(1 << 16, dtype=np.uint16).view("bfloat16")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_bfloat16_is_read_and_written_as_it_is(dtype: str) -> None:
    converted(converted(UPPERS, dtype), "bfloat16")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ties_go_to_the_even_bfloat16_and_their_neighbours_to_the_nearest(dtype: str) -> None:
    wide = UPPERS.astype(np.float32)
    finite = np.sort(wide[np.isfinite(wide)])
    ties = (finite[1:] / 2 + finite[:-1] / 2).astype(dtype)
    edges = np.array([3.3895e38, 3.3961e38, 1e-45, np.inf, np.nan, 0], dtype)
    for x in (ties, np.nextafter(ties, ties - 1), np.nextafter(ties, ties + 1), edges, -edges):
        converted(x, "bfloat16")


@pytest.mark.parametrize("dtype", ["int64", "int32", "int8", "uint8", "bool"])
def test_casts_between_bfloat16_and_integers(dtype: str) -> None:
    x = np.array([0, 1, -1, 2.5, -2.5, 100, -127.5], "bfloat16")
    converted(np.abs(x) if dtype == "uint8" else x, dtype)
    converted(np.array([0, 1, 100, 2047, 257, 70000]).astype(dtype), "bfloat16")


@pytest.mark.parametrize("dtype", ["int64", "int32", "int8", "uint8", "bool"])
def test_casts_between_halves_and_integers(dtype: str) -> None:
    x = np.array([0, 1, -1, 2.5, -2.5, 100, -127.5], np.float16)
    converted(np.abs(x) if dtype == "uint8" else x, dtype)
    converted(np.array([0, 1, 100, 2047, 2049, 70000]).astype(dtype), "float16")


def halved(sample: Sample, half: str) -> Sample:
    """The sample with halves in place of float32."""
    args = tuple(
        replace(a, dtype=np.dtype(half if a.dtype == np.float32 else a.dtype)) for a in sample.args
    )
    return replace(sample, args=args)


FLOAT_CASES = [s for s in CASES if any(a.dtype == np.float32 for a in s.args)]
PAIRS = [[halved(s, half) for half in ("float16", "bfloat16")] for s in FLOAT_CASES]
HALF_CASES = [case for pair in PAIRS for case in pair]


HOST = {
    ("col2im", "float16"),  # sums over several elements would be rounded at each
    *(("kept_boxes", half) for half in ("float16", "bfloat16")),  # a count beside its rows
    *(("row_order", half) for half in ("float16", "bfloat16")),  # which few sort
    *(
        ("nonzero_rows", half) for half in ("float16", "bfloat16")
    ),  # by numpy as long as few want it
    *((name, "bfloat16") for name in ("col2im", "resize", "scatter_elements", "scatter_nd")),
}
"""What no kernel computes in halves, at least not in every way."""
NATIVE_CASES = [c for c in HALF_CASES if loop_template(workload_of(c))]


def signature(case: Sample) -> tuple[object, ...]:
    return (case.op, *(a.dtype for a in case.args))


def covering() -> list[Sample]:
    """Every signature that has a kernel, and every sample in one half: several take turns."""
    found: list[Sample] = []
    native = [[c for c in pair if c in NATIVE_CASES] for pair in PAIRS]
    several = Counter(signature(halves[0]) for halves in native if len(halves) == 2)
    turns = Counter[object]()
    for halves in filter(None, native):
        its = signature(halves[0])
        if len(halves) == 1 or several[its] == 1:
            found += halves
        else:
            found.append(halves[turns[its] % 2])
            turns[its] += 1
    return found


TAKEN = covering()


def test_halves_have_kernels() -> None:
    left = [c for c in HALF_CASES if c not in NATIVE_CASES]
    assert {(c.op.name, c.args[0].dtype.name) for c in left} == HOST
    assert {signature(c) for c in TAKEN} == {signature(c) for c in NATIVE_CASES}


@pytest.mark.sweep
@pytest.mark.parametrize("case", TAKEN, ids=str)
def test_a_kernel_is_its_op_in_halves(case: Sample) -> None:
    load, rng = workload_of(case), np.random.default_rng(7)
    for size in (1, 3, 9, 40):
        env = {n: int(rng.integers(1, size + 1)) for n in case.names}
        check(load, case.draw(rng, env), env)


@pytest.mark.parametrize(("dtype", "even"), [("float16", 2048), ("bfloat16", 256)])
def test_every_op_of_a_group_rounds(dtype: str, even: int) -> None:
    """One more than this is no half, so that adding 1 twice leaves it."""
    g = Group(tensor(dtype, N))
    once = g(ops.add, g.params[0], number(1, np.dtype(dtype)))
    load = g.returns(g(ops.add, once, number(1, np.dtype(dtype))))
    check(load, [np.full(9, even, dtype)], {"N": 9})
    x = np.full(3, even, dtype)
    template = loop_template(load)
    assert template is not None
    (got,) = run(template, load, {}, [x], {"N": 3}, [x], 1)
    np.testing.assert_array_equal(got, x)


@pytest.mark.parametrize("op", [ops.add, ops.sub, ops.mul, ops.div, ops.sqrt], ids=str)
def test_arithmetic_rounds_as_numpy_does(op: Op) -> None:
    rng = np.random.default_rng(1)
    count = len(samples(op)[0].args)
    load = workload(op, *[tensor("float16", N)] * count)
    args = [rng.integers(0, 1 << 16, 5000, np.uint16).view(np.float16) for _ in range(count)]
    want = op.compute(*args)
    template = loop_template(load)
    assert template is not None
    (got,) = run(template, load, {}, args, {"N": 5000}, [want], 2)
    np.testing.assert_array_equal(got, want)


def test_a_sum_of_halves_is_rounded_once() -> None:
    load = workload(ops.reduce_sum, tensor("float16", N, M), axes=(0,))
    x = np.full((4096, 3), 0.25, np.float16)  # half by half the sum would end at 512
    template = loop_template(load)
    assert template is not None
    (got,) = run(template, load, {}, [x], {"N": 4096, "M": 3}, [x[0]], 1)
    assert got.tolist() == [1024] * 3


def test_no_conversion_is_left_to_a_library() -> None:
    """Where the machine lacks F16C, LLVM's own conversions are calls that nothing answers."""
    kind = ir.FunctionType(ir.FloatType(), [ir.FloatType()])
    function = ir.Function(ir.Module(), kind, "f")
    builder = ir.IRBuilder(function.append_basic_block())
    builder.ret(widened(builder, narrowed(builder, function.args[0])))
    text = str(function.module)
    assert "half" not in text
    assert "call" not in text
