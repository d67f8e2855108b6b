"""Converters of what brings an axis together, or normalises along it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from bucketize.ir import Atom
from bucketize.onnx.node import Node, Unsupported, converts, vector
from bucketize.onnx.shape import reshaped
from bucketize.op import Op
from bucketize.ops import dyn_axes as d
from bucketize.ops import elementwise as e
from bucketize.ops import reduce as r
from bucketize.ops.shape import unsqueeze

Step: TypeAlias = Callable[[Node, Atom], Atom]

# --- reductions ----------------------------------------------------------------------------------


def _same(_n: Node, x: Atom) -> Atom:
    return x


def _square(n: Node, x: Atom) -> Atom:
    return n.emit(e.mul, x, x)


def _each(op: Op) -> Step:
    return lambda n, x: n.emit(op, x)


REDUCTIONS: dict[str, tuple[Step, Op, Step]] = {
    "ReduceL1": (_each(e.abs_), d.dyn_reduce_sum, _same),
    "ReduceL2": (_square, d.dyn_reduce_sum, _each(e.sqrt)),
    "ReduceLogSum": (_same, d.dyn_reduce_sum, _each(e.log)),
    "ReduceMax": (_same, d.dyn_reduce_max, _same),
    "ReduceMean": (_same, d.dyn_reduce_mean, _same),
    "ReduceMin": (_same, d.dyn_reduce_min, _same),
    "ReduceProd": (_same, d.dyn_reduce_prod, _same),
    "ReduceSum": (_same, d.dyn_reduce_sum, _same),
    "ReduceSumSquare": (_square, d.dyn_reduce_sum, _same),
}


def _declare(op_type: str, before: Step, op: Op, after: Step) -> None:
    def reduce(n: Node, axes: Atom) -> Atom:
        keepdims, noop = bool(n.attr("keepdims", 1)), bool(n.attr("noop_with_empty_axes", 0))
        x = before(n, n[0])
        if noop and axes.type.shape == (0,):
            return after(n, x)
        return after(n, n.emit_dynamic(op, x, axes, keepdims=keepdims, noop=noop))

    def with_operand(n: Node) -> Atom:
        count = None if n.attrs.get("keepdims", 1) else n.removed
        return reduce(n, n.vector(1, count) if n.optional(1) else vector())

    as_input = 13 if op_type == "ReduceSum" else 18
    converts(op_type, as_input)(with_operand)
    if as_input > 13:
        converts(op_type)(lambda n: reduce(n, vector(*n.attr("axes", ()))))


for _op_type, _rule in REDUCTIONS.items():
    _declare(_op_type, *_rule)


def _arg_extreme(op_type: str, op: Op) -> None:
    @converts(op_type)
    def _convert(n: Node) -> Atom:
        if n.attr("select_last_index", 0):
            raise Unsupported("select_last_index is 1")
        return n.emit(op, n[0], axis=n.axis("axis", 0), keepdims=bool(n.attr("keepdims", 1)))


_arg_extreme("ArgMax", r.argmax)
_arg_extreme("ArgMin", r.argmin)


@converts("CumSum")
def _cumsum(n: Node) -> Atom:
    exclusive, reverse = bool(n.attr("exclusive", 0)), bool(n.attr("reverse", 0))
    return n.emit_dynamic(d.dyn_cumsum, n[0], n[1], exclusive=exclusive, reverse=reverse)


# --- normalisations ------------------------------------------------------------------------------


@converts("Softmax")
def _softmax(n: Node) -> Atom:
    return n.emit(r.softmax, n[0], axis=n.axis("axis", -1))


@converts("LogSoftmax")
def _log_softmax(n: Node) -> Atom:
    return n.emit(r.log_softmax, n[0], axis=n.axis("axis", -1))


@converts("LayerNormalization", since=17)
def _layer_norm(n: Node) -> Atom:
    n.attr("stash_type")  # the precision of the mean: ours is never lower
    axis, epsilon = n.axis("axis", -1), n.attr("epsilon", 1e-5)
    bias = n.optional(2) or n.like(n[0], 0)
    return n.emit(r.layer_norm, n[0], n[1], bias, axis=axis, epsilon=epsilon)


@converts("RMSNormalization", since=23)
def _rms_norm(n: Node) -> Atom:
    n.attr("stash_type")
    axis, epsilon, x = n.axis("axis", -1), n.attr("epsilon", 1e-5), n[0]
    axes = tuple(range(axis, len(x.type.shape)))
    mean = n.emit(r.reduce_mean, n.emit(e.mul, x, x), axes=axes, keepdims=True)
    scale = n.emit(e.rsqrt, n.emit(e.add, mean, n.like(x, epsilon)))
    return n.emit(e.mul, n.emit(e.mul, x, scale), n[1])


@converts("BatchNormalization")
def _batch_norm(n: Node) -> Atom:
    """In inference a multiplication and an addition for each channel."""
    n.attr("momentum")
    if n.attr("training_mode", 0):
        raise Unsupported("training_mode is 1")
    x, scale, bias, mean, variance = n.operands
    spread = n.emit(e.add, variance, n.like(variance, n.attr("epsilon", 1e-5)))
    factor = n.emit(e.div, scale, n.emit(e.sqrt, spread))
    shift = n.emit(e.sub, bias, n.emit(e.mul, mean, factor))
    return _per_channel(n, x, factor, shift)


@converts("InstanceNormalization")
def _instance_norm(n: Node) -> Atom:
    epsilon = n.attr("epsilon", 1e-5)
    one, zero = n.like(n[0], 1), n.like(n[0], 0)
    x = n.emit(r.layer_norm, n[0], one, zero, axis=2, epsilon=epsilon)
    return _per_channel(n, x, n[1], n[2])


@converts("GroupNormalization", since=21)
def _group_norm(n: Node) -> Atom:
    n.attr("stash_type")
    groups, epsilon, dims = n.attr("num_groups"), n.attr("epsilon", 1e-5), n[0].type.shape
    if groups < 1:
        raise Unsupported(f"num_groups is {groups}")
    split = (dims[0], groups, dims[1] // groups, *dims[2:])
    one, zero = n.like(n[0], 1), n.like(n[0], 0)
    x = n.emit(r.layer_norm, reshaped(n, n[0], split), one, zero, axis=2, epsilon=epsilon)
    return _per_channel(n, reshaped(n, x, dims), n[1], n[2])


def _per_channel(n: Node, x: Atom, factor: Atom, shift: Atom) -> Atom:
    """`x * factor + shift`, where these are vectors along axis 1."""
    factor, shift = channelwise(n, factor, x), channelwise(n, shift, x)
    return n.emit(e.add, n.emit(e.mul, x, factor), shift)


def channelwise(n: Node, vector: Atom, x: Atom) -> Atom:
    """A vector along axis 1 of `x`, shaped to broadcast with it."""
    axes = tuple(range(1, len(x.type.shape) - 1))
    return n.emit(unsqueeze, vector, axes=axes) if axes else vector
