"""Dims as nodes: each an int64[1] that is computed from the shapes of the parameters."""

from __future__ import annotations

from functools import partial, reduce
from itertools import groupby
from typing import Any

import numpy as np

from bucketize.ir import Const
from bucketize.onnx.export.scope import ExportScope
from bucketize.onnx.node import Unsupported
from bucketize.types import AnyDim, Dim, Expr, Shape, Symbol, Term, extremes

FUNCTIONS = {"min": "Min", "max": "Max", "%": "Mod"}  # Mod has the sign of the divisor, as ours


def extents(scope: ExportScope, shape: Shape) -> str:
    """The name of a vector of dims; known neighbours are one constant."""
    parts: list[str] = []
    for constant, dims in groupby(shape, lambda d: isinstance(d, int)):
        listed = tuple(dims)
        parts += [_numbers(scope, *listed)] if constant else [extent(scope, d) for d in listed]
    if len(parts) == 1:
        return parts[0]
    return _made(scope, "Concat", *parts, axis=0) if parts else _numbers(scope)


def extent(scope: ExportScope, dim: Dim) -> str:
    """The name of a dim as a vector of one element; what is there already is not made again."""
    if isinstance(dim, int):
        return _numbers(scope, dim)
    if isinstance(dim, AnyDim):
        raise Unsupported("it computes with an extent that nothing is known of")
    make = partial(_sum, scope, dim) if isinstance(dim, Expr) else partial(_read, scope, dim)
    return scope.once(dim, make)


def scalar_extent(scope: ExportScope, dim: Dim) -> str:
    """The name of a dim of rank 0."""
    if isinstance(dim, int):
        return scope.constant(Const(np.array(dim, np.int64)))
    return scope.once((dim, ()), lambda: scalar(scope, extent(scope, dim)))


def scalar(scope: ExportScope, vector: str) -> str:
    """The name of the only element of a vector."""
    return _made(scope, "Squeeze", vector, _numbers(scope, 0))


def extent_of(scope: ExportScope, name: str, axis: int) -> str:
    """The extent of an axis of a value, whatever is known of it."""
    return _made(scope, "Shape", name, start=axis, end=axis + 1)


def _read(scope: ExportScope, symbol: Symbol) -> str:
    param, axis = scope.frame.place(symbol)
    return extent_of(scope, scope.value(param), axis)


def _sum(scope: ExportScope, expr: Expr) -> str:
    products = [_product(scope, atoms, factor) for atoms, factor in expr.terms]
    return reduce(lambda a, b: _made(scope, "Add", a, b), products)


def _product(scope: ExportScope, atoms: tuple[Symbol | Term, ...], factor: int) -> str:
    names = [_atom(scope, a) for a in atoms]
    if factor != 1 or not names:
        names.append(_numbers(scope, factor))
    return reduce(lambda a, b: _made(scope, "Mul", a, b), names)


def _atom(scope: ExportScope, atom: Symbol | Term) -> str:
    if isinstance(atom, Symbol):
        return extent(scope, atom)
    return scope.once(atom, partial(_call, scope, atom))


def _call(scope: ExportScope, term: Term) -> str:
    a, b = (extent(scope, d) for d in term.args)
    if term.fn == "//":
        if extremes(term.args[0])[0] < 0:  # Div cuts towards zero
            a = _made(scope, "Sub", a, _made(scope, "Mod", a, b))
        return _made(scope, "Div", a, b)
    if term.fn == "broadcast":
        is_one = _made(scope, "Equal", a, _numbers(scope, 1))
        return _made(scope, "Where", is_one, b, a)
    return _made(scope, FUNCTIONS[term.fn], a, b)


def _numbers(scope: ExportScope, *numbers: Dim) -> str:
    return scope.constant(Const(np.array(numbers, np.int64)))


def _made(scope: ExportScope, op_type: str, *inputs: str, **attrs: Any) -> str:
    (name,) = scope.node(op_type, *inputs, **attrs)
    return name
