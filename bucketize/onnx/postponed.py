"""Nodes that a run converts: how many axes their operands have, or what they hold, only it tells.

Then all operands are constants, and nothing is left to be known. What comes of them is computed on
the host, by the meaning of each op.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import count
from typing import Any

import numpy as np
from google.protobuf import json_format  # type: ignore[import-untyped]
from onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    TypeProto,
    ValueInfoProto,
    defs,
    helper,
    shape_inference,
)

from bucketize.errors import BucketizeError, ShapeError, UnknownRankError
from bucketize.interpret import run_function
from bucketize.ir import Atom, Builder, Const, Var
from bucketize.onnx.function import key_of, reads, subgraphs
from bucketize.onnx.kind import proto_of, type_of
from bucketize.onnx.load import opsets
from bucketize.onnx.node import Lost, Unsupported, Untold, ranked
from bucketize.onnx.translate import ImportScope, Results, Translation, Values
from bucketize.op import Value, related
from bucketize.types import ANY, TensorType, Type, UnrankedType

LIKELY_RANK = 8
"""The axes up to which a node is asked whether it takes so many."""
MOST_RANK = 64
"""The axes up to which it is asked if it takes none of these: numpy has no more."""
TOLD = 3
"""Reasons, of those for which it takes none."""


def postpone(t: Translation, node: NodeProto, scope: ImportScope) -> Results | None:
    """What a node makes that cannot be converted now; None if a run cannot, either.

    That is, where it calls functions of the model inside, its results have no known dtype, or
    weights are short: which of them a converter rounds follows from what is known at import.

    Where its only operand of unknown rank can have but one, that is checked by the run, and the
    node converted after all. Raises Unsupported where it is wrong whatever the run tells.
    """
    if t.weights != "float32" or any(key in t.functions for key in _called(node)):
        return None
    if not _settle_rank(t, node, scope):
        return _bound(t, node, scope)
    begin = len(scope.builder.body)
    try:
        return t.results(node, scope)
    except (UnknownRankError, Untold):
        del scope.builder.body[begin:]
        return _bound(t, node, scope)


def _called(node: NodeProto) -> Iterator[Any]:
    yield key_of(node)
    for graph in subgraphs(node):
        for inner in graph.node:
            yield from _called(inner)


def _settle_rank(t: Translation, node: NodeProto, scope: ImportScope) -> bool:
    """Give the only operand of unknown rank the only one that the node takes, if that is so.

    Raises Unsupported where there is none, or where several are refused for one reason.
    """
    around: Values = {name: scope.values[name] for name in node.input if name}
    unranked = {n: a for n, a in around.items() if a and isinstance(a.type, UnrankedType)}
    if not unranked:
        return False
    seen = scope.values if any(subgraphs(node)) else around  # there may be many values
    inside = ImportScope(seen, Builder(), scope.used)
    reasons = [_refusal(t, node, inside, unranked, r) for r in range(LIKELY_RANK + 1)]
    if all(reasons):
        more = range(LIKELY_RANK + 1, MOST_RANK + 1)
        reasons += [_refusal(t, node, inside, unranked, r) for r in more]
    distinct = [*dict.fromkeys(filter(None, reasons))]
    if all(reasons) and 1 in (len(unranked), len(distinct)):
        raise Unsupported("; ".join(distinct[:TOLD]))
    ranks = [rank for rank, reason in enumerate(reasons) if reason is None]
    if len(unranked) > 1 or len(ranks) != 1 or ranks == [LIKELY_RANK]:  # it may take more, too
        return False
    ((name, atom),) = unranked.items()
    scope.builder.origin = (t.title(node),)
    scope.values[name] = ranked(scope.builder, atom, ranks[0])
    return True


def _refusal(
    t: Translation, node: NodeProto, scope: ImportScope, unranked: Mapping[str, Atom], rank: int
) -> str | None:
    """Why a node takes no operands of so many axes; None if it may, for all that is known now."""
    trial = replace(t, faults={}, count=count(), postpone=_left)
    trial.ranks, trial.scaled = dict(t.ranks), dict(t.scaled)
    there = {n: TensorType(a.type.dtype, (ANY,) * rank) for n, a in unranked.items()}
    values = {**scope.values, **{n: Var(n, type_) for n, type_ in there.items()}}
    reason = ""
    try:
        trial.results(node, ImportScope(values, Builder(), scope.used))
    except (UnknownRankError, Untold):
        return None
    except Lost:  # and told is why, unless it was left
        pass
    except (Unsupported, BucketizeError) as e:
        reason = e.args[0]
    reason = reason or "; ".join(trial.told())
    for name, type_ in there.items():  # the reason, not the trial
        reason = reason.replace(str(type_), str(unranked[name].type))
    return reason or None


def _left(*_: object) -> Results:
    """Nothing: what a node inside makes is not needed to see whether others are wrong."""
    raise Lost


def _bound(t: Translation, node: NodeProto, scope: ImportScope) -> Results | None:
    """The results of a binding that holds the node."""
    operands = ((n, scope.values.get(n)) for n in dict.fromkeys(reads(node)))
    atoms = {n: atom for n, atom in operands if atom is not None}
    model = _model(node, {n: atom.type for n, atom in atoms.items()}, t.opsets)
    types = _result_types(model, t.schema(node))
    if types is None:
        return None
    scope.builder.origin = (t.title(node),)
    text = json_format.MessageToJson(model, indent=None)
    attrs = {"model": text, "precision": t.precision, "types": tuple(types.values())}
    outs = scope.builder.emit_all(onnx_node, *atoms.values(), **attrs)
    results = dict(zip(types, outs, strict=True))
    for name in types:
        if name in t.ranks:
            results[name] = ranked(scope.builder, results[name], t.ranks[name])
    return [results.get(name) for name in node.output]


def _model(node: NodeProto, types: Mapping[str, Type], versions: Mapping[str, int]) -> ModelProto:
    """A model of one node."""
    inputs = [helper.make_value_info(n, proto_of(t)) for n, t in types.items()]
    outputs = [ValueInfoProto(name=n) for n in node.output if n]
    graph = helper.make_graph([node], node.name or node.op_type, inputs, outputs)
    imports = [helper.make_opsetid(domain, v) for domain, v in versions.items()]
    return helper.make_model(graph, opset_imports=imports)


def _result_types(model: ModelProto, schema: defs.OpSchema | None) -> dict[str, Type] | None:
    """By name, and without ranks; None where the standard does not tell them."""
    try:
        outputs = shape_inference.infer_shapes(model).graph.output
    except shape_inference.InferenceError:
        return None
    protos = [_told(o, model.graph, schema) for o in outputs]
    if not all(protos):
        return None
    inferred = {o.name: type_of(p) for o, p in zip(outputs, protos, strict=True) if p}
    return {n: UnrankedType(t.dtype) if t.is_tensor else t for n, t in inferred.items()}


def _told(
    output: ValueInfoProto, graph: GraphProto, schema: defs.OpSchema | None
) -> TypeProto | None:
    """The type that was inferred, or that of an operand which the schema says is the same."""
    if output.type.WhichOneof("value") or schema is None:
        return output.type if output.type.WhichOneof("value") else None
    (node,) = graph.node
    formal = schema.outputs[min([*node.output].index(output.name), len(schema.outputs) - 1)]
    for name, operand in zip(node.input, schema.inputs, strict=False):
        if name and operand.type_str == formal.type_str:
            (param,) = (i for i in graph.input if i.name == name)
            return param.type  # type: ignore[no-any-return]
    return None


# --- in the run ----------------------------------------------------------------------------------


@related(lambda *_, types, **__: types, results=0)
def onnx_node(*operands: Value, model: str, precision: str, types: tuple[Type, ...]) -> list[Value]:
    """What a model of one node, as JSON, makes of these operands."""
    del types
    proto = parsed(model)
    given = list(zip(proto.graph.input, operands, strict=True))
    tensors: Values = {i.name: Const(v) for i, v in given if i.type.HasField("tensor_type")}
    params = [Var(i.name, type_of(i.type)) for i, _ in given if i.name not in tensors]
    translation = Translation(opsets(proto), precision, "float32")
    function = translation.function(proto.graph.name, proto.graph, params, tensors)
    if translation.faults:
        raise ShapeError("; ".join(translation.told()))
    rest = [v for i, v in given if i.name not in tensors]
    return [_own(r) for r in run_function(function, rest)]


@lru_cache(maxsize=1024)
def parsed(model: str) -> ModelProto:
    """A model from JSON."""
    proto = ModelProto()
    json_format.Parse(model, proto)
    return proto


def _own(result: Value) -> Value:
    """No view of an operand."""
    return np.array(result, order="C") if isinstance(result, np.ndarray) else result
