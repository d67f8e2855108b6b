"""Operators that act on each element by itself, after numpy broadcasting.

`scalar` says the same as `compute`, as an expression that kernels are made from. Where a dim can
go through an operator, as in shape arithmetic, it has a value rule.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

import numpy as np

from bucketize.op import Array, Op, op, same_dtype
from bucketize.ops.rules import (
    bools,
    broadcast_padding,
    broadcast_rule,
    floats,
    integers,
    named_dtype,
    numbers,
    to_bool,
)
from bucketize.ops.values import (
    COMPARISONS,
    RatioRule,
    ValueRule,
    any_of,
    as_ratio,
    both,
    by_ratios,
    converted,
    either,
    is_unequal,
    magnitude,
    negated,
    per_element,
    quotient,
    remainder,
)
from bucketize.types import Dim, Ratio, maximum, minimum
from bucketize.types.number import DType

__all__ = [
    "abs_",
    "add",
    "cast",
    "ceil",
    "div",
    "equal",
    "erf",
    "exp",
    "floor",
    "fmod",
    "greater",
    "greater_equal",
    "isnan",
    "less",
    "less_equal",
    "log",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum_",
    "minimum_",
    "mod",
    "mul",
    "neg",
    "not_equal",
    "pow_",
    "reciprocal",
    "round_",
    "rsqrt",
    "sign",
    "sqrt",
    "sub",
    "tanh",
    "trunc_div",
    "where",
]

UNARY = "float32[N, C]; float32[]"
BINARY = "float32[N, C], float32[C]; float32[N, 1, C], float32[M, 1]; float32[], float32[N]"
INTEGERS = "int64[N, C], int64[C]; int64[N], int64[]; int32[N], int32[1]; "
INTEGERS += "int32[N] in [2**30, 2**31 - 1), int32[N] in [2**30, 2**31 - 1)"
DIVISION = "int64[N, C], int64[C] in [1, 5); int64[N], int64[] in [-5, 0)"
LEAST = "int32[N] in [-2**31, 5 - 2**31), int32[] in [-2**31, 1 - 2**31)"
BOOLS = "bool[N, C], bool[C]"


def elementwise(
    scalar: str,
    example: str,
    dtype: Callable[..., DType] = same_dtype,
    value: ValueRule | bool = False,  # True: by `compute`, which works on dims as well
    ratio: RatioRule | None = None,
) -> Callable[[Callable[..., Array]], Op]:
    """Declare an operator whose result at an index is `scalar` of its arguments there."""
    return op(
        shape=broadcast_rule,
        padding=broadcast_padding,
        example=example,
        dtype=dtype,
        scalar=scalar,
        value=value,
        ratio=ratio,
    )


def unary(
    scalar: str, example: str = UNARY, ratio: RatioRule | None = None
) -> Callable[[Callable[..., Array]], Op]:
    """Declare an elementwise operator on one tensor of floats."""
    return elementwise(scalar, example, floats, ratio=ratio)


def of_numpy(
    name: str, ufunc: np.ufunc, what: str, declare: Callable[[Callable[..., Array]], Op]
) -> Op:
    """An operator that numpy has as a function of one or two arrays; `what` is its docstring."""

    def of_one(x: Array) -> Array:
        return np.asarray(ufunc(x))

    def of_two(x: Array, y: Array) -> Array:
        return np.asarray(ufunc(x, y))

    compute = of_one if ufunc.nin == 1 else of_two
    compute.__name__, compute.__doc__ = name, what
    return declare(compute)


def function(
    name: str, ufunc: np.ufunc, what: str, example: str = UNARY, ratio: RatioRule | None = None
) -> Op:
    """An operator on floats that numpy and kernels have as a function of one number."""
    return of_numpy(name, ufunc, what, unary(f"{name}(x0)", example, ratio))


# --- arithmetic ----------------------------------------------------------------------------------


@elementwise("x0 + x1", f"{BINARY}; {INTEGERS}", value=True, ratio=by_ratios(operator.add))
def add(x: Array, y: Array) -> Array:
    """`x` plus `y`."""
    return x + y


@elementwise("x0 - x1", f"{BINARY}; {INTEGERS}", numbers, value=True, ratio=by_ratios(operator.sub))
def sub(x: Array, y: Array) -> Array:
    """`x` minus `y`."""
    return x - y


@elementwise("x0 * x1", f"{BINARY}; {INTEGERS}", value=True, ratio=by_ratios(operator.mul))
def mul(x: Array, y: Array) -> Array:
    """`x` times `y`."""
    return x * y


@elementwise("x0 / x1", BINARY, floats, ratio=by_ratios(operator.truediv))
def div(x: Array, y: Array) -> Array:
    """`x` divided by `y`, both floats."""
    return x / y


@elementwise(
    "where(((x0 < 0) ^ (x1 < 0)) & (x0 % x1 != 0), x0 // x1 + 1, x0 // x1)",
    f"{DIVISION}; {LEAST}",
    integers,
    value=per_element(quotient),
)
def trunc_div(x: Array, y: Array) -> Array:
    """The quotient of integers, cut towards zero (ONNX Div)."""
    floor, rest = np.divmod(x, y)  # the least integer has no absolute value
    return np.where(((x < 0) ^ (y < 0)) & (rest != 0), floor + x.dtype.type(1), floor)


@elementwise("x0 % x1", f"{DIVISION}; float32[N], float32[]", numbers, value=per_element(remainder))
def mod(x: Array, y: Array) -> Array:
    """The remainder with the sign of the divisor, as in Python."""
    return np.mod(x, y)


_CROSSED = "(x0 >= 0) & (x1 < 0)"
_REST = f"where({_CROSSED}, -x0, x0) % where(x0 < 0, -abs(x1), x1)"  # of either sign, or of neither


@elementwise(
    f"where({_CROSSED}, -({_REST}), {_REST})",
    f"{DIVISION}; {LEAST}; float32[N], float32[]",
    numbers,
)
def fmod(x: Array, y: Array) -> Array:
    """The remainder with the sign of the dividend, as in C."""
    return np.fmod(x, y)


@elementwise(
    "pow(x0, x1)",
    f"{BINARY}; int64[N], int64[] in [0, 4); int32[N] in [-9, 0), int32[N] in [-4, 4)",
    numbers,
)
def pow_(x: Array, y: Array) -> Array:
    """`x` to the power of `y`; of integers to a negative one, cut towards 0."""
    if x.dtype.kind != "i":
        return np.power(x, y)
    inverse = np.where(np.abs(x) == 1, np.power(x, y & 1), x.dtype.type(0))
    return np.where(y < 0, inverse, np.power(x, np.maximum(y, 0)))


@elementwise("min(x0, x1)", f"{BINARY}; {INTEGERS}", value=per_element(minimum))
def minimum_(x: Array, y: Array) -> Array:
    """The smaller of `x` and `y`."""
    return np.minimum(x, y)


@elementwise("max(x0, x1)", f"{BINARY}; {INTEGERS}", value=per_element(maximum))
def maximum_(x: Array, y: Array) -> Array:
    """The greater of `x` and `y`."""
    return np.maximum(x, y)


@elementwise("-x0", f"{UNARY}; int64[N]", numbers, value=True, ratio=by_ratios(operator.neg))
def neg(x: Array) -> Array:
    """`x` with the other sign."""
    return -x


@elementwise("abs(x0)", f"{UNARY}; int64[N]", value=per_element(magnitude))
def abs_(x: Array) -> Array:
    """`x` without its sign."""
    return np.abs(x)


@elementwise("where(x0 > 0, 1, where(x0 < 0, -1, x0))", f"{UNARY}; int64[N]", numbers)
def sign(x: Array) -> Array:
    """-1, 0 or 1, as `x` is negative, zero or positive."""
    return np.sign(x)


# --- functions of a float ------------------------------------------------------------------------


exp = function("exp", np.exp, "The exponential of `x`.")
log = function("log", np.log, "The natural logarithm of `x`.")
sqrt = function("sqrt", np.sqrt, "The square root of `x`.")


@unary("1 / sqrt(x0)")
def rsqrt(x: Array) -> Array:
    """One over the square root of `x`."""
    return 1 / np.sqrt(x)


@unary("1 / x0")
def reciprocal(x: Array) -> Array:
    """One over `x`."""
    return 1 / x


@unary("erf(x0)")
def erf(x: Array) -> Array:
    """The error function of `x`."""
    values = np.fromiter(map(math.erf, x.ravel().tolist()), x.dtype, x.size)
    return values.reshape(x.shape)


tanh = function("tanh", np.tanh, "The hyperbolic tangent of `x`.")
floor = function(
    "floor",
    np.floor,
    "The greatest whole number that is not above `x`.",
    ratio=by_ratios(Ratio.floor),
)
ceil = function(
    "ceil", np.ceil, "The least whole number that is not below `x`.", ratio=by_ratios(Ratio.ceil)
)
round_ = function("round", np.rint, "The nearest whole number, halves to even.")


@elementwise("x0 != x0", "float32[N, C]", to_bool)
def isnan(x: Array) -> Array:
    """Whether `x` is not a number."""
    return np.isnan(x)


# --- comparisons and logic -----------------------------------------------------------------------


def comparison(sign: str, ufunc: np.ufunc, what: str) -> Op:
    """An operator that compares by `sign`."""
    value = per_element(COMPARISONS[sign])
    declare = elementwise(f"x0 {sign} x1", f"{BINARY}; {INTEGERS}", to_bool, value)
    return of_numpy(ufunc.__name__, ufunc, what, declare)


equal = comparison("==", np.equal, "Whether `x` is `y`.")
not_equal = comparison("!=", np.not_equal, "Whether `x` is not `y`.")
less = comparison("<", np.less, "Whether `x` is below `y`.")
less_equal = comparison("<=", np.less_equal, "Whether `x` is not above `y`.")
greater = comparison(">", np.greater, "Whether `x` is above `y`.")
greater_equal = comparison(">=", np.greater_equal, "Whether `x` is not below `y`.")


def logical(
    scalar: str, ufunc: np.ufunc, what: str, value: Callable[..., Dim], example: str = BOOLS
) -> Op:
    """An operator on truth values."""
    declare = elementwise(scalar, example, bools, per_element(value))
    return of_numpy(ufunc.__name__, ufunc, what, declare)


logical_and = logical("x0 & x1", np.logical_and, "Whether both are true.", both)
logical_or = logical("x0 | x1", np.logical_or, "Whether one of them is true.", any_of)
logical_xor = logical("x0 ^ x1", np.logical_xor, "Whether just one of them is true.", is_unequal)
logical_not = logical("~x0", np.logical_not, "Whether `x` is false.", negated, "bool[N, C]")


# --- choice and conversion -----------------------------------------------------------------------


def _where_dtype(c: DType, x: DType, y: DType) -> DType:
    bools(c)
    return same_dtype(x, y)


@elementwise(
    "where(x0, x1, x2)",
    "bool[N, C], float32[C], float32[N, 1]; bool[N], int64[N], int64[]",
    _where_dtype,
    per_element(either),
)
def where(c: Array, x: Array, y: Array) -> Array:
    """`x` where `c` holds and `y` elsewhere."""
    return np.where(c, x, y)


@elementwise(
    "cast(x0, dtype)",
    'float32[N, C] {dtype="int64"}; int64[N] {dtype="int32"}; int64[N] {dtype="float32"}; '
    'bool[N] {dtype="int64"}; float32[] {dtype="bool"}; int64[N] in [-2, 3) {dtype="bool"}; '
    'int64[N] in [100, 400) {dtype="int8"}',
    named_dtype,
    converted,
    as_ratio,
)
def cast(x: Array, *, dtype: str) -> Array:
    """`x` as another dtype; floats are cut towards zero."""
    return x.astype(dtype)
