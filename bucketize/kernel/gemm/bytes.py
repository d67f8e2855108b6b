"""The template of products of bytes by known matrices: sums of 32 bits, exact."""

from __future__ import annotations

import numpy as np

from bucketize.kernel.gemm.byteskernel import DOT, GROUP, source
from bucketize.kernel.gemm.matmul import panels
from bucketize.kernel.loops.cost import Counts, Loops
from bucketize.kernel.loops.loop import only_op, schedule_error, steps
from bucketize.kernel.target import Target
from bucketize.kernel.template import Knob, Launch, Schedule, Shapes, Template
from bucketize.kernel.workload import Workload
from bucketize.op import Array
from bucketize.ops import matmul_integer
from bucketize.types import ceil_div, maximum, product

PAIR = 2
ROWS = 6  # of a tile
BLOCK = 96
"""Rows that are laid out at a time, and share a panel while it is in the cache."""
FLIPPED = 128  # what the highest bit, exchanged, adds to a byte


def _accepts(workload: Workload) -> bool:
    """Rows of any number of axes by one known matrix."""
    b = only_op(workload)
    if b is None or b.op is not matmul_integer or workload.body.params != b.args:
        return False
    return workload.constant == (False, True) and len(b.args[1].type.shape) == 2


def _signs(workload: Workload) -> tuple[int, int]:
    """Whether each factor has a sign."""
    x, y = (int(p.type.dtype == np.int8) for p in workload.body.params)
    return x, y


def _units(workload: Workload, target: Target) -> tuple[Knob, ...]:
    """How many bytes may be multiplied at a time, the best first."""
    return (DOT, PAIR) if target.dots and _signs(workload)[1] else (PAIR,)


def _vectors(target: Target) -> int:
    """Of a tile: as many as leave its sums in registers."""
    return 4 if target.registers >= 32 else 2


def _knobs(workload: Workload, target: Target) -> dict[str, tuple[Knob, ...]]:
    return {"nr": (_vectors(target) * target.lanes,), "unit": _units(workload, target)}


def _source(workload: Workload, schedule: Schedule, target: Target) -> str:
    vectors = int(schedule["nr"]) // target.lanes
    form = {"unit": schedule["unit"], "rows": ROWS, "vectors": vectors}
    return source(target.lanes, **form, signs=_signs(workload))


def _launch(_: Workload, schedule: Schedule, shapes: Shapes, _target: Target) -> Launch:
    x, _y, (*rows, columns) = shapes
    count, depth = product(tuple(rows)), x[-1]
    blocks, across = ceil_div(count, BLOCK), ceil_div(columns, int(schedule["nr"]))
    block = ceil_div(count, maximum(blocks, 1))
    space = block * ceil_div(depth, int(schedule["unit"])) * GROUP
    dims = (count, depth, columns, maximum(across, 1), block)
    return Launch(dims, blocks * across, workspace=space)


def _pack_key(workload: Workload, schedule: Schedule, index: int) -> str:
    """What lies in the panels of the known matrix."""
    if index != 1:
        return ""
    flipped = " beside flipped bytes" if _flips(workload, schedule) else ""
    return f"panels of {schedule['nr']}, {schedule['unit']} bytes at a time{flipped}"


def _flips(workload: Workload, schedule: Schedule) -> bool:
    """Whether the kernel takes x for numbers without a sign, which are greater by 128."""
    return schedule["unit"] == DOT and bool(_signs(workload)[0])


def _pack(workload: Workload, schedule: Schedule, index: int, value: Array) -> Array | None:
    """Panels: what the sums of each column begin with, then group after group of all columns."""
    if index != 1:
        return None
    unit, width = int(schedule["unit"]), int(schedule["nr"])
    depth, columns = value.shape
    groups = np.zeros((-(-depth // unit) * unit, columns), value.dtype)
    groups[:depth] = value
    begun = np.zeros((1, 1, columns), np.int32)
    if _flips(workload, schedule):
        begun[0] = -FLIPPED * value.sum(axis=0, dtype=np.int32)
    apart = groups.reshape(1, -1, unit, columns)
    each = [panels(apart[:, :, u], width, value.dtype.type)[0] for u in range(unit)]
    bodies, heads = np.stack(each, axis=-1), panels(begun, width, np.int32)[0]
    flat = [a.view(np.uint8).reshape(len(heads), -1) for a in (heads, bodies)]
    return np.concatenate(flat, axis=1)


def _counts(_: Workload, schedule: Schedule, at: Loops) -> Counts:
    """A group is one step, of two instructions where it is a pair."""
    rows, depth, columns, *_rest = at.dims
    laid_out = rows * depth / int(schedule["unit"])
    return {"multiply": rows * depth * columns / int(schedule["unit"]), "lone": laid_out}


def _valid(workload: Workload, schedule: Schedule, target: Target) -> str | None:
    return schedule_error(_knobs(workload, target), schedule)


TEMPLATE = Template(
    name="matmul_bytes",
    accepts=_accepts,
    knobs=_knobs,
    default=lambda workload, target: {k: v[0] for k, v in _knobs(workload, target).items()},
    valid=_valid,
    source=_source,
    launch=_launch,
    pack=_pack,
    pack_key=_pack_key,
    cost=steps(_launch, _counts),
)
