"""Which family of cores a machine's are: that whose constants say best what kernels take here.

Names of processors do not tell: those of one name differ from cloud to cloud, and new ones have
none that is known. A convolution tells on processors of 16 lanes. With 8 both families are about
as far off, and a product tells besides, whose weights come from memory.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from bucketize.ir import Builder, Var
from bucketize.kernel.build import build
from bucketize.kernel.cost import seconds as modelled
from bucketize.kernel.emit.writer import FLOAT_BYTES
from bucketize.kernel.gemm.cost import best
from bucketize.kernel.product import Product
from bucketize.kernel.schedule import Implementation, Schedule
from bucketize.kernel.templates import TEMPLATES
from bucketize.kernel.workload import Workload
from bucketize.link.ffi import function_at
from bucketize.link.memory import address, empty_bytes
from bucketize.machine.speed import FAMILIES
from bucketize.machine.target import Target
from bucketize.op import Op
from bucketize.ops import conv2d, matmul
from bucketize.timing import processor_seconds
from bucketize.types import TensorType, evaluate, product, tensor

IMAGE, WINDOW, STRIDE = (1, 114, 114, 96), (3, 3), 2
"""A layer of mobilenetv2, whose lines are read channel by channel: on three processors of 16 lanes
it takes by Intel's constants 1.9 to 3.2 times as long as by AMD's."""
COLUMNS, ORDER = 7, "lines"
ROWS, DEPTH, WIDTH = 16, 768, 768
"""A product of an encoder: on a Zen 3, where by Intel's constants the convolution takes 1.3 to 2.2
of its time and by AMD's 0.3 to 0.65, it takes 0.83 to 1.13 and 0.59 to 0.82."""
COPIES = 24  # of its weights, in turns: 54 MiB
OPEN = 0.9  # between the logarithms by which families are off: nearer, none is the one
WEIGHT = 2  # of a product: models have more of them
ROUNDS = 30  # of which the best counts


def family(target: Target) -> str:
    """The family of the cores of this machine, whose speed the target has.

    Raises KernelError where a kernel cannot be compiled.
    """
    errors = _errors(convolution(), target)
    first, second = sorted(errors.values())[:2]
    if second - first < OPEN:
        of_product = _errors(dense(), target, COPIES)
        errors = {name: error + WEIGHT * of_product[name] for name, error in errors.items()}
    return min(errors, key=errors.__getitem__)


def _errors(load: Workload, target: Target, copies: int = 1) -> dict[str, float]:
    """How far each family is off: the logarithm of the factor."""
    way, weights = implementation(load, target), load.body.params[1].type
    took = seconds(load, way, target, copies)
    passed = evaluate(product(weights.shape), {}) * FLOAT_BYTES * copies if copies > 1 else 0
    targets = {name: replace(target, family=name) for name in FAMILIES}
    each = {name: modelled(load, way, {}, its, passed) for name, its in targets.items()}
    return {name: abs(math.log(expected / took)) for name, expected in each.items()}


def convolution() -> Workload:
    """A depthwise convolution."""
    channels = IMAGE[-1]
    of = conv2d, tensor("float32", *IMAGE), tensor("float32", channels, 1, *WINDOW)
    return _workload(*of, strides=(STRIDE, STRIDE), groups=channels, layout="NHWC")


def dense() -> Workload:
    """A product with weights."""
    return _workload(matmul, tensor("float32", ROWS, DEPTH), tensor("float32", DEPTH, WIDTH))


def _workload(op: Op, x: TensorType, w: TensorType, **attrs: Any) -> Workload:
    body, params = Builder(), [Var("x", x), Var("w", w)]
    return Workload(body.function("", params, [body.emit(op, *params, **attrs)]), (False, True))


def implementation(load: Workload, target: Target) -> Implementation:
    """What the model is asked about."""
    if load.anchor.op is matmul:
        return Implementation("matmul", best(Product((ROWS,), WIDTH, DEPTH), target))
    schedule: Schedule = {"columns": COLUMNS, "channels": target.lanes, "order": ORDER}
    return Implementation("depthwise", schedule)


def seconds(load: Workload, way: Implementation, target: Target, copies: int = 1) -> float:
    """The seconds of a call of the best round on one core; of weights there are some copies."""
    template = TEMPLATES[way.template]
    kernel = build(template.source(load, way.schedule, target), name_hint=template.name)
    shapes = tuple(t.shape for t in (*(p.type for p in load.body.params), load.result))
    launch = template.launch(load, way.schedule, shapes, target).at({})
    x, w, out = (FLOAT_BYTES * evaluate(product(shape), {}) for shape in shapes)
    arrays = [empty_bytes(size) for size in (out, x, evaluate(launch.workspace, {}), *[w] * copies)]
    for array in arrays:
        array.fill(0)
    result, image, workspace, *weights = map(address, arrays)
    rest = workspace, 0, launch.extent, *launch.dims
    blocks = [np.array([result, image, each, *rest], np.int64) for each in weights]
    call, places = function_at(kernel.address), [address(block) for block in blocks]
    rounds = (processor_seconds(lambda: [call(at) for at in places]) for _ in range(ROUNDS))
    return min(rounds) / copies
