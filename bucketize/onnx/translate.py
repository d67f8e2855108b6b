"""ONNX graphs to functions: nodes in order, and one error for all that is not supported."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from typing import TypeAlias

from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, defs

from bucketize.errors import BucketizeError, UnknownRankError, UnsupportedModelError
from bucketize.ir import Atom, Builder, Const, Function, Var, all_bindings
from bucketize.onnx.function import (
    Attributes,
    Key,
    called,
    check_call,
    check_different,
    defaults_of,
    key_of,
    makes,
    needed,
    reads,
    subgraphs,
)
from bucketize.onnx.load import domain, imported
from bucketize.onnx.message import attributes, constants
from bucketize.onnx.node import (
    MICROSOFT,
    Converter,
    Graph,
    Lost,
    Node,
    Scaled,
    Unread,
    Unsupported,
    Untold,
    check_read,
    converter_of,
)
from bucketize.onnx.optional_squeeze import is_optional_squeeze
from bucketize.onnx.standard import (
    check_dtypes,
    check_node,
    defaults_of_schema,
    function_of,
    has_function,
    schema_of,
)
from bucketize.types import UnrankedType, assumptions

Values: TypeAlias = dict[str, Atom | None]
"""Values by name; None stands for what an unsupported node would have made."""

Inputs: TypeAlias = Sequence[Atom | None]
Results: TypeAlias = Sequence[Atom | None]
Blocks: TypeAlias = Mapping[str, Function | Graph]


Postpone: TypeAlias = Callable[["Translation", NodeProto, "ImportScope"], Results | None]
"""The results of a node that cannot be converted yet; None if it is of no use to wait."""


SHORT_WEIGHTS = "; a run could convert it, if weights were float32"


@dataclass
class ImportScope:
    """The values by name of a graph or function, where to emit, and which names are read."""

    values: Values
    builder: Builder
    used: set[str]


@dataclass
class Translation:
    """A model on its way to the IR, and what was found that cannot go along.

    Inside a function there is another one, of the operator sets that it imports, with the names of
    the nodes that lead there and the functions that they call.
    """

    opsets: Mapping[str, int]
    precision: str
    weights: str
    functions: Mapping[Key, FunctionProto] = field(default_factory=dict)
    faults: dict[str, list[str]] = field(default_factory=dict)
    """The nodes that are not supported, by the operator and why."""
    path: tuple[str, ...] = ()
    calls: tuple[Key, ...] = ()
    count: Iterator[int] = field(default_factory=itertools.count)
    """Counts the calls of functions."""
    ranks: dict[str, int] = field(default_factory=dict)
    """The ranks of values, as far as the model declares them."""
    scaled: dict[Atom, Scaled] = field(default_factory=dict)
    """What floats were integers before."""
    turned: dict[tuple[Const, tuple[int, ...]], Const] = field(default_factory=dict)
    """Constants whose axes are in another order."""
    postpone: Postpone | None = None
    """What to do with a node that only a run can convert."""
    squeezes: Mapping[str, bool] = field(default_factory=dict)
    """By nodes that squeeze an extent if it is 1: whether it is."""
    undecided: dict[str, None] = field(default_factory=dict)
    """Nodes that do so, and of which that is not known, in order."""

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
        names = [t.name for t in graph.initializer]
        check_different("initializer", names)
        check_different("value", [*{*names, *inputs} - outer.keys(), *makes(graph.node)])
        nodes, used = needed(graph.node, [o.name for o in graph.output])
        values: Values = {**outer, **constants(graph, used), **inputs}
        self.ranks |= _declared_ranks(graph)
        self._convert_all(nodes, ImportScope(values, builder, used))
        if not all(o.name for o in graph.output):
            raise UnsupportedModelError(f"an output of {name} has no name")
        return [_find(values, o.name, f"the output of {name}") for o in graph.output]

    def _block(self, graph: GraphProto, outer: Values) -> Function | Graph:
        """A graph as a function; one with inputs is emitted by whoever knows their types."""
        if not graph.input:
            with assumptions():  # which hold only where it is taken
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
        with assumptions():
            results = self._emit(graph.name, graph, outer, named, builder)
        if sum(map(len, self.faults.values())) > before or None in results:
            raise Lost
        _check_drawn(builder)
        return tuple(r for r in results if r is not None)

    def check(self) -> None:
        """Raise the one error that lists what is not supported, if there is any."""
        if self.faults:
            counts = list(map(len, self.faults.values()))
            head = f"{sum(counts)} node{'s' * (sum(counts) > 1)} of the model cannot be converted:"
            lines = [f"  {n} x {reason}" for n, reason in zip(counts, self.told(), strict=True)]
            raise UnsupportedModelError("\n".join([head, *lines]))

    def told(self) -> list[str]:
        """What is not supported, and which nodes that is, for each reason."""
        return [f"{fault} ({', '.join(nodes)})" for fault, nodes in self.faults.items()]

    def _convert_all(self, nodes: Iterable[NodeProto], scope: ImportScope) -> None:
        """Add to the values what the nodes make, one after the other."""
        for node in nodes:
            scope.values.update(zip(node.output, self._convert(node, scope), strict=False))

    def _convert(self, node: NodeProto, scope: ImportScope) -> Results:
        """What the node makes: None for each output, if it or what it reads is not supported."""
        try:
            return self._now_or_later(node, scope)
        except Lost:
            pass
        except Unsupported as e:
            self._refuse(node, str(e))
        except BucketizeError as e:
            e.add_note(f"from ONNX node {self.title(node)!r} ({_op_type(node)})")
            raise
        return [None] * len(node.output)

    def _now_or_later(self, node: NodeProto, scope: ImportScope) -> Results:
        """What the node makes; or a run will, that knows more."""
        begin = len(scope.builder.body)
        try:
            return self.results(node, scope)
        except (UnknownRankError, Untold) as e:
            del scope.builder.body[begin:]
            results = self.postpone and self.postpone(self, node, scope)
            if results is None:
                reason = _unranked(node, scope) or e.args[0]
                short_weights = "" if self.weights == "float32" else SHORT_WEIGHTS
                raise Unsupported(reason + short_weights) from e
            return results

    def _refuse(self, node: NodeProto, reason: str) -> None:
        self.faults.setdefault(f"{self._op_type(node)}: {reason}", []).append(self.title(node))

    def results(self, node: NodeProto, scope: ImportScope) -> Results:
        """What the node makes; raises what keeps it from being converted."""
        own = self.functions.get(key_of(node))
        if own is None:
            self._check(node)
        reader = f"node {self.title(node)!r}"
        inputs = [_find(scope.values, name, reader) for name in node.input]
        graphs = {a.name: a.g for a in node.attribute if a.type == AttributeProto.GRAPH}
        if (taken := self._taken(node, inputs, graphs)) is not None:
            return self._emit(taken.name, taken, scope.values, {}, scope.builder)
        blocks = {k: self._block(g, scope.values) for k, g in graphs.items()}
        if _is_lost(node, inputs, graphs, blocks):
            return [None] * len(node.output)
        if is_optional_squeeze(scope.builder, inputs, blocks):
            self.undecided[self.title(node)] = None
        if own is not None:
            return self._call(own, node, defaults_of(own), inputs, scope)
        return self._standard(node, inputs, blocks, scope)

    def _taken(
        self, node: NodeProto, inputs: Inputs, graphs: Mapping[str, GraphProto]
    ) -> GraphProto | None:
        """The branch of an `If` that is decided: nothing need be known of the other one."""
        if node.op_type != "If" or domain(node.domain) or not inputs or inputs[0] is None:
            return None
        match inputs[0].type.value, self.squeezes.get(self.title(node)):
            case ((int(truth),), _) | (_, bool(truth)):
                return graphs.get("then_branch" if truth else "else_branch")
        return None

    def _check(self, node: NodeProto) -> None:
        """Raise Unsupported for a node that nothing here reads, or that is not valid."""
        schema = self.schema(node)
        if self._converter(node) is None and not has_function(schema):
            raise Unsupported("no converter for this operator")
        check_node(node, self.opsets, domain(node.domain), nested=any(subgraphs(node)))

    def _standard(
        self, node: NodeProto, inputs: Inputs, blocks: Blocks, scope: ImportScope
    ) -> Results:
        """An operator's results by its converter, or by the function that the standard gives."""
        schema, begin = self.schema(node), len(scope.builder.body)
        check_dtypes(schema, inputs)
        try:
            return self._converted(node, inputs, blocks, scope)
        except Unread:
            del scope.builder.body[begin:]
            if schema is None:
                raise
            function = function_of(schema, node, inputs, self.opset(node))
            if function is None:
                if has_function(schema):  # for types that are known better
                    raise Untold("the standard has a function for known extents only") from None
                raise
            return self._call(function, node, defaults_of_schema(schema), inputs, scope)

    def _converted(
        self, node: NodeProto, inputs: Inputs, blocks: Blocks, scope: ImportScope
    ) -> Results:
        """An operator's results by its converter; Unread where that reads less than there is."""
        convert, builder = self._converter(node), scope.builder
        if convert is None:
            raise Unread("no converter for this operator")
        attrs = {**attributes(node), **blocks}
        builder.origin = (self.title(node),)
        kept = self.precision, self.weights, self.ranks.get(node.output[0])
        named = sum(map(bool, node.output))
        shared = self.scaled, self.turned
        view = Node(tuple(inputs), attrs, len(node.output), builder, *kept, named, *shared)
        converted = convert(view)
        check_read(attrs)
        results = converted if isinstance(converted, tuple) else (converted,)
        for i, (output, result) in enumerate(zip_longest(node.output, results)):
            if result is None and output and output in scope.used:
                raise Unread(f"output {i} is used")
        return results

    def _call(
        self,
        function: FunctionProto,
        node: NodeProto,
        defaults: Attributes,
        inputs: Inputs,
        scope: ImportScope,
    ) -> Results:
        """What the nodes of a function make of these inputs."""
        key = key_of(node)
        check_call(key, self.calls, next(self.count))
        nodes = called(function, node, defaults, scope.used)
        results = [*zip(function.output, node.output, strict=False)]
        inside = replace(
            self,
            opsets={**self.opsets, **imported(function.opset_import)},
            path=(*self.path, _title(node)),
            calls=(*self.calls, key),
            ranks={f: self.ranks[o] for f, o in results if o in self.ranks},
        )
        values: Values = dict(zip(function.input, inputs, strict=False))
        used = set(function.output).union(*map(reads, nodes))
        inside._convert_all(nodes, ImportScope(values, scope.builder, used))
        return [
            _find(values, name, f"the output of {key}") if output in scope.used else None
            for name, output in results
        ]

    def _converter(self, node: NodeProto) -> Converter | None:
        return converter_of(domain(node.domain), node.op_type, self.opset(node))

    def opset(self, node: NodeProto) -> int:
        """The version of a node's operator set; that of onnxruntime need not be imported."""
        name = domain(node.domain)
        return self.opsets.get(name, int(name == MICROSOFT))

    def schema(self, node: NodeProto) -> defs.OpSchema | None:
        """What the standard says of the operator; None if it does not know it."""
        return schema_of(domain(node.domain), node.op_type, self.opset(node))

    def _op_type(self, node: NodeProto) -> str:
        """The operator, with its domain and the version of that."""
        return f"{domain(node.domain) or 'ai.onnx'} {self.opset(node)} {node.op_type}"

    def title(self, node: NodeProto) -> str:
        """The node's name behind those of the nodes whose functions it is in."""
        return "/".join((*self.path, _title(node)))


