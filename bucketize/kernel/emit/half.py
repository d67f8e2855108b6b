"""Halves in loop source: read from memory as float32, rounded to nearest even where stored.

They are float16 and bfloat16, which is the upper half of a float32.

The conversions are integer arithmetic that LLVM's loop vectoriser widens. Its own `fpext` and
`fptrunc` would call library functions, which nothing links, where the machine lacks F16C.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeAlias

from llvmlite import ir
from numba import types
from numba.core.datamodel.models import PointerModel
from numba.extending import intrinsic, lower_builtin, register_model

from bucketize.kernel.emit.vector import FLOAT
from bucketize.kernel.emit.writer import INT, WORD

Convert: TypeAlias = Callable[[ir.IRBuilder, ir.Value], ir.Value]

HALF, DOUBLE = ir.IntType(16), ir.DoubleType()
CUT = 23 - 10  # bits of a float32's fraction that a float16 has no room for
REBIAS = (127 - 15) << 23  # between the exponents of both, in place in a float32
ENDLESS = 0x7F800000  # an infinity of float32
SIGN = 1 << 31
LEAST_NORMAL = REBIAS + (1 << 23)  # of float16, as the bits of a float32
TOO_GREAT = REBIAS + (31 << 23)  # 2**16: at least this rounds to an infinity
UNIT = REBIAS + ((CUT + 1) << 23)  # 0.5: a float32 of its size ends where subnormal halves do


def _bits(value: int) -> ir.Constant:
    return ir.Constant(INT, value)


def _float(b: ir.IRBuilder, bits: ir.Value) -> ir.Value:
    return b.bitcast(bits, FLOAT)


def widened(b: ir.IRBuilder, half: ir.Value) -> ir.Value:
    """The float32 of a float16, given as 16 bits."""
    whole = b.zext(half, INT)
    sign = b.shl(b.and_(whole, _bits(1 << 15)), _bits(16))
    size = b.shl(b.and_(whole, _bits(0x7FFF)), _bits(CUT))
    normal = b.add(size, _bits(REBIAS))
    endless = b.add(normal, _bits(REBIAS))
    raised = _float(b, b.add(size, _bits(LEAST_NORMAL)))  # subnormal: a float32 with a leading 1,
    lowered = b.fsub(raised, _float(b, _bits(LEAST_NORMAL)))  # which is taken away again
    is_subnormal = b.icmp_unsigned("<", normal, _bits(LEAST_NORMAL))
    is_endless = b.icmp_unsigned(">=", normal, _bits(TOO_GREAT))
    finite = b.select(is_subnormal, b.bitcast(lowered, INT), normal)
    return _float(b, b.or_(b.select(is_endless, endless, finite), sign))


def narrowed(b: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """The 16 bits of the float16 nearest to a float32, the even one of two."""
    bits = b.bitcast(value, INT)
    sign = b.and_(bits, _bits(SIGN))
    size = b.xor(bits, sign)
    odd = b.and_(b.lshr(size, _bits(CUT)), _bits(1))
    carried = b.add(b.sub(size, _bits(REBIAS)), b.add(odd, _bits((1 << (CUT - 1)) - 1)))
    normal = b.lshr(carried, _bits(CUT))
    aligned = b.fadd(_float(b, size), _float(b, _bits(UNIT)))  # the addition rounds
    subnormal = b.sub(b.bitcast(aligned, INT), _bits(UNIT))
    is_nan = b.icmp_unsigned(">", size, _bits(ENDLESS))
    endless = b.select(is_nan, _bits(0x7E00), _bits(0x7C00))
    is_subnormal = b.icmp_unsigned("<", size, _bits(LEAST_NORMAL))
    is_endless = b.icmp_unsigned(">=", size, _bits(TOO_GREAT))
    nearest = b.select(is_endless, endless, b.select(is_subnormal, subnormal, normal))
    return b.trunc(b.or_(nearest, b.lshr(sign, _bits(16))), HALF)


def upper_widened(b: ir.IRBuilder, half: ir.Value) -> ir.Value:
    """The float32 of a bfloat16, given as 16 bits."""
    return _float(b, b.shl(b.zext(half, INT), _bits(16)))


def upper(b: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """The 16 bits of the bfloat16 nearest to a float32, the even one of two."""
    bits = b.bitcast(value, INT)
    odd = b.and_(b.lshr(bits, _bits(16)), _bits(1))
    near = b.add(bits, b.add(odd, _bits(0x7FFF)))
    is_nan = b.icmp_unsigned(">", b.and_(bits, _bits(SIGN - 1)), _bits(ENDLESS))
    quiet = b.or_(bits, _bits(1 << 22))
    return b.trunc(b.lshr(b.select(is_nan, quiet, near), _bits(16)), HALF)


def to_odd(b: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """A float64 cut to float32, an inexact one made odd: rounded once more, it is rounded once.

    Sylvie Boldo and Guillaume Melquiond: "When double rounding is odd", 2005.
    """
    near = b.fptrunc(value, FLOAT)
    back, size = b.fpext(near, DOUBLE), _absolute(b, value)
    is_above = b.fcmp_ordered(">", _absolute(b, back), size)
    cut = b.sub(b.bitcast(near, INT), b.zext(is_above, INT))
    is_inexact = b.fcmp_unordered("!=", back, value)
    return _float(b, b.or_(cut, b.zext(is_inexact, INT)))


def _absolute(b: ir.IRBuilder, value: ir.Value) -> ir.Value:
    without_sign = ir.Constant(WORD, (1 << 63) - 1)
    return b.bitcast(b.and_(b.bitcast(value, WORD), without_sign), DOUBLE)


float16, bfloat16 = types.float16, types.Type("bfloat16")
"""The names of halves in loop source."""
HALVES: dict[types.Type, tuple[Convert, Convert]] = {
    float16: (widened, narrowed),
    bfloat16: (upper_widened, upper),
}
"""How each is read as a float32, and how one is rounded to it."""


@intrinsic
def rounded(_typing: Any, _x: Any, half: Any) -> Any:
    """The float32 as one that a half can hold: `rounded(x, bfloat16)`."""
    widen, narrow = HALVES[half.instance_type]

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return widen(builder, narrow(builder, args[0]))

    return types.float32(types.float32, half), codegen


@intrinsic
def rounded_double(_typing: Any, _x: Any) -> Any:
    """The float64 as a float32 that a float16 can hold, rounded once."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return widened(builder, narrowed(builder, to_odd(builder, args[0])))

    return types.float32(types.float64), codegen


def _element(builder: ir.IRBuilder, pointer: ir.Value, index: ir.Value) -> ir.Value:
    return builder.gep(builder.bitcast(pointer, HALF.as_pointer()), [index])


lower: Any = lower_builtin  # which is untyped


def _pointer(half: types.Type, widen: Convert, narrow: Convert) -> types.CPointer:
    """A pointer to halves, which are float32 to whoever reads or writes them."""

    class Pointer(types.CPointer):
        key = f"{half}*"  # what tells it from one to float32

    def get(_context: Any, builder: ir.IRBuilder, _signature: Any, args: Any) -> ir.Value:
        return widen(builder, builder.load(_element(builder, *args)))

    def put(_context: Any, builder: ir.IRBuilder, _signature: Any, args: Any) -> None:
        pointer, index, value = args
        builder.store(narrow(builder, value), _element(builder, pointer, index))

    register_model(Pointer)(PointerModel)
    lower(operator.getitem, Pointer, types.Integer)(get)
    lower(operator.setitem, Pointer, types.Integer, types.Any)(put)
    return Pointer(types.float32)  # type: ignore[no-untyped-call]


POINTERS = {half: _pointer(half, *both) for half, both in HALVES.items()}
