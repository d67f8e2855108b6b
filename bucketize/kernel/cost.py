"""What a kernel takes: seconds of any workload under an implementation, at sizes."""

from __future__ import annotations

from collections.abc import Mapping

from bucketize.kernel.gemm import cost as gemm
from bucketize.kernel.target import Target
from bucketize.kernel.template import Implementation
from bucketize.kernel.templates import TEMPLATES
from bucketize.kernel.work import work
from bucketize.kernel.workload import Workload
from bucketize.types import evaluate, product

CALL = 5e-7  # seconds to call a kernel
OPS_A_SECOND = 2e9  # of elements, each op by itself
BYTES_A_SECOND = 1e10  # from afar


def seconds(
    workload: Workload,
    implementation: Implementation,
    sizes: Mapping[str, int],
    target: Target,
    cold_bytes: int = 0,
) -> float:
    """What the implementation of a workload takes on one core of `target`.

    Args:
        workload: what is computed.
        implementation: a template that accepts it, and a schedule that is valid there.
        sizes: by the name of each symbol in the workload's types.
        target: the processor; one that was not measured is taken for another.
        cold_bytes: what passes through the caches between two runs of the kernel: those of the
            weights of all kernels that run in turn.

    Raises:
        TypeRelError: a dim of the workload is not told by `sizes`.

    """
    extents = TEMPLATES[implementation.template].extents
    if extents is not None:
        knobs = gemm.arrays([implementation.schedule], target.lanes)
        asked = extents(workload).product([sizes], cold_bytes)
        return float(gemm.seconds(asked, knobs, gemm.constants_of(target), target)[0, 0])
    least, body = work(workload), workload.body.body
    steps = sum(evaluate(product(v.type.shape), sizes) for b in body for v in b.outs)
    steps += evaluate(least.multiplications, sizes)
    return CALL + steps / OPS_A_SECOND + evaluate(least.moved, sizes) / BYTES_A_SECOND
