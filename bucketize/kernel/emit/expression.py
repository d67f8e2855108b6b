"""The `scalar` expressions of elementwise ops, compiled to vector code and to loop source.

An expression is Python over x0, x1, ... and the names of the op's attributes: arithmetic,
comparisons, `& | ^ ~` on booleans, and the functions below.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from llvmlite import ir

from bucketize.errors import KernelError
from bucketize.kernel.emit.math import FUNCTIONS
from bucketize.kernel.emit.vector import FLOAT, Writer, constant
from bucketize.kernel.emit.writer import BIT
from bucketize.types.number import HALF, HALVES, kind_of

BOOL, INT = np.dtype(bool), np.dtype(np.int32)
DTYPES = frozenset((*map(np.dtype, "?bhilqBHILQfd"), *HALVES))
"""What loop source is of: what numba computes with, and halves."""

IMPORTS = f"""\
import math
from numba import boolean, float32, float64, int8, int16, int32, int64
from numba import uint8, uint16, uint32, uint64
from bucketize.kernel.emit.half import {", ".join(d.name for d in HALVES)}, rounded, rounded_double
from bucketize.kernel.emit.scalar import (
    ceil, erf, exp, floor, gelu, log, maximum, minimum, power, round_even, rsqrt, sigmoid, sqrt,
    tanh, where,
)
"""
"""What the text of `loop_text` needs at the top of its file."""

TRIGONOMETRY = (
    *("sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "cosh", "asinh", "acosh", "atanh"),
)
LOOP_NAMES = {
    "min": "minimum",
    "max": "maximum",
    "round": "round_even",
    **{name: f"math.{name}" for name in (*TRIGONOMETRY, "log1p", "expm1", "isnan", "isinf")},
}
CALLS = {
    **dict.fromkeys(("round", "isnan", "isinf"), "simple"),
    **dict.fromkeys(("min", "max"), "choose"),
    **dict.fromkeys(("sqrt", "rsqrt"), "root"),
    **dict.fromkeys(("exp", "erf", "gelu", "tanh", "sigmoid"), "exp"),
    "log": "log",
    "pow": "library",
}
"""What functions take; the others are the C library's, or simple."""
BINARY: dict[type[ast.operator], str] = {
    ast.Add: "fadd",
    ast.Sub: "fsub",
    ast.Mult: "fmul",
    ast.Div: "fdiv",
}
BITWISE: dict[type[ast.operator], str] = {ast.BitAnd: "and_", ast.BitOr: "or_", ast.BitXor: "xor"}
RELATION: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}
CHOICES = ("min", "max", "where")
Typed: TypeAlias = tuple[str, "np.dtype[Any] | None"]  # text, and its dtype; a literal has none


@cache
def parse(scalar: str) -> ast.expr:
    """The syntax tree of an expression."""
    return ast.parse(scalar, mode="eval").body


@cache
def operations(scalar: str) -> Counter[str]:
    """How many of its operations are of each kind that loop source tells apart."""
    counts: Counter[str] = Counter()
    for node in ast.walk(parse(scalar)):
        match node:
            case ast.BinOp(op=ast.Div()):
                counts["divide"] += 1
            case ast.Call(func=ast.Name(id=name)):
                counts[CALLS.get(name, "library" if name in LOOP_NAMES else "simple")] += 1
            case ast.BinOp() | ast.Compare() | ast.UnaryOp():
                counts["simple"] += 1
    return counts


@cache
def called(scalar: str) -> frozenset[str]:
    """The functions that an expression calls."""
    calls = (n for n in ast.walk(parse(scalar)) if isinstance(n, ast.Call))
    return frozenset(ast.unparse(n.func) for n in calls)


@cache
def has_vector_form(scalar: str) -> bool:
    """Whether `write` can compile the expression."""
    operators = (n.op for n in ast.walk(parse(scalar)) if isinstance(n, ast.BinOp))
    is_written = all(type(o) in BINARY or type(o) in BITWISE for o in operators)
    return is_written and called(scalar) <= FUNCTIONS.keys() | set(CHOICES)


