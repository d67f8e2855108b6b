"""Scatters that join updates to what is there, and caches: kernels, onnxruntime, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from onnx_model import parse, run_ort
from test_bounds import ROWS, built, ints, reject

import bucketize
from bucketize import ops
from bucketize.errors import ShapeError, TypeRelError
from bucketize.interpret import evaluate_module
from bucketize.ir import Builder, Module, Var
from bucketize.kernel.templates import candidates
from bucketize.kernel.workload import Workload, group_function
from bucketize.op import Array, Op
from bucketize.types import Symbol, tensor

N, M = Symbol("N", 0), Symbol("M", 0)
JOINS = ("add", "mul", "min", "max")
DTYPES = ("float16", "float32", "float64", "int8", "uint8", "int32", "uint64")


def module(op: Op, *params: Var, **attrs: Any) -> Module:
    out = Builder()
    return Module({"main": out.function("main", params, [out.emit(op, *params, **attrs)])})


def same(mod: Module, *inputs: Array, threads: int) -> None:
    """The kernel gives every bit of the interpreter's result; of float16 it rounds each sum."""
    (want,) = evaluate_module(mod, *inputs)
    (got,) = bucketize.compile(mod, threads=threads).run(*inputs)
    if want.dtype == np.float16:
        np.testing.assert_allclose(got, want, rtol=inputs[-1].shape[0] * 2.0**-11)
    else:
        np.testing.assert_array_equal(got, want)


@pytest.mark.sweep
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reduction", JOINS)
def test_updates_of_one_place_join_in_order(reduction: str, dtype: str, threads: int) -> None:
    """Floats of which each sum is rounded tell the order; most places are named often."""
    rng = np.random.default_rng(3)
    x, i = Var("x", tensor(dtype, N, 300)), Var("i", tensor("int64", M, 1))
    mod = module(ops.scatter_nd, x, i, Var("u", tensor(dtype, M, 300)), reduction=reduction)
    other = Var("u", tensor(dtype, M, 300)), Var("j", tensor("int32", M, 300))
    each = module(ops.scatter_elements, x, *other[::-1], axis=0, reduction=reduction)
    data = rng.uniform(0.5, 2, (7, 300)).astype(dtype)
    updates = rng.uniform(0.5, 2, (40, 300)).astype(dtype)
    same(mod, data, rng.integers(-7, 7, (40, 1)), updates, threads=threads)
    same(each, data, rng.integers(-7, 7, (40, 300)).astype("i4"), updates, threads=threads)


@pytest.mark.parametrize("reduction", ["min", "max"])
def test_a_number_that_is_none_stays(reduction: str) -> None:
    x = np.array([1, np.nan, 3], np.float32)
    u = np.array([np.nan, 2, -np.inf, np.inf], np.float32)
    params = (Var("x", tensor("float32", 3)), Var("i", tensor("int64", 4, 1)))
    mod = module(ops.scatter_nd, *params, Var("u", tensor("float32", 4)), reduction=reduction)
    same(mod, x, np.array([[0], [1], [2], [2]]), u, threads=1)


def test_truths_are_joined_on_the_host() -> None:
    params = (Var("x", tensor("bool", 3)), Var("i", tensor("int64", M, 1)))
    mod = module(ops.scatter_nd, *params, Var("u", tensor("bool", M)), reduction="add")
    inputs, body = group_function(list(mod.main.body))
    assert not candidates(Workload(body, (False,) * len(inputs)))
    same(mod, np.array([True, False, False]), ints([[1], [0]]), np.array([True, False]), threads=1)


@pytest.mark.parametrize("reduction", ["none", *JOINS])
@pytest.mark.parametrize("threads", [1, 2])
def test_an_index_out_of_range_joins_nothing(reduction: str, threads: int) -> None:
    exe = built(ops.scatter_nd, (4, 8), (2, 1), (2, 8), threads=threads, reduction=reduction)
    reject(exe, ops.scatter_nd, -5, 4, ROWS, ints([[1], [-5]]), ROWS[:2])


