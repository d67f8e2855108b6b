"""Convolutions by minimal filtering: the transforms, and kernels beside the reference."""

from __future__ import annotations

import ctypes
import itertools
import math
import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from choosing import configuration_of
from test_vector_templates import TALL, TARGETS, Case, H, N, W, legal, run, shape_of

from bucketize import ops
from bucketize.executable import Executable
from bucketize.interpret import evaluate_module, run_function
from bucketize.ir import Builder, Const, Module, Var
from bucketize.kernel.build import build
from bucketize.kernel.gemm import conv
from bucketize.kernel.gemm.cost import ALIKE, cold_bytes
from bucketize.kernel.schedule import Implementation, Schedule
from bucketize.kernel.templates import candidates
from bucketize.kernel.winograd import matrices as minimal
from bucketize.kernel.winograd import template as winograd
from bucketize.kernel.workload import Workload
from bucketize.link.link import link
from bucketize.lower.cost import default_of
from bucketize.machine.host import host
from bucketize.machine.target import Target
from bucketize.program.configuration import defaults
from bucketize.program.decide import decide
from bucketize.program.instruction import KernelCall, RunSegment, instructions
from bucketize.program.program import Program
from bucketize.types import ANY, Dim, Points, Symbol, tensor

pytestmark = pytest.mark.usefixtures("few_registers")

TEMPLATE = winograd.TEMPLATE
SMALL = replace(TARGETS[1], l2=1 << 10)  # blocks of 24 patches
NUMBERS = tuple(size - 2 for size in minimal.POSITIVE)  # m of 3 taps
BOUNDS = {4: 1e-5, 6: 3e-5, 8: 1e-4}  # by the size of an axis, of the largest magnitude


def bound_of(load: Workload, m: int) -> float:
    """How far off an m may be, of the largest magnitude."""
    return BOUNDS[max(axis.size for axis in winograd.axes_of(load, m))]


# --- the algorithm -----------------------------------------------------------------------------


def times(matrix: minimal.Matrix, vector: list[Fraction]) -> list[Fraction]:
    return [sum((a * b for a, b in zip(r, vector, strict=True)), Fraction(0)) for r in matrix]


