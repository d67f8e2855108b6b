"""Images looked at between their pixels, beside onnxruntime and the standard."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import onnx
import pytest
from kernel_call import check, loop_template, workload
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx_model import parse, run_ort

import bucketize
from bucketize import ops
from bucketize.errors import ShapeError, TypeRelError, UnsupportedModelError
from bucketize.interpret import evaluate_module
from bucketize.ir import Builder, Module, Var
from bucketize.lower.layout import layout
from bucketize.op import Array
from bucketize.ops.resample.sampling import MODES, PADDINGS, POOLS
from bucketize.types import Symbol, TensorType, tensor

F32, I64 = np.dtype("float32"), np.dtype("int64")
RNG = np.random.default_rng(0)
B, C, H, W, M = (Symbol(name, 0) for name in "BCHWM")


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


PLACED = (math.nan, math.inf, -math.inf, 1e30, -1e30, -1, 1, 0, 37.5, -1 / 3, 1.0000001)


def in_turn(*values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """All combinations of values, each with one of two layouts: each layout with each two values.

    Where the channels lie is another loop around the same arithmetic.
    """
    places = itertools.product(*(range(len(v)) for v in values))
    return [
        (*(v[i] for v, i in zip(values, at, strict=True)), ("NCHW", "NHWC")[sum(at) % 2])
        for at in places
    ]


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("padding", "aligned", "mode", "kind"), in_turn(PADDINGS, (False, True), ("linear", "nearest"))
)
def test_grids_in_kernels(*, padding: str, aligned: bool, mode: str, kind: str) -> None:
    """Places far away and that are no numbers, more of them than a run has; one pixel, none."""
    image = (B, C, H, W) if kind == "NCHW" else (B, H, W, C)
    types = tensor(F32, *image), tensor(F32, B, M, 3, 2)
    attrs = {"mode": mode, "padding": padding, "align_corners": aligned}
    load = workload(ops.grid_sample, *types, layout=kind, **attrs)
    for sizes in ((1, 1, 9, 10, 50), (2, 3, 1, 1, 5), (3, 19, 2, 33, 100), (1, 70, 5, 1, 7)):
        env = dict(zip("BCHWM", sizes, strict=True))
        x = floats(-1, 1, *(env[str(d)] for d in image))
        grid = floats(-3, 3, env["B"], env["M"], 3, 2)
        grid[0].reshape(-1)[: len(PLACED)] = PLACED
        check(load, [x, grid], env)
    for empty in "BCM":
        env = {**dict.fromkeys("BCHWM", 2), empty: 0}
        x = np.ones([env[str(d)] for d in image], np.float32)
        check(load, [x, floats(-1, 1, env["B"], env["M"], 3, 2)], env)


def test_grids_of_other_dtypes_in_kernels() -> None:
    for x, grid in (("float64", "float32"), ("float32", "float64"), ("bfloat16", "float16")):
        types = tensor(x, B, C, H, W), tensor(grid, B, M, 3, 2)
        given = floats(-1, 1, 2, 5, 6, 7), floats(-1, 1, 2, 9, 3, 2)
        args = [a.astype(t.dtype) for a, t in zip(given, types, strict=True)]
        check(workload(ops.grid_sample, *types), args, {"B": 2, "C": 5, "H": 6, "W": 7, "M": 9})


def test_grids_in_compiled_modules() -> None:
    """Channels lie last behind a convolution only; in cubes and by cubics numpy computes."""
    node = 'y = GridSample<mode = "linear", padding_mode = "reflection">'
    types = "float[N, 3, H, W] x, float[4, 3, 3, 3] w, float[N, P, Q, 2] g"
    alone = parse(f"({types}) => (y) {{ {node}(x, g) }}", 20)
    behind = parse(f"({types}) => (y) {{ a = Conv(x, w) {node}(a, g) }}", 20)
    for proto, kinds in (
        (alone, ["grid_sample"]),
        (behind, ["transpose", "conv2d", "grid_sample", "transpose"]),
    ):
        module = bucketize.from_onnx(proto, bounds={"P": (0, None)})
        assert [b.op.name for b in layout(module.main).body] == kinds
        exe = bucketize.compile(module)
        for count in (0, 3, 40):
            inputs = {"x": floats(-1, 1, 2, 3, 9, 12), "w": floats(-1, 1, 4, 3, 3, 3)}
            inputs["g"] = floats(-2, 2, 2, count, 5, 2)
            (got,) = exe.run(**inputs)
            want = run_ort(proto, inputs) if count else evaluate_module(module, **inputs)
            np.testing.assert_allclose(got, want[0], rtol=1e-4, atol=1e-5)
            assert "numpy" not in str(exe.explain(**{k: a.shape for k, a in inputs.items()}))
    for rank, mode in ((4, "cubic"), (5, "linear")):
        types_ = tensor(F32, *(2,) * rank), tensor(F32, *(2,) * (rank - 1), rank - 2)
        assert loop_template(workload(ops.grid_sample, *types_, mode=mode)) is None


def boxes(count: int, *odd: tuple[float, ...]) -> Array:
    """Corners around an image of some ten pixels, and others."""
    corners = floats(-6, 12, count, 2)
    drawn = np.concatenate([corners, corners + floats(-1, 14, count, 2)], -1)
    return np.concatenate([drawn, np.array(odd, np.float32).reshape(-1, 4)])


NAN, INF = math.nan, math.inf
ODD = (
    *((NAN, 0, 4, 4), (1, 1, INF, 5), (-INF, -INF, INF, INF), (0, NAN, 3, NAN)),
    *((40, 50, 60, 70), (-60, -60, -50, -50), (5, 5, 5, 5), (6, 7, 2, 1)),
    *((-3e4, -30, 3e4, 30), (-1e30, 0, 1e30, 5), (0, 0, 10, 9), (-1, -1, 0, 0)),
    *((-3e7, 0, 3e7, 5), (16777210, 1, 16777230, 3), (-2.5, 2, 9, 3)),
)
"""No numbers, far away, without an extent or with a negative one, beyond what float32 can tell."""


@pytest.mark.sweep
@pytest.mark.parametrize(("pool", "half_pixel", "layout"), in_turn(POOLS, (True, False)))
@pytest.mark.parametrize("ratio", [0, 1, 3])
def test_boxes_in_kernels(*, ratio: int, half_pixel: bool, pool: str, layout: str) -> None:
    """Channels below, at and above vectors and blocks of them; images without a pixel."""
    image = (B, C, H, W) if layout == "NCHW" else (B, H, W, C)
    attrs = {"size": (2, 3), "ratio": ratio, "pool": pool, "half_pixel": half_pixel}
    types = tensor(F32, *image), tensor(F32, M, 4), tensor(I64, M)
    load = workload(ops.roi_align, *types, scale=0.75, layout=layout, **attrs)
    for sizes in ((1, 1, 9, 10, 4), (2, 3, 1, 1, 3), (3, 19, 8, 33, 7), (1, 300, 5, 4, 0)):
        env = dict(zip("BCHWM", sizes, strict=True))
        rois = boxes(env["M"], *ODD)
        env["M"] = len(rois)
        x = floats(-1, 1, *(env[str(d)] for d in image))
        check(load, [x, rois, RNG.integers(0, env["B"], len(rois))], env)
    for empty in ("M", "C", "H", "W"):
        env = {**dict.fromkeys("BCHWM", 2), empty: 0}
        x, m = np.ones([env[str(d)] for d in image], np.float32), env["M"]
        check(load, [x, boxes(m), np.zeros(m, np.int64)], env)


def test_boxes_of_other_dtypes_in_kernels() -> None:
    """Sums are in float32 at least."""
    for x, rois, batch, pool in (
        ("float64", "float32", "int32", "avg"),
        ("float32", "float64", "uint8", "max"),
        *(("float16", "float16", "int64", pool) for pool in POOLS),
    ):
        types = tensor(x, B, H, W, C), tensor(rois, M, 4), tensor(batch, M)
        load = workload(ops.roi_align, *types, size=(2, 2), pool=pool, layout="NHWC")
        given = floats(-1, 1, 2, 6, 7, 5), boxes(6), RNG.integers(0, 2, 6)
        args = [a.astype(t.dtype) for a, t in zip(given, types, strict=True)]
        check(load, args, {"B": 2, "H": 6, "W": 7, "C": 5, "M": 6})


@pytest.mark.parametrize(("kind", "pool"), [("half_pixel", "avg"), ("output_half_pixel", "max")])
@pytest.mark.parametrize("ratio", [0, 2])
def test_boxes_in_compiled_modules(ratio: int, kind: str, pool: str) -> None:
    """Behind a convolution, where the image's channels lie last already."""
    attrs = f'coordinate_transformation_mode = "{kind}", mode = "{pool}", sampling_ratio = {ratio}'
    proto = parse(
        "(float[N, 3, H, W] x, float[5, 3, 3, 3] w, float[M, 4] rois, int64[M] batch) => (y) "
        "{ a = Conv(x, w) y = RoiAlign<output_height = 3, output_width = 2, spatial_scale = 0.5, "
        f"{attrs}>(a, rois, batch) }}",
        16,
    )
    bounds = {"M": (0, None)}
    exe = bucketize.compile(module := bucketize.from_onnx(proto, bounds=bounds))
    for count in (0, 1, 9):
        rois = np.sort(floats(-2, 20, count, 2, 2), 1).reshape(count, 4)
        inputs = {"x": floats(-1, 1, 2, 3, 9, 12), "w": floats(-1, 1, 5, 3, 3, 3), "rois": rois}
        inputs["batch"] = RNG.integers(0, 2, count)
        (got,) = exe.run(**inputs)
        (want,) = run_ort(proto, inputs) if count else evaluate_module(module, **inputs)
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
        assert "numpy" not in str(exe.explain(**{k: a.shape for k, a in inputs.items()}))
    kinds = [b.op.name for b in layout(module.main).body]
    assert kinds == ["transpose", "conv2d", "roi_align", "transpose"]


