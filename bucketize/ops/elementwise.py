"""Operators that act on each element by itself, after numpy broadcasting.

`scalar` says the same as `compute`, as an expression that kernels are made from. Where a dim can
go through an operator, as in shape arithmetic, it has a value rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from bucketize.errors import TypeRelError
from bucketize.op import Array, Op, by_dims, op, same_dtype
from bucketize.ops.rules import at_least, broadcast_padding, broadcast_rule, same
from bucketize.types import ANY, Dim, Shape, TensorType, maximum, minimum

UNARY = "float32[N, C]; float32[]"
BINARY = "float32[N, C], float32[C]; float32[N, 1, C], float32[M, 1]; float32[], float32[N]"
INTEGERS = "int64[N, C], int64[C]; int64[N], int64[]; int32[N], int32[1]"
BOOLS = "bool[N, C], bool[C]"

DType = np.dtype[Any]
ValueRule = Callable[..., Shape | None]


def _only(kinds: str, what: str) -> Callable[..., DType]:
    def dtype(*dtypes: DType, **_: Any) -> DType:
        if dtypes[0].kind not in kinds:
            raise TypeRelError(f"expected {what}, got {dtypes[0]}")
        return same_dtype(*dtypes)

    return dtype


floats = _only("f", "floats")
integers = _only("iu", "integers")
bools = _only("b", "bools")


def _to_bool(*dtypes: DType, **_: Any) -> DType:
    same_dtype(*dtypes)
    return np.dtype(bool)


def per_element(rule: Callable[..., Dim]) -> ValueRule:
    """The value rule that applies `rule` to each dim, or to each tuple of dims."""
    return by_dims(np.frompyfunc(rule, rule.__code__.co_argcount, 1))


def elementwise(
    scalar: str,
    example: str,
    dtype: Callable[..., DType] = same_dtype,
    value: ValueRule | bool = False,
    name: str | None = None,
) -> Callable[[Callable[..., Array]], Op]:
    """Declare an operator whose result at an index is `scalar` of its arguments there."""
    return op(
        shape=broadcast_rule,
        padding=broadcast_padding,
        example=example,
        dtype=dtype,
        scalar=scalar,
        value=value,
        name=name,
    )


def unary(scalar: str) -> Callable[[Callable[..., Array]], Op]:
    """Declare an elementwise operator on one tensor of floats."""
    return elementwise(scalar, UNARY, floats)


# --- arithmetic ----------------------------------------------------------------------------------


@elementwise("x0 + x1", f"{BINARY}; {INTEGERS}", value=True)
def add(x: Array, y: Array) -> Array:
    """`x` plus `y`."""
    return x + y


@elementwise("x0 - x1", f"{BINARY}; {INTEGERS}", value=True)
def sub(x: Array, y: Array) -> Array:
    """`x` minus `y`."""
    return x - y


@elementwise("x0 * x1", f"{BINARY}; {INTEGERS}", value=True)
def mul(x: Array, y: Array) -> Array:
    """`x` times `y`."""
    return x * y


@elementwise("x0 / x1", BINARY, floats)
def div(x: Array, y: Array) -> Array:
    """`x` divided by `y`, both floats."""
    return x / y


def _divide(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int) and b:
        return abs(a) // abs(b) * (-1 if (a < 0) != (b < 0) else 1)
    return a // b if at_least(a, 0) and at_least(b, 1) else ANY


@elementwise(
    "where((x0 < 0) ^ (x1 < 0), -(abs(x0) // abs(x1)), abs(x0) // abs(x1))",
    "int64[N, C], int64[C] in [1, 5); int64[N], int64[] in [-5, 0)",
    integers,
    value=per_element(_divide),
)
def trunc_div(x: Array, y: Array) -> Array:
    """The quotient of integers, cut towards zero (ONNX Div)."""
    quotient = np.abs(x) // np.abs(y)
    return np.where((x < 0) ^ (y < 0), -quotient, quotient)


def _modulo(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int) and b:
        return a % b
    return a % b if at_least(a, 0) and at_least(b, 1) else ANY


@elementwise(
    "x0 % x1",
    "int64[N, C], int64[C] in [1, 5); int64[N], int64[] in [-5, 0); float32[N], float32[]",
    value=per_element(_modulo),
)
def mod(x: Array, y: Array) -> Array:
    """The remainder with the sign of the divisor, as in Python."""
    return np.mod(x, y)


@elementwise(
    "where(x0 < 0, -(abs(x0) % abs(x1)), abs(x0) % abs(x1))",
    "int64[N, C], int64[C] in [1, 5); int64[N], int64[] in [-5, 0); float32[N], float32[]",
)
def fmod(x: Array, y: Array) -> Array:
    """The remainder with the sign of the dividend, as in C."""
    return np.fmod(x, y)


@elementwise("pow(x0, x1)", f"{BINARY}; int64[N], int64[] in [0, 4)")
def pow_(x: Array, y: Array) -> Array:
    """`x` to the power of `y`."""
    return np.power(x, y)


@elementwise("min(x0, x1)", f"{BINARY}; {INTEGERS}", value=per_element(minimum))
def minimum_(x: Array, y: Array) -> Array:
    """The smaller of `x` and `y`."""
    return np.minimum(x, y)


@elementwise("max(x0, x1)", f"{BINARY}; {INTEGERS}", value=per_element(maximum))
def maximum_(x: Array, y: Array) -> Array:
    """The greater of `x` and `y`."""
    return np.maximum(x, y)


@elementwise("-x0", f"{UNARY}; int64[N]", value=True)
def neg(x: Array) -> Array:
    """`x` with the other sign."""
    return -x


def _magnitude(a: Dim) -> Dim:
    if isinstance(a, int):
        return abs(a)
    return a if at_least(a, 0) else ANY


@elementwise("abs(x0)", f"{UNARY}; int64[N]", value=per_element(_magnitude))
def abs_(x: Array) -> Array:
    """`x` without its sign."""
    return np.abs(x)


@elementwise("where(x0 > 0, 1, where(x0 < 0, -1, x0))", f"{UNARY}; int64[N]")
def sign(x: Array) -> Array:
    """-1, 0 or 1, as `x` is negative, zero or positive."""
    return np.sign(x)


# --- functions of a float ------------------------------------------------------------------------


@unary("exp(x0)")
def exp(x: Array) -> Array:
    """The exponential of `x`."""
    return np.exp(x)


@unary("log(x0)")
def log(x: Array) -> Array:
    """The natural logarithm of `x`."""
    return np.log(x)


@unary("sqrt(x0)")
def sqrt(x: Array) -> Array:
    """The square root of `x`."""
    return np.sqrt(x)


@unary("1 / sqrt(x0)")
def rsqrt(x: Array) -> Array:
    """One over the square root of `x`."""
    return 1 / np.sqrt(x)


@unary("1 / x0")
def reciprocal(x: Array) -> Array:
    """One over `x`."""
    return 1 / x


def _erf(x: Array) -> Array:
    values = np.fromiter(map(math.erf, x.ravel().tolist()), np.float64, x.size)
    return values.reshape(x.shape).astype(x.dtype)


@unary("erf(x0)")
def erf(x: Array) -> Array:
    """The error function of `x`."""
    return _erf(x)


@unary("tanh(x0)")
def tanh(x: Array) -> Array:
    """The hyperbolic tangent of `x`."""
    return np.tanh(x)


@unary("sin(x0)")
def sin(x: Array) -> Array:
    """The sine of `x`."""
    return np.sin(x)


@unary("cos(x0)")
def cos(x: Array) -> Array:
    """The cosine of `x`."""
    return np.cos(x)


@unary("floor(x0)")
def floor(x: Array) -> Array:
    """The greatest whole number that is not above `x`."""
    return np.floor(x)


@unary("ceil(x0)")
def ceil(x: Array) -> Array:
    """The least whole number that is not below `x`."""
    return np.ceil(x)


@unary("round(x0)")
def round_(x: Array) -> Array:
    """The nearest whole number, halves to even."""
    return np.rint(x)


@elementwise("x0 != x0", "float32[N, C]", _to_bool)
def isnan(x: Array) -> Array:
    """Whether `x` is not a number."""
    return np.isnan(x)


# --- activations ---------------------------------------------------------------------------------


@elementwise("max(x0, 0)", f"{UNARY}; int64[N]")
def relu(x: Array) -> Array:
    """The positive part of `x`."""
    return np.maximum(x, 0)


@unary("where(x0 < 0, alpha * x0, x0)")
def leaky_relu(x: Array, *, alpha: float = 0.01) -> Array:
    """`x`, less steep below zero."""
    return np.where(x < 0, alpha * x, x)


@unary("min(max(x0, lo), hi)")
def clip(x: Array, *, lo: float = -math.inf, hi: float = math.inf) -> Array:
    """`x` kept within `lo` and `hi`; `hi` wins. Integers are clipped by `maximum` and `minimum`."""
    return np.minimum(np.maximum(x, lo), hi)


@unary("1 / (1 + exp(-x0))")
def sigmoid(x: Array) -> Array:
    """The logistic function of `x`."""
    return 1 / (1 + np.exp(-x))


@unary("x0 / (1 + exp(-x0))")
def silu(x: Array) -> Array:
    """`x` times its logistic function."""
    return x / (1 + np.exp(-x))


@unary("max(0, min(1, alpha * x0 + beta))")
def hard_sigmoid(x: Array, *, alpha: float = 0.2, beta: float = 0.5) -> Array:
    """The logistic function as three straight lines."""
    return np.maximum(0, np.minimum(1, alpha * x + beta))


@unary("x0 * max(0, min(1, x0 / 6 + 0.5))")
def hard_swish(x: Array) -> Array:
    """`x` times its logistic function, as three straight lines."""
    return x * np.maximum(0, np.minimum(1, x / 6 + 0.5))


@unary("max(x0, 0) + log(1 + exp(-abs(x0)))")
def softplus(x: Array) -> Array:
    """The logarithm of `1 + exp(x)`."""
    return np.logaddexp(x, x.dtype.type(0))


@unary("0.5 * x0 * (1 + erf(x0 * 0.7071067811865476))")
def gelu(x: Array) -> Array:
    """`x` times the normal distribution's probability below it."""
    return 0.5 * x * (1 + _erf(x * math.sqrt(0.5)))


