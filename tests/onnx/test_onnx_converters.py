"""Each converter of the ONNX front end against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from onnx_model import agree, draw, parse, run_ort

import bucketize
from bucketize.errors import UnsupportedModelError
from bucketize.interpret import evaluate_module
from bucketize.onnx import from_onnx
from bucketize.ops import dyn_topk, topk
from bucketize.transform.simplify import simplify

UNARY = """
    Abs Ceil Cos Elu Erf Exp Floor HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu
    LogSoftmax Neg Reciprocal Relu Round Selu Sigmoid Sign Sin Softmax Softplus Softsign Tanh
    Celu ThresholdedRelu GlobalAveragePool GlobalMaxPool Flatten Shape Size Transpose ReduceSum
    ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceSumSquare ArgMax ArgMin
    Dropout
"""


@pytest.mark.parametrize("op_type", UNARY.split())
def test_operators_with_one_operand(op_type):
    agree(parse(f"(float[N, 2, H] x) => (y) {{ y = {op_type}(x) }}"))


BINARY = """
    Add Sub Mul Div PRelu Equal Less LessOrEqual Greater GreaterOrEqual Min Max Sum Mean
"""


@pytest.mark.parametrize("op_type", BINARY.split())
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
    "pow": "(float[N] x) => (a, b, c, d) "
    "<float two = {2}, float half = {0.5}, int64[1] three = {3}> "
    "{ a = Pow(x, two) b = Pow(a, half) c = Pow(x, three) d = Pow(a, a) }",
    "short_powers": "(float[N] x, int64[N] i) => (a, b, c, d, e, f) <float three = {3}, "
    "float four = {4}, float less = {-1}, float root = {-0.5}, int64[1] four_i = {4}> { p = Exp(x) "
    "a = Pow(x, three) b = Pow(x, four) c = Pow(p, less) d = Pow(p, root) e = Pow(i, four_i) "
    "f = Pow(i, three) }",
    "sum_of_one": "(float[N] x) => (y) { y = Sum(x) }",
    "max_of_three": "(float[N] x, float[1] z, float v) => (y) { y = Max(x, z, v) }",
    "clip": "(float[N] x) => (y) <float lo = {-0.5}, float hi = {0.5}> { y = Clip(x, lo, hi) }",
    "clip_below": "(float[N] x) => (y) <float lo = {-0.5}> { y = Clip(x, lo) }",
    "clip_above": "(float[N] x) => (y) <float hi = {0.5}> { y = Clip(x, , hi) }",
    "clip_int": "(int64[N] x) => (y) <int64 hi = {1}> { y = Clip(x, , hi) }",
    "clip_run_time": "(float[N] x, float lo, float hi) => (y) { y = Clip(x, lo, hi) }",
    "isinf_positive": "(float[N] x) => (y) <float z = {0}> "
    "{ a = Div(x, z) y = IsInf<detect_negative = 0>(a) }",
    "shrink": "(float[N] x) => (a, b) { a = Shrink(x) b = Shrink<lambd = 0.3, bias = 0.2>(x) }",
    "elu_alpha": "(float[N] x) => (y) { y = Elu<alpha = 0.5>(x) }",
    "celu_alpha": "(float[N] x) => (y) { y = Celu<alpha = 0.5>(x) }",
    "cast": "(float[N] x) => (a, b, c) "
    "{ a = Cast<to = 7>(x) b = Cast<to = 9>(x) c = Cast<to = 1>(b) }",
    "dropout_mask": "(float[N, 2] x) => (y, m) { y, m = Dropout(x) }",
    "dropout_of_nothing": "(float[N] x) => (y, m) <float r = {0}, bool t = {1}> "
    "{ y, m = Dropout(x, r, t) }",
    "dropout": "(float[N] x) => (y) <float r = {0.5}, bool t = {0}> "
    "{ y = Dropout<seed = 3>(x, r, t) }",
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
    "reshape_to_scalar": "(float[1, 1] x) => (y) <int64[0] s = {}> { y = Reshape(x, s) }",
    "range_run_time": "(float a, float b, float[N] x) => (y) "
    "{ c = Abs(a) d = Exp(c) e = Exp(b) y = Range(b, d, e) }",
    "double": "(double[N] x) => (y) { a = Constant<value = double {0.3333333333333333}>() "
    "y = Clip(x, , a) }",
    "reshape_chain": "(float[N, 2, 6] x) => (y) <int64[1] i = {0}, int64[1] t = {12}> "
    "{ s = Shape(x) n = Gather(s, i) t2 = Concat<axis = 0>(n, t) y = Reshape(x, t2) }",
    "flatten_negative": "(float[N, 2, H] x) => (y) { y = Flatten<axis = -1>(x) }",
    "flatten_none_behind": "(float[N, 2, H] x) => (y) { y = Flatten<axis = 3>(x) }",
    "flatten_2": "(float[N, 2, H] x) => (y) { y = Flatten<axis = 2>(x) }",
    "flatten_unknown": "(bool[N] c, float[M, K] x) => (y) "
    "{ k = NonZero(c) g = Gather(x, k) y = Flatten<axis = 2>(g) }",
    "flatten_all": "(float[N, 2, H] x) => (y) { y = Flatten<axis = 0>(x) }",
    "transpose": "(float[N, 2, H] x) => (y) { y = Transpose<perm = [1, 2, 0]>(x) }",
    "squeeze": "(float[N, 1, 4, 1] x) => (y) <int64[2] a = {1, -1}> { y = Squeeze(x, a) }",
    "squeeze_static": "(float[1, 4, 1] x) => (y) { y = Squeeze(x) }",
    "unsqueeze": "(float[N, 4] x) => (y) <int64[2] a = {-1, 0}> { y = Unsqueeze(x, a) }",
    "expand": "(float[N, 1] x) => (y) <int64[3] s = {2, 1, 4}> { y = Expand(x, s) }",
    "expand_like": "(float[N, 1] x, float[N, M] z) => (y) { s = Shape(z) y = Expand(x, s) }",
    "concat": "(float[N, 2] x, float[N, C] z) => (y) { y = Concat<axis = -1>(x, z, x) }",
    "split": "(float[N, 6] x) => (a, b, c) { a, b, c = Split<axis = 1>(x) }",
    "split_sizes": "(float[N, 6] x) => (a, b) <int64[2] s = {2, 4}> "
    "{ a, b = Split<axis = -1>(x, s) }",
    "slice": "(float[N, 6] x) => (y) <int64[2] b = {1, -1}, int64[2] e = {9223372036854775807, 0}, "
    "int64[2] a = {0, 1}, int64[2] s = {1, -2}> { y = Slice(x, b, e, a, s) }",
    "slice_short": "(float[N, 6] x) => (y) <int64[1] b = {1}, int64[1] e = {-1}> "
    "{ y = Slice(x, b, e) }",
    "slice_to_length": "(float[9] t, float[N] x) => (y) <int64[1] b = {0}, int64[1] a = {0}> "
    "{ e = Shape(x) y = Slice(t, b, e, a) }",
    "tile": "(float[N, 2] x) => (y) <int64[2] r = {2, 3}> { y = Tile(x, r) }",
    "pad": "(float[N, 2] x) => (y) <int64[4] p = {1, 0, 2, 1}, float v = {7}> { y = Pad(x, p, v) }",
    "pad_reflect": "(float[N, 4] x) => (y) <int64[4] p = {0, 1, 0, 2}> "
    '{ y = Pad<mode = "reflect">(x, p) }',
    "pad_run_time": "(float[N, 2] x) => (y) "
    "{ p2 = Shape(x) p = Concat<axis = 0>(p2, p2) y = Pad(x, p) }",
    "trilu": "(float[2, N, M] x) => (a, b) <int64 k = {1}> "
    "{ a = Trilu(x) b = Trilu<upper = 0>(x, k) }",
    "depth_to_space": "(float[N, 8, 2, W] x) => (a, b) { a = DepthToSpace<blocksize = 2>(x) "
    'b = DepthToSpace<blocksize = 2, mode = "CRD">(x) }',
    "space_to_depth": "(float[N, 3, 4, 6] x) => (y) { y = SpaceToDepth<blocksize = 2>(x) }",
    "eye_like": "(int64[N, M] x) => (a, b) { a = EyeLike<k = -1, dtype = 1>(x) b = EyeLike(x) }",
    # reductions and normalisations
    "reduce_sum_axes": "(float[N, 3, H] x) => (y) <int64[2] a = {-1, 0}> "
    "{ y = ReduceSum<keepdims = 0>(x, a) }",
    "reduce_mean_axes": "(float[N, 3, H] x) => (y) "
    "{ y = ReduceMean<axes = [-1], keepdims = 0>(x) }",
    "reduce_log_sum": "(float[N, 3] x) => (y) { a = Abs(x) y = ReduceLogSum<axes = [1]>(a) }",
    "reduce_none": "(float[N, 3] x) => (y) { y = ReduceSum<noop_with_empty_axes = 1>(x) }",
    "argmax": "(float[N, 3, H] x) => (y) { y = ArgMax<axis = -2, keepdims = 0>(x) }",
    "argmax_last": "(int64[N, 3, H] x) => (y, z) "
    "{ y = ArgMax<axis = 1, keepdims = 0, select_last_index = 1>(x) "
    "z = ArgMin<axis = -1, select_last_index = 1>(x) }",
    "cumsum": "(float[N, 3] x) => (y) <int64 a = {-1}> "
    "{ y = CumSum<exclusive = 1, reverse = 1>(x, a) }",
    "softmax_axis": "(float[N, 3, H] x) => (y) { y = Softmax<axis = 1>(x) }",
    "hardmax": "(float[N, 3, H] x) => (a, b) { a = Hardmax<axis = 1>(x) b = Hardmax(x) }",
    "lp_norm": "(float[N, 3, H] x) => (a, b, c) { a = LpNormalization<p = 1, axis = 1>(x) "
    "b = LpNormalization(x) d = Sub(x, x) c = LpNormalization(d) }",
    "layer_norm": "(float[N, S, 4] x, float[4] w, float[4] b) => (y) "
    "{ y = LayerNormalization<epsilon = 0.1, axis = -1>(x, w, b) }",
    "layer_norm_without_bias": "(float[N, 3, 4] x, float[3, 4] w) => (y) "
    "{ y, m, s = LayerNormalization<axis = 1>(x, w) }",
    "layer_norm_results": "(float[N, 3, 4] x, float[3, 4] w) => (y, m, s) "
    "{ y, m, s = LayerNormalization<axis = 1>(x, w) }",
    "reduce_log_sum_exp": "(float[N, 3, H] x) => (y) "
    "{ y = ReduceLogSumExp<axes = [1], keepdims = 0>(x) }",
    "local_response": "(float[N, 5, H, 3] x) => (a, b) { a = LRN<size = 3>(x) "
    "b = LRN<size = 5, alpha = 0.5, beta = 0.6, bias = 2.0>(x) }",
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
    "gather_elements": "(float[N, 4] x, int64[N, 2] i) => (y) "
    "{ y = GatherElements<axis = 1>(x, i) }",
    "gather_nd": "(float[N, 3, 4] x, int64[N, 1] i) => (y) { y = GatherND<batch_dims = 1>(x, i) }",
    "scatter_nd": "(float[4, N] x, float[2, N] u) => (y) <int64[2, 1] i = {3, 1}> "
    "{ y = ScatterND(x, i, u) }",
    "scatter_elements": "(float[N, 4] x, float[N, 1] u, int64[N, 1] i) => (y) "
    "{ y = ScatterElements<axis = 1>(x, i, u) }",
    "nonzero": "(int64[N, 3] x) => (y) { y = NonZero(x) }",
    "compress": "(float[N, 3] x) => (y) <bool[3] c = {1, 0, 1}> { y = Compress<axis = -1>(x, c) }",
    "compress_flat": "(float[N, 1] x, bool[N] c) => (y) { y = Compress(x, c) }",
    "topk": "(float[N, 5] x) => (v, i) <int64[1] k = {2}> "
    "{ v, i = TopK<axis = 1, largest = 0>(x, k) }",
    "topk_run_time": "(float[N, 5] x) => (v, i) <int64[1] two = {2}> "
    "{ s = Shape<start = 0, end = 1>(x) k = Min(s, two) v, i = TopK(x, k) }",
    "one_hot": "(int64[N, 3] i) => (a, b) <int64 d = {3}, float[2] v = {0.5, 2}> "
    "{ two = Constant<value_int = 2>() j = Sub(i, two) a = OneHot(j, d, v) "
    "b = OneHot<axis = 0>(i, d, v) }",
    "one_hot_run_time": "(int64[N] i, float[C] x, float[2] v) => (y) "
    "{ d = Shape(x) y = OneHot<axis = -2>(i, d, v) }",
    # a graph inside a node
    "if": "(float[N] x, bool c) => (y) <float w = {2}> { z = Relu(x) y = If(c) "
    "<then_branch = t () => (a) { a = Mul(z, w) }, "
    "else_branch = e () => (b) { b = Identity(z) }> }",
    "if_rank_1": "(float[N] x, bool[1] c) => (y) { y = If(c) "
    "<then_branch = t () => (a) { a = Neg(x) }, else_branch = e () => (b) { b = Abs(x) }> }",
}


@pytest.mark.parametrize("name", CASES)
def test_converters(name):
    agree(parse(CASES[name]))


@pytest.mark.parametrize(
    "name", ["reshape", "expand", "slice", "tile", "pad", "full_static", "range_float"]
)
def test_constant_operands_give_static_ops(name):
    body = from_onnx(parse(CASES[name])).main.body
    assert not [b for b in body if b.op.name.startswith("dyn.")]


@pytest.mark.parametrize("name", ["topk", "topk_run_time"])
def test_topk_compiles(name):
    mod = from_onnx(parse(CASES[name]))
    x = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
    for got, want in zip(bucketize.compile(mod).run(x), evaluate_module(mod, x), strict=True):
        np.testing.assert_array_equal(got, want)


def test_topk_is_one_op_whose_k_may_come_late():
    assert [b.op for b in from_onnx(parse(CASES["topk"])).main.body] == [topk]
    main = from_onnx(parse(CASES["topk_run_time"])).main
    assert main.body[-1].op is dyn_topk
    assert simplify(main).body[-1].op is topk


def test_a_norm_without_bias_keeps_the_sign_of_zero():
    model = parse("(float[N, 3] x, float[3] w) => (y) { y = LayerNormalization(x, w) }")
    x, w = np.float32([[-1, 0, 1]]), np.full(3, -1, np.float32)
    (y,) = bucketize.compile(from_onnx(model)).run(x, w)
    assert np.signbit(run_ort(model, {"x": x, "w": w})[0][0, 1])
    assert np.signbit(y[0, 1])


def test_a_batch_norm_of_halves_that_are_near_their_mean():
    """What is multiplied by 200 is 2**-9: a shift by 400 would round it away."""
    model = parse(
        "(float16[N, 1] x, float16[1] w, float16[1] b, float16[1] m, float16[1] v) => (y) "
        "{ y = BatchNormalization<epsilon = 2.5e-5>(x, w, b, m, v) }"
    )
    x = np.float16([[2], [2.002], [2.004]])
    given = [np.float16([number]) for number in (1, 0.125, 2.01, 0)]
    (want,) = run_ort(model, dict(zip("xwbmv", (x, *given), strict=True)))
    for run in (evaluate_module, lambda mod, *args: bucketize.compile(mod).run(*args)):
        (got,) = run(from_onnx(model), x, *given)
        np.testing.assert_allclose(got, want, rtol=2e-3)


LATER = {
    "reduce_mean_18": (18, "(float[N, 3, H] x) => (y) <int64[1] a = {1}> { y = ReduceMean(x, a) }"),
    "split_18": (18, "(float[N, 7] x) => (a, b, c) "
                 "{ a, b, c = Split<axis = 1, num_outputs = 3>(x) }"),
    "split_symbol": (18, "(float[N] x) => (a, b) { a, b = Split<num_outputs = 2>(x) }"),
    "pad_18": (18, "(float[N, 4] x) => (y) <int64[2] p = {1, 2}, int64[1] a = {-1}> "
               '{ y = Pad<mode = "edge">(x, p, , a) }'),
    "pad_wrap": (19, "(float[N, 4] x) => (y) <int64[4] p = {0, 1, 0, 2}> "
                 '{ y = Pad<mode = "wrap">(x, p) }'),
    "average_pool_19": (19, "(float[N, 2, 7, 9] x) => (y) { y = AveragePool"
                        "<kernel_shape = [2, 3], dilations = [2, 1], pads = [1, 1, 1, 1]>(x) }"),
    "bits": (18, "(int8[N, 3] x, int8[3] z) => (a, b, c, d) { a = BitwiseAnd(x, z) "
             "b = BitwiseOr(x, z) c = BitwiseXor(a, b) d = BitwiseNot(c) }"),
    "mish": (18, "(float[N] x) => (y) { y = Mish(x) }"),
    "gelu": (20, '(float[N] x) => (a, b) { a = Gelu(x) b = Gelu<approximate = "tanh">(x) }'),
    "group_norm": (21, "(float[N, 4, H] x, float[4] w, float[4] b) => (y) "
                   "{ y = GroupNormalization<num_groups = 2>(x, w, b) }"),
    "rms_norm": (23, "(float[N, 3, 4] x, float[4] w) => (y) { y = RMSNormalization(x, w) }"),
    "cast_like": (19, "(float[N] x, int64[1] z) => (y) { y = CastLike(x, z) }"),
}  # fmt: skip


EINSUMS = {
    "ij,jk->ik": "float[N, M] a, float[M, K] b",
    "ij,jk": "float[N, M] a, float[M, K] b",
    "bhqd,bhkd->bhqk": "float[N, 2, M, 4] a, float[N, 2, K, 4] b",
    "bhqk,bkhd->bqhd": "float[N, 2, M, K] a, float[N, K, 2, 5] b",
    "abc,cd->bd": "float[N, M, K] a, float[K, 3] b",
    "abc,bca->": "float[N, M, 3] a, float[M, 3, N] b",
    "i,j->ij": "float[N] a, float[M] b",
    "bi,bj->jbi": "float[N, 3] a, float[N, M] b",
    "bi,bi->b": "float[N, M] a, float[N, M] b",
    "ij->ji": "float[N, M] a",
    "ijk->j": "float[N, M, K] a",
    "ii->i": "float[N, N] a",
    "biji": "float[M, N, K, N] a",
    "...ij,...jk->...ik": "float[2, N, M, 3] a, float[1, N, 3, K] b",
    "...ii->...i": "float[M, 2, N, N] a",
    "ab , b...c -> a...c": "float[N, M] a, float[M, 2, 3, K] b",
    "abc,abd,dc->abc": "float[N, 2, M] a, float[N, 2, K] b, float[K, M] c",
}


@pytest.mark.parametrize("equation", EINSUMS)
def test_einsum(equation):
    names = ", ".join("abc"[: EINSUMS[equation].count("float")])
    agree(parse(f'({EINSUMS[equation]}) => (y) {{ y = Einsum<equation = "{equation}">({names}) }}'))


@pytest.mark.parametrize(
    ("equation", "reason"),
    [
        ("ij->ij", "the equation 'ij->ij' of 2 operands"),
        ("i.,j->i", "the equation 'i.,j->i' of 2 operands"),
        ("ij,ij->ik", "the equation 'ij,ij->ik' has no such result"),
        ("ij,ij->ii", "the equation 'ij,ij->ii' has no such result"),
        ("i,ij->i", r"'i' for float32\[N, 2\]"),
        ("ijk,ij->i", r"'ijk' for float32\[N, 2\]"),
    ],
)
def test_equations_that_are_none(equation, reason):
    graph = f'(float[N, 2] a) => (y) {{ y = Einsum<equation = "{equation}">(a, a) }}'
    with pytest.raises(UnsupportedModelError, match=f"Einsum: {reason}"):
        from_onnx(parse(graph))


BY_REFERENCE = {
    "shifts": (28, "(int8[N, 3] x, int8[3] z) => (a, b) { m = Constant<value = int8 {40}>() "
               'y = Mul(x, m) a = BitShift<direction = "LEFT">(y, z) '
               'b = BitShift<direction = "RIGHT">(y, z) }'),
    "training": (15, "(float[N, 3, H] x, float[3] w, float[3] b, float[3] m, float[3] v) => "
                 "(y, a, c) { y, a, c = BatchNormalization"
                 "<training_mode = 1, momentum = 0.7, epsilon = 0.1>(x, w, b, m, v) }"),
    "space": (28, "(float[N, 3, 4, 6] x) => (a, b) { a = SpaceToDepth<blocksize = 2>(x) "
              'b = SpaceToDepth<blocksize = 2, mode = "CRD">(x) }'),
    "range": (27, "(int64 a, int64 b, int64 c) => (y) { two = Constant<value_int = 2>() "
              "d = Add(b, two) e = Add(c, two) y = Range<stash_type = 1>(a, d, e) }"),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_REFERENCE)
def test_converters_by_the_reference_of_onnx(name):
    """Where onnxruntime has no kernel."""
    model = parse(BY_REFERENCE[name][1], BY_REFERENCE[name][0])
    module = from_onnx(model)
    rng = np.random.default_rng(1)
    sizes = dict.fromkeys(module.main.symbols(), 4)
    inputs = {p.name: draw(rng, p, sizes) for p in module.main.params}
    wanted = ReferenceEvaluator(model).run(None, inputs)
    for want, got in zip(wanted, evaluate_module(module, **inputs), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


SELF = "(float[N, 6, M, 8] q, float[N, 6, K, 8] k, float[N, 6, K, 5] v"
SIDE = "(float[N, M, 48] q, float[N, K, 16] k, float[N, K, 10] v"
SHARED = "q_num_heads = 6, kv_num_heads = 2"
ATTENTION = {
    "heads": f"{SELF}) => (y) {{ y = Attention(q, k, v) }}",
    "scale": f"{SELF}) => (y) {{ y = Attention<scale = 0.25, softmax_precision = 1>(q, k, v) }}",
    "cap": f"{SELF}) => (y) {{ y = Attention<softcap = 2.0>(q, k, v) }}",
    "floats": f"{SELF}, float[N, 1, M, K] m) => (y) {{ y = Attention(q, k, v, m) }}",
    "of keys": f"{SELF}, float[M, K] m) => (y) {{ y = Attention(q, k, v, m) }}",
    "causal": f"{SELF}) => (y) {{ y = Attention<is_causal = 1>(q, k, v) }}",
    "side": f"{SIDE}) => (y) {{ y = Attention<{SHARED}>(q, k, v) }}",
    "side, equal": "(float[N, M, 8] q, float[N, K, 8] k, float[N, K, 6] v) => (y) "
    "{ y = Attention<q_num_heads = 2, kv_num_heads = 2>(q, k, v) }",
    "side, floats": f"{SIDE}, float[N, 1, M, K] m) => (y) "
    f"{{ y = Attention<{SHARED}>(q, k, v, m) }}",
    "side, each": f"{SIDE}, float[N, 6, M, K] m) => (y) {{ y = Attention<{SHARED}>(q, k, v, m) }}",
    "shared": "(float[N, 6, M, 8] q, float[N, 2, K, 8] k, float[N, 2, K, 8] v) => (y) "
    "{ y = Attention(q, k, v) }",
    "of elements that a run tells": "(float[N, 4, M, D] q, float[N, 4, K, D] k, "
    "float[N, 4, K, D] v) => (y) { y = Attention(q, k, v) }",
    "of heads that a run tells": "(float[N, H, M, D] q, float[N, H, K, D] k, "
    "float[N, H, K, D] v) => (y) { y = Attention<is_causal = 1>(q, k, v) }",
    "past": "(float[N, 2, M, 8] q, float[N, 2, M, 8] k, float[N, 2, M, 8] v, "
    "float[N, 2, P, 8] a, float[N, 2, P, 8] b) => (y, c, d) "
    "{ y, c, d = Attention(q, k, v, , a, b) }",
    "past of shared, in order": "(float[N, M, 48] q, float[N, M, 16] k, float[N, M, 16] v, "
    "float[N, 2, P, 8] a, float[N, 2, P, 8] b) => (y, c, d) "
    f"{{ y, c, d = Attention<is_causal = 1, {SHARED}>(q, k, v, , a, b) }}",
}


@pytest.mark.parametrize("name", ATTENTION)
def test_attention(name):
    agree(parse(ATTENTION[name], 23))


HIDING = {
    "truths": (23, f"{SELF}, bool[N, 6, M, K] m) => (y) {{ y = Attention(q, k, v, m) }}"),
    "truths, in order": (
        23,
        f"{SIDE}, bool[M, K] m) => (y) {{ y = Attention<{SHARED}, is_causal = 1>(q, k, v, m) }}",
    ),
    "lengths": (24, f"{SELF}, int64[N] n) => (y) {{ y = Attention(q, k, v, , , , n) }}"),
    "lengths, in order": (
        24,
        f"{SIDE}, int64[N] n) => (y) "
        f"{{ y = Attention<{SHARED}, is_causal = 1>(q, k, v, , , , n) }}",
    ),
    "half": (
        23,
        "(float16[N, 2, M, 8] q, float16[N, 2, K, 8] k, float16[N, 2, K, 8] v) => (y) "
        "{ y = Attention<softmax_precision = 1>(q, k, v) }",
    ),
}


@pytest.mark.parametrize("name", HIDING)
def test_attention_that_hides_rows_whole_by_the_reference_of_onnx(name):
    """Where onnxruntime makes other numbers of such rows, or does not take them."""
    model = parse(HIDING[name][1], HIDING[name][0])
    module, rng = from_onnx(model), np.random.default_rng(0)
    for sizes in ({"N": 1, "M": 1, "K": 1}, {"N": 3, "M": 5, "K": 4}):
        inputs = {p.name: draw(rng, p, sizes) for p in module.main.params}
        if "m" in inputs:
            inputs["m"][..., 0, :] = False
        want = ReferenceEvaluator(model).run(None, inputs)
        got = evaluate_module(module, *inputs.values())
        tolerance = 1e-5 if want[0].dtype == np.float32 else 2e-3
        np.testing.assert_allclose(got[0], want[0], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (f"{SIDE}) => (y) {{ y = Attention(q, k, v) }}", "q_num_heads or kv_num_heads is left out"),
        (
            f"{SIDE}) => (y) {{ y = Attention<q_num_heads = 5, kv_num_heads = 2>(q, k, v) }}",
            "5 heads of Q cannot share 2 of K",
        ),
        (
            "(float[N, 4, M, 8] q, float[N, K, 8] k, float[N, K, 8] v) => (y) "
            "{ y = Attention(q, k, v) }",
            r"Q, K and V of ranks \[3, 4\], expected 3 or 4 of all",
        ),
        (
            f"{SIDE}, float[N, 3, M, K] m) => (y) {{ y = Attention<{SHARED}>(q, k, v, m) }}",
            "a mask of 3 heads beside 6 of Q",
        ),
    ],
)
def test_attention_that_is_not_supported(graph, reason):
    with pytest.raises(UnsupportedModelError, match=reason):
        from_onnx(parse(graph, 23))


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
    "average_pool_all": "AveragePool"
    "<kernel_shape = [2, 2], pads = [1, 1, 0, 0], count_include_pad = 1>(x)",
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_over_images(name):
    inputs = "float[N, 4, H, W] x, float[6, 4, 3, 2] w, float[4, 2, 3, 2] g, float[6] b"
    model = parse(f"({inputs}) => (y) {{ y = {WINDOWS[name]} }}")
    agree(model, {"N": 1, "H": 6, "W": 7}, {"N": 2, "H": 9, "W": 5})


@pytest.mark.parametrize(
    "attributes",
    [
        "kernel_shape = [2, 3], strides = [2, 1]",
        "kernel_shape = [3, 3], pads = [1, 1, 1, 1], dilations = [2, 1]",
        "kernel_shape = [3, 2], strides = [2, 2], ceil_mode = 1",
        "kernel_shape = [2, 2], storage_order = 1",
        'kernel_shape = [3, 3], strides = [2, 2], auto_pad = "SAME_LOWER"',
        "kernel_shape = [2], strides = [2], pads = [1, 0]",
    ],
)
def test_places_of_what_pooling_takes(attributes):
    image = "H, W" if "," in attributes.partition("]")[0] else "W"
    graph = f"(float[N, 3, {image}] x) => (y, i) {{ y, i = MaxPool<{attributes}>(x) }}"
    agree(parse(graph), *({"N": 2, "H": h, "W": w} for h, w in ((6, 7), (9, 5))))


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