def test_channels_last_are_exported() -> None:
    image, batch = floats(-1, 1, 2, 6, 7, 3), np.array([0, 1, 1, 0])
    for op, args, attrs in (
        (ops.roi_align, (image, boxes(4), batch), {"size": (2, 2)}),
        (ops.grid_sample, (image, floats(-1, 1, 2, 4, 5, 2)), {}),
        (ops.grid_sample, (floats(-1, 1, 2, 6, 7, 3, 4), floats(-1, 1, 2, 4, 5, 2, 3)), {}),
    ):
        b, params = Builder(), [Var(f"x{i}", tensor(a.dtype, *a.shape)) for i, a in enumerate(args)]
        y = b.emit(op, *params, layout="NHWC", **attrs)
        module = Module({"main": b.function("main", params, [y])})
        inputs = {p.name: a for p, a in zip(params, args, strict=True)}
        (want,) = evaluate_module(module, **inputs)
        (got,) = ReferenceEvaluator(bucketize.to_onnx(module)).run(None, inputs)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.sweep
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
    ("at least one pixel along each axis", ops.grid_sample, (f32(1, 1, 0, 2), f32(1, 2, 2, 2)), {}),
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
    proto = model("RoiAlign", {"x": x, "rois": rois, "batch": np.array([2])}, 16)
    exe = bucketize.compile(bucketize.from_onnx(proto))
    for image in (-1, 2):
        with pytest.raises(ShapeError, match=f"roi_align: index {image} is out of range for .* 2"):
            exe.run(x=x, rois=rois, batch=np.array([image]))
