"""The functions of elementwise code, each defined once, at any width.

`exp(writer, x)` and its siblings write float32 code: polynomials good to 3e-7 of the greatest
value; NaN stays NaN, infinities give the limits. `scalar.py` has them as numba functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from llvmlite import ir

from bucketize.kernel.emit.vector import FLOAT, Writer, constant, vector_type, width_of
from bucketize.kernel.emit.writer import INT

Unary: TypeAlias = Callable[[Writer, ir.Value], ir.Value]

LOG2_E = 1.44269504088896341
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4  # n * LN2_HIGH is exact for |n| < 512
EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5)
# from Eigen and Cephes, highest power first
TANH_TOP = (
    *(-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08),
    *(1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03),
)
TANH_BOTTOM = (
    1.19825839466702e-06,
    1.18534705686654e-04,
    2.26843463243900e-03,
    4.89352518554385e-03,
)
ERF_END = 3.72
"""Where the error function comes within 2e-7 of 1."""
ERF = (
    *(-3.09321514151e-4, 8.37534471721e-4, -8.29157997878e-4, 1.48857384157e-3, -4.50955002303e-3),
    *(8.87309726958e-3, -1.45595821066e-2, 2.37216541436e-2, -3.68045203351e-2, 5.2785119856e-2),
    *(-7.09116848527e-2, 9.0617125499e-2, -1.1237034022e-1, 1.40185860092e-1, -1.89486840183e-1),
    3.80089195639e-1,
)
"""erf(x) / x over 2 * (x / ERF_END)**2 - 1, within 8e-9 of it: the least, by a linear program."""
LOG = (
    *(7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1),
    *(-1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
)


def _horner(w: Writer, x: ir.Value, factors: Sequence[float]) -> ir.Value:
    value: ir.Value = w.number(factors[0], width_of(x))
    for factor in factors[1:]:
        value = w.fma(value, x, w.number(factor, width_of(x)))
    return value


def _estrin(w: Writer, x: ir.Value, factors: Sequence[float]) -> ir.Value:
    """The polynomial by pairs of terms: of many terms, for a processor that waits for each."""
    terms: list[ir.Value] = [w.number(factor, width_of(x)) for factor in reversed(factors)]
    while len(terms) > 1:
        pairs = zip(terms[1::2], terms[::2], strict=False)
        terms = [*(w.fma(high, x, low) for high, low in pairs), *terms[len(terms) & ~1 :]]
        x = w.builder.fmul(x, x)
    return terms[0]


def _bits(w: Writer, x: ir.Value) -> ir.Value:
    return w.builder.bitcast(x, vector_type(INT, width_of(x)))


def _float(w: Writer, bits: ir.Value) -> ir.Value:
    return w.builder.bitcast(bits, vector_type(FLOAT, width_of(bits)))


def _clamped(w: Writer, x: ir.Value, low: float, high: float) -> ir.Value:
    """`x` kept in [low, high]; NaN stays."""
    width = width_of(x)
    return w.maximum(w.minimum(x, w.number(high, width)), w.number(low, width))


def exp(w: Writer, x: ir.Value) -> ir.Value:
    """e**x; below 2**-125 the result is 0, so that no denormal slows a softmax down."""
    b, n = w.builder, width_of(x)
    x = _clamped(w, x, -87.6, 89.0)
    # adding `magic` rounds x*log2(e) to an integer k and leaves k + 126 in the low bits, which
    # shifted are the exponent of 2**(k-1); the polynomial is that of 2 * e**r
    magic = w.number(12582912.0 + 126.0, n)
    shifted = w.fma(x, w.number(LOG2_E, n), magic)
    k = b.fsub(shifted, magic)
    r = w.fma(k, w.number(-LN2_HIGH, n), x)
    r = w.fma(k, w.number(-LN2_LOW, n), r)
    p = _horner(w, r, [2 * c for c in EXP])
    two = w.number(2.0, n)
    twice = w.fma(p, b.fmul(r, r), w.fma(r, two, two))
    scale = b.shl(_bits(w, shifted), constant(INT, 23, n))
    return b.fmul(twice, _float(w, scale))


def log(w: Writer, x: ir.Value) -> ir.Value:
    """The natural logarithm; -inf at 0, NaN below."""
    b, n = w.builder, width_of(x)
    tiny = b.fcmp_ordered("<", x, w.number(2.0**-126, n))
    scaled = b.select(tiny, b.fmul(x, w.number(2.0**25, n)), x)
    # the exponent of the number nearest sqrt(1/2)..sqrt(2), and the mantissa that is left
    above = b.sub(_bits(w, scaled), constant(INT, 0x3F3504F3, n))
    power = b.ashr(above, constant(INT, 23, n))
    m = _float(w, b.sub(_bits(w, scaled), b.shl(power, constant(INT, 23, n))))
    k = b.sitofp(power, x.type)
    k = b.fsub(k, b.select(tiny, w.number(25.0, n), w.number(0.0, n)))
    r = b.fsub(m, w.number(1.0, n))
    square = b.fmul(r, r)
    y = b.fmul(b.fmul(_horner(w, r, LOG), r), square)
    y = w.fma(k, w.number(LN2_LOW, n), y)
    y = w.fma(square, w.number(-0.5, n), y)
    y = w.fma(k, w.number(LN2_HIGH, n), b.fadd(r, y))
    y = b.select(b.fcmp_ordered("<", x, w.number(math.inf, n)), y, x)  # inf and NaN
    y = b.select(b.fcmp_ordered("<", x, w.number(0.0, n)), w.number(math.nan, n), y)
    return b.select(b.fcmp_ordered("==", x, w.number(0.0, n)), w.number(-math.inf, n), y)


def _rational(
    w: Writer, x: ir.Value, limit: float, above: Sequence[float], below: Sequence[float]
) -> ir.Value:
    """The odd function x * above(x*x) / below(x*x), the sign of x outside (-limit, limit).

    There the quotient would fall short of 1 by a little, which gelu multiplies by x.
    """
    b, n = w.builder, width_of(x)
    within = _clamped(w, x, -limit, limit)
    square = b.fmul(within, within)
    top = b.fmul(within, _horner(w, square, above))
    quotient = b.fdiv(top, _horner(w, square, below))
    far = b.fcmp_ordered(">=", w.intrinsic("fabs", x), w.number(limit, n))
    return b.select(far, w.intrinsic("copysign", w.number(1.0, n), x), quotient)


def _odd(w: Writer, x: ir.Value, factors: Sequence[float], end: float) -> ir.Value:
    """X times a polynomial of 2 * (x / end)**2 - 1, in [-1, 1].

    Beyond the end the polynomial stays as it is, and x makes more than 1 of it.
    """
    b, n = w.builder, width_of(x)
    square = w.minimum(b.fmul(x, x), w.number(end**2, n))
    place = w.fma(square, w.number(2 / end**2, n), w.number(-1.0, n))
    return _clamped(w, b.fmul(x, _estrin(w, place, factors)), -1.0, 1.0)


def erf(w: Writer, x: ir.Value) -> ir.Value:
    """The error function."""
    return _odd(w, x, ERF, ERF_END)


def gelu(w: Writer, x: ir.Value) -> ir.Value:
    """X / 2 * (1 + erf(x / sqrt(2))): five operations fewer than if each is written by itself."""
    n, root = width_of(x), math.sqrt(0.5)
    half = w.builder.fmul(x, w.number(0.5, n))
    return w.fma(half, _odd(w, x, [root * c for c in ERF], ERF_END / root), half)


def tanh(w: Writer, x: ir.Value) -> ir.Value:
    """The hyperbolic tangent."""
    return _rational(w, x, 7.90531110763549805, TANH_TOP, TANH_BOTTOM)


def sigmoid(w: Writer, x: ir.Value) -> ir.Value:
    """1 / (1 + e**-x)."""
    one = w.number(1.0, width_of(x))
    return w.builder.fdiv(one, w.builder.fadd(one, exp(w, w.builder.fneg(x))))


def rsqrt(w: Writer, x: ir.Value) -> ir.Value:
    """1 / sqrt(x)."""
    return w.builder.fdiv(w.number(1.0, width_of(x)), w.intrinsic("sqrt", x))


def _native(name: str) -> Unary:
    def write(w: Writer, x: ir.Value) -> ir.Value:
        return w.intrinsic(name, x)

    return write


FUNCTIONS: dict[str, Unary] = {
    "exp": exp,
    "log": log,
    "erf": erf,
    "gelu": gelu,
    "tanh": tanh,
    "sigmoid": sigmoid,
    "rsqrt": rsqrt,
    "sqrt": _native("sqrt"),
    "abs": _native("fabs"),
    "floor": _native("floor"),
    "ceil": _native("ceil"),
    "round": _native("roundeven"),
}
