"""Operators of newer opsets, and corners: bits, sequences, powers, dropout, masks, parts."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from onnx_model import parse, run_ort

import bucketize
from bucketize import ops
from bucketize.errors import ShapeError, TypeRelError
from bucketize.interpret import evaluate_module
from bucketize.ir import FUSED, Builder, Module, Var
from bucketize.op import Op, all_ops
from bucketize.ops.values import per_element, quotient
from bucketize.types import Symbol, TensorType, tensor

pytestmark = pytest.mark.usefixtures("few_registers")

N = Symbol("N")
X = np.random.default_rng(0).standard_normal((3, 4)).astype("f4")
FLAGS = ("", "<exclusive = 1>", "<reverse = 1>", "<exclusive = 1, reverse = 1>")


@pytest.mark.sweep
@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("dtype", ["float", "int32"])
def test_running_products(flags: str, dtype: str, axis: int) -> None:
    """With an axis that is known, and one that a run brings."""
    x = X if dtype == "float" else np.arange(1, 13, dtype="i4").reshape(3, 4)
    for operand in (f") => (y) <int64 a = {{{axis}}}>", ", int64 a) => (y)"):
        model = parse(f"({dtype}[N, C] x{operand} {{ y = CumProd{flags}(x, a) }}", opset=26)
        inputs = {"x": x} | ({} if "<" in operand else {"a": np.array(axis)})
        (want,) = ReferenceEvaluator(model).run(None, inputs)
        mod = bucketize.from_onnx(model)
        for (got,) in (evaluate_module(mod, **inputs), bucketize.compile(mod).run(**inputs)):
            np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize(("name", "to"), [("float", 6), ("int64", 11), ("bool", 2), ("float16", 5)])
def test_bits_are_read_as_another_dtype(name: str, to: int) -> None:
    model = parse(f"({name}[N, 4] x) => (y) {{ y = BitCast<to = {to}>(x) }}", opset=26)
    mod = bucketize.from_onnx(model)
    x = (
        (X[:, ::-1] > 0)
        if name == "bool"
        else X.astype({"float": "f4", "float16": "f2"}.get(name, "i8"))
    )
    (want,) = ReferenceEvaluator(model).run(None, {"x": x})
    (got,) = bucketize.compile(mod).run(x)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float8_e5m2"])
def test_bits_of_short_numbers_are_read_as_they_are(name: str) -> None:
    x = np.array([1.0, -0.0, np.inf, 0.375]).astype(name)
    to = f"uint{8 * x.dtype.itemsize}"
    (read,) = ops.bitcast.run(x, dtype=to)
    np.testing.assert_array_equal(read, x.view(to))
    (back,) = ops.bitcast.run(read, dtype=name)
    assert back.dtype == x.dtype
    assert back.tobytes() == x.tobytes()


@pytest.mark.parametrize("graph", ["(float[N, 2, M, M] x)", "(double[M, M] x)"])
def test_determinants(graph: str) -> None:
    model = parse(f"{graph} => (y) {{ y = Det(x) }}")
    exe = bucketize.compile(bucketize.from_onnx(model))
    dtype = "f4" if "float" in graph else "f8"
    for n in (1, 2, 5):
        x = np.random.default_rng(n).standard_normal((3, 2, n, n)[2 * (dtype == "f8") :])
        (want,) = ReferenceEvaluator(model).run(None, {"x": x.astype(dtype)})
        np.testing.assert_allclose(exe.run(x.astype(dtype))[0], want, rtol=1e-4)


@pytest.mark.parametrize("axes", ["", "<batch_axis = 0, time_axis = 1>"])
def test_sequences_are_turned_round_as_far_as_they_go(axes: str) -> None:
    graph = f"(float[N, M, 3] x, int64[K] n) => (y) {{ y = ReverseSequence{axes}(x, n) }}"
    model = parse(graph, opset=11)
    mod = bucketize.from_onnx(model)
    exe = bucketize.compile(mod)
    for sizes in ((4, 4), (2, 5), (6, 1)):
        batch, time = sizes[::-1] if not axes else sizes
        rng = np.random.default_rng(batch)
        x, n = rng.standard_normal((*sizes, 3)).astype("f4"), rng.integers(0, time + 1, batch)
        (want,) = run_ort(model, {"x": x, "n": n})
        np.testing.assert_array_equal(exe.run(x, n)[0], want)
    with pytest.raises(ShapeError, match=f"index {time} is out of range for extent {time}"):
        exe.run(x, np.full(batch, time + 1))


def test_integers_to_a_power_that_is_none_are_cut() -> None:
    """What onnxruntime has, but of 0 to a negative one, which is no number."""
    base = np.array([2, -2, 1, -1, -1, 3, -8, 5])
    for dtype, power in itertools.product(("int32", "int64"), ("float", "int32", "int64")):
        model = parse(f"({dtype}[N] x, {power}[N] p) => (y) {{ y = Pow(x, p) }}", opset=15)
        exponent = np.array([-1, -3, -5, -3, -4, 4, 2, 0.5 if power == "float" else 0])
        inputs = {
            "x": base.astype(dtype),
            "p": exponent.astype("f4" if power == "float" else power),
        }
        mod = bucketize.from_onnx(model)
        (want,) = run_ort(model, inputs)
        for (got,) in (evaluate_module(mod, **inputs), bucketize.compile(mod).run(**inputs)):
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got, want)


# --- masks and parts -----------------------------------------------------------------------------


@pytest.mark.sweep
@pytest.mark.parametrize(("kind", "length"), [("float", 4), ("bool", 4), ("float", 1)])
@pytest.mark.parametrize("keys", ["6", "K"])
def test_a_mask_hides_the_keys_that_it_does_not_reach(kind: str, length: int, keys: str) -> None:
    graph = f"(float[N, 2, M, 8] q, float[N, 2, {keys}, 8] k, float[N, 2, {keys}, 8] v, "
    graph += f"{kind}[M, {length}] m) => (y) {{ y = Attention(q, k, v, m) }}"
    model = parse(graph, opset=24)
    mod = bucketize.from_onnx(model)
    rng = np.random.default_rng(0)
    inputs = {n: rng.standard_normal((2, 2, 6, 8)).astype("f4") for n in "kv"}
    inputs["q"] = rng.standard_normal((2, 2, 3, 8)).astype("f4")
    drawn = rng.standard_normal((3, length)).astype("f4")
    inputs["m"] = drawn if kind == "float" else drawn > -1
    (want,) = ReferenceEvaluator(model).run(None, inputs)
    for (got,) in (evaluate_module(mod, **inputs), bucketize.compile(mod).run(**inputs)):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_known_parts_are_asked_whether_they_are_the_axis() -> None:
    graph = "(float[N, 2] x) => (a, b) <int64[2] s = {2, 3}> { a, b = Split<axis = 0>(x, s) }"
    mod = bucketize.from_onnx(parse(graph))
    exe, x = bucketize.compile(mod), np.arange(10, dtype="f4").reshape(5, 2)
    assert not {b.op for b in mod.main.body} & {ops.dyn_split}
    for got, want in zip(exe.run(x), (x[:2], x[2:]), strict=True):
        np.testing.assert_array_equal(got, want)
    for run in (exe.run, lambda a: evaluate_module(mod, a)):
        with pytest.raises(
            (TypeRelError, ShapeError), match="input 'x', axis 0: expected 5, got 4"
        ):
            run(x[:4])


def test_parts_of_which_only_a_run_can_tell() -> None:
    graph = "(float[N] x, float[M] p, float[K] q) => (a, b) "
    graph += "{ m = Shape(p) k = Shape(q) s = Concat<axis = 0>(m, k) a, b = Split<axis = 0>(x, s) }"
    exe = bucketize.compile(bucketize.from_onnx(parse(graph)))
    x, p, q = (np.arange(n, dtype="f4") for n in (5, 2, 3))
    for got, want in zip(exe.run(x, p, q), (x[:2], x[2:]), strict=True):
        np.testing.assert_array_equal(got, want)
    with pytest.raises(TypeRelError, match=r"parts that do not add up to axis 0 of float32\[N\]"):
        exe.run(x, p, q[:2])


# --- dtypes, groups ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sub", "mod", "fmod", "pow", "neg", "sign", "relu"])
def test_truths_are_no_numbers(name: str) -> None:
    op: Op = all_ops()[name]
    count = 1 if name in ("neg", "sign", "relu") else 2
    with pytest.raises(TypeRelError, match="expected numbers, got bool"):
        op.infer(*[tensor("bool", 3)] * count)


INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
DTYPES = ("bool", *INTEGERS, "float16", "float32", "float64")


@pytest.mark.parametrize(
    "op", [o for o in all_ops().values() if o.scalar and not o.defaults], ids=str
)
def test_what_types_allow_numpy_computes(op: Op) -> None:
    """Of any dtypes, without an error or a warning, and the dtype is that of the type."""
    count = op.compute.__wrapped__.__code__.co_argcount
    values = np.array([-3, 0, 100])
    for dtypes in itertools.product(DTYPES, repeat=count):
        try:
            (type_,) = op.infer(*(tensor(d, 3) for d in dtypes))
        except TypeRelError:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            (got,) = op.run(*(values.astype(d) for d in dtypes))
        assert got.dtype == type_.dtype


def test_a_rule_over_dims_warns_of_nothing() -> None:
    """Python's own arithmetic may leave a flag that numpy would report."""

    def flagged(a: int, b: int) -> int:
        np.log(np.float64(-abs(a) - 1))
        return quotient(a, b)

    seven, two = (TensorType(np.dtype("int64"), (2,), value) for value in ((7, -7), (2, 2)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert per_element(flagged)(seven, two) == (3, -3)


@pytest.mark.parametrize("outer", [(N, 4), (3, N, 4)])
def test_a_group_may_hold_what_its_result_does_not_need(outer: tuple[object, ...]) -> None:
    """Of a higher rank than the result's: no kernel of loops over the result."""
    x, y = Var("x", tensor("float32", *outer)), Var("y", tensor("float32", N))
    inner, out, params = Builder(), Builder(), (Var("x0", x.type), Var("x1", y.type))
    inner.emit(ops.exp, params[0])
    body = inner.function("", params, [inner.emit(ops.neg, params[1])])
    mod = Module({"main": out.function("main", [x, y], [out.emit(FUSED, x, y, body=body)])})
    a = np.ones([5 if d is N else d for d in outer], "f4")
    b = np.arange(5, dtype="f4")
    np.testing.assert_array_equal(bucketize.compile(mod).run(a, b)[0], -b)


def test_halves_that_go_into_an_op_of_several_results() -> None:
    """No rotary embedding ends there."""
    x, out = Var("x", tensor("float32", N, 8)), Builder()
    ends = [{"begin": (b,), "end": (b + 4,), "strides": (1,), "axes": (1,)} for b in (4, 0)]
    halves = [out.emit(ops.strided_slice, x, **e) for e in ends]
    found = out.emit_all(ops.topk, out.emit(ops.concat, *halves, axis=1), k=2, axis=1)
    mod = Module({"main": out.function("main", [x], found)})
    doubled = X.repeat(2, 1)
    for got, want in zip(
        bucketize.compile(mod).run(doubled), evaluate_module(mod, doubled), strict=True
    ):
        np.testing.assert_array_equal(got, want)
