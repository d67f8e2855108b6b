"""The template of depthwise convolutions over NHWC images, which need not lie padded."""

from __future__ import annotations

import math

from bucketize.kernel.depthwise import loops
from bucketize.kernel.depthwise.cost import DepthwiseCost
from bucketize.kernel.emit.module import form_source
from bucketize.kernel.emit.window import ORDERS, RIM, WindowForm
from bucketize.kernel.emit.writer import FLOAT_BYTES
from bucketize.kernel.gemm import epilogue
from bucketize.kernel.gemm.conv import (
    accepts_windows,
    is_padded,
    reads,
    row_step,
    weights_of,
    window,
)
from bucketize.kernel.gemm.matmul import balanced, balances, panels
from bucketize.kernel.schedule import Knob, Schedule
from bucketize.kernel.template import Launch, Packing, Shapes, Template, by_lines, everywhere
from bucketize.kernel.workload import Workload, accepted
from bucketize.machine.target import Target
from bucketize.op import Array
from bucketize.types import positive

LINE_TAPS = 3  # of a window's line, that stay in registers beside the sums; more are read again


def _accepts(workload: Workload) -> bool:
    if not accepts_windows(workload):
        return False
    channels, inner, _, _ = window(workload)
    return inner == 1 and workload.anchor.attrs["groups"] == channels


def _knobs(_: Workload, target: Target) -> dict[str, tuple[Knob, ...]]:
    return {
        "columns": (2, 4, 7, 8, 14),
        "channels": (target.lanes, 2 * target.lanes),
        "order": ORDERS,
    }


def _default(_: Workload, target: Target) -> dict[str, Knob]:
    arm = target.processor.vectors == "neon"  # where LLVM reads ahead: sums of seven were spilled
    wide = 7 if target.registers > 16 and not arm else 4
    return {"columns": wide, "channels": target.lanes, "order": "channels"}


def _legal(workload: Workload, schedule: Schedule, target: Target) -> str | None:
    columns, vectors = int(schedule["columns"]), int(schedule["channels"]) // target.lanes
    taps = min(window(workload)[3], LINE_TAPS)
    used = (columns + taps) * vectors + 1
    if used > target.registers:
        return (
            f"a tile of {columns} x {vectors} vectors needs {used} registers, "
            f"there are {target.registers}"
        )
    return None


def _form(workload: Workload, schedule: Schedule, target: Target) -> WindowForm:
    channels, _, height, width = window(workload)
    attrs, params = workload.anchor.attrs, workload.body.params
    x, w = (params.index(a) for a in workload.anchor.args)
    most, across = int(schedule["columns"]), workload.anchor.out.type.shape[2]
    even = isinstance(across, int) and balances(across, most)
    return WindowForm(
        lanes=target.lanes,
        columns=most,
        least=max(most - 1, 1) if even else 1,
        vectors=int(schedule["channels"]) // target.lanes,
        order=str(schedule["order"]),
        cut=channels % int(schedule["channels"]) != 0,
        kernel=(height, width),
        strides=tuple(attrs["strides"]),
        dilations=tuple(attrs["dilations"]),
        padded=is_padded(workload),
        inputs=len(params),
        x=x,
        w=w,
        epilogue=accepted(epilogue.of_workload(workload)),
    )


def _launch(workload: Workload, schedule: Schedule, shapes: Shapes, target: Target) -> Launch:
    form = _form(workload, schedule, target)
    image, (batch, height, across, channels) = shapes[form.x], shapes[-1]
    pixel = channels * FLOAT_BYTES
    line, pads = image[2] * pixel, workload.anchor.attrs["pads"]
    dims = balanced(across, form.columns) | {
        "height": height,
        "pixel": pixel,
        "line": line,
        "image": image[1] * line,
        "channels": channels,
        **dict(zip(RIM, (*image[1:3], *pads[:2]), strict=True)),
    }
    steps = [row_step(shapes[o.place]) for o in form.epilogue.operands]
    extent = batch * height * positive(across * channels)
    lines = by_lines(shapes[-1], 1, {form.x: reads(workload)})
    return Launch((*(dims[n] for n in form.dims), *steps), extent, lines=lines)


def _packing(workload: Workload, schedule: Schedule, index: int) -> Packing | None:
    """Weights [C, 1, height, width] as [block of channels, height, width, channel]."""
    if index != weights_of(workload):
        return None
    width = int(schedule["channels"])

    def pack(value: Array) -> Array:
        taps = value.reshape(1, len(value), math.prod(value.shape[2:])).transpose(0, 2, 1)
        packed: Array = panels(taps, width)[0]
        return packed

    return Packing(f"depthwise blocks of {width}", pack)


def sweep(workload: Workload) -> DepthwiseCost:
    """The cost of such a convolution."""
    attrs, out = workload.anchor.attrs, workload.result
    operands = accepted(epilogue.of_workload(workload)).operands
    _, _, height, width = window(workload)
    return DepthwiseCost(
        workload.anchor.args[0].type.shape,
        out.shape,
        kernel=(height, width),
        strides=tuple(attrs["strides"]),
        dilations=tuple(attrs["dilations"]),
        operands=sum(o.rows and o.columns for o in operands),
    )


TEMPLATE = Template(
    name="depthwise",
    accepts=_accepts,
    knobs=_knobs,
    defaults=everywhere(_default),
    legal=_legal,
    source=lambda workload, schedule, target: form_source(
        loops.__name__, _form(workload, schedule, target)
    ),
    launch=_launch,
    packing=_packing,
    cost=sweep,
)
