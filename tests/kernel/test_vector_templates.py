"""Kernels of the vector templates equal the groups they compute, at any width and schedule.

Every kernel is run in parts, on an output poisoned with NaN inside a rim that must stay as it is.
"""

from __future__ import annotations

import ctypes
import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from kernel_call import launch_at

from bucketize import ops
from bucketize.interpret import run_function
from bucketize.ir import Builder, Const, Var
from bucketize.kernel.attention import template as attention
from bucketize.kernel.build import build
from bucketize.kernel.depthwise import template as depthwise
from bucketize.kernel.emit.window import ORDERS
from bucketize.kernel.gemm import conv, matmul
from bucketize.kernel.gemm.epilogue import of_workload
from bucketize.kernel.gemm.schedule import tallest
from bucketize.kernel.inner import template as inner
from bucketize.kernel.rotary import template as rotary
from bucketize.kernel.rows import template as row
from bucketize.kernel.schedule import Knob, Schedule
from bucketize.kernel.template import Template, combinations
from bucketize.kernel.workload import Workload
from bucketize.machine.host import host
from bucketize.machine.target import Target
from bucketize.op import Array
from bucketize.ops.rounding import FORMATS, PLAIN
from bucketize.types import ANY, Dim, Symbol, TensorType, tensor

RIM = 128  # elements
TARGETS = [replace(host(), lanes=n, registers=16) for n in (16, 8, 4)]
"""Of few registers: a kernel has all heights of tiles up to the highest that fits."""
TALL = replace(TARGETS[0], registers=32)


@dataclass(frozen=True)
class Case:
    """A group, the sizes of its symbols, and which arguments are constant."""

    template: Template
    make: Callable[..., Var]
    types: tuple[tuple[Dim, ...], ...]
    sizes: tuple[Mapping[str, int], ...]
    constant: tuple[int, ...] = ()

    def workload(self) -> Workload:
        params = [Var(f"p{i}", tensor("float32", *t)) for i, t in enumerate(self.types)]
        body = Builder()
        out = self.make(body, *params)
        flags = tuple(i in self.constant for i in range(len(params)))
        return Workload(body.function("", params, [out]), flags)


N, S, H, W = Symbol("N"), Symbol("S"), Symbol("H"), Symbol("W")


def product(b: Builder, x: Var, y: Var) -> Var:
    return b.emit(ops.matmul, x, y)


def dense(b: Builder, x: Var, y: Var, bias: Var, other: Var) -> Var:
    return b.emit(ops.relu, b.emit(ops.add, b.emit(ops.add, product(b, x, y), bias), other))


def dense_gelu(b: Builder, x: Var, y: Var, bias: Var) -> Var:
    return b.emit(ops.gelu, b.emit(ops.add, product(b, x, y), bias))


def scores(b: Builder, x: Var, y: Var, mask: Var) -> Var:
    return b.emit(ops.add, b.emit(ops.mul, product(b, x, y), Const(np.float32(0.125))), mask)


def added_clipped(b: Builder, other: Var, x: Var, y: Var) -> Var:
    return b.emit(ops.clip, b.emit(ops.sub, other, product(b, x, y)), hi=1.0)


PRODUCTS = [
    Case(matmul.TEMPLATE, product, ((N, 33), (33, 70)), ({"N": 1}, {"N": 15}), (1,)),
    Case(matmul.TEMPLATE, product, ((N, S), (S, 64)), ({"N": 13, "S": 1}, {"N": 5, "S": 147})),
    Case(
        matmul.TEMPLATE,
        dense,
        ((N, S, 147), (147, 37), (37,), (N, S, 37)),
        ({"N": 3, "S": 1}, {"N": 2, "S": 7}, {"N": 1, "S": 1}),
        (1, 2),
    ),
    Case(
        matmul.TEMPLATE,
        dense,
        ((N, S, 3), (3, 130), (130,), (1, S, 130)),
        ({"N": 1, "S": 1}, {"N": 3, "S": 11}),
        (1, 2),
    ),
    Case(matmul.TEMPLATE, dense_gelu, ((N, 1), (1, 65), (65,)), ({"N": 2}, {"N": 29}), (1, 2)),
    Case(matmul.TEMPLATE, dense_gelu, ((S, 160), (160, 96), (1,)), ({"S": 9}, {"S": 96}), (1,)),
    *(
        Case(
            matmul.TEMPLATE,
            scores,
            ((N, 3, S, 16), (N, 3, 16, S), mask),
            ({"N": 2, "S": 5}, {"N": 1, "S": 19}, {"N": 3, "S": 1}, {"N": 1, "S": 1}),
        )
        for mask in ((N, 1, 1, S), (S, S), (N, 1, S, 1), ())
    ),
    Case(matmul.TEMPLATE, product, ((N, 1, 4, 8), (3, 8, 9)), ({"N": 2},)),
    Case(matmul.TEMPLATE, added_clipped, ((2, N, 9), (2, N, 7), (7, 9)), ({"N": 3},), (2,)),
]


