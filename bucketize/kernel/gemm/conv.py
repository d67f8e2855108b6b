"""The template of convolutions over NHWC images, which need not lie padded.

A convolution is the product of a matrix whose rows are the windows of the image, read in place,
and the weights; the rows of a tile may belong to several lines or images. What a tile sees of pads
is read from zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from bucketize.kernel.emit.writer import FLOAT_BYTES
from bucketize.kernel.gemm import cost, epilogue, matmul
from bucketize.kernel.gemm.form import TileForm
from bucketize.kernel.gemm.macrokernel import source
from bucketize.kernel.gemm.schedule import HIGH, Tiling, knobs, unfit
from bucketize.kernel.loops.conv import channels_out_last
from bucketize.kernel.schedule import Schedule
from bucketize.kernel.template import (
    Launch,
    Lines,
    LineWindow,
    Packing,
    Rows,
    Shapes,
    Template,
    pitch_of,
)
from bucketize.kernel.workload import Workload, accepted
from bucketize.machine.target import Target
from bucketize.op import Array
from bucketize.types import Dim, Shape, Type, ceil_div, product
from bucketize.types.number import DType


def is_padded(workload: Workload) -> bool:
    """Whether the windows of a convolution may see pads."""
    return any(p != 0 for p in workload.anchor.attrs["pads"])


def window(workload: Workload) -> tuple[int, ...]:
    """The extents of the weights: channels out, channels in, height, width."""
    return tuple(int(d) for d in workload.anchor.args[1].type.shape)  # type: ignore[arg-type]


def weights_of(workload: Workload) -> int:
    """The place of the weights among the parameters."""
    return workload.body.params.index(workload.anchor.args[1])


def even(operand: Type, out: Type) -> bool:
    """Whether an operand varies along all axes of the rows or along none."""
    shape = (1,) * (len(out.shape) - len(operand.shape)) + operand.shape
    pairs = [(a, b) for a, b in zip(shape[:-1], out.shape[:-1], strict=True) if b != 1]
    return all(a == b for a, b in pairs) or all(a == 1 for a, _ in pairs)


def accepts_windows(workload: Workload, dtype: DType = epilogue.FLOAT32) -> bool:
    """Whether the anchor is a convolution of NHWC images by constant weights, and all else fits."""
    is_product = matmul.accepts_product(workload, "conv2d", dtype)
    if not is_product or workload.anchor.attrs["layout"] != "NHWC":
        return False
    weights, out = workload.anchor.args[1], workload.anchor.out.type
    params = workload.body.params
    operands = accepted(epilogue.of_workload(workload)).operands
    fixed = workload.constant[params.index(weights)] and weights.type.is_static
    return fixed and all(even(params[o.place].type, out) for o in operands)


def is_pointwise(workload: Workload) -> bool:
    """Whether each window is one pixel, the next one's neighbour."""
    once = window(workload)[2:] == (1, 1) and tuple(workload.anchor.attrs["strides"]) == (1, 1)
    return once and not is_padded(workload)


def _form(workload: Workload, schedule: Schedule, target: Target) -> TileForm:
    return matmul.form(
        schedule,
        target,
        workload,
        _rows(workload),
        packed=True,
        image=not is_pointwise(workload),
        padded=is_padded(workload),
    )


def _rows(workload: Workload) -> Dim:
    return product(workload.anchor.out.type.shape[:3])


def _extents(workload: Workload) -> cost.ProductCost:
    """Extents of the product that the convolution is; its batch are the groups."""
    out, inner, height, width = window(workload)
    attrs, image = workload.anchor.attrs, not is_pointwise(workload)
    of_image = workload.anchor.args[0].type
    step = of_image.shape[3] * attrs["strides"][1] * of_image.dtype.itemsize
    groups = attrs["groups"]
    return cost.ProductCost(
        rows=_rows(workload),
        columns=out // groups,
        depth=inner // matmul.elements(workload) * height * width,
        batch=groups,
        image=image,
        a_step=step,
        a_share=min(math.prod(attrs["strides"]) / (height * width), 1.0),
    )


