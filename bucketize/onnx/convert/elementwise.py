"""Converters of what acts on each element by itself."""

from __future__ import annotations

import math
from functools import reduce

from bucketize.ir import Atom, Const
from bucketize.onnx.convert.random import dropped
from bucketize.onnx.node import (
    Node,
    Unsupported,
    cast,
    converts,
    converts_directly,
    holds,
    native_dtype,
    saturated,
)
from bucketize.op import Op, get
from bucketize.ops import shape as sh
from bucketize.ops.dyn.shape import dyn_full
from bucketize.ops.elementwise import activation, bits
from bucketize.ops.elementwise import arithmetic as e
from bucketize.types.number import FLOAT8, SCALE, DType, kind_of

ALIKE = """
Abs Acos Acosh Add Asin Asinh Atan Atanh Ceil Cos Cosh Equal Erf Exp Floor Greater IsNaN Less Log
Mul Neg Reciprocal Relu Round Sigmoid Sign Sin Sinh Softplus Sqrt Sub Tan Tanh Where
"""
"""Operators that ONNX calls as we do, but for their capitals."""
DIRECT = {op_type: get(op_type.lower()) for op_type in ALIKE.split()} | {
    "And": e.logical_and,
    "BitwiseAnd": bits.bitwise_and,
    "BitwiseNot": bits.bitwise_not,
    "BitwiseOr": bits.bitwise_or,
    "BitwiseXor": bits.bitwise_xor,
    "GreaterOrEqual": e.greater_equal,
    "LessOrEqual": e.less_equal,
    "Not": e.logical_not,
    "Or": e.logical_or,
    "Xor": e.logical_xor,
}
ALIGNED = {"Add", "And", "Equal", "Greater", "Less", "Mul", "Or", "Sub", "Xor"}
"""Operators that broadcast in another way before opset 7."""

ROUNDINGS = ("up", "down", "nearest")
"""Modes of rounding numbers to powers of two."""

for _op_type, _op in DIRECT.items():
    converts_directly(_op_type, _op, since=7 if _op_type in ALIGNED else 1)
converts_directly("HardSigmoid", activation.hard_sigmoid, alpha=0.2, beta=0.5)
converts_directly("HardSwish", activation.hard_swish)
converts_directly("LeakyRelu", activation.leaky_relu, alpha=0.01)


# --- arithmetic ----------------------------------------------------------------------------------


@converts("Div", since=7)
def _div(n: Node) -> Atom:
    return n.emit(e.div if _is_float(n[0]) else e.trunc_div, n[0], n[1])


@converts("Mod")
def _mod(n: Node) -> Atom:
    return n.emit(e.fmod if n.attr("fmod", 0) else e.mod, n[0], n[1])


@converts("Pow", since=7)
def _pow(n: Node) -> Atom:
    x, y = n[0], n[1]
    if isinstance(y, Const) and y.value.size == 1 and len(y.type.shape) <= len(x.type.shape):
        power = _short_power(n, x, float(y.value.reshape(-1)[0]))
        if power is not None:
            return power
    if _is_float(y) and not _is_float(x):
        wide = n.emit(e.pow_, cast(n, x, "float64"), cast(n, y, "float64"))
        return cast(n, wide, x.type.dtype.name)
    return n.emit(e.pow_, x, cast(n, y, x.type.dtype.name))


def _short_power(n: Node, x: Atom, exponent: float) -> Atom | None:
    """A power as products, a root or a reciprocal: what exporters of GELU and norms write."""
    if exponent in (2, 3, 4):
        square = n.emit(e.mul, x, x)
        factors: dict[float, Atom] = {3: x, 4: square}
        return n.emit(e.mul, square, factors[exponent]) if exponent in factors else square
    roots = {0.5: e.sqrt, -0.5: e.rsqrt, -1: e.reciprocal}
    return n.emit(roots[exponent], x) if exponent in roots and _is_float(x) else None


def _chain(op_type: str, op: Op) -> None:
    converts(op_type)(lambda n: reduce(lambda x, y: n.emit(op, x, y), n.operands))


_chain("Sum", e.add)
_chain("Min", e.minimum_)
_chain("Max", e.maximum_)