def convolution(
    weights: tuple[int, ...], sizes: tuple[int, int, int], groups: int = 1, **attrs: Any
) -> Case:
    """Bias, an image of the same shape, and a clipping around a convolution."""
    out, inner, *kernel = weights
    dilations = attrs.get("dilations", (1, 1))
    top, left, bottom, right = attrs.get("pads", (0,) * 4)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    least = (max(r - p, 1) for r, p in zip(reach, (top + bottom, left + right), strict=True))
    channels = inner * groups

    def make(b: Builder, x: Var, w: Var, bias: Var, other: Var) -> Var:
        y = b.emit(ops.conv2d, x, w, groups=groups, layout="NHWC", **attrs)
        return b.emit(ops.clip, b.emit(ops.add, b.emit(ops.add, y, bias), other), lo=0.0, hi=9.0)

    x, w = tensor("float32", N, H, W, channels), tensor("float32", *weights)
    (y,) = ops.conv2d.infer(
        x, w, **ops.conv2d.complete({"groups": groups, "layout": "NHWC", **attrs})
    )
    depthwise_ = inner == 1 and groups == out
    return Case(
        depthwise.TEMPLATE if depthwise_ else conv.TEMPLATE,
        make,
        (x.shape, weights, (out,), y.shape),
        tuple(dict(zip("NHW", s, strict=True)) for s in (sizes, (1, *least))),
        (1, 2),
    )


def inner_products(*args: Any, **attrs: Any) -> Case:
    """A convolution of few channels out, by inner products."""
    return replace(convolution(*args, **attrs), template=inner.TEMPLATE)


BLIND = convolution((20, 5, 3, 3), (2, 6, 7), dilations=(7, 5), pads=(7, 5, 7, 5))
"""Most of its taps see pads alone."""
CONVOLUTIONS = [
    convolution((37, 5, 3, 3), (2, 9, 8)),
    convolution((70, 17, 1, 1), (3, 7, 7)),
    convolution((33, 16, 1, 1), (2, 7, 9), strides=(2, 2)),
    convolution((64, 3, 7, 7), (1, 19, 17), strides=(2, 2)),
    convolution((20, 4, 3, 2), (2, 9, 9), strides=(1, 2), dilations=(2, 1)),
    convolution((16, 6, 3, 3), (1, 11, 9), dilations=(2, 2)),
    convolution((24, 4, 3, 3), (2, 9, 7), groups=2, strides=(2, 1)),
    convolution((80, 2, 3, 3), (1, 5, 5), groups=4),
    convolution((64, 64, 1, 3), (1, 4, 9)),
    convolution((32, 1, 3, 3), (2, 9, 11), groups=32),
    convolution((37, 1, 3, 3), (1, 9, 8), groups=37, strides=(2, 2)),
    convolution((16, 1, 5, 5), (1, 9, 9), groups=16),
    convolution((50, 1, 3, 2), (2, 11, 13), groups=50, strides=(1, 2), dilations=(2, 3)),
    convolution((37, 20, 3, 3), (2, 9, 31), pads=(1, 1, 1, 1)),
    convolution((64, 3, 7, 7), (1, 19, 17), strides=(2, 2), pads=(3, 3, 3, 3)),
    convolution((33, 16, 1, 1), (2, 7, 9), pads=(1, 0, 2, 3)),
    convolution((20, 5, 3, 2), (2, 4, 5), strides=(1, 2), dilations=(2, 3), pads=(5, 9, 4, 7)),
    BLIND,
    convolution((24, 17, 3, 3), (2, 9, 7), groups=2, strides=(2, 1), pads=(1, 0, 0, 1)),
    convolution((40, 1, 1, 5), (3, 2, 3), pads=(0, 4, 0, 2)),  # no window sees an image alone
]
PADDED = [
    convolution((32, 1, 3, 3), (2, 9, 31), groups=32, pads=(1, 1, 1, 1)),
    convolution((37, 1, 3, 3), (1, 9, 8), groups=37, strides=(2, 2), pads=(1, 0, 0, 1)),
    convolution((16, 1, 5, 5), (1, 3, 40), groups=16, pads=(2, 2, 2, 2)),
    convolution((50, 1, 3, 2), (2, 4, 5), groups=50, pads=(5, 9, 4, 7), dilations=(2, 3)),
    convolution((20, 1, 3, 5), (1, 5, 50), groups=20, strides=(1, 2), pads=(0, 20, 1, 17)),
    convolution((16, 1, 3, 3), (1, 5, 8), groups=16, pads=(1, 1, 1, 1)),  # tiles of 4 and 4
    convolution((16, 1, 3, 3), (1, 5, 4), groups=16, pads=(1, 6, 1, 2)),  # of 4, 3 and 3
]


