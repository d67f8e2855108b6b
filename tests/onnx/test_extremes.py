"""Nodes at the ends of the range of numbers, where what lies between is beyond it, or integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from onnx_model import parse, run_ort

import bucketize
from bucketize.interpret import evaluate_module
from bucketize.ir import Builder, Const
from bucketize.onnx.node import Node, Unsupported
from bucketize.op import Array


def full(value: float, *shape: int) -> Array:
    return np.full(shape, value, np.float16)


def computed(graph: str, *inputs: Array, opset: int = 23, tolerance: float = 2e-3) -> Any:
    """The results of a node, interpreted and compiled, once both are those of onnxruntime."""
    model = parse(graph, opset)
    feed = {i.name: x for i, x in zip(model.graph.input, inputs, strict=True)}
    wanted = run_ort(model, feed)
    mod = bucketize.from_onnx(model)
    for results in (evaluate_module(mod, **feed), bucketize.compile(mod).run(**feed)):
        for got, want in zip(results, wanted, strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
    return wanted


def by_reference(graph: str, *inputs: Array, opset: int = 23, tolerance: float = 2e-3) -> None:
    """The results are those of ONNX's reference, too."""
    model = parse(graph, opset)
    feed = {i.name: x for i, x in zip(model.graph.input, inputs, strict=True)}
    wanted = computed(graph, *inputs, opset=opset, tolerance=tolerance)
    for got, want in zip(ReferenceEvaluator(model).run(None, feed), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("attributes", ["", "<is_causal = 1>", "<scale = 0.01>"])
def test_scores_of_float16_are_scaled_before_they_are_summed(attributes: str) -> None:
    key = full(60, 1, 2, 3, 64)
    key[0, :, 1] = 59
    value = np.arange(384, dtype=np.float16).reshape(1, 2, 3, 64) / 64
    heads = "float16[N, 2, M, 64] q, float16[N, 2, K, 64] k, float16[N, 2, K, 64] v"
    graph = f"({heads}) => (y) {{ y = Attention{attributes}(q, k, v) }}"
    by_reference(graph, full(60, 1, 2, 2, 64), key, value, tolerance=1e-2)


ROWS = np.array([[1000, 1000, -1000], [-900, -900, -901], [-np.inf] * 3, [np.inf, 0, -np.inf]])


@pytest.mark.parametrize("dtype", ["float", "double", "float16"])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_exponentials_are_summed_below_the_greatest(dtype: str, keepdims: int) -> None:
    x = ROWS.astype({"float": "f4", "double": "f8"}.get(dtype, dtype))
    reduced = f"ReduceLogSumExp<keepdims = {keepdims}>(x, axes)"
    graph = f"({dtype}[N, M] x) => (y) <int64[1] axes = {{1}}> {{ y = {reduced} }}"
    by_reference(graph, x[:2], tolerance=1e-2 if dtype == "float16" else 1e-6)
    brought = f"({dtype}[N, M] x, int64[1] axes) => (y) {{ y = {reduced} }}"
    computed(brought, x, np.array([1]), tolerance=1e-2 if dtype == "float16" else 1e-6)


@pytest.mark.parametrize("axes", ["<noop_with_empty_axes = 1>(x)", "(x)"])
def test_exponentials_of_all_axes_or_none(axes: str) -> None:
    x = np.array([[1000, 999], [-900, 3]], np.float32)
    computed(f"(float[N, M] x) => (y) {{ y = ReduceLogSumExp{axes} }}", x, opset=18)
    nothing = np.zeros((2, 0), np.float32)
    (y,) = computed("(float[N, M] x) => (y) { y = ReduceLogSumExp(x) }", nothing, opset=18)
    assert y == -np.inf


LARGE = np.array([[300, 400, 500, 10], [3, 400, 1, 60000]], np.float16)
ONE_AXIS = "(float16[N, M] x) => (y) {{ y = {}(x) }}"


@pytest.mark.parametrize(
    "node",
    ["LpNormalization", "ReduceL2", "LpNormalization<axis = 0, p = 1>", "ReduceL2<keepdims = 0>"],
)
def test_squares_of_float16_are_summed_in_float32(node: str) -> None:
    computed(ONE_AXIS.format(node), LARGE[:, :3])


def test_squares_of_float16_are_summed_in_float32_among_neighbours() -> None:
    scaled = "(float16[N, 4] x, float16[4] s) => (y) { y = RMSNormalization(x, s) }"
    computed(scaled, LARGE, full(2, 4))
    image = "(float16[N, C, H, W] x) => (y) {{ y = {}(x) }}"
    computed(image.format("LRN<size = 3>"), full(300, 1, 3, 2, 2))
    for node in (
        "LpPool<kernel_shape = [2, 2]>",
        "GlobalLpPool",
        "LpPool<kernel_shape = [2, 2], p = 3>",
    ):
        computed(image.format(node), full(300, 1, 2, 3, 3), opset=17)


@pytest.mark.parametrize("node", ["ReduceL2", "ReduceLogSum", "ReduceLogSumExp"])
def test_roots_and_logarithms_of_integers_are_cut(node: str) -> None:
    graph = f"(int32[N, M] x) => (y) <int64[1] axes = {{1}}> {{ y = {node}(x, axes) }}"
    x = np.array([[3, 4, 7], [6_000, 5_000, 1]], np.int32)
    (by_reference if node == "ReduceL2" else computed)(graph, x)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("attributes", ["pads = [1, 1]", 'auto_pad = "SAME_UPPER", strides = [2]'])
def test_pads_of_bytes_are_never_the_greatest(dtype: str, attributes: str) -> None:
    low = np.iinfo(dtype).min
    x = np.array([[[low, low, low + 1, 7, low]]], dtype)
    node = f"MaxPool<kernel_shape = [3], {attributes}>(x)"
    computed(f"({dtype}[N, 1, W] x) => (y, i) {{ y, i = {node} }}", x, opset=17)
    computed(f"({dtype}[N, 1, W] x) => (y) {{ y = {node} }}", x, opset=17)


FRACTIONS = {
    "Shrink<bias = 0.5>(x)": [[-3, -1, 0, 1, 3]],
    "Shrink<bias = 1.5, lambd = 1.5>(x)": [[-5, -1, 0, 1, 5]],
    "Shrink<bias = 1.0, lambd = 2.0>(x)": [[-5, -1, 0, 2, 3]],
    "Gemm<alpha = 0.5>(x, x)": [[3, 4], [5, -7]],
    "Gemm<alpha = 0.5, beta = 0.5>(x, x, x)": [[3, 4], [5, -7]],
    "Gemm<alpha = -1.0, beta = 2.0>(x, x, x)": [[3, 4], [5, -7]],
}


@pytest.mark.parametrize("node", FRACTIONS)
def test_integers_by_fractions_are_cut_at_the_end(node: str) -> None:
    """By the reference of ONNX; onnxruntime has no Gemm of integers."""
    model = parse(f"(int32[N, M] x) => (y) {{ y = {node} }}")
    x = np.array(FRACTIONS[node], np.int32)
    (want,) = ReferenceEvaluator(model).run(None, {"x": x})
    mod = bucketize.from_onnx(model)
    for (got,) in (evaluate_module(mod, x), bucketize.compile(mod).run(x)):
        assert got.dtype == x.dtype
        np.testing.assert_array_equal(got, want.astype(x.dtype))


def test_numbers_that_a_dtype_does_not_hold() -> None:
    x = np.arange(6, dtype=np.uint8)
    computed("(uint8[N] x) => (y) { y = Shrink<lambd = 2.0>(x) }", x)
    node = Node((Const(x),), {}, outputs=1, builder=Builder(), precision="float32")
    for number in (-1, 256, 0.5, np.inf, np.nan):
        with pytest.raises(Unsupported, match=f"{number} is no uint8"):
            node.like(node[0], number)