@cache
def compares(scalar: str) -> bool:
    """Whether the expression compares numbers."""
    return any(isinstance(n, ast.Compare) for n in ast.walk(parse(scalar)))


def is_long(scalar: str) -> bool:
    """Whether the vector form is long, so that its code should not be repeated."""
    return not called(scalar) <= {*CHOICES, "abs", "floor", "ceil", "round", "fma"}


def _unknown(node: ast.AST) -> KernelError:
    return KernelError(f"no rule for {ast.unparse(node)!r} in an elementwise expression")


class _Vector:
    """One walk over an expression, writing vector code of the width of `values`."""

    def __init__(self, writer: Writer, values: Mapping[str, ir.Value], width: int) -> None:
        self.w, self.values, self.width = writer, values, width

    def visit(self, node: ast.expr) -> ir.Value:  # noqa: PLR0911
        match node:
            case ast.Name(id=name) if name in self.values:
                return self.values[name]
            case ast.Constant(value=bool(value)):
                return constant(BIT, int(value), self.width)
            case ast.Constant(value=int(value) | float(value)):
                return constant(FLOAT, float(value), self.width)
            case ast.UnaryOp(op=op, operand=operand):
                opposite = "fneg" if isinstance(op, ast.USub) else "not_"
                return getattr(self.w.builder, opposite)(self.visit(operand))
            case ast.BinOp(left=left, op=op, right=right):
                name = BINARY.get(type(op)) or BITWISE[type(op)]
                return getattr(self.w.builder, name)(self.visit(left), self.visit(right))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self.compare(RELATION[type(op)], self.visit(left), self.visit(right))
            case ast.Call(func=ast.Name(id=name), args=args):
                return self.call(name, [self.visit(a) for a in args])
        raise _unknown(node)

    def compare(self, relation: str, x: ir.Value, y: ir.Value) -> ir.Value:
        kind = "fcmp_unordered" if relation == "!=" else "fcmp_ordered"
        return getattr(self.w.builder, kind)(relation, x, y)

    def call(self, name: str, args: list[ir.Value]) -> ir.Value:
        if name == "where":
            return self.w.builder.select(*args)
        if name == "fma":  # of what is computed inside an op
            return self.w.fma(*args)
        if name in CHOICES:
            return (self.w.minimum if name == "min" else self.w.maximum)(*args)
        return FUNCTIONS[name](self.w, *args)


def write(
    scalar: str, writer: Writer, operands: Sequence[ir.Value], attrs: Mapping[str, Any], width: int
) -> ir.Value:
    """The vector code of an expression over float32 operands (or bits) of `width` elements."""
    values = {f"x{i}": v for i, v in enumerate(operands)}
    for name, value in attrs.items():
        if isinstance(value, int | float):
            values[name] = constant(FLOAT, float(value), width)
    return _Vector(writer, values, width).visit(parse(scalar))


def stored_text(dtype: np.dtype[Any]) -> str:
    """The numba name of a dtype in memory."""
    return "boolean" if dtype == BOOL else dtype.name


def dtype_text(dtype: np.dtype[Any]) -> str:
    """The numba name of what a dtype is computed in."""
    return "float32" if dtype in HALVES else stored_text(dtype)


