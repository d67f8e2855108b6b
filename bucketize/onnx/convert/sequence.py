"""Converters of sequences, and of what is optional."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from onnx import TensorProto

from bucketize.ir import Atom, Builder, Const, Function, Var
from bucketize.onnx.convert.control import TRUE, scalar_of
from bucketize.onnx.node import Graph, Node, Unsupported, converts, converts_directly, native_dtype
from bucketize.ops import sequence as s
from bucketize.types import OptionalType, SequenceType


@converts("SequenceEmpty", since=11)
def _empty(n: Node) -> Atom:
    dtype = native_dtype(n.attr("dtype", TensorProto.FLOAT))
    return n.emit(s.sequence_empty, dtype=dtype.name)


converts_directly("SequenceConstruct", s.sequence_construct, since=11)
converts_directly("SequenceLength", s.sequence_length, since=11)


def _position(n: Node, index: int) -> list[Atom]:
    """The operand that says where, if it is there."""
    given = n.optional(index)
    return [] if given is None else [scalar_of(n.builder, given)]


@converts("SequenceAt", since=11)
def _at(n: Node) -> Atom:
    return n.emit(s.sequence_at, n[0], scalar_of(n.builder, n[1]))


@converts("SequenceInsert", since=11)
def _insert(n: Node) -> Atom:
    return n.emit(s.sequence_insert, n[0], n[1], *_position(n, 2))


@converts("SequenceErase", since=11)
def _erase(n: Node) -> Atom:
    return n.emit(s.sequence_erase, n[0], *_position(n, 1))


@converts("SplitToSequence", since=11)
def _split(n: Node) -> Atom:
    attrs = {"axis": n.attr("axis", 0), "keepdims": bool(n.attr("keepdims", 1))}
    split = n.optional(1)
    return n.emit(s.split_to_sequence, n[0], *(() if split is None else (split,)), **attrs)


@converts("ConcatFromSequence", since=11)
def _concat(n: Node) -> Atom:
    axis, new_axis = n.attr("axis"), bool(n.attr("new_axis", 0))
    return n.emit(s.concat_from_sequence, n[0], axis=axis, new_axis=new_axis)


@converts("SequenceMap", since=17)
def _map(n: Node) -> tuple[Atom, ...]:
    graph: Graph = n.attr("body")
    count = n.emit(s.sequence_length, n[0])

    def taken(out: Builder, at: Atom) -> list[Atom]:
        """The operands of a round: elements of sequences, and tensors as they are."""
        return [
            out.emit(s.sequence_at, x, at) if isinstance(x.type, SequenceType) else x
            for x in n.operands
        ]

    def make(params: tuple[Var, ...]) -> Function:
        out = Builder(origin=n.builder.origin)
        at, *sequences = params
        each = graph(out, taken(out, at))
        longer = [out.emit(s.sequence_insert, m, x) for m, x in zip(sequences, each, strict=True)]
        return out.function("body", params, (TRUE, *longer))

    begin = [n.emit(s.sequence_empty, dtype=d) for d in _dtypes(graph, taken)]
    return n.builder.loop(count, TRUE, begin, make)


def _dtypes(graph: Graph, taken: Callable[[Builder, Atom], Sequence[Atom]]) -> list[str]:
    """Dtypes of what a graph makes, which a round that nobody runs tells."""
    out = Builder()
    return [x.type.dtype.name for x in graph(out, taken(out, Const(np.array(0, np.int64))))]


# --- what is optional ----------------------------------------------------------------------------


@converts("Optional", since=15)
def _optional(n: Node) -> Atom:
    type_, x = n.attr("type"), n.optional(0)
    if x is not None:
        return n.emit(s.optional_some, x)
    if type_ is None:
        raise Unsupported("neither an operand nor a type is given")
    return n.emit(s.optional_none, type=type_)


@converts("OptionalHasElement", since=15)
def _has_element(n: Node) -> Atom:
    x = n.optional(0)
    if x is not None and isinstance(x.type, OptionalType):
        return n.emit(s.optional_has_element, x)
    return Const(np.array(x is not None))


@converts("OptionalGetElement", since=15)
def _get_element(n: Node) -> Atom:
    x = n[0]
    return n.emit(s.optional_get_element, x) if isinstance(x.type, OptionalType) else x
