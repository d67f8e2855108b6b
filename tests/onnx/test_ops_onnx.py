"""Operators agree with onnxruntime, in the corners above all."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import helper

from bucketize import ops
from bucketize.op import Array, Op, get
from bucketize.ops.rules import ENDLESS
from bucketize.types import Symbol, evaluate, tensor

RNG = np.random.default_rng(0)

some = settings(max_examples=max(20, settings.default.max_examples))


def floats(*shape: int) -> Array:
    return RNG.normal(size=shape).astype(np.float32)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def compute(op: Op, *args: Array, **attrs: Any) -> Array:
    return np.asarray(op.compute(*args, **op.complete(attrs)))


def onnx_says(op_type: str, *args: Array, opset: int = 20, **attrs: Any) -> Array:
    """The result of onnxruntime for one node."""
    kinds = [helper.np_dtype_to_tensor_dtype(a.dtype) for a in args]
    inputs = [
        helper.make_tensor_value_info(f"i{i}", k, a.shape)
        for i, (a, k) in enumerate(zip(args, kinds, strict=True))
    ]
    node = helper.make_node(op_type, [i.name for i in inputs], ["out"], **attrs)
    out = helper.make_empty_tensor_value_info("out")
    graph = helper.make_graph([node], "one", inputs, [out])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # it warns where its own shape inference is wrong
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    (result,) = session.run(None, {i.name: a for i, a in zip(inputs, args, strict=True)})
    return np.asarray(result)


def agree(got: Array, want: Array) -> None:
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


# --- windows -------------------------------------------------------------------------------------

extreme = st.sampled_from(
    [0, 1, 2, 5, 9, -1, -2, -6, -9, 2**31 - 1, 2**63 - 1, -(2**31), -(2**63) + 1]
)


@some
@given(size=st.integers(0, 6), begin=extreme, end=extreme, step=st.sampled_from([1, 2, 7, -1, -3]))
def test_slice(size: int, begin: int, end: int, step: int) -> None:
    assume(step > 0 or end < ENDLESS)  # "to the end" is forwards; onnxruntime has it otherwise
    x, operands = floats(2, size), (ints(begin), ints(end), ints(step), ints(-1))
    want = onnx_says("Slice", x, ints(begin), ints(end), ints(1), ints(step))
    agree(compute(ops.dyn_strided_slice, x, *operands), want)
    attrs = {"begin": (begin,), "end": (end,), "strides": (step,), "axes": (1,)}
    agree(compute(ops.strided_slice, x, **attrs), want)
    (known,) = ops.strided_slice.infer(tensor("float32", 2, size), **attrs)
    assert known.shape == want.shape
    (symbolic,) = ops.strided_slice.infer(tensor("float32", 2, Symbol("K", lo=0)), **attrs)
    assert evaluate(symbolic.shape[1], {"K": size}) == want.shape[1]


small, flag = st.integers(1, 3), st.booleans()


@some
@given(data=st.data(), kernel=small, stride=small, dilation=st.integers(1, 2), ceil=flag)
def test_pooling(data: st.DataObject, kernel: int, stride: int, dilation: int, ceil: bool) -> None:
    reach = (kernel - 1) * dilation + 1
    pads = tuple(data.draw(st.integers(0, kernel - 1)) for _ in range(4))
    size = data.draw(st.integers(1, 8))
    assume(size + min(pads[0] + pads[2], pads[1] + pads[3]) >= reach)
    x = floats(1, 2, size, size)
    attrs = {"strides": (stride, stride), "pads": pads, "dilations": (dilation, dilation)}
    windows: dict[str, Any] = {"kernel": (kernel, kernel), "ceil_mode": ceil, **attrs}
    names: dict[str, Any] = {"kernel_shape": (kernel, kernel), "ceil_mode": int(ceil), **attrs}
    want = onnx_says("MaxPool", x, **names)
    agree(compute(ops.max_pool2d, x, **windows), want)
    nhwc = compute(ops.max_pool2d, x.transpose(0, 2, 3, 1), **windows, layout="NHWC")
    agree(nhwc.transpose(0, 3, 1, 2), want)
    include = data.draw(flag)
    want = onnx_says("AveragePool", x, **names, count_include_pad=int(include))
    agree(compute(ops.avg_pool2d, x, **windows, count_include_pad=include), want)


@some
@given(data=st.data(), kernel=small, stride=small, dilation=small, groups=small)
def test_convolution(
    data: st.DataObject, kernel: int, stride: int, dilation: int, groups: int
) -> None:
    pads = tuple(data.draw(st.integers(0, 3)) for _ in range(4))
    x, w = floats(2, 2 * groups, 9, 8), floats(3 * groups, 2, kernel, 2)
    windows = {"strides": (stride, 1), "pads": pads, "dilations": (dilation, 2)}
    want = onnx_says("Conv", x, w, group=groups, **windows)
    agree(compute(ops.conv2d, x, w, groups=groups, **windows), want)
    nhwc = compute(ops.conv2d, x.transpose(0, 2, 3, 1), w, groups=groups, layout="NHWC", **windows)
    agree(nhwc.transpose(0, 3, 1, 2), want)


@pytest.mark.parametrize(
    ("target", "allow_zero"),
    [((0, -1), 0), ((-1, 4), 0), ((2, 0, 2, 2), 0), ((24,), 0), ((3, 2, 4), 1)],
)
def test_reshape(target: tuple[int, ...], allow_zero: int) -> None:
    x = floats(2, 3, 4)
    got = compute(ops.dyn_reshape, x, ints(*target), allow_zero=bool(allow_zero))
    agree(got, onnx_says("Reshape", x, ints(*target), allowzero=allow_zero))


CORNERS = np.array(
    [-np.inf, -88, -2.5, -1.5, -0.5, -0.0, 0.0, 0.5, 1.5, 2.5, 3, 88, np.inf], np.float32
)

UNARY = {
    "Abs": ops.abs_,
    "Acos": ops.acos,
    "Acosh": ops.acosh,
    "Asin": ops.asin,
    "Asinh": ops.asinh,
    "Atan": ops.atan,
    "Atanh": ops.atanh,
    "Ceil": ops.ceil,
    "Cos": ops.cos,
    "Cosh": ops.cosh,
    "Erf": ops.erf,
    "Exp": ops.exp,
    "Floor": ops.floor,
    "Gelu": ops.gelu,
    "HardSigmoid": ops.hard_sigmoid,
    "HardSwish": ops.hard_swish,
    "IsNaN": ops.isnan,
    "LeakyRelu": ops.leaky_relu,
    "Log": ops.log,
    "Neg": ops.neg,
    "Reciprocal": ops.reciprocal,
    "Relu": ops.relu,
    "Round": ops.round_,
    "Sigmoid": ops.sigmoid,
    "Sign": ops.sign,
    "Sin": ops.sin,
    "Sinh": ops.sinh,
    "Softplus": ops.softplus,
    "Sqrt": ops.sqrt,
    "Tan": ops.tan,
    "Tanh": ops.tanh,
}


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_a_float(name: str) -> None:
    finite = name in ("Sin", "Cos", "Tan", "Gelu", "HardSwish", "Softplus")
    x = CORNERS[1:-1] if finite else CORNERS
    agree(compute(UNARY[name], x), onnx_says(name, x))


def test_the_gelu_that_is_approximated() -> None:
    x = floats(50)
    agree(compute(ops.gelu_tanh, x), onnx_says("Gelu", x, approximate="tanh"))


def test_clip() -> None:
    lo, hi = np.array(0.5, np.float32), np.array(-0.5, np.float32)
    agree(compute(ops.clip, CORNERS, lo=-1.0, hi=2.0), np.clip(CORNERS, -1, 2))
    agree(compute(ops.clip, CORNERS, lo=0.5, hi=-0.5), onnx_says("Clip", CORNERS, lo, hi))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integer_division(dtype: type) -> None:
    x, y = np.meshgrid(np.arange(-7, 8, dtype=dtype), np.array([-3, -1, 1, 2, 5], dtype))
    agree(compute(ops.trunc_div, x, y), onnx_says("Div", x, y))
    agree(compute(ops.mod, x, y), onnx_says("Mod", x, y))
    agree(compute(ops.fmod, x, y), onnx_says("Mod", x, y, fmod=1))


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint64"])
def test_integer_division_at_the_ends(dtype: str) -> None:
    """The least integer has no absolute value."""
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    pairs = itertools.product((least, least + 1, 1, 3, most), (least, 1, 2, 3, most - 1, most))
    x, y = np.array([p for p in pairs if p[1]], dtype).T.copy()
    agree(compute(ops.trunc_div, x, y), onnx_says("Div", x, y))
    agree(compute(ops.mod, x, y), onnx_says("Mod", x, y))
    agree(compute(ops.fmod, x, y), onnx_says("Mod", x, y, fmod=1))


def test_float_remainder() -> None:
    x, y = floats(40), floats(40)
    agree(compute(ops.fmod, x, y), onnx_says("Mod", x, y, fmod=1))


@pytest.mark.parametrize("to", ["int32", "int64", "bool", "float64", "float16"])
def test_cast(to: str) -> None:
    x = np.array([-2.7, -0.5, 0, 0.5, 2.7], np.float32)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(to))
    agree(compute(ops.cast, x, dtype=to), onnx_says("Cast", x, to=kind))


@pytest.mark.parametrize("largest", [True, False])
def test_topk_puts_equals_in_their_order(largest: bool) -> None:
    x = np.array([[2, 3, 3, 1, 3], [0, 0, 0, 0, 1]], np.float32)
    values, indices = ops.topk.run(x, k=3, axis=1, largest=largest, sorted=True)
    want = {True: [[1, 2, 4], [4, 0, 1]], False: [[3, 0, 1], [0, 1, 2]]}[largest]
    agree(indices, np.array(want))
    agree(values, np.take_along_axis(x, indices, 1))
    _, unsorted = ops.topk.run(x, k=3, axis=1, largest=largest, sorted=False)
    agree(unsorted, np.sort(indices, 1))


def test_topk_takes_nan_for_the_greatest() -> None:
    x = np.array([1, math.nan, math.inf, math.nan, -math.inf])
    attrs = {"k": 5, "axis": 0, "sorted": True}
    assert ops.topk.run(x, largest=True, **attrs)[1].tolist() == [1, 3, 2, 0, 4]
    assert ops.topk.run(x, largest=False, **attrs)[1].tolist() == [4, 0, 2, 1, 3]


def test_argmax_takes_the_first() -> None:
    x = np.array([[1, 5, 5], [2, 2, 1]], np.float32)
    agree(compute(ops.argmax, x, axis=1), onnx_says("ArgMax", x, axis=1, keepdims=0))
    agree(compute(ops.argmin, x, axis=0, keepdims=True), onnx_says("ArgMin", x, axis=0))


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_cumsum(exclusive: int, reverse: int) -> None:
    x = floats(3, 4)
    got = compute(ops.cumsum, x, axis=1, exclusive=bool(exclusive), reverse=bool(reverse))
    agree(got, onnx_says("CumSum", x, np.array(1), exclusive=exclusive, reverse=reverse))


@pytest.mark.parametrize("reverse", [0, 1])
def test_an_infinity_does_not_reach_exclusive_sums_before_it(reverse: int) -> None:
    x = np.float32([[1, math.inf, 2, 3], [1, 2, -math.inf, 3]])
    got = compute(ops.cumsum, x, axis=1, exclusive=True, reverse=bool(reverse))
    agree(got, onnx_says("CumSum", x, np.array(1), exclusive=1, reverse=reverse))
    assert not np.isnan(got).any()


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
@pytest.mark.parametrize("pads", [(1, 0, 2, 3), (0, 2, 0, 0), (-1, 1, 0, -2)])
def test_pad(mode: str, pads: tuple[int, ...]) -> None:
    x = floats(4, 5)
    if mode != "constant" and min(pads) < 0:
        return  # onnxruntime cuts before it reflects, onnx says nothing
    got = compute(ops.dyn_pad, x, ints(*pads), ints(0, -1), value=2.5, mode=mode)
    agree(got, onnx_says("Pad", x, ints(*pads), np.array(2.5, np.float32), mode=mode))


def test_ranges() -> None:
    for start, stop, step in [(0, 5, 1), (5, 0, -2), (3, 3, 1), (3, 1, 1), (0, 7, 3)]:
        args = [np.array(v, np.int64) for v in (start, stop, step)]
        agree(compute(ops.dyn_arange, *args), onnx_says("Range", *args))
    args = [np.array(v, np.float32) for v in (0.5, 3.2, 0.3)]
    agree(compute(ops.dyn_arange, *args), onnx_says("Range", *args))


def test_expand_goes_both_ways() -> None:
    x = floats(3, 1)
    for target in [(1,), (2, 3, 4), (3, 4), (1, 1, 1)]:
        agree(
            compute(ops.dyn_broadcast_to, x, ints(*target)), onnx_says("Expand", x, ints(*target))
        )


def test_indices() -> None:
    x, at = floats(3, 4, 5), RNG.integers(-4, 4, (2, 3))
    agree(compute(ops.gather, x, at, axis=1), onnx_says("Gather", x, at, axis=1))
    at = RNG.integers(-4, 4, (2, 6, 5))
    agree(compute(ops.gather_elements, x, at, axis=1), onnx_says("GatherElements", x, at, axis=1))
    at = RNG.integers(-3, 3, (2, 7, 2))
    agree(compute(ops.gather_nd, x, at), onnx_says("GatherND", x, at))
    at = RNG.integers(-4, 4, (3, 2, 1))
    agree(compute(ops.gather_nd, x, at, batch_dims=1), onnx_says("GatherND", x, at, batch_dims=1))
    at, new = np.array([[2], [0]]), floats(2, 4, 5)
    agree(compute(ops.scatter_nd, x, at, new), onnx_says("ScatterND", x, at, new))
    at, new = np.array([[[1], [-1]]]), floats(1, 2, 1)
    want = onnx_says("ScatterElements", x, at, new, axis=1)
    agree(compute(ops.scatter_elements, x, at, new, axis=1), want)


def test_selections() -> None:
    x, mask = floats(3, 4), np.array([True, False, True, True])
    agree(compute(ops.compress, x, mask, axis=1), onnx_says("Compress", x, mask, axis=1))
    agree(compute(ops.nonzero, x > 0), onnx_says("NonZero", x > 0))


def test_a_number_has_places_without_axes() -> None:
    """As the standard says; onnxruntime gives the number one axis."""
    for number, count in ((3.0, 1), (0.0, 0)):
        places = compute(ops.nonzero, np.array(number))
        assert (places.shape, places.dtype) == ((0, count), np.int64)


def test_normalisations() -> None:
    x, scale, bias = floats(2, 3, 4) + 100, floats(3, 4), floats(3, 4)
    agree(compute(ops.softmax, x, axis=1), onnx_says("Softmax", x, axis=1))
    agree(compute(ops.log_softmax, x, axis=2), onnx_says("LogSoftmax", x, axis=2))
    got = compute(ops.layer_norm, x, scale, bias, axis=1, epsilon=1e-3)
    want = onnx_says("LayerNormalization", x, scale, bias, axis=1, epsilon=1e-3)
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)
    masked = np.array([[-np.inf, 1, 2], [-np.inf, -np.inf, 0]], np.float32)
    agree(compute(ops.softmax, masked, axis=1), onnx_says("Softmax", masked, axis=1))


@pytest.mark.parametrize("name", ["Sum", "Mean", "Max", "Min", "Prod"])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_reductions(name: str, keepdims: int) -> None:
    x = floats(2, 3, 4)
    got = compute(get(f"reduce_{name.lower()}"), x, axes=(0, 2), keepdims=bool(keepdims))
    agree(got, onnx_says(f"Reduce{name}", x, ints(0, 2), keepdims=keepdims))


def test_erf_keeps_its_accuracy() -> None:
    x = np.geomspace(1e-30, 5, 200).astype(np.float32)
    want = np.array([math.erf(v) for v in x.tolist()])
    np.testing.assert_allclose(compute(ops.erf, x), want, rtol=1e-7)
    assert compute(ops.gelu, np.array(1.0, np.float32)).dtype == np.float32


def test_results_that_are_no_numbers_are_no_warnings() -> None:
    with np.errstate(all="raise"):
        assert math.isnan(compute(ops.log, np.array(-1, np.float32)))
        assert compute(ops.sigmoid, np.array(-1e5, np.float32)) == 0
