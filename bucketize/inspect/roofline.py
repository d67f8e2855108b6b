"""The roofline: what the machine multiplies and moves at most, measured by two small kernels.

S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for
multicore architectures", Communications of the ACM 52 (4), 2009.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from bucketize.kernel.build import build
from bucketize.link.ffi import Native, function_at
from bucketize.link.memory import address, empty_bytes
from bucketize.machine.host import host
from bucketize.machine.target import Target
from bucketize.op import Array
from bucketize.timing import processor_seconds

CHAINS = 12
"""Sums that do not wait for each other: more than two units with four cycles of latency keep busy,
and few enough for 16 registers."""
STEPS = 200_000  # of multiplications: half a millisecond
SHORT_ROUNDS, LONG_ROUNDS = 50, 7  # of which the best counts: multiplying, moving memory
LEAST_BYTES, MOST_BYTES = 96 << 20, 768 << 20
"""Bytes of the triad's arrays: twice the last cache, but no more than a small machine can spare."""
PIECE = 4096  # bytes: parts of threads are multiples, so that no vector is torn

SOURCE = '''"""Vector code written by bucketize.inspect.peak."""

from bucketize.kernel.emit.module import vector_kernel
from bucketize.inspect.peak import {name}

kernel = vector_kernel(__name__, {name}, {parameters})
'''


@dataclass(frozen=True)
class Roofline:
    """What a machine does at most."""

    gflops: float
    """Billions of float32 operations in a second; a fused multiply-add is two."""
    gbytes_s: float
    """Billions of bytes in a second, to and from memory."""

    @property
    def ridge(self) -> float:
        """Operations per byte from which on multiplying is the limit."""
        return self.gflops / self.gbytes_s

    def seconds(self, flops: float, moved: float) -> float:
        """The least time for so many operations and bytes."""
        return max(flops / self.gflops, moved / self.gbytes_s) / 1e9

    def __str__(self) -> str:
        return (
            f"{self.gflops:.1f} GFLOP/s, {self.gbytes_s:.1f} GB/s, "
            f"ridge at {self.ridge:.1f} FLOP/byte"
        )


@cache
def measured(threads: int) -> Roofline:
    """The roofline of this machine with some threads; measured once in a process, in a second."""
    with ThreadPoolExecutor(threads) as pool:
        return Roofline(peak_gflops(threads), _bytes_per_second(pool, threads) / 1e9)


def peak_gflops(threads: int) -> float:
    """What `Roofline.gflops` is now: clocks change with the load, so it is measured each time."""
    with ThreadPoolExecutor(threads) as pool:
        return _flops_per_second(pool, threads) / 1e9


def _flops_per_second(pool: ThreadPoolExecutor, threads: int) -> float:
    lanes = host().lanes
    floats = [np.full(CHAINS * lanes, 0.5, np.float32) for _ in range(threads)]
    blocks = [np.array([STEPS, address(f)], np.int64) for f in floats]
    kernel = probe("multiply", lanes=lanes, chains=CHAINS)
    seconds = _best(pool, kernel, blocks, SHORT_ROUNDS)
    return 2 * CHAINS * lanes * STEPS * threads / seconds


def _bytes_per_second(pool: ThreadPoolExecutor, threads: int) -> float:
    """Bytes read and written a second; that a line is read before it is written does not count."""
    part = arrays_bytes(host()) // (3 * threads * PIECE) * PIECE
    arrays = [empty_bytes(part * threads) for _ in range(3)]
    for array in arrays:
        array.fill(0)  # pages that nobody wrote to are all the same one
    begins = [[address(a) + part * i for a in arrays] for i in range(threads)]
    blocks = [np.array([part // 4, *places], np.int64) for places in begins]
    seconds = _best(pool, probe("triad", lanes=host().lanes), blocks, LONG_ROUNDS)
    return 3 * part * threads / seconds


def arrays_bytes(target: Target) -> int:
    """Bytes that the triad goes over: more than the last cache holds."""
    return min(max(2 * max(target.l2, target.l3), LEAST_BYTES), MOST_BYTES)


def probe(name: str, **parameters: int) -> Native:
    """A kernel of `inspect.peak`, compiled."""
    source = SOURCE.format(name=name, parameters=parameters)
    return function_at(build(source, name_hint=name).address)


def _best(pool: ThreadPoolExecutor, kernel: Native, blocks: Sequence[Array], rounds: int) -> float:
    """The seconds of the best round: each thread runs the kernel on a block of its own."""
    return min(round_seconds(pool, kernel, blocks) for _ in range(rounds))


def round_seconds(pool: ThreadPoolExecutor, kernel: Native, blocks: Sequence[Array]) -> float:
    """The seconds of the slowest of some threads, each with the kernel on a block of its own.

    They are those on the processor: other processes make no machine slower.
    """
    calls = [partial(kernel, address(block)) for block in blocks]
    return max(pool.map(processor_seconds, calls))
