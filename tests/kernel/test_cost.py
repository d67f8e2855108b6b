"""The model of what kernels take: laws over all templates."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from agreement import agree
from kernel_call import workload
from test_kernel_bfloat16 import KINDS as IN_PAIRS
from test_kernel_bytes import SIGNS, H, N, W, by_filters, by_known
from test_kernel_loops import CASES as LOOPS
from test_kernel_loops import workload_of
from test_vector_templates import CASES as VECTORS
from test_vector_templates import legal

import bucketize
from bucketize import ops
from bucketize.errors import KernelError, TypeRelError
from bucketize.interpret import evaluate_module
from bucketize.ir import Builder, Module, Var
from bucketize.kernel.cost import seconds
from bucketize.kernel.emit.expression import operations
from bucketize.kernel.gemm.cost import tiles_of
from bucketize.kernel.gemm.matmul import balanced
from bucketize.kernel.gemm.schedule import HIGH
from bucketize.kernel.loops.cost import FITTED, KINDS, Steps
from bucketize.kernel.schedule import Implementation
from bucketize.kernel.select import Select
from bucketize.kernel.template import Template
from bucketize.kernel.templates import TEMPLATES, candidates
from bucketize.kernel.typical import Box, TypicalPoints, between, points, slices
from bucketize.kernel.workload import Workload
from bucketize.lower.cost import _cheapest, default_of, defaults_of, is_legal, selects_of
from bucketize.machine.host import host
from bucketize.machine.speed import TYPICAL
from bucketize.machine.target import Target
from bucketize.types import ANY, Dim, Points, Symbol, bounds, evaluate, tensor

TARGET = replace(host(), name="emeraldrapids", lanes=16, registers=32)
SIZE = 192  # of every symbol: fills panels of any width, so that none is cut before it grows
WORKLOADS = [
    *(
        pytest.param(load, id=str(case))
        for case in LOOPS
        if ANY not in (load := workload_of(case)).results[0].shape  # a run tells what it takes
    ),
    *(pytest.param(case.workload(), id=f"vector-{i}") for i, case in enumerate(VECTORS)),
    *(pytest.param(by_known(*signs, 64, 256), id="-".join(signs)) for signs in SIGNS),
    pytest.param(by_filters("uint8", "int8", (N, H, W, 64), (256, 64, 3, 3)), id="windows"),
    *(pytest.param(load, id=f"bfloat16-{kind}") for kind, (_, load) in IN_PAIRS.items()),
]


def ways(load: Workload) -> list[Implementation]:
    """A few implementations of every template that takes a workload."""
    return [
        Implementation(t.name, schedule)
        for t in candidates(load)
        for schedule in legal(t, load, TARGET)[::7]
    ]


def sizes_of(load: Workload) -> dict[str, int]:
    return dict.fromkeys(load.body.mentioned(), SIZE)


@pytest.mark.parametrize("load", WORKLOADS)
def test_what_a_kernel_takes_is_positive_and_does_not_fall_as_extents_grow(load: Workload) -> None:
    sizes = sizes_of(load)
    for way in ways(load):
        taken = seconds(load, way, sizes, TARGET)
        assert 0 < taken < math.inf
        for name in sizes:
            for times in (2, 9):
                more = seconds(load, way, sizes | {name: times * SIZE}, TARGET)
                assert more >= taken, f"{way}: {name}={times * SIZE}"


@pytest.mark.parametrize("load", WORKLOADS)
def test_a_kernel_without_elements_takes_a_number_of_seconds(load: Workload) -> None:
    """Of whichever extent there is none; numpy's warnings are errors."""
    sizes = sizes_of(load)
    for way in ways(load)[:3]:
        for gone in (sizes, *([name] for name in sizes)):
            at = sizes | dict.fromkeys(gone, 0)
            if is_legal(load, at):
                assert 0 < seconds(load, way, at, TARGET) < math.inf, f"{way}: no {gone}"


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
def test_every_template_has_a_model_and_is_among_the_cases(template: Template) -> None:
    assert template.cost is not None
    assert any(template.accepts(case.values[0]) for case in WORKLOADS)


