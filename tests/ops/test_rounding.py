"""Weights in fewer bits: what they round to, who is asked, how far products are off."""

from __future__ import annotations

import re
from typing import Any

import click
import numpy as np
import pytest
from onnx import numpy_helper, parser
from test_vector_templates import TARGETS, Case, N, check, legal

import bucketize
from bucketize import ops
from bucketize.cli.parameter import reading_options
from bucketize.errors import TypeRelError, UnknownNameError, UnsupportedModelError
from bucketize.interpret import evaluate_module
from bucketize.ir import Builder, Var
from bucketize.kernel.gemm import matmul
from bucketize.kernel.templates import candidates
from bucketize.kernel.workload import Workload
from bucketize.link.memory import address
from bucketize.machine.host import host
from bucketize.measure import case as timed
from bucketize.op import Array
from bucketize.ops.rounding import FORMATS, PLAIN, bfloat16_bits, int8_columns, rounded
from bucketize.types import Symbol, tensor

pytestmark = pytest.mark.usefixtures("few_registers")

SHORT = [name for name in FORMATS if name != PLAIN]


def drawn(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# --- numbers -------------------------------------------------------------------------------------


def test_bfloat16_rounds_to_the_nearest_even_number() -> None:
    given = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-7, 3.4e38, np.inf, 0.0], np.float32)
    wanted = [1.0, 1.0, 1 + 2**-6, -1 - 2**-7, np.inf, np.inf, 0.0]
    np.testing.assert_array_equal(rounded(given, "bfloat16"), np.array(wanted, np.float32))
    nans = np.array([0x7FFFFFFF, 0xFF800001], np.uint32).view(np.float32)
    assert np.isnan(rounded(nans, "bfloat16")).all()
    assert bfloat16_bits(given).dtype == np.uint16


def test_int8_are_steps_of_a_column() -> None:
    y = np.array([[127.0, 0.0, 1e-45], [-63.4, 0.0, 0.0]], np.float32)
    levels, step = int8_columns(y)
    np.testing.assert_array_equal(levels, [[127, 0, 0], [-63, 0, 0]])
    assert step[0, 0] == 1
    np.testing.assert_array_equal(rounded(rounded(y, "int8"), "int8"), rounded(y, "int8"))
    spoilt = rounded(np.array([[np.inf, 1.0], [1.0, 2.0]], np.float32), "int8")
    assert np.isnan(spoilt[:, 0]).all()
    np.testing.assert_allclose(spoilt[:, 1], [1, 2], rtol=0, atol=2 / 253)


@pytest.mark.parametrize("weights", SHORT)
def test_what_is_no_float_is_not_rounded(weights: str) -> None:
    y = np.full((2, 3), 1001, np.int32)
    assert rounded(y, weights) is y


@pytest.mark.parametrize("weights", SHORT)
@pytest.mark.parametrize("spread", [0.0, 3.0])
def test_products_are_off_by_no_more_than_is_stated(weights: str, spread: float) -> None:
    """Whatever the magnitudes of the weights are."""
    x, y = drawn(5, 300), drawn(300, 40, seed=1) * np.exp(spread * drawn(300, 40, seed=2))
    exact = x.astype(np.float64) @ y
    got = ops.matmul.run(x.astype(np.float64), y.astype(np.float64), weights=weights)[0]
    size = np.abs(x).astype(np.float64)
    most = 2.0**-8 * size @ np.abs(y)
    if weights == "int8":
        most = size.sum(axis=1, keepdims=True) * np.abs(y).max(axis=0) / 254
    assert (np.abs(got - exact) <= most * (1 + 1e-5)).all()
    assert np.abs(got - exact).max() > 1e-3, "nothing was rounded"


def test_the_command_line_knows_every_format() -> None:
    command = reading_options(click.Command("any"))
    (choice,) = (o.type for o in command.params if o.name == "weights")
    assert isinstance(choice, click.Choice)
    assert list(choice.choices) == list(FORMATS)


