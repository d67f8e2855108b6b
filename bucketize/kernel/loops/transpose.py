"""Transposition: rows copied where the last axis stays; where it moves, tiles in registers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from bucketize.kernel.emit.writer import FLOAT_BYTES
from bucketize.kernel.loops.cost import Counts, LoopCounts, Steps
from bucketize.kernel.loops.elementwise import RUNS
from bucketize.kernel.loops.loop import (
    Source,
    argument_shapes,
    joined,
    kernel_text,
    strides_of,
    takes,
)
from bucketize.kernel.loops.movement import nest_counts, nest_launch, nest_text
from bucketize.kernel.schedule import Schedule
from bucketize.kernel.template import Launch, Shapes, Template
from bucketize.kernel.workload import Workload
from bucketize.machine.target import LINE, Target
from bucketize.ops import transpose
from bucketize.types import Dim, ceil_div, product

Groups = tuple[list[Dim], list[Dim]]
FEW = 4
"""Elements of an axis, side by side in the result or in the argument, up to which they are written
out: the loop is then over the other axis, in vectors that are put together or taken apart."""
MANY = 1024  # elements along the other axis, of a part: such rows of float32 fill half a small L1
PART = (64, 256)
"""Elements of a part along the argument's rows, whole lines of them, and along the result's: a TLB
keeps the pages of so many rows."""
MOST, LEAST = 16, 4  # rows of a tile: as many registers; what is narrower costs more than it saves


def merged(axes: Sequence[int]) -> list[list[int]]:
    """The axes of the argument in the result's order, those that stay neighbours together."""
    return joined(axes, lambda a, b: b == a + 1)


def _groups(workload: Workload, shapes: Shapes) -> Groups:
    """Extents and strides in the argument, along the merged axes of the result."""
    (x,) = argument_shapes(workload, shapes)
    groups, strides = merged(workload.anchor.attrs["axes"]), strides_of(x)
    return [product(x[a] for a in g) for g in groups], [strides[g[-1]] for g in groups]


def _fast(axes: Sequence[int]) -> int:
    """The merged axis of the result along which the argument runs."""
    return next(i for i, g in enumerate(merged(axes)) if g[-1] == len(axes) - 1)


def _tiles_source(workload: Workload, target: Target) -> str:
    axes = workload.anchor.attrs["axes"]
    last, fast = len(merged(axes)) - 1, _fast(axes)
    high, wide = _part(workload)
    rest = [a for a in range(last) if a != fast]
    s = Source()
    s(f"n = (e{fast} + {high - 1}) // {high}", f"o = (e{last} + {wide - 1}) // {wide}")
    s(f"o{last} = 1", *(f"o{a} = o{a + 1} * e{a + 1}" for a in reversed(range(last))))
    s("if begin >= end:", "    return", "r = begin // o")
    s(f"j = begin % o * {wide}", f"k = r % n * {high}", "r //= n")
    for a in reversed(rest):
        s(f"c{a} = r % e{a}", f"r //= e{a}")
    with s.loops(w="begin, end"):
        s(f"h = least({high}, e{fast} - k)", f"m = least({wide}, e{last} - j)")
        s(f"p = {' + '.join(['k', f'j * s{last}', *(f'c{a} * s{a}' for a in rest)])}")
        s(f"q = {' + '.join([f'k * o{fast}', 'j', *(f'c{a} * o{a}' for a in rest)])}")
        _turn(s, workload, target)
        _advance(s, [("j", wide, last), ("k", high, fast), *((f"c{a}", 1, a) for a in rest[::-1])])
    names = [f"{name}{a}" for name in "es" for a in range(last + 1)]
    return kernel_text("transpose", workload, s, names, moved=(0,))


def _advance(s: Source, counters: Sequence[tuple[str, int, int]]) -> None:
    """On to the next part: the first of the counters, each of a step and an axis, goes fastest."""
    (name, step, axis), *others = counters
    s(f"{name} += {step}")
    if others:
        with s.block(f"if {name} >= e{axis}:"):
            s(f"{name} = 0")
            _advance(s, others)


