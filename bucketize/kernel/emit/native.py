"""Addresses in numba code."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic

from bucketize.kernel.emit.half import POINTERS


@intrinsic
def pointer(_typing: Any, _address: Any, dtype: Any) -> Any:
    """The address as a pointer: `pointer(block[1], float32)[i]` is read without wraparound.

    Elements of `boolean` are read and written as uint8, halves as float32.
    """
    element = dtype.instance_type  # numba would load a boolean as if its byte were one bit
    stored = types.uint8 if element == types.boolean else element
    kind = POINTERS.get(element) or types.CPointer(stored)  # type: ignore[no-untyped-call]

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(kind))

    return kind(types.int64, dtype), codegen
