"""The text of generated kernels: one workload for each template, on a machine that does not exist.

The text of a loop kernel is all of it; that of a vector kernel names what its code is made from. So
the code itself is kept, too, of the smallest form with four lanes: as it is written, before LLVM
makes it fast for some machine.
"""

from __future__ import annotations

import re
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from conftest import Golden
from kernel_call import F32, C, Group, M, N, number, workload
from test_kernel_loops import workload_of

from bucketize import ops
from bucketize.kernel.emit.module import module_text
from bucketize.kernel.int8 import loops
from bucketize.kernel.schedule import Implementation
from bucketize.kernel.template import Template
from bucketize.kernel.templates import TEMPLATES, VECTOR
from bucketize.kernel.workload import Workload
from bucketize.machine.target import Processor, Target
from bucketize.op import Op
from bucketize.ops.sample import parse
from bucketize.types import Symbol, tensor

H, W = Symbol("H"), Symbol("W")
MACHINE = Target(
    "golden",
    8,
    16,
    32 << 10,
    512 << 10,
    32 << 20,
    Processor("", "golden", "", "", is_restricted=False),
)


def dense() -> Workload:
    """Weights and a bias that are known, a residual, and no negative results."""
    g = Group(tensor(F32, N, 64), tensor(F32, 64, 48), tensor(F32, 48), tensor(F32, N, 48))
    x, weights, bias, residual = g.params
    y = g(ops.add, g(ops.add, g(ops.matmul, x, weights), bias), residual)
    return replace(g.returns(g(ops.relu, y)), constant=(False, True, True, False))


def heads() -> Workload:
    """Scaled scores through a mask, and heads that lie beside each other."""
    g = Group(*[tensor(F32, N, M, 4, C)] * 3, tensor(F32, N, 1, 1, M))
    turns = ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3))
    q, k, v = (g(ops.transpose, x, axes=a) for x, a in zip(g.params, turns, strict=False))
    scores = g(ops.add, g(ops.mul, g(ops.matmul, q, k), number(0.125)), g.params[3])
    y = g(ops.matmul, g(ops.softmax, scores, axis=3), v)
    return g.returns(g(ops.transpose, y, axes=(0, 2, 1, 3)))


def convolution(*weights: int, strides: tuple[int, int] = (2, 2), **attrs: Any) -> Workload:
    """Weights and a bias that are known, and a clipped result."""
    g = Group(tensor(F32, N, 9, 9, 16), tensor(F32, *weights), tensor(F32, weights[0]))
    x, w, bias = g.params
    y = g(ops.add, g(ops.conv2d, x, w, layout="NHWC", strides=strides, **attrs), bias)
    return replace(g.returns(g(ops.clip, y, lo=0.0, hi=6.0)), constant=(False, True, True))


def elementwise() -> Workload:
    """A bias along rows, a factor along the outermost axis, and a number."""
    g = Group(tensor(F32, N, M, C), tensor(F32, C), tensor(F32, N, 1, 1))
    x, bias, factor = g.params
    y = g(ops.mul, g(ops.sigmoid, g(ops.add, x, bias)), factor)
    return g.returns(g(ops.sub, y, number(0.5)))


def root_mean_square() -> Workload:
    """A norm of several ops, and a weight for each element."""
    g = Group(tensor(F32, N, M, C), tensor(F32, C))
    x, weight = g.params
    mean = g(ops.reduce_mean, g(ops.mul, x, x), axes=(2,), keepdims=True)
    return g.returns(g(ops.mul, g(ops.mul, x, g(ops.rsqrt, mean)), weight))


def rotary() -> Workload:
    """Heads beside each other, and angles that they share."""
    g = Group(tensor(F32, N, M, 4, 16), *[tensor(F32, 1, 1, M, 16)] * 2)
    x, cos, sin = g.params
    x = g(ops.transpose, x, axes=(0, 2, 1, 3))
    halves = [{"begin": (b,), "end": (b + 8,), "strides": (1,), "axes": (3,)} for b in (8, 0)]
    high, low = (g(ops.strided_slice, x, **cut) for cut in halves)
    turned = g(ops.concat, g(ops.neg, high), low, axis=3)
    return g.returns(g(ops.add, g(ops.mul, x, cos), g(ops.mul, turned, sin)))


