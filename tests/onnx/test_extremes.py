"""Nodes at the ends of the range of numbers, where what lies between is beyond it, or integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from onnx_model import parse, run_ort

import bucketize
from bucketize.interpret import evaluate_module
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


def by_the_reference(graph: str, *inputs: Array, opset: int = 23, tolerance: float = 2e-3) -> None:
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
    by_the_reference(graph, full(60, 1, 2, 2, 64), key, value, tolerance=1e-2)