def _declared_ranks(graph: GraphProto) -> dict[str, int]:
    tensors = {v.name: v.type.tensor_type for v in (*graph.value_info, *graph.output)}
    return {name: len(t.shape.dim) for name, t in tensors.items() if t.HasField("shape")}


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
    pairs = ((b, graphs[k]) for k, b in blocks.items() if isinstance(b, Function))
    return read or any(len(block.results) < len(g.output) for block, g in pairs)


def _check_drawn(body: Builder) -> None:
    """Raise Unsupported where the body of a loop draws numbers."""
    if any("seed" in b.op.defaults for b in all_bindings(body.function("", (), ()))):
        raise Unsupported("its body draws numbers, and each round would draw the same")


def _unranked(node: NodeProto, scope: ImportScope) -> str:
    """Which inputs have a rank that nobody knows."""
    inputs = [(i, name, scope.values.get(name)) for i, name in enumerate(node.input)]
    lines = [
        f"input {i}, {name!r}, is {atom.type}: how many axes it has, only a run can tell"
        for i, name, atom in inputs
        if atom is not None and isinstance(atom.type, UnrankedType)
    ]
    return ", ".join(lines)


def _op_type(node: NodeProto) -> str:
    return f"{node.domain}.{node.op_type}" if domain(node.domain) else node.op_type


def _title(node: NodeProto) -> str:
    return node.name or next(filter(None, node.output), "")
