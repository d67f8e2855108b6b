"""Two engines on one model, node by node: which is the first whose output differs.

What a node makes is had by making it an output of the model, for either engine. That keeps what is
fused around it apart; where only one tensor is asked for at a time, most of a model is as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from onnx import AttributeProto, ModelProto, NodeProto, ValueInfoProto, helper

from bucketize.errors import EngineError
from bucketize.op import Array

WHOLE = "iub"
"""Kinds of dtypes whose numbers are whole."""
NOTHING = np.empty(0)
"""In the place of what is a constant."""
Side: TypeAlias = Callable[[ModelProto, Mapping[str, Array]], Sequence[Any]]
"""From a model and its inputs to its outputs, in their order."""


@dataclass(frozen=True)
class Tolerance:
    """How far two numbers may be apart: `atol` and `rtol` times the other's magnitude.

    Integers may be `atol` apart. NaN agrees with NaN, an infinity with the same one, and neither
    with anything else.
    """

    atol: float = 1e-4
    rtol: float = 1e-3


@dataclass(frozen=True)
class Difference:
    """How far an array is from another one."""

    agrees: bool
    absolute: float = 0.0
    """The largest difference of two elements; infinite where one alone is finite, or NaN."""
    relative: float = 0.0
    """The largest difference of two elements, by the other array's largest finite magnitude."""
    reason: str = ""
    """Why they cannot be subtracted."""


def difference(got: Any, expected: Any, tolerance: Tolerance) -> Difference | None:
    """How far an array is from another; None of what is no array."""
    if not isinstance(got, np.ndarray) or not isinstance(expected, np.ndarray):
        return None
    if got.shape != expected.shape:
        reason = f"shape {got.shape} for {expected.shape}"
        return Difference(False, np.inf, np.inf, reason)
    if "O" in (got.dtype.kind, expected.dtype.kind) or got.dtype.kind in "US":
        agrees = bool(np.array_equal(got, expected))
        return Difference(agrees, reason="" if agrees else "other texts")
    rtol = 0.0 if expected.dtype.kind in WHOLE else tolerance.rtol
    return _number_difference(_wide(got), _wide(expected), replace(tolerance, rtol=rtol))


def _wide(array: Array) -> Array:
    """What can be subtracted: short floats and integers of any kind as longer ones."""
    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    return array.astype(np.longdouble if array.dtype.kind in WHOLE else np.float64)


def _number_difference(got: Array, expected: Array, tolerance: Tolerance) -> Difference:
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    both = np.isfinite(got) & np.isfinite(expected)
    apart = np.where(same, 0.0, np.inf)
    apart[both] = np.abs(got[both] - expected[both])
    finite = np.abs(expected[np.isfinite(expected)])
    allowed = tolerance.atol + tolerance.rtol * np.where(both, np.abs(expected), 0.0)
    absolute = float(apart.max(initial=0.0))
    scale = float(finite.max(initial=0.0)) or 1.0
    return Difference(bool((apart <= allowed).all()), absolute, absolute / scale)


