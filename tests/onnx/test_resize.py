"""Resizing: kernels beside the interpreter, converters beside onnxruntime and the standard."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_call import F32, C, N, check, floats, loop_template, workload
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx_model import parse, run_ort

import bucketize
from bucketize import ops
from bucketize.errors import ExportError, TypeRelError, UnsupportedModelError
from bucketize.interpret import evaluate_module
from bucketize.ir import Builder, Const, Module, Var
from bucketize.lower.layout import layout
from bucketize.onnx.convert.resize import scaled
from bucketize.op import Array
from bucketize.ops.resample.interpolate import COORDINATES, CROP, ROUNDINGS
from bucketize.ops.resample.resize import MODES
from bucketize.transform.simplify import simplify
from bucketize.types import ANY, Symbol, evaluate, tensor

pytestmark = pytest.mark.usefixtures("few_registers")

D, H, W = (Symbol(name, 0) for name in "DHW")
PLAIN = [kind for kind in COORDINATES if kind != CROP]

# --- kernels -------------------------------------------------------------------------------------


WRITTEN_OUT = [
    (mode, factor, ("half_pixel", "asymmetric")[(i + j) % 2])
    for i, mode in enumerate(MODES)
    for j, factor in enumerate((2, 4))
]
"""Any two of them meet."""


@pytest.mark.sweep
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


@pytest.mark.sweep
@pytest.mark.parametrize(("mode", "factor", "coordinates"), WRITTEN_OUT)
def test_patterns_that_are_written_out(mode: str, factor: int, coordinates: str) -> None:
    attrs: dict[str, Any] = {"axes": (2, 3), "mode": mode, "coordinates": coordinates}
    image = tensor(F32, N, C, H, W)
    load = workload(ops.resize, image, sizes=(H * 2, W * factor), **attrs)
    for height, width in ((5, 33), (1, 1), (3, 2), (2, 3), (0, 4), (4, 0)):
        check(load, [floats(2, 2, height, width)], {"N": 2, "C": 2, "H": height, "W": width})


@pytest.mark.sweep
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
    copied = (H * 3, W * 2) if axes == (1, 2) else ()
    for sizes in filter(None, ((D, D)[: len(axes)], factors, copied)):
        image = tensor(dtype, N, H, W)
        load = workload(ops.resize, image, axes=axes, sizes=sizes, rounding=rounding)
        x = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 99, (3, 4, 9))
        check(load, [x.astype(dtype)], {"N": 3, "H": 4, "W": 9, "D": 5})


@pytest.mark.sweep
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


# --- models --------------------------------------------------------------------------------------


def model(
    roi: Array | None, scales: Array | None, sizes: Array | None, known: bool = True, **attrs: Any
) -> onnx.ModelProto:
    """Resize of x, every extent a symbol; operands known, or inputs as x is."""
    told = {"roi": roi, "scales": scales, "sizes": sizes}
    given_ = {name: a for name, a in told.items() if a is not None}
    kinds = {name: helper.np_dtype_to_tensor_dtype(a.dtype) for name, a in given_.items()}
    inputs = [helper.make_tensor_value_info("x", 1, ["N", "C", "H", "W"])]
    if not known:
        inputs += [helper.make_tensor_value_info(n, kinds[n], a.shape) for n, a in given_.items()]
    node = helper.make_node(
        "Resize", ["x", *(n if n in given_ else "" for n in told)], ["y"], **attrs
    )
    constants = [numpy_helper.from_array(a, n) for n, a in given_.items()] if known else []
    out = [helper.make_empty_tensor_value_info("y")]
    graph = helper.make_graph([node], "g", inputs, out, constants)
    opsets = [helper.make_opsetid("", 19)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


@settings(max_examples=max(60, settings.default.max_examples))
@given(data=st.data())
def test_models_agree_with_onnxruntime(data: st.DataObject) -> None:
    """Where it keeps to the standard: not for parts cut out, and widths that are not whole."""
    mode, kind = data.draw(st.sampled_from(MODES)), data.draw(st.sampled_from(PLAIN[:-1]))
    height, width = data.draw(st.tuples(st.integers(1, 9), st.integers(1, 9)))
    rounding = data.draw(st.sampled_from(ROUNDINGS[:-1]))
    names = {"mode": mode, "coordinate_transformation_mode": kind, "nearest_mode": rounding}
    attrs: dict[str, Any] = dict(names)
    if mode == "cubic":
        attrs["exclude_outside"] = data.draw(st.integers(0, 1))
    if kind == "align_corners" or data.draw(st.booleans()):
        sizes = np.array([2, 1, *data.draw(st.tuples(*[st.integers(1, 12)] * 2))])
        proto = model(None, None, sizes, known=data.draw(st.booleans()), **attrs)
        inputs = {"x": floats(2, 1, height, width), "sizes": sizes}
    else:
        drawn = st.sampled_from([0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 2.5, 3.3, 7 / 3])
        scales = np.float32([1, 1, *data.draw(st.tuples(drawn, drawn))])
        new = [int(np.float32(n) * s) for n, s in zip((height, width), scales[2:], strict=True)]
        if 0 in new or any(
            s != 1 and n == m for n, m, s in zip((height, width), new, scales[2:], strict=True)
        ):
            return  # onnxruntime takes an extent that stays for a scale of 1
        proto = model(None, scales, None, known=data.draw(st.booleans()), **attrs)
        inputs = {"x": floats(2, 1, height, width), "scales": scales}
    inputs = {i.name: inputs[i.name] for i in proto.graph.input}
    (want,) = run_ort(proto, inputs)
    (got,) = evaluate_module(bucketize.from_onnx(proto), **inputs)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
@pytest.mark.parametrize("known", [True, False])
def test_models_agree_with_the_standard(policy: str, known: bool) -> None:
    """What onnxruntime has otherwise, or not at all: axes in any order among it."""
    sizes, roi = np.array([7, 4]), np.float32([0.1, -0.2, 0.9, 1.1])
    whole = np.float32([0, 0, 1, 1])  # from the first element to the last, which are not outside
    cases: list[tuple[Any, Any, Any, dict[str, Any]]] = [
        (None, None, sizes, {"axes": [3, 2], "keep_aspect_ratio_policy": policy}),
        (None, None, sizes, {"axes": [2, 3], "mode": "linear", "antialias": 1}),
        (None, np.float32([0.6, 0.4]), None, {"axes": [3, 2], "mode": "cubic", "antialias": 1}),
        (None, np.float32([0.6, 0.6]), None, {"axes": [2, 3], "mode": "linear", **ALIGNED}),
        (roi, None, sizes, {"axes": [2, 3], "mode": "linear", **OUTSIDE}),
        (roi, np.float32([1.5, 0.5]), None, {"axes": [3, 2], "mode": "nearest", **CUT}),
        *((whole, None, sizes, {"axes": [2, 3], "mode": mode, **OUTSIDE}) for mode in MODES),
    ]
    for *told, attrs in cases:
        proto = model(*told, known=known, **attrs)
        names = dict(zip(("roi", "scales", "sizes"), told, strict=True))
        inputs = {"x": floats(2, 1, 5, 8), **names}
        inputs = {i.name: inputs[i.name] for i in proto.graph.input}
        (want,) = ReferenceEvaluator(proto).run(None, inputs)
        exe = bucketize.compile(bucketize.from_onnx(proto))
        np.testing.assert_allclose(exe.run(**inputs)[0], want, rtol=1e-5, atol=1e-5)


ALIGNED = {"coordinate_transformation_mode": "align_corners"}
CUT = {"coordinate_transformation_mode": CROP}
OUTSIDE = {**CUT, "extrapolation_value": 9.0}


def test_exporters_write_sizes_as_arithmetic_of_shapes() -> None:
    """What follows from shapes is a static op; what a run tells is read, then run natively."""
    half = parse(
        "(float[N, 3, H, W] x) => (y) "
        "<int64[1] two = {2}, int64[1] zero = {0}, int64[1] last = {4}> "
        "{ s = Shape(x) front = Slice(s, zero, two) hw = Slice(s, two, last) d = Mul(hw, two) "
        's2 = Concat<axis = 0>(front, d) y = Resize<mode = "linear">(x, , , s2) }'
    )
    module = bucketize.from_onnx(half)
    assert module.main.results[0].type.shape == (N, 3, 2 * Symbol("H"), 2 * Symbol("W"))
    x = floats(2, 3, 4, 5)
    exe = bucketize.compile(module)
    np.testing.assert_allclose(exe.run(x=x)[0], run_ort(half, {"x": x})[0], rtol=1e-5, atol=1e-6)
    assert "numpy" not in str(exe.explain(x=(2, 3, 4, 5)))
    late = parse("(float[N, 3, H, W] x, int64[4] s) => (y) { y = Resize(x, , , s) }")
    inputs = {"x": x, "s": np.array([2, 3, 9, 4])}
    exe = bucketize.compile(bucketize.from_onnx(late))
    np.testing.assert_array_equal(exe.run(**inputs)[0], run_ort(late, inputs)[0])


def test_sizes_that_a_run_tells_are_read_and_those_that_are_known_need_no_work() -> None:
    late = parse(
        "(float[N, 3, H, W] x, int64[2] hw) => (y) <int64[1] zero = {0}, int64[1] two = {2}> "
        "{ s = Shape(x) front = Slice(s, zero, two) all = Concat<axis = 0>(front, hw) "
        'y = Resize<mode = "linear">(x, , , all) }'
    )
    inputs = {"x": floats(2, 3, 4, 5), "hw": np.array([9, 3])}
    exe = bucketize.compile(bucketize.from_onnx(late))
    np.testing.assert_allclose(exe.run(**inputs)[0], run_ort(late, inputs)[0], atol=1e-5)
    body = str(exe.explain(x=(2, 3, 4, 5), hw=(2,)))
    assert "resize" in body
    assert "numpy" not in body


def test_sizes_that_constants_tell_once_they_are_folded() -> None:
    folded = parse(
        "(float[N, 3, H, W] x) => (y) <float[2] f = {3.5, 4}, float two = {2}> "
        "{ g = Mul(f, two) s = Cast<to = 7>(g) y = Resize<axes = [2, 3]>(x, , , s) }",
        18,
    )
    main = bucketize.from_onnx(folded).main
    assert main.body[-1].op is ops.dyn_resize
    (resized,) = simplify(main).body
    assert (resized.op, resized.attrs["sizes"]) == (ops.resize, (7, 8))


def test_images_are_resized_channels_last_among_convolutions() -> None:
    proto = parse(
        "(float[N, 4, H, W] x, float[4, 4, 3, 3] w) => (y) <float[4] s = {1, 1, 2, 1.5}> "
        "{ a = Conv<pads = [1, 1, 1, 1]>(x, w) b = Resize(a, , s) y = Conv(b, w) }"
    )
    inputs = {"x": floats(2, 4, 6, 8), "w": floats(4, 4, 3, 3)}
    exe = bucketize.compile(bucketize.from_onnx(proto))
    np.testing.assert_allclose(exe.run(**inputs)[0], run_ort(proto, inputs)[0], atol=1e-4)
    kinds = [b.op.name for b in layout(bucketize.from_onnx(proto).main).body]
    assert kinds == ["transpose", "conv2d", "resize", "conv2d", "transpose"]


# --- extents -------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [2.0, 0.5, 1.5, 0.7, 1 / 3, 0.1, 3.4, 0.333])
def test_extents_are_those_of_the_float32_product(scale: float) -> None:
    number = np.float32(scale)
    dim = scaled(Symbol("H"), number)
    assert dim is not ANY
    for size in (*range(200), 997, 1000, 4096, 65535):
        wanted = int(np.floor(np.float32(size) * number))
        assert evaluate(dim, {"H": size}) == scaled(size, number) == wanted


def test_a_scale_that_no_fraction_stands_for_is_multiplied_at_run_time() -> None:
    assert scaled(Symbol("H"), np.float32(7 / 3)) is ANY
    assert scaled(27, np.float32(7 / 3)) == 62  # and not 63
    proto = model(None, np.float32([1, 1, 7 / 3, 2]), None, mode="linear")
    exe = bucketize.compile(bucketize.from_onnx(proto))
    for height in (3, 27):
        x = floats(1, 1, height, 3)
        (want,) = run_ort(proto, {"x": x})
        np.testing.assert_allclose(exe.run(x=x)[0], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scale", [1e30, 1e-30])
def test_a_scale_whose_fraction_no_integer_holds(scale: float) -> None:
    assert scaled(Symbol("H"), np.float32(scale)) is ANY
    assert scaled(3, np.float32(scale)) == int(np.float32(3) * np.float32(scale))


def test_no_element_becomes_many_of_none() -> None:
    proto = model(None, None, np.array([1, 1, 4, 4]))
    module = bucketize.from_onnx(proto, bounds=dict.fromkeys("NCHW", (0, None)))
    x = floats(1, 1, 0, 4)
    for run in (bucketize.compile(module).run, lambda x: evaluate_module(module, x)):
        with pytest.raises(TypeRelError, match="an axis without elements cannot have 4"):
            run(x)


# --- errors --------------------------------------------------------------------------------------

SMALL = tensor(F32, 3, 4)
WRONG: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "mode": ("no mode 'area'; known: nearest, linear, cubic", (), {"mode": "area"}),
    "coordinates": ("no coordinates 'half'", (), {"coordinates": "half"}),
    "rounding": ("no rounding 'up'", (), {"rounding": "up"}),
    "policy": ("no policy 'crop'", (), {"policy": "crop"}),
    "order": (r"axes in order, and a size for each: got \(1, 0\), 2 sizes", (), {"axes": (1, 0)}),
    "count": ("got .*, 1 sizes", (), {"sizes": (3,)}),
    "smooth": ("the nearest element is not antialiased", (), {"antialias": True}),
    "told": ("0 to 1 vectors beside x, got 2", (tensor(F32, 2), tensor(F32, 2)), {}),
    "roi": ("1 to 2 vectors beside x, got 0", (), {"coordinates": CROP}),
    "rank": ("scales and roi are vectors, got rank 2", (tensor(F32, 2, 1),), {}),
    "length": ("extents differ: 3 and 2", (tensor(F32, 3),), {}),
    "negative": (r"a negative extent in \[-1, 2\]", (), {"sizes": (-1, 2)}),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said(name: str) -> None:
    message, told, attrs = WRONG[name]
    with pytest.raises(TypeRelError, match=message):
        ops.resize.infer(
            SMALL, *told, **ops.resize.complete({"axes": (0, 1), "sizes": (2, 2)} | attrs)
        )
    with pytest.raises(TypeRelError, match="an axis without elements cannot have 2"):
        ops.resize.infer(tensor(F32, 0), **ops.resize.complete({"axes": (0,), "sizes": (2,)}))


REFUSED = {
    "both": ("Resize(x, , f, i)", "scales or sizes must be given, one of them"),
    "neither": ("Resize(x, )", "scales or sizes must be given, one of them"),
    "roi": ('Resize<coordinate_transformation_mode = "tf_crop_and_resize">(x, , f)',
            "tf_crop_and_resize without a roi"),
    "few": ("Resize<axes = [0]>(x, , f)", r"input 2 is float32\[2\], expected 1 elements"),
    "none": ("Resize(x, , z)", r"scales are \[0.0, 1.0\], expected positive numbers"),
    "mode": ('Resize<mode = "area">(x, , f)', "mode is 'area', known: nearest, linear, cubic"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_models_that_are_not_supported(name: str) -> None:
    node, message = REFUSED[name]
    constants = "<float[2] f = {2, 1}, float[2] z = {0, 1}, int64[2] i = {4, 4}>"
    with pytest.raises(UnsupportedModelError, match=message):
        bucketize.from_onnx(parse(f"(float[N, H] x) => (y) {constants} {{ y = {node} }}", 19))


# --- export --------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_scales_leave_where_they_lead_to_the_sizes(mode: str, known: bool) -> None:
    for scales in (
        np.float32([1, 1, 1.5, 0.7]),
        np.float32([1, 1, 2, 2]),
        np.float32([1, 1, 2.6, 1.3]),
    ):
        proto = model(None, scales, None, known=known, mode=mode)
        module = bucketize.from_onnx(proto)
        inputs = {"x": floats(1, 2, 6, 7)} | ({} if known else {"scales": scales})
        (got,) = run_ort(bucketize.to_onnx(module), inputs)
        want = evaluate_module(module, **inputs)[0]
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


LEFT = {
    "early": (11, '(float[N, H] x) => (y) <float[0] r = {}, float[2] s = {1, 2}> { y = Resize'
                  '<coordinate_transformation_mode = "tf_half_pixel_for_nn">(x, r, s) }',
              "resize: coordinates of tf_half_pixel_for_nn are of opset 11 alone"),
    "both": (10, "(float[N, H] x) => (y) <float[2] s = {0.5, 2}> { y = Resize(x, s) }",
             "resize: it rounds up where it shrinks, and may do both"),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_what_has_no_form_in_onnx(name: str) -> None:
    opset, graph, message = LEFT[name]
    with pytest.raises(ExportError, match=message):
        bucketize.to_onnx(bucketize.from_onnx(parse(graph, opset)))


@pytest.mark.parametrize("scale", [0.7, 1.5])
def test_old_roundings_leave_as_they_are(scale: float) -> None:
    graph = f"(float[N, H] x) => (y) <float[2] s = {{1, {scale}}}> {{ y = Resize(x, s) }}"
    module = bucketize.from_onnx(parse(graph, 10))
    x = floats(2, 9)
    (got,) = run_ort(bucketize.to_onnx(module), {"x": x})
    np.testing.assert_array_equal(got, evaluate_module(module, x)[0])


def test_sizes_must_follow_from_scales() -> None:
    x, out = Var("x", SMALL), Builder()
    made = out.emit(ops.resize, x, Const(np.float32([2])), axes=(1,), sizes=(5,))
    module = Module({"main": out.function("main", [x], [made])})
    with pytest.raises(ExportError, match="resize: its sizes do not follow from its scales"):
        bucketize.to_onnx(module)