def heads(b: Builder, q: Var, k: Var, v: Var, mask: Var) -> Var:
    """Attention, heads beside each other."""
    turns = ((q, (0, 2, 1, 3)), (k, (0, 2, 3, 1)), (v, (0, 2, 1, 3)))
    x, y, z = (b.emit(ops.transpose, a, axes=axes) for a, axes in turns)
    weights = b.emit(ops.softmax, scores(b, x, y, mask), axis=3)
    return b.emit(ops.transpose, b.emit(ops.matmul, weights, z), axes=(0, 2, 1, 3))


ATTENTION = [
    Case(
        attention.TEMPLATE,
        heads,
        (*((N, n, 3, 40) for n in (S, W, W)), (N, 1, 1, W)),
        ({"N": 2, "S": 5, "W": 19}, {"N": 1, "S": 70, "W": 130}, {"N": 3, "S": 1, "W": 1}),
    )
]


def embedded(b: Builder, x: Var, cos: Var, sin: Var) -> Var:
    """A rotary embedding of heads that lie beside each other."""
    x = b.emit(ops.transpose, x, axes=(0, 2, 1, 3))
    ends = ({"begin": (first,), "end": (first + 20,)} for first in (20, 0))
    high, low = (b.emit(ops.strided_slice, x, strides=(1,), axes=(3,), **e) for e in ends)
    turned = b.emit(ops.concat, b.emit(ops.neg, high), low, axis=3)
    return b.emit(ops.add, b.emit(ops.mul, x, cos), b.emit(ops.mul, turned, sin))


def root_mean_square(b: Builder, x: Var, weight: Var) -> Var:
    mean = b.emit(ops.reduce_mean, b.emit(ops.mul, x, x), axes=(2,), keepdims=True)
    least = b.emit(ops.add, mean, Const(np.float32(1e-6)))
    return b.emit(ops.mul, b.emit(ops.mul, x, b.emit(ops.rsqrt, least)), weight)


ROWS = [
    Case(
        rotary.TEMPLATE,
        embedded,
        ((N, S, 3, 40), (1, 1, S, 40), (1, 1, S, 40)),
        ({"N": 2, "S": 5}, {"N": 1, "S": 1}),
    ),
    Case(row.TEMPLATE, root_mean_square, ((N, S, W), (W,)), ({"N": 2, "S": 5, "W": 77},)),
]
INNER = [
    inner_products((1, 1, 1, 9), (2, 3, 70)),  # a filter of one channel
    inner_products((1, 1, 1, 9), (2, 3, 70), strides=(1, 2)),
    inner_products((1, 37, 1, 1), (2, 7, 9), strides=(2, 2)),
    inner_products((1, 16, 1, 1), (2, 7, 9)),
    inner_products((2, 7, 5, 5), (1, 9, 31), pads=(2, 2, 2, 2)),
    inner_products((3, 3, 3, 3), (2, 9, 29), pads=(1, 1, 1, 1), strides=(2, 2)),
    inner_products((5, 9, 2, 8), (2, 5, 37), pads=(1, 3, 0, 4), strides=(1, 3)),
    inner_products((8, 8, 3, 13), (1, 4, 25), pads=(1, 6, 1, 6)),
    inner_products((12, 4, 3, 3), (1, 7, 14), pads=(0, 1, 1, 0), dilations=(2, 1)),
    inner_products((6, 3, 1, 3), (2, 2, 11), pads=(3, 4, 2, 5)),  # some see pads alone
    inner_products((4, 3, 3, 1), (2, 5, 9), pads=(7, 0, 7, 0), dilations=(5, 3)),
    inner_products((3, 5, 1, 1), (2, 4, 9), pads=(1, 0, 2, 3)),
]
CASES = [*PRODUCTS, *CONVOLUTIONS, *PADDED, *INNER, *ATTENTION, *ROWS]


