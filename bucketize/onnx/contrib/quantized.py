"""Converters of what onnxruntime's quantiser writes, beyond what the standard knows.

Sums of products are exact integers, as the standard's are; what else stands between two quantised
tensors is done in floats: what they stand for, the operator, the nearest number of the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bucketize.ir import Atom, Const
from bucketize.onnx.contrib.attention import columns, of_past, projected
from bucketize.onnx.contrib.fused import embedded, taken, total_of
from bucketize.onnx.convert.linalg import scaled
from bucketize.onnx.convert.quantized import ONE, integer_product
from bucketize.onnx.convert.shape import places
from bucketize.onnx.node import (
    MICROSOFT,
    Node,
    Unsupported,
    Untold,
    cast,
    converts,
    standard,
    standard_all,
    transposed,
)
from bucketize.ops.elementwise import arithmetic as e
from bucketize.ops.shape import unsqueeze

FLOAT = "float32"

# --- between two quantised tensors ---------------------------------------------------------------


def _real(n: Node, i: int) -> Atom:
    """What an operand stands for, whose scale and zero point are behind it."""
    return standard(n, "DequantizeLinear", n[i], n[i + 1], n.optional(i + 2))


def _quantized(n: Node, y: Atom, i: int, dtype: Any) -> Atom:
    """The nearest numbers, by the scale at an operand and the zero point behind it."""
    zero = n.optional(i + 1)
    zero = Const(np.zeros((), dtype)) if zero is None else zero
    return standard(n, "QuantizeLinear", y, n[i], zero)


def _by_floats(op_type: str, operator: str, operands: int, **attrs: Any) -> None:
    """Declare an operator on quantised operands, each with its scale and zero point."""

    @converts(op_type, domain=MICROSOFT)
    def _convert(n: Node) -> Atom:
        given = {name: n.attr(name, usual) for name, usual in attrs.items()}
        reals = [_real(n, 3 * i) for i in range(operands)]
        return _quantized(n, standard(n, operator, *reals, **given), 3 * operands, n[0].type.dtype)


_by_floats("QLinearAdd", "Add", 2)
_by_floats("QLinearMul", "Mul", 2)
_by_floats("QLinearSigmoid", "Sigmoid", 1)
_by_floats("QLinearLeakyRelu", "LeakyRelu", 1, alpha=0.01)


@converts("QLinearSoftmax", domain=MICROSOFT)
def _softmax(n: Node) -> Atom:
    """Along an axis; before opset 13 along it and all that are behind it."""
    axis, opset = n.attr("axis", -1), n.attr("opset")
    if opset is None:
        raise Unsupported("the attribute opset is left out")
    y = standard(n, "Softmax", _real(n, 0), opset=opset, axis=axis)
    return _quantized(n, y, 3, n[0].type.dtype)


@converts("QLinearConcat", domain=MICROSOFT)
def _concat(n: Node) -> Atom:
    """The result's scale and zero point come first, three operands for each part behind them."""
    parts = [_real(n, i) for i in range(2, len(n.inputs), 3)]
    return _quantized(n, standard(n, "Concat", *parts, axis=n.attr("axis")), 0, n[2].type.dtype)


@converts("QLinearWhere", domain=MICROSOFT)
def _where(n: Node) -> Atom:
    y = standard(n, "Where", n[0], _real(n, 1), _real(n, 4))
    return _quantized(n, y, 7, n[1].type.dtype)


@converts("QuantizeLinear", domain=MICROSOFT)
def _quantize(n: Node) -> Atom:
    return standard(n, "QuantizeLinear", *n.inputs, **taken(n))


@converts("DequantizeLinear", domain=MICROSOFT)
def _dequantize(n: Node) -> Atom:
    return standard(n, "DequantizeLinear", *n.inputs, **taken(n))


# --- windows: channels may be the last axis ------------------------------------------------------


def _of_images(n: Node, x: Atom, operator: Callable[[Atom], Atom]) -> Atom:
    """An operator on images that have their channels first, of those that may have them last."""
    if not n.attr("channels_last", 0):
        return operator(x)
    behind = len(x.type.shape) - 1
    y = operator(transposed(n, x, (0, behind, *range(1, behind))))
    return transposed(n, y, (0, *range(2, behind + 1), 1))


def _pool(op_type: str, operator: str) -> None:
    @converts(op_type, domain=MICROSOFT)
    def _convert(n: Node) -> Atom:
        def pooled(x: Atom) -> Atom:
            return standard(n, operator, x, **taken(n))

        return _quantized(n, _of_images(n, _real(n, 0), pooled), 3, n[0].type.dtype)


_pool("QLinearAveragePool", "AveragePool")
_pool("QLinearGlobalAveragePool", "GlobalAveragePool")


@converts("QLinearConv", domain=MICROSOFT)
def _conv(n: Node) -> Atom:
    def conv(x: Atom) -> Atom:
        return standard(n, "QLinearConv", x, *n.inputs[1:], **taken(n))

    return _of_images(n, n[0], conv)


@converts("NhwcMaxPool", domain=MICROSOFT)
def _max_pool(n: Node) -> Atom:
    n.attrs["channels_last"] = 1
    return _of_images(n, n[0], lambda x: standard(n, "MaxPool", x, **taken(n)))


# --- products ------------------------------------------------------------------------------------


def _scaled_sums(n: Node, sums: Atom, *scales: Atom) -> Atom:
    """Integers times scales, of one number or one for each column."""
    x_scale, y_scale = (cast(n, scale, FLOAT) for scale in scales)
    return n.emit(e.mul, cast(n, sums, FLOAT), n.emit(e.mul, x_scale, y_scale))