def lone(op: Op, sample: str) -> Workload:
    """One op, in the grammar of `samples`."""
    return workload_of(parse(op, sample, 0))


def pooling(op: Op, **attrs: Any) -> Workload:
    """Windows that hang over on all sides, of any number of channels."""
    image = tensor(F32, N, H + 2, W + 2, C)
    window: dict[str, Any] = {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}
    return workload(op, image, **window, **attrs, layout="NHWC")


WORKLOADS = {
    "matmul": dense(),
    "matmul_bytes": replace(
        lone(ops.matmul_integer, "uint8[N, 20], int8[20, 30]"), constant=(False, True)
    ),
    "matmul_bfloat16": replace(
        lone(ops.matmul, "bfloat16[N, 20], bfloat16[20, 30]"), constant=(False, True)
    ),
    "conv2d_bfloat16": replace(
        lone(ops.conv2d, "bfloat16[N, H+2, W+2, 20], bfloat16[30, 20, 3, 3] {layout='NHWC'}"),
        constant=(False, True),
    ),
    "attention": heads(),
    "depthwise": convolution(16, 1, 3, 3, groups=16),
    "conv2d": convolution(24, 16, 3, 3),
    "inner": convolution(3, 16, 3, 3),
    "conv2d_bytes": replace(
        lone(ops.conv2d_integer, "uint8[N, H+2, W+2, 20], int8[30, 20, 3, 3] {layout='NHWC'}"),
        constant=(False, True),
    ),
    "winograd": convolution(24, 16, 3, 3, strides=(1, 1)),
    "pool_nhwc": pooling(ops.avg_pool2d, count_include_pad=True),
    "rows": root_mean_square(),
    "rotary": rotary(),
    "elementwise": elementwise(),
    "transpose": lone(ops.transpose, "float32[N, C, H, W] {axes=(0, 2, 3, 1)}"),
    "broadcast_to": lone(ops.broadcast_to, "float32[N, 1] {shape=(M, N, C)}"),
    "strided_slice": lone(
        ops.strided_slice, "int64[N, C] {begin=(1, 0), end=(9, -1), strides=(1, 2), axes=(0, 1)}"
    ),
    "tile": lone(ops.tile, "float32[N, C] {repeats=(M, 3)}"),
    "concat": lone(ops.concat, "float32[N, C], float32[N, D] {axis=1}"),
    "pad": lone(ops.pad, "float32[N, H, C] {pads=((0, 0), (1, 2), (0, 0)), value=7.0}"),
    "mask_tail": lone(ops.mask_tail, "float32[N, M, C], int64[] {axis=1, value=0.0}"),
    "full": lone(ops.full, '{shape=(N, C), value=1.5, dtype="float32"}'),
    "arange": lone(ops.arange, "{start=2, stop=N}"),
    "reduce": lone(ops.reduce_mean, "float32[N, C, H] {axes=(0, 2)}"),
    "segment": lone(ops.segment_sum, "float32[N, M, C], int64[B] {axis=1}"),
    "softmax": lone(ops.softmax, "float32[N, C] {axis=1}"),
    "layer_norm": lone(ops.layer_norm, "float32[N, C, H], float32[H], float32[H] {axis=2}"),
    "argmax": lone(ops.argmax, "float32[N, C] {axis=1}"),
    "cumsum": lone(ops.cumsum, "int64[N, C] {axis=0, exclusive=True, reverse=True}"),
    "pool": pooling(ops.max_pool2d),
    "resize": lone(
        ops.resize, "float32[N, C, H, W] {axes=(2, 3), sizes=(2*H, 2*W), mode='linear'}"
    ),
    "grid_sample": lone(ops.grid_sample, "float32[N, C, H, W], float32[N, M, 3, 2]"),
    "roi_align": lone(
        ops.roi_align, "float32[B, H, W, C], float32[M, 4], int64[M] {size=(7, 7), layout='NHWC'}"
    ),
    "gather": lone(ops.gather, "float32[N, C, H], int64[M] {axis=1}"),
    "gather_elements": lone(ops.gather_elements, "float32[N, C], int64[N, M] {axis=1}"),
    "gather_nd": lone(ops.gather_nd, "float32[B, 2, C], int64[B, M, 1] {batch_dims=1}"),
    "scatter_elements": lone(
        ops.scatter_elements, "float32[N, C], int64[N, M], float32[N, M] {axis=1}"
    ),
    "scatter_nd": lone(ops.scatter_nd, "float32[N, C], int64[M, 1], float32[M, C]"),
    "tensor_scatter": lone(
        ops.tensor_scatter,
        "float32[B, H, C, D], float32[B, H, N, D], int64[B] {axis=2, circular=True}",
    ),
    "topk": lone(ops.topk, "float32[N, C] {k=5, axis=1}"),
    "row_order": lone(ops.row_order, "float32[N, C]"),
    "kept_boxes": lone(
        ops.kept_boxes,
        "float32[B, N, 4], float32[B, C, N], int64[], float32[], float32[] {center=True}",
    ),
    "nonzero": lone(ops.nonzero_rows, "float32[N, C] {count=M}"),
    "matmul_loops": lone(ops.matmul, "int32[B, M, K], int32[K, N]"),
    "conv2d_loops": lone(
        ops.conv2d, "float64[N, H+2, W+2, C], float64[D, C, 3, 3] {layout='NHWC'}"
    ),
    "col2im": lone(
        ops.col2im,
        "float32[N, 6*C, (H+1)*(W+1)] {image=(H+2, W+1), kernel=(2, 3), strides=(1, 1), "
        "pads=(0, 1, 0, 1), dilations=(1, 1)}",
    ),
}


