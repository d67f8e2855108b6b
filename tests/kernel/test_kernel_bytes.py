"""Products of bytes: exact at every legal schedule, width and sign, in parts, inside a rim."""

from __future__ import annotations

import re
from dataclasses import replace
from types import ModuleType
from typing import Any

import kernel_call
import numpy as np
import pytest
from kernel_call import check, loop_template, workload

from bucketize import ops
from bucketize.kernel.codegen import machine
from bucketize.kernel.emit.dot import DOT
from bucketize.kernel.int8.conv import TEMPLATE as WINDOWS
from bucketize.kernel.int8.matmul import PAIR, TEMPLATE, as_laid_out
from bucketize.kernel.template import combinations
from bucketize.kernel.templates import candidates
from bucketize.kernel.workload import Workload
from bucketize.machine.host import host
from bucketize.machine.named import named
from bucketize.machine.target import Target, described
from bucketize.op import Array
from bucketize.types import Dim, Symbol, tensor

N, M, K = Symbol("N", 0), Symbol("M"), Symbol("K", 0)
TARGETS = [
    replace(host(), lanes=n, registers=r)
    for n, r in ((16, 32), (8, 16), (4, 16))
    if n <= host().lanes  # LLVM has no instructions for bytes that are wider than the processor's
]
if host().processor.vectors == "neon":  # with products of mixed bytes, and without
    LESS = replace(host().processor, features=f"{host().processor.features},-i8mm")
    TARGETS.append(replace(host(), name="without", processor=LESS))
SIGNS = [(x, y) for x in ("int8", "uint8") for y in ("int8", "uint8")]
EXTENTS = [(0, 3, 5), (1, 1, 2), (5, 4, 64), (7, 7, 65), (97, 9, 130), (200, 66, 17), (3, 0, 4)]


def drawn(dtype: str, *shape: int, seed: int = 0) -> Array:
    """Any bytes, and the greatest ones in front."""
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(seed)
    out = rng.integers(limits.min, limits.max + 1, shape).astype(dtype)
    out[..., :2] = limits.min if limits.min else limits.max
    return out


def by_known(x: str, y: str, depth: int, columns: int, *batch: Dim) -> Workload:
    types = tensor(x, *batch, N, depth), tensor(y, depth, columns)
    return replace(workload(ops.matmul_integer, *types), constant=(False, True))


@pytest.mark.sweep
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: f"{t.name}-lanes{t.lanes}")
@pytest.mark.parametrize(("x", "y"), SIGNS)
def test_sums_are_exact_at_every_schedule(
    x: str, y: str, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_call, "host", lambda: target)
    for rows, depth, columns in EXTENTS:
        load = by_known(x, y, depth, columns)
        args = [drawn(x, rows, depth), drawn(y, depth, columns, seed=1)]
        for schedule in combinations(TEMPLATE.knobs(load, target)):
            assert TEMPLATE.valid(load, schedule, target) is None
            check(load, args, {"N": rows}, schedule, TEMPLATE)


@pytest.mark.parametrize(("x", "y"), SIGNS)
def test_sums_that_pass_2_to_the_24_are_exact(x: str, y: str) -> None:
    """As floats they would not be."""
    load = by_known(x, y, 1031, 3)
    args = [np.full(s, np.iinfo(d).max, d) for d, s in ((x, (2, 1031)), (y, (1031, 3)))]
    args[0][0, 0] -= 1
    check(load, args, {"N": 2}, template=TEMPLATE)


def test_rows_may_have_several_axes() -> None:
    load = by_known("uint8", "int8", 6, 70, M)
    args = [drawn("uint8", 3, 5, 6), drawn("int8", 6, 70)]
    check(load, args, {"M": 3, "N": 5}, template=TEMPLATE)


# --- convolutions --------------------------------------------------------------------------------

H, W = Symbol("H"), Symbol("W")
SLID: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 6, 7, 3), (5, 3, 3, 3), {"pads": (1, 1, 1, 1)}),
    ((2, 5, 4, 8), (70, 8, 1, 1), {}),
    ((1, 7, 6, 20), (9, 20, 1, 1), {"strides": (2, 2)}),
    ((1, 9, 8, 5), (4, 5, 3, 2), {"pads": (2, 0, 1, 3), "dilations": (2, 3), "strides": (1, 2)}),
    ((3, 4, 12, 3), (6, 3, 7, 7), {"pads": (3, 3, 3, 3), "strides": (2, 2)}),
    ((1, 14, 11, 70), (66, 70, 3, 3), {"pads": (1, 1, 1, 1)}),
    ((1, 3, 3, 4), (2, 4, 1, 1), {"pads": (4, 4, 4, 4)}),  # windows of pads alone
    ((0, 6, 7, 3), (5, 3, 3, 3), {}),
]


def by_filters(x: str, y: str, image: tuple[Dim, ...], w: tuple[int, ...], **at: Any) -> Workload:
    types = tensor(x, *image), tensor(y, *w)
    load = workload(ops.conv2d_integer, *types, layout="NHWC", **at)
    return replace(load, constant=(False, True))


