"""Which family of cores a machine's are: that whose constants say best what a kernel takes here.

Names of processors do not tell: those of one name differ from cloud to cloud, and new ones have
none that is known.
"""

from __future__ import annotations

import math

import numpy as np

from bucketize.ir import Builder, Var
from bucketize.kernel.build import build
from bucketize.kernel.depthwise.cost import FITTED
from bucketize.kernel.depthwise.template import TEMPLATE, sweep
from bucketize.kernel.emit.writer import FLOAT_BYTES
from bucketize.kernel.schedule import Schedule
from bucketize.kernel.workload import Workload
from bucketize.link.ffi import function_at
from bucketize.link.memory import address, empty_bytes
from bucketize.machine.target import Target
from bucketize.ops import conv2d
from bucketize.timing import processor_seconds
from bucketize.types import Points, evaluate, product, tensor

IMAGE, WINDOW, STRIDE = (1, 114, 114, 96), (3, 3), 2
"""A layer of mobilenetv2, whose lines are read channel by channel: on three processors of 16 lanes
it takes by Intel's constants 1.9 to 3.2 times as long as by AMD's."""
COLUMNS, ORDER = 7, "lines"
ROUNDS = 30  # of which the best counts


def family(target: Target) -> str:
    """The family of the cores of this machine, whose speed the target has.

    Raises KernelError where the kernel cannot be compiled.
    """
    load = layer()
    schedule: Schedule = {"columns": COLUMNS, "channels": target.lanes, "order": ORDER}
    took, cost, point = seconds(load, schedule, target), sweep(load), Points([{}])

    def error(name: str) -> float:
        expected = cost.modelled([schedule], point, target, FITTED[name])
        return abs(math.log(expected[0, 0] / took))

    return min(FITTED, key=error)


def layer() -> Workload:
    """The convolution."""
    channels, body = IMAGE[-1], Builder()
    x = Var("x", tensor("float32", *IMAGE))
    w = Var("w", tensor("float32", channels, 1, *WINDOW))
    y = body.emit(conv2d, x, w, strides=(STRIDE, STRIDE), groups=channels, layout="NHWC")
    return Workload(body.function("", [x, w], [y]), (False, True))


def seconds(load: Workload, schedule: Schedule, target: Target) -> float:
    """The seconds of the best round of a convolution on one core."""
    kernel = build(TEMPLATE.source(load, schedule, target), name_hint=TEMPLATE.name)
    shapes = tuple(t.shape for t in (*(p.type for p in load.body.params), load.result))
    launch = TEMPLATE.launch(load, schedule, shapes, target).at({})
    floats = [evaluate(product(shape), {}) for shape in (shapes[-1], *shapes[:-1])]
    sizes = [*(FLOAT_BYTES * n for n in floats), evaluate(launch.workspace, {})]
    memory = [empty_bytes(size) for size in sizes]
    for array in memory:
        array.fill(0)
    block = np.array([*map(address, memory), 0, launch.extent, *launch.dims], np.int64)
    call, place = function_at(kernel.address), address(block)
    return min(processor_seconds(lambda: call(place)) for _ in range(ROUNDS))
