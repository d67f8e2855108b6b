"""ONNX graphs to functions: nodes in order, and one error for all that is not supported."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from onnx import (
    AttributeProto,
    GraphProto,
    NodeProto,
    TensorProto,
    checker,
    defs,
    helper,
    numpy_helper,
)

from bucketize.errors import BucketizeError, UnsupportedModelError
from bucketize.ir import Atom, Builder, Const, Function, Var
from bucketize.onnx.load import domain
from bucketize.onnx.node import (
    Graph,
    Lost,
    Node,
    Unsupported,
    converter_of,
    native_dtype,
    short,
)

Values: TypeAlias = dict[str, Atom | None]
"""Values by name; None stands for what an unsupported node would have made."""


class Fault(NamedTuple):
    """Why nodes of an operator are not supported."""

    op_type: str
    reason: str


@dataclass
class Translation:
    """A model on its way to the IR, and what was found that cannot go along."""

    opsets: Mapping[str, int]
    precision: str
    weights: str
    faults: dict[Fault, list[str]] = field(default_factory=dict)

    def function(
        self, name: str, graph: GraphProto, params: Sequence[Var], outer: Values
    ) -> Function:
        """The function of a graph that may also see the values of `outer`."""
        builder = Builder()
        results = self._emit(name, graph, outer, {p.name: p for p in params}, builder)
        return builder.function(name, params, [r for r in results if r is not None])

    def _emit(
        self, name: str, graph: GraphProto, outer: Values, inputs: Values, builder: Builder
    ) -> list[Atom | None]:
        """What a graph makes of its inputs, if it also sees the values of `outer`."""
        values: Values = {**outer, **_constants(graph), **inputs}
        check_different("value", [o for node in graph.node for o in node.output if o])
        used = {o.name for o in graph.output}.union(*map(_reads, graph.node))
        for node in graph.node:
            made = self._convert(node, values, builder, used)
            values.update(zip(node.output, made, strict=False))
        return [_find(values, o.name, f"the output of {name}") for o in graph.output]

    def _block(self, graph: GraphProto, outer: Values) -> Function | Graph:
        """A graph as a function; one with inputs is emitted by whoever knows their types."""
        if not graph.input:
            return self.function(graph.name, graph, (), outer)
        return partial(self._inline, graph, outer)

    def _inline(
        self, graph: GraphProto, outer: Values, builder: Builder, inputs: Sequence[Atom]
    ) -> tuple[Atom, ...]:
        names = [i.name for i in graph.input]
        if len(names) != len(inputs):
            raise Unsupported(f"{len(inputs)} inputs for a graph of {len(names)}")
        before = sum(map(len, self.faults.values()))
        named = dict(zip(names, inputs, strict=True))
        results = self._emit(graph.name, graph, outer, named, builder)
        if sum(map(len, self.faults.values())) > before:
            raise Lost
        return tuple(r for r in results if r is not None)

    def check(self) -> None:
        """Raise the one error that lists what is not supported, if there is any."""
        if self.faults:
            count = sum(map(len, self.faults.values()))
            lines = [
                f"  {len(nodes)} x {fault.op_type}: {fault.reason} ({', '.join(nodes)})"
                for fault, nodes in self.faults.items()
            ]
            head = f"{count} node{'s' * (count > 1)} of the model cannot be converted:"
            raise UnsupportedModelError("\n".join([head, *lines]))

    def _convert(
        self, node: NodeProto, values: Values, builder: Builder, used: set[str]
    ) -> Sequence[Atom | None]:
        """What the node makes: None for each output, if it or what it reads is not supported."""
        try:
            made = self._results(node, values, builder)
            for i, output in enumerate(node.output[len(made) :], len(made)):
                if output in used:
                    raise Unsupported(f"output {i} is used")
            return made
        except Lost:
            pass
        except Unsupported as e:
            self.faults.setdefault(Fault(_op_type(node), str(e)), []).append(_title(node))
        except BucketizeError as e:
            e.add_note(f"from ONNX node {_title(node)!r} ({_op_type(node)})")
            raise
        return [None] * len(node.output)

    def _results(self, node: NodeProto, values: Values, builder: Builder) -> Sequence[Atom | None]:
        convert = converter_of(domain(node.domain), node.op_type, self._opset(node))
        self._check_schema(node)
        reader = f"node {_title(node)!r}"
        inputs = [_find(values, name, reader) for name in node.input]
        graphs = {a.name: a.g for a in node.attribute if a.type == AttributeProto.GRAPH}
        blocks = {k: self._block(g, values) for k, g in graphs.items()}
        if _is_lost(node, inputs, graphs, blocks):
            return [None] * len(node.output)
        _check_dtypes(node, inputs, self._opset(node))
        attrs = {**_attributes(node), **blocks}
        builder.origin = (_title(node),)
        view = Node(tuple(inputs), attrs, len(node.output), builder, self.precision, self.weights)
        made = convert(view)
        if attrs:
            raise Unsupported(f"the attribute {', '.join(attrs)} is not supported")
        return made if isinstance(made, tuple) else (made,)

    def _opset(self, node: NodeProto) -> int:
        return self.opsets.get(domain(node.domain), 0)

    def _check_schema(self, node: NodeProto) -> None:
        _check_attributes(node, self._opset(node))
        if any(_subgraphs(node)):
            return  # the checker would miss the names around the graph
        context = checker.C.CheckerContext()
        context.ir_version = 10
        context.opset_imports = dict(self.opsets)
        try:
            checker.check_node(node, context)
        except checker.ValidationError as e:
            raise Unsupported(f"not valid: {str(e).splitlines()[0]}") from e


def check_different(what: str, names: Sequence[str]) -> None:
    """Raise an error unless no two of these names are the same."""
    for name, count in Counter(names).items():
        if count > 1:
            raise UnsupportedModelError(f"{count} {what}s are named {name!r}")


def _constants(graph: GraphProto) -> dict[str, Const]:
    if graph.sparse_initializer:
        raise UnsupportedModelError("sparse initializers are not supported")
    return {t.name: _constant(t) for t in graph.initializer}


def _constant(tensor: TensorProto) -> Const:
    try:
        return Const(_array(tensor))
    except Unsupported as e:
        raise UnsupportedModelError(f"initializer {tensor.name!r}: {e}") from e


def _array(tensor: TensorProto) -> np.ndarray[Any, Any]:
    if tensor.data_location == TensorProto.EXTERNAL:
        raise Unsupported("stored outside of the model, which must be loaded from a path")
    native_dtype(tensor.data_type)
    try:
        return numpy_helper.to_array(tensor)
    except ValueError as e:
        raise Unsupported(f"corrupt: {e}") from e


def _check_attributes(node: NodeProto, opset: int) -> None:
    """Raise Unsupported for an attribute of another type than the standard says."""
    known = defs.get_schema(node.op_type, opset, domain(node.domain)).attributes
    for a in node.attribute:
        wanted = known[a.name].type.name if a.name in known else None  # type: ignore[attr-defined]
        if wanted not in (None, AttributeProto.AttributeType.Name(a.type)):
            raise Unsupported(f"the attribute {a.name} has another type than {wanted}")


def _check_dtypes(node: NodeProto, inputs: Sequence[Atom | None], opset: int) -> None:
    """Raise Unsupported for an operand of a dtype that the standard does not allow there."""
    allowed = _allowed(node.op_type, opset, domain(node.domain))
    for i, atom in enumerate(inputs):
        kinds = allowed[min(i, len(allowed) - 1)]  # the last may stand for several
        if atom is not None and _type_name(atom.type.dtype) not in kinds:
            raise Unsupported(f"input {i} is {atom.type}, which ONNX does not allow there")


@functools.cache
def _allowed(op_type: str, opset: int, name: str) -> tuple[frozenset[str], ...]:
    """The types that each operand may have."""
    return tuple(frozenset(i.types) for i in defs.get_schema(op_type, opset, name).inputs)


def _type_name(dtype: np.dtype[Any]) -> str:
    """A tensor's type as the standard writes it."""
    name = helper.tensor_dtype_to_string(helper.np_dtype_to_tensor_dtype(dtype))
    return f"tensor({name.removeprefix('TensorProto.').lower()})"


