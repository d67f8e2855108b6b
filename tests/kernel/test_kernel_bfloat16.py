"""Products of bfloat16 in pairs: at every legal schedule and width, beside the reference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import kernel_call
import numpy as np
import pytest
from kernel_call import check, readable, run, workload

from bucketize import ops
from bucketize.kernel.bfloat16.conv import TEMPLATE as WINDOWS
from bucketize.kernel.bfloat16.matmul import TEMPLATE
from bucketize.kernel.template import Template
from bucketize.kernel.templates import candidates
from bucketize.kernel.workload import Workload
from bucketize.machine.host import host
from bucketize.machine.named import X86_LINUX, named
from bucketize.machine.target import Processor, Target, target_of
from bucketize.op import Array
from bucketize.types import Dim, Symbol, tensor

pytestmark = pytest.mark.usefixtures("few_registers")

N, M, H, W = Symbol("N", 0), Symbol("M"), Symbol("H"), Symbol("W")
COOPER = "avx512f avx512bw avx512dq avx512vl avx512bf16"
ABLE = Processor(
    X86_LINUX, "cooperlake", ",".join(f"+{f}" for f in COOPER.split()), "avx512f", False
)
TARGETS = [
    replace(host(), lanes=n, registers=r)
    for n, r in ((16, 32), (8, 16), (4, 32))
    if n <= host().lanes and TEMPLATE.dot in host().processor.dots
]
ON_EACH = pytest.mark.parametrize("target", TARGETS, ids=lambda t: f"lanes{t.lanes}")
EXTENTS = [(0, 2, 5), (1, 4, 2), (5, 4, 64), (7, 66, 65), (33, 514, 130), (3, 0, 4)]
SLID: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 6, 7, 4), (5, 4, 3, 3), {"pads": (1, 1, 1, 1)}),
    ((2, 5, 4, 8), (70, 8, 1, 1), {}),
    ((1, 7, 6, 20), (9, 20, 1, 1), {"strides": (2, 2)}),
    ((1, 9, 8, 6), (4, 6, 3, 2), {"pads": (2, 0, 1, 3), "dilations": (2, 3), "strides": (1, 2)}),
    ((3, 4, 5, 12), (6, 4, 3, 3), {"groups": 3}),
    ((1, 3, 3, 4), (2, 4, 1, 1), {"pads": (4, 4, 4, 4)}),  # windows of pads alone
    ((0, 6, 7, 2), (5, 2, 3, 3), {}),
]


def drawn(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype("bfloat16")


def known(load: Workload) -> Workload:
    return replace(load, constant=(False, True))


def by_known(depth: int, columns: int, *batch: Dim) -> Workload:
    types = tensor("bfloat16", *batch, N, depth), tensor("bfloat16", depth, columns)
    return known(workload(ops.matmul, *types))


def by_filters(w: tuple[int, ...], layout: str = "NHWC", **at: Any) -> Workload:
    image = tensor("bfloat16", N, H, W, w[1] * at.get("groups", 1))
    return known(workload(ops.conv2d, image, tensor("bfloat16", *w), layout=layout, **at))


def schedules(
    template: Template, load: Workload, target: Target, turn: int
) -> list[dict[str, Any]]:
    """The default, and the highest and the lowest tile of a width: each has its turn."""
    knobs = template.knobs(load, target)
    each = [{"mr": mr, "nr": nr, "kc": 128} for nr in knobs["nr"] for mr in knobs["mr"]]
    legal = [s for s in each if template.valid(load, s, target) is None]
    by_width = {s["nr"]: [x for x in legal if x["nr"] == s["nr"]] for s in legal}
    some = list(by_width.values())[turn % len(by_width)]
    return [template.default(load, target), some[0], some[-1]]


@pytest.mark.sweep
@ON_EACH
def test_products_are_those_of_the_reference(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_call, "host", lambda: target)
    for turn, (rows, depth, columns) in enumerate(EXTENTS):
        load = by_known(depth, columns)
        for schedule in schedules(TEMPLATE, load, target, turn):
            args = [drawn(rows, depth), drawn(depth, columns, seed=1)]
            check(load, args, {"N": rows}, schedule, TEMPLATE)


@pytest.mark.sweep
@ON_EACH
def test_convolutions_are_those_of_the_reference(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_call, "host", lambda: target)
    for turn, (image, w, attrs) in enumerate(SLID):
        load, sizes = by_filters(w, **attrs), dict(zip("NHW", image[:3], strict=True))
        for schedule in schedules(WINDOWS, load, target, turn):
            check(load, [drawn(*image), drawn(*w, seed=1)], sizes, schedule, WINDOWS)


@ON_EACH
def test_rows_may_have_several_axes(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_call, "host", lambda: target)
    args = [drawn(3, 5, 6), drawn(6, 70, seed=1)]
    check(by_known(6, 70, M), args, {"M": 3, "N": 5}, template=TEMPLATE)


@ON_EACH
def test_what_is_no_number_is_none_and_denormals_are_zeros(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Infinities and NaN go on; a number below 2**-126 counts nothing on x86-64."""
    monkeypatch.setattr(kernel_call, "host", lambda: target)
    x = np.ones((4, 4), "bfloat16")
    x[0, 0], x[1, 1], x[2, 2], x[3] = np.inf, np.nan, -np.inf, 2.0**-127
    weights = np.full((4, 3), 2.0**20, "bfloat16")
    load = by_known(4, 3)
    (got,) = run(
        TEMPLATE, load, TEMPLATE.default(load, target), [x, weights], {"N": 4}, [x[:, :3]], 1
    )
    assert readable(got)[:3, 0].tolist()[::2] == [np.inf, -np.inf]
    assert np.isnan(readable(got)[1]).all()
    assert set(readable(got)[3].tolist()) <= {0.0, 2.0**-105}


