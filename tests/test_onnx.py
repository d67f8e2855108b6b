"""The ONNX front end: each converter against onnxruntime, symbols and bounds, every message."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from bucketize import zoo
from bucketize.errors import BucketizeError, TypeRelError, UnknownNameError, UnsupportedModelError
from bucketize.ir import Const, evaluate_module
from bucketize.onnx import from_onnx
from bucketize.onnx.load import OPSETS
from bucketize.onnx.node import CONVERTERS
from bucketize.types import Symbol, evaluate

ORT_ERRORS_ONLY = 3


def parse(graph: str, opset: int = 17) -> onnx.ModelProto:
    """`(float[N] x) => (y) { y = Relu(x) }` as a model."""
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> g {graph}')


def draw(rng: np.random.Generator, param, sizes):
    shape = tuple(evaluate(d, sizes) for d in param.type.shape)
    dtype = param.type.dtype
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 2 if dtype.kind == "b" else 3, shape).astype(dtype)


def run_ort(model, inputs):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = ORT_ERRORS_ONLY
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return session.run(None, inputs)


def agree(model, *all_sizes, bounds=None, **given):
    """The module of `model`, once it computes what onnxruntime does, at sizes of its symbols."""
    module = from_onnx(model, bounds=bounds)
    symbols = list(module.main.symbols())
    for sizes in all_sizes or ({s: 3 + i for i, s in enumerate(symbols)}, dict.fromkeys(symbols, 5)):
        rng = np.random.default_rng(1)
        inputs = {p.name: draw(rng, p, sizes) for p in module.main.params} | given
        for want, got in zip(run_ort(model, inputs), evaluate_module(module, **inputs), strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    return module


def ops_of(module):
    return [b.op.name for b in module.main.body]


# --- converters against onnxruntime ----------------------------------------------------------------

UNARY = (
    "Abs Ceil Cos Elu Erf Exp Floor HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu LogSoftmax "
    "Neg Reciprocal Relu Round Selu Sigmoid Sign Sin Softmax Softplus Softsign Tanh Celu "
    "ThresholdedRelu GlobalAveragePool GlobalMaxPool Flatten Shape Size Transpose ReduceSum "
    "ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceSumSquare ArgMax ArgMin Dropout"
).split()


@pytest.mark.parametrize("op_type", UNARY)
def test_operators_with_one_operand(op_type):
    agree(parse(f"(float[N, 2, H] x) => (y) {{ y = {op_type}(x) }}"))


BINARY = "Add Sub Mul Div PRelu Equal Less LessOrEqual Greater GreaterOrEqual Min Max Sum Mean".split()


@pytest.mark.parametrize("op_type", BINARY)
def test_operators_with_two_operands(op_type):
    agree(parse(f"(float[N, C, 4] x, float[C, 1] z) => (y) {{ y = {op_type}(x, z) }}"))


CASES = {
    # elementwise
    "sqrt_log": "(float[N] x) => (y) { a = Abs(x) b = Sqrt(a) c = Exp(b) y = Log(c) }",
    "not_and_or_xor": "(bool[N, 3] x, bool[3] z) => (y) "
    "{ a = And(x, z) b = Or(x, a) c = Xor(b, z) y = Not(c) }",
    "where": "(bool[N, 1] c, float[N, 3] x, float[3] z) => (y) { y = Where(c, x, z) }",
    "div_int": "(int64[N] x) => (y) <int64 d = {-2}> { a = Neg(x) y = Div(a, d) }",
    "mod_int": "(int64[N] x) => (y, z) <int64 d = {-2}, int64 o = {3}> "
    "{ a = Sub(x, o) y = Mod(a, d) z = Mod<fmod = 1>(a, d) }",
    "mod_float": "(float[N] x) => (y) <float d = {0.7}> { y = Mod<fmod = 1>(x, d) }",
    "pow": "(float[N] x) => (a, b, c, d) <float two = {2}, float half = {0.5}, int64[1] three = {3}> "
    "{ a = Pow(x, two) b = Pow(a, half) c = Pow(x, three) d = Pow(a, a) }",
    "sum_of_one": "(float[N] x) => (y) { y = Sum(x) }",
    "max_of_three": "(float[N] x, float[1] z, float v) => (y) { y = Max(x, z, v) }",
    "clip": "(float[N] x) => (y) <float lo = {-0.5}, float hi = {0.5}> { y = Clip(x, lo, hi) }",
    "clip_below": "(float[N] x) => (y) <float lo = {-0.5}> { y = Clip(x, lo) }",
    "clip_above": "(float[N] x) => (y) <float hi = {0.5}> { y = Clip(x, , hi) }",
    "clip_int": "(int64[N] x) => (y) <int64 hi = {1}> { y = Clip(x, , hi) }",
    "clip_run_time": "(float[N] x, float lo, float hi) => (y) { y = Clip(x, lo, hi) }",
    "isinf_positive": "(float[N] x) => (y) <float z = {0}> "
    "{ a = Div(x, z) y = IsInf<detect_negative = 0>(a) }",
    "elu_alpha": "(float[N] x) => (y) { y = Elu<alpha = 0.5>(x) }",
    "celu_alpha": "(float[N] x) => (y) { y = Celu<alpha = 0.5>(x) }",
    "cast": "(float[N] x) => (a, b, c) { a = Cast<to = 7>(x) b = Cast<to = 9>(x) c = Cast<to = 1>(b) }",
    "dropout": "(float[N] x) => (y) <float r = {0.5}, bool t = {0}> { y = Dropout<seed = 3>(x, r, t) }",
    # movement
    "shape_part": "(float[N, 2, H] x) => (y) { y = Shape<start = -2, end = 3>(x) }",
    "constants": "(float[N] x) => (a, b, c, d, e) { a = Constant<value_float = 0.1>() "
    "b = Constant<value_floats = [0.5, 1.0]>() c = Constant<value_int = 7>() "
    "d = Constant<value_ints = [1, 2]>() e = Add(x, a) }",
    "full": "(float[N, M] x) => (y, z) { s = Shape(x) y = ConstantOfShape(s) "
    "z = ConstantOfShape<value = int64[1] {7}>(s) }",
    "full_static": "(float[N] x) => (y) <int64[2] s = {2, 3}> { y = ConstantOfShape(s) }",
    "range": "(float[N] x) => (y) <int64 z = {0}, int64 one = {1}> "
    "{ n = Size(x) y = Range(z, n, one) }",
    "range_float": "(float[N] x) => (y) <float a = {0}, float b = {1}, float c = {0.3}> "
    "{ r = Range(a, b, c) y = Identity(r) }",
    "reshape": "(float[N, 2, 6] x) => (y) <int64[3] s = {0, -1, 3}> { y = Reshape(x, s) }",
    "reshape_chain": "(float[N, 2, 6] x) => (y) <int64[1] i = {0}, int64[1] t = {12}> "
    "{ s = Shape(x) n = Gather(s, i) t2 = Concat<axis = 0>(n, t) y = Reshape(x, t2) }",
    "flatten_2": "(float[N, 2, H] x) => (y) { y = Flatten<axis = 2>(x) }",
    "flatten_all": "(float[N, 2, H] x) => (y) { y = Flatten<axis = 0>(x) }",
    "transpose": "(float[N, 2, H] x) => (y) { y = Transpose<perm = [1, 2, 0]>(x) }",
    "squeeze": "(float[N, 1, 4, 1] x) => (y) <int64[2] a = {1, -1}> { y = Squeeze(x, a) }",
    "squeeze_static": "(float[1, 4, 1] x) => (y) { y = Squeeze(x) }",
    "unsqueeze": "(float[N, 4] x) => (y) <int64[2] a = {-1, 0}> { y = Unsqueeze(x, a) }",
    "expand": "(float[N, 1] x) => (y) <int64[3] s = {2, 1, 4}> { y = Expand(x, s) }",
    "expand_like": "(float[N, 1] x, float[N, M] z) => (y) { s = Shape(z) y = Expand(x, s) }",
    "concat": "(float[N, 2] x, float[N, C] z) => (y) { y = Concat<axis = -1>(x, z, x) }",
    "split": "(float[N, 6] x) => (a, b, c) { a, b, c = Split<axis = 1>(x) }",
    "split_sizes": "(float[N, 6] x) => (a, b) <int64[2] s = {2, 4}> { a, b = Split<axis = -1>(x, s) }",
    "slice": "(float[N, 6] x) => (y) <int64[2] b = {1, -1}, int64[2] e = {9223372036854775807, 0}, "
    "int64[2] a = {0, 1}, int64[2] s = {1, -2}> { y = Slice(x, b, e, a, s) }",
    "slice_short": "(float[N, 6] x) => (y) <int64[1] b = {1}, int64[1] e = {-1}> { y = Slice(x, b, e) }",
    "slice_to_length": "(float[9] t, float[N] x) => (y) <int64[1] b = {0}, int64[1] a = {0}> "
    "{ e = Shape(x) y = Slice(t, b, e, a) }",
    "tile": "(float[N, 2] x) => (y) <int64[2] r = {2, 3}> { y = Tile(x, r) }",
    "pad": "(float[N, 2] x) => (y) <int64[4] p = {1, 0, 2, 1}, float v = {7}> { y = Pad(x, p, v) }",
    "pad_reflect": '(float[N, 4] x) => (y) <int64[4] p = {0, 1, 0, 2}> { y = Pad<mode = "reflect">(x, p) }',
    "pad_run_time": "(float[N, 2] x) => (y) { p2 = Shape(x) p = Concat<axis = 0>(p2, p2) y = Pad(x, p) }",
    "trilu": "(float[2, N, M] x) => (a, b) <int64 k = {1}> { a = Trilu(x) b = Trilu<upper = 0>(x, k) }",
    "depth_to_space": '(float[N, 8, 2, W] x) => (a, b) { a = DepthToSpace<blocksize = 2>(x) '
    'b = DepthToSpace<blocksize = 2, mode = "CRD">(x) }',
    "space_to_depth": "(float[N, 3, 4, 6] x) => (y) { y = SpaceToDepth<blocksize = 2>(x) }",
    # reductions and normalisations
    "reduce_sum_axes": "(float[N, 3, H] x) => (y) <int64[2] a = {-1, 0}> "
    "{ y = ReduceSum<keepdims = 0>(x, a) }",
    "reduce_mean_axes": "(float[N, 3, H] x) => (y) { y = ReduceMean<axes = [-1], keepdims = 0>(x) }",
    "reduce_log_sum": "(float[N, 3] x) => (y) { a = Abs(x) y = ReduceLogSum<axes = [1]>(a) }",
    "reduce_none": "(float[N, 3] x) => (y) { y = ReduceSum<noop_with_empty_axes = 1>(x) }",
    "argmax": "(float[N, 3, H] x) => (y) { y = ArgMax<axis = -2, keepdims = 0>(x) }",
    "cumsum": "(float[N, 3] x) => (y) <int64 a = {-1}> { y = CumSum<exclusive = 1, reverse = 1>(x, a) }",
    "softmax_axis": "(float[N, 3, H] x) => (y) { y = Softmax<axis = 1>(x) }",
    "layer_norm": "(float[N, S, 4] x, float[4] w, float[4] b) => (y) "
    "{ y = LayerNormalization<epsilon = 0.1, axis = -1>(x, w, b) }",
    "layer_norm_without_bias": "(float[N, 3, 4] x, float[3, 4] w) => (y) "
    "{ y, m, s = LayerNormalization<axis = 1>(x, w) }",
    "batch_norm": "(float[N, 3, H] x, float[3] w, float[3] b, float[3] m, float[3] s) => (y) "
    "{ v = Exp(s) y = BatchNormalization<epsilon = 0.1, momentum = 0.5>(x, w, b, m, v) }",
    "batch_norm_flat": "(float[N, 3] x, float[3] w, float[3] b) => (y) "
    "{ v = Exp(b) y = BatchNormalization(x, w, b, w, v) }",
    "instance_norm": "(float[N, 3, H, 4] x, float[3] w, float[3] b) => (y) "
    "{ y = InstanceNormalization<epsilon = 0.1>(x, w, b) }",
    # matrix products
    "matmul": "(float[N, 2, M, 4] x, float[4, K] z) => (y) { y = MatMul(x, z) }",
    "matmul_row": "(float[4] x, float[N, 4, K] z) => (y) { y = MatMul(x, z) }",
    "matmul_column": "(float[N, M, 4] x, float[4] z) => (y) { y = MatMul(x, z) }",
    "matmul_vectors": "(float[N] x, float[N] z) => (y) { y = MatMul(x, z) }",
    "gemm": "(float[K, N] x, float[M, K] z, float[M] c) => (y) "
    "{ y = Gemm<transA = 1, transB = 1, alpha = 0.5, beta = 2.0>(x, z, c) }",
    "gemm_without_c": "(float[N, 3] x, float[3, M] z) => (y) { y = Gemm(x, z) }",
    # indices
    "gather": "(float[N, 4] x, int64[M, 2] i) => (y) { y = Gather<axis = -1>(x, i) }",
    "gather_elements": "(float[N, 4] x, int64[N, 2] i) => (y) { y = GatherElements<axis = 1>(x, i) }",
    "gather_nd": "(float[N, 3, 4] x, int64[N, 1] i) => (y) { y = GatherND<batch_dims = 1>(x, i) }",
    "scatter_nd": "(float[4, N] x, float[2, N] u) => (y) <int64[2, 1] i = {3, 1}> "
    "{ y = ScatterND(x, i, u) }",
    "scatter_elements": "(float[N, 4] x, float[N, 1] u, int64[N, 1] i) => (y) "
    "{ y = ScatterElements<axis = 1>(x, i, u) }",
    "nonzero": "(int64[N, 3] x) => (y) { y = NonZero(x) }",
    "compress": "(float[N, 3] x) => (y) <bool[3] c = {1, 0, 1}> { y = Compress<axis = -1>(x, c) }",
    "compress_flat": "(float[N, 1] x, bool[N] c) => (y) { y = Compress(x, c) }",
    "topk": "(float[N, 5] x) => (v, i) <int64[1] k = {2}> { v, i = TopK<axis = 1, largest = 0>(x, k) }",
    # a graph inside a node
    "if": "(float[N] x, bool c) => (y) <float w = {2}> { z = Relu(x) y = If(c) "
    "<then_branch = t () => (a) { a = Mul(z, w) }, else_branch = e () => (b) { b = Identity(z) }> }",
    "if_rank_1": "(float[N] x, bool[1] c) => (y) { y = If(c) "
    "<then_branch = t () => (a) { a = Neg(x) }, else_branch = e () => (b) { b = Abs(x) }> }",
}


@pytest.mark.parametrize("name", CASES)
def test_converters(name):
    agree(parse(CASES[name]))


LATER = {
    "reduce_mean_18": (18, "(float[N, 3, H] x) => (y) <int64[1] a = {1}> { y = ReduceMean(x, a) }"),
    "split_18": (18, "(float[N, 7] x) => (a, b, c) { a, b, c = Split<axis = 1, num_outputs = 3>(x) }"),
    "split_symbol": (18, "(float[N] x) => (a, b) { a, b = Split<num_outputs = 2>(x) }"),
    "pad_18": (18, "(float[N, 4] x) => (y) <int64[2] p = {1, 2}, int64[1] a = {-1}> "
               '{ y = Pad<mode = "edge">(x, p, , a) }'),
    "average_pool_19": (19, "(float[N, 2, 7, 9] x) => (y) { y = AveragePool"
                        "<kernel_shape = [2, 3], dilations = [2, 1], pads = [1, 1, 1, 1]>(x) }"),
    "mish": (18, "(float[N] x) => (y) { y = Mish(x) }"),
    "gelu": (20, '(float[N] x) => (a, b) { a = Gelu(x) b = Gelu<approximate = "tanh">(x) }'),
    "group_norm": (21, "(float[N, 4, H] x, float[4] w, float[4] b) => (y) "
                   "{ y = GroupNormalization<num_groups = 2>(x, w, b) }"),
    "rms_norm": (23, "(float[N, 3, 4] x, float[4] w) => (y) { y = RMSNormalization(x, w) }"),
    "cast_like": (19, "(float[N] x, int64[1] z) => (y) { y = CastLike(x, z) }"),
}  # fmt: skip


@pytest.mark.parametrize("name", LATER)
def test_converters_of_later_opsets(name):
    opset, graph = LATER[name]
    agree(parse(graph, opset))


def test_swish_by_the_reference_of_onnx():
    model = parse("(float[N] x) => (a, b) { a = Swish(x) b = Swish<alpha = 0.5>(x) }", 24)
    x = np.linspace(-3, 3, 7, dtype=np.float32)
    want = [x / (1 + np.exp(-k * x)) for k in (1, 0.5)]
    np.testing.assert_allclose(evaluate_module(from_onnx(model), x), want, rtol=1e-5)


WINDOWS = {
    "conv": "Conv<pads = [1, 0, 2, 1], strides = [2, 1], dilations = [1, 2]>(x, w, b)",
    "conv_valid": 'Conv<auto_pad = "VALID">(x, w)',
    "conv_same": 'Conv<auto_pad = "SAME_UPPER">(x, w)',
    "conv_same_lower_strided": 'Conv<auto_pad = "SAME_LOWER", strides = [2, 2]>(x, w)',
    "conv_same_upper_strided": 'Conv<auto_pad = "SAME_UPPER", strides = [3, 2]>(x, w, b)',
    "conv_groups": "Conv<group = 2, kernel_shape = [3, 2]>(x, g)",
    "max_pool": "MaxPool<kernel_shape = [3, 2], strides = [2, 2], pads = [1, 0, 1, 1]>(x)",
    "max_pool_ceil": "MaxPool<kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1>(x)",
    "max_pool_same": 'MaxPool<kernel_shape = [3, 3], strides = [2, 2], auto_pad = "SAME_UPPER">(x)',
    "average_pool": "AveragePool<kernel_shape = [2, 2], pads = [1, 1, 0, 0]>(x)",
    "average_pool_all": "AveragePool<kernel_shape = [2, 2], pads = [1, 1, 0, 0], count_include_pad = 1>(x)",
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_over_images(name):
    inputs = "float[N, 4, H, W] x, float[6, 4, 3, 2] w, float[4, 2, 3, 2] g, float[6] b"
    model = parse(f"({inputs}) => (y) {{ y = {WINDOWS[name]} }}")
    agree(model, {"N": 1, "H": 6, "W": 7}, {"N": 2, "H": 9, "W": 5})


@pytest.mark.parametrize(
    "node",
    [
        "Conv<strides = [2], pads = [1, 2], dilations = [2]>(x, w, b)",
        'Conv<auto_pad = "SAME_LOWER">(x, w)',
        "MaxPool<kernel_shape = [3], strides = [2]>(x)",
        "AveragePool<kernel_shape = [2], pads = [1, 0], count_include_pad = 1>(x)",
    ],
)
def test_windows_along_one_axis(node):
    model = parse(f"(float[N, 4, L] x, float[6, 4, 3] w, float[6] b) => (y) {{ y = {node} }}")
    agree(model, {"N": 1, "L": 8}, {"N": 2, "L": 11})


# --- types -------------------------------------------------------------------------------------------


def test_dim_names_become_symbols_with_bounds():
    model = parse("(float[N, ?, 3] x, float[N, K] z) => (y) { y = Shape(x) }")
    main = from_onnx(model, bounds={"N": (2, 8), "K": (1, None), "x_1": (4, 4)}).main
    n = Symbol("N", 2, 8)
    assert [p.type.shape for p in main.params] == [(n, 4, 3), (n, Symbol("K"))]
    assert main.body[0].out.type.value == (n, 4, 3)


def test_a_dim_without_a_name_gets_one_of_its_own():
    model = parse("(float[x_1, ?] x, float[?] z) => (y) { y = Identity(x) }")
    assert list(from_onnx(model).main.symbols()) == ["x_1", "x_1_", "z_0"]
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_value = -1
    assert list(from_onnx(model).main.symbols()) == ["x_1", "x_1_", "z_0"]


def test_a_name_that_looks_like_an_expression_is_a_name():
    model = parse("(float[N] x) => (y) { y = Identity(x) }")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "2*H // 3"
    assert agree(model, {"2*H // 3": 4}).main.params[0].type.shape == (Symbol("2*H // 3"),)


def test_shape_chains_end_as_dims_and_keep_their_dyn_ops():
    module = from_onnx(parse(CASES["reshape_chain"]))
    assert ops_of(module) == ["shape_of", "gather", "concat", "dyn.reshape"]
    assert str(module.main.results[0].type) == "float32[N, 12]"


@pytest.mark.parametrize(
    "name", ["reshape", "expand", "slice", "tile", "pad", "full_static", "range_float"]
)
def test_constant_operands_give_static_ops(name):
    assert not [op for op in ops_of(from_onnx(parse(CASES[name]))) if op.startswith("dyn.")]


def test_a_torch_expand_is_followed_through_equal_and_where():
    """`expand(-1, n)` as torch exports it: -1 in the shape is replaced by 1."""
    module = agree(
        parse(
            "(float[N, 1] x, float[M] z) => (y) <int64[1] keep = {-1}, int64 minus = {-1}> {"
            " m = Shape(z) s = Concat<axis = 0>(keep, m) r = Shape(s)"
            " ones = ConstantOfShape<value = int64[1] {1}>(r) k = Mul(ones, minus)"
            " e = Equal(s, k) t = Where(e, ones, s) y = Expand(x, t) }"
        )
    )
    assert str(module.main.results[0].type) == "float32[N, M]"


def test_initializers_are_shared_constants():
    model = parse("(float[N, 2] x) => (y) <float[2] w = {1, 2}> { a = Add(x, w) y = Mul(a, w) }")
    first, second = from_onnx(model).main.body
    assert isinstance(first.args[1], Const)
    assert first.args[1] is second.args[1]


def test_an_input_with_an_initializer_is_a_constant():
    model = parse("(float[N] x, float[1] w) => (y) { y = Add(x, w) }")
    model.graph.initializer.append(numpy_helper.from_array(np.float32([2]), "w"))
    assert [p.name for p in from_onnx(model).main.params] == ["x"]


def test_epsilon_is_the_number_that_was_written():
    model = parse(
        "(float[N, 2] x, float[2] w) => (y) { y = LayerNormalization<epsilon = 1e-12>(x, w) }"
    )
    assert from_onnx(model).main.body[0].attrs["epsilon"] == 1e-12


def test_functions_of_the_model_are_inlined():
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 17, "my" : 1]> g (float[N] x) => (y) '
        '{ y = my.twice(x) } <domain: "my", opset_import: ["" : 17]> twice (a) => (b) '
        "{ b = Add(a, a) }"
    )
    agree(model)


# --- the zoo -----------------------------------------------------------------------------------------

SIZES = {
    "mlp": ({"N": 1}, {"N": 17}),
    "resnet18": ({"N": 1, "H": 32, "W": 40}, {"N": 2, "H": 65, "W": 33}),
    "resnet50": ({"N": 1, "H": 32, "W": 40},),
    "mobilenetv2": ({"N": 1, "H": 32, "W": 40}, {"N": 2, "H": 65, "W": 33}),
    "bert-mini": ({"B": 1, "S": 1}, {"B": 2, "S": 17}),
}


@pytest.mark.parametrize("name", SIZES)
def test_zoo_models_equal_onnxruntime(name):
    model = zoo.build(name)
    module = from_onnx(model, bounds=zoo.BOUNDS[name])
    for sizes in SIZES[name]:
        inputs = zoo.inputs(name, sizes)
        (want,), (got,) = run_ort(model, inputs), evaluate_module(module, **inputs)
        assert np.abs(got - want).max() < 1e-4 * np.abs(want).max()


@pytest.mark.parametrize("name", SIZES)
def test_no_extent_of_a_zoo_model_is_unknown(name):
    for binding in from_onnx(zoo.build(name)).main.body:
        for type_ in (v.type for v in binding.outs):
            assert "?" not in f"{type_} {type_.value}", binding


# --- messages ----------------------------------------------------------------------------------------


def fails(model, match, error=UnsupportedModelError, **options):
    with pytest.raises(error, match=match) as e:
        from_onnx(model, **options)
    return e.value


def test_all_unsupported_nodes_in_one_error():
    model = parse(
        "(float[N, 3, 8, 8] x, float[4, 3, 3, 3] w, float[N] v, seq(float[N]) q) => (y, d) {"
        " [first] a = Hardmax(x) [second] b = Hardmax(a) [pool] c = LpPool<kernel_shape = [2, 2]>(x)"
        ' [act] e = acme.Gate(c) [mask] y, m = Dropout(x) k = Not(m) [s] d = Softmax<axis = 9>(x) }'
    )
    del model.graph.input[3]
    model.opset_import.append(helper.make_opsetid("acme", 1))
    error = fails(model, "^6 nodes of the model cannot be converted:")
    assert str(error).splitlines()[1:] == [
        "  2 x Hardmax: no converter for this operator (first, second)",
        "  1 x LpPool: no converter for this operator (pool)",
        "  1 x acme.Gate: no converter for this operator (act)",
        "  1 x Dropout: output 1 is used (mask)",
        "  1 x Softmax: axis 9 is out of range for rank 4 (s)",
    ]


def test_unsupported_nodes_inside_branches_are_listed_too():
    model = parse(
        "(float[N] x) => (y) { c = Hardmax(x) y = If(c) <then_branch = t () => (a) { a = Hardmax(x) },"
        " else_branch = e () => (b) { b = Relu(x) }> }"
    )
    fails(model, r"2 x Hardmax: no converter for this operator \(c, a\)")


REASONS = {
    "pool_3d": ("(float[N, 2, 4, 4, 4] x) => (y) { y = MaxPool<kernel_shape = [2, 2, 2]>(x) }",
                "MaxPool: a window over 3 axes, expected 1 or 2"),
    "same_average": ("(float[N, 2, H, 4] x) => (y) { y = AveragePool<kernel_shape = [2, 2], "
                     'strides = [2, 2], auto_pad = "SAME_UPPER">(x) }',
                     "AveragePool: auto_pad makes pads .* of the run-time size"),
    "weights": ("(float[N, 2, H, W] x, float[2, 2, K, K] w) => (y) { y = Conv(x, w) }",
                "Conv: the window of the weights float32\\[2, 2, K, K\\] is not known"),
    "axes": ("(float[N, 2] x, int64[1] a) => (y) { y = ReduceSum(x, a) }",
             "ReduceSum: axes are known only at run time"),
    "axes_symbol": ("(float[N, 2] x, float[K] k) => (y) { a = Shape(k) y = Unsqueeze(x, a) }",
                    "Unsqueeze: axes are known only at run time"),
    "value": ("(float[N, 2] x, float v) => (y) <int64[4] p = {1, 1, 1, 1}> { y = Pad(x, p, v) }",
              "Pad: the value is known only at run time"),
    "squeeze": ("(float[N, 2] x) => (y) { y = Squeeze(x) }",
                r"Squeeze: without axes the rank of the result is unknown for float32\[N, 2\]"),
    "training": ("(float[N] x) => (y) <float r = {0.5}, bool t = {1}> { y = Dropout(x, r, t) }",
                 "Dropout: training_mode is true"),
    "training_norm": ("(float[N, 2] x, float[2] w) => (y) "
                      "{ y, m, v = BatchNormalization<training_mode = 1>(x, w, w, w, w) }",
                      "BatchNormalization: training_mode is 1"),
    "last_index": ("(float[N] x) => (y) { y = ArgMax<select_last_index = 1>(x) }",
                   "ArgMax: select_last_index is 1"),
    "scatter": ('(float[N, 2] x, int64[M, 1] i, float[M, 2] u) => (y) { y = ScatterND<reduction = "add">'
                "(x, i, u) }", "ScatterND: reduction is add"),
    "indices": ("(float[N, 2, H, W] x) => (i) { y, i = MaxPool<kernel_shape = [2, 2]>(x) }",
                "MaxPool: output 1 is used"),
    "float8": ("(float[N] x) => (y) { y = Cast<to = 16>(x) }",
               "Cast: the data type BFLOAT16 is not supported"),
    "no_type": ("(float[N] x) => (y) { y = Cast<to = 99>(x) }",
                "Cast: the data type 99 is not supported"),
    "power": ("(int64[N] x, float p) => (y) { y = Pow(x, p) }", "Pow: int64 to the power of float32"),
    "inf": ("(float[N] x) => (y) { y = IsInf<detect_negative = 0, detect_positive = 0>(x) }",
            "IsInf: detect_negative and detect_positive are both 0"),
    "strings": ('(float[N] x) => (y) { y = Constant<value_string = "a">() }',
                "Constant: the attribute value_string is not supported"),
    "new": ("(float[N] x) => (y) { y = Gelu(x) }", "Gelu: new in opset 20, but the model has 17"),
    "not_valid": ("(float[N] x) => (y) { y = Relu<slope = 1.0>(x) }",
                  "Relu: not valid: Unrecognized attribute: slope for operator Relu"),
    "unknown": ("(float[N] x, bool[N] c) => (y) { a = Compress<axis = 0>(x, c) b = Unsqueeze(a, z) "
                "d = Compress<axis = 0>(b, c) e = Concat<axis = 0>(b, d) y = Compress(e, c) }", "Sum: "),
    "split": ("(int64[N] i) => (a, b) { k = NonZero(i) a, b = Split<axis = 1>(k) }",
              r"Split: the extent of axis 1 of int64\[1, \?\] is not known"),
    "trilu": ("(int64[N] i) => (y) { k = NonZero(i) y = Trilu(k) }",
              r"Trilu: the extents of int64\[1, \?\] are not known"),
    "slice": ("(float[N] x, int64[K] b) => (y) { y = Slice(x, b, b) }",
              r"Slice: the number of axes that are cut is not known: starts are int64\[K\]"),
}  # fmt: skip


@pytest.mark.parametrize("name", REASONS)
def test_why_a_node_is_not_supported(name):
    graph, reason = REASONS[name]
    fails(parse(graph), reason)


def test_a_type_error_names_the_node():
    model = parse("(float[N, 2] x, float[3] z) => (y) { [sum] y = Add(x, z) }")
    error = fails(model, "extents differ: 2 and 3", TypeRelError)
    assert error.__notes__[-1] == "from ONNX node 'sum' (Add)"
    model.graph.node[0].name = ""
    error = fails(model, "extents differ", TypeRelError)
    assert error.__notes__[-1] == "from ONNX node 'y' (Add)"


def test_a_value_that_nothing_makes():
    model = parse("(float[N] x) => (y) { [late] y = Relu(z) }")
    fails(model, "node 'late' reads 'z', which nothing before it makes")
    model = parse("(float[N] x) => (w) { y = Relu(x) }")
    fails(model, "the output of main reads 'w', which nothing before it makes")


def test_opsets():
    graph = "(float[N] x) => (y) { y = Relu(x) }"
    reads = f"bucketize reads 13 to {OPSETS[-1]}; onnx.version_converter can convert it"
    fails(parse(graph, 11), f"the model has opset 11, but {reads}")
    fails(parse(graph, 99), f"the model has opset 99, but {reads}")


def test_inputs_that_are_no_tensors_of_known_rank():
    graph = "(float[N] x) => (y) { y = Identity(x) }"
    model = parse(graph.replace("float[N]", "float[]"))
    fails(model, "input 'x' has no shape: its rank must be known")
    model = parse(graph.replace("float[N]", "seq(float[N])"))
    fails(model, "input 'x' is a sequence_type, expected a tensor_type")
    model = parse(graph.replace("float", "bfloat16"))
    fails(model, "input 'x': the data type BFLOAT16 is not supported")


def test_bounds():
    model = parse("(float[N, M] x) => (y) { y = Relu(x) }")
    known = "no symbol named 'K'; known: M, N"
    fails(model, known, UnknownNameError, bounds={"K": (1, 2)})
    for bad in ((0, 3), (4, 3), (1,), 7, (1.5, 2), ("1", "2")):
        wanted = r"the bounds of N must be a pair \(lo, hi\) with 1 <= lo <= hi, got "
        fails(model, wanted, BucketizeError, bounds={"N": bad})


def test_initializers_that_cannot_be_read():
    model = parse("(float[N] x) => (y) { y = Add(x, w) }")
    short = helper.make_tensor("w", TensorProto.FLOAT, [1], np.float32([1]).tobytes(), raw=True)
    short.dims[0] = 3
    model.graph.initializer.append(short)
    fails(model, "initializer 'w': ")
    model.graph.initializer[0].data_type = TensorProto.BFLOAT16
    fails(model, "initializer 'w': the data type BFLOAT16 is not supported")
    model.graph.initializer[0].data_location = TensorProto.EXTERNAL
    fails(model, "initializer 'w' is stored outside of the model: load it from a path")
    del model.graph.initializer[:]
    model.graph.sparse_initializer.add()
    fails(model, "sparse initializers are not supported")


# --- sources -----------------------------------------------------------------------------------------


def test_path_and_bytes(tmp_path):
    model, path = zoo.build("mlp"), tmp_path / "mlp.onnx"
    onnx.save(model, path)
    x = zoo.inputs("mlp", {"N": 2})
    want = evaluate_module(from_onnx(model), **x)
    for source in (path, str(path), path.read_bytes()):
        np.testing.assert_array_equal(evaluate_module(from_onnx(source), **x), want)


def test_external_data(tmp_path):
    model, path = zoo.build("mlp"), tmp_path / "mlp.onnx"
    x = zoo.inputs("mlp", {"N": 2})
    want = evaluate_module(from_onnx(model), **x)
    onnx.save(model, path, save_as_external_data=True, location="weights.bin")
    assert path.stat().st_size < 10_000
    np.testing.assert_array_equal(evaluate_module(from_onnx(path), **x), want)
    fails(path.read_bytes(), "is stored outside of the model: load it from a path")
    (tmp_path / "weights.bin").unlink()
    fails(path, "mlp.onnx is no ONNX model: .*weights.bin")


def test_corrupt_sources(tmp_path):
    path = tmp_path / "broken.onnx"
    fails(path, "cannot read .*broken.onnx: No such file or directory")
    path.write_bytes(b"garbage")
    fails(path, "broken.onnx is no ONNX model: ")
    fails(b"garbage", "7 bytes are no ONNX model: ")
    path.write_bytes(b"")
    fails(path, "broken.onnx holds no ONNX graph")
    whole = parse("(float[N] x) => (y) { y = Relu(x) }").SerializeToString()
    path.write_bytes(whole[:-7])
    fails(path, "broken.onnx is no ONNX model: ")
    fails(7, "expected a path, bytes or an onnx.ModelProto, got int")


# --- the table ---------------------------------------------------------------------------------------


# Operators whose inputs, outputs or attributes changed after opset 13, or after the opset that
# brought them: each change was read, and the converter handles or refuses it.
REVIEWED = {
    ("AveragePool", 19),
    ("BatchNormalization", 14),
    ("Cast", 19),
    ("Cast", 24),
    ("CastLike", 19),
    ("CastLike", 24),
    ("Pad", 18),
    ("Reshape", 14),
    ("ScatterElements", 16),
    ("ScatterND", 16),
    ("Shape", 15),
    ("Split", 18),
}


def signature(schema):
    inputs, outputs = ([v.name for v in side] for side in (schema.inputs, schema.outputs))
    return inputs, outputs, sorted(schema.attributes)


def test_what_later_opsets_changed_was_read():
    changed = set()
    for (domain, op_type), versions in CONVERTERS.items():
        assert min(versions) == 13 or onnx.defs.get_schema(op_type, min(versions), domain)
        schemas = [onnx.defs.get_schema(op_type, v, domain) for v in OPSETS if v >= min(versions)]
        for before, after in pairwise(schemas):
            if signature(before) != signature(after) and after.since_version not in versions:
                changed.add((op_type, after.since_version))
    assert changed == REVIEWED