def _find(values: Values, name: str, reader: str) -> Atom | None:
    """The value of this name, or None where the name is empty or the value unknown."""
    if name and name not in values:
        raise UnsupportedModelError(f"{reader} reads {name!r}, which nothing before it makes")
    return values[name] if name else None


def _is_lost(
    node: NodeProto,
    inputs: Iterable[Atom | None],
    graphs: Mapping[str, GraphProto],
    blocks: Mapping[str, Function | Graph],
) -> bool:
    """Whether an unsupported node would have made what the node reads, or its graphs return."""
    read = any(name and not atom for name, atom in zip(node.input, inputs, strict=True))
    made = ((b, graphs[k]) for k, b in blocks.items() if isinstance(b, Function))
    return read or any(len(block.results) < len(g.output) for block, g in made)


def _reads(node: NodeProto) -> Iterable[str]:
    """The names that a node reads, also from inside its subgraphs."""
    yield from node.input
    for graph in _subgraphs(node):
        yield from (o.name for o in graph.output)
        for inner in graph.node:
            yield from _reads(inner)


def _subgraphs(node: NodeProto) -> Iterable[GraphProto]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def _attributes(node: NodeProto) -> dict[str, Any]:
    plain = (a for a in node.attribute if a.type != AttributeProto.GRAPH)
    return {a.name: _plain(helper.get_attribute_value(a)) for a in plain}


def _plain(value: Any) -> Any:
    """An attribute as a converter reads it."""
    if isinstance(value, bytes):
        return _decoded(value)
    if isinstance(value, float):
        return short(np.float32(value))
    if isinstance(value, TensorProto):
        return _array(value)
    if isinstance(value, int | str):
        return value
    return tuple(map(_plain, value))


def _decoded(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as e:
        raise Unsupported(f"the attribute value {text!r} is no UTF-8") from e


def _op_type(node: NodeProto) -> str:
    return f"{node.domain}.{node.op_type}" if domain(node.domain) else node.op_type


def _title(node: NodeProto) -> str:
    return node.name or next(filter(None, node.output), "")
