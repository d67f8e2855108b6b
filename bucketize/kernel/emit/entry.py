"""What a kernel is to numba: a C callback void(int64* block), stopped before its machine code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types
from numba.core.ccallback import CFunc
from numba.core.compiler_lock import global_compiler_lock

BLOCK = types.CPointer(types.int64)  # type: ignore[no-untyped-call]


def entry(function: Callable[[Any], None]) -> tuple[str, str]:
    """Decorates a kernel: its optimised LLVM IR, and the symbol that it has there.

    `numba.cfunc` would have numba's own engine make machine code, which `kernel.object` makes.
    """
    callback: Any = CFunc(function, ((BLOCK,), types.void), {}, {"error_model": "numpy"})
    with global_compiler_lock:
        compiled = callback._compile_uncached()
        library = compiled.library
        library._finalize_final_module = lambda: None
        library.finalize()
    return library.get_llvm_str(), compiled.fndesc.llvm_cfunc_wrapper_name