@ON_EACH
def test_dilated_windows_of_weights_that_are_no_numbers_meet_pads(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zero times infinity is NaN, whichever of a pair it is in."""
    monkeypatch.setattr(kernel_call, "host", lambda: target)
    load = by_filters((3, 4, 3, 3), pads=(3, 3, 3, 3), dilations=(3, 3))
    for place in range(4):
        weights = drawn(3, 4, 3, 3, seed=1)
        weights[0, place, 0, 0] = np.inf
        check(load, [drawn(1, 5, 5, 4), weights], {"N": 1, "H": 5, "W": 5}, template=WINDOWS)


# --- what is chosen ------------------------------------------------------------------------------


def test_pairs_are_multiplied_where_a_processor_can() -> None:
    able, unable = target_of(ABLE), named("x86-64-v4")
    for load, loops in ((by_known(8, 8), "matmul"), (by_filters((8, 8, 3, 3)), "conv2d")):
        names = [[t.name for t in candidates(load, on)] for on in (able, unable, None)]
        assert names[:2] == [[f"{loops}_bfloat16"], [f"{loops}_loops"]]
        assert names[2] == [f"{loops}_bfloat16", f"{loops}_loops"]


def test_what_lies_in_no_pairs_is_declined() -> None:
    assert not TEMPLATE.accepts(by_known(7, 8))
    assert not TEMPLATE.accepts(replace(by_known(8, 8), constant=(False, False)))
    stack = tensor("bfloat16", 2, N, 4), tensor("bfloat16", 2, 4, 3)
    assert not TEMPLATE.accepts(known(workload(ops.matmul, *stack)))
    floats = tensor("float32", N, 4), tensor("float32", 4, 3)
    assert not TEMPLATE.accepts(known(workload(ops.matmul, *floats)))
    assert not WINDOWS.accepts(by_filters((8, 3, 3, 3)))
    assert not WINDOWS.accepts(replace(by_filters((8, 4, 3, 3)), constant=(False, False)))
    image = tensor("bfloat16", N, 4, H, W), tensor("bfloat16", 8, 4, 3, 3)
    assert not WINDOWS.accepts(known(workload(ops.conv2d, *image)))


KINDS = {"product": (TEMPLATE, by_known(64, 256)), "conv": (WINDOWS, by_filters((64, 32, 3, 3)))}
"""What the machine code of is read, in `test_assembly`."""