def test_what_follows_a_product_takes_as_long_as_its_exponentials() -> None:
    """Without them the model of an encoder's wide layers fell short by a tenth."""
    rows, taken = 1000, {}
    x, w = Var("x", tensor("float32", Symbol("S"), 64)), Var("w", tensor("float32", 64, 96))
    for op in (ops.relu, ops.gelu, ops.sigmoid):
        out = Builder()
        y = out.emit(op, out.emit(ops.matmul, x, w))
        load = Workload(out.function("", [x, w], [y]), (False, True))
        way = next(one for one in ways(load) if one.template == "matmul")
        taken[op] = seconds(load, way, {"S": rows}, TARGET)
    vectors, cycles = rows * 96 / TARGET.lanes, FITTED[TARGET.family]["exp"] * TARGET.speed.exp
    more = vectors * cycles / TARGET.speed.ghz / 1e9
    assert taken[ops.gelu] == taken[ops.sigmoid] == pytest.approx(taken[ops.relu] + more)


@pytest.mark.parametrize(
    ("scalar", "counted"),
    [
        ("x0 + 1", {"simple": 1}),
        ("max(x0, 0) / sqrt(x1)", {"choose": 1, "divide": 1, "root": 1}),
        ("exp(-x0) * log(x0)", {"exp": 1, "log": 1, "simple": 2}),
        ("where(x0 > 0, x0 ** 2, sin(x0))", {"simple": 3, "library": 1}),
        ("pow(x0, x1)", {"library": 1}),
        ("x0", {}),
    ],
)
def test_operations_are_counted_by_their_kind(scalar: str, counted: dict[str, int]) -> None:
    assert operations(scalar) == counted


def test_threads_have_the_speed_of_cores_that_all_work() -> None:
    slow = replace(TARGET, beside=replace(TYPICAL, ghz=TYPICAL.ghz / 2))
    load = next(c.values[0] for c in WORKLOADS if c.values[0].anchor.op is ops.matmul)
    way, sizes = ways(load)[0], dict.fromkeys(sizes_of(load), 4096)

    def taken(its: Target, threads: int) -> float:
        return seconds(load, way, sizes, its, threads=threads)

    assert taken(slow, 1) == taken(TARGET, 1)
    assert taken(slow, 2) == pytest.approx(2 * taken(TARGET, 2), rel=0.01)


def test_the_kinds_that_templates_count_are_those_that_have_constants() -> None:
    assert KINDS.keys() | {"overlap"} == FITTED["Intel"].keys()
    for case in WORKLOADS:
        load = case.values[0]
        for template in candidates(load):
            cost = template.cost and template.cost(load)
            if isinstance(cost, Steps):
                schedule = template.default(load, TARGET)
                (counts,) = cost.counted(schedule, Points([sizes_of(load)]), TARGET, 0)
                assert counts.keys() <= KINDS.keys()


def test_cold_weights_take_longer() -> None:
    load = VECTORS[0].workload()
    (way, *_) = ways(load)
    warm, cold = (seconds(load, way, {"N": SIZE}, TARGET, n) for n in (0, 1 << 30))
    assert cold > warm


def test_a_template_without_a_model_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    load = VECTORS[0].workload()
    way = ways(load)[0]
    monkeypatch.setitem(TEMPLATES, way.template, replace(TEMPLATES[way.template], cost=None))
    with pytest.raises(KernelError, match="matmul has no model of what it takes"):
        seconds(load, way, {"N": SIZE}, TARGET)


def test_a_size_that_is_not_told_is_an_error() -> None:
    load = VECTORS[0].workload()
    with pytest.raises(TypeRelError, match="N is not known"):
        seconds(load, ways(load)[0], {}, TARGET)


