"""An ONNX model as a session reads it: compiled, and what it says of itself without its weights."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cached_property
from itertools import starmap
from math import prod

import onnx
from onnx import GraphProto, ModelProto, TensorProto, TypeProto, ValueInfoProto, helper

from bucketize.compiler import compile
from bucketize.errors import UnsupportedModelError, unknown_name
from bucketize.executable import Executable
from bucketize.integrations.node import Extent, ModelMetadata, NodeArg, type_text
from bucketize.onnx.front import from_onnx
from bucketize.onnx.load import Source, load, opsets
from bucketize.types import Type

FEW = 1024  # elements: what shapes follow from has no more
NO_VERSION = 2**63 - 1  # as onnxruntime writes it


class Outline:
    """The graph of a model without large weights, of which shapes are inferred when asked for."""

    def __init__(self, model: ModelProto) -> None:
        """Keep of a model what tells shapes."""
        self.model = ModelProto(ir_version=model.ir_version, graph=_light(model.graph))
        self.model.opset_import.extend(starmap(helper.make_opsetid, opsets(model).items()))
        self.model.functions.extend(model.functions)
        self.metadata = ModelMetadata(
            producer_name=model.producer_name,
            graph_name=model.graph.name,
            domain=model.domain,
            description=model.doc_string,
            graph_description=model.graph.doc_string,
            version=model.model_version if model.HasField("model_version") else NO_VERSION,
            custom_metadata_map={p.key: p.value for p in model.metadata_props},
        )

    @property
    def input_shapes(self) -> dict[str, list[Extent]]:
        """Shapes of all inputs, and of initializers that stand among them."""
        return {i.name: self._shape(i) for i in self.model.graph.input}

    @cached_property
    def output_shapes(self) -> dict[str, list[Extent]]:
        """What the model declares, with what follows from its nodes.

        Raises UnsupportedModelError where onnx infers none.
        """
        try:
            inferred = onnx.shape_inference.infer_shapes(self.model)
        except onnx.shape_inference.InferenceError as e:
            raise UnsupportedModelError(f"no shapes follow from the model: {e}") from e
        return {o.name: self._shape(o) for o in inferred.graph.output}

    @cached_property
    def names(self) -> set[str]:
        """The `dim_param`s that the model itself has; inference makes up others."""
        graph = self.model.graph
        values = (*graph.input, *graph.output, *graph.value_info)
        return {d.dim_param for v in values for d in _tensor(v.type).shape.dim if d.dim_param}

    def _shape(self, value: ValueInfoProto) -> list[Extent]:
        return [self._extent(d) for d in _tensor(value.type).shape.dim]

    def _extent(self, dim: onnx.TensorShapeProto.Dimension) -> Extent:
        if dim.HasField("dim_value"):
            return dim.dim_value if dim.dim_value >= 0 else None
        return dim.dim_param if dim.dim_param in self.names else None


class CompiledModel:
    """A compiled model with its outline: what a session asks of it."""

    def __init__(self, source: Source, sizes: Mapping[str, int], threads: int) -> None:
        """Read and compile; `sizes` hold some of the `dim_param`s."""
        model = held(load(source), sizes) if sizes else load(source)
        module = from_onnx(model)
        self.outline = Outline(model)
        seen = sys.stderr.isatty()  # who waits for kernels that the cache lacks is told so
        self.executable: Executable = compile(module, threads=threads, progress=seen)
        self._inputs = {p.name: p.type for p in module.main.params}
        results = (r.type for r in module.main.results)
        self._outputs = dict(zip(self.executable.outputs, results, strict=True))

    @property
    def inputs(self) -> list[NodeArg]:
        """In the order of the model."""
        return _node_args(self._inputs, self.outline.input_shapes)

    @property
    def outputs(self) -> list[NodeArg]:
        """In the order of the model."""
        return _node_args(self._outputs, self.outline.output_shapes)


def held(model: ModelProto, sizes: Mapping[str, int]) -> ModelProto:
    """A copy of the model whose inputs have these sizes, by `dim_param`."""
    copy = ModelProto()
    copy.CopyFrom(model)
    dims = [d for i in copy.graph.input for d in _tensor(i.type).shape.dim]
    names = {d.dim_param for d in dims if d.dim_param}
    for name, size in sizes.items():
        if name not in names:
            raise unknown_name("free dimension", name, names)
        for dim in dims:
            if dim.dim_param == name:
                dim.dim_value = size
    return copy


def _node_args(types: Mapping[str, Type], shapes: Mapping[str, list[Extent]]) -> list[NodeArg]:
    return [NodeArg(name, type_text(type_), shapes[name]) for name, type_ in types.items()]


def _tensor(type_: TypeProto) -> TypeProto.Tensor:
    """The tensor that is meant; what is optional has the shape of its element, a sequence none."""
    if type_.HasField("optional_type"):
        return _tensor(type_.optional_type.elem_type)
    return type_.tensor_type


def _light(graph: GraphProto) -> GraphProto:
    """The graph; of large weights the types only."""
    light = GraphProto(name=graph.name)
    light.node.extend(graph.node)
    light.input.extend(graph.input)
    light.output.extend(graph.output)
    light.value_info.extend(graph.value_info)
    light.initializer.extend(map(_light_tensor, graph.initializer))
    return light


def _light_tensor(tensor: TensorProto) -> TensorProto:
    if prod(tensor.dims) <= FEW:
        return tensor
    return TensorProto(name=tensor.name, dims=tensor.dims, data_type=tensor.data_type)
