"""ONNX models from where they are: a path, bytes, or a message in memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import FunctionProto, GraphProto, ModelProto, OperatorSetIdProto
from onnx.checker import ValidationError

from bucketize.errors import UnsupportedModelError

Source: TypeAlias = str | os.PathLike[str] | bytes | ModelProto

OURS = {
    b"\x7fELF": "a library, for other languages to call: `compile` writes a .bkt for this one",
    b"bucketize program ": "a program that `compile` wrote: bucketize.load runs it",
}
"""What is no model, by how its file begins."""
UNVERSIONED = 3  # models of IR versions before it name no operator sets: theirs is the first
OPSETS = range(1, 29)  # those whose operators were read; a newer one may change what a node means


def load(source: Source) -> ModelProto:
    """The model, with its external data; errors name the source."""
    model, where = _message(source)
    if not model.graph.output or not (model.opset_import or model.ir_version < UNVERSIONED):
        raise UnsupportedModelError(f"{where} holds no ONNX graph")
    check_opset(where, opsets(model))
    graphs = [model.graph, *model.functions]
    for name in (*(o.domain for o in model.opset_import), *(n for g in graphs for n in _names(g))):
        if isinstance(name, bytes):
            raise UnsupportedModelError(f"{where} is no ONNX model: the name {name!r} is no UTF-8")
    return model


def opsets(model: ModelProto) -> dict[str, int]:
    """The version of each operator set that the model uses; the default one is ''."""
    return imported(model.opset_import) if model.opset_import else {"": 1}


def imported(sets: Iterable[OperatorSetIdProto]) -> dict[str, int]:
    """The version of each of these operator sets."""
    return {domain(o.domain): o.version for o in sets}


def check_opset(where: str, versions: Mapping[str, int]) -> None:
    """Raise an error for a version of an operator set that is none, or that nobody here knows."""
    for name, version in versions.items():
        if not 0 <= version < 2**31:
            raise UnsupportedModelError(f"{where} has version {version} of {name or 'ai.onnx'}")
    version = versions.get("", OPSETS[-1])
    if version not in OPSETS:
        supported = f"bucketize reads {OPSETS[0]} to {OPSETS[-1]}"
        raise UnsupportedModelError(f"{where} has opset {version}, but {supported}")


def domain(name: str) -> str:
    """A domain by its one name: "ai.onnx" is another for ''."""
    return "" if name == "ai.onnx" else name


def _names(graph: GraphProto | FunctionProto) -> Iterator[str | bytes]:
    """All names in a graph: those that are no UTF-8 are read as bytes."""
    if isinstance(graph, FunctionProto):
        yield from (graph.name, *graph.input, *graph.output, *graph.attribute)
    else:
        yield from (t.name for t in graph.initializer)
        for value in (*graph.input, *graph.output):
            yield from (value.name, *(d.dim_param for d in value.type.tensor_type.shape.dim))
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        for attribute in node.attribute:
            yield attribute.name
            yield from _names(attribute.g)


def _refuse_ours(path: Path) -> None:
    """Say of what `compile` wrote that it is not to be read."""
    with path.open("rb") as file:
        start = file.read(max(map(len, OURS)))
    for begins, what in OURS.items():
        if start.startswith(begins):
            raise UnsupportedModelError(f"{path} is no ONNX model but {what}")


def _message(source: Source) -> tuple[ModelProto, str]:
    if isinstance(source, ModelProto):
        return source, "the model"
    if isinstance(source, bytes):
        try:
            return onnx.load_model_from_string(source), "the model"
        except (DecodeError, ValueError) as e:
            raise UnsupportedModelError(f"{len(source)} bytes are no ONNX model: {e}") from e
    if not isinstance(source, str | os.PathLike):
        kind = type(source).__name__
        raise UnsupportedModelError(f"expected a path, bytes or an onnx.ModelProto, got {kind}")
    path = Path(source)
    try:
        _refuse_ours(path)
        return onnx.load_model(path), str(path)
    except OSError as e:
        raise UnsupportedModelError(f"cannot read {path}: {e.strerror}") from e
    except (DecodeError, ValidationError, ValueError, RuntimeError) as e:  # the latter: onnx's C++
        raise UnsupportedModelError(f"{path} is no ONNX model: {e}") from e