def _launch(workload: Workload, schedule: Schedule, shapes: Shapes, target: Target) -> Launch:
    f = _form(workload, schedule, target)
    attrs = workload.anchor.attrs
    channels_out, inner, *_ = window(workload)
    groups = attrs["groups"]
    batch, out_height, out_width, _ = shapes[-1]
    columns = channels_out // groups
    rows = batch * out_height * out_width
    reading = _reading(workload, shapes[f.a])
    dims = matmul.balanced(rows, f.mr, HIGH) | reading | _padding(workload, shapes[f.a])
    number = ceil_div(columns, f.width)
    total = product(reading[name] for name in ("taps", "inner_taps", "depth"))
    most = Tiling.of(schedule).kc
    units = matmul.depth_of_pass(rows, total, most, target)
    units = matmul.whole_if_alone(units, total, dims["tiles"])
    if f.image:  # whole windows took 1.02 to 1.04 of the time, though they are read once
        units = matmul.passes(reading["taps"], total // reading["taps"], most)
    dims |= {
        "panels": number,
        "columns": columns,
        "c_step": pitch_of(shapes[-1]) * matmul.element_size(workload),
        "panel_step": total * f.width * FLOAT_BYTES,
        "tap_bytes": dims["depth"] * f.width * FLOAT_BYTES,
        "width": out_width,
        "height": out_height,
        "pass_units": units,
    }
    operands = [shapes[o.place] for o in f.epilogue.operands]
    dims |= {f"e{i}_step": row_step(shape) for i, shape in enumerate(operands)}
    size = matmul.element_size(workload)
    steps = [inner * size, number * dims["panel_step"], columns * size]
    steps += [columns * FLOAT_BYTES if s and s[-1] != 1 else 0 for s in operands]
    zeros = ceil_div(inner, 2) * 2 * FLOAT_BYTES if f.padded else 0
    launch = matmul.finish_launch(f, dims, rows, [(groups, steps)], zeros)
    lines = Lines(
        tiles=dims["tiles"],
        low=dims["low"],
        tall=dims["tall"],
        across=out_width,
        down=out_height,
        spans=groups * number,
        windows={f.a: reads(workload)},
    )
    return replace(launch, lines=lines)


def reads(workload: Workload) -> LineWindow:
    """The lines of its image that a line of a convolution is made from."""
    return LineWindow.of(workload.anchor.attrs, window(workload)[2])


def row_step(operand: Shape) -> Dim:
    """Bytes from one row of an epilogue's operand to the next; 0 if there is but one.

    Where rows are as many as the result's, one row is no more than one there.
    """
    return pitch_of(operand) * FLOAT_BYTES if any(d != 1 for d in operand[:-1]) else 0


def _reading(workload: Workload, image: Shape) -> dict[str, Dim]:
    """The dims that tell how windows lie in the image.

    The columns of a window lie next to each other in memory, so that a line of it is one stretch,
    unless the window is dilated, sees a group of the channels only, or pixels lie apart.
    """
    _, channels, height, width = window(workload)
    inner, attrs = channels // matmul.elements(workload), workload.anchor.attrs
    (stride_y, stride_x), (dilation_y, dilation_x) = attrs["strides"], attrs["dilations"]
    pixel = pitch_of(image) * matmul.element_size(workload)
    line = image[2] * pixel
    together = dilation_x == 1 and not isinstance(image, Rows)
    whole = attrs["groups"] == 1 and (together or width == 1)
    return {
        "a_step": stride_x * pixel,
        "line_step": stride_y * line,
        "image_step": image[1] * line,
        "taps": height,
        "tap_step": dilation_y * line,
        "inner_taps": 1 if whole else width,
        "inner_tap_step": dilation_x * pixel,
        "depth": width * inner if whole else inner,
    }


def _padding(workload: Workload, image: Shape) -> dict[str, Dim]:
    """The dims that tell which taps of a window see pads."""
    _, inner, height, width = window(workload)
    attrs, pixel = workload.anchor.attrs, pitch_of(image) * matmul.element_size(workload)
    (stride_y, stride_x), (dilation_y, dilation_x) = attrs["strides"], attrs["dilations"]
    top, left, *_ = attrs["pads"]
    return {
        "before": (top * image[2] + left) * pixel,
        "across": width,
        "channels": inner // matmul.elements(workload),
        "down": image[1],
        "top": top,
        "stride_y": stride_y,
        "dilation_y": dilation_y,
        "reach_y": (height - 1) * dilation_y + 1,
        "right": image[2],
        "left": left,
        "stride_x": stride_x,
        "dilation_x": dilation_x,
        "reach_x": (width - 1) * dilation_x + 1,
    }


def pitched(workload: Workload) -> frozenset[int]:
    """Image, operands and result are read and written row by row."""
    return frozenset({-1, *range(len(workload.body.params))} - {weights_of(workload)})


def packing(
    workload: Workload,
    schedule: Schedule,
    index: int,
    panels: Callable[[Array, int], Array] = matmul.panels,
    as_pairs: str = "",
) -> Packing | None:
    """Weights OIHW as [group, panel, height, width, channels in, channels out of the panel]."""
    if index != weights_of(workload):
        return None
    groups, width = workload.anchor.attrs["groups"], Tiling.of(schedule).nr

    def pack(value: Array) -> Array:
        stack = channels_out_last(value, groups)
        depth, columns = math.prod(stack.shape[1:4]), stack.shape[4]
        return panels(stack.reshape(groups, depth, columns), width)

    return Packing(f"windows in {groups} groups, panels of {width}{as_pairs}", pack)


TEMPLATE = Template(
    name="conv2d",
    accepts=accepts_windows,
    knobs=lambda _, target: knobs(target, packed=True),
    defaults=lambda workload, points, target: cost.defaults(_extents(workload), points, target),
    legal=lambda _, schedule, target: unfit(schedule, target),
    source=lambda workload, schedule, target: source(_form(workload, schedule, target)),
    launch=_launch,
    packing=packing,
    cost=_extents,
    pitched=pitched,
)
