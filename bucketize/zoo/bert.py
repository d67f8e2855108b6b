"""BERT encoders (Devlin et al. 2018, arXiv:1810.04805), written as torch's exporter writes them.

input_ids, attention_mask: int64[B, S] to last_hidden_state: float32[B, S, hidden].
"""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt

import numpy as np
from onnx import ModelProto, TensorProto

from bucketize.zoo.graph import Graph

VOCABULARY = 30522
POSITIONS = 512
MASKED = float(np.finfo(np.float32).min)


def bert_mini(seed: int) -> ModelProto:
    """Four layers, 256 wide, four heads."""
    return encoder("bert-mini", seed, layers=4, hidden=256, heads=4)


def bert_base(seed: int) -> ModelProto:
    """Twelve layers, 768 wide, twelve heads."""
    return encoder("bert-base", seed, layers=12, hidden=768, heads=12)


def encoder(name: str, seed: int, *, layers: int, hidden: int, heads: int) -> ModelProto:
    """An encoder of other extents, with random weights."""
    graph = Graph(name, seed)
    ids = graph.input("input_ids", TensorProto.INT64, "B", "S")
    mask = graph.input("attention_mask", TensorProto.INT64, "B", "S")
    bias = _attention_bias(graph, mask)
    with graph.scope("embeddings"):
        x = _embeddings(graph, ids, hidden)
    for layer in range(layers):
        with graph.scope(f"encoder.layer.{layer}"):
            with graph.scope("attention"):
                x = _attention(graph, x, bias, hidden, heads)
            out = "last_hidden_state" if layer == layers - 1 else None
            x = _feed_forward(graph, x, hidden, out)
    graph.output("last_hidden_state", "B", "S", hidden)
    return graph.model


def _attention_bias(graph: Graph, mask: str) -> str:
    """float32[B, 1, 1, S]: 0 where the mask is 1, else the lowest finite number."""
    mask = graph.node("Unsqueeze", mask, graph.constant([1]))
    mask = graph.node("Unsqueeze", mask, graph.constant([2]))
    mask = graph.node("Cast", mask, to=TensorProto.FLOAT)
    hidden = graph.node("Sub", graph.constant(1.0), mask)
    return graph.node("Mul", hidden, graph.constant(MASKED))


def _embeddings(graph: Graph, ids: str, hidden: int) -> str:
    batch, length = _size(graph, ids, 0), _size(graph, ids, 1)
    types = graph.tensor("token_type_ids", np.zeros((1, POSITIONS), np.int64))
    types = graph.node("Expand", _prefix(graph, types, length), _shape(graph, (batch, length)))
    positions = graph.tensor("position_ids", np.arange(POSITIONS)[None])
    tables = (
        ("word_embeddings", VOCABULARY, ids),
        ("token_type_embeddings", 2, types),
        ("position_embeddings", POSITIONS, _prefix(graph, positions, length)),
    )
    rows = []
    for name, count, indices in tables:
        with graph.scope(name):
            rows.append(graph.node("Gather", graph.weight("weight", count, hidden, std=1), indices))
    word, kind, position = rows
    return _norm(graph, graph.node("Add", graph.node("Add", word, kind), position), hidden)


def _attention(graph: Graph, x: str, bias: str, hidden: int, heads: int) -> str:
    head = hidden // heads

    def project(name: str, perm: list[int]) -> str:
        y = _linear(graph, name, x, hidden, hidden)
        shape = _shape(graph, (_size(graph, y, 0), _size(graph, y, 1), heads, head))
        return graph.node("Transpose", graph.node("Reshape", y, shape), perm=perm)

    with graph.scope("self"):
        query = project("query", [0, 2, 1, 3])
        key = project("key", [0, 2, 3, 1])
        value = project("value", [0, 2, 1, 3])
        scores = graph.node("Div", graph.node("MatMul", query, key), graph.constant(sqrt(head)))
        weights = graph.node("Softmax", graph.node("Add", scores, bias), axis=-1)
        y = graph.node("Transpose", graph.node("MatMul", weights, value), perm=[0, 2, 1, 3])
        shape = _shape(graph, (_size(graph, y, 0), _size(graph, y, 1), hidden))
        y = graph.node("Reshape", y, shape)
    with graph.scope("output"):
        y = graph.node("Add", _linear(graph, "dense", y, hidden, hidden), x)
        return _norm(graph, y, hidden)


def _feed_forward(graph: Graph, x: str, hidden: int, out: str | None) -> str:
    with graph.scope("intermediate"):
        y = _gelu(graph, _linear(graph, "dense", x, hidden, 4 * hidden))
    with graph.scope("output"):
        y = graph.node("Add", _linear(graph, "dense", y, 4 * hidden, hidden), x)
        return _norm(graph, y, hidden, out)


def _linear(graph: Graph, name: str, x: str, width: int, channels: int) -> str:
    with graph.scope(name):
        y = graph.node("MatMul", x, graph.weight("weight", width, channels, std=1 / sqrt(width)))
        return graph.node("Add", graph.weight("bias", channels, std=0.1), y)


def _gelu(graph: Graph, x: str) -> str:
    erf = graph.node("Erf", graph.node("Div", x, graph.constant(sqrt(2.0))))
    y = graph.node("Mul", x, graph.node("Add", erf, graph.constant(1.0)))
    return graph.node("Mul", y, graph.constant(0.5))


def _norm(graph: Graph, x: str, hidden: int, out: str | None = None) -> str:
    with graph.scope("LayerNorm"):
        weight = graph.weight("weight", hidden, std=0.1, mean=1.0)
        bias = graph.weight("bias", hidden, std=0.1)
        return graph.node("LayerNormalization", x, weight, bias, out=out, axis=-1, epsilon=1e-12)


def _size(graph: Graph, x: str, axis: int) -> str:
    """The run-time length of an axis, a scalar."""
    return graph.node("Gather", graph.node("Shape", x), graph.constant(axis), axis=0)


def _shape(graph: Graph, dims: Iterable[int | str]) -> str:
    """A shape vector of constants and of scalars known at run time."""
    axis = graph.constant([0])
    parts = [
        graph.node("Unsqueeze", d, axis) if isinstance(d, str) else graph.constant([d])
        for d in dims
    ]
    return graph.node("Concat", *parts, axis=0)


def _prefix(graph: Graph, table: str, length: str) -> str:
    """The first `length` columns of a table."""
    zero, one = graph.constant([0]), graph.constant([1])
    return graph.node("Slice", table, zero, graph.node("Unsqueeze", length, zero), one, one)
