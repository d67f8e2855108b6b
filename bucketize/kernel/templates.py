"""All templates, in the order in which they are asked; importing this fills `TEMPLATES`."""

from bucketize.kernel.conv import TEMPLATE as CONV
from bucketize.kernel.depthwise import TEMPLATE as DEPTHWISE
from bucketize.kernel.elementwise import ELEMENTWISE
from bucketize.kernel.fill import ARANGE, FULL, MASK_TAIL, PAD
from bucketize.kernel.index import (
    GATHER,
    GATHER_ELEMENTS,
    GATHER_ND,
    SCATTER_ELEMENTS,
    SCATTER_ND,
)
from bucketize.kernel.matmul import TEMPLATE as MATMUL
from bucketize.kernel.movement import BROADCAST, CONCAT, SLICE, TILE
from bucketize.kernel.norm import ARGMAX, CUMSUM, LAYER_NORM, SOFTMAX
from bucketize.kernel.pool import POOL
from bucketize.kernel.reduce import REDUCE
from bucketize.kernel.template import TEMPLATES, Workload, template_for
from bucketize.kernel.transpose import TRANSPOSE

VECTOR = (MATMUL, DEPTHWISE, CONV)
LOOP = (
    ELEMENTWISE,
    *(TRANSPOSE, BROADCAST, SLICE, TILE, CONCAT),
    *(PAD, MASK_TAIL, FULL, ARANGE),
    *(REDUCE, SOFTMAX, LAYER_NORM, ARGMAX, CUMSUM),
    POOL,
    *(GATHER, GATHER_ELEMENTS, GATHER_ND, SCATTER_ELEMENTS, SCATTER_ND),
)
TEMPLATES.update({t.name: t for t in (*VECTOR, *LOOP)})


def has_template(workload: Workload) -> bool:
    """Whether any template can compute the workload."""
    return any(t.accepts(workload) for t in TEMPLATES.values())


__all__ = ["TEMPLATES", "has_template", "template_for"]
