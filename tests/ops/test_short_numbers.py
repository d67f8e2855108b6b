"""Numbers that numpy does not compute with: how they are cast, computed with, written and kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kernel_call import readable
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx_model import parse
from test_quantized import model, results

import bucketize
from bucketize import ops
from bucketize.compare import relative_error
from bucketize.errors import ShapeError, UnsupportedModelError
from bucketize.interpret import evaluate_module
from bucketize.ir import Builder, Const, Module, Var
from bucketize.onnx import from_onnx
from bucketize.op import Array
from bucketize.ops.elementwise.arithmetic import erf
from bucketize.text import constants, show
from bucketize.text import parse as parse_text
from bucketize.types import Symbol, tensor
from bucketize.types.number import BFLOAT16, FLOAT8, SCALE, SHORT, kind_of

N = Symbol("N", 0)
NAMES = sorted(d.name for d in SHORT)
FLOATS = [n for n in NAMES if kind_of(np.dtype(n)) == "f"]
SMALL = np.array([0, 1, -1, 0.5, -2.5, 3.5, 6, -7, 0.3], np.float32)
GREAT = np.array([447, 448, 464, 465, 480, 1e5, 57344, 61440, 61441, 1e9, np.inf, np.nan, 1e-9])


def every(name: str) -> Array:
    """Each number of a dtype of eight bits or less, as far as there are so many."""
    dtype = np.dtype(name)
    codes = np.arange(1 << 8, dtype=np.uint8)
    if kind_of(dtype) in "iu":
        return np.unique(codes.astype(dtype).astype(np.int8)).astype(dtype)
    if dtype == BFLOAT16:
        return np.arange(1 << 16, dtype=np.uint16).view(dtype)
    return codes[: 1 << 4 if "float4" in name else None].view(dtype)


def cast_model(source: str, target: str, **attrs: int) -> object:
    to = helper.np_dtype_to_tensor_dtype(np.dtype(target))
    return model("Cast", {"x": (source, ["N"])}, 25, to=to, **attrs)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("wide", ["float32", "float16", "int32"])
def test_every_short_number_is_cast_as_the_reference_does(name: str, wide: str) -> None:
    x = every(name)
    if wide == "int32":  # what of a number that has no integer is anyone's
        x = x[np.isfinite(x.astype(np.float32)) & (np.abs(x.astype(np.float32)) < 2**31)]
    proto = cast_model(name, wide)
    (want,) = ReferenceEvaluator(proto).run(None, {"x": x})
    np.testing.assert_array_equal(results(proto, x=x), want)


@pytest.mark.parametrize("name", [n for n in FLOATS if n != SCALE.name])
@pytest.mark.parametrize("wide", ["float32", "float16", "float64", "bfloat16"])
@pytest.mark.parametrize("saturate", [0, 1])
def test_floats_are_rounded_and_saturated_as_the_reference_does(
    name: str, wide: str, saturate: int
) -> None:
    with np.errstate(over="ignore"):
        x = np.concatenate([SMALL, GREAT, -GREAT]).astype(wide)
    proto = cast_model(wide, name, saturate=saturate)
    (want,) = ReferenceEvaluator(proto).run(None, {"x": x})
    np.testing.assert_array_equal(readable(results(proto, x=x)), readable(want))


@pytest.mark.parametrize("name", ["int4", "uint4", "int2", "uint2"])
def test_integers_of_few_bits_are_cut_towards_zero(name: str) -> None:
    limits = np.array([-2, -1.5, -0.5, 0, 0.7, 1.0], np.float32)
    x = np.abs(limits) if name.startswith("u") else limits
    want = np.trunc(x)
    np.testing.assert_array_equal(readable(results(cast_model("float32", name), x=x)), want)


def test_integers_saturate_in_floats_of_eight_bits() -> None:
    x = np.array([1, 448, 449, 10**6, -(10**6)], np.int64)
    proto = cast_model("int64", "float8_e4m3fn")
    np.testing.assert_array_equal(readable(results(proto, x=x)), [1, 448, 448, 448, -448])


def test_what_is_alike_decides_the_dtype() -> None:
    graph = "(float[N] x, bfloat16[M] z) => (y) { y = CastLike(x, z) }"
    x, z = np.array([1.001, 3], np.float32), np.zeros(1, BFLOAT16)
    (got,) = evaluate_module(from_onnx(parse(graph, 19)), x, z)
    assert got.dtype == BFLOAT16
    assert readable(got).tolist() == [1, 3]


def test_how_to_round_to_powers_of_two_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="to float8_e8m0fnu, rounded up"):
        from_onnx(cast_model("float32", SCALE.name))


# --- arithmetic ----------------------------------------------------------------------------------


def test_an_op_is_computed_in_float32_and_rounded_once() -> None:
    x = np.linspace(-3, 3, 50).astype(BFLOAT16)
    wide = x.astype(np.float32)
    (sums,) = ops.reduce_sum.run(np.full(4096, 0.25, BFLOAT16), axes=(0,), keepdims=False)
    assert sums.dtype == BFLOAT16
    assert float(sums) == 1024, "step by step it would end at 64"
    (got,) = erf.run(x)
    np.testing.assert_array_equal(readable(got), readable(erf.compute(wide).astype(BFLOAT16)))
    (place,) = ops.argmax.run(x, axis=0, keepdims=False)
    assert place.dtype == np.int64


@pytest.mark.parametrize("known", [True, False])
def test_products_of_bfloat16_are_those_of_float32_rounded(known: bool) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(s).astype(BFLOAT16) for s in ((5, 70), (70, 40)))
    operand = y if known else ("bfloat16", [70, "M"])
    proto = model("MatMul", {"x": ("bfloat16", ["N", 70]), "z": operand}, 13)
    got = results(proto, x=x, **({} if known else {"z": y}))
    want = (x.astype(np.float64) @ y.astype(np.float64)).astype(BFLOAT16)
    assert got.dtype == BFLOAT16
    np.testing.assert_allclose(readable(got), readable(want), rtol=2**-7)
    if known:
        assert "weights='bfloat16'" in show(from_onnx(proto))


# --- what else sees a dtype ----------------------------------------------------------------------


def with_constant(name: str) -> Module:
    """Elements of a constant by their indices."""
    index, b = Var("i", tensor("int64", N)), Builder()
    table = Const(every(name)[:4])
    out = b.emit(ops.gather, table, index, axis=0)
    return Module({"main": b.function("main", (index,), (out,))})


@pytest.mark.parametrize("name", NAMES)
def test_constants_survive_text_and_files(name: str, tmp_path: Path) -> None:
    module, at = with_constant(name), np.array([0, 2, 1])
    (want,) = evaluate_module(module, at)
    again = parse_text(show(module), constants(module))
    saved = bucketize.compile(module)
    saved.save(tmp_path / "program")
    loaded = bucketize.load(tmp_path / "program")
    for got in (*evaluate_module(again, at), *saved.run(at), *loaded.run(at)):
        assert got.dtype == np.dtype(name)
        np.testing.assert_array_equal(readable(got), readable(want))


def test_inputs_of_another_dtype_are_refused() -> None:
    x, b = Var("x", tensor("bfloat16", N)), Builder()
    module = Module({"main": b.function("main", (x,), (b.emit(ops.relu, x),))})
    with pytest.raises(ShapeError, match="input 'x': expected bfloat16, got float32"):
        evaluate_module(module, np.zeros(3, np.float32))


def test_errors_are_measured_as_those_of_floats() -> None:
    x = np.array([1, 2, np.nan], BFLOAT16)
    assert relative_error(x, x) == 0
    assert relative_error(np.array([1, 2.5, np.nan], BFLOAT16), x) == 0.25


def test_no_kernel_takes_a_dtype_for_another_with_the_same_letter() -> None:
    """Of ml_dtypes `Q` is float8_e5m2fnuz, of numpy uint64."""
    module = from_onnx(cast_model("float8_e5m2fnuz", "float32"))
    x = every("float8_e5m2fnuz")
    (got,) = bucketize.compile(module).run(x)
    np.testing.assert_array_equal(got, x.astype(np.float32))


def test_kinds_are_those_of_what_is_computed_in() -> None:
    assert SHORT.keys() > FLOAT8
    assert {kind_of(np.dtype(n)) for n in FLOATS} == {"f"}
    names = ("int4", "uint2", "int64", "bool")
    assert [kind_of(np.dtype(n)) for n in names] == ["i", "u", "i", "b"]