@converts("Mean")
def _mean(n: Node) -> Atom:
    total: Atom = reduce(lambda x, y: n.emit(e.add, x, y), n.operands)
    return n.emit(e.mul, total, n.like(total, 1 / len(n.inputs)))


@converts("Clip", since=11)
def _clip(n: Node) -> Atom:
    x, lo, hi = n[0], _bound(n, 1, "min"), _bound(n, 2, "max")
    if _is_float(x) and all(b is None or isinstance(b, Const) for b in (lo, hi)):
        bounds = {"lo": n.number(1, "min"), "hi": n.number(2, "max")}
        return n.emit(activation.clip, x, **{k: v for k, v in bounds.items() if v is not None})
    if lo is not None:
        x = n.emit(e.maximum_, x, lo)
    return x if hi is None else n.emit(e.minimum_, x, hi)


def _bound(n: Node, index: int, name: str) -> Atom | None:
    """A bound of Clip: one number, which may stand in a vector."""
    bound = n.optional(index)
    if bound is None or bound.type.shape == ():
        return bound
    if len(bound.type.shape) > 1 or (isinstance(d := bound.type.shape[0], int) and d != 1):
        raise Unsupported(f"{name} is one number, got {bound.type}")
    if isinstance(bound, Const):
        return Const(bound.value.reshape(()))
    return n.emit(sh.reshape, bound, newshape=())


@converts("BitShift")
def _bit_shift(n: Node) -> Atom:
    left = n.choice("direction", "LEFT", "RIGHT") == "LEFT"
    return n.emit(bits.left_shift if left else bits.right_shift, *n.operands)


@converts("IsInf")
def _is_inf(n: Node) -> Atom:
    negative, positive = n.attr("detect_negative", 1), n.attr("detect_positive", 1)
    if not negative and not positive:
        raise Unsupported("detect_negative and detect_positive are both 0")
    x = n.emit(e.abs_, n[0]) if negative and positive else n[0]
    return n.emit(e.equal, x, n.like(x, math.inf if positive else -math.inf))


# --- activations ---------------------------------------------------------------------------------


@converts("PRelu", since=7)
def _prelu(n: Node) -> Atom:
    return _below_zero(n, n.emit(e.mul, n[1], n[0]))


@converts("Elu")
def _elu(n: Node) -> Atom:
    return _below_zero(n, _exponential(n, n.attr("alpha", 1.0)))


@converts("Celu")
def _celu(n: Node) -> Atom:
    alpha = n.attr("alpha", 1.0)
    if alpha == 0:
        raise Unsupported("alpha is 0, by which it divides")
    return _below_zero(n, _exponential(n, alpha, 1 / alpha))


@converts("Selu", since=6)
def _selu(n: Node) -> Atom:
    alpha, gamma = n.attr("alpha", 1.67326319), n.attr("gamma", 1.05070102)
    return n.emit(e.mul, _below_zero(n, _exponential(n, alpha)), n.like(n[0], gamma))


@converts("ThresholdedRelu")
def _thresholded_relu(n: Node) -> Atom:
    above = n.emit(e.greater, n[0], n.like(n[0], n.attr("alpha", 1.0)))
    return n.emit(e.where, above, n[0], n.like(n[0], 0))


@converts("Shrink")
def _shrink(n: Node) -> Atom:
    """Closer to 0 by `bias`; 0 within `lambd` of it. Integers by fractions are cut at the end."""
    x, bias, limit = n[0], n.attr("bias", 0.0), n.attr("lambd", 0.5)
    if not holds(x.type.dtype, bias, -bias, limit, -limit):
        x = cast(n, x, "float64")
    low, high = (n.emit(e.add, x, n.like(x, b)) for b in (bias, -bias))
    above = n.emit(e.where, n.emit(e.greater, x, n.like(x, limit)), high, n.like(x, 0))
    y = n.emit(e.where, n.emit(e.less, x, n.like(x, -limit)), low, above)
    return cast(n, y, n[0].type.dtype.name)


@converts("Softsign")
def _softsign(n: Node) -> Atom:
    return n.emit(e.div, n[0], n.emit(e.add, n.emit(e.abs_, n[0]), n.like(n[0], 1)))


