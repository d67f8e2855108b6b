"""The functions of `math.py` as numba functions of one element, for loop source.

For float32 they are the code of width 1, which LLVM's loop vectoriser widens; for float64 they are
the C library's. `maximum`, `minimum` and `where` take any dtype.
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from bucketize.kernel.emit.math import FUNCTIONS
from bucketize.kernel.emit.vector import Writer, constant

LIBRARY = ("exp", "log", "erf", "tanh")  # of these the C library has a float64 version


def _double(w: Writer, name: str, x: ir.Value) -> ir.Value:
    one = constant(x.type, 1.0, 1)
    if name == "sigmoid":
        return w.builder.fdiv(one, w.builder.fadd(one, _double(w, "exp", w.builder.fneg(x))))
    if name == "gelu":
        half, root = (w.builder.fmul(x, constant(x.type, c, 1)) for c in (0.5, math.sqrt(0.5)))
        return w.builder.fmul(half, w.builder.fadd(one, _double(w, "erf", root)))
    if name == "rsqrt":
        return w.builder.fdiv(one, w.intrinsic("sqrt", x))
    if name in LIBRARY:
        return w.builder.call(w.declare(name, x.type, [x.type]), [x])
    return FUNCTIONS[name](w, x)


def _unary(name: str) -> Any:
    @intrinsic
    def function(_typing: Any, x: Any) -> Any:
        if not isinstance(x, types.Float):
            return None

        def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            w = Writer(builder)
            return FUNCTIONS[name](w, args[0]) if x == types.float32 else _double(w, name, args[0])

        return x(x), codegen

    return function


def _choice(relation: str) -> Any:
    @intrinsic
    def function(typingctx: Any, x: Any, y: Any) -> Any:
        kind = typingctx.unify_types(x, y)

        def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            a, b = (context.cast(builder, v, t, kind) for v, t in zip(args, (x, y), strict=True))
            if isinstance(kind, types.Float):
                w = Writer(builder)
                return w.maximum(a, b) if relation == ">" else w.minimum(a, b)
            signed = getattr(kind, "signed", False)
            compare = builder.icmp_signed if signed else builder.icmp_unsigned
            return builder.select(compare(relation, a, b), a, b)

        return kind(x, y), codegen

    return function


@intrinsic
def where(typingctx: Any, condition: Any, x: Any, y: Any) -> Any:
    """`x if condition else y`, both computed: a select, never a branch."""
    kind = typingctx.unify_types(x, y)

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        on = context.cast(builder, args[0], condition, types.boolean)
        a, b = (context.cast(builder, v, t, kind) for v, t in zip(args[1:], (x, y), strict=True))
        return builder.select(on, a, b)

    return kind(condition, x, y), codegen


maximum, minimum = _choice(">"), _choice("<")
exp, log, erf, tanh = _unary("exp"), _unary("log"), _unary("erf"), _unary("tanh")
gelu = _unary("gelu")
sigmoid, rsqrt, sqrt = _unary("sigmoid"), _unary("rsqrt"), _unary("sqrt")
floor, ceil, round_even = _unary("floor"), _unary("ceil"), _unary("round")


@intrinsic
def power(_typing: Any, x: Any, _y: Any) -> Any:
    """An integer to the power of another, overflowing as products do; of a negative one, towards 0.

    That of numba may raise, and machine code that may raise asks for numba where it is loaded.
    """

    def codegen(_context: Any, b: Any, _signature: Any, args: Any) -> Any:
        base, exponent = args
        zero, one = (ir.Constant(base.type, n) for n in (0, 1))
        below = b.icmp_signed("<", exponent, zero) if x.signed else ir.Constant(ir.IntType(1), 0)
        units = b.or_(*(b.icmp_signed("==", base, ir.Constant(base.type, n)) for n in (1, -1)))
        first = b.select(b.and_(below, b.not_(units)), zero, one)  # other inverses are fractions
        count = b.select(below, b.neg(exponent), exponent)
        before, turn, done = b.block, *(b.append_basic_block(n) for n in ("square", "raised"))
        b.branch(turn)
        b.position_at_end(turn)
        result, square, left = (b.phi(base.type) for _ in range(3))
        odd = b.icmp_unsigned("!=", b.and_(left, one), zero)
        following = (
            b.select(odd, b.mul(result, square), result),
            b.mul(square, square),
            b.lshr(left, one),
        )
        for phi, start, value in zip(
            (result, square, left), (first, base, count), following, strict=True
        ):
            phi.add_incoming(start, before)
            phi.add_incoming(value, turn)
        b.cbranch(b.icmp_unsigned("==", following[2], zero), done, turn)
        b.position_at_end(done)
        return following[0]

    return x(x, x), codegen
