"""Quantised models: each operator beside onnxruntime or the reference, and whole networks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from kernel_call import readable
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx_model import parse, run_ort

import bucketize
from bucketize.errors import ExportError, UnsupportedModelError
from bucketize.interpret import evaluate_module
from bucketize.onnx import from_onnx, to_onnx
from bucketize.op import Array
from bucketize.verify import verify
from dispatchers import log_dispatcher

pytestmark = pytest.mark.usefixtures("few_registers")

INTEGERS = ["uint8", "int8", "uint16", "int16"]
TENSOR = {d: helper.np_dtype_to_tensor_dtype(np.dtype(d)) for d in (*INTEGERS, "int32", "float32")}


def model(op_type: str, inputs: dict[str, Any], opset: int = 13, **attrs: Any) -> onnx.ModelProto:
    """One node; operands are constants, or a dtype and a shape."""
    known = {n: np.asarray(v) for n, v in inputs.items() if not isinstance(v, tuple)}
    given = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(np.dtype(v[0])), v[1])
        for n, v in inputs.items()
        if isinstance(v, tuple)
    ]
    node = helper.make_node(op_type, list(inputs), ["y"], "node", **attrs)
    out = helper.make_empty_tensor_value_info("y")
    tensors = [numpy_helper.from_array(v, n) for n, v in known.items()]
    graph = helper.make_graph([node], "g", given, [out], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def results(proto: onnx.ModelProto, **inputs: Array) -> Array:
    """What the interpreter and the kernels make of it, which must be one; it also leaves.

    Integers of two bits came after the opset of what leaves.
    """
    module = from_onnx(proto, bounds=dict.fromkeys(_symbols(proto), (0, None)))
    verify(module)
    (want,) = evaluate_module(module, **inputs)
    (got,) = bucketize.compile(module).run(**inputs)
    made = [got]
    if any("int2" in p.type.dtype.name for p in (*module.main.params, *module.main.results)):
        with pytest.raises(ExportError, match=r"takes no u?int2|has no u?int2 in opset 24"):
            to_onnx(module)
    else:
        made += evaluate_module(from_onnx(to_onnx(module)), **inputs)
    for other in made:
        assert other.dtype == want.dtype
        np.testing.assert_array_equal(readable(other), readable(want))
    return want


def _symbols(proto: onnx.ModelProto) -> set[str]:
    shapes = (i.type.tensor_type.shape.dim for i in proto.graph.input)
    return {d.dim_param for dims in shapes for d in dims if d.dim_param}


def drawn(dtype: str, *shape: int, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return (rng.standard_normal(shape) * 3).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


def seven_bits(*shape: int) -> Array:
    """Factors whose products by bytes onnxruntime adds up exactly on every processor.

    Where one adds none of bytes to 32 bits, pairs of them are added to 16, and saturate.
    """
    return drawn("int8", *shape) // 2


def same(proto: onnx.ModelProto, **inputs: Array) -> None:
    (want,) = run_ort(proto, inputs)
    got = results(proto, **inputs)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


# --- QuantizeLinear and DequantizeLinear ---------------------------------------------------------

HALVES = np.array([-1e30, -70000, -2.5, -1.5, -0.5, 0, 0.5, 1.5, 2.5, 255, 300, 1e30], np.float32)
SCALES = {
    "one": (np.float32(0.5), {}),
    "list of one": (np.array([0.5], np.float32), {}),
    "each of an axis": (np.array([0.5, 0.25, 2], np.float32), {"axis": 1}),
    "each of an axis from behind": (np.array([0.5, 3, 1, 0.1], np.float32), {"axis": -1}),
}


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("kind", SCALES)
def test_floats_and_back(dtype: str, kind: str) -> None:
    scale, attrs = SCALES[kind]
    opset = 21 if "16" in dtype else 13
    zero = (np.arange(scale.size).reshape(scale.shape) + 3).astype(dtype)
    there = {"x": ("float32", ["N", 3, 4]), "scale": scale, "zero": zero}
    back = {**there, "x": (dtype, ["N", 3, 4])}
    for n in (0, 1, 5):
        same(model("QuantizeLinear", there, opset, **attrs), x=drawn("float32", n, 3, 4) * 99)
        same(model("DequantizeLinear", back, opset, **attrs), x=drawn(dtype, n, 3, 4))


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_halves_go_to_the_even_number_and_nothing_wraps(dtype: str) -> None:
    for zero in (0, 1, 7):
        inputs = {"x": ("float32", ["N"]), "scale": np.float32(1), "zero": np.array(zero, dtype)}
        same(model("QuantizeLinear", inputs), x=HALVES)


def test_without_a_zero_point_and_of_opset_10() -> None:
    x, scale = drawn("float32", 9) * 50, np.float32(0.75)
    for opset in (10, 13, 19, 21, 23):
        same(model("QuantizeLinear", {"x": ("float32", ["N"]), "scale": scale}, opset), x=x)
        whole = drawn("int32", 9) // 1000
        same(model("DequantizeLinear", {"x": ("int32", ["N"]), "s": scale}, opset), x=whole)


@pytest.mark.parametrize("count", [1, 9])
def test_how_many_scales_there_are_may_be_known_to_a_run_alone(count: int) -> None:
    scale, x = drawn("float32", count) ** 2 + np.float32(0.1), drawn("float32", 9)
    proto = model("QuantizeLinear", {"x": ("float32", ["N"]), "s": ("float32", ["S"])}, axis=0)
    want = np.clip(np.rint(x / scale), 0, 255)
    np.testing.assert_array_equal(results(proto, x=x, s=scale), want)


def test_integers_are_quantised_as_floats() -> None:
    """onnxruntime has no kernel of this."""
    proto = model("QuantizeLinear", {"x": ("int32", ["N"]), "scale": np.float32(3)}, 13)
    x = np.array([-4, 0, 4, 5, 10**6], np.int32)
    np.testing.assert_array_equal(results(proto, x=x), [0, 0, 1, 2, 255])


@pytest.mark.parametrize("extent", [6, 5])
def test_blocks_of_an_axis(extent: int) -> None:
    """The last one may be cut off."""
    scale, zero = np.abs(drawn("float32", 2, 3)) + 0.1, drawn("uint8", 2, 3)
    inputs = {"x": ("float32", [2, extent]), "s": scale, "z": zero}
    proto = model("QuantizeLinear", inputs, 21, axis=1, block_size=2)
    x = drawn("float32", 2, extent)
    same(proto, x=x)
    whole = inputs | {"x": ("uint8", [2, extent])}
    back = model("DequantizeLinear", whole, 21, axis=1, block_size=2)
    same(back, x=drawn("uint8", 2, extent))


def test_blocks_of_rows_whose_number_is_a_symbol() -> None:
    inputs = {"x": ("int8", ["N", 4]), "s": ("float32", ["N", 2])}
    proto = model("DequantizeLinear", inputs, 21, axis=-1, block_size=2)
    x, s = drawn("int8", 3, 4), drawn("float32", 3, 2)
    np.testing.assert_array_equal(results(proto, x=x, s=s), x * np.repeat(s, 2, axis=1))


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2fnuz", "int4", "uint4"])
@pytest.mark.parametrize("saturate", [0, 1])
def test_short_numbers_are_those_of_the_reference(name: str, saturate: int) -> None:
    zero = np.zeros((), np.dtype(name))
    x = np.concatenate([HALVES, drawn("float32", 20) * 100])
    inputs = {"x": ("float32", ["N"]), "scale": np.float32(0.5), "zero": zero}
    proto = model("QuantizeLinear", inputs, 23, saturate=saturate)
    if "int" in name:
        x = np.clip(x, -1e6, 1e6)  # the reference wraps
    (want,) = ReferenceEvaluator(proto).run(None, {"x": x})
    got = results(proto, x=x)
    np.testing.assert_array_equal(readable(got), readable(want))
    back = model("DequantizeLinear", inputs | {"x": (name, ["N"])}, 23)
    (want,) = ReferenceEvaluator(back).run(None, {"x": got})
    np.testing.assert_array_equal(results(back, x=got), want)


@pytest.mark.parametrize("precision", [TensorProto.FLOAT, TensorProto.FLOAT16])
def test_the_precision_of_the_division_may_be_given(precision: int) -> None:
    inputs = {"x": ("float16", ["N"]), "scale": np.float32(0.1)}
    proto = model("QuantizeLinear", inputs, 23, precision=precision, output_dtype=TENSOR["int8"])
    x = drawn("float16", 200) * 10
    (want,) = ReferenceEvaluator(proto).run(None, {"x": x})
    np.testing.assert_array_equal(results(proto, x=x), want)


def test_the_dtype_of_a_result_may_be_given() -> None:
    inputs = {"x": ("int8", ["N"]), "scale": np.float32(0.1)}
    proto = model("DequantizeLinear", inputs, 23, output_dtype=TensorProto.FLOAT16)
    x = drawn("int8", 9)
    (want,) = ReferenceEvaluator(proto).run(None, {"x": x})
    np.testing.assert_array_equal(results(proto, x=x), want)


def test_dynamic_quantisation_is_that_of_onnxruntime() -> None:
    graph = "(float[N, 3] x) => (y, s, z) { y, s, z = DynamicQuantizeLinear(x) }"
    proto = parse(graph)
    executable = bucketize.compile(from_onnx(proto))
    for n, factor in ((1, 1.0), (7, 100.0), (64, 1e-3)):
        x = drawn("float32", n, 3) * np.float32(factor)
        for got, want in zip(executable.run(x), run_ort(proto, {"x": x}), strict=True):
            np.testing.assert_array_equal(got, want)


# --- matrix products -----------------------------------------------------------------------------

ZEROS = {
    "none": (None, None),
    "of the rows": ("one", None),
    "of the columns": (None, "one"),
    "both": ("one", "one"),
    "lists of one": ("list", "list"),
    "each row and column": ("each", "each"),
}


def zero_point(kind: str | None, dtype: str, count: int) -> Array | None:
    shape = {"one": (), "list": (1,), "each": (count,)}
    return None if kind is None else drawn(dtype, *shape[kind], seed=5)


@pytest.mark.sweep
@pytest.mark.parametrize("kind", ZEROS)
@pytest.mark.parametrize("x", ["int8", "uint8"])
@pytest.mark.parametrize("y", ["int8", "uint8"])
@pytest.mark.parametrize("known", [True, False])
def test_products_of_integers_are_exact(kind: str, x: str, y: str, known: bool) -> None:
    m, k, n = 5, 70, 9
    a, b = drawn(x, m, k), drawn(y, k, n, seed=1)
    left, right = ZEROS[kind]
    zeros = {"az": zero_point(left, x, m), "bz": zero_point(right, y, n)}
    rows = m if left == "each" else "M"
    inputs: dict[str, Any] = {"a": (x, [rows, k]), "b": b if known else (y, ["K", "N"])}
    node_inputs = inputs | {n: z for n, z in zeros.items() if z is not None}
    proto = model("MatMulInteger", node_inputs, 10)
    proto.graph.node[0].input[:] = ["a", "b", *(n if zeros[n] is not None else "" for n in zeros)]
    wide = [z.astype(np.int64) if z is not None else 0 for z in zeros.values()]
    first = wide[0][:, None] if left == "each" else wide[0]
    want = (a.astype(np.int64) - first) @ (b.astype(np.int64) - wide[1])
    got = results(proto, a=a, **({} if known else {"b": b}))
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, want)


def test_stacks_and_vectors_of_integers() -> None:
    b = drawn("int8", 4, 6)
    for shape in (["B", "M", 4], [4]):
        proto = model("MatMulInteger", {"a": ("uint8", shape), "b": b, "az": np.uint8(3)}, 10)
        a = drawn("uint8", *(4 if d == 4 else 3 for d in shape))
        np.testing.assert_array_equal(results(proto, a=a), (a.astype(np.int64) - 3) @ b)


def test_quantised_products_are_those_of_onnxruntime() -> None:
    f = np.float32
    for x, y, scale in (("uint8", "int8", f(0.01)), ("int8", "int8", drawn("float32", 9) ** 2)):
        zero = np.zeros(scale.shape, y)
        inputs = {
            "a": (x, ["M", 70]),
            "as": f(0.02),
            "az": np.array(3, x),
            "b": seven_bits(70, 9),
            "bs": scale.astype("f"),
            "bz": zero,
            "ys": f(0.1),
            "yz": np.array(7, x),
        }
        proto = model("QLinearMatMul", inputs, 10)
        for m in (0, 1, 7):
            same(proto, a=drawn(x, m, 70))


def test_each_row_of_a_product_may_have_a_scale() -> None:
    """As the standard says; onnxruntime has none."""
    f, a, b = np.float32, drawn("int8", 3, 4), drawn("int8", 4, 5)
    scales, zeros = np.array([1, 2, 4], f), np.array([0, 1, -1], np.int8)
    inputs = {
        "a": ("int8", [3, 4]),
        "as": scales,
        "az": zeros,
        "b": b,
        "bs": f(0.5),
        "bz": np.int8(2),
        "ys": scales * 100,
        "yz": zeros,
    }
    left, right = a.astype(int) - zeros[:, None], b.astype(int) - 2
    want = np.rint(left @ right / 200) + zeros[:, None]
    got = results(model("QLinearMatMul", inputs, 10), a=a)
    np.testing.assert_array_equal(got, np.clip(want, -128, 127))


# --- convolutions --------------------------------------------------------------------------------


def conv_integer(x: Array, w: Array, **attrs: Any) -> Array:
    """As floats of 64 bits, which are exact."""
    inputs = {"x": ("float64", x.shape), "w": ("float64", w.shape)}
    proto = model("Conv", inputs, 11, **attrs)
    (out,) = evaluate_module(from_onnx(proto), x.astype(np.float64), w.astype(np.float64))
    return out


CONVOLUTIONS: dict[str, tuple[int, int, dict[str, Any]]] = {
    "pads": (5, 5, {"pads": [1, 0, 2, 1], "strides": [2, 1]}),
    "groups": (6, 2, {"group": 3, "dilations": [1, 2]}),
    "of each channel": (8, 1, {"group": 8, "auto_pad": "SAME_UPPER"}),
    "sums beyond 2**24": (130, 130, {"pads": [1, 1, 1, 1]}),
    "groups of sums beyond 2**24": (260, 130, {"group": 2}),
}


@pytest.mark.sweep
@pytest.mark.parametrize("kind", CONVOLUTIONS)
@pytest.mark.parametrize("known", [True, False])
def test_convolutions_of_integers_are_exact(kind: str, known: bool) -> None:
    channels, inner, attrs = CONVOLUTIONS[kind]
    filters = 6 if "groups" in kind else 8
    x, w = drawn("uint8", 2, channels, 6, 7), drawn("int8", filters, inner, 3, 3)
    x[0], w[0] = 255, -128  # all of one sign
    zero, each = np.uint8(4), drawn("int8", filters) // 8
    inputs: dict[str, Any] = {
        "x": ("uint8", ["N", channels, "H", 7]),
        "w": w if known else ("int8", w.shape),
        "xz": zero,
        "wz": each,
    }
    proto = model("ConvInteger", inputs, 10, **attrs)
    want = conv_integer(x.astype(int) - 4, w.astype(int) - each[:, None, None, None], **attrs)
    got = results(proto, x=x, **({} if known else {"w": w}))
    np.testing.assert_array_equal(got, want)


@pytest.mark.sweep
@pytest.mark.parametrize("kind", ["pads", "sums beyond 2**24", "groups"])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_run_may_tell_the_zero_point_of_an_image(kind: str, dtype: str) -> None:
    channels, inner, attrs = CONVOLUTIONS[kind]
    w, x = drawn("int8", 6, inner, 3, 3), drawn(dtype, 2, channels, 6, 7)
    inputs = {"x": (dtype, ["N", channels, "H", 7]), "w": w, "xz": (dtype, [])}
    proto = model("ConvInteger", inputs, 10, **attrs)
    taken = "conv2d_integer" in {b.op.name for b in from_onnx(proto).main.body}
    assert taken == ("group" not in attrs)
    for zero in (0, 77, np.iinfo(dtype).min):
        want = conv_integer(x.astype(int) - zero, w, **attrs)
        got = results(proto, x=x, xz=np.array(zero, dtype))
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("each", [True, False])
def test_quantised_convolutions_are_those_of_onnxruntime(bias: bool, each: bool) -> None:
    f, w = np.float32, seven_bits(4, 3, 3, 3)
    inputs: dict[str, Any] = {
        "x": ("uint8", ["N", 3, "H", 8]),
        "xs": f(0.02),
        "xz": np.uint8(100),
        "w": w,
        "ws": (drawn("float32", 4) ** 2 if each else f(0.01)),
        "wz": np.zeros(4 if each else (), np.int8),
        "ys": f(0.3),
        "yz": np.uint8(120),
    }
    if bias:
        inputs["b"] = drawn("int32", 4) // 100000
    proto = model("QLinearConv", inputs, 10, pads=[1, 1, 1, 1])
    same(proto, x=drawn("uint8", 2, 3, 6, 8))


def chain(
    x: str = "uint8",
    w: str = "int8",
    shape: tuple[int, ...] = (70, 6, 3, 3),
    each: bool = True,
    axis: int = 0,
    zero: int = 3,
    scales: int = 0,
    **attrs: Any,
) -> onnx.ModelProto:
    """DequantizeLinear of an image and of weights, and Conv."""
    rng = np.random.default_rng(5)
    many = (shape[axis],) if each else ()
    inner = shape[1] * attrs.get("group", 1)
    told = {"xs": np.full(scales or (), 0.02, np.float32), "xz": np.full(scales or (), zero, x)}
    told["w"] = drawn(w, *shape)
    told["ws"] = rng.uniform(0.001, 0.01, many).astype(np.float32)
    told["wz"] = np.zeros(many, w)
    told["b"] = rng.standard_normal(shape[0]).astype(np.float32)
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["xf"], axis=1),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], axis=axis),
        helper.make_node("Conv", ["xf", "wf", "b"], ["y"], **attrs),
    ]
    image = ["N", inner, *("H", "W")[: len(shape) - 2]]
    given = [helper.make_tensor_value_info("x", TENSOR[x], image)]
    out = [helper.make_tensor_value_info("y", TENSOR["float32"], None)]
    tensors = [numpy_helper.from_array(v, n) for n, v in told.items()]
    graph = helper.make_graph(nodes, "g", given, out, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


CHAINS: dict[str, tuple[dict[str, Any], bool]] = {
    "bytes": ({"pads": [1, 1, 1, 1], "strides": [2, 1]}, True),
    "signed, one scale": ({"x": "int8", "each": False, "dilations": [1, 2]}, True),
    "weights without a sign": ({"w": "uint8", "axis": -4, "kernel_shape": [3, 3]}, True),
    "lines": ({"shape": (70, 6, 3), "auto_pad": "SAME_UPPER"}, True),
    "scales of channels in": ({"axis": 1}, False),
    "scales of the image": ({"scales": 6}, False),
    "groups": ({"shape": (6, 1, 3, 3), "group": 6}, False),
    "words": ({"x": "int16"}, False),
    "sums beyond 32 bits": ({"shape": (2, 33100, 1, 1)}, False),
}


@pytest.mark.sweep
@pytest.mark.parametrize("kind", CHAINS)
def test_convolutions_of_what_was_bytes_are_products_of_them(kind: str) -> None:
    told, taken = CHAINS[kind]
    proto = chain(**told)
    module = from_onnx(proto)
    assert ("conv2d_integer" in {b.op.name for b in module.main.body}) == taken
    shape = [d.dim_value or 9 for d in proto.graph.input[0].type.tensor_type.shape.dim]
    x = drawn(told.get("x", "uint8"), *shape)
    (want,) = run_ort(proto, {"x": x})
    (got,) = bucketize.compile(module).run(x)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())


# --- what is refused -----------------------------------------------------------------------------

F8 = np.zeros((), np.dtype("float8_e4m3fn"))
REFUSED = {
    "output_dtype is int8, the zero point uint8[]": model(
        "QuantizeLinear",
        {"x": ("float32", ["N"]), "s": np.float32(1), "z": np.uint8(0)},
        21,
        output_dtype=TENSOR["int8"],
    ),
    "blocks of 2 for float32[2] beside float32[N, 4]": model(
        "QuantizeLinear",
        {"x": ("float32", ["N", 4]), "s": np.ones(2, np.float32)},
        21,
        block_size=2,
    ),
    "float32[2, 2] beside float32[N, 2], expected a number or a vector": model(
        "QuantizeLinear", {"x": ("float32", ["N", 2]), "s": np.ones((2, 2), np.float32)}, 13
    ),
    "axis 1 is out of range for rank 1": model(
        "QuantizeLinear", {"x": ("float32", ["N"]), "s": np.ones(2, np.float32)}, 13
    ),
    "a product of float8_e4m3fn": model(
        "QLinearMatMul",
        {
            "a": ("float8_e4m3fn", ["N", 2]),
            "as": np.float32(1),
            "az": F8,
            "b": ("float8_e4m3fn", [2, 2]),
            "bs": np.float32(1),
            "bz": F8,
            "ys": np.float32(1),
            "yz": F8,
        },
        21,
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_is_refused_says_why(reason: str) -> None:
    with pytest.raises(UnsupportedModelError) as e:
        from_onnx(REFUSED[reason])
    assert reason in str(e.value)


def test_operators_of_onnxruntime_are_refused_by_name() -> None:
    node = helper.make_node("QMoE", ["x", "x"], ["y"], "sum", domain="com.microsoft")
    proto = parse("(uint8[N] x) => (y) { y = Identity(x) }")
    proto.graph.node[0].CopyFrom(node)
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    with pytest.raises(UnsupportedModelError, match=r"com\.microsoft 1 QMoE: no converter"):
        from_onnx(proto)


# --- networks ------------------------------------------------------------------------------------


def dense() -> onnx.ModelProto:
    rng = np.random.default_rng(3)
    shapes = {"w": (20, 32), "b": (32,), "v": (32, 10), "c": (10,)}
    held = {n: (rng.standard_normal(s) * 0.3).astype(np.float32) for n, s in shapes.items()}
    proto = parse(
        "(float[N, 20] x) => (float[N, 10] y) <float[20, 32] w, float[32] b, float[32, 10] v, "
        "float[10] c> { p = MatMul(x, w) q = Add(p, b) r = Relu(q) s = MatMul(r, v) y = Add(s, c) }"
    )
    return with_tensors(proto, held)


def convolutional() -> onnx.ModelProto:
    rng = np.random.default_rng(3)
    shapes = {"w": (8, 3, 3, 3), "b": (8,), "v": (8, 8, 3, 3), "u": (8, 5)}
    held = {n: (rng.standard_normal(s) * 0.3).astype(np.float32) for n, s in shapes.items()}
    proto = parse(
        "(float[N, 3, H, W] x) => (float[N, 5] y) <float[8, 3, 3, 3] w, float[8] b, "
        "float[8, 8, 3, 3] v, float[8, 5] u> { p = Conv<pads = [1, 1, 1, 1]>(x, w, b) q = Relu(p) "
        "r = Conv<strides = [2, 2]>(q, v) s = Add(r, r) m = GlobalAveragePool(s) "
        "f = Flatten(m) y = MatMul(f, u) }"
    )
    return with_tensors(proto, held)


def with_tensors(proto: onnx.ModelProto, held: dict[str, Array]) -> onnx.ModelProto:
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in held.items())
    return proto


NETWORKS = {"dense": (dense, (20,)), "convolutional": (convolutional, (3, 9, 12))}


QUANTISE = """
import sys
import numpy as np
from onnxruntime import quantization as q

