"""Images looked at between their pixels, beside onnxruntime and the standard."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx_model import parse, run_ort

import bucketize
from bucketize import ops
from bucketize.errors import TypeRelError, UnsupportedModelError
from bucketize.interpret import evaluate_module
from bucketize.op import Array
from bucketize.ops.sampling import MODES, PADDINGS, POOLS
from bucketize.types import TensorType, tensor

F32, I64 = np.dtype("float32"), np.dtype("int64")
RNG = np.random.default_rng(0)


def floats(low: float, high: float, *shape: int) -> Array:
    return RNG.uniform(low, high, shape).astype(np.float32)


def model(op_type: str, inputs: dict[str, Array], opset: int, **attrs: Any) -> onnx.ModelProto:
    """One node whose inputs have symbols for extents."""
    values = [
        helper.make_tensor_value_info(
            name,
            helper.np_dtype_to_tensor_dtype(a.dtype),
            [f"{name}{k}" if n != a.ndim - 2 or k < 2 else n for k, n in enumerate(a.shape)],
        )
        for name, a in inputs.items()
    ]
    node = helper.make_node(op_type, list(inputs), ["y"], **attrs)
    out = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph([node], "g", values, [out])
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def agree(proto: onnx.ModelProto, inputs: dict[str, Array], want: Array) -> None:
    (got,) = evaluate_module(bucketize.from_onnx(proto), **inputs)
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("mode", MODES)
def test_grids(mode: str, padding: str) -> None:
    for planes, aligned in itertools.product((2, 3), (0, 1)):
        x = floats(-1, 1, 2, 3, *(4, 5, 3)[:planes])
        inputs = {"x": x, "grid": floats(-2, 2, 2, *(3, 4, 2)[:planes], planes)}
        attrs = {"padding_mode": padding, "align_corners": aligned}
        proto = model("GridSample", inputs, 22, mode=mode, **attrs)
        if planes == 2:
            (want,) = run_ort(proto, inputs)
            agree(proto, inputs, want)
            older = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
            agree(model("GridSample", inputs, 16, mode=older, **attrs), inputs, want)
        elif (mode, padding) != ("cubic", "border"):  # which onnxruntime and torch have otherwise
            agree(proto, inputs, ReferenceEvaluator(proto).run(None, inputs)[0])


def test_a_grid_may_name_no_place_at_all() -> None:
    """An image of one pixel has no span to mirror; NaN and what is far away are no pixels."""
    x, grid = np.ones((1, 1, 1, 1), np.float32), np.float32([np.nan, 1e30, -np.inf, 0, 0.5, 3])
    grid = grid.reshape(1, 1, 3, 2)
    for padding, aligned in itertools.product(PADDINGS, (False, True)):
        made = ops.grid_sample.run(x, grid, mode="nearest", padding=padding, align_corners=aligned)[
            0
        ]
        assert made.shape == (1, 1, 1, 3)
        assert set(made.reshape(-1).tolist()) <= {0.0, 1.0}


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("kind", ["half_pixel", "output_half_pixel"])
def test_boxes(kind: str, pool: str) -> None:
    corners = floats(-2, 8, 5, 2)
    rois = np.concatenate([corners, corners + floats(-0.5, 6, 5, 2)], -1)
    batch = np.array([0, 1, 1, 0, 1])
    inputs = {"x": floats(-1, 1, 2, 3, 8, 9), "rois": rois, "batch": batch}
    for ratio in (0, 1, 2):
        size: dict[str, Any] = {"output_height": 2, "output_width": 3, "spatial_scale": 0.7}
        attrs = {"mode": pool, "sampling_ratio": ratio, **size}
        proto = model("RoiAlign", inputs, 22, coordinate_transformation_mode=kind, **attrs)
        (want,) = ReferenceEvaluator(proto).run(None, inputs)
        agree(proto, inputs, want)
        if kind == "output_half_pixel":
            older = model("RoiAlign", inputs, 10, **attrs)
            agree(older, inputs, want)
            np.testing.assert_allclose(run_ort(older, inputs)[0], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("known", [True, False])
def test_affine_grids(aligned: int, known: bool) -> None:
    for planes, size in ((2, [2, 3, 4, 5]), (3, [2, 3, 4, 1, 3]), (2, [0, 3, 2, 2])):
        inputs = {"theta": floats(-1, 1, size[0], planes, planes + 1), "size": np.array(size)}
        proto = model("AffineGrid", inputs, 20, align_corners=aligned)
        del proto.graph.input[1].type.tensor_type.shape.dim[:]
        proto.graph.input[1].type.tensor_type.shape.dim.add(dim_value=len(size))
        want = np.zeros((0, *size[2:], planes), np.float32)
        if size[0]:
            with np.errstate(all="ignore"):  # along an extent of 1
                (want,) = ReferenceEvaluator(proto).run(None, inputs)
        if known:
            held = onnx.numpy_helper.from_array(inputs.pop("size"), "size")
            proto.graph.input.pop()
            proto.graph.initializer.append(held)
        bounds = dict.fromkeys(bucketize.from_onnx(proto).main.symbols(), (0, None))
        module = bucketize.from_onnx(proto, bounds=bounds)
        results = [evaluate_module(module, **inputs)]
        if not known:
            results.append(bucketize.compile(module).run(**inputs))
        for (got,) in results:
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_the_old_size_of_an_affine_grid_is_not_guessed() -> None:
    proto = parse("(float[N, 2, 3] t, int64[3] s) => (y) { y = AffineGrid(t, s) }", 20)
    with pytest.raises(UnsupportedModelError, match=r"size is int64\[3\], expected 4 or 5 numbers"):
        bucketize.from_onnx(proto)


def f32(*shape: int) -> TensorType:
    return tensor(F32, *shape)


IMAGE, PLACES = f32(1, 1, 2, 2), f32(1, 2, 2, 2)


WRONG = [
    ("no mode 'bilinear'", ops.grid_sample, (IMAGE, PLACES), {"mode": "bilinear"}),
    ("no padding 'wrap'", ops.grid_sample, (IMAGE, PLACES), {"padding": "wrap"}),
    ("of one rank, 3 at least: got 4, 3", ops.grid_sample, (IMAGE, f32(1, 2, 2)), {}),
    ("an image without pixels", ops.grid_sample, (f32(1, 1, 0, 2), f32(1, 2, 2, 2)), {}),
    ("places are floats, got int64", ops.grid_sample, (f32(1, 1, 2), tensor(I64, 1, 2, 1)), {}),
    ("no pool 'min'", ops.roi_align, (IMAGE, f32(1, 4), tensor(I64, 1)), {"pool": "min"}),
    ("of ranks 4, 2, 1: got 4, 2, 2", ops.roi_align,
     (IMAGE, f32(1, 4), tensor(I64, 1, 1)), {}),
    (r"a grid of \(0, 1\) with 0 samples: from 1 up", ops.roi_align,
     (IMAGE, f32(1, 4), tensor(I64, 1)), {"size": (0, 1)}),
    ("indices are integers, got float32", ops.roi_align,
     (IMAGE, f32(1, 4), f32(1)), {}),
]  # fmt: skip


@pytest.mark.parametrize(("message", "op", "types", "attrs"), WRONG)
def test_what_is_wrong_is_said(message: str, op: Any, types: Any, attrs: dict[str, Any]) -> None:
    given = {"size": (1, 1), **attrs} if op is ops.roi_align else attrs
    with pytest.raises(TypeRelError, match=message):
        op.infer(*types, **op.complete(given))


def test_a_box_of_an_image_that_is_not_there() -> None:
    x, rois = floats(0, 1, 2, 1, 3, 3), floats(0, 3, 1, 4)
    for image in (-1, 2):
        with pytest.raises(TypeRelError, match=f"a box of image {image}, of 2"):
            ops.roi_align.run(x, rois, np.array([image]), size=(1, 1))
