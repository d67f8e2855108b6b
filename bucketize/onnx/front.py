"""The front end: an ONNX model to a module, its `dim_param` names kept as symbols."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

from onnx import GraphProto, ValueInfoProto

from bucketize.errors import BucketizeError, UnsupportedModelError, unknown_name
from bucketize.ir import Module, Var
from bucketize.onnx.load import Source, load, opsets
from bucketize.onnx.node import Unsupported, native_dtype
from bucketize.onnx.translate import Translation
from bucketize.types import Dim, Symbol, TensorType

Bounds = Mapping[str, tuple[int, int | None]]


def from_onnx(model: Source, *, bounds: Bounds | None = None) -> Module:
    """The module of an ONNX model: a path, bytes, or a ModelProto of opset 13 or later.

    `bounds` are inclusive, by symbol: `{"N": (1, 32)}`; an upper bound of None is none. A dim
    without a name becomes a symbol of its own, `{input}_{axis}`. Raises UnsupportedModelError with
    a list of all nodes that cannot be converted, or for what is no ONNX model.
    """
    proto = load(model)
    params = parameters(proto.graph, bounds or {})
    translation = Translation(opsets(proto))
    main = translation.function("main", proto.graph, params, {})
    translation.check()
    return Module({"main": main})


def parameters(graph: GraphProto, bounds: Bounds) -> list[Var]:
    """The inputs of a graph as variables; an input with an initializer is a constant, and none."""
    constant = {t.name for t in graph.initializer}
    inputs = [i for i in graph.input if i.name not in constant]
    named = {i.name: _dim_names(i, _taken(inputs)) for i in inputs}
    known = {n: None for names in named.values() for n in names if isinstance(n, str)}
    for name in bounds:
        if name not in known:
            raise unknown_name("symbol", name, known)
    dims = {n: _dim(n, bounds.get(n, (1, None))) for n in known}
    return [
        Var(i.name, TensorType(_dtype(i), tuple(dims.get(n, n) for n in named[i.name])))  # type: ignore[misc, arg-type]
        for i in inputs
    ]


def _taken(inputs: list[ValueInfoProto]) -> set[str]:
    return {d.dim_param for i in inputs for d in i.type.tensor_type.shape.dim}


def _dim_names(value: ValueInfoProto, taken: set[str]) -> list[int | str]:
    ...


def _dim(name: str, bounds: tuple[int, int | None]) -> Dim:
    ...
