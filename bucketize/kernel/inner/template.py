"""The template of convolutions of few channels out, over NHWC images that need not lie padded."""

from __future__ import annotations

import numpy as np

from bucketize.kernel.emit.module import form_source
from bucketize.kernel.emit.writer import FLOAT_BYTES
from bucketize.kernel.gemm import conv, epilogue
from bucketize.kernel.gemm.conv import accepts_windows, reads, row_step, weights_of, window
from bucketize.kernel.inner import loops
from bucketize.kernel.inner.cost import InnerCost
from bucketize.kernel.inner.form import FILLED, InnerForm
from bucketize.kernel.schedule import Knob, Schedule
from bucketize.kernel.template import (
    Launch,
    Packing,
    Shapes,
    Template,
    by_lines,
    everywhere,
    pitch_of,
)
from bucketize.kernel.workload import Workload, accepted
from bucketize.machine.target import Target
from bucketize.op import Array
from bucketize.types import positive

MOST_OUTS = 12
COLUMNS = (1, 2, 3, 4, 6, 8, 12)


def _accepts(workload: Workload) -> bool:
    if not accepts_windows(workload):
        return False
    attrs = workload.anchor.attrs
    outs, _, _, width = window(workload)
    together = attrs["dilations"][1] == 1 or width == 1
    return outs <= MOST_OUTS and attrs["groups"] == 1 and together


def _default(workload: Workload, target: Target) -> dict[str, Knob]:
    fits = [c for c in COLUMNS if _legal(workload, {"columns": c}, target) is None]
    return {"columns": max(fits, default=COLUMNS[0])}


def _legal(workload: Workload, schedule: Schedule, target: Target) -> str | None:
    columns, outs = int(schedule["columns"]), window(workload)[0]
    used = columns * outs + columns + 1
    if used > target.registers and columns > 1:
        return (
            f"a tile of {columns} pixels by {outs} channels needs {used} registers, "
            f"there are {target.registers}"
        )
    return None


def _form(workload: Workload, schedule: Schedule, target: Target) -> InnerForm:
    outs, channels, *kernel = window(workload)
    attrs, params = workload.anchor.attrs, workload.body.params
    x, w = (params.index(a) for a in workload.anchor.args)
    return InnerForm(
        lanes=target.lanes,
        columns=int(schedule["columns"]),
        outs=outs,
        channels=channels,
        kernel=(kernel[0], kernel[1]),
        strides=tuple(attrs["strides"]),
        dilation=attrs["dilations"][0],
        pads=tuple(attrs["pads"]),
        inputs=len(params),
        x=x,
        w=w,
        epilogue=accepted(epilogue.of_workload(workload)),
    )


def _launch(workload: Workload, schedule: Schedule, shapes: Shapes, target: Target) -> Launch:
    form = _form(workload, schedule, target)
    image, (batch, height, across, _) = shapes[form.x], shapes[-1]
    pixels = [pitch_of(shape) * FLOAT_BYTES for shape in (image, shapes[-1])]
    pixels += [row_step(shapes[o.place]) for o in form.epilogue.operands]
    line = image[2] * pixels[0]
    dims = (height, across, line, image[1] * line, image[1], image[2], *pixels)
    lines = by_lines(shapes[-1], 1, {form.x: reads(workload)})
    return Launch(dims, batch * height * positive(across), lines=lines)


def _packing(workload: Workload, _: Schedule, index: int) -> Packing | None:
    """Weights OIHW as [channel out, height, stretch], each stretch filled up with zeros."""
    if index != weights_of(workload):
        return None

    def pack(value: Array) -> Array:
        outs, channels, height, width = value.shape
        stretches = value.transpose(0, 2, 3, 1).reshape(outs, height, width * channels)
        beyond = -stretches.shape[2] % FILLED
        return np.ascontiguousarray(np.pad(stretches, ((0, 0), (0, 0), (0, beyond))))

    return Packing(f"stretches filled up to {FILLED}", pack)


TEMPLATE = Template(
    name="inner",
    accepts=_accepts,
    knobs=lambda *_: {"columns": COLUMNS},
    defaults=everywhere(_default),
    legal=_legal,
    source=lambda workload, schedule, target: form_source(
        loops.__name__, _form(workload, schedule, target)
    ),
    launch=_launch,
    packing=_packing,
    pitched=conv.pitched,
    cost=InnerCost.of,
)