@unary("0.5 * x0 * (1 + tanh(0.7978845608028654 * (x0 + 0.044715 * x0 * x0 * x0)))")
def gelu_tanh(x: Array) -> Array:
    """`gelu` as approximated by a hyperbolic tangent."""
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


# --- comparisons and logic -----------------------------------------------------------------------


def _equal(a: Dim, b: Dim) -> Dim:
    if same(a, b):
        return 1
    return 0 if at_least(a, b + 1) or at_least(b, a + 1) else ANY


def _not_equal(a: Dim, b: Dim) -> Dim:
    return 1 - _equal(a, b)


def _less(a: Dim, b: Dim) -> Dim:
    if at_least(b, a + 1):
        return 1
    return 0 if at_least(a, b) else ANY


def _less_equal(a: Dim, b: Dim) -> Dim:
    return _less(a, b + 1)


def _greater(a: Dim, b: Dim) -> Dim:
    return _less(b, a)


def _greater_equal(a: Dim, b: Dim) -> Dim:
    return _less(b, a + 1)


def comparison(
    scalar: str, value: Callable[[Dim, Dim], Dim]
) -> Callable[[Callable[..., Array]], Op]:
    """Declare an elementwise operator whose result is a truth value."""
    return elementwise(scalar, f"{BINARY}; {INTEGERS}", _to_bool, per_element(value))