class _Loop:
    """One walk over an expression, making Python text that numba types as numpy would."""

    def __init__(self, operands: Mapping[str, Typed], out: np.dtype[Any]) -> None:
        self.operands, self.out = operands, out

    def visit(self, node: ast.expr) -> Typed:  # noqa: PLR0911
        match node:
            case ast.Name(id=name) if name in self.operands:
                return self.operands[name]
            case ast.Constant(value=value):
                return _literal(value)
            case ast.UnaryOp(op=op, operand=operand):
                return self.unary(op, self.visit(operand))
            case ast.BinOp(left=left, op=op, right=right):
                (x, y), dtype = _unify(self.visit(left), self.visit(right))
                return _cast(_binary(x, op, y, dtype), dtype), dtype
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                (x, y), _ = _unify(self.visit(left), self.visit(right))
                return f"({x} {RELATION[type(op)]} {y})", BOOL
            case ast.Call(func=ast.Name(id="cast"), args=[operand, _]):
                return convert(self.visit(operand), self.out), self.out
            case ast.Call(func=ast.Name(id=name), args=args):
                return self.call(name, [self.visit(a) for a in args])
        raise _unknown(node)

    def unary(self, op: ast.unaryop, x: Typed) -> Typed:
        text, dtype = x
        if isinstance(op, ast.USub):
            return _cast(f"(-{text})", dtype), dtype
        return (f"(not {text})" if dtype == BOOL else f"(~{text})"), dtype

    def call(self, name: str, args: list[Typed]) -> Typed:
        if name == "where":
            texts, dtype = _unify(*args[1:])
            return f"where({args[0][0]}, {', '.join(texts)})", dtype
        texts, dtype = _unify(*args)
        if name == "pow":
            whole = dtype is not None and dtype.kind in "iu"
            text = f"power({', '.join(texts)})" if whole else f"({' ** '.join(texts)})"
            return _cast(text, dtype), dtype
        text = f"{LOOP_NAMES.get(name, name)}({', '.join(texts)})"
        return (text, BOOL) if name in ("isnan", "isinf") else (_cast(text, dtype), dtype)


def _literal(value: Any) -> Typed:
    if isinstance(value, bool):
        return str(value), BOOL
    if isinstance(value, float) and not np.isfinite(value):
        return f"({str(value).replace('inf', 'math.inf').replace('nan', 'math.nan')})", None
    return repr(value), None


def _binary(x: str, op: ast.operator, y: str, dtype: np.dtype[Any] | None) -> str:
    text = f"({x} {ast.unparse(ast.BinOp(ast.Name('a'), op, ast.Name('b'))).split()[1]} {y})"
    if isinstance(op, ast.FloorDiv) and dtype == np.int64:  # numba's is 0 of the least number
        return f"where({y} == -1, -{x}, {text})"
    return text


def _unify(*terms: Typed) -> tuple[list[str], np.dtype[Any] | None]:
    """The texts, literals cast to the dtype of the others, and that dtype."""
    dtype = next((d for _, d in terms if d is not None), None)
    texts = [t if d is not None or dtype is None else f"{dtype_text(dtype)}({t})" for t, d in terms]
    return texts, dtype


def _cast(text: str, dtype: np.dtype[Any] | None) -> str:
    """Numba computes small integers as int64: cut them back."""
    if dtype is None or dtype.kind not in "iu" or dtype == np.int64:
        return text
    return f"{dtype_text(dtype)}({text})"


def loop_text(
    scalar: str,
    operands: Sequence[str],
    dtypes: Sequence[np.dtype[Any]],
    out: np.dtype[Any],
    attrs: Mapping[str, Any],
) -> str:
    """The expression over these operand texts, as Python whose value has the dtype `out`.

    That of a half is a float32 which is yet to be rounded.
    """
    names: dict[str, Typed] = {
        f"x{i}": (t, d) for i, (t, d) in enumerate(zip(operands, dtypes, strict=True))
    }
    for name, value in attrs.items():
        if isinstance(value, int | float):
            names[name] = _literal(value)
    return convert(_Loop(names, out).visit(parse(scalar)), out)


def convert(value: Typed, dtype: np.dtype[Any]) -> str:
    """The value as another dtype; floats become small integers by way of int32, as in numpy.

    Vector code for them at once would saturate, where that of the last few elements wraps.
    """
    text, now = value
    if now == dtype:
        return text
    if now == np.float64 and dtype == HALF:  # by way of float32 it would be rounded twice
        return f"rounded_double({text})"
    small = dtype.kind in "iu" and dtype.itemsize < INT.itemsize
    if small and now is not None and kind_of(now) == "f":
        text = f"int32({text})"
    return f"({text} != 0)" if dtype == BOOL else f"{dtype_text(dtype)}({text})"
