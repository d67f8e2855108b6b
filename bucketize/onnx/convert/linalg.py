"""Converters of matrix products and determinants."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bucketize.ir import Atom, Const
from bucketize.onnx.node import (
    Node,
    Unsupported,
    cast,
    converts,
    converts_directly,
    holds,
    transposed,
)
from bucketize.ops.elementwise.arithmetic import add, mul
from bucketize.ops.linalg import det, matmul
from bucketize.ops.rounding import FORMATS, PLAIN
from bucketize.ops.shape import squeeze, unsqueeze
from bucketize.types.number import BFLOAT16

converts_directly("Det", det)


@converts("MatMul")
def _matmul(n: Node) -> Atom:
    return matrices(n, n[0], n[1], lambda x, y: _product(n, x, y))


def matrices(n: Node, x: Atom, y: Atom, product: Callable[[Atom, Atom], Atom]) -> Atom:
    """A product of matrices; a vector is a row on the left and a column on the right."""
    row, column = len(x.type.shape) == 1, len(y.type.shape) == 1
    if row:
        x = n.emit(unsqueeze, x, axes=(0,))
    if column:
        y = n.emit(unsqueeze, y, axes=(1,))
    out = product(x, y)
    rank = len(out.type.shape)
    axes = (rank - 2,) * row + (rank - 1,) * column
    return n.emit(squeeze, out, axes=axes) if axes else out


@converts("Gemm", since=7)
def _gemm(n: Node) -> Atom:
    """`alpha * a @ b + beta * c`; of integers by fractions it is cut at the end."""
    for name, x in zip("AB", n.operands, strict=False):
        if len(x.type.shape) != 2:
            raise Unsupported(f"{name} is {x.type}, expected a matrix")
    a = _turned(n, n[0], n.attr("transA", 0))
    b = _turned(n, n[1], n.attr("transB", 0))
    alpha, beta, c, dtype = (
        n.attr("alpha", 1.0),
        n.attr("beta", 1.0),
        n.optional(2),
        n[0].type.dtype,
    )
    wider = dtype.name if holds(dtype, alpha, beta) else "float64"
    out = scaled(n, cast(n, _product(n, a, b), wider), alpha)
    if c is not None and beta != 0:
        out = n.emit(add, out, scaled(n, cast(n, c, wider), beta))
    return cast(n, out, dtype.name)


def _turned(n: Node, x: Atom, turned: int) -> Atom:
    return transposed(n, x, (1, 0)) if turned else x


def scaled(n: Node, x: Atom, factor: float) -> Atom:
    """`x` times a number, itself if that is 1."""
    return x if factor == 1 else n.emit(mul, x, n.like(x, factor))


def _product(n: Node, x: Atom, y: Atom) -> Atom:
    """The product, with weights in the format that is asked for; of bfloat16 in that."""
    if x.type.dtype == y.type.dtype == BFLOAT16:
        return _bfloat16(n, x, y)
    is_matrix = len(y.type.shape) == 2 and y.type.dtype == np.float32
    if n.weights == PLAIN or not isinstance(y, Const) or not is_matrix:
        return n.emit(matmul, x, y)
    if FORMATS[n.weights].stepped and not np.isfinite(y.value).all():
        raise Unsupported(f"weights that are not finite have no {n.weights}")
    return n.emit(matmul, x, y, weights=n.weights)


def _bfloat16(n: Node, x: Atom, y: Atom) -> Atom:
    """A product as float32, rounded; what is known of it stays short in memory."""
    is_matrix = isinstance(y, Const) and len(y.type.shape) == 2
    factor = Const(y.value.astype(np.float32)) if isinstance(y, Const) else cast(n, y, "float32")
    weights = "bfloat16" if is_matrix else PLAIN
    return cast(n, n.emit(matmul, cast(n, x, "float32"), factor, weights=weights), "bfloat16")
