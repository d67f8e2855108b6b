"""All templates, in the order in which they are asked; importing this fills `TEMPLATES`."""

from bucketize.kernel.attention.template import TEMPLATE as ATTENTION
from bucketize.kernel.depthwise.template import TEMPLATE as DEPTHWISE
from bucketize.kernel.gemm.conv import TEMPLATE as CONV
from bucketize.kernel.gemm.matmul import TEMPLATE as MATMUL
from bucketize.kernel.int8.conv import TEMPLATE as CONV_BYTES
from bucketize.kernel.int8.matmul import TEMPLATE as MATMUL_BYTES
from bucketize.kernel.loops.box import ROI_ALIGN
from bucketize.kernel.loops.boxes import KEPT_BOXES
from bucketize.kernel.loops.column import COL2IM
from bucketize.kernel.loops.conv import CONV_LOOPS
from bucketize.kernel.loops.elementwise import ELEMENTWISE
from bucketize.kernel.loops.fill import ARANGE, FULL, MASK_TAIL, PAD
from bucketize.kernel.loops.grid import GRID_SAMPLE
from bucketize.kernel.loops.index import (
    GATHER,
    GATHER_ELEMENTS,
    GATHER_ND,
    SCATTER_ELEMENTS,
    SCATTER_ND,
    TENSOR_SCATTER,
)
from bucketize.kernel.loops.movement import BROADCAST, CONCAT, SLICE, TILE
from bucketize.kernel.loops.norm import ARGMAX, CUMSUM, LAYER_NORM, SOFTMAX
from bucketize.kernel.loops.pool import POOL
from bucketize.kernel.loops.product import MATMUL_LOOPS
from bucketize.kernel.loops.reduce import REDUCE
from bucketize.kernel.loops.resize import RESIZE
from bucketize.kernel.loops.topk import TOPK
from bucketize.kernel.loops.transpose import TRANSPOSE
from bucketize.kernel.pool.template import TEMPLATE as POOL_NHWC
from bucketize.kernel.rotary.template import TEMPLATE as ROTARY
from bucketize.kernel.rows.template import TEMPLATE as ROWS
from bucketize.kernel.template import TEMPLATES, candidates
from bucketize.kernel.winograd.template import TEMPLATE as WINOGRAD

VECTOR = (
    *(MATMUL, MATMUL_BYTES, ATTENTION),
    *(DEPTHWISE, CONV, CONV_BYTES, WINOGRAD),
    *(POOL_NHWC, ROWS, ROTARY),
)
LOOP = (
    ELEMENTWISE,
    *(TRANSPOSE, BROADCAST, SLICE, TILE, CONCAT),
    *(PAD, MASK_TAIL, FULL, ARANGE),
    *(REDUCE, SOFTMAX, LAYER_NORM, ARGMAX, CUMSUM),
    POOL,
    *(RESIZE, GRID_SAMPLE, ROI_ALIGN),
    *(GATHER, GATHER_ELEMENTS, GATHER_ND, SCATTER_ELEMENTS, SCATTER_ND, TENSOR_SCATTER),
    *(TOPK, KEPT_BOXES),
    *(MATMUL_LOOPS, CONV_LOOPS, COL2IM),
)
TEMPLATES.update({t.name: t for t in (*VECTOR, *LOOP)})

__all__ = ["TEMPLATES", "candidates"]
