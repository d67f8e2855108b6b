"""Transposition: rows copied where the last axis stays, small blocks where it moves."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bucketize.kernel.loops.axis import joined
from bucketize.kernel.loops.cost import Counts, Loops
from bucketize.kernel.loops.elementwise import RUNS
from bucketize.kernel.loops.loop import (
    Source,
    argument_shapes,
    kernel_text,
    schedule_error,
    steps,
    strides_of,
    takes,
)
from bucketize.kernel.loops.movement import nest_counts, nest_launch, nest_text
from bucketize.kernel.target import Target
from bucketize.kernel.template import Knob, Launch, Schedule, Shapes, Template
from bucketize.kernel.workload import Workload
from bucketize.ops import transpose
from bucketize.types import Dim, ceil_div, maximum, minimum, product

BLOCKS = (16, 32, 64)  # elements along the result's rows, so that both sides stay in cache
DEFAULT_BLOCK = 32
Groups = tuple[list[Dim], list[Dim]]
FEW = 4
"""Elements of an axis, side by side in the result or in the argument, up to which they are written
out: the loop is then over the other axis, in vectors that are put together or taken apart."""
STRIP = 4096  # elements of a strip where one block spans the rows: 16 KiB, half of a small L1


def merged(axes: Sequence[int]) -> list[list[int]]:
    """The axes of the argument in the result's order, those that stay neighbours together."""
    return joined(axes, lambda a, b: b == a + 1)


def _keeps_last(axes: Sequence[int]) -> bool:
    return not axes or axes[-1] == len(axes) - 1


def _rows_source(workload: Workload) -> str:
    return nest_text(workload, len(merged(workload.anchor.attrs["axes"])), RUNS)


def _groups(workload: Workload, shapes: Shapes) -> Groups:
    """Extents and strides in the argument, along the merged axes of the result."""
    (x,) = argument_shapes(workload, shapes)
    groups, strides = merged(workload.anchor.attrs["axes"]), strides_of(x)
    return [product(x[a] for a in g) for g in groups], [strides[g[-1]] for g in groups]


def _fast(axes: Sequence[int]) -> int:
    """The merged axis of the result along which the argument runs."""
    return next(i for i, g in enumerate(merged(axes)) if g[-1] == len(axes) - 1)


def _blocks_source(workload: Workload, schedule: Schedule) -> str:
    axes, block = workload.anchor.attrs["axes"], schedule["block"]
    rank, fast = len(merged(axes)), _fast(axes)
    rest = [a for a in range(rank - 1) if a != fast]
    s = Source()
    s(f"n = (e{fast} + rows - 1) // rows")
    s(f"o{rank - 1} = 1", *(f"o{a} = o{a + 1} * e{a + 1}" for a in reversed(range(rank - 1))))
    with s.loops(w="begin, end"):
        s("r = w // n", "k = w % n * rows", f"h = least(rows, e{fast} - k)")
        for a in reversed(rest):
            s(f"c{a} = r % e{a}", f"r //= e{a}")
        s(f"p = {' + '.join(['k', *(f'c{a} * s{a}' for a in rest)])}")
        s(f"q = {' + '.join([f'k * o{fast}', *(f'c{a} * o{a}' for a in rest)])}")
        _block(s, workload, int(block))
    names = [*(f"e{a}" for a in range(rank)), "rows", *(f"s{a}" for a in range(rank))]
    return kernel_text(f"transpose: block {block}", workload, s, names, moved=(0,))


def _block(s: Source, workload: Workload, block: int) -> None:
    """`h` elements of the argument's rows, and all that the result's have there."""
    extents, fast = _known(workload), _fast(workload.anchor.attrs["axes"])
    last = len(extents) - 1
    wide, few = extents[last], extents[fast]
    if isinstance(wide, int) and 1 < wide <= FEW and fast == last - 1:
        with s.loops(u="h"):
            s(*(f"y[q + u * {wide} + {t}] = x0[p + u + {t} * s{last}]" for t in range(wide)))
    elif isinstance(few, int) and 1 < few <= FEW and _follows(workload):
        with s.loops(t=f"e{last}"):
            s(*(f"y[q + {u} * o{fast} + t] = x0[p + {u} + t * {few}]" for u in range(few)))
    else:
        with s.loops(j=f"0, e{last}, {block}"):
            s(f"m = least(e{last} - j, {block})")
            with s.loops(u="h", t="m"):
                s(f"y[q + u * o{fast} + j + t] = x0[p + u + (j + t) * s{last}]")


def _known(workload: Workload) -> list[Dim]:
    """The extents of the merged axes of the result."""
    shape, axes = workload.anchor.args[0].type.shape, workload.anchor.attrs["axes"]
    return [product(shape[a] for a in g) for g in merged(axes)]


def _follows(workload: Workload) -> bool:
    """Whether the result's last axis is the one before the argument's."""
    groups = merged(workload.anchor.attrs["axes"])
    return groups[-1][-1] + 1 == groups[_fast(workload.anchor.attrs["axes"])][0]


def _blocks_launch(workload: Workload, schedule: Schedule, groups: Groups) -> Launch:
    extents, strides = groups
    block = int(schedule["block"])
    many = minimum(maximum(extents[-1] - block, 0), 1)  # whether it takes more than one block
    rows = STRIP // block + (block - STRIP // block) * many
    fast = _fast(workload.anchor.attrs["axes"])
    others = product(e for a, e in enumerate(extents[:-1]) if a != fast)
    return Launch((*extents, rows, *strides), others * ceil_div(extents[fast], rows))


def _stays(workload: Workload) -> bool:
    """Whether rows are copied whole."""
    return _keeps_last(workload.anchor.attrs["axes"])


def _source(workload: Workload, schedule: Schedule, _target: Target) -> str:
    return _rows_source(workload) if _stays(workload) else _blocks_source(workload, schedule)


def _launch(workload: Workload, schedule: Schedule, shapes: Shapes, _target: Target) -> Launch:
    groups = _groups(workload, shapes)
    return nest_launch(*groups) if _stays(workload) else _blocks_launch(workload, schedule, groups)


def _knobs(workload: Workload, _target: Target) -> dict[str, tuple[Knob, ...]]:
    return {} if _stays(workload) else {"block": BLOCKS}


def _default(workload: Workload, _target: Target) -> dict[str, Knob]:
    return {} if _stays(workload) else {"block": DEFAULT_BLOCK}


def _counts(workload: Workload, schedule: Schedule, at: Loops) -> Counts:
    if _stays(workload):
        return nest_counts(workload, at)
    *_, last = extents = at.dims[: len(at.dims) // 2]
    size = math.prod(extents)
    rows = size / max(last, 1) * math.ceil(last / int(schedule["block"]))
    return {"row": rows, "apart": size}


TRANSPOSE = Template(
    name="transpose",
    accepts=takes(transpose),
    knobs=_knobs,
    default=_default,
    valid=lambda workload, schedule, target: schedule_error(_knobs(workload, target), schedule),
    source=_source,
    launch=_launch,
    pack=lambda *_: None,
    pack_key=lambda *_: "",
    cost=steps(_launch, _counts),
)
