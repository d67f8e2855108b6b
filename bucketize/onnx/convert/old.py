"""Converters of older forms: each puts a node as later opsets write it, and has that converted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from onnx import TensorProto

from bucketize.ir import Atom, Const
from bucketize.onnx.convert.shape import reshaped, same_shape
from bucketize.onnx.node import CONVERTERS, Node, Result, Unsupported, Untold, converts
from bucketize.ops import shape as s
from bucketize.types import product

DATA_TYPES = frozenset(TensorProto.DataType.keys())

# --- attributes that became operands -------------------------------------------------------------


def _moved(op_type: str, before: int, since: int = 1, **places: int) -> None:
    """Declare that, before an opset, attributes give what later are operands at these places."""

    @converts(op_type, since)
    def _convert(n: Node) -> Result:
        given = {i: _operand(n, n.attr(name)) for name, i in places.items() if name in n.attrs}
        count = max(len(n.inputs), *(i + 1 for i in given), 0)
        inputs = tuple(given.get(i, n.optional(i)) for i in range(count))
        return CONVERTERS["", op_type][before](replace(n, inputs=inputs))


def _operand(n: Node, value: Any) -> Const:
    """An attribute as a tensor: a vector, or a number of the first operand's dtype."""
    if isinstance(value, float):
        return n.like(n[0], value)
    vector = np.atleast_1d(value)
    return Const(vector.astype(np.float32 if vector.dtype.kind == "f" else np.int64))


_moved("Clip", 11, min=1, max=2)
_moved("Pad", 2, paddings=1, value=2)
_moved("Pad", 11, since=2, pads=1, value=2)
_moved("ReduceSum", 13, axes=1)
_moved("Reshape", 5, shape=1)
_moved("Slice", 10, starts=1, ends=2, axes=3)
_moved("Split", 13, split=1)
_moved("Squeeze", 13, axes=1)
_moved("TopK", 10, k=1)
_moved("Unsqueeze", 13, axes=1)
for _name in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare"):
    _moved(f"Reduce{_name}", 18, axes=1)

# --- broadcasting by attributes ------------------------------------------------------------------


def _aligned(op_type: str) -> None:
    """Declare that, before opset 7, the second operand's axes begin at an attribute `axis`."""

    @converts(op_type)
    def _convert(n: Node) -> Result:
        n.attr("broadcast")
        axis, (x, y) = n.attr("axis"), n.operands
        return CONVERTERS["", op_type][7](replace(n, inputs=(x, _placed(n, x, y, axis))))


def _placed(n: Node, x: Atom, y: Atom, axis: int | None) -> Atom:
    """`y` with axes behind its own, so that they stand where those of `x` do from `axis` on."""
    if axis is None:
        return y
    rank = len(y.type.shape)
    behind = len(x.type.shape) - n.front((axis,))[0] - rank
    if behind < 0:
        raise Unsupported(f"axis {axis} leaves too little of {x.type} for {y.type}")
    return n.emit(s.unsqueeze, y, axes=tuple(range(rank, rank + behind))) if behind else y


for _name in ("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor"):
    _aligned(_name)


@converts("PRelu")
def _prelu(n: Node) -> Result:
    """A slope for all, or one for each channel."""
    x, slope = n.operands
    channels = len(slope.type.shape) == 1 and slope.type.shape != (1,)
    placed = _placed(n, x, slope, 1) if channels else slope
    return CONVERTERS["", "PRelu"][7](replace(n, inputs=(x, placed)))


# --- attributes that shapes, and names of outputs, tell as well ----------------------------------


def _told(op_type: str, attribute: str) -> None:
    """Declare that nothing hangs on an attribute that there was before opset 7."""

    @converts(op_type)
    def _convert(n: Node) -> Result:
        n.attr(attribute)
        return CONVERTERS["", op_type][7](n)


_told("Gemm", "broadcast")
for _name in ("GRU", "LSTM", "RNN"):
    _told(_name, "output_sequence")


# --- other meanings ------------------------------------------------------------------------------


def _flat(op_type: str) -> None:
    """Declare that, before opset 13, all axes from `axis` on are one."""

    @converts(op_type)
    def _convert(n: Node) -> Result:
        x, axis = n[0], n.axis("axis", 1)
        dims, today = x.type.shape, CONVERTERS["", op_type][13]
        if axis == len(dims) - 1:
            return today(n)
        rows = reshaped(n, x, (product(dims[:axis]), product(dims[axis:])))
        y = today(replace(n, inputs=(rows,)))
        assert not isinstance(y, tuple)
        return same_shape(n, y, x)


for _name in ("Hardmax", "LogSoftmax", "Softmax"):
    _flat(_name)


@converts("Cast")
def _cast(n: Node) -> Result:
    """To a dtype that is given by its name."""
    name = n.attr("to")
    if name not in DATA_TYPES:
        raise Unsupported(f"no data type is named {name!r}")
    n.attrs["to"] = TensorProto.DataType.Value(name)
    return CONVERTERS["", "Cast"][6](n)


@converts("Selu")
def _selu(n: Node) -> Result:
    """With defaults of fewer digits."""
    n.attrs.update({"alpha": 1.6732, "gamma": 1.0507, **n.attrs})
    return CONVERTERS["", "Selu"][6](n)


@converts("Tile")
def _tile(n: Node) -> Result:
    """Along one axis."""
    tiles, axis = n[1], n[2]
    if not all(isinstance(a, Const) and a.value.size == 1 for a in (tiles, axis)):
        raise Untold("tiles and axis must be known numbers")
    count, at = (int(a.value.reshape(-1)[0]) for a in (tiles, axis) if isinstance(a, Const))
    repeats = np.ones(len(n[0].type.shape), np.int64)
    repeats[n.front((at,))[0]] = count
    return CONVERTERS["", "Tile"][6](replace(n, inputs=(n[0], Const(repeats))))


@converts("Dropout")
@converts("Dropout", since=6)
def _tested_dropout(n: Node) -> Result:
    _check_tested(n)
    return CONVERTERS["", "Dropout"][7](n)


@converts("BatchNormalization")
@converts("BatchNormalization", since=6)
def _tested_batch_norm(n: Node) -> Result:
    _check_tested(n)
    return CONVERTERS["", "BatchNormalization"][7](replace(n, named=1))


def _check_tested(n: Node) -> None:
    if not n.attr("is_test", 0):
        raise Unsupported("is_test is 0: training is not supported")


@converts("BatchNormalization", since=7)
def _batch_norm(n: Node) -> Result:
    """With numbers for each channel, or for each element of an image."""
    if n.attr("spatial", 1):
        return CONVERTERS["", "BatchNormalization"][9](n)
    x, *numbers = n.operands
    batch, *rest = x.type.shape
    flat = [reshaped(n, v, (product(tuple(rest)),)) for v in numbers]
    rows = reshaped(n, x, (batch, product(tuple(rest))))
    y = CONVERTERS["", "BatchNormalization"][9](replace(n, inputs=(rows, *flat)))
    assert not isinstance(y, tuple)
    return same_shape(n, y, x)


@converts("Scatter", since=9)
def _scatter(n: Node) -> Result:
    """The first name of ScatterElements."""
    return CONVERTERS["", "ScatterElements"][1](n)