def _one(x: Atom, what: str) -> Atom:
    """An operand of one number."""
    if x.type.shape not in ONE:
        raise Unsupported(f"{what} is {x.type}, expected one number")
    return x


@converts("MatMulIntegerToFloat", domain=MICROSOFT)
def _integer_to_float(n: Node) -> Atom:
    zero = n.optional(4)
    zero = zero and _one(zero, "the zero point of A")
    sums = integer_product(n, n[0], n[1], zero, n.optional(5))
    y = _scaled_sums(n, sums, _one(n[2], "the scale of A"), n[3])
    return total_of(n, y, n.optional(6))


@converts("DynamicQuantizeMatMul", domain=MICROSOFT)
def _dynamic_matmul(n: Node) -> Atom:
    """A is quantised by what a run finds in it."""
    numbers, scale, zero = _ranged(n, n[0])
    sums = integer_product(n, numbers, n[1], zero, n.optional(3))
    return total_of(n, _scaled_sums(n, sums, scale, n[2]), n.optional(4))


def _ranged(n: Node, x: Atom) -> tuple[Atom, Atom, Atom]:
    """`x` as bytes from its least number to its greatest, 0 among them; scale and zero point."""
    lo, hi = (
        standard(n, limit, standard(n, f"Reduce{limit}", x, keepdims=0), n.like(x, 0))
        for limit in ("Min", "Max")
    )
    span = n.emit(e.div, n.emit(e.sub, hi, lo), n.like(x, 255))
    scale = n.emit(e.where, n.emit(e.equal, span, n.like(x, 0)), n.like(x, 1), span)
    moved = n.emit(e.neg, n.emit(e.div, lo, scale))
    zero = standard(n, "QuantizeLinear", moved, n.like(x, 1), Const(np.zeros((), np.uint8)))
    return standard(n, "QuantizeLinear", x, scale, zero), scale, zero


@converts("QGemm", domain=MICROSOFT)
def _gemm(n: Node) -> Atom:
    """`alpha * a @ b + c`, where c counts in units of the product; perhaps quantised."""
    a, b = (
        transposed(n, n[i], (1, 0)) if n.attr(name, 0) else n[i]
        for i, name in ((0, "transA"), (3, "transB"))
    )
    sums = total_of(
        n, integer_product(n, a, b, _one(n[2], "the zero point of A"), n[5]), n.optional(6)
    )
    y = _scaled_sums(n, sums, _one(n[1], "the scale of A"), n[4])
    y, zero = scaled(n, y, n.attr("alpha", 1.0)), n.optional(8)
    if zero is None and n.optional(7) is not None:
        raise Unsupported("the result has a scale, and no zero point that tells its dtype")
    return y if zero is None else _quantized(n, y, 7, zero.type.dtype)


# --- layers --------------------------------------------------------------------------------------


@converts("QAttention", domain=MICROSOFT)
def _attention(n: Node) -> tuple[Atom | None, ...]:
    x_zero, w_zero = n.optional(6), n.optional(7)

    def part(p: Atom, begin: int, end: int) -> Atom:
        if not all(isinstance(d, int) for d in p.type.shape):
            raise Untold(f"how many {p.type} are, one or one for each column, is not known")
        return p if p.type.shape in ONE else columns(n, p, begin, end)

    def product(begin: int, end: int) -> Atom:
        zero = w_zero and part(w_zero, begin, end)
        sums = integer_product(n, n[0], columns(n, n[1], begin, end), x_zero, zero)
        return _scaled_sums(n, sums, n[3], part(n[4], begin, end))

    parts = projected(n, product, n[1], n[2], ())
    return of_past(n, parts, mask=n.optional(5), past=n.optional(8), bias=None)


@converts("QEmbedLayerNormalization", domain=MICROSOFT)
def _embed_layer_norm(n: Node) -> tuple[Atom, ...]:
    """Rows are gathered as bytes."""

    def real(i: int, rows: Atom) -> Atom:
        return standard(n, "DequantizeLinear", rows, n[i + 6], n[i + 11])

    at = [(2, n[0]), (3, places(n, n[0], 1)), (4, n.optional(1))]
    rows = [real(i, standard(n, "Gather", n[i], ids)) for i, ids in at if ids is not None]
    y, words, _ = embedded(n, rows, real(5, n[5]), real(6, n[6]), n.optional(7))
    return y, words


@converts("DynamicQuantizeLSTM", domain=MICROSOFT)
def _lstm(n: Node) -> tuple[Atom | None, ...]:
    """The standard's with the floats that its weights stand for: what they meet is not rounded."""
    w, r = (_gates(n, n[i], *zeros) for i, zeros in ((1, (8, 9)), (2, (10, 11))))
    return standard_all(n, "LSTM", n.outputs, n[0], w, r, *n.inputs[3:8], **taken(n))


def _gates(n: Node, w: Atom, scale: int, zero: int) -> Atom:
    """Weights of [directions, inputs, gates] as floats, and turned as the standard has them."""
    steps, moved = (
        n.emit(unsqueeze, p, axes=(1, 2) if len(p.type.shape) == 1 else (1,))
        for p in (n[scale], n[zero])
    )
    less = n.emit(e.sub, cast(n, w, FLOAT), cast(n, moved, FLOAT))
    return transposed(n, n.emit(e.mul, less, steps), (0, 2, 1))