def test_other_formats_are_an_error() -> None:
    with pytest.raises(TypeRelError, match="no weights of 'int4'; known: float32, bfloat16, int8"):
        Builder().emit(ops.matmul, *_matrices(), weights="int4")


def _matrices() -> tuple[Var, Var]:
    return Var("x", tensor("float32", 2, 3)), Var("y", tensor("float32", 3, 4))


# --- kernels -------------------------------------------------------------------------------------


def layer(weights: str, rows: Any = N, *, constant: tuple[int, ...] = (1, 2)) -> Case:
    """A dense layer with weights of a format; its panels are cut."""

    def make(b: Builder, x: Var, y: Var, bias: Var, other: Var) -> Var:
        made = b.emit(ops.matmul, x, y, weights=weights)
        return b.emit(ops.relu, b.emit(ops.add, b.emit(ops.add, made, bias), other))

    shapes = ((rows, 147), (147, 137), (137,), (rows, 137))
    return Case(matmul.TEMPLATE, make, shapes, ({"N": 1}, {"N": 3}, {"N": 11}), constant)


@pytest.mark.sweep
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: f"lanes{t.lanes}")
@pytest.mark.parametrize("weights", SHORT)
def test_kernels_are_the_product_however_they_hold_its_weights(weights: str, target: Any) -> None:
    case = layer(weights)
    schedules = legal(case.template, case.workload(), target)
    for held in ("float32", weights):
        mine = [s for s in schedules if s["weights"] == held]
        for schedule in (mine[0], mine[len(mine) // 2]):
            check(case, schedule, target)


@pytest.mark.parametrize("weights", SHORT)
def test_few_rows_hold_short_weights(weights: str) -> None:
    few, many = (layer(weights, Symbol("N", 1, top)).workload() for top in (8, 9))
    defaults = [matmul.TEMPLATE.default(load, TARGETS[0])["weights"] for load in (few, many)]
    assert defaults == [weights, "float32"]
    y = drawn(147, 137)
    packed = [
        matmul.TEMPLATE.pack(few, {"mr": 6, "nr": 64, "kc": 0, "weights": held}, 1, y)
        for held in ("float32", weights)
    ]
    assert packed[0] is not None
    assert packed[1] is not None
    size = packed[0].nbytes * {"bfloat16": 2, "int8": 1}[weights] // 4
    assert packed[1].nbytes == size + (3 * 64 * 4 if weights == "int8" else 0)


def test_floats_have_no_knob_for_it_and_the_key_that_logs_know() -> None:
    load = layer("float32").workload()
    assert "weights" not in matmul.TEMPLATE.knobs(load, host())
    assert "weights" not in load.key
    short = layer("int8").workload()
    assert "weights='int8'" in short.key
    schedule = matmul.TEMPLATE.default(short, host()) | {"weights": "bfloat16"}
    reason = matmul.TEMPLATE.valid(short, schedule, host())
    assert reason == "weights=bfloat16 is not in ('float32', 'int8')"


def test_weights_that_are_not_known_have_no_kernel() -> None:
    """Nobody could round them once: they are computed by their meaning."""
    body = Builder()
    params = _matrices()
    out = body.emit(ops.matmul, *params, weights="int8")
    assert not candidates(Workload(body.function("", list(params), [out]), (False, False)))


def test_short_weights_are_as_cold_as_floats() -> None:
    load, bytes_ = layer("int8").workload(), np.arange(96, dtype=np.uint8)
    case = timed.KernelCase(load, load, (drawn(2), np.arange(3)), drawn(2))
    ring = case.ring(0, bytes_, 3)
    assert len({address(a) for a in ring}) == 3
    assert all((a == bytes_).all() for a in ring)
    assert case.ring(1, case.inputs[1], 3) == [case.inputs[1]], "they may be indices"


# --- models --------------------------------------------------------------------------------------

GRAPH = """<ir_version: 8, opset_import: ["" : 17]>
    net (float[N, 24] x, float[24, 24] z) => (y) <float[24, 40] w, float[9, 40] v, float[9] c>
    { m = MatMul(x, w) r = Relu(m) s = Gemm<transB = 1>(r, v, c) t = MatMul(x, z)
      u = ReduceSum<keepdims = 1>(t) y = Add(s, u) }"""


def model(w: Array) -> Any:
    proto = parser.parse_model(GRAPH)
    held = {"w": w, "v": drawn(9, 40, seed=1), "c": drawn(9, seed=2)}
    proto.graph.ClearField("initializer")
    proto.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in held.items())
    return proto


def formats(mod: bucketize.Module) -> list[str]:
    return [b.attrs["weights"] for b in mod.main.body if b.op is ops.matmul]


def test_a_model_is_as_it_is_unless_asked() -> None:
    assert formats(bucketize.from_onnx(model(drawn(24, 40)))) == ["float32"] * 3
    known = re.escape("no format of weights named 'int4'; known: bfloat16, float32, int8")
    with pytest.raises(UnknownNameError, match=known):
        bucketize.from_onnx(model(drawn(24, 40)), weights="int4")


@pytest.mark.parametrize("weights", SHORT)
def test_matrices_that_a_model_knows_are_rounded(weights: str) -> None:
    mod = bucketize.from_onnx(model(drawn(24, 40)), weights=weights, bounds={"N": (1, 64)})
    assert formats(mod) == [weights, weights, "float32"]
    buckets = bucketize.dispatch(mod, lambda _: {"x": {0: [(1, 4), (4, None)]}})
    exe = bucketize.compile(buckets)
    for rows in (1, 3, 4, 20):
        args = [drawn(rows, 24, seed=rows), drawn(24, 24, seed=9)]
        (got,), (want,) = exe.run(*args), evaluate_module(mod, *args)
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())


