"""The template of convolutions of bytes over NHWC images: sums of 32 bits, exact."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from bucketize.kernel.emit.module import kernel_source
from bucketize.kernel.gemm.conv import is_pointwise, reads, window
from bucketize.kernel.int8 import image as windows
from bucketize.kernel.int8 import matmul as product_of_bytes
from bucketize.kernel.loops.conv import channels_out_last
from bucketize.kernel.loops.cost import Steps
from bucketize.kernel.loops.loop import only_op
from bucketize.kernel.schedule import Schedule
from bucketize.kernel.template import Launch, Lines, Packing, Shapes, Template, everywhere
from bucketize.kernel.workload import Workload
from bucketize.machine.target import Target
from bucketize.op import Array
from bucketize.ops import conv2d_integer
from bucketize.types import Dim, ceil_div


def _accepts(workload: Workload) -> bool:
    """Images by known weights."""
    b = only_op(workload)
    if b is None or b.op is not conv2d_integer or workload.body.params != b.args:
        return False
    return workload.constant == (False, True) and b.attrs["layout"] == "NHWC"


def _row(workload: Workload) -> Dim:
    """The bytes of a row that may be read where it lies; 1 where none may."""
    return window(workload)[1] if is_pointwise(workload) else 1


def _source(workload: Workload, schedule: Schedule, target: Target) -> str:
    form = product_of_bytes.form(workload, schedule, target, _row(workload))
    return kernel_source(windows.__name__, form)


def _launch(workload: Workload, schedule: Schedule, shapes: Shapes, target: Target) -> Launch:
    image, _w, (batch, height, width, columns) = shapes
    _, channels, taps, across = window(workload)
    attrs = workload.anchor.attrs
    (stride_y, stride_x), (dilation_y, dilation_x) = attrs["strides"], attrs["dilations"]
    pieces, pixels = (1, across) if dilation_x == 1 else (across, 1)
    top, left, *_ = attrs["pads"]
    zero = product_of_bytes.as_laid_out(workload, schedule, attrs["zero"])
    lies = (zero, height, width, image[1], image[2], channels, taps, pieces, pixels)
    more = (*lies, stride_y, stride_x, dilation_y, dilation_x, top, left)
    depth = taps * across * channels
    launch = product_of_bytes.launch(batch * height * width, depth, columns, schedule, target, more)
    _rows, _depth, _columns, panels, low, tall, *_ = launch.dims
    lines = Lines(
        tiles=ceil_div(launch.extent, panels),
        low=low,
        tall=tall,
        across=width,
        down=height,
        step=panels,
        windows={0: reads(workload)},
    )
    return replace(launch, lines=lines)


def _packing(workload: Workload, schedule: Schedule, index: int) -> Packing | None:
    """Weights OIHW as a matrix: height, width and channels in by channels out."""
    if index != 1:
        return None
    key, packed = product_of_bytes.packing(workload, schedule, workload.anchor.attrs["zero"])

    def pack(value: Array) -> Array:
        return packed(channels_out_last(value, 1).reshape(-1, len(value)))

    return Packing(f"windows, {key}", pack)


TEMPLATE = Template(
    name="conv2d_bytes",
    accepts=_accepts,
    knobs=product_of_bytes.knobs,
    defaults=everywhere(product_of_bytes.default),
    source=_source,
    launch=_launch,
    packing=_packing,
    cost=partial(Steps, _launch, product_of_bytes.counts),
)
