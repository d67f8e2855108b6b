"""Pooling by vectors of channels equals the interpreter, at any width, window and image.

The image lies between NaNs, so that what is read outside of it shows.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from kernel_call import F32, RIM, N, check, floats, workload

from bucketize.interpret import run_function
from bucketize.kernel.build import build
from bucketize.kernel.pool.template import TEMPLATE
from bucketize.kernel.templates import candidates
from bucketize.machine.host import host
from bucketize.op import Array
from bucketize.ops import avg_pool2d, max_pool2d
from bucketize.types import Dim, Points, Symbol, tensor

Attrs = Mapping[str, Any]

H, W, C = Symbol("H"), Symbol("W"), Symbol("C")
TARGETS = [replace(host(), lanes=n, registers=r) for n, r in ((16, 32), (8, 16), (4, 32))]
OPS: dict[str, tuple[Any, Attrs]] = {
    "max": (max_pool2d, {}),
    "mean": (avg_pool2d, {}),
    "mean with pads": (avg_pool2d, {"count_include_pad": True}),
}
WINDOWS: list[dict[str, Any]] = [
    {"kernel": (1, 1)},
    {"kernel": (2, 2), "strides": (2, 2)},
    {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)},
    {"kernel": (3, 2), "strides": (1, 3), "pads": (0, 1, 2, 0)},
    {"kernel": (5, 4), "strides": (3, 2), "pads": (4, 3, 0, 1)},
    {"kernel": (7, 7), "strides": (3, 3), "pads": (3, 3, 3, 3)},
    {"kernel": (7, 6), "pads": (6, 5, 6, 5)},
    {"kernel": (1, 2), "strides": (1, 1), "pads": (2, 3, 1, 2)},  # some are of pads alone
    {"kernel": (2, 3), "strides": (1, 2), "pads": (0, 2, 1, 0), "dilations": (2, 1)},
    {"kernel": (3, 3), "pads": (2, 4, 3, 7), "dilations": (3, 4)},
    {"kernel": (2, 2), "strides": (3, 3), "pads": (5, 0, 5, 0), "dilations": (5, 2)},
    {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 0, 1, 0), "ceil_mode": True},
    {"kernel": (2, 3), "strides": (3, 3), "pads": (0, 1, 1, 2), "ceil_mode": True},
]


def least(attrs: Attrs) -> Iterator[int]:
    """The smallest extents that a window fits into, with its pads."""
    pads, dilations = attrs.get("pads", (0,) * 4), attrs.get("dilations", (1, 1))
    for i in range(2):
        reach = (attrs["kernel"][i] - 1) * dilations[i] + 1
        yield max(reach - pads[i] - pads[i + 2], 1)


def between_nans(x: Array) -> Array:
    """The same where what lies around it is NaN."""
    memory = np.full(x.size + 2 * RIM, np.nan, np.float32)
    memory[RIM:-RIM] = x.reshape(-1)
    return memory[RIM:-RIM].reshape(x.shape)


def checked(load: Any, x: Array, env: Mapping[str, int], target: Any = TARGETS[0]) -> None:
    """The kernel that is made for `target` equals the op."""
    made = replace(TEMPLATE, source=lambda load, way, _: TEMPLATE.source(load, way, target))
    with np.errstate(invalid="ignore", divide="ignore"):  # a mean over nothing, or inf - inf
        check(load, [between_nans(x)], env, template=made)


@pytest.mark.sweep
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: f"lanes{t.lanes}")
@pytest.mark.parametrize("attrs", WINDOWS, ids=range(len(WINDOWS)))
@pytest.mark.parametrize("name", OPS)
def test_pooling_is_its_op(name: str, attrs: Attrs, target: Any) -> None:
    op, more = OPS[name]
    load = workload(op, tensor(F32, N, H, W, C), **attrs, **more, layout="NHWC")
    h, w = least(attrs)
    for channels in (1, 3, 17, 64, 65):
        for n, height, width in ((1, h, w), (2, h + 8, w + 5)):
            env = {"N": n, "H": height, "W": width, "C": channels}
            checked(load, floats(n, height, width, channels), env, target)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: f"lanes{t.lanes}")
@pytest.mark.parametrize("channels", [3, 16, 48, 65, 128])
def test_channels_that_are_known_may_need_no_mask(channels: int, target: Any) -> None:
    for op, more in OPS.values():
        load = workload(op, tensor(F32, N, H, W, channels), **WINDOWS[2], **more, layout="NHWC")
        text = TEMPLATE.source(load, {}, target)
        assert f"'cut': {channels % target.lanes != 0}" in text
        checked(load, floats(2, 6, 5, channels), {"N": 2, "H": 6, "W": 5}, target)


@pytest.mark.parametrize("name", OPS)
def test_infinities_and_nan_are_where_they_are_in_the_op(name: str) -> None:
    op, more = OPS[name]
    dice = np.random.default_rng(3)
    for attrs in (WINDOWS[2], WINDOWS[8]):
        load = workload(op, tensor(F32, N, H, W, C), **attrs, **more, layout="NHWC")
        for special in itertools.combinations_with_replacement((np.nan, np.inf, -np.inf), 2):
            x = floats(2, 9, 8, 21)
            strange = dice.random(x.shape) < 0.2
            x[strange] = dice.choice(special, strange.sum())
            checked(load, x, {"N": 2, "H": 9, "W": 8, "C": 21})


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: f"lanes{t.lanes}")
def test_a_nan_anywhere_in_a_window_is_its_greatest(target: Any) -> None:
    load = workload(max_pool2d, tensor(F32, N, H, W, C), kernel=(3, 3), layout="NHWC")
    for place in range(9):
        x = floats(1, 3, 3, 70)
        x.reshape(9, 70)[place] = np.nan
        checked(load, x, {"N": 1, "H": 3, "W": 3, "C": 70}, target)


@pytest.mark.parametrize("name", OPS)
def test_a_part_writes_its_own_pixels_alone(name: str) -> None:
    op, more = OPS[name]
    load = workload(op, tensor(F32, 2, 5, 6, 3), kernel=(2, 2), **more, layout="NHWC")
    x, pixels = floats(2, 5, 6, 3), 2 * 4 * 5
    (want,) = run_function(load.body, [x])
    kernel = build(TEMPLATE.source(load, {}, host()), name_hint=TEMPLATE.name)
    shapes = (load.body.params[0].type.shape, load.result.shape)
    launch = TEMPLATE.launch(load, {}, shapes, host())
    assert launch.extent == pixels
    for begin, end in ((0, 16), (16, 32), (7, 8), (20, 20), (32, pixels)):
        got = np.full((pixels, 3), 7, np.float32)
        block = np.array([got.ctypes.data, x.ctypes.data, 0, begin, end, *launch.dims], np.int64)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(kernel.address)(block.ctypes.data)
        mine = (np.arange(pixels) >= begin) & (np.arange(pixels) < end)
        np.testing.assert_allclose(got[mine], want.reshape(pixels, 3)[mine], rtol=1e-6)
        assert (got[~mine] == 7).all()


def test_a_window_may_be_told_by_symbols() -> None:
    k, p = Symbol("K"), Symbol("P", 0)
    for op, more in OPS.values():
        attrs: Attrs = {"kernel": (k, 2), "pads": (p, 0, 1, p), **more}
        load = workload(op, tensor(F32, N, H + k, W + 2, C), **attrs, layout="NHWC")
        for kernel, pad in ((1, 0), (4, 3)):
            env = {"N": 2, "H": 5, "W": 4, "C": 9, "K": kernel, "P": pad}
            checked(load, floats(2, 5 + kernel, 6, 9), env)


def test_no_image_is_no_work() -> None:
    load = workload(max_pool2d, tensor(F32, Symbol("N", 0), H, W, C), kernel=(1, 1), layout="NHWC")
    checked(load, floats(0, 3, 3, 5), {"N": 0, "H": 3, "W": 3, "C": 5})


def test_windows_share_a_kernel() -> None:
    def text(channels: Dim, **attrs: Any) -> str:
        load = workload(max_pool2d, tensor(F32, N, H, W, channels), **attrs, layout="NHWC")
        return TEMPLATE.source(load, {}, TARGETS[0])

    assert len({text(C, **attrs) for attrs in WINDOWS if "dilations" not in attrs}) == 1
    assert len({text(C, **attrs) for attrs in WINDOWS}) == 2
    assert text(64, kernel=(2, 2)) == text(128, kernel=(3, 3)) != text(65, kernel=(3, 3))


def test_it_is_the_default_of_images_of_float32_in_nhwc_alone() -> None:
    def names(dtype: str, layout: str) -> list[str]:
        load = workload(max_pool2d, tensor(dtype, 1, 8, 8, 8), kernel=(2, 2), layout=layout)
        return [t.name for t in candidates(load)]

    assert names("float32", "NHWC") == ["pool_nhwc", "pool"]
    for dtype, layout in (("float32", "NCHW"), ("float64", "NHWC"), ("int8", "NHWC")):
        assert names(dtype, layout) == ["pool"]


def test_there_is_nothing_to_tune() -> None:
    load = workload(max_pool2d, tensor(F32, N, H, W, C), kernel=(2, 2), layout="NHWC")
    assert TEMPLATE.knobs(load, host()) == TEMPLATE.default(load, host()) == {}
    wrong = TEMPLATE.valid(load, {"columns": 4}, host())
    assert wrong == "expected the knobs [], got ['columns']"


def seconds(size: int, op: Any = max_pool2d, kernel: int = 3) -> float:
    load = workload(op, tensor(F32, N, H, W, 64), kernel=(kernel, kernel), layout="NHWC")
    assert TEMPLATE.cost is not None
    at = Points([{"N": 1, "H": size, "W": size}])
    ((taken,),) = TEMPLATE.cost(load).seconds([{}], at, TARGETS[0])
    return float(taken)


def test_what_it_takes_is_what_it_works_on_or_what_it_moves() -> None:
    assert seconds(56, kernel=7) > 3 * seconds(56)
    assert seconds(56) > seconds(56, avg_pool2d)
    assert seconds(1024, avg_pool2d, 1) > 2 * 4 * 64 * 1024**2 / 200e9
    assert math.isclose(seconds(1024) / seconds(512), 4, rel_tol=0.1)
