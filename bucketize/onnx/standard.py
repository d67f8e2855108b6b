"""What the ONNX standard says of a node: its schema, and the function that it stands for."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from onnx import AttributeProto, FunctionProto, NodeProto, TypeProto, checker, defs

from bucketize.ir import Atom
from bucketize.onnx.kind import proto_of, type_name
from bucketize.onnx.node import Unsupported

IR_VERSION = 10  # of the checker's rules
REDUCTIONS = ("mean", "sum", "none")
WORDS = dict.fromkeys(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"), REDUCTIONS)
"""What `reduction` may be of operators that are functions: a function takes any word."""


def check_node(node: NodeProto, opsets: Mapping[str, int], domain: str, nested: bool) -> None:
    """Raise Unsupported for a node that the standard does not know, or not like this."""
    schema = schema_of(domain, node.op_type, opsets.get(domain, 0))
    if schema is None:
        return
    attributes = schema.attributes
    for a in node.attribute:
        wanted = attributes[a.name].type.name if a.name in attributes else None  # type: ignore[attr-defined]
        if wanted not in (None, AttributeProto.AttributeType.Name(a.type)):
            raise Unsupported(f"the attribute {a.name} has another type than {wanted}")
        word, words = a.s.decode(errors="replace"), WORDS.get(node.op_type)
        if words and a.name == "reduction" and word not in words:
            raise Unsupported(f"reduction is {word!r}, known: {', '.join(words)}")
    if nested:  # the checker would miss the names around the graph
        _check_counts(schema, node)
        return
    context = checker.C.CheckerContext()
    context.ir_version = IR_VERSION
    context.opset_imports = dict(opsets)
    try:
        checker.check_node(node, context)
    except checker.ValidationError as e:
        raise Unsupported(f"not valid: {str(e).splitlines()[0]}") from e


def _check_counts(schema: defs.OpSchema, node: NodeProto) -> None:
    """Raise Unsupported for too few or too many operands or results, or an attribute left out."""
    if not schema.min_input <= len(node.input) <= schema.max_input:
        raise Unsupported(f"not valid: {len(node.input)} inputs")
    if not schema.min_output <= len(node.output) <= schema.max_output:
        raise Unsupported(f"not valid: {len(node.output)} outputs")
    given = {a.name for a in node.attribute}
    for name, attribute in schema.attributes.items():
        if attribute.required and name not in given:
            raise Unsupported(f"not valid: the attribute {name} is left out")


def check_dtypes(schema: defs.OpSchema | None, inputs: Sequence[Atom | None]) -> None:
    """Raise Unsupported for an operand of a dtype that the standard does not allow there."""
    allowed = () if schema is None else dtypes_of(schema.name, schema.since_version, schema.domain)
    for i, atom in enumerate(inputs if allowed else ()):
        kinds = allowed[min(i, len(allowed) - 1)]
        if atom is not None and type_name(atom.type) not in kinds:
            raise Unsupported(f"input {i} is {atom.type}, which ONNX does not allow there")


@functools.cache
def schema_of(domain: str, op_type: str, opset: int) -> defs.OpSchema | None:
    """What an operator is in an opset; None if ONNX does not know it, in no opset.

    Raises Unsupported for an operator that came later.
    """
    since = _first_versions().get((domain, op_type))
    if since is None:
        return None
    if opset < since:
        raise Unsupported(f"new in opset {since}, but the model has {opset}")
    return defs.get_schema(op_type, opset, domain)


def first_version(domain: str, op_type: str) -> int:
    """The opset that brought an operator of the standard; 1 of others."""
    return _first_versions().get((domain, op_type), 1)


@functools.cache
def _first_versions() -> dict[tuple[str, str], int]:
    first: dict[tuple[str, str], int] = {}
    for s in defs.get_all_schemas_with_history():
        key = (s.domain, s.name)
        first[key] = min(first.get(key, s.since_version), s.since_version)
    return first


@functools.cache
def dtypes_of(op_type: str, opset: int, domain: str = "") -> tuple[frozenset[str], ...]:
    """The types that each operand may have; the last may stand for several."""
    return tuple(frozenset(i.types) for i in defs.get_schema(op_type, opset, domain).inputs)


# --- functions that operators stand for ----------------------------------------------------------


def has_function(schema: defs.OpSchema | None) -> bool:
    """Whether the standard gives a function for an operator, if only for some of its nodes."""
    if schema is None:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)  # type: ignore[attr-defined]


def defaults_of_schema(schema: defs.OpSchema) -> dict[str, AttributeProto]:
    """The defaults of an operator, by attribute."""
    defaults = {name: a.default_value for name, a in schema.attributes.items()}
    return {k: v for k, v in defaults.items() if v.type != AttributeProto.UNDEFINED}


def function_of(
    schema: defs.OpSchema, node: NodeProto, inputs: Sequence[Atom | None], opset: int
) -> FunctionProto | None:
    """The function that the standard gives for a node, of the newest opset that is reached."""
    untyped: Any = schema  # the stubs leave these methods out
    plain = [v for v in untyped.function_opset_versions if v <= opset]
    by_types = [v for v in untyped.context_dependent_function_opset_versions if v <= opset]
    body = FunctionProto()
    if plain:
        body.ParseFromString(untyped.get_function_with_opset_version(max(plain)))
    elif by_types:
        protos = (TypeProto() if atom is None else proto_of(atom.type) for atom in inputs)
        types = [p.SerializeToString() for p in protos]
        build = untyped.get_context_dependent_function_with_opset_version
        body.ParseFromString(build(max(by_types), node.SerializeToString(), types))
    return body if body.node else None