def shape_of(dims: Sequence[Dim], args_env: Mapping[str, int]) -> tuple[int, ...]:
    shape = TensorType(np.dtype("float32"), tuple(dims)).substitute(args_env).shape
    return tuple(int(d) for d in shape)  # type: ignore[arg-type]


def in_rim(array: Array) -> Array:
    """The same inside a rim of NaN, or of ones, so that what is read outside shows."""
    memory = np.full(array.size + 2 * RIM, np.nan if array.dtype.kind == "f" else 1, array.dtype)
    memory[RIM : RIM + array.size] = array.reshape(-1)
    return memory[RIM : RIM + array.size].reshape(array.shape)


def run(
    template: Template,
    load: Workload,
    schedule: Schedule,
    args: list[Array],
    target: Target,
    sizes: Mapping[str, int],
    parts: int = 3,
) -> Array:
    """What the kernel makes of `args`, its parallel axis cut in parts.

    It is made and launched from the symbolic group, as the runtime does.
    """
    kernel = build(template.source(load, schedule, target), name_hint=template.name)
    shape = run_function(load.body, args)[0].shape
    size = math.prod(shape)
    memory = np.full(size + 2 * RIM, 7, np.float32)
    out = memory[RIM : RIM + size]
    out[...] = np.nan
    launch = launch_at(template, load, schedule, (*(a.shape for a in args), shape), sizes, target)
    given = [
        template.pack(load, schedule, i, a) if template.pack_key(load, schedule, i) else in_rim(a)
        for i, a in enumerate(args)
    ]
    workspace = np.full(launch.workspace // 4 + 1, np.nan, np.float32)
    arrays = [out, *given, workspace]
    head = [a.ctypes.data for a in arrays if a is not None]
    cuts = [launch.extent * i // parts for i in range(parts + 1)]
    for begin, end in pairwise(cuts):
        block = np.array([*head, begin, end, *launch.dims], np.int64)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(kernel.address)(block.ctypes.data)
    assert np.all(memory[:RIM] == 7), "written before the output"
    assert np.all(memory[RIM + size :] == 7), "written behind the output"
    return out.reshape(shape)


def legal(template: Template, load: Workload, target: Target) -> list[dict[str, Knob]]:
    every = combinations(template.knobs(load, target))
    return [s for s in every if template.valid(load, s, target) is None]


def check(case: Case, schedule: Schedule, target: Target) -> None:
    load, rng = case.workload(), np.random.default_rng(0)
    assert case.template.accepts(load), load.key
    for sizes in case.sizes:
        args = [rng.standard_normal(shape_of(t, sizes)).astype(np.float32) for t in case.types]
        want = run_function(load.body, [a.astype(np.float64) for a in args])[0]
        got = run(case.template, load, schedule, args, target, sizes)
        scale = max(1, np.abs(want).max())
        np.testing.assert_allclose(got / scale, want / scale, atol=2e-6, err_msg=str(schedule))


SAMPLED = [
    pytest.param(case, target, id=f"{number}-lanes{target.lanes}")
    for number, case in enumerate(CASES)
    for target in [TARGETS[1 + number % 2]]  # those of 16 lanes take the default
]


@pytest.mark.sweep
@pytest.mark.parametrize(("case", "target"), SAMPLED)
def test_a_kernel_is_its_group_at_a_sampled_schedule(case: Case, target: Target) -> None:
    choices = legal(case.template, case.workload(), target)
    seed = f"{target.lanes} {CASES.index(case)}"
    check(case, random.Random(seed).choice(choices), target)


@pytest.mark.sweep
@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_a_kernel_is_its_group_at_the_default_schedule(case: Case) -> None:
    load, template = case.workload(), case.template
    for target in (*TARGETS, TALL):
        assert template.valid(load, template.default(load, target), target) is None
    check(case, template.default(load, TALL), TALL)


@pytest.mark.parametrize(("rows", "vectors"), [(14, 1), (14, 2), (8, 3), (6, 4)])
def test_the_highest_tiles_of_each_width(rows: int, vectors: int) -> None:
    assert tallest(TALL)[vectors] == rows
    case = Case(
        matmul.TEMPLATE, product, ((N, 33), (33, 130)), tuple({"N": n} for n in range(1, 17)), (1,)
    )
    check(case, {"mr": rows, "nr": vectors * TALL.lanes, "kc": 0}, TALL)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("vectors", [1, 2, 3, 4])
def test_the_highest_tiles_of_this_machine(vectors: int, packed: bool) -> None:
    """By depths of a turn of its loop and a few steps more, fetching or not, and in passes."""
    target, sizes = host(), tuple({"N": n} for n in (1, 2, 5, 9, 31))
    rows, width = tallest(target)[vectors], vectors * target.lanes
    constant, place = ((1,), {}) if packed else ((), {"copy": "no"})
    for depth in (7, 157):
        case = Case(matmul.TEMPLATE, product, ((N, depth), (depth, 130)), sizes, constant)
        check(case, {"mr": rows, "nr": width, "kc": 128, **place}, target)


@pytest.mark.parametrize("weights", FORMATS)
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_low_tiles_cover_several_panels(rows: int, weights: str) -> None:
    """Whole groups and what is left, the last panel cut, in passes; whoever computes which part."""
    target, width = host(), 2 * host().lanes
    schedule: Schedule = {"mr": tallest(target)[2], "nr": width, "kc": 128}
    schedule |= {} if weights == PLAIN else {"weights": weights}
    panels = {1: 4, 2: 3, 3: 2}[rows] if target.registers == 16 else 4

    def rounded(b: Builder, x: Var, y: Var, bias: Var) -> Var:
        return b.emit(ops.relu, b.emit(ops.add, b.emit(ops.matmul, x, y, weights=weights), bias))

    for columns in (2 * panels * width, (2 * panels + 1) * width - 3, panels * width - 1, 5):
        types = ((N, 157), (157, columns), (columns,))
        case = Case(matmul.TEMPLATE, rounded, types, ({"N": rows},), (1, 2))
        check(case, schedule, target)
        rng = np.random.default_rng(0)
        args = [rng.standard_normal(shape_of(t, {"N": rows})).astype(np.float32) for t in types]
        load, parts = case.workload(), range(1, 6)
        alike = [run(case.template, load, schedule, args, target, {"N": rows}, p) for p in parts]
        assert all(np.array_equal(alike[0], other) for other in alike)


@pytest.mark.parametrize("rows", [1, 3, 5, 32, 96])
@pytest.mark.parametrize("packed", [True, False])
def test_a_launch_of_rows_that_are_known_has_the_words_of_any_rows(rows: int, packed: bool) -> None:
    """A trial launches at its own sizes what was compiled for a bucket of them."""
    target, constant = host(), (1,) if packed else ()
    shapes, words = ((rows, 33), (33, 70), (rows, 70)), []
    any_rows, these = (
        Case(matmul.TEMPLATE, product, ((first, 33), (33, 70)), (), constant).workload()
        for first in (N, rows)
    )
    schedule = matmul.TEMPLATE.default(any_rows, target)
    for load in (any_rows, these):
        launch = launch_at(matmul.TEMPLATE, load, schedule, shapes, {"N": rows}, target)
        words.append((launch.dims, launch.extent))
    assert words[0] == words[1]


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: f"lanes{t.lanes}")
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_pads_times_what_is_not_finite_are_no_numbers(target: Target, value: float) -> None:
    load, rng, sizes = BLIND.workload(), np.random.default_rng(0), BLIND.sizes[0]
    args = [rng.standard_normal(shape_of(t, sizes)).astype(np.float32) for t in BLIND.types]
    args[1][3, 2, 0, 0] = value
    schedule = BLIND.template.default(load, target)
    got = run(BLIND.template, load, schedule, args, target, sizes)
    want = run_function(load.body, args)[0]
    assert np.isnan(want[..., 3]).any()
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))