AXES = [
    minimal.Axis(1, 1, 2),
    *(
        minimal.Axis(size - longest + 1, taps, stride)
        for size in minimal.POSITIVE
        for stride in (1, 2, 3)
        for taps in range(stride + 1, 7 * stride + 1)
        if (longest := -(-taps // stride)) < size
    ),
]


@pytest.mark.parametrize("axis", AXES, ids=lambda a: f"F({a.m},{a.taps})by{a.stride}")
def test_a_filter_is_its_taps_at_every_place(axis: minimal.Axis) -> None:
    """Exactly: the algorithm is an identity of rational numbers; phases are summed before."""
    size, step = axis.size, axis.stride
    taps, data = (
        [Fraction(7 * i * i - 3 * i + 1) for i in range(n)] for n in (axis.taps, axis.reach)
    )
    sums = [Fraction(0)] * size
    for phase in range(axis.phases):
        mine, seen = taps[phase::step], data[phase::step]
        of_taps, made = minimal.taps(size, len(mine)), axis.products_of(phase)
        of_data = [row[: len(seen)] for row in minimal.data(size)[:made]]
        pairs = zip(times(of_taps[:made], mine), times(of_data, seen), strict=True)
        for i, (a, b) in enumerate(pairs):
            sums[i] += a * b
    found = times(minimal.result(axis.m, size), sums)
    assert found == [sum(t * data[i * step + k] for k, t in enumerate(taps)) for i in range(axis.m)]
    assert len(axis.places) == axis.products


@pytest.mark.parametrize("size", minimal.POSITIVE)
def test_the_factors_of_the_transforms_are_exact_in_float32(size: int) -> None:
    for factor in itertools.chain(*minimal.data(size), *minimal.result(size - 1, size)):
        assert Fraction(float(np.float32(float(factor)))) == factor


# --- kernels -----------------------------------------------------------------------------------

Make = Callable[..., Var]
Sizes = tuple[int, int, int]
Pads = tuple[int, int, int, int]


def bare(b: Builder, x: Var, w: Var, **attrs: Any) -> Var:
    return b.emit(ops.conv2d, x, w, layout="NHWC", **attrs)


def biased(b: Builder, x: Var, w: Var, bias: Var) -> Var:
    return b.emit(ops.relu, b.emit(ops.add, bare(b, x, w), bias))


def residual(b: Builder, other: Var, x: Var, w: Var, bias: Var) -> Var:
    y = b.emit(ops.add, other, b.emit(ops.add, bare(b, x, w), bias))
    return b.emit(ops.clip, y, lo=0.0, hi=6.0)


def long(b: Builder, x: Var, w: Var, factor: Var) -> Var:
    return b.emit(ops.gelu, b.emit(ops.mul, bare(b, x, w), factor))


def grouped(groups: int, pads: Pads, strides: tuple[int, int] = (1, 1)) -> Make:
    return lambda b, x, w: bare(b, x, w, groups=groups, pads=pads, strides=strides)


def case(
    channels: int,
    out: int,
    *sizes: Sizes,
    make: Make = bare,
    groups: int = 1,
    kernel: tuple[int, int] = (3, 3),
    pads: Pads = (0, 0, 0, 0),
    strides: tuple[int, int] = (1, 1),
) -> Case:
    """A convolution of symbolic images; `sizes` are batch, height and width of the result.

    Of strides, those of one of stride 1.
    """
    image, weights = (N, H, W, channels), (out, channels // groups, *kernel)
    top, left, bottom, right = pads
    high, wide = kernel[0] - 1 - top - bottom, kernel[1] - 1 - left - right
    if groups > 1 or any(pads) or strides != (1, 1):
        make = grouped(groups, pads, strides)
    types: tuple[tuple[Dim, ...], ...] = (image, weights)
    constant: tuple[int, ...] = (1,)
    if make is biased:
        types, constant = (*types, (out,)), (1, 2)
    elif make is residual:
        types, constant = ((N, H - high, W - wide, out), *types, (out,)), (2, 3)
    elif make is long:  # varies along the pixels alone
        types = (*types, (N, H - high, W - wide, 1))
    envs = tuple({"N": n, "H": h + high, "W": w + wide} for n, h, w in sizes)
    return Case(TEMPLATE, make, types, envs, constant)


def agrees(one: Case, schedule: Schedule, target: Target, parts: int = 3) -> None:
    load, rng = one.workload(), np.random.default_rng(0)
    assert TEMPLATE.accepts(load), load.key
    assert TEMPLATE.valid(load, schedule, target) is None
    for sizes in one.sizes:
        args = [rng.standard_normal(shape_of(t, sizes)).astype(np.float32) for t in one.types]
        want = run_function(load.body, [a.astype(np.float64) for a in args])[0]
        got = run(TEMPLATE, load, schedule, args, target, sizes, parts)
        bound = bound_of(load, int(schedule["m"])) * np.abs(want).max(initial=1e-30)
        np.testing.assert_allclose(got, want, rtol=0, atol=bound, err_msg=f"{schedule} {sizes}")


IMAGES = [
    case(3, 5, (1, 1, 1), (2, 5, 7), (1, 12, 13)),
    case(16, 32, (1, 12, 12), (2, 1, 9)),
    case(17, 65, (3, 4, 5), (1, 9, 2)),
    case(65, 17, (1, 7, 6), (2, 3, 3)),
    case(1, 1, (1, 2, 3), (5, 6, 6)),
    case(256, 20, (2, 6, 7)),
    case(10, 66, (1, 8, 7), (2, 3, 3), groups=2),
    case(96, 96, (1, 5, 4), groups=32),
    case(20, 33, (1, 12, 12), (2, 1, 1), (1, 7, 9), pads=(1, 1, 1, 1)),
    case(10, 66, (1, 8, 7), (2, 4, 5), groups=2, pads=(0, 1, 2, 0)),
    case(16, 16, (1, 24, 24), (1, 16, 17), pads=(7, 8, 6, 7)),  # patches of pads alone
]


@pytest.mark.sweep
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: f"lanes{t.lanes}")
@pytest.mark.parametrize("m", NUMBERS)
def test_a_convolution_is_the_reference_at_any_size(m: int, target: Target) -> None:
    """All images are computed by one kernel."""
    schedule = TEMPLATE.default(IMAGES[0].workload(), target) | {"m": m}
    assert len({TEMPLATE.source(one.workload(), schedule, target) for one in IMAGES}) == 1
    for one in IMAGES:
        agrees(one, schedule, target)


@pytest.mark.parametrize("m", NUMBERS)
@pytest.mark.parametrize("groups", [1, 3])
def test_blocks_and_panels_may_be_cut_anywhere(m: int, groups: int) -> None:
    """49 and 48 patches, in balanced blocks of 24 at most, and three panels, the last one cut.

    Of three groups each has a panel.
    """
    one = case(9, 39 + groups % 3, (1, 7 * m, 7 * m - 1), (3, 4 * m - 1, 4 * m), groups=groups)
    for parts in (1, 2, 5):
        agrees(one, {"m": m, "nr": 16}, SMALL, parts)


LINES = [
    pytest.param(m, kernel, target, id=f"m{m}-{kernel[0]}x{kernel[1]}-lanes{target.lanes}")
    for i, m in enumerate(NUMBERS)
    for j, target in enumerate(TARGETS)
    for kernel in [((1, 3), (3, 1))[(i + j) % 2]]
]
"""Every m at every width, each of them by windows of both directions."""


@pytest.mark.sweep
@pytest.mark.parametrize(("m", "kernel", "target"), LINES)
def test_windows_of_one_line_are_filtered_along_it(
    m: int, kernel: tuple[int, int], target: Target
) -> None:
    for one in (
        case(5, 17, (1, 1, 1), (2, 5, 7), (3, 1, 13), (1, 13, 1), kernel=kernel),
        case(34, 66, (1, 7, 8), kernel=kernel, groups=2),
        case(6, 37, (2, 7, 13), (1, 1, 1), kernel=kernel, make=residual),
    ):
        agrees(one, {"m": m, "nr": 2 * target.lanes}, target)


WINDOWS = [
    (case(5, 17, (1, 1, 1), (2, 5, 7), (1, 12, 13), kernel=(5, 5)), (2, 4)),
    (case(34, 66, (1, 7, 8), (2, 1, 3), kernel=(5, 5), groups=2, pads=(2, 1, 0, 3)), (2, 4)),
    (case(6, 37, (2, 7, 13), (1, 1, 1), kernel=(1, 5)), (2, 4)),
    (case(6, 37, (2, 7, 13), (1, 3, 1), kernel=(5, 1), make=residual), (2, 4)),
    (case(6, 37, (2, 7, 13), kernel=(3, 5), make=long), (2, 4)),
    (case(9, 37, (2, 7, 13), (1, 1, 1), kernel=(2, 2), make=biased), (3, 5, 7)),
    (case(9, 37, (2, 7, 13), kernel=(4, 4)), (3, 5)),
    (case(6, 37, (2, 7, 13), (1, 1, 1), kernel=(1, 7)), (2,)),
    (case(6, 37, (2, 7, 5), kernel=(6, 6), make=biased), (3,)),
]
STRIDED = [
    (case(16, 37, (1, 1, 1), (2, 8, 13), (1, 19, 12), strides=(2, 2)), (3, 5, 7)),
    (case(48, 17, (1, 12, 13), (3, 1, 2), strides=(2, 2), pads=(1, 1, 1, 1)), (3, 5, 7)),
    (case(16, 66, (2, 9, 14), kernel=(5, 5), strides=(2, 2), pads=(2, 2, 2, 2)), (2, 4, 6)),
    (case(32, 33, (2, 9, 14), (1, 1, 1), kernel=(4, 4), strides=(2, 2)), (3, 5, 7)),
    (case(16, 33, (2, 9, 14), (1, 1, 1), kernel=(1, 3), strides=(2, 2)), (3, 5, 7)),
    (case(16, 33, (2, 9, 14), kernel=(3, 2), strides=(2, 1)), (3, 5, 7)),
    (case(16, 33, (2, 13, 14), kernel=(5, 7), strides=(3, 3)), ()),
    (case(32, 33, (2, 13, 14), kernel=(5, 5), strides=(3, 3)), (3, 5, 7)),
]


@pytest.mark.sweep
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: f"lanes{t.lanes}")
@pytest.mark.parametrize(("one", "numbers"), [*WINDOWS, *STRIDED])
def test_other_windows_and_strides_are_filtered(
    one: Case, numbers: tuple[int, ...], target: Target
) -> None:
    """Each by all m that give a size with points, each m at vectors of one width."""
    load = one.workload()
    assert TEMPLATE.accepts(load) == bool(numbers)
    turn = ([*WINDOWS, *STRIDED].index((one, numbers)) + TARGETS.index(target)) % len(TARGETS)
    for m in numbers[turn :: len(TARGETS)]:
        agrees(one, {"m": m, "nr": 2 * target.lanes}, target, parts=2)
    if numbers:
        assert TEMPLATE.knobs(load, target)["m"] == numbers
        default = TEMPLATE.default(load, target)
        assert int(default["m"]) <= winograd.UNMEASURED


def test_pixels_that_no_window_sees_round_nothing() -> None:
    """The patch of 3 x 3 results has 7 x 7 pixels; two of a line are made of five."""
    one = case(16, 5, make=grouped(1, (0, 0, 0, 0), (2, 2)))
    load, schedule = one.workload(), {"m": 3, "nr": 16}
    image, weights = (
        np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        for shape in ((1, 6, 6, 16), (5, 16, 3, 3))
    )
    want = run(TEMPLATE, load, schedule, [image, weights], SMALL, {"N": 1, "H": 6, "W": 6})
    image[:, 5] = image[:, :, 5] = 1e6
    got = run(TEMPLATE, load, schedule, [image, weights], SMALL, {"N": 1, "H": 6, "W": 6})
    np.testing.assert_array_equal(got, want)


def test_a_part_writes_its_own_panels_only() -> None:
    load, schedule = static((1, 9, 9, 4), 40, 4, 3, 3), {"m": 4, "nr": 16}
    image, weights = (np.ones(p.type.shape, np.float32) for p in load.body.params)
    packed, out = TEMPLATE.pack(load, schedule, 1, weights), np.full((1, 7, 7, 40), np.nan, "f")
    assert packed is not None
    launch = TEMPLATE.launch(load, schedule, (image.shape, weights.shape, out.shape), SMALL)
    assert launch.extent == 3
    workspace = np.empty(launch.workspace, np.uint8)
    head = [a.ctypes.data for a in (out, image, packed, workspace)]
    block = np.array([*head, 1, 2, *launch.dims], np.int64)
    kernel = build(TEMPLATE.source(load, schedule, SMALL), name_hint="winograd")
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(kernel.address)(block.ctypes.data)
    np.testing.assert_allclose(out[..., 16:32], 36, rtol=1e-5)
    assert np.isnan(np.delete(out, slice(16, 32), axis=3)).all()


@pytest.mark.sweep
@pytest.mark.parametrize("make", [biased, residual, long])
@pytest.mark.parametrize("m", NUMBERS)
def test_what_follows_is_fused(m: int, make: Make) -> None:
    one = case(6, 37, (2, 7, 13), (1, 1, 1), (1, 12, 12), make=make)
    target = TARGETS[m // 2 % 2]
    agrees(one, TEMPLATE.default(one.workload(), target) | {"m": m}, target)


def static(shape: tuple[int, ...], *weights: int, **attrs: Any) -> Workload:
    def make(b: Builder, x: Var, w: Var) -> Var:
        return bare(b, x, w, **attrs)

    return Case(TEMPLATE, make, (shape, weights), ({},), (1,)).workload()


@pytest.mark.sweep
@pytest.mark.parametrize("target", TARGETS[:2], ids=lambda t: f"lanes{t.lanes}")
def test_every_legal_schedule_of_a_known_size(target: Target) -> None:
    """Where the size is known, only the tiles that it asks for are written."""
    load = static((1, 45, 43, 3), 20, 3, 3, 3)
    args = [
        np.random.default_rng(i).standard_normal(p.type.shape)
        for i, p in enumerate(load.body.params)
    ]
    args = [a.astype(np.float32) for a in args]
    want = run_function(load.body, [a.astype(np.float64) for a in args])[0]
    schedules = legal(TEMPLATE, load, target)
    assert {int(s["m"]) for s in schedules} == set(NUMBERS)
    for schedule in schedules:
        got = run(TEMPLATE, load, schedule, args, target, {})
        bound = bound_of(load, int(schedule["m"])) * np.abs(want).max()
        np.testing.assert_allclose(got, want, rtol=0, atol=bound, err_msg=str(schedule))


def test_only_the_tiles_of_balanced_blocks_are_written() -> None:
    known, unknown = (static((1, h, 58, 3), 16, 3, 3, 3) for h in (58, Symbol("H", 3)))
    schedule = {"m": 2, "nr": 16}
    least = [
        re.search(r"'least': (\d+)", TEMPLATE.source(w, schedule, TARGETS[1]))
        for w in (known, unknown)
    ]
    assert [found and found[1] for found in least] == ["5", "1"]


def test_no_images_are_no_work() -> None:
    load = Case(TEMPLATE, bare, ((Symbol("N", 0), 9, 9, 4), (8, 4, 3, 3)), (), (1,)).workload()
    args = [np.ones((0, 9, 9, 4), np.float32), np.ones((8, 4, 3, 3), np.float32)]
    schedule = TEMPLATE.default(load, TARGETS[0])
    assert run(TEMPLATE, load, schedule, args, TARGETS[0], {"N": 0}).shape == (0, 7, 7, 8)


def launch_of(m: int, shape: tuple[int, ...], out: int, target: Target) -> tuple[int, int]:
    """The blocks of a convolution with one panel for all channels, and the workspace."""
    load = static(shape, out, shape[-1], 3, 3)
    types = (*(p.type.shape for p in load.body.params), load.result.shape)
    launch = TEMPLATE.launch(load, {"m": m, "nr": 16}, types, target)
    assert isinstance(launch.extent, int)
    assert isinstance(launch.workspace, int)
    return launch.extent // math.ceil(out / 16), launch.workspace


@pytest.mark.parametrize(
    ("m", "shape", "blocks"),
    [
        (4, (1, 58, 58, 16), 4),  # 196 patches, V and M of 56 in half of the cache
        (4, (1, 30, 30, 128), 3),  # 49, of 24 at least
        (2, (1, 16, 16, 256), 1),  # 49, wide
        (6, (1, 3, 3, 8), 1),
    ],
)
def test_the_patches_of_a_block_fit_the_second_cache(
    m: int, shape: tuple[int, ...], blocks: int
) -> None:
    target = replace(TARGETS[1], l2=512 << 10)
    found, workspace = launch_of(m, shape, 48, target)
    assert found == blocks
    assert workspace < 2 << 20


@pytest.mark.parametrize(
    ("shape", "m"),
    [
        ((1, 9, 9, 512), 2),
        ((1, 58, 58, 64), 4),
        ((1, 98, 98, 128), 4),
        ((Symbol("N", 1, 8), 16, 16, 256), 4),
    ],
    ids=["weights weigh most", "usual", "large", "any"],
)
def test_a_default_is_what_the_model_finds_best(shape: tuple[Dim, ...], m: int) -> None:
    load = static(shape, shape[-1], shape[-1], 3, 3)
    target = replace(TALL, name="emeraldrapids", l2=2 << 20, l3=300 << 20)
    default = TEMPLATE.default(load, target)
    assert default["m"] == m
    if load.result.is_static:
        assert TEMPLATE.cost is not None
        able = [s for s in legal(TEMPLATE, load, target) if int(s["m"]) <= winograd.UNMEASURED]
        taken = TEMPLATE.cost(load).seconds(able, Points([{}]), target, 8 << 20)[0]
        ((best,),) = TEMPLATE.cost(load).seconds([default], Points([{}]), target, 8 << 20)
        assert best == taken.min()


def test_of_patches_that_are_alike_a_default_has_the_smallest() -> None:
    target = replace(TALL, l2=1 << 20, l3=32 << 20)
    passed_over = 0
    for size, channels in itertools.product(range(8, 24), (32, 64, 128, 256)):
        load = static((1, size, size, channels), channels, channels, 3, 3)
        assert TEMPLATE.cost is not None
        able = [s for s in legal(TEMPLATE, load, target) if int(s["m"]) <= winograd.UNMEASURED]
        logs = np.log(
            TEMPLATE.cost(load).seconds(able, Points([{}]), target, cold_bytes(target))[0]
        )
        m = int(TEMPLATE.default(load, target)["m"])
        best = {k: logs[[int(s["m"]) == k for s in able]].min() for k in NUMBERS if k <= 4}
        assert m == min(k for k, log in best.items() if log <= logs.min() + ALIKE)
        passed_over += best[m] > logs.min()
    assert passed_over


# --- weights -----------------------------------------------------------------------------------


def test_weights_are_transformed_as_they_are_packed() -> None:
    load = static((1, 9, 9, 5), 20, 5, 3, 3)
    weights = np.zeros((20, 5, 3, 3), np.float32)
    weights[17, 3, 1, 1] = 1
    packed = TEMPLATE.pack(load, {"m": 4, "nr": 16}, 1, weights)
    assert packed is not None
    assert (packed.shape, packed.dtype) == ((2 * 36 + 2 * 9, 5, 16), np.dtype("float32"))
    elements, taps = packed[:72].reshape(2, 36, 5, 16), packed[72:].reshape(2, 9, 5, 16)
    middle = np.array([float(row[1]) for row in minimal.taps(6, 3)])
    mine = elements[1, :, 3, 1]
    np.testing.assert_array_equal(mine, np.outer(middle, middle).astype("f").ravel())
    assert taps[1, 4, 3, 1] == 1
    elements[1, :, 3, 1] = taps[1, 4, 3, 1] = 0
    assert not packed.any()
    assert TEMPLATE.pack(load, {"m": 4, "nr": 16}, 0, weights) is None


def test_weights_of_one_line_are_transformed_along_it() -> None:
    weights = np.random.default_rng(0).standard_normal((4, 3, 1, 3)).astype(np.float32)
    packed = [
        TEMPLATE.pack(static((1, 9, 9, 3), *w.shape), {"m": 4, "nr": 8}, 1, w)
        for w in (weights, weights.swapaxes(2, 3))
    ]
    matrix = np.array(minimal.taps(6, 3), np.float64)
    want = np.einsum("yx,oix->yio", matrix, weights[:, :, 0]).astype(np.float32)
    for found in packed:
        assert found is not None
        assert found.shape == (6 + 3, 3, 8)
        np.testing.assert_allclose(found[:6, :, :4], want, rtol=1e-6)


def test_weights_of_strides_are_packed_phase_by_phase() -> None:
    """Behind each other for an element, those at infinity last, of which the first one has some."""
    load = static((1, 9, 9, 16), 8, 16, 1, 3, strides=(1, 2))
    weights = np.random.default_rng(0).standard_normal((8, 16, 1, 3)).astype(np.float32)
    packed = TEMPLATE.pack(load, {"m": 3, "nr": 8}, 1, weights)
    assert packed is not None
    assert packed.shape == (7 + 3, 16, 8)
    even, odd = (np.array(minimal.taps(4, n), np.float64) for n in (2, 1))
    wanted = [
        (m[e] @ weights[:, :, 0, p::2].astype(np.float64).transpose(1, 2, 0))
        for e in range(4)
        for p, m in ((0, even), (1, odd))[: 2 if e < 3 else 1]
    ]
    np.testing.assert_allclose(packed[:7], np.array(wanted), rtol=1e-6)


def test_weights_of_groups_are_packed_group_by_group() -> None:
    load = static((1, 9, 9, 4), 20, 2, 3, 3, groups=2)
    weights = np.random.default_rng(0).standard_normal((20, 2, 3, 3)).astype(np.float32)
    packed = TEMPLATE.pack(load, {"m": 2, "nr": 8}, 1, weights)
    assert packed is not None
    assert packed.shape == (2 * 2 * (16 + 9), 2, 8)
    taps = packed[64:].reshape(2, 2, 3, 3, 2, 8)
    np.testing.assert_array_equal(taps[1, 1, 2, 0, 1, :2], weights[18:, 1, 2, 0])
    assert not taps[1, 1, ..., 2:].any()


def test_weights_are_shared_by_kernels_that_pack_them_alike() -> None:
    load = static((1, 9, 9, 5), 20, 5, 3, 3)
    keys = [TEMPLATE.pack_key(load, s, 1) for s in legal(TEMPLATE, load, TARGETS[0])]
    assert len(set(keys)) == len(keys)
    assert conv.TEMPLATE.pack_key(load, conv.TEMPLATE.default(load, TARGETS[0]), 1) not in keys
    assert TEMPLATE.pack_key(load, {"m": 4, "nr": 16}, 0) == ""
    two, four = (static((1, 9, 9, 8), 16, 8 // g, 3, 3, groups=g) for g in (2, 4))
    keys = [TEMPLATE.pack_key(w, {"m": 4, "nr": 16}, 1) for w in (two, four)]
    assert keys[0] != keys[1]
    once, twice = (static((1, 9, 9, 16), 8, 16, 4, 4, strides=(n, n)) for n in (1, 2))
    keys = [TEMPLATE.pack_key(w, {"m": 3, "nr": 16}, 1) for w in (once, twice)]
    assert keys[0] != keys[1]


# --- what is declined --------------------------------------------------------------------------


def test_it_stands_beside_the_direct_one() -> None:
    names = [t.name for t in candidates(IMAGES[0].workload())]
    assert names.index("conv2d") == 0
    assert "winograd" in names


@pytest.mark.parametrize(
    "load",
    [
        static((1, 9, 9, 16), 8, 16, 3, 3, strides=(1, 2)),  # even m along one axis, odd ones
        static((1, 9, 9, 24), 8, 24, 3, 3, strides=(2, 2)),  # no whole vectors
        static((1, 9, 9, 32), 8, 16, 3, 3, strides=(2, 2), groups=2),
        static((1, 9, 9, 16), 8, 16, 2, 2, strides=(2, 2)),  # nothing to save
        static((1, 9, 9, 4), 8, 4, 3, 3, dilations=(2, 1)),
        static((1, 9, 9, 4), 8, 1, 3, 3, groups=4),
        static((1, 9, 9, 4), 8, 4, 3, 2),
        static((1, 9, 9, 4), 8, 4, 1, 8),
        static((1, 9, 9, 4), 8, 4, 1, 1),
        static((1, 9, 9, 4), 8, 4, 3, 3, precision="exact"),
        static((1, 9, 9, 0), 8, 0, 3, 3),
        replace(static((1, 9, 9, 4), 8, 4, 3, 3), constant=(False, False)),
    ],
    ids=[
        "strides that differ",
        "strides of cut vectors",
        "strides of groups",
        "strides of taps",
        "dilations",
        "depthwise",
        "3x2",
        "1x8",
        "1x1",
        "exact",
        "no channels",
        "unknown weights",
    ],
)
def test_other_convolutions_are_declined(load: Workload) -> None:
    assert not TEMPLATE.accepts(load)


@pytest.mark.parametrize(
    ("shape", "template"),
    [
        ((1, 3, 3, 512), "conv2d"),  # the weights alone take longer
        ((1, 58, 58, 64), "winograd"),
        ((Symbol("N", 1, 256), 16, 16, 256), "winograd"),
        ((ANY, 58, 58, 64), "conv2d"),  # nothing tells how many
    ],
    ids=["one pixel", "usual", "any", "unknown"],
)
def test_it_is_the_default_where_it_is_expected_to_take_much_less(
    shape: tuple[Dim, ...], template: str
) -> None:
    load = static(shape, shape[-1], shape[-1], 3, 3)
    target = replace(TALL, name="emeraldrapids", l2=2 << 20, l3=300 << 20)
    assert default_of(load, candidates(load), target).at(1).template == template


def test_illegal_schedules_say_why() -> None:
    load, target = IMAGES[0].workload(), TARGETS[1]
    for schedule, why in (
        ({"m": 3, "nr": 16}, r"m=3 is not in (2, 4, 6)"),
        ({"m": 4, "nr": 32}, r"nr=32 is not in (16, 24)"),
        ({"m": 4}, "expected the knobs ['m', 'nr'], got ['m']"),
    ):
        assert TEMPLATE.valid(load, schedule, target) == why


# --- networks ----------------------------------------------------------------------------------


def block_of_resnet() -> Module:
    """Two padded convolutions of NCHW images, the second one beside what went in."""
    rng = np.random.default_rng(5)
    weights = [rng.standard_normal((24, 24, 3, 3)).astype(np.float32) for _ in range(2)]
    x, b = Var("x", tensor("float32", N, 24, H, W)), Builder()
    y = b.emit(ops.conv2d, x, Const(weights[0]), pads=(1, 1, 1, 1))
    y = b.emit(ops.conv2d, b.emit(ops.relu, y), Const(weights[1]), pads=(1, 1, 1, 1))
    y = b.emit(ops.relu, b.emit(ops.add, y, x))
    return Module({"main": b.function("main", [x], [y])})


def calls_of(program: Program) -> list[KernelCall]:
    steps = instructions(program.decide("main").code)
    return [c for i in steps if isinstance(i, RunSegment) for c in i.segment.calls]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_network_runs_what_its_strategy_says(threads: int) -> None:
    """Launched by the native plan, on any sizes, each thread in a workspace of its own."""
    module, target = block_of_resnet(), host()
    asked = partial(decide, module, target=target, threads=threads, executor="auto")
    able = [c.workload for c in calls_of(asked(defaults)) if TEMPLATE.accepts(c.workload)]
    assert len({w.hash for w in able}) == 2
    made = {w.hash: Implementation("winograd", TEMPLATE.default(w, target)) for w in able}
    program = asked(lambda _: configuration_of(made))
    names = [c.implementation.template for c in calls_of(program)]
    assert names.count("winograd") == 2
    exe = Executable(link(program), module, 0.0)
    for n, h, w in ((1, 9, 10), (3, 28, 30), (2, 1, 4)):
        args = [np.random.default_rng(n).standard_normal((n, 24, h, w)).astype(np.float32)]
        (got,), (want,) = exe.run(*args), evaluate_module(module, *args)
        np.testing.assert_allclose(got, want, rtol=0, atol=3e-5 * np.abs(want).max())