def _turn(s: Source, workload: Workload, target: Target) -> None:
    """A part: `h` elements of the argument's rows, `m` of the result's."""
    axes, size = workload.anchor.attrs["axes"], workload.result.dtype.itemsize
    last, fast = len(merged(axes)) - 1, _fast(axes)
    if few := _joined(workload):
        with s.loops(u="h"):
            s(*(f"y[q + u * {few} + {t}] = x0[p + u + {t} * s{last}]" for t in range(few)))
    elif few := _split(workload):
        with s.loops(t="m"):
            s(*(f"y[q + {u} * o{fast} + t] = x0[p + {u} + t * {few}]" for u in range(few)))
    else:
        _tiles(s, fast, last, size, min(target.lanes * FLOAT_BYTES // size, MOST))


def _tiles(s: Source, fast: int, last: int, size: int, edge: int) -> None:
    """A part in square tiles, as large as fit; the last ones begin where they just end with it."""
    ahead = LINE // size if 2 * edge * size >= LINE else 0
    x, y = f"x0, p + u + t * s{last}, s{last}", f"y, q + u * o{fast} + t, o{fast}"
    tiles = s.loops(a=f"0, h, {edge}", b=f"0, m, {edge}")
    with s.block(f"if h >= {edge} and m >= {edge}:"), tiles:
        s(f"u, t = least(a, h - {edge}), least(b, m - {edge})")
        s(f"transposed({x}, {y}, {edge}, {ahead})")
    with s.block("else:"):
        if edge > LEAST:
            _tiles(s, fast, last, size, edge // 2)
        else:
            with s.loops(u="h", t="m"):
                s(f"y[q + u * o{fast} + t] = x0[p + u + t * s{last}]")


def _known(workload: Workload) -> list[Dim]:
    """The extents of the merged axes of the result."""
    shape, axes = workload.anchor.args[0].type.shape, workload.anchor.attrs["axes"]
    return [product(shape[a] for a in g) for g in merged(axes)]


def _follows(workload: Workload) -> bool:
    """Whether the result's last axis is the one before the argument's."""
    groups = merged(workload.anchor.attrs["axes"])
    return groups[-1][-1] + 1 == groups[_fast(workload.anchor.attrs["axes"])][0]


def _joined(workload: Workload) -> int:
    """The elements of the result's rows if they are a few, of as many rows that lie apart; or 0."""
    extents = _known(workload)
    neighbours = _fast(workload.anchor.attrs["axes"]) == len(extents) - 2
    return _few(extents[-1]) if neighbours else 0


def _split(workload: Workload) -> int:
    """The elements of the argument's rows if they are a few, and follow each other; or 0."""
    few = _few(_known(workload)[_fast(workload.anchor.attrs["axes"])])
    return few if _follows(workload) else 0


def _few(extent: Dim) -> int:
    return extent if isinstance(extent, int) and 1 < extent <= FEW else 0


def _part(workload: Workload) -> tuple[int, int]:
    """Elements of a part along the argument's rows and along the result's."""
    return (MANY, FEW) if _joined(workload) else (FEW, MANY) if _split(workload) else PART


def _tiles_launch(workload: Workload, groups: Groups) -> Launch:
    extents, strides = groups
    fast, (high, wide) = _fast(workload.anchor.attrs["axes"]), _part(workload)
    others = product(e for a, e in enumerate(extents[:-1]) if a != fast)
    parts = ceil_div(extents[fast], high) * ceil_div(extents[-1], wide)
    return Launch((*extents, *strides), others * parts)


def _stays(workload: Workload) -> bool:
    """Whether rows are copied whole."""
    axes = workload.anchor.attrs["axes"]
    return not axes or bool(axes[-1] == len(axes) - 1)


def _source(workload: Workload, _: Schedule, target: Target) -> str:
    if _stays(workload):
        return nest_text(workload, len(merged(workload.anchor.attrs["axes"])), RUNS)
    return _tiles_source(workload, target)


def _launch(workload: Workload, _: Schedule, shapes: Shapes, _target: Target) -> Launch:
    groups = _groups(workload, shapes)
    return nest_launch(*groups) if _stays(workload) else _tiles_launch(workload, groups)


def _counts(workload: Workload, _: Schedule, at: LoopCounts) -> Counts:
    """Counts each element of a tile as many shuffles as halve its edge down to 1."""
    if _stays(workload):
        return nest_counts(workload, at)
    extents = at.dims[: len(at.dims) // 2]
    size = math.prod(extents)
    narrow = min(extents[-1], extents[_fast(workload.anchor.attrs["axes"])]) < LEAST
    return {"apart": size} if narrow else {"simple": size * math.log2(MOST)}


TRANSPOSE = Template(
    name="transpose",
    accepts=takes(transpose),
    source=_source,
    launch=_launch,
    cost=partial(Steps, _launch, _counts),
)
