"""Functions of vector code are accurate at any width; expressions become text."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kernel_call import F32, N, run, workload
from llvmlite import ir
from numba import njit, types

from bucketize import ops
from bucketize.errors import KernelError
from bucketize.kernel.codegen import compiled
from bucketize.kernel.emit import expression, scalar
from bucketize.kernel.emit.math import FUNCTIONS
from bucketize.kernel.emit.module import vector_kernel
from bucketize.kernel.emit.vector import Writer
from bucketize.kernel.object import load
from bucketize.kernel.templates import candidates
from bucketize.machine.host import host, processor
from bucketize.op import Array, Op, all_ops
from bucketize.types import tensor

RIM = 128  # elements


# --- functions -----------------------------------------------------------------------------------

EXACT: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp,
    "log": np.log,
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "gelu": np.vectorize(lambda x: 0.5 * x * (1 + math.erf(x * 0.5**0.5)), otypes=[np.float64]),
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sqrt": np.sqrt,
    "abs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
}
EXTREMES = [np.nan, np.inf, -np.inf, 0.0, -0.0, 88.7, 89.5, -86, -88, -104, 1e-40, -1e-40, 3e38]


def numbers() -> Array:
    spread = np.concatenate([np.linspace(-100, 100, 4001), 10.0 ** np.linspace(-37, 38, 501)])
    return np.array([*EXTREMES, *spread, *np.linspace(-4, 4, 2000)], np.float32)


def emit_functions(w: Writer, block: ir.Value) -> None:
    """One output row for each function of one input row."""
    x, n = w.load_pointer(block, 1), w.load_word(block, 2)
    out = w.load_pointer(block, 0)

    def step(i: ir.Value, _: object) -> None:
        mask = w.mask(w.sub(n, i))
        value = w.load(w.item(x, i), mask)
        for row, function in enumerate(FUNCTIONS.values()):
            at = w.item(out, w.add(i, w.mul(n, row)))
            w.store(function(w, value), at, mask)

    w.loop(0, n, step, step=w.lanes)


def assert_close(name: str, got: Array, x: Array) -> None:
    with np.errstate(all="ignore"):
        want = EXACT[name](x.astype(np.float64))
        rounded = want.astype(np.float32)
    finite = np.isfinite(rounded)
    np.testing.assert_array_equal(got[~finite], rounded[~finite], name)
    if name in ("erf", "tanh"):  # gelu multiplies what is left of 1 by x
        np.testing.assert_array_equal(got[np.abs(x) > 9], np.sign(x[np.abs(x) > 9]), name)
    error = np.abs(got[finite] - want[finite])
    size = x[finite] if name == "gelu" else want[finite]  # it is x times what is left of 1
    assert np.all(error <= 3e-7 * np.abs(size) + 3e-38), name


@pytest.mark.parametrize("lanes", [16, 8, 4, 2])
def test_functions_are_accurate_at_any_width(lanes: int) -> None:
    name = f"functions{lanes}"
    code = compiled(
        *vector_kernel(name, emit_functions, {"lanes": lanes})(processor()), name, processor()
    )
    x = numbers()
    rows = len(FUNCTIONS)
    out = np.full(rows * x.size + 2 * RIM, 7, np.float32)
    inner = out[RIM:-RIM]
    block = np.array([inner.ctypes.data, x.ctypes.data, x.size], np.int64)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(load(name, code))(block.ctypes.data)
    assert np.all(out[:RIM] == 7)
    assert np.all(out[-RIM:] == 7)
    for name, row in zip(FUNCTIONS, inner.reshape(rows, -1), strict=True):
        assert_close(name, row, x)


@pytest.mark.parametrize("op", [ops.gelu, ops.gelu_tanh, ops.silu], ids=str)
def test_activations_vanish_far_below_zero(op: Op) -> None:
    x = np.array([-15, -200, -1e6, -1e30, 15, 200, 1e30], np.float32)
    load = workload(op, tensor(F32, N))
    template = candidates(load)[0]
    schedule = template.default(load, host())
    for got in (op.compute(x), *run(template, load, schedule, [x], {"N": x.size}, [x], 1)):
        np.testing.assert_allclose(got[:4], 0, atol=1e-30 if op is not ops.silu else 1e-5)
        np.testing.assert_allclose(got[4:], x[4:], rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scalar_functions_are_those_of_the_vectors(dtype: type) -> None:
    exp, log, erf, tanh = scalar.exp, scalar.log, scalar.erf, scalar.tanh
    sigmoid, rsqrt, round_even, gelu = scalar.sigmoid, scalar.rsqrt, scalar.round_even, scalar.gelu
    element = types.float32 if dtype is np.float32 else types.float64

    def all_of(x: Any, out: Any) -> None:
        for i in range(x.size):
            out[0, i], out[1, i], out[2, i] = exp(x[i]), log(x[i]), erf(x[i])
            out[3, i], out[4, i], out[5, i] = tanh(x[i]), sigmoid(x[i]), rsqrt(x[i])
            out[6, i], out[7, i] = round_even(x[i]), gelu(x[i])

    x = numbers().astype(dtype)
    out = np.empty((8, x.size), dtype)
    njit(types.void(element[::1], element[:, ::1]), error_model="numpy")(all_of)(x, out)
    names = ("exp", "log", "erf", "tanh", "sigmoid", "rsqrt", "round", "gelu")
    for name, row in zip(names, out, strict=True):
        if dtype is np.float32:
            assert_close(name, row, x)
        else:
            with np.errstate(all="ignore"):
                np.testing.assert_allclose(row, EXACT[name](x), rtol=1e-14)


# --- expressions ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scalar", "dtypes", "out", "text"),
    [
        ("max(x0, 0)", ["float32"], "float32", "maximum(a, float32(0))"),
        ("x0 / (1 + exp(-x0))", ["float32"], "float32", "(a / (float32(1) + exp((-a))))"),
        ("x0 + x1", ["int32", "int32"], "int32", "int32((a + b))"),
        ("x0 < x1", ["int64", "int64"], "bool", "(a < b)"),
        ("where(x0, x1, x2)", ["bool", "int64", "int64"], "int64", "where(a, b, c)"),
        ("~x0", ["bool"], "bool", "(not a)"),
        ("cast(x0, dtype)", ["float32"], "int64", "int64(a)"),
        ("cast(x0, dtype)", ["int64"], "bool", "(a != 0)"),
        ("min(max(x0, lo), hi)", ["float32"], "float32", None),
        ("pow(x0, x1)", ["float32", "float32"], "float32", "(a ** b)"),
    ],
)
def test_expressions_become_text(
    scalar: str, dtypes: list[str], out: str, text: str | None
) -> None:
    given = [np.dtype(d) for d in dtypes]
    attrs = {"lo": -math.inf, "hi": 6.0, "dtype": out}
    made = expression.loop_text(scalar, ["a", "b", "c"][: len(given)], given, np.dtype(out), attrs)
    want = text or "minimum(maximum(a, float32((-math.inf))), float32(6.0))"
    assert made == want


def test_an_expression_that_no_rule_covers_is_named() -> None:
    with pytest.raises(KernelError, match=r"no rule for '\[x0\]'"):
        expression.loop_text("[x0]", ["a"], [np.dtype("float32")], np.dtype("float32"), {})


def test_expressions_say_whether_they_have_a_vector_form() -> None:
    without = {
        o.name for o in all_ops().values() if o.scalar and not expression.has_vector_form(o.scalar)
    }
    assert {o.name for o in (ops.pow_, ops.sin, ops.mod, ops.trunc_div, ops.cast)} <= without
    assert not without & {"gelu", "relu", "clip", "silu", "where", "softplus", "hard_swish"}
    assert expression.is_long("tanh(x0)")
    assert not expression.is_long("min(max(x0, 0), 6)")