@pytest.mark.parametrize("reduction", JOINS)
def test_joins_as_onnxruntime_has_them(reduction: str) -> None:
    model = parse(
        "(float[N, C] x, int64[M, 1] i, float[M, C] u, int64[K, C] j, float[K, C] v) => (y, z) "
        f'{{ y = ScatterND<reduction = "{reduction}">(x, i, u) '
        f'z = ScatterElements<axis = 0, reduction = "{reduction}">(x, j, v) }}',
        opset=18,
    )
    rng = np.random.default_rng(5)
    mod = bucketize.from_onnx(model)
    exe = bucketize.compile(mod)
    for n, c, m in ((4, 3, 9), (2, 8, 1), (5, 1, 30)):
        inputs = {
            "x": rng.standard_normal((n, c)),
            "i": rng.integers(-n, n, (m, 1)),
            "u": rng.standard_normal((m, c)),
            "j": rng.integers(-n, n, (n, c)),
            "v": rng.standard_normal((n, c)),
        }
        inputs = {k: v if v.dtype == np.int64 else v.astype("f4") for k, v in inputs.items()}
        for got, want in zip(exe.run(**inputs), run_ort(model, inputs), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


# --- caches --------------------------------------------------------------------------------------

CACHE = "(float[B, H, C, D] x, float[B, H, N, D] u, int64[B] w) => (y) "


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_caches_as_the_reference_of_onnx_has_them(mode: str, threads: int) -> None:
    model = parse(f'{CACHE}{{ y = TensorScatter<mode = "{mode}">(x, u, w) }}', opset=24)
    mod = bucketize.from_onnx(model, bounds=dict.fromkeys("BHCDN", (0, None)))
    exe, reference = bucketize.compile(mod, threads=threads), ReferenceEvaluator(model)
    rng = np.random.default_rng(2)
    for b, h, c, n, d in (
        *((2, 3, 8, 1, 64), (3, 1, 5, 5, 1), (1, 2, 7, 3, 17), (4, 2, 6, 0, 3)),
        *((2, 2, 16, 5, 33), (0, 2, 4, 1, 8)),
    ):
        last = 3 * c if mode == "circular" else c - n + 1
        inputs = {
            "x": rng.standard_normal((b, h, c, d)).astype("f4"),
            "u": rng.standard_normal((b, h, n, d)).astype("f4"),
            "w": rng.integers(0, last, b),
        }
        (want,) = reference.run(None, inputs)
        np.testing.assert_array_equal(evaluate_module(mod, **inputs)[0], want)
        np.testing.assert_array_equal(exe.run(**inputs)[0], want)


@pytest.mark.parametrize("dtype", ["int64", "uint64", "int8"])
def test_a_circle_begins_at_any_index(dtype: str) -> None:
    params = (Var("x", tensor("float32", 2, 4)), Var("u", tensor("float32", 2, 3)))
    mod = module(ops.tensor_scatter, *params, Var("w", tensor(dtype, 2)), axis=1, circular=True)
    start = np.array([np.iinfo(dtype).max, 3], dtype)
    wide = start.astype("u8") % 4
    want = np.zeros((2, 4), "f4")
    for row, begin in enumerate(wide):
        want[row, (int(begin) + np.arange(3)) % 4] = [1, 2, 3]
    inputs = np.zeros((2, 4), "f4"), np.array([[1, 2, 3]] * 2, "f4"), start
    for (got,) in (evaluate_module(mod, *inputs), bucketize.compile(mod).run(*inputs)):
        np.testing.assert_array_equal(got, want)


def test_without_indices_an_update_begins_at_0() -> None:
    graph = "(float[B, C, D] x, float[B, N, D] u) => (y) { y = TensorScatter<axis = 1>(x, u) }"
    mod = bucketize.from_onnx(parse(graph, opset=24))
    x, u = np.zeros((2, 4, 3), np.float32), np.ones((2, 3, 3), np.float32)
    want = np.concatenate([u, x[:, 3:]], 1)
    np.testing.assert_array_equal(bucketize.compile(mod).run(x, u)[0], want)


@pytest.mark.parametrize("start", [-1, 3, 2**62])
def test_an_update_that_ends_behind_its_cache(start: int) -> None:
    params = (Var("x", tensor("float32", 2, 4)), Var("u", tensor("float32", 2, 2)))
    mod = module(ops.tensor_scatter, *params, Var("w", tensor("int64", 2)), axis=1, circular=False)
    inputs = np.zeros((2, 4), "f4"), np.ones((2, 2), "f4"), ints([2, start])
    want = f"in tensor_scatter: index {start} is out of range for extent 3"
    for run in (bucketize.compile(mod).run, lambda *a: evaluate_module(mod, *a)):
        with pytest.raises(ShapeError, match=want):
            run(*inputs)


def test_an_update_longer_than_its_cache_is_refused_at_run_time() -> None:
    params = (Var("x", tensor("float32", 2, N)), Var("u", tensor("float32", 2, M)))
    mod = module(ops.tensor_scatter, *params, Var("w", tensor("int64", 2)), axis=1, circular=True)
    exe = bucketize.compile(mod)
    inputs = np.zeros((2, 4), "f4"), np.ones((2, 5), "f4"), ints([0, 0])
    for run in (exe.run, lambda *a: evaluate_module(mod, *a)):
        with pytest.raises(TypeRelError, match="an update of 5 in a cache of 4"):
            run(*inputs)


F = tensor("float32", 2, 3)
START = tensor("int64", 2)
LINE, STARTS = tensor("float32", 2), tensor("int64", 2, 3)


@pytest.mark.parametrize(
    ("reason", "op", "types", "attrs"),
    [
        ("no reduction 'sum'; known: none, add", ops.scatter_nd, 0, {"reduction": "sum"}),
        ("axis 0 is that of the batch", ops.tensor_scatter, (F, F, START), {"axis": 0}),
        (
            "ranks differ: 2 and 1",
            ops.tensor_scatter,
            (F, tensor("float32", 2), START),
            {"axis": 1},
        ),
        (
            "one index for each sequence, got rank 2",
            ops.tensor_scatter,
            (F, F, tensor("int64", 2, 3)),
            {"axis": 1},
        ),
        (
            "an update of 4 in a cache of 3",
            ops.tensor_scatter,
            (F, tensor("float32", 2, 4), START),
            {"axis": 1},
        ),
        ("indices are integers, got float32", ops.tensor_scatter, (F, F, F), {"axis": 1}),
    ],
)
def test_what_does_not_fit_is_refused(reason: str, op: Op, types: Any, attrs: Any) -> None:
    types = types or (F, tensor("int64", 2, 1), F)
    if op is ops.tensor_scatter:
        attrs = {"circular": False, **attrs}
    if reason.startswith("indices"):
        types = (F, F, tensor("float32", 2))
    with pytest.raises(TypeRelError, match=reason):
        op.infer(*types, **op.complete(attrs))
