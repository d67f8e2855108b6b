"""Addresses in numba code: pointers made from them, and kernels called by them."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from bucketize.kernel.emit.half import HalfPointer


@intrinsic
def pointer(_typing: Any, _address: Any, dtype: Any) -> Any:
    """The address as a pointer: `pointer(block[1], float32)[i]` is read without wraparound.

    Elements of `boolean` are read and written as uint8, those of `float16` as float32.
    """
    element = dtype.instance_type  # numba would load a boolean as if its byte were one bit
    stored = types.uint8 if element == types.boolean else element
    is_half = element == types.float16
    kind = HalfPointer() if is_half else types.CPointer(stored)  # type: ignore[no-untyped-call]

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(kind))

    return kind(types.int64, dtype), codegen


@intrinsic
def call_address(_typing: Any, _address: Any, _block: Any) -> Any:
    """A call of the kernel at `address` with the argument block at the address `block`."""

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        kernel = ir.FunctionType(ir.VoidType(), [ir.IntType(64)])
        builder.call(builder.inttoptr(args[0], kernel.as_pointer()), [args[1]])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen
