"""Types as ONNX writes them, and back: tensors, sequences, and what is optional."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TypeProto, helper

from bucketize.onnx.node import Unsupported, native_dtype
from bucketize.types import ANY, Dim, OptionalType, SequenceType, TensorType, Type, UnrankedType


def data_type(dtype: str | np.dtype[Any]) -> int:
    """The number that ONNX has for a dtype."""
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def type_name(type_: Type) -> str:
    """The name of a type in the schemas of operators: `seq(tensor(float))`."""
    if isinstance(type_, SequenceType):
        return f"seq({type_name(type_.element)})"
    if isinstance(type_, OptionalType):
        return f"optional({type_name(type_.element)})"
    name = helper.tensor_dtype_to_string(data_type(type_.dtype))
    return f"tensor({name.removeprefix('TensorProto.').lower()})"


def proto_of(type_: Type) -> TypeProto:
    """The message; a dim that is no number is named by its text, `?` by nothing."""
    if isinstance(type_, SequenceType):
        return helper.make_sequence_type_proto(proto_of(type_.element))
    if isinstance(type_, OptionalType):
        return helper.make_optional_type_proto(proto_of(type_.element))
    dims: Any = None
    if type_.is_tensor:
        dims = [d if isinstance(d, int) else None if d is ANY else str(d) for d in type_.shape]
    return helper.make_tensor_type_proto(data_type(type_.dtype), dims)


def type_of(proto: TypeProto) -> Type:
    """The type of a message, of whose extents only numbers are known.

    Raises Unsupported for maps, sparse tensors, and dtypes that numpy does not compute with.
    """
    kind = proto.WhichOneof("value")
    if kind == "sequence_type":
        return SequenceType(type_of(proto.sequence_type.elem_type))
    if kind == "optional_type":
        return OptionalType(type_of(proto.optional_type.elem_type))
    if kind != "tensor_type":
        raise Unsupported(f"a {kind} is not supported")
    dtype = native_dtype(proto.tensor_type.elem_type)
    if not proto.tensor_type.HasField("shape"):
        return UnrankedType(dtype)
    return TensorType(dtype, tuple(_extent(d) for d in proto.tensor_type.shape.dim))


def _extent(dim: Any) -> Dim:
    return int(dim.dim_value) if dim.HasField("dim_value") and dim.dim_value >= 0 else ANY
