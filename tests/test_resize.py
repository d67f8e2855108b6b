"""Resizing: kernels beside the interpreter, converters beside onnxruntime and the standard."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_call import F32, C, N, check, floats, loop_template, workload

from bucketize import ops
from bucketize.ops.interpolate import COORDINATES, CROP
from bucketize.ops.resize import MODES
from bucketize.types import Symbol, tensor

D, H, W = (Symbol(name, 0) for name in "DHW")
PLAIN = [kind for kind in COORDINATES if kind != CROP]

# --- kernels -------------------------------------------------------------------------------------


@pytest.mark.parametrize("coordinates", PLAIN)
@pytest.mark.parametrize("mode", MODES)
def test_planes_of_any_size(mode: str, coordinates: str) -> None:
    """By scales of their own where these make a difference beyond their value."""
    told = (tensor(F32, 2),) if coordinates in ("half_pixel_symmetric", "align_corners") else ()
    attrs: dict[str, Any] = {"axes": (2, 3), "mode": mode, "coordinates": coordinates}
    image = tensor(F32, N, C, H, W)
    load = workload(ops.resize, image, *told, sizes=(D, Symbol("E", 0)), **attrs)
    scales = [np.float32([0.7, 2.1]) for _ in told]
    for height, width, down, across in ((5, 7, 3, 16), (4, 3, 9, 1), (1, 2, 1, 5), (6, 1, 4, 4)):
        env = {"N": 2, "C": 3, "H": height, "W": width, "D": down, "E": across}
        check(load, [floats(2, 3, height, width), *scales], env)


@pytest.mark.parametrize("coordinates", ["half_pixel", "asymmetric"])
@pytest.mark.parametrize("factor", [2, 4])
@pytest.mark.parametrize("mode", MODES)
def test_patterns_that_are_written_out(mode: str, factor: int, coordinates: str) -> None:
    attrs: dict[str, Any] = {"axes": (2, 3), "mode": mode, "coordinates": coordinates}
    image = tensor(F32, N, C, H, W)
    load = workload(ops.resize, image, sizes=(H * 2, W * factor), **attrs)
    for height, width in ((5, 33), (1, 1), (3, 2), (2, 3), (0, 4), (4, 0)):
        check(load, [floats(2, 2, height, width)], {"N": 2, "C": 2, "H": height, "W": width})


@pytest.mark.parametrize(
    ("dtype", "rounding", "axes"),
    [
        ("float32", "round_prefer_floor", (0, 1)),
        ("int64", "round_prefer_ceil", (0, 1)),
        ("uint8", "floor", (1, 2)),
        ("bool", "ceil", (1, 2)),
        ("float16", "ceil_if_shrunk", (2,)),
        ("int16", "ceil", (1,)),
    ],
)
def test_nearest_of_every_size(dtype: str, rounding: str, axes: tuple[int, ...]) -> None:
    factors = (W * 3, W * 2)[: len(axes)] if axes[-1] == 2 else ()
    for sizes in filter(None, ((D, D)[: len(axes)], factors)):
        image = tensor(dtype, N, H, W)
        load = workload(ops.resize, image, axes=axes, sizes=sizes, rounding=rounding)
        x = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 99, (3, 4, 9))
        check(load, [x.astype(dtype)], {"N": 3, "H": 4, "W": 9, "D": 5})


@pytest.mark.parametrize(
    ("dtype", "mode"), [("float32", "linear"), ("float64", "cubic"), ("float16", "linear")]
)
def test_axes_anywhere(dtype: str, mode: str) -> None:
    """Channels last, one axis, three, and with one between that stays."""
    shape = (2, 3, 4, 5, 6)
    for axes in ((1, 2), (1,), (4,), (2, 3, 4), (2, 4)):
        sizes = tuple(shape[a] + 3 - 2 * k for k, a in enumerate(axes))
        load = workload(ops.resize, tensor(dtype, *shape), axes=axes, sizes=sizes, mode=mode)
        assert loop_template(load) is not None
        check(load, [floats(*shape).astype(dtype)], {})


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_what_lies_outside_may_be_left_out(mode: str) -> None:
    attrs: dict[str, Any] = {"axes": (0, 1), "mode": mode, "exclude_outside": True}
    load = workload(ops.resize, tensor(F32, H, W), sizes=(H * 2, W * 2), cubic=-0.5, **attrs)
    for height, width in ((3, 9), (1, 2)):
        check(load, [floats(height, width)], {"H": height, "W": width})


def test_no_kernel_takes_what_is_rare() -> None:
    """They are computed by numpy."""
    attrs: dict[str, Any] = {"axes": (0,), "sizes": (3,), "mode": "linear"}
    for rare in ({"antialias": True}, {"policy": "not_larger"}):
        assert loop_template(workload(ops.resize, tensor(F32, N), **attrs, **rare)) is None
    assert loop_template(workload(ops.resize, tensor("int64", N), **attrs)) is None
    crop = workload(ops.resize, tensor(F32, N), tensor(F32, 2), **attrs, coordinates=CROP)
    assert loop_template(crop) is None
