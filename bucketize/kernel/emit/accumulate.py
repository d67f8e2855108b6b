"""Steps of reductions that LLVM's loop vectoriser may take in any order, and memory for them.

The leave to reorder is given to the one instruction, not to the kernel: infinities and NaN, and
the polynomials of `math.py`, stay as they are.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from bucketize.kernel.emit.vector import Writer

REORDER = ("reassoc", "contract", "nsz")


def _step(on_floats: str, on_integers: str, flags: tuple[str, ...] = REORDER) -> Any:
    @intrinsic
    def function(_typing: Any, x: Any, _y: Any) -> Any:
        def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            if isinstance(x, types.Float):
                return getattr(builder, on_floats)(*args, flags=flags)
            return getattr(builder, on_integers)(*args)

        return x(x, x), codegen

    return function


def _extreme(name: str, relation: str) -> Any:
    @intrinsic
    def function(_typing: Any, x: Any, _y: Any) -> Any:
        def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            if isinstance(x, types.Float):  # a NaN in either wins
                kind = args[0].type
                suffix = "f64" if isinstance(kind, ir.DoubleType) else "f32"
                step = Writer(builder).declare(f"llvm.{name}.{suffix}", kind, [kind, kind])
                return builder.call(step, args, fastmath=("nsz",))
            signed = getattr(x, "signed", False)
            compare = builder.icmp_signed if signed else builder.icmp_unsigned
            return builder.select(compare(relation, *args), *args)

        return x(x, x), codegen

    return function


plus, times = _step("fadd", "add"), _step("fmul", "mul")
added, multiplied = _step("fadd", "add", ()), _step("fmul", "mul", ())  # one after the other
greatest, least = _extreme("maximum", ">"), _extreme("minimum", "<")


@intrinsic
def multiply_add(_typing: Any, _x: Any, _y: Any, total: Any) -> Any:
    """The sum x * y + total, of floats in one operation where the machine has one."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        if isinstance(total, types.Float):
            return Writer(builder).fma(*args)
        return builder.add(builder.mul(*args[:2]), args[2])

    return total(total, total, total), codegen


@intrinsic(prefer_literal=True)
def scratch(_typing: Any, count: Any, dtype: Any) -> Any:
    """A pointer to `count` elements on the stack; LLVM knows that nothing else points there."""
    kind = types.CPointer(dtype.instance_type)  # type: ignore[no-untyped-call]

    def codegen(context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        element = context.get_data_type(dtype.instance_type)
        with builder.goto_entry_block():
            memory = builder.alloca(element, count.literal_value)
            memory.align = 64
            return builder.bitcast(memory, context.get_value_type(kind))

    return kind(count, dtype), codegen
