"""The template of convolutions by minimal filtering, beside the direct one.

Windows have 2 to 7 taps along an axis, of each phase where the stride is not 1, or one tap. It
multiplies less, (m + 2) / 3m as often along an axis of 3 taps, and rounds more: of the largest
magnitude of the result the error is that of the direct one for axes of size 4, 2e-5 at most for 6
and 4e-5 for 8, unless terms cancel so that the direct one's is no less. A patch with results that
are not finite, huge or denormal is computed once more, directly.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from bucketize.kernel.emit.module import form_source
from bucketize.kernel.emit.writer import FLOAT_BYTES
from bucketize.kernel.gemm import epilogue
from bucketize.kernel.gemm.conv import accepts_windows, pitched, reads, row_step, weights_of, window
from bucketize.kernel.gemm.matmul import balanced, balances
from bucketize.kernel.gemm.schedule import fetches_near, tallest
from bucketize.kernel.schedule import Knob, Schedule
from bucketize.kernel.template import (
    Launch,
    Lines,
    Packing,
    Shapes,
    Template,
    combinations,
    pitch_of,
)
from bucketize.kernel.typical import TypicalPoints
from bucketize.kernel.winograd import loops
from bucketize.kernel.winograd import matrices as minimal
from bucketize.kernel.winograd.cost import WinogradCost
from bucketize.kernel.winograd.input import DIMS, PLACE_BYTES, Axes, WinogradForm
from bucketize.kernel.winograd.loops import most_patches, row_bytes, tile_rows
from bucketize.kernel.winograd.matrices import Axis
from bucketize.kernel.workload import Workload, accepted
from bucketize.machine.target import LINE, Target
from bucketize.op import Array
from bucketize.types import Dim, Shape, ceil_div, maximum, minimum, positive, product

WHOLE = 16
"""Channels, vectors of any width: so the phases of a patch lie in V without gaps, as one sum."""
UNMEASURED = 4
"""The greatest m of a default: results are sums of products by powers of points, up to m - 1.
Filters that find edges, on pixels far from 0, take F(6,3) to 2.6 times the direct kernel's error,
F(4,3) and F(4,5) to 0.9; a search measures, and keeps to 1e-4 of the largest result."""


def _accepts(workload: Workload) -> bool:
    if not accepts_windows(workload):
        return False
    attrs = workload.anchor.attrs
    out, inner, *kernel = window(workload)
    dense = tuple(attrs["dilations"]) == (1, 1)
    several = inner > 1 or (attrs["groups"] == 1 and inner)  # there are sums over channels
    has_sizes = kernel != [1, 1] and _usual(workload)
    together = tuple(attrs["strides"]) == (1, 1) or (attrs["groups"] == 1 and inner % WHOLE == 0)
    wanted = attrs["precision"] == "default" and has_sizes and several and out
    return bool(wanted and dense and together)


def axes_of(workload: Workload, m: int) -> Axes:
    """Axes of a patch of m lines, or columns, where the window has several."""
    _, _, *kernel = window(workload)
    each = zip(kernel, workload.anchor.attrs["strides"], strict=True)
    y, x = (Axis(m if taps > 1 else 1, taps, stride) for taps, stride in each)
    return y, x


def _numbers(workload: Workload) -> tuple[int, ...]:
    """Which m there are: those whose axes have a size with points."""
    sizes = (1, *minimal.POSITIVE)

    def able(axis: Axis) -> bool:
        return axis.size in sizes and (axis.longest > 1 or axis.taps == 1)

    return tuple(m for m in range(2, max(sizes)) if all(map(able, axes_of(workload, m))))


def _usual(workload: Workload) -> tuple[int, ...]:
    """Sizes that a default may have."""
    return tuple(m for m in _numbers(workload) if m <= UNMEASURED)


def _in_order(workload: Workload) -> tuple[int, ...]:
    """The one size that sums in one order have: none where there are strides.

    Their patches see pixels that no window does, and would, were the image padded.
    """
    return _usual(workload)[-1:] if tuple(workload.anchor.attrs["strides"]) == (1, 1) else ()


def _channels(workload: Workload) -> int:
    """Channels of the image, of all groups."""
    _, inner, *_ = window(workload)
    return inner * int(workload.anchor.attrs["groups"])


def _knobs(workload: Workload, target: Target) -> dict[str, tuple[Knob, ...]]:
    """How many lines a patch gives, and the width of panels; their tiles are the tallest."""
    widths = (v * target.lanes for v, rows in tallest(target).items() if v > 1 and rows >= 4)
    numbers = _in_order(workload) if target.in_order else _numbers(workload)
    return {"m": numbers, "nr": tuple(widths)}


def _defaults(workload: Workload, points: TypicalPoints, target: Target) -> list[Schedule]:
    knobs = _knobs(workload, target)
    knobs["m"] = tuple(m for m in knobs["m"] if m in _usual(workload))
    return _cost(workload).best(combinations(knobs), points, target)


def _patches(workload: Workload, out: Shape, m: int) -> Dim:
    """Patches of all images of a result."""
    (batch, height, width, _), (y, x) = out, axes_of(workload, m)
    return product((batch, ceil_div(height, y.m), ceil_div(width, x.m)))


def _blocks(workload: Workload, schedule: Schedule, target: Target, out: Shape) -> dict[str, Dim]:
    """The dims that cut the patches of a result into balanced blocks."""
    m, width = int(schedule["m"]), int(schedule["nr"])
    most = most_patches(_channels(workload), width, axes_of(workload, m), target)
    return balanced(_patches(workload, out, m), most)


def _form(workload: Workload, schedule: Schedule, target: Target) -> WinogradForm:
    params = workload.body.params
    x, w = (params.index(a) for a in workload.anchor.args)
    low = _blocks(workload, schedule, target, workload.anchor.out.type.shape)["low"]
    rows = tile_rows(int(schedule["nr"]), target)
    axes = axes_of(workload, int(schedule["m"]))
    return WinogradForm(
        lanes=target.lanes,
        high=axes[0].m,
        wide=axes[1].m,
        taps=(axes[0].taps, axes[1].taps),
        strides=(axes[0].stride, axes[1].stride),
        rows=rows,
        least=max(rows - 1, 1) if isinstance(low, int) and balances(low, rows) else 1,
        vectors=int(schedule["nr"]) // target.lanes,
        inputs=len(params),
        x=x,
        w=w,
        in_order=target.in_order,
        near=fetches_near(target),
        epilogue=accepted(epilogue.of_workload(workload)),
    )


def _launch(workload: Workload, schedule: Schedule, shapes: Shapes, target: Target) -> Launch:
    form, out = _form(workload, schedule, target), shapes[-1]
    blocks = _blocks(workload, schedule, target, out)
    patches = _patches(workload, out, int(schedule["m"]))
    dims = blocks | _reading(workload, shapes[form.x], out, form)
    dims |= _workspace(workload, form, ceil_div(patches, blocks["tiles"]))
    (channels_out, inner, *_), groups = window(workload), workload.anchor.attrs["groups"]
    columns = channels_out // groups
    dims |= {
        "groups": groups,
        "depth": inner,
        "columns": columns,
        "panels": ceil_div(columns, form.width),
        "c_step": pitch_of(out) * FLOAT_BYTES,
    }
    steps = [row_step(shapes[o.place]) for o in form.epilogue.operands]
    extent = blocks["tiles"] * groups * dims["panels"] * positive(patches)
    workspace = dims["places"] + form.elements * (dims["v_step"] + dims["m_step"])
    lines = Lines(
        tiles=blocks["tiles"],
        low=blocks["low"],
        tall=blocks["tall"],
        across=dims["across"],
        down=dims["down"],
        high=form.high,
        step=groups * dims["panels"],
        windows={form.x: reads(workload)},
    )
    return Launch((*(dims[n] for n in DIMS), *steps), extent, workspace=workspace, lines=lines)


def _reading(workload: Workload, image: Shape, out: Shape, form: WinogradForm) -> dict[str, Dim]:
    """The dims that tell how patches lie in image and result."""
    channels = _channels(workload)
    _, height, width, _ = out
    top, left, *_ = workload.anchor.attrs["pads"]
    pixel = pitch_of(image) * FLOAT_BYTES
    return {
        "channels": channels,
        "down": ceil_div(height, form.high),
        "across": ceil_div(width, form.wide),
        "height": height,
        "width": width,
        "pixel": pixel,
        "line": image[2] * pixel,
        "image": image[1] * image[2] * pixel,
        "down_to": _seen(image[1], (height - 1) * form.strides[0] + form.taps[0] - top),
        "right_to": _seen(image[2], (width - 1) * form.strides[1] + form.taps[1] - left),
        "top": top,
        "left": left,
    }


def _seen(extent: Dim, end: Dim) -> Dim:
    """Where an image ends to patches: no later than its last window.

    A patch that sticks out of the result sees more: a strip does not have it, and it would round
    results that are not made of it.
    """
    return minimum(extent, maximum(end, 0))


def _workspace(workload: Workload, form: WinogradForm, patches: Dim) -> dict[str, Dim]:
    """The dims that tell how the largest block lies in the workspace.

    Between elements is a line more: all of a patch are written side by side.
    """
    row = row_bytes(_channels(workload) * form.phases)
    return {
        "v_row": row,
        "v_step": patches * row + LINE,
        "m_step": patches * form.width * FLOAT_BYTES + LINE,
        "places": ceil_div(patches * PLACE_BYTES, LINE) * LINE,
    }


def _packing(workload: Workload, schedule: Schedule, index: int) -> Packing | None:
    """Weights OIHW transformed, and behind them all as they are.

    Both lie as [group, panel, element and phase or tap, channels in, channels out of the panel].
    """
    if index != weights_of(workload):
        return None
    attrs, m, width = workload.anchor.attrs, int(schedule["m"]), int(schedule["nr"])
    groups, strides = attrs["groups"], tuple(attrs["strides"])

    def pack(value: Array) -> Array:
        matrix, (out, inner, *taps) = _elements(axes_of(workload, m)), value.shape
        panels = groups * -(-out // groups // width)
        elements = panels * len(matrix)
        packed = np.zeros((elements + panels * math.prod(taps), inner, width), np.float32)
        with np.errstate(over="ignore", invalid="ignore"):  # the results will tell, and go directly
            _put_panels(packed[:elements], value, groups, matrix)
        _put_panels(packed[elements:], value, groups)
        return packed

    return Packing(f"winograd {m} by {strides} in {groups} groups, panels of {width}", pack)


def _elements(axes: Axes) -> Array:
    """[element and phase, tap]: what each makes of the taps of a filter, in float64."""
    (y, x), (down, across) = axes, map(_along, axes)
    rows = [
        np.kron(down[i, p], across[j, q])
        for (lines, some), (columns, many) in itertools.product(y.parts, x.parts)
        for i, j in itertools.product(lines, columns)
        for p, q in itertools.product(range(some), range(many))
    ]
    return np.array(rows)


def _along(axis: Axis) -> Array:
    """[element, phase, tap] of one axis."""
    matrix = np.zeros((axis.size, axis.phases, axis.taps))
    for p in range(axis.phases):
        number = len(range(p, axis.taps, axis.stride))
        matrix[:, p, p :: axis.stride] = np.array(minimal.taps(axis.size, number), np.float64)
    return matrix


def _put_panels(packed: Array, value: Array, groups: int, matrix: Array | None = None) -> None:
    """Put [channels out, channels in, y, x] as [group, panel, y, x] x channels in x width.

    Or, of a `matrix` [element, y and x], as [group, panel, element] x ...: a panel at a time, so
    that what it needs beside the result is small, and no product so large that BLAS takes threads.
    """
    out, inner, *_ = value.shape
    width = packed.shape[-1]
    apart = value.reshape(groups, out // groups, inner, -1)
    number = -(-apart.shape[1] // width)
    panels = packed.reshape(groups, number, -1, inner, width)
    for group, panel in np.ndindex(groups, number):
        part = apart[group, panel * width :][:width].transpose(1, 2, 0)
        if matrix is not None:
            part = matrix @ part.astype(np.float64, order="C")
        panels[group, panel, ..., : part.shape[2]] = part.swapaxes(0, 1)


def _cost(workload: Workload) -> WinogradCost:
    (channels_out, inner, *_), groups = window(workload), workload.anchor.attrs["groups"]
    out, some = workload.anchor.out.type.shape, _numbers(workload)
    patches = {m: _patches(workload, out, m) for m in some}
    axes = {m: axes_of(workload, m) for m in some}
    return WinogradCost(patches, axes, inner, channels_out // groups, groups)


TEMPLATE = Template(
    name="winograd",
    minimal=True,
    accepts=_accepts,
    knobs=_knobs,
    defaults=_defaults,
    source=lambda workload, schedule, target: form_source(
        loops.__name__, _form(workload, schedule, target)
    ),
    launch=_launch,
    packing=_packing,
    cost=_cost,
    pitched=pitched,
)