@pytest.mark.parametrize(("rows", "tiles"), [(1, 1), (12, 1), (13, 2), (14, 2), (15, 2), (64, 5)])
def test_a_tile_that_is_alone_is_no_higher_than_registers_have_addresses(
    rows: int, tiles: int
) -> None:
    assert balanced(rows, 14, HIGH)["tiles"] == tiles
    assert evaluate(balanced(Symbol("N"), 14, HIGH)["tiles"], {"N": rows}) == tiles
    assert balanced(rows, 14)["tiles"] == -(-rows // 14)


@pytest.mark.parametrize("most", range(2, 15, 2))
def test_tiles_are_priced_as_they_are_cut(most):
    rows = np.arange(1, 61)
    tiles = balanced(Symbol("M"), most, HIGH)["tiles"]
    cut = [evaluate(tiles, {"M": int(m)}) for m in rows]
    assert tiles_of(rows.astype(float), np.array(float(most))).tolist() == cut


def test_what_has_no_value_at_likely_sizes_keeps_the_usual_kernel() -> None:
    """Divided by 0 in a whole bucket, or on the way from one end of it to the other."""
    span, out = Symbol("T", 1, 64), Builder()
    x = Var("x", tensor("float32", span, 8))
    y = out.emit(ops.reshape, x, newshape=(span // 8, 8 * span // (span // 8)))
    z = out.emit(ops.matmul, y, out.emit(ops.transpose, y, axes=(1, 0)))
    cuts = [{"T": ends} for ends in pairwise((1, 2, 4, 8, 16, 32, 65))]  # listed: none is left out
    mod = bucketize.dispatch(Module({"main": out.function("main", [x], [z])}), lambda _: cuts)
    exe = bucketize.compile(mod, lazy=True)
    for size in (8, 24, 32):
        rows = np.random.default_rng(0).standard_normal((size, 8), "f4")
        agree(exe.run(x=rows), evaluate_module(mod, rows), 1e-5)
    with pytest.raises(TypeRelError, match=r"^main\[T=2..3\] is not legal: 8\*T divided by 0"):
        exe.run(x=np.ones((3, 8), "f4"))
    dim = 8 * span // (Symbol("U", 0, 9) // 4)
    at = TypicalPoints([(span, (1, 256)), (Symbol("U", 0, 9), (1, 256))], [()])
    assert at.sizes[0] == {"T": 1, "U": 1}
    assert at.sizes[2] == {"T": 64, "U": 9}
    low, _, top = at.extents(dim)
    assert low == between(*bounds(dim), 0.0)
    assert top == 256


def image(batch: Dim, height: Dim, width: Dim) -> Workload:
    """A convolution of 3 x 3 of images of 256 channels by weights that are known."""
    x, w = tensor("float32", batch, height, width, 256), tensor("float32", 256, 256, 3, 3)
    load = workload(ops.conv2d, x, w, pads=(1, 1, 1, 1), layout="NHWC")
    return replace(load, constant=(False, True))


def test_open_extents_of_images_are_those_of_pictures() -> None:
    """A picture of one pixel, and a batch of a thousand of them, decide nothing."""
    n, h, w = Symbol("N", 1, None), Symbol("H", 1, None), Symbol("W", 200, None)
    sizes = points(image(n, (h - 1) // 8 + 1, w)).sizes
    assert sizes[0] == {"N": 1, "H": 64, "W": 200}
    assert sizes[1] == {"N": 4, "H": 256, "W": 453}
    assert sizes[2] == {"N": 16, "H": 1024, "W": 1024}
    bounded = points(image(1, Symbol("H", 1, 9), 5))
    assert bounded.sizes == [{"H": 1}, {"H": 3}, {"H": 9}]
    relu = points(workload(ops.relu, tensor("float32", n)))
    assert relu.sizes == [{"N": 1}, {"N": 16}, {"N": 256}]


def test_what_has_a_hundredth_of_an_extent_is_of_a_sound() -> None:
    """Its samples; not a map of a picture's, or of a picture as high as it always is."""
    t, h, w = (Symbol(name, 1, None) for name in "THW")
    spectrum = image(1, 128, t // 160 + 1)
    sizes = [{"T": 4096}, {"T": 32768}, {"T": 262144}]
    assert points(spectrum).sizes == sizes
    assert points(workload(ops.relu, tensor("float32", 1, t // 160 + 1, 8))).sizes == sizes
    line = points(image(1, 48, (t - 1) // 64 + 1)).sizes
    assert line[2] == {"T": 1024}
    pyramid = points(image(1, (h - 1) // 128 + 1, (w - 1) // 128 + 1)).sizes
    assert pyramid[2] == {"H": 1024, "W": 1024}
    seconds = points(image(1, 128, Symbol("T", 1, 80000) // 160 + 1)).sizes
    assert seconds[2] == {"T": 80000}


def test_only_an_image_has_a_height_and_a_width() -> None:
    """A slice has strides, and no image; which axes those of an image are its layout says."""
    n, h, w = (Symbol(name, 1, None) for name in "NHW")
    ends = {"begin": (1,), "end": (9,), "strides": (2,), "axes": (0,)}
    cut = points(workload(ops.strided_slice, tensor("float32", n), **ends))
    assert cut.sizes == [{"N": 1}, {"N": 16}, {"N": 256}]
    pool = points(workload(ops.max_pool2d, tensor("float32", n, 8, h, w), kernel=(2, 2)))
    assert pool.sizes[0] == {"N": 1, "H": 64, "W": 64}
    assert pool.sizes[2] == {"N": 16, "H": 1024, "W": 1024}


def test_a_convolution_of_open_images_is_that_of_pictures() -> None:
    h, w = (Symbol(name, 1, None) for name in "HW")
    load = image(1, (h - 1) // 8 + 1, (w - 1) // 8 + 1)
    assert default_of(load, candidates(load), TARGET).at(256).template == "winograd"


def test_many_boxes_are_judged_as_each_alone_even_where_a_dim_has_no_value() -> None:
    """The second box divides by 0 at its low end, the third everywhere."""
    span = Symbol("T", 0, 64)
    load = image(1, 8 * span // (span // 8), Symbol("W", 1, 256))
    able = candidates(load)
    ends = ((8, 16), (1, 64), (1, 7), (64, 64), (0, 0))
    boxes = tuple((Symbol("T", *end), Symbol("W", 1, 2**i)) for i, end in enumerate(ends))
    together = defaults_of(load, able, TARGET, boxes)
    assert together == [defaults_of(load, able, TARGET, (box,))[0] for box in boxes]
    for way, (t, w) in zip(together, boxes, strict=True):
        if t.hi >= 8:
            own = image(1, 8 * t // (t // 8), w)
            assert [way] == defaults_of(own, candidates(own), TARGET, ((),))
    n, h, w = (Symbol(name, 1, 256) for name in "NHW")
    load = image(n, (h + 1) // 2, w)
    ends = [(1 << i, 2 << i) for i in range(7)]
    boxes = tuple(tuple(Symbol(s, *end) for s in "NHW") for end in ends)
    together = defaults_of(load, candidates(load), TARGET, boxes)
    own = [image(n, (h + 1) // 2, w) for n, h, w in boxes]
    assert together == [defaults_of(one, able, TARGET, ((),))[0] for one in own]
    assert len({str(way) for way in together}) > 1


def wide(low: int, high: int) -> Workload:
    return image(1, *(Symbol(name, low, high) for name in "HW"))


def test_a_wide_range_has_several_implementations_and_each_pays() -> None:
    """None is expected to take longer than the one for the whole range, but for a step of sizes."""
    load = wide(2, 256)
    able = candidates(load)
    select = default_of(load, able, TARGET)
    (usual,) = defaults_of(load, able, TARGET, ((),))
    assert len(select.implementations) > 1
    gains = []
    for low in (2, 5, 12, 30, 74, 180):
        sizes = {"H": low, "W": low}
        chosen = select.at(low * low)
        gains.append(seconds(load, usual, sizes, TARGET) / seconds(load, chosen, sizes, TARGET))
    assert min(gains) > 1 / 1.2
    assert max(gains) > 1.2


def bounds_of(boxes: tuple[Box, ...]) -> list[tuple[tuple[int, int | None], ...]]:
    return [tuple((s.lo, s.hi) for s in box) for box in boxes]


def test_slices_begin_at_rising_sizes() -> None:
    """Of 1 to 8 lines, each for 32 of the image, the first few would begin with one."""
    h = Symbol("H", 1, 256)
    load = image(1, (h - 1) // 32 + 1, 4)
    cut = slices(load, (), 6)
    begins = [one.lo for (one,) in cut]
    assert bounds_of(cut) == [((lo, hi),) for lo, hi in pairwise([*begins, 256])]
    sizes = [evaluate(load.size, {"H": lo}) for lo in begins]
    assert sizes == sorted(set(sizes))
    assert (begins[0], sizes[0]) == (1, 1)


def test_slices_of_images_have_all_sizes_of_one() -> None:
    """Were there two of them before they have four lines, no slice would have 16 or 25 pixels."""
    n, e = Symbol("N", 1, 4), Symbol("E", 1, 12)
    cut = bounds_of(slices(image(n, e, e), (), 24))
    single = [lines for batch, lines in cut if batch == (1, 1)]
    assert [lo for lo, _ in single] == list(range(1, 13))[: len(single)]
    assert len(single) >= 11
    assert cut[-1][0][1] == 4
    h = Symbol("H", 1, 12)
    together = bounds_of(slices(image(1, h, e), (), 24))
    assert all(a == b for a, b in together)


def test_a_narrow_range_has_one() -> None:
    load = wide(32, 63)
    able = candidates(load)
    assert default_of(load, able, TARGET) == Select(tuple(defaults_of(load, able, TARGET, ((),))))


def test_all_that_run_reach_what_the_usual_one_reaches() -> None:
    """Else loops that win next to nothing at small sizes keep concats from being left out."""
    target = replace(TARGET, name="znver3", lanes=8, registers=16)
    n, h, w = (Symbol(name, 1, 256) for name in "NHW")
    attrs = {"kernel": (3, 3), "pads": (1, 1, 1, 1), "layout": "NHWC"}
    load = workload(ops.max_pool2d, tensor("float32", n, h, w, 5), **attrs)
    able = candidates(load)
    assert len(able) > 1
    (usual,) = defaults_of(load, able, target, ((),))
    reach = TEMPLATES[usual.template].pitched(load)
    assert reach
    select = default_of(load, able, target)
    assert all(reach <= TEMPLATES[i.template].pitched(load) for i in select.implementations)


def test_boxes_that_are_judged_together_leave_each_other_alone() -> None:
    """More of them than are judged at once; the first have slices without a pixel."""
    n, h, w = (Symbol(name, 1, 256) for name in "NHW")
    load = image(n, h - 4, w)
    able = candidates(load)
    ends = [(1, 3), (1, 64), (1, 256), *((8 + i, 99 + 4 * i) for i in range(17))]
    boxes = tuple(tuple(Symbol(s, *end) for s in "NHW") for end in ends)
    together = selects_of(load, able, TARGET, boxes)
    assert together == [selects_of(load, able, TARGET, (box,))[0] for box in boxes]
    assert {len(way.implementations) > 1 for way in together} == {True, False}


def test_what_is_selected_in_many_boxes_is_what_is_in_each_alone() -> None:
    load = image(*(Symbol(name, 1, 256) for name in "NHW"))
    able = candidates(load)
    ends = [(1, 256), (1, 2), (16, 31), (1, 64), (8, 256)]
    boxes = tuple(tuple(Symbol(s, *end) for s in "NHW") for end in ends)
    together = selects_of(load, able, TARGET, boxes)
    assert together == [selects_of(load, able, TARGET, (box,))[0] for box in boxes]
    assert len({str(way) for way in together}) > 2
    for way, box in zip(together, boxes, strict=True):
        assert way == default_of(image(*box), able, TARGET)


@pytest.mark.parametrize(
    ("logs", "way"),
    [
        ([[0.0, 0.0, 0.0], [0.5, -0.2, 0.5]], [0, 0, 0]),  # less than two changes cost
        ([[0.0, 0.0, 0.0], [0.5, -0.5, 0.5]], [0, 1, 0]),
        ([[0.0, 0.0, 1.0], [1.0, 0.1, 0.0]], [0, 0, 1]),
        ([[0.03, 0.03, 0.03], [0.0, 0.0, 0.0]], [1, 1, 1]),
        ([[0.5]], [0]),
    ],
)
def test_a_change_of_implementations_has_its_price(logs: list[list[float]], way: list[int]) -> None:
    assert _cheapest(np.array(logs)) == way
