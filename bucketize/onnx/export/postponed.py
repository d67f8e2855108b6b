"""How nodes leave that a run converts: as they came, in the opset that is written."""

from __future__ import annotations

from onnx import ModelProto, NodeProto, defs, numpy_helper, version_converter

from bucketize.ir import Const
from bucketize.onnx.export.rule import ExportSite, exports
from bucketize.onnx.export.scope import OPSET
from bucketize.onnx.function import subgraphs
from bucketize.onnx.load import domain, opsets
from bucketize.onnx.node import Unsupported
from bucketize.onnx.postponed import onnx_node, parsed

ALIKE = 13
"""From this opset on the version converter changes no meaning: before, it leaves the axes of
Hardmax and the slopes of PRelu as they are, which other opsets read in another way."""


@exports(onnx_node)
def _node(s: ExportSite) -> tuple[str, ...]:
    graph = _written(parsed(s.attr("model"))).graph
    names = {"": ""} | {i.name: n for i, n in zip(graph.input, s.operands, strict=True)}
    names |= {t.name: s.scope.constant(Const(numpy_helper.to_array(t))) for t in graph.initializer}
    for node in graph.node:
        inputs = [names[name] for name in node.input]
        outputs = s.nodes(node.op_type, *inputs, outputs=len(node.output))
        s.scope.nodes[-1].attribute.extend(node.attribute)
        names.update(zip(node.output, outputs, strict=True))
    return tuple(names[o.name] for o in graph.output)


def _written(model: ModelProto) -> ModelProto:
    """A model of one node in the opset that is written."""
    (node,) = model.graph.node
    what = f"a {node.op_type} that a run converts"
    if domain(node.domain):
        raise Unsupported(f"{what}, of the domain {node.domain}")
    if any(subgraphs(node)):
        raise Unsupported(f"{what}, with graphs inside")
    opset = opsets(model)[""]
    if opset < ALIKE and _since(node, opset) != _since(node, OPSET):
        raise Unsupported(f"{what}: ONNX has changed it since opset {opset}")
    try:
        return version_converter.convert_version(model, OPSET)
    except (version_converter.ConvertError, RuntimeError) as e:
        why = str(e).rpartition("failed: ")[2].strip()  # without the place in its source
        raise Unsupported(f"{what}: {why}") from e


def _since(node: NodeProto, opset: int) -> int:
    return defs.get_schema(node.op_type, opset).since_version
