"""How nodes leave that a run converts: as they came, in the opset that is written."""

from __future__ import annotations

from onnx import ModelProto, version_converter

from bucketize.onnx.function import subgraphs
from bucketize.onnx.load import domain, opsets
from bucketize.onnx.node import Unsupported
from bucketize.onnx.postponed import onnx_node, parsed
from bucketize.onnx.rule import Site, exports
from bucketize.onnx.scope import OPSET

CHANGED = {"Hardmax": 13, "Resize": 11, "Upsample": 11}
"""By operator: the opset that changed its meaning, of which the version converter knows nothing."""


@exports(onnx_node)
def _node(s: Site) -> tuple[str, ...]:
    graph = _written(parsed(s.attr("model"))).graph
    names = {"": ""} | {i.name: n for i, n in zip(graph.input, s.operands, strict=True)}
    for node in graph.node:
        inputs = [names[name] for name in node.input]
        made = s.nodes(node.op_type, *inputs, outputs=len(node.output))
        s.scope.nodes[-1].attribute.extend(node.attribute)
        names.update(zip(node.output, made, strict=True))
    return tuple(names[o.name] for o in graph.output)


def _written(model: ModelProto) -> ModelProto:
    """A model of one node in the opset that is written."""
    (node,) = model.graph.node
    what = f"a {node.op_type} of unknown rank"
    if domain(node.domain) or any(subgraphs(node)):
        raise Unsupported(f"{what}, of another domain or with graphs")
    if opsets(model)[""] < (since := CHANGED.get(node.op_type, 0)):
        raise Unsupported(f"{what}, which meant something else before opset {since}")
    try:
        return version_converter.convert_version(model, OPSET)
    except (version_converter.ConvertError, RuntimeError) as e:
        why = str(e).rpartition("failed: ")[2].strip()  # without the place in its source
        raise Unsupported(f"{what}: {why}") from e
