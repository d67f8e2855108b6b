"""The template of products of bytes by known matrices: sums of 32 bits, exact."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bucketize.kernel.emit.dot import DOT
from bucketize.kernel.emit.module import kernel_source
from bucketize.kernel.gemm.matmul import panels
from bucketize.kernel.int8 import loops
from bucketize.kernel.int8.loops import GROUP
from bucketize.kernel.loops.cost import Counts, LoopCounts, Steps
from bucketize.kernel.loops.loop import only_op
from bucketize.kernel.schedule import Knob, Schedule
from bucketize.kernel.template import Launch, Packing, Shapes, Template, everywhere
from bucketize.kernel.workload import Workload
from bucketize.machine.target import Target
from bucketize.op import Array
from bucketize.ops import matmul_integer
from bucketize.types import Dim, Shape, ceil_div, maximum, minimum, product

PAIR = 2
SIGNED = "signed"
ROWS = 6  # of a tile
BLOCK = 96
"""Rows at most that are laid out at a time, and share a panel while it is in the cache."""
SHARE = 4  # of the second cache: a part that such rows may have
FLIPPED = 128  # what the highest bit, exchanged, adds to a byte


def _accepts(workload: Workload) -> bool:
    """Rows of any number of axes by one known matrix."""
    b = only_op(workload)
    if b is None or b.op is not matmul_integer or workload.body.params != b.args:
        return False
    return workload.constant == (False, True) and len(b.args[1].type.shape) == 2


def signs(workload: Workload) -> tuple[int, int]:
    """Whether each factor has a sign."""
    x, y = (int(p.type.dtype == np.int8) for p in workload.body.params)
    return x, y


def _units(workload: Workload, target: Target) -> tuple[Knob, ...]:
    """How many bytes may be multiplied at a time, the best first."""
    return (DOT, PAIR) if "int8" in target.processor.dots and signs(workload)[1] else (PAIR,)


def knobs(workload: Workload, target: Target) -> dict[str, tuple[Knob, ...]]:
    """Columns of a panel, as many as leave sums in registers, and bytes of a group.

    On Arm, whether fours of x have signs, too: they do unless x has none, and the processor mixes.
    """
    vectors, units = 4 if target.registers >= 32 else 2, _units(workload, target)
    common: dict[str, tuple[Knob, ...]] = {"nr": (vectors * target.lanes,), "unit": units}
    its = target.processor
    signed = its.vectors == "neon" and (signs(workload)[0] or "i8mm" not in its.on())
    return common | ({"x": (SIGNED,)} if signed and DOT in units else {})


def default(workload: Workload, target: Target) -> dict[str, Knob]:
    """The first of each."""
    return {k: v[0] for k, v in knobs(workload, target).items()}


def form(workload: Workload, schedule: Schedule, target: Target, depth: Dim) -> dict[str, Any]:
    """The form of the loops, over rows of so many bytes."""
    return {
        "lanes": target.lanes,
        "unit": schedule["unit"],
        "rows": ROWS,
        "vectors": int(schedule["nr"]) // target.lanes,
        "signs": signs(workload),
        "place": in_place(workload, schedule, depth),
        **({"signed": True} if _is_signed(schedule) else {}),
    }


def _is_signed(schedule: Schedule) -> bool:
    """Whether fours of x have signs."""
    return schedule.get("x") == SIGNED


def in_place(workload: Workload, schedule: Schedule, depth: Dim) -> bool:
    """Whether rows of so many bytes are groups as they lie."""
    as_they_lie = signs(workload)[0] == _is_signed(schedule)
    return schedule["unit"] == DOT and as_they_lie and depth % DOT == 0


def launch(
    rows: Dim, depth: Dim, columns: Dim, schedule: Schedule, target: Target, more: Shape = ()
) -> Launch:
    """Blocks of rows and panels, the panels of a block one after the other."""
    row = ceil_div(depth, int(schedule["unit"])) * GROUP
    most = maximum(minimum(target.l2 // SHARE // maximum(row, 1), BLOCK), ROWS)
    blocks, across = ceil_div(rows, most), ceil_div(columns, int(schedule["nr"]))
    count = maximum(blocks, 1)
    low, tall = rows // count, rows % count
    dims = (rows, depth, columns, maximum(across, 1), low, tall, *more)
    return Launch(dims, blocks * across, workspace=(low + 1) * row)


def packing(workload: Workload, schedule: Schedule, zero: int = 0) -> Packing:
    """The known matrix in panels; `zero` is taken off each factor of it."""
    less = as_laid_out(workload, schedule, zero)
    beside = f" beside bytes that are {less} more" if less else ""
    key = f"panels of {schedule['nr']}, {schedule['unit']} bytes at a time{beside}"
    return Packing(key, lambda matrix: _panels_of_bytes(matrix, schedule, less))


def _panels_of_bytes(matrix: Array, schedule: Schedule, less: int) -> Array:
    """Panels: what the sums of each column begin with, then group after group of all columns."""
    unit, width = int(schedule["unit"]), int(schedule["nr"])
    depth, columns = matrix.shape
    groups = np.zeros((-(-depth // unit) * unit, columns), matrix.dtype)
    groups[:depth] = matrix
    begun = (-less * matrix.sum(axis=0, dtype=np.int64)).astype(np.int32).reshape(1, 1, columns)
    apart = groups.reshape(1, -1, unit, columns)
    each = [panels(apart[:, :, u], width, matrix.dtype.type)[0] for u in range(unit)]
    bodies, heads = np.stack(each, axis=-1), panels(begun, width, np.int32)[0]
    flat = [a.view(np.uint8).reshape(len(heads), -1) for a in (heads, bodies)]
    return np.concatenate(flat, axis=1)


def as_laid_out(workload: Workload, schedule: Schedule, byte: int) -> int:
    """A byte of x as the kernel takes it: 128 more where fours lose a sign, or less for one."""
    gone = signs(workload)[0] - _is_signed(schedule)
    return byte + FLIPPED * gone * (schedule["unit"] == DOT)


def counts(_: Workload, schedule: Schedule, at: LoopCounts) -> Counts:
    """A group is one step, of two instructions where it is a pair."""
    rows, depth, columns, *_rest = at.dims
    laid_out = rows * depth / GROUP
    return {"multiply": rows * depth * columns / int(schedule["unit"]), "simple": laid_out}


def _source(workload: Workload, schedule: Schedule, target: Target) -> str:
    depth = workload.body.params[1].type.shape[0]
    return kernel_source(loops.__name__, form(workload, schedule, target, depth))


def _launch(_: Workload, schedule: Schedule, shapes: Shapes, target: Target) -> Launch:
    x, _y, (*rows, columns) = shapes
    return launch(product(tuple(rows)), x[-1], columns, schedule, target)


TEMPLATE = Template(
    name="matmul_bytes",
    accepts=_accepts,
    knobs=knobs,
    defaults=everywhere(default),
    source=_source,
    launch=_launch,
    packing=lambda workload, schedule, index: packing(workload, schedule) if index == 1 else None,
    cost=partial(Steps, _launch, counts),
)
