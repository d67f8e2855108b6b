"""The template of products of bfloat16 by known matrices: the loops of `gemm`, a pair at a time.

Two neighbours along the depth are one number of 32 bits, in a row of A as they lie, in B as it is
packed. Sums are float32, rounded as they are stored.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bucketize.kernel.emit.dot import PAIR
from bucketize.kernel.gemm import matmul
from bucketize.kernel.schedule import Schedule
from bucketize.kernel.template import Packing
from bucketize.kernel.workload import Workload
from bucketize.op import Array
from bucketize.types.number import BFLOAT16

MATRIX = 2  # its rank


def pairs(stack: Array, width: int) -> Array:
    """Matrices [count, depth, columns] of bfloat16 in panels of pairs, each as 32 bits."""
    count, depth, columns = stack.shape
    whole = np.ascontiguousarray(stack).view(np.uint16)
    apart = whole.reshape(count, depth // PAIR, PAIR, columns).astype(np.uint32)
    return matmul.panels(apart[:, :, 0] | apart[:, :, 1] << 16, width, np.uint32)


def _accepts(workload: Workload) -> bool:
    """Rows of any number of axes by a known matrix of even depth."""
    if len(workload.body.body) > 1 or not matmul.accepts_product(workload, "matmul", BFLOAT16):
        return False
    shape = workload.anchor.args[1].type.shape
    is_known = workload.body.params == workload.anchor.args and workload.constant == (False, True)
    return is_known and len(shape) == MATRIX and shape[0] % PAIR == 0


def _packing(_: Workload, schedule: Schedule, index: int) -> Packing | None:
    width = int(schedule["nr"])
    key = f"panels of {width}, pairs"
    return Packing(key, lambda matrix: pairs(matrix[None], width)) if index == 1 else None


TEMPLATE = replace(
    matmul.TEMPLATE, name="matmul_bfloat16", accepts=_accepts, packing=_packing, dot=BFLOAT16.name
)