@pytest.mark.sweep
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: f"lanes{t.lanes}")
@pytest.mark.parametrize("case", PADDED, ids=range(len(PADDED)))
def test_pads_are_not_read(case: Case, target: Target) -> None:
    """What lies around the image is NaN. Orders take turns: every two of the three meet."""
    order = ORDERS[(PADDED.index(case) + TARGETS.index(target)) % len(ORDERS)]
    schedule = {"columns": 4, "channels": target.lanes, "order": order}
    load, rng = case.workload(), np.random.default_rng(0)
    for sizes in case.sizes:
        args = [rng.standard_normal(shape_of(t, sizes)).astype(np.float32) for t in case.types]
        memory = np.full(args[0].size + 2 * RIM, np.nan, np.float32)
        memory[RIM:-RIM] = args[0].reshape(-1)
        args[0] = memory[RIM:-RIM].reshape(args[0].shape)
        want = run_function(load.body, args)[0]
        got = run(case.template, load, schedule, args, target, sizes)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4, err_msg=order)


def test_the_kernel_is_the_same_for_all_sizes_of_a_layer() -> None:
    one, other = (
        Case(matmul.TEMPLATE, product, ((N, k), (k, n)), (), (1,)).workload()
        for k, n in ((64, 256), (1024, 512))
    )
    schedule = {"mr": 4, "nr": 64, "kc": 0}
    sources = {matmul.TEMPLATE.source(w, schedule, TARGETS[0]) for w in (one, other)}
    assert len(sources) == 1


