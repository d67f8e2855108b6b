"""Addresses in numba code: pointers, kernels called, words that threads share."""

from __future__ import annotations

import os
import platform
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from bucketize.kernel.emit.half import HalfPointer

WORD_BYTES = 8


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


# --- threads -------------------------------------------------------------------------------------


@intrinsic
def changed(_typing: Any, _address: Any, _known: Any, _value: Any) -> Any:
    """Whether the word at an address was `known`; it is `value` then, in one step."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        place, known, value = _word(builder, args[0]), args[1], args[2]
        pair = builder.cmpxchg(place, known, value, "acq_rel", "acquire")
        return builder.extract_value(pair, 1)

    return types.boolean(types.int64, types.int64, types.int64), codegen


@intrinsic
def exchanged(_typing: Any, _address: Any, _value: Any) -> Any:
    """What the word at an address was before it became `value`; nothing moves across it."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("xchg", _word(builder, args[0]), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def seen(_typing: Any, _address: Any) -> Any:
    """The word at an address; what its writer wrote before is seen from here on."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.load_atomic(_word(builder, args[0]), "seq_cst", WORD_BYTES)

    return types.int64(types.int64), codegen


@intrinsic
def told(_typing: Any, _address: Any, _value: Any) -> Any:
    """Store a word; who sees it sees what was written before."""

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        builder.store_atomic(args[1], _word(builder, args[0]), "release", WORD_BYTES)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def pause(_typing: Any) -> Any:
    """Tell the processor that this thread waits."""

    def codegen(context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        if platform.machine().lower() in ("x86_64", "amd64"):
            _call(builder, "llvm.x86.sse2.pause", ir.VoidType())
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def give_way(_typing: Any) -> Any:
    """Let another thread have the core, if one waits for it."""

    def codegen(context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        _call(builder, "SwitchToThread" if os.name == "nt" else "sched_yield", ir.IntType(32))
        return context.get_dummy_value()

    return types.void(), codegen


def _word(builder: Any, address: ir.Value) -> ir.Value:
    return builder.inttoptr(address, ir.IntType(64).as_pointer())


def _call(builder: Any, name: str, result: ir.Type) -> None:
    """Call a function without arguments that LLVM or the system has."""
    known = builder.module.globals.get(name)
    builder.call(known or ir.Function(builder.module, ir.FunctionType(result, []), name), [])
