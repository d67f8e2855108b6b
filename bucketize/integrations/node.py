"""What a session takes and gives, as onnxruntime writes it: names, types and shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bucketize.types import Dim, OptionalType, SequenceType, Symbol, Type

Extent = int | str | None
"""A size, the name of one, or neither."""
C_NAMES = {"float32": "float", "float64": "double"}


@dataclass(frozen=True)
class NodeArg:
    """An input or an output: `NodeArg(name='x', type='tensor(float)', shape=['N', None, 3])`."""

    name: str
    type: str
    shape: list[Extent]


@dataclass(frozen=True)
class ModelMetadata:
    """What a model says of itself."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str]


def node_args(names: Sequence[str], types: Sequence[Type]) -> list[NodeArg]:
    """Inputs or outputs of a program, which keeps the names of symbols and no others."""
    return [
        NodeArg(name, type_text(type_), [_extent(d) for d in type_.axes])
        for name, type_ in zip(names, types, strict=True)
    ]


def type_text(type_: Type) -> str:
    """`tensor(float)`, `seq(tensor(int64))`, `optional(tensor(bool))`."""
    if isinstance(type_, SequenceType):
        return f"seq({type_text(type_.element)})"
    if isinstance(type_, OptionalType):
        return f"optional({type_text(type_.element)})"
    name = type_.dtype.name
    return f"tensor({C_NAMES.get(name, name.replace('_', ''))})"


def _extent(dim: Dim) -> Extent:
    return dim if isinstance(dim, int) else dim.name if isinstance(dim, Symbol) else None
