"""Native functions: called by address, without the interpreter's lock, alone or by threads."""

from __future__ import annotations

import ctypes
import importlib
import os
import warnings
from collections.abc import Callable
from functools import cache
from threading import Lock
from typing import Any, TypeAlias

import numpy as np

from bucketize.errors import CompileError, KernelError
from bucketize.op import Array

Block: TypeAlias = int
"""The address of a block of words."""
Native: TypeAlias = Callable[[Block], None]

ONE, NONE = np.array([1, 0]), np.array([0])
"""Orders: of a kernel that is alone, and of none at all."""
PROTOTYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def function_at(address: int) -> Native:
    """The native function of void(int64* block) at an address."""
    made: Any = PROTOTYPE(address)
    return made  # type: ignore[no-any-return]


_forking = Lock()  # numba's workqueue layer takes one caller at a time


def run_parallel(
    kernels: Array, order: Array, table: int, stride: int, threads: int, chunks: Array
) -> None:
    """Call kernels on their `threads` blocks, `chunks[i]` of them in use, forking for each.

    The order begins with how many there are.
    """
    loop = _parallel_loop()
    _check_process()
    with _forking:
        loop.set_num_threads(threads)  # of the calling thread, whichever it is
        loop.run_parallel(kernels, order, table, stride, threads, chunks)
        if loop.threading_layer() == "workqueue":
            warnings.warn(
                "numba has neither OpenMP nor TBB here: its workqueue layer costs about 50 us "
                "an op",
                RuntimeWarning,
                stacklevel=2,
            )


_users: list[int] = []  # the first process that forked threads, and no other


def _check_process() -> None:
    """Raise KernelError in a child of a process that forked threads: OpenMP would end it."""
    if not _users:
        _users.append(os.getpid())
    elif _users[0] != os.getpid():
        raise KernelError(
            "this process was forked from one that had run with several threads, which its copy of "
            "OpenMP does not survive: fork before the first run, start processes by 'spawn' "
            "(multiprocessing.set_start_method), or compile with threads=1"
        )


@cache
def _parallel_loop() -> Any:
    """The module that needs numba: loaded by name, so that only who asks for threads pays."""
    return importlib.import_module("bucketize.kernel.threads")


def check_threads(threads: int) -> None:
    """Refuse more threads than numba can start."""
    if threads == 1:
        return
    most = _parallel_loop().MOST
    if not isinstance(threads, int) or not 1 <= threads <= most:
        raise CompileError(f"threads: expected 1 to {most}, got {threads!r}")
