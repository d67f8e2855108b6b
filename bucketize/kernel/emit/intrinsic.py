"""The way of vector code into numba's kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from bucketize.kernel.emit.entry import BLOCK
from bucketize.kernel.emit.vector import WORD, Writer, private_function

Emit: TypeAlias = Callable[..., None]


def vector_kernel(name: str, emit: Emit, parameters: dict[str, Any]) -> Any:
    """A numba intrinsic void(BLOCK) whose code `emit(writer, block, **parameters)` writes.

    The code is written when the intrinsic is compiled, never when a kernel comes from the cache.
    """

    def codegen(context: Any, builder: ir.IRBuilder, _signature: Any, args: Any) -> Any:
        function = private_function(builder.module, name, [WORD])
        inner = ir.IRBuilder(function.append_basic_block())
        lanes = parameters["lanes"]
        writer = Writer(inner, lanes)
        rest = {k: v for k, v in parameters.items() if k != "lanes"}
        emit(writer, writer.pointer(function.args[0]), **rest)
        inner.ret_void()
        builder.call(function, [builder.ptrtoint(args[0], WORD)])
        return context.get_dummy_value()

    @intrinsic
    def body(_typing: Any, _block: Any) -> Any:
        return types.void(BLOCK), codegen

    return body