@pytest.mark.sweep
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: f"{t.name}-lanes{t.lanes}")
@pytest.mark.parametrize(("x", "y"), SIGNS)
def test_convolutions_are_exact_at_every_schedule(
    x: str, y: str, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_call, "host", lambda: target)
    for image, w, attrs in SLID:
        batch, height, width, channels = image
        zero = -100 if x == "int8" else 131
        load = by_filters(x, y, (N, H, W, channels), w, zero=zero, **attrs)
        args = [drawn(x, *image), drawn(y, *w, seed=1)]
        for schedule in combinations(WINDOWS.knobs(load, target)):
            assert WINDOWS.valid(load, schedule, target) is None
            sizes = {"N": batch, "H": height, "W": width}
            check(load, args, sizes, schedule, WINDOWS)


def test_images_in_other_layouts_and_weights_that_are_not_known_are_declined() -> None:
    types = tensor("uint8", N, 3, H, W), tensor("int8", 2, 3, 1, 1)
    planar = workload(ops.conv2d_integer, *types)
    assert not WINDOWS.accepts(replace(planar, constant=(False, True)))
    given = by_filters("uint8", "int8", (N, H, W, 3), (2, 3, 1, 1))
    assert WINDOWS.accepts(given)
    assert not WINDOWS.accepts(replace(given, constant=(False, False)))


# --- what is chosen ------------------------------------------------------------------------------


@pytest.mark.sweep
@pytest.mark.parametrize(("x", "y"), SIGNS)
def test_what_is_not_known_is_multiplied_in_loops(x: str, y: str) -> None:
    load = workload(ops.matmul_integer, tensor(x, M, N, K), tensor(y, M, K, 33))
    assert [t.name for t in candidates(load)] == ["matmul_loops"]
    assert loop_template(load) is not None
    check(load, [drawn(x, 2, 9, 67), drawn(y, 2, 67, 33)], {"M": 2, "N": 9, "K": 67})


def test_stacks_of_known_matrices_and_floats_are_declined() -> None:
    stack = workload(ops.matmul_integer, tensor("int8", 2, N, 3), tensor("int8", 2, 3, 4))
    assert not TEMPLATE.accepts(replace(stack, constant=(False, True)))
    floats = workload(ops.matmul, tensor("float32", N, 3), tensor("float32", 3, 4))
    assert not TEMPLATE.accepts(replace(floats, constant=(False, True)))


def test_four_bytes_at_a_time_where_a_processor_can_and_the_known_ones_have_a_sign() -> None:
    able = replace(host().processor, vectors="avx512f", features="+avx512vnni")
    can, cannot = (replace(host(), processor=p) for p in (able, replace(able, features="")))
    for x, y in SIGNS:
        load = by_known(x, y, 8, 8)
        best = DOT if y == "int8" else PAIR
        assert TEMPLATE.default(load, can)["unit"] == best
        assert TEMPLATE.default(load, cannot)["unit"] == PAIR
    load = by_known("int8", "uint8", 8, 8)
    wrong = {**TEMPLATE.default(load, can), "unit": DOT}
    assert TEMPLATE.valid(load, wrong, can) == "unit=4 is not in (2,)"


@pytest.mark.parametrize(
    ("name", "x", "instruction", "less"),
    [
        ("neoverse-n1", "uint8", "sdot", -128),
        ("neoverse-n1", "int8", "sdot", 0),
        ("neoverse-v1", "uint8", "usdot", 0),
        ("neoverse-v1", "int8", "sdot", 0),
        ("cortex-a72", "int8", "smull", 0),
        ("x86-64-v4", "int8", "vpmaddwd", 0),
    ],
)
def test_arm_multiplies_fours_of_bytes_with_signs_or_mixed_ones(
    name: str, x: str, instruction: str, less: int
) -> None:
    """Where both have signs, or the processor mixes, bytes are taken as they lie."""
    target, load = named(name), by_known(x, "int8", 64, 64)
    schedule = TEMPLATE.default(load, target)
    assert as_laid_out(load, schedule, 3) == 3 + less
    source = ModuleType("k_emitted")
    exec(TEMPLATE.source(load, schedule, target), source.__dict__)
    module, _ = source.kernel(target.processor)
    text = machine(target.processor).emit_assembly(module)
    assert re.search(rf"\t{instruction}2?\s", text)


@pytest.mark.parametrize(
    ("features", "most", "dots"),
    [
        ("avx512f avx2 avx512vnni", "", "int8"),
        ("avx512f avx2 avx512vnni", "avx2", ""),
        ("avx2 avxvnni", "", "int8"),
        ("avx512f avx2 avx512vnni avxvnni", "avx2", "int8"),
        ("avx2", "", ""),
        ("neon", "", ""),
        ("neon dotprod", "", "int8"),
        ("avx512f avx2 avx512vnni avx512bf16", "", "int8 bfloat16"),
        ("avx512f avx2 avx512bf16", "avx2", ""),
        ("neon bf16", "", "bfloat16"),
    ],
)
def test_a_processor_tells_whose_products_it_adds_up_in_its_widest_vectors(
    features: str, most: str, dots: str
) -> None:
    its = described("", "cpu", dict.fromkeys(features.split(), True), most)
    assert its.dots == set(dots.split())
