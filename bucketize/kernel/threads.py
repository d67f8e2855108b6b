"""The loop over a table's kernels that forks for each: numba's, on OpenMP if that is there."""

from __future__ import annotations

from numba import config, njit, prange, set_num_threads
from numba.np.ufunc.parallel import threading_layer

from bucketize.kernel.emit.native import call_address

MOST: int = config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
config.THREADING_LAYER_PRIORITY = ["omp", "tbb", "workqueue"]  # type: ignore[attr-defined]

__all__ = ["MOST", "run_parallel", "set_num_threads", "threading_layer"]


@njit(parallel=True, cache=True, nogil=True)
def run_parallel(kernels, order, table, stride, threads, chunks):  # type: ignore[no-untyped-def] # pragma: no cover
    """Call kernels on their blocks, `order[0]` of them; blocks begin `stride` bytes apart."""
    for step in range(order[0]):
        i = order[step + 1]
        first = table + i * threads * stride
        if chunks[i] == 1:
            call_address(kernels[i], first)  # type: ignore[call-arg]
        else:
            for t in prange(threads):
                call_address(kernels[i], first + t * stride)  # type: ignore[call-arg]