def test_every_template_has_a_text() -> None:
    assert WORKLOADS.keys() == TEMPLATES.keys()


@pytest.mark.parametrize("name", WORKLOADS)
def test_source(name: str, golden: Golden) -> None:
    load, template = WORKLOADS[name], TEMPLATES[name]
    assert template.accepts(load)
    schedule = template.default(load, MACHINE)
    made = Implementation(name, schedule)
    golden.check(f"# {load.key}\n# {made}\n\n{template.source(load, schedule, MACHINE)}")


PLAIN: dict[str, Any] = {"inputs": 2, "epilogue": ((), ())}
TILE, ROW = {"mr": 1, "nr": 4}, {"rows": 1, "vectors": 1}
SMALL: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "matmul": (PLAIN | TILE | {"mr": 2, "streams": False}, ("finish", "tile1", "tile1x2")),
    "matmul_bytes": (ROW, ()),
    "matmul_bfloat16": (TILE | {"streams": False}, ("finish",)),
    "conv2d_bfloat16": (TILE, ("tile1",)),
    "attention": (
        PLAIN | ROW | {"inputs": 3, "value_rows": 1, "value_vectors": 1},
        ("scores1", "scores1.finish", "sums"),
    ),
    "depthwise": (
        {"columns": 1, "inputs": 2, "epilogue": ((), ()), "kernel": (2, 2), "strides": (1, 1)},
        (),
    ),
    "conv2d": (PLAIN | TILE, ("",)),
    "inner": (PLAIN | {"columns": 1, "outs": 1, "channels": 5, "kernel": (2, 1)}, ("tile1",)),
    "conv2d_bytes": (ROW | {"unit": 4}, ("",)),
    "winograd": (PLAIN | ROW | {"high": 2, "wide": 2}, ("inner", "results")),
    "pool_nhwc": ({"mean": False, "counts_pads": False, "cut": False}, ()),
    "rows": ({}, ()),
    "rotary": ({}, ()),
}
"""What makes a form small, and the functions that are shown, by suffix; none: all."""


@pytest.mark.parametrize("template", VECTOR, ids=lambda template: template.name)
def test_emitted(template: Template, golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "PIECES", ())  # of bytes: as many lines again for each
    load, target = WORKLOADS[template.name], replace(MACHINE, lanes=4)
    file = ModuleType("kernel")
    exec(template.source(load, template.default(load, target), target), file.__dict__)
    small, shown = SMALL[template.name]
    form = {**file.parameters, **small}
    lanes = form.pop("lanes")
    text = module_text("k", lambda w, block: file.emit(w, block, **form), "", lanes)
    _, *functions = re.split(r"^(?=define |declare )", text, flags=re.MULTILINE)
    heads = [f'@"{".".join(filter(None, ("k", suffix)))}"(' for suffix in shown]
    kept = [f for f in functions if not shown or any(h in f.split("\n")[0] for h in heads)]
    golden.check(f"; {lanes} lanes, {form}\n\n{''.join(kept)}")
