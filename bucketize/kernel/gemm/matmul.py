"""The template of matrix products: A @ B, batched, with an epilogue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np
from numpy.typing import DTypeLike

from bucketize.kernel.emit.dot import PAIR
from bucketize.kernel.emit.writer import FLOAT_BYTES
from bucketize.kernel.gemm import cost, epilogue
from bucketize.kernel.gemm.form import TileForm
from bucketize.kernel.gemm.level import Level, byte_strides, merged, table
from bucketize.kernel.gemm.macrokernel import kept_bytes, source
from bucketize.kernel.gemm.schedule import (
    FILL,
    HIGH,
    NEON,
    Tile,
    Tiling,
    fetches_near,
    knobs,
    unfit,
)
from bucketize.kernel.loops.loop import spread
from bucketize.kernel.schedule import Schedule
from bucketize.kernel.template import Launch, Packing, Shapes, Template
from bucketize.kernel.typical import SHARES, TypicalPoints
from bucketize.kernel.workload import Workload, accepted
from bucketize.machine.target import Target
from bucketize.op import Array
from bucketize.ops.rounding import FORMATS, PLAIN, rounded
from bucketize.types import Dim, ceil_div, maximum, minimum, positive, product
from bucketize.types.number import DType

# --- where things lie ------------------------------------------------------------------------


def panels(stack: Array, width: int, dtype: DTypeLike = np.float32) -> Array:
    """Matrices [count, depth, columns] as [count, panel, depth, width], filled up with zeros."""
    count, depth, columns = stack.shape
    number = -(-columns // width)
    out = np.empty((count, number, depth, width), dtype)
    for p in range(number):
        part = stack[:, :, p * width : (p + 1) * width]
        out[:, p, :, : part.shape[2]] = part
        out[:, p, :, part.shape[2] :] = 0
    return out


def short_panels(matrix: Array, width: int, weights: str) -> Array:
    """A matrix in panels of a shorter format, as bytes; int8 behind the steps of its columns."""
    values, dtype = FORMATS[weights].held(matrix), FORMATS[weights].dtype
    if not isinstance(values, tuple):
        return panels(values[None], width, dtype).view(np.uint8)
    levels, steps = values
    heads, bodies = panels(steps[None], width), panels(levels[None], width, dtype)
    flat = [a.view(np.uint8).reshape(a.shape[1], -1) for a in (heads, bodies)]
    return np.concatenate(flat, axis=1)


def balanced(rows: Dim, most: int, alone: int | None = None) -> dict[str, Dim]:
    """The dims that cut `rows` into tiles of `low` rows, `tall` of them with one more.

    One that would be alone has `alone` rows at most: of more there are two tiles.
    """
    count = maximum(ceil_div(rows, most), 1)
    if alone is not None and alone < most:
        count = maximum(count, minimum(ceil_div(rows, alone), 2))
    return {"tiles": count, "low": rows // count, "tall": rows % count}


def balances(rows: int, most: int) -> bool:
    """Whether the balanced cut of `rows` has tiles of `most` and `most - 1` rows only.

    n tiles hold more than (n - 1) * most rows; from n = most - 1 on that is (most - 1) a tile.
    """
    return rows > most * (most - 2)


def passes(units: Dim, depth: Dim, most: Dim) -> Dim:
    """How many of the units of a reduction a pass takes, so that it is `most` deep at most."""
    count = maximum(ceil_div(units * depth, most), 1) if most != 0 else 1
    return maximum(ceil_div(units, count), 1)


MANY = 4
"""Passes that are not worth their while over rows which no second cache holds. Of 1024 x 1024 by
1024 x 1024 eight took 1.09 times as long as one; of 256 deep rows two took 0.97 to 1.01 of it."""


def depth_of_pass(rows: Dim, depth: Dim, most: int, target: Target) -> Dim:
    """How deep a pass is over rows that lie side by side, `most` unless A is large.

    Passes over an A that no second cache holds read short pieces of its rows, which are not fetched
    ahead in time; many of them cost more than sums and B that stay near are worth.
    """
    if not most or not target.l2:
        return passes(depth, 1, most)
    large = minimum(rows * depth * FLOAT_BYTES // target.l2, 1)
    many = minimum(depth // (MANY * most), 1)
    return passes(depth, 1, most + large * many * depth)


def whole_if_alone(units: Dim, most: Dim, tiles: Dim) -> Dim:
    """The units of a pass, or all if there is but one tile.

    Its B is read once, so that cuts would only halt the stream: out of memory, 8 and 12 rows of
    1024 x 1024 took 1.05 to 1.09 of the time in four passes (Zen 5).
    """
    return maximum(units, (1 - minimum(tiles - 1, 1)) * most)


def finish_launch(
    form: TileForm, dims: dict[str, Dim], rows: Dim, levels: Sequence[Level], workspace: Dim
) -> Launch:
    """The launch of a product of so many rows; levels are given from the outermost."""
    entries = product(size for size, _ in levels)
    dims["levels"] = len(levels)
    dims["group"] = 1
    if form.abreast and entries == 1:  # as far as there are so many panels
        group = form.group(rows)
        dims["group"] = maximum(minimum(dims["panels"] // group, 1) * group, 1)
    extent = entries * dims["tiles"] * dims["panels"] * positive(rows)
    words = (*(dims[name] for name in form.dims), *table(levels))
    return Launch(words, extent, workspace=kept_bytes(form) + workspace)


# --- the template ----------------------------------------------------------------------------


def _places(workload: Workload) -> tuple[int, int]:
    a, b = workload.anchor.args
    return workload.body.params.index(a), workload.body.params.index(b)


def _packed(workload: Workload) -> bool:
    b = _places(workload)[1]
    return workload.constant[b] and len(workload.body.params[b].type.shape) == 2


def form(
    schedule: Schedule,
    target: Target,
    workload: Workload,
    rows: Dim,
    *,
    packed: bool,
    image: bool,
    padded: bool = False,
) -> TileForm:
    """The form of a product of so many rows; its factors are the first arguments of the anchor."""
    a, b = _places(workload)
    tile = Tile.of(schedule)
    most = tile.mr
    arm = target.processor.vectors == NEON  # nobody has measured what several panels bring there
    return TileForm(
        **asdict(tile),
        lanes=target.lanes,
        least=max(most - 1, 1) if isinstance(rows, int) and balances(rows, most) else 1,
        inputs=len(workload.body.params),
        a=a,
        b=b,
        packed=packed,
        image=image,
        epilogue=_epilogue(workload),
        padded=padded,
        pairs=elements(workload) == PAIR,
        in_order=target.in_order,
        streams=packed and target.speed.prefetch > 1,
        near=packed and fetches_near(target),
        abreast=int(FILL * target.registers) if packed and not (image or arm) else 0,
    )


def _epilogue(workload: Workload) -> epilogue.Epilogue:
    """What joins the products, and that they are stored as their factors are."""
    steps = accepted(epilogue.of_workload(workload))
    return replace(steps, result=workload.anchor.out.type.dtype.name)


def elements(workload: Workload) -> int:
    """How many elements of a row of A an instruction multiplies at a time, in each lane."""
    return FLOAT_BYTES // element_size(workload)


def element_size(workload: Workload) -> int:
    """Bytes of an element of the factors, and of the product."""
    return workload.anchor.out.type.dtype.itemsize


def accepts_product(workload: Workload, op: str, dtype: DType = epilogue.FLOAT32) -> bool:
    """Whether the anchor is this op over parameters of a dtype, and the rest an epilogue."""
    anchor = workload.anchor
    if anchor.op.name != op or any(a not in workload.body.params for a in anchor.args[:2]):
        return False
    alike = all(a.type.dtype == dtype for a in anchor.args)
    return alike and epilogue.of_workload(workload) is not None


def _accepts(workload: Workload) -> bool:
    if not accepts_product(workload, "matmul"):
        return False
    return _format(workload) == PLAIN or _packed(workload)


def _format(workload: Workload) -> str:
    """The shortest format that holds the weights."""
    return str(workload.anchor.attrs["weights"])


def _form(workload: Workload, schedule: Schedule, target: Target) -> TileForm:
    packed = _packed(workload)
    return form(schedule, target, workload, _rows(workload), packed=packed, image=False)


def _rows(workload: Workload) -> Dim:
    """The rows that a launch has at least."""
    return workload.anchor.out.type.shape[-2]


def _extents(workload: Workload) -> cost.ProductCost:
    """Extents of the product; where B is one matrix the batch is more rows."""
    a, b = (atom.type.shape for atom in workload.anchor.args)
    *batch, rows, columns = workload.anchor.out.type.shape
    if len(b) == 2:
        rows, batch = product([*batch, rows]), []
    step, depth = a[-1] * element_size(workload), a[-1] // elements(workload)
    return cost.ProductCost(rows, columns, depth, product(batch), _packed(workload), a_step=step)


def _launch(workload: Workload, schedule: Schedule, shapes: Shapes, target: Target) -> Launch:
    f, tiling = _form(workload, schedule, target), Tiling.of(schedule)
    *arguments, out = shapes
    depth, columns = arguments[f.a][-1] // elements(workload), out[-1]
    operands = [arguments[o.place] for o in f.epilogue.operands]
    size = element_size(workload)
    a, b, own = (byte_strides(s, len(out), size) for s in (arguments[f.a], arguments[f.b], out))
    factors = [
        spread(arguments[f.a][:-1], out[:-1], a[:-1]),
        spread(arguments[f.b][:-2], out[:-2], b[:-2]),
    ]
    others = [spread(s, out, byte_strides(s, len(out))) for s in operands]
    strides = [*factors, own, *others]
    levels: list[Level] = [(size, [s[i] for s in strides]) for i, size in enumerate(out[:-2])]
    steps = [factors[0][-1], b[-2], *(s[-2] for s in strides[2:])]
    levels, rows, steps = _flattened(merged(levels), out[-2], steps)
    b_bytes = f.head + depth * f.b_step if f.packed else f.width * FLOAT_BYTES
    dims = balanced(rows, f.mr, HIGH)
    dims |= {
        "panels": ceil_div(columns, f.width),
        "columns": columns,
        "depth": depth,
        "a_step": steps[0],
        "c_step": steps[2],
        "panel_step": b_bytes,
        "b_step": steps[1],
        "copied": int(tiling.copy == "yes"),
        "pass_units": whole_if_alone(
            depth_of_pass(rows, depth, tiling.kc, target), depth, dims["tiles"]
        ),
    }
    dims |= {f"e{i}_step": step for i, step in enumerate(steps[3:])}
    copies = not f.packed and (dims["copied"] or columns % f.width != 0)
    space = depth * f.width * FLOAT_BYTES if copies else 0
    return finish_launch(f, dims, rows, levels, space)


def _flattened(
    levels: list[Level], rows: Dim, steps: list[Dim]
) -> tuple[list[Level], Dim, list[Dim]]:
    """The innermost axis made part of the rows, if B is the same along it."""
    if levels and levels[-1][1][1] == 0:
        size, inner = levels[-1]
        others = [i for i in range(len(steps)) if i != 1]
        if rows == 1:
            levels, rows, steps = levels[:-1], size, [inner[0], steps[1], *inner[2:]]
        elif all(inner[i] == rows * steps[i] for i in others):
            levels, rows = levels[:-1], rows * size
    return levels or [(1, [0] * len(steps))], rows, steps


def _packing(workload: Workload, schedule: Schedule, index: int) -> Packing | None:
    if not _packed(workload) or index != _places(workload)[1]:
        return None
    weights, tiling = _format(workload), Tiling.of(schedule)
    shorter = "" if weights == PLAIN else f", {weights} held as {tiling.weights}"

    def pack(value: Array) -> Array:
        if tiling.weights != PLAIN:
            return short_panels(value, tiling.nr, tiling.weights)
        return panels(rounded(value, weights)[None], tiling.nr)

    return Packing(f"panels of {tiling.nr}{shorter}", pack)


# --- weights in a shorter format ---------------------------------------------------------------

FEW = 8
"""Rows up to which a product waits for its weights, not for arithmetic."""


def _defaults(workload: Workload, points: TypicalPoints, target: Target) -> list[Schedule]:
    extents, weights = _extents(workload), _format(workload)
    chosen = cost.defaults(extents, points, target)
    if weights == PLAIN:
        return chosen
    most = points.extents(extents.rows)[len(SHARES) - 1 :: len(SHARES)]
    pairs = zip(chosen, most, strict=True)
    return [{**s, "weights": weights if rows <= FEW else PLAIN} for s, rows in pairs]


TEMPLATE = Template(
    name="matmul",
    accepts=_accepts,
    knobs=lambda workload, target: knobs(target, _packed(workload), _format(workload)),
    defaults=_defaults,
    legal=lambda _, schedule, target: unfit(schedule, target),
    source=lambda workload, schedule, target: source(_form(workload, schedule, target)),
    launch=_launch,
    packing=_packing,
    cost=_extents,
)
