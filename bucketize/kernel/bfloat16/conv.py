"""The template of convolutions of bfloat16 over NHWC images, a pair of channels at a time."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from bucketize.kernel.bfloat16.matmul import pairs
from bucketize.kernel.emit.dot import PAIR
from bucketize.kernel.gemm import conv
from bucketize.kernel.workload import Workload
from bucketize.types.number import BFLOAT16


def _accepts(workload: Workload) -> bool:
    """Images of an even number of channels in each group."""
    if len(workload.body.body) > 1 or not conv.accepts_windows(workload, BFLOAT16):
        return False
    return conv.window(workload)[1] % PAIR == 0


TEMPLATE = replace(
    conv.TEMPLATE,
    name="conv2d_bfloat16",
    accepts=_accepts,
    packing=partial(conv.packing, panels=pairs, as_pairs=", pairs"),
    dot=BFLOAT16.name,
)
