"""The native loop over a segment's kernels: a table of addresses and their argument blocks."""

from __future__ import annotations

import warnings

import numba
from numba import config, njit, prange

from bucketize.errors import CompileError
from bucketize.kernel.native import call_address

WORD = 8  # bytes of an entry of a block


@njit("void(int64[::1], int64, int64)", cache=True, nogil=True)
def run_serial(kernels, blocks, stride):  # type: ignore[no-untyped-def]
    """Call each kernel on its block; blocks begin `stride` bytes apart."""
    for i in range(kernels.size):
        call_address(kernels[i], blocks + i * stride)


@njit(parallel=True, cache=True, nogil=True)
def run_parallel(kernels, blocks, stride, threads, chunks):  # type: ignore[no-untyped-def] # pragma: no cover
    """The same with `threads` blocks a kernel, `chunks[i]` of them in use."""
    for i in range(kernels.size):
        first = blocks + i * threads * stride
        if chunks[i] == 1:
            call_address(kernels[i], first)
        else:
            for t in prange(threads):
                call_address(kernels[i], first + t * stride)


def use_threads(threads: int) -> None:
    """Make numba's OpenMP layer ready for this many threads; say so when it is not there."""
    if threads < 1 or threads > config.NUMBA_NUM_THREADS:
        raise CompileError(f"threads: expected 1 to {config.NUMBA_NUM_THREADS}, got {threads}")
    if threads == 1:
        return
    try:
        config.THREADING_LAYER_PRIORITY = ["omp", "tbb", "workqueue"]
        numba.set_num_threads(threads)
    except ValueError as e:
        raise CompileError(f"cannot run {threads} threads: {e}") from e


def warn_of_workqueue() -> None:
    """Warn once threads have started, if only numba's slow layer was to be had."""
    if numba.threading_layer() == "workqueue":
        warnings.warn(
            "numba has neither OpenMP nor TBB here: its workqueue layer costs about 50 us an op",
            RuntimeWarning,
            stacklevel=2,
        )