@comparison("x0 == x1", _equal)
def equal(x: Array, y: Array) -> Array:
    """Whether `x` is `y`."""
    return np.equal(x, y)


@comparison("x0 != x1", _not_equal)
def not_equal(x: Array, y: Array) -> Array:
    """Whether `x` is not `y`."""
    return np.not_equal(x, y)


@comparison("x0 < x1", _less)
def less(x: Array, y: Array) -> Array:
    """Whether `x` is below `y`."""
    return np.less(x, y)


@comparison("x0 <= x1", _less_equal)
def less_equal(x: Array, y: Array) -> Array:
    """Whether `x` is not above `y`."""
    return np.less_equal(x, y)


@comparison("x0 > x1", _greater)
def greater(x: Array, y: Array) -> Array:
    """Whether `x` is above `y`."""
    return np.greater(x, y)


@comparison("x0 >= x1", _greater_equal)
def greater_equal(x: Array, y: Array) -> Array:
    """Whether `x` is not below `y`."""
    return np.greater_equal(x, y)


@elementwise("x0 & x1", BOOLS, bools)
def logical_and(x: Array, y: Array) -> Array:
    """Whether both are true."""
    return np.logical_and(x, y)


@elementwise("x0 | x1", BOOLS, bools)
def logical_or(x: Array, y: Array) -> Array:
    """Whether one of them is true."""
    return np.logical_or(x, y)


@elementwise("x0 ^ x1", BOOLS, bools)
def logical_xor(x: Array, y: Array) -> Array:
    """Whether just one of them is true."""
    return np.logical_xor(x, y)


@elementwise("~x0", "bool[N, C]", bools)
def logical_not(x: Array) -> Array:
    """Whether `x` is false."""
    return np.logical_not(x)


# --- choice and conversion -----------------------------------------------------------------------


def _where_dtype(c: DType, x: DType, y: DType) -> DType:
    bools(c)
    return same_dtype(x, y)


def _either(c: Dim, a: Dim, b: Dim) -> Dim:
    if isinstance(c, int):
        return a if c else b
    return a if same(a, b) else ANY


@elementwise(
    "where(x0, x1, x2)",
    "bool[N, C], float32[C], float32[N, 1]; bool[N], int64[N], int64[]",
    _where_dtype,
    per_element(_either),
)
def where(c: Array, x: Array, y: Array) -> Array:
    """`x` where `c` holds and `y` elsewhere."""
    return np.where(c, x, y)


def _cast_value(x: TensorType, **_: Any) -> Shape | None:
    return x.value


@elementwise(
    "cast(x0, dtype)",
    'float32[N, C] {dtype="int64"}; int64[N] {dtype="int32"}; int64[N] {dtype="float32"}; '
    'bool[N] {dtype="int64"}; float32[] {dtype="bool"}',
    lambda _, dtype: np.dtype(dtype),
    _cast_value,
)
def cast(x: Array, *, dtype: str) -> Array:
    """`x` as another dtype; floats are cut towards zero."""
    return x.astype(dtype)