def test_weights_without_a_size_have_no_int8() -> None:
    w = drawn(24, 40)
    w[3, 4] = np.inf
    with pytest.raises(UnsupportedModelError, match="weights that are not finite have no int8"):
        bucketize.from_onnx(model(w), weights="int8")
    assert formats(bucketize.from_onnx(model(w), weights="bfloat16"))[0] == "bfloat16"


@pytest.mark.parametrize("weights", SHORT)
@pytest.mark.parametrize(
    "node", ["y = Gemm<transB = 1>(x, v)", "t = Transpose(v) y = MatMul(x, t)", "y = Gemm(x, w)"]
)
def test_matrices_are_known_whichever_way_they_lie(node: str, weights: str) -> None:
    """As rows or columns; they leave rounded, also from a module that nothing simplified."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        net (float[N, 24] x) => (y) <float[24, 9] w, float[9, 24] v> {{ {node} }}"""
    proto, w = parser.parse_model(text), drawn(24, 9)
    proto.graph.ClearField("initializer")
    held = {"w": w, "v": np.ascontiguousarray(w.T)}
    proto.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in held.items())
    mod = bucketize.from_onnx(proto, weights=weights)
    assert formats(mod) == [weights]
    x = drawn(5, 24, seed=1)
    (got,) = evaluate_module(bucketize.from_onnx(bucketize.to_onnx(mod)), x)
    np.testing.assert_allclose(got, x @ rounded(w, weights), rtol=0, atol=1e-5)


def test_a_matrix_that_several_nodes_turn_is_one_constant() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        net (float[N, 9] x) => (y)
        { a = Gemm<transB = 1>(x, v) t = Transpose(v) b = MatMul(a, t) y = MatMul(b, v) }"""
    proto = parser.parse_model(text)
    proto.graph.initializer.append(numpy_helper.from_array(drawn(9, 9), "v"))
    mod = bucketize.from_onnx(proto)
    first, second, third = (b.args[1] for b in mod.main.body if b.op is ops.matmul)
    assert first is second
    assert first is not third
