"""What the messages of a model hold: constants and attributes, as converters read them."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper

from bucketize.errors import UnsupportedModelError
from bucketize.ir import Const
from bucketize.onnx.kind import type_of
from bucketize.onnx.node import Unsupported, native_dtype, short
from bucketize.op import Array


def constants(graph: GraphProto, used: Set[str]) -> dict[str, Const]:
    """The initializers by name, those that are used."""
    if any(t.values.name in used for t in graph.sparse_initializer):
        raise UnsupportedModelError("sparse initializers are not supported")
    return {t.name: _constant(t) for t in graph.initializer if t.name in used}


def _constant(tensor: TensorProto) -> Const:
    try:
        return Const(_array(tensor))
    except Unsupported as e:
        raise UnsupportedModelError(f"initializer {tensor.name!r}: {e}") from e


def _array(tensor: TensorProto) -> Array:
    if tensor.data_location == TensorProto.EXTERNAL:
        raise Unsupported("stored outside of the model, which must be loaded from a path")
    native_dtype(tensor.data_type)
    if any(d < 0 for d in tensor.dims):
        raise Unsupported(f"corrupt: a negative extent in {[*tensor.dims]}")
    try:
        return numpy_helper.to_array(tensor)
    except ValueError as e:
        raise Unsupported(f"corrupt: {e}") from e


def attributes(node: NodeProto) -> dict[str, Any]:
    """Attributes that are no graphs, by name."""
    skipped = "consumed_inputs"  # what may be overwritten, of opsets before 6
    plain = (a for a in node.attribute if a.type != AttributeProto.GRAPH and a.name != skipped)
    return {a.name: _plain(_value(a)) for a in plain}


def _value(a: AttributeProto) -> Any:
    """What an attribute holds."""
    value = None if a.ref_attr_name else helper.get_attribute_value(a)
    if value is None:
        raise Unsupported(f"the attribute {a.name} has no value")
    return value


def _plain(value: Any) -> Any:
    """An attribute as a converter reads it."""
    if isinstance(value, bytes):
        return _decoded(value)
    if isinstance(value, float):
        return short(np.float32(value))
    if isinstance(value, TensorProto):
        return _array(value)
    if isinstance(value, TypeProto):
        return type_of(value)
    if isinstance(value, int | str):
        return value
    return tuple(map(_plain, value))


def _decoded(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as e:
        raise Unsupported(f"the attribute value {text!r} is no UTF-8") from e
