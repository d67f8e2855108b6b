"""A multilayer perceptron: 784-1024-1024-10."""

from __future__ import annotations

from itertools import pairwise
from math import sqrt

from onnx import ModelProto, TensorProto

from bucketize.zoo.graph import Graph

WIDTHS = (784, 1024, 1024, 10)


def mlp(seed: int) -> ModelProto:
    """Three Gemm layers with Relu between; data: float32[N, 784]."""
    graph = Graph("mlp", seed)
    x = graph.input("data", TensorProto.FLOAT, "N", WIDTHS[0])
    for i, (width, next_width) in enumerate(pairwise(WIDTHS)):
        last = i == len(WIDTHS) - 2
        gain = 1.0 if i == 0 else 2.0  # He: a Relu before the layer halves the second moment
        with graph.scope(f"layers.{2 * i}"):
            weight = graph.weight("weight", next_width, width, std=sqrt(gain / width))
            bias = graph.weight("bias", next_width, std=0.1)
            x = graph.node("Gemm", x, weight, bias, out="output" if last else None, transB=1)
        if not last:
            with graph.scope(f"layers.{2 * i + 1}"):
                x = graph.node("Relu", x)
    graph.output("output", "N", WIDTHS[-1])
    return graph.model
