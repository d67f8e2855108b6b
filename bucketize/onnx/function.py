"""Functions of ONNX: of a model, or of the standard; their nodes as one call of them asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple, TypeAlias

from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto

from bucketize.errors import UnsupportedModelError
from bucketize.onnx.load import check_opset, domain, imported

Attributes: TypeAlias = Mapping[str, AttributeProto]

MAX_DEPTH = 64  # of calls inside calls; exporters write a dozen
MAX_CALLS = 1 << 14  # calls: of functions that each call the next one twice there are 2^n


class Key(NamedTuple):
    """What a node says of the function that it calls."""

    domain: str
    name: str
    overload: str

    def __str__(self) -> str:
        return ".".join(filter(None, self))


def key_of(node: NodeProto) -> Key:
    """The key of a node."""
    return Key(domain(node.domain), node.op_type, node.overload)


def functions(model: ModelProto) -> dict[Key, FunctionProto]:
    """The functions of the model itself."""
    return {function_key(f): f for f in model.functions}


def function_key(function: FunctionProto) -> Key:
    """What calls it says of it."""
    return Key(domain(function.domain), function.name, function.overload)


def makes(nodes: Iterable[NodeProto]) -> Iterator[str]:
    """The names that nodes give to what they make."""
    return (o for node in nodes for o in node.output if o)


def check_different(what: str, names: Sequence[str]) -> None:
    """Raise an error unless no two of these names are the same."""
    for name, count in Counter(names).items():
        if count > 1:
            raise UnsupportedModelError(f"{count} {what}s are named {name!r}")


def check_call(key: Key, calls: Sequence[Key], count: int) -> None:
    """Raise an error if calls go round in a circle, too deep, or `count` says too far."""
    if key in calls:
        circle = " > ".join(map(str, (*calls[calls.index(key) :], key)))
        raise UnsupportedModelError(f"functions of the model call themselves: {circle}")
    if len(calls) >= MAX_DEPTH:
        raise UnsupportedModelError(f"functions of the model are more than {MAX_DEPTH} deep: {key}")
    if count > MAX_CALLS:
        raise UnsupportedModelError(f"functions of the model unfold to more than {MAX_CALLS} calls")


def called(
    function: FunctionProto, node: NodeProto, defaults: Attributes, used: set[str]
) -> list[NodeProto]:
    """The nodes of a function that make what is used of its results, attributes bound.

    Attributes that neither the node nor a default gives, and operands that it leaves out, are left
    out inside, too. Raises an error for a function that is none: one never called is not looked at.
    """
    check_opset(f"the function {key_of(node)}", imported(function.opset_import))
    check_different("value", [*function.input, *makes(function.node)])
    for what, mine, given in (
        ("inputs", function.input, node.input),
        ("outputs", function.output, node.output),
    ):
        if len(given) > len(mine):
            counts = f"{len(given)} {what}, expected {len(mine)} at most"
            raise UnsupportedModelError(f"{key_of(node)} is called with {counts}")
    given = {**defaults, **{a.name: a for a in node.attribute}}
    absent = {mine for mine, name in zip_longest(function.input, node.input) if not name}
    results = zip(function.output, node.output, strict=False)
    nodes, _ = needed(function.node, (mine for mine, name in results if name in used))
    return [_bound(inner, given, absent) for inner in nodes]


def needed(nodes: Sequence[NodeProto], results: Iterable[str]) -> tuple[list[NodeProto], set[str]]:
    """The nodes in order that these results need, and all names that they and the results are.

    What nothing needs is never looked at: exporters leave behind what nobody could run.
    """
    wanted, kept = set(results), []
    for node in reversed(nodes):
        if not wanted.isdisjoint(filter(None, node.output)):
            wanted.update(reads(node))
            kept.append(node)
    return kept[::-1], wanted


def defaults_of(function: FunctionProto) -> Attributes:
    """The defaults of a model's function, by attribute."""
    return {a.name: a for a in function.attribute_proto}


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs that a node holds."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def reads(node: NodeProto) -> Iterator[str]:
    """The names that a node reads, also from inside its subgraphs."""
    yield from node.input
    for graph in subgraphs(node):
        yield from (o.name for o in graph.output)
        for inner in graph.node:
            yield from reads(inner)


def _bound(node: NodeProto, given: Attributes, absent: set[str]) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    _bind(copy, given, absent)
    return copy


def _bind(node: NodeProto, given: Attributes, absent: set[str]) -> None:
    """Put in what a call gives, and take out what it leaves out, in nested graphs, too."""
    for i, name in enumerate(node.input):
        if name in absent:
            node.input[i] = ""
    bound = [x for a in node.attribute if (x := _attribute(a, given)) is not None]
    del node.attribute[:]
    node.attribute.extend(bound)
    for graph in subgraphs(node):
        for inner in graph.node:
            _bind(inner, given, absent)


def _attribute(a: AttributeProto, given: Attributes) -> AttributeProto | None:
    """An attribute of a node inside, or what the call gives for it."""
    if not a.ref_attr_name:
        return a
    if a.ref_attr_name not in given:
        return None
    bound = AttributeProto()
    bound.CopyFrom(given[a.ref_attr_name])
    bound.name = a.name
    return bound