@dataclass
class NodeComparison:
    """A model on two engines; each tensor is asked for at most once."""

    model: ModelProto
    inputs: Mapping[str, Array]
    mine: Side
    other: Side
    tolerance: Tolerance = Tolerance()
    differences: dict[str, Difference | None] = field(default_factory=dict)
    """What was asked for, by tensor; None of what is no array."""

    @cached_property
    def nodes(self) -> list[NodeProto]:
        """The nodes that the outputs hang on, in the order of the model."""
        wanted = {o.name for o in self.model.graph.output}
        kept = list[NodeProto]()
        for node in reversed(self.model.graph.node):
            if wanted.intersection(node.output):
                wanted.update(reads(node))
                kept.append(node)
        return kept[::-1]

    @cached_property
    def makers(self) -> dict[str, int]:
        """Which node makes a tensor."""
        return {name: i for i, n in enumerate(self.nodes) for name in n.output if name}

    @property
    def outputs(self) -> list[str]:
        """The tensors that the model gives."""
        return [o.name for o in self.model.graph.output]

    def ask(self, tensors: Iterable[str]) -> None:
        """Have both engines make some tensors beside the outputs, in one run."""
        new = [t for t in dict.fromkeys(tensors) if t not in self.differences]
        if not new:
            return
        given = marked(self.model, new)
        names = [o.name for o in given.graph.output]
        mine, other = (
            dict(zip(names, side(given, self.inputs), strict=True))
            for side in (self.mine, self.other)
        )
        self.differences |= {t: difference(mine[t], other[t], self.tolerance) for t in new}

    def differs(self, tensor: str) -> bool:
        """Whether the two make a tensor differently; what no node makes is the same."""
        if tensor not in self.makers:
            return False
        self.ask([tensor])
        its = self.differences[tensor]
        return its is not None and not its.agrees

    def all_at_once(self) -> NodeProto | None:
        """Ask for every tensor in one run; the first node that differs while its inputs agree."""
        self.ask(self.outputs)
        self.ask(self.makers)
        bad = (n for n in self.nodes if any(map(self.differs, filter(None, n.output))))
        return next((n for n in bad if not any(map(self.differs, reads(n)))), None)

    def bisect(self) -> NodeProto | None:
        """The first node that differs, by halving, one tensor in a run; None if all outputs agree.

        Of the nodes that an output hangs on, what comes before a node that agrees is taken to
        agree. If an input of the node at the end differs for all that, it goes on from there.
        """
        self.ask(self.outputs)
        at = next((self.makers[o] for o in self.outputs if self.differs(o)), None)
        last = None
        while at is not None:
            last = self._halved(self.ancestors(at))
            at = next((self.makers[t] for t in reads(self.nodes[last]) if self.differs(t)), None)
        return None if last is None else self.nodes[last]

    def _halved(self, chain: Sequence[int]) -> int:
        """The first node of some that differs, if those before it agree; the last one does."""
        low, high = 0, len(chain) - 1
        while low < high:
            middle = (low + high) // 2
            if any(map(self.differs, filter(None, self.nodes[chain[middle]].output))):
                high = middle
            else:
                low = middle + 1
        return chain[high]

    def ancestors(self, last: int) -> list[int]:
        """The nodes that a node hangs on, and itself, in order."""
        above, waiting = set[int](), [last]
        while waiting:
            at = waiting.pop()
            if at not in above:
                above.add(at)
                waiting += [self.makers[t] for t in reads(self.nodes[at]) if t in self.makers]
        return sorted(above)

    def alone(self, node: NodeProto) -> list[Difference | None]:
        """How far a node's outputs are apart where it is a model of its own.

        Both engines have it run on what the other one has made of its inputs.

        Raises EngineError if one of these is no array, or an engine does not run it.
        """
        given = marked(self.model, [t for t in reads(node) if t in self.makers])
        names, values = [o.name for o in given.graph.output], self.other(given, self.inputs)
        inputs = {**self.inputs, **dict(zip(names, values, strict=True))}
        if lists := [t for t in reads(node) if not isinstance(inputs.get(t, NOTHING), np.ndarray)]:
            raise EngineError(f"{title(node)} reads {', '.join(lists)}, which is no array")
        single = single_node(self.model, node, inputs)
        its = {i.name: inputs[i.name] for i in single.graph.input}
        results = zip(self.mine(single, its), self.other(single, its), strict=True)
        return [difference(got, expected, self.tolerance) for got, expected in results]

    @property
    def frame(self) -> pd.DataFrame:
        """A row for each output of a node that was asked for, in the order of the model.

        The columns are node, op, output, agrees (missing of what is no array), absolute, relative,
        reason, and inputs_agree (missing where one was not asked for).
        """
        rows = [
            {
                "node": title(node),
                "op": node.op_type,
                "output": tensor,
                **cells(self.differences[tensor]),
                "inputs_agree": self._inputs_agree(node),
            }
            for node in self.nodes
            for tensor in node.output
            if tensor in self.differences
        ]
        return pd.DataFrame(rows, columns=COLUMNS)

    def _inputs_agree(self, node: NodeProto) -> bool | None:
        needed = [t for t in reads(node) if t in self.makers]
        if any(t not in self.differences for t in needed):
            return None
        return not any(map(self.differs, needed))


COLUMNS = [*("node", "op", "output", "agrees", "absolute", "relative", "reason", "inputs_agree")]


def cells(its: Difference | None) -> dict[str, Any]:
    """The columns of a difference."""
    return asdict(its) if its else {"agrees": None, "reason": "no array"}


def title(node: NodeProto) -> str:
    """A node's name, or that of what it makes."""
    return node.name or next(filter(None, node.output), "")


def reads(node: NodeProto) -> Iterator[str]:
    """The tensors that a node, or a graph in it, reads from outside."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        graphs = [attribute.g] if attribute.type == AttributeProto.GRAPH else attribute.graphs
        for graph in graphs:
            own = {v.name for v in (*graph.input, *graph.initializer)}
            for inner in graph.node:
                yield from (name for name in reads(inner) if name not in own)
                own.update(inner.output)
            yield from (o.name for o in graph.output if o.name not in own)


def marked(model: ModelProto, tensors: Iterable[str]) -> ModelProto:
    """The model with some tensors as outputs, behind those that it has."""
    copy = ModelProto()
    copy.CopyFrom(model)
    present = {o.name for o in copy.graph.output}
    new = [t for t in tensors if t not in present]
    copy.graph.output.extend(ValueInfoProto(name=name) for name in new)
    return copy


def single_node(model: ModelProto, node: NodeProto, arrays: Mapping[str, Array]) -> ModelProto:
    """A model of one node on arrays of these shapes; its constants are those of the model."""
    copy = ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    needed = set(reads(node))
    constants = [t for t in model.graph.initializer if t.name in needed]
    given = needed - {t.name for t in constants}
    inputs = [_value(name, arrays[name]) for name in sorted(given)]
    outputs = [ValueInfoProto(name=name) for name in node.output if name]
    for kept, what in (
        (graph.node, [node]),
        (graph.initializer, constants),
        (graph.input, inputs),
        (graph.output, outputs),
    ):
        del kept[:]
        kept.extend(what)
    del graph.value_info[:]
    return copy


def _value(name: str, array: Array) -> ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, array.shape)