def test_depths_of_nothing_sum_to_zero_and_no_rows_are_no_work() -> None:
    rows_, depth_ = Symbol("N", 0), Symbol("K", 0)
    load = Case(matmul.TEMPLATE, product, ((rows_, depth_), (depth_, 64)), ()).workload()
    schedule = {"mr": 4, "nr": 16, "kc": 128, "copy": "yes"}
    for rows, depth in ((3, 0), (0, 3)):
        args = [np.ones((rows, depth), np.float32), np.ones((depth, 64), np.float32)]
        sizes = {"N": rows, "K": depth}
        got = run(matmul.TEMPLATE, load, schedule, args, TARGETS[0], sizes)
        np.testing.assert_array_equal(got, np.zeros((rows, 64)))


def test_a_pass_is_whole_where_rows_leave_the_second_cache() -> None:
    """At run time: one kernel serves few rows and many."""
    target = replace(TARGETS[0], l2=1 << 20)
    deep = {n: matmul.depth_of_pass(n, 1024, 128, target) for n in (1, 255, 256, 5000)}
    assert deep == {1: 128, 255: 128, 256: 1024, 5000: 1024}
    assert matmul.depth_of_pass(5000, 511, 128, target) == 128, "they are few"
    assert matmul.depth_of_pass(5000, 1024, 128, replace(target, l2=0)) == 128
    assert matmul.depth_of_pass(1, 1024, 0, target) == 1024
    case = Case(matmul.TEMPLATE, product, ((N, 520), (520, 70)), ({"N": 1}, {"N": 15}), (1,))
    check(case, {"mr": 6, "nr": 64, "kc": 128}, replace(target, l2=1 << 13))


def test_what_is_one_tile_takes_its_depth_in_one_pass() -> None:
    """Its B is read once, whatever the schedule says; two tiles read theirs in parts."""
    case = Case(matmul.TEMPLATE, product, ((N, 1024), (1024, 70)), ({"N": 1},), (1,))
    schedule = {"mr": 14, "nr": 32, "kc": 128}

    def pass_units(rows: int) -> Dim:
        shapes = (rows, 1024), (1024, 70), (rows, 70)
        launch = matmul.TEMPLATE.launch(case.workload(), schedule, shapes, TARGETS[0])
        names = matmul._form(case.workload(), schedule, TARGETS[0]).dims
        return launch.dims[names.index("pass_units")]

    each = {rows: pass_units(rows) for rows in (0, 1, 12, 13, 28, 29)}
    assert each == {0: 1024, 1: 1024, 12: 1024, 13: 128, 28: 128, 29: 128}


# --- what is declined ------------------------------------------------------------------------