class Calibration:
    def __init__(self, file):
        self.left = [{"x": x} for x in np.load(file)]

    def get_next(self):
        return self.left.pop() if self.left else None

for name in sys.argv[1:]:
    files = f"{name}.onnx", f"{name}-dynamic.onnx"
    q.quantize_dynamic(*files, weight_type=q.QuantType.QInt8, reduce_range=True)
    for way in ("QDQ", "QOperator"):
        seen, how = Calibration(f"{name}.npy"), q.QuantFormat[way]
        q.quantize_static(
            f"{name}.onnx", f"{name}-{way}.onnx", seen, quant_format=how, per_channel=True,
            reduce_range=True, op_types_to_quantize=None if way == "QDQ" else ["MatMul", "Conv"],
        )
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The networks, as onnxruntime quantises them: a process that has no `onnx_model` of ours."""
    folder = tmp_path_factory.mktemp("quantised")
    for name, (make, shape) in NETWORKS.items():
        onnx.save(make(), folder / f"{name}.onnx")
        np.save(folder / f"{name}.npy", [drawn("float32", 4, *shape, seed=i) for i in range(3)])
    command = [sys.executable, "-c", QUANTISE, *NETWORKS]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.sweep
@pytest.mark.parametrize("way", ["dynamic", "QDQ", "QOperator"])
@pytest.mark.parametrize("network", NETWORKS)
def test_networks_are_within_a_quantum_of_onnxruntime(network: str, way: str, folder: Path) -> None:
    _, shape = NETWORKS[network]
    before, after = (onnx.load(folder / f"{network}{tail}.onnx") for tail in ("", f"-{way}"))
    module = from_onnx(after)
    dispatched = bucketize.dispatch(module, log_dispatcher)
    executable = bucketize.compile(module)
    sizes = dict(zip(("N", "H", "W"), (4, *shape[1:]), strict=False))
    shown = executable.explain(**sizes)
    assert "numpy" not in str(shown), "each operator has a kernel"
    for n in (1, 4):
        x = drawn("float32", n, *shape, seed=9)
        (want,), (plain,) = run_ort(after, {"x": x}), run_ort(before, {"x": x})
        quantum = np.abs(plain).max() / 127
        behind = evaluate_module(dispatched, x)
        for (got,) in (executable.run(x), evaluate_module(module, x), behind):
            np.testing.assert_allclose(got, want, rtol=0, atol=quantum)
        np.testing.assert_allclose(got, plain, rtol=0, atol=16 * quantum)
