"""The template of convolutions of bfloat16 over NHWC images, a pair of channels at a time."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from bucketize.kernel.bfloat16.matmul import pairs
from bucketize.kernel.emit.dot import PAIR
from bucketize.kernel.gemm import conv
from bucketize.kernel.loops.conv import channels_out_last
from bucketize.kernel.template import Packing, Schedule
from bucketize.kernel.workload import Workload
from bucketize.op import Array
from bucketize.types.number import BFLOAT16


def _accepts(workload: Workload) -> bool:
    """Images of an even number of channels in each group."""
    if len(workload.body.body) > 1 or not conv.accepts_windows(workload, BFLOAT16):
        return False
    return conv.window(workload)[1] % PAIR == 0


def _packing(workload: Workload, schedule: Schedule, index: int) -> Packing | None:
    if index != conv.weights_of(workload):
        return None
    groups, width = workload.anchor.attrs["groups"], int(schedule["nr"])

    def pack(value: Array) -> Array:
        stack = channels_out_last(value, groups)
        depth, columns = math.prod(stack.shape[1:4]), stack.shape[4]
        return pairs(np.ascontiguousarray(stack).reshape(groups, depth, columns), width)

    return Packing(f"windows in {groups} groups, panels of {width}, pairs", pack)


TEMPLATE = replace(
    conv.TEMPLATE, name="conv2d_bfloat16", accepts=_accepts, packing=_packing, dot=BFLOAT16.name
)