def test_illegal_schedules_say_why() -> None:
    load, target = PRODUCTS[0].workload(), TALL
    good = matmul.TEMPLATE.default(load, target)
    for change, why in (
        ({"mr": 14, "nr": 64}, "32 registers are for tiles of 8 x 1, .* vectors, not 14 x 4"),
        ({"nr": 10}, r"nr=10 is not in \(16, 32, 48, 64\)"),
    ):
        reason = matmul.TEMPLATE.valid(load, {**good, **change}, target)
        assert re.fullmatch(why, reason or "")
    wide = CONVOLUTIONS[9].workload()
    schedule = {"columns": 14, "channels": 16, "order": "channels"}
    reason = depthwise.TEMPLATE.valid(wide, schedule, TARGETS[1])
    assert reason == "a tile of 14 x 2 vectors needs 35 registers, there are 16"


def declined(make: Callable[..., Var], *shapes: tuple[Dim, ...]) -> Workload:
    return Case(matmul.TEMPLATE, make, shapes, ()).workload()


def test_groups_that_are_no_epilogue_are_declined() -> None:
    def power(b: Builder, x: Var, y: Var) -> Var:
        return b.emit(ops.pow_, product(b, x, y), Const(np.float32(2)))

    def summed(b: Builder, x: Var, y: Var) -> Var:
        return b.emit(ops.reduce_sum, product(b, x, y), axes=(0,))

    def wider(b: Builder, x: Var, y: Var, z: Var) -> Var:
        return b.emit(ops.add, product(b, x, y), z)

    for load in (
        declined(power, (N, 3), (3, 4)),
        declined(summed, (N, 3), (3, 4)),
        declined(wider, (N, 3), (3, 4), (2, N, 4)),
        declined(wider, (N, 3), (3, 4), (ANY, 4)),
    ):
        assert of_workload(load) is None
        assert not matmul.TEMPLATE.accepts(load)


def test_convolutions_that_cannot_be_read_in_place_are_declined() -> None:
    def other_layout(b: Builder, x: Var, w: Var) -> Var:
        return b.emit(ops.conv2d, x, w)

    def biased(b: Builder, x: Var, w: Var, z: Var) -> Var:
        return b.emit(ops.add, b.emit(ops.conv2d, x, w, layout="NHWC"), z)

    shapes = ((N, 8, 8, 3), (4, 3, 3, 3))
    for make, more, constant in (
        (other_layout, (), (1,)),
        (biased, ((4,),), ()),
        (biased, ((1, 6, 6, 4),), (1,)),
    ):
        types_ = ((N, 3, 8, 8), shapes[1]) if make is other_layout else shapes
        load = Case(conv.TEMPLATE, make, (*types_, *more), (), constant).workload()
        assert not conv.TEMPLATE.accepts(load)


def test_integers_are_declined() -> None:
    params = [Var(n, tensor("int32", 4, 4)) for n in "xy"]
    body = Builder()
    load = Workload(body.function("", params, [body.emit(ops.matmul, *params)]), (False, False))
    assert not matmul.TEMPLATE.accepts(load)


# --- workloads -------------------------------------------------------------------------------


def test_a_key_forgets_the_names_and_bounds_of_symbols() -> None:
    loads = [
        Case(matmul.TEMPLATE, scores, ((n, s, 4), (n, 4, s), (n, 1, s)), ()).workload()
        for n, s in ((N, S), (Symbol("batch", 2, 9), Symbol("length")), (S, N))
    ]
    assert len({w.key for w in loads}) == 1
    assert loads[0].key == (
        "(float32[d0, d1, 4], float32[d0, 4, d1], float32[d0, 1, d1]) %3 = matmul(%0, %1); "
        "%4 = mul(%3, float32[](0.125)); %5 = add(%4, %2); return %5"
    )
    assert len(loads[0].hash) == 16


def test_a_key_tells_attributes_and_constants_apart() -> None:
    def clipped(b: Builder, x: Var, y: Var, hi: float) -> Var:
        return b.emit(ops.clip, product(b, x, y), hi=hi)

    clips = [declined(partial(clipped, hi=h), (N, 3), (3, 4)) for h in (1.0, 2.0)]
    weights = [
        declined(lambda b, x, v=v: product(b, x, Const(np.full((3, 4), v, np.float32))), (N, 3))
        for v in (1, 2)
    ]
    assert len({w.key for w in (*clips, *weights)}) == 4