@converts("Gelu")
def _gelu(n: Node) -> Atom:
    exact = n.choice("approximate", "none", "tanh") == "none"
    return n.emit(activation.gelu if exact else activation.gelu_tanh, n[0])


@converts("Mish")
def _mish(n: Node) -> Atom:
    return n.emit(e.mul, n[0], n.emit(e.tanh, n.emit(activation.softplus, n[0])))


@converts("Swish")
def _swish(n: Node) -> Atom:
    alpha = n.attr("alpha", 1.0)
    if alpha == 1:
        return n.emit(activation.silu, n[0])
    scaled = n.emit(e.mul, n[0], n.like(n[0], alpha))
    return n.emit(e.mul, n[0], n.emit(activation.sigmoid, scaled))


def _exponential(n: Node, factor: float, rate: float = 1.0) -> Atom:
    """`factor * (exp(rate * x) - 1)` for the x below zero; 0 above, so that nothing overflows."""
    x: Atom = n.emit(e.minimum_, n[0], n.like(n[0], 0))
    if rate != 1:
        x = n.emit(e.mul, x, n.like(x, rate))
    less_one = n.emit(e.sub, n.emit(e.exp, x), n.like(x, 1))
    return n.emit(e.mul, less_one, n.like(x, factor))


def _below_zero(n: Node, y: Atom) -> Atom:
    """`y` where x is below zero, and x elsewhere."""
    return n.emit(e.where, n.emit(e.less, n[0], n.like(n[0], 0)), y, n[0])


# --- conversion ----------------------------------------------------------------------------------


@converts("Cast", since=6)
def _to(n: Node) -> Atom:
    return _cast(n, native_dtype(n.attr("to")))


@converts("CastLike")
def _like(n: Node) -> Atom:
    return _cast(n, n[1].type.dtype)


def _cast(n: Node, dtype: DType) -> Atom:
    """The first operand in a dtype; `saturate` and `round_mode` are about floats of 8 bits."""
    saturate, mode, x = n.attr("saturate", 1), n.choice("round_mode", *ROUNDINGS), n[0]
    if dtype == SCALE:
        raise Unsupported(f"to {dtype}, rounded {mode}")
    return saturated(n, x, dtype) if saturate and dtype in FLOAT8 else cast(n, x, dtype.name)


@converts("BitCast")
def _bit_cast(n: Node) -> Atom:
    return n.emit(bits.bitcast, n[0], dtype=native_dtype(n.attr("to")).name)


@converts("Identity")
def _identity(n: Node) -> Atom:
    return n[0]


@converts("Dropout", since=12)
def _dropout(n: Node) -> tuple[Atom, ...]:
    """Nothing in inference, where all is kept; in training elements are left out."""
    x, ratio, training = n[0], n.optional(1) or n.like(n[0], 0.5), n.optional(2)
    constants = [a for a in (ratio, training) if isinstance(a, Const)]
    if training is None or not all(a.value.any() for a in constants):
        n.attr("seed")
        return (x, *_kept(n, "bool"))
    y, kept = dropped(n, x, ratio)
    if training not in constants:
        y = n.emit(e.where, training, y, x)
        kept = n.emit(e.logical_or, kept, n.emit(e.logical_not, training))
    return (y, kept)[: n.outputs]


@converts("Dropout", since=7)
def _dropout_7(n: Node) -> tuple[Atom, ...]:
    n.attr("ratio")
    return (n[0], *_kept(n, n[0].type.dtype.name))


@converts("Dropout", since=10)
def _dropout_10(n: Node) -> tuple[Atom, ...]:
    n.attr("ratio")
    return (n[0], *_kept(n, "bool"))


def _kept(n: Node, dtype: str) -> tuple[Atom, ...]:
    """The mask of a dropout that drops nothing, if it is asked for."""
    if n.outputs == 1:
        return ()
    return (n.emit_dynamic(dyn_full, n.emit(sh.shape_of, n[0]), value=1, dtype=dtype),)


def _is_float(x: Atom) -> bool:
    return kind_of(x.type.dtype) == "f"
