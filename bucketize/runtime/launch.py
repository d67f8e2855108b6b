"""The native loop over a segment's kernels: a table of addresses and their argument blocks."""

from __future__ import annotations

import warnings

from numba import config, njit, prange, set_num_threads
from numba.np.ufunc.parallel import threading_layer

from bucketize.errors import CompileError
from bucketize.kernel.emit.native import call_address

WORD = 8  # bytes of an entry of a block


@njit("void(int64[::1], int64, int64)", cache=True, nogil=True)
def run_serial(kernels, blocks, stride):  # type: ignore[no-untyped-def]
    """Call each kernel on its block; blocks begin `stride` bytes apart."""
    for i in range(kernels.size):
        call_address(kernels[i], blocks + i * stride)  # type: ignore[call-arg]


@njit(parallel=True, cache=True, nogil=True)
def run_parallel(kernels, blocks, stride, threads, chunks):  # type: ignore[no-untyped-def] # pragma: no cover
    """The same with `threads` blocks a kernel, `chunks[i]` of them in use."""
    for i in range(kernels.size):
        first = blocks + i * threads * stride
        if chunks[i] == 1:
            call_address(kernels[i], first)  # type: ignore[call-arg]
        else:
            for t in prange(threads):
                call_address(kernels[i], first + t * stride)  # type: ignore[call-arg]


def use_threads(threads: int) -> None:
    """Make numba's OpenMP layer ready for this many threads; say so when it is not there."""
    most: int = config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    if not 1 <= threads <= most:
        raise CompileError(f"threads: expected 1 to {most}, got {threads}")
    if threads == 1:
        return
    config.THREADING_LAYER_PRIORITY = ["omp", "tbb", "workqueue"]  # type: ignore[attr-defined]
    set_num_threads(threads)


def warn_of_workqueue() -> None:
    """Warn once threads have started, if only numba's slow layer was to be had."""
    if threading_layer() == "workqueue":  # type: ignore[no-untyped-call]
        warnings.warn(
            "numba has neither OpenMP nor TBB here: its workqueue layer costs about 50 us an op",
            RuntimeWarning,
            stacklevel=2,
        )
