"""Native functions: called by address, without the interpreter's lock."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, TypeAlias

Block: TypeAlias = int
"""The address of a block of words."""
Native: TypeAlias = Callable[[Block], None]

PROTOTYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def function_at(address: int) -> Native:
    """The native function of void(int64* block) at an address."""
    function: Any = PROTOTYPE(address)
    return function  # type: ignore[no-any-return]


def is_too_deep(e: Exception) -> bool:
    """Whether a stack was full; ctypes wraps that where it converts the address of a block."""
    wrapped = isinstance(e, ctypes.ArgumentError) and RecursionError.__name__ in str(e)
    return wrapped or isinstance(e, RecursionError)
