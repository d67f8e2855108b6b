"""Forms of older opsets: each computes what onnxruntime does for the same in today's form."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_model import draw, parse, run_ort

from bucketize.errors import UnsupportedModelError
from bucketize.interpret import evaluate_module
from bucketize.onnx import from_onnx
from bucketize.verify import verify

IMAGE = "float[N, 3, H, 4] x"
CHANNELS = "float[3] w, float[3] b, float[3] m, float[3] s"
RUNNING = "float[N, 3, H] x, " + CHANNELS
NORM = "BatchNormalization(x, w, b, m, v)"

# name: (opsets, the old graph, the same today)
CASES = {
    # broadcasting
    "add_suffix": ([1, 6], "(float[N, 3] x, float[3] z) => (y) { y = Add<broadcast = 1>(x, z) }",
                   "(float[N, 3] x, float[3] z) => (y) { y = Add(x, z) }"),
    "div_axis": ([1, 6], f"({IMAGE}, float[3] z) => (y) "
                 "{ y = Div<broadcast = 1, axis = 1>(x, z) }",
                 f"({IMAGE}, float[3] z) => (y) <int64[2] a = {{1, 2}}> "
                 "{ c = Unsqueeze(z, a) y = Div(x, c) }"),
    "pow_axes": ([1], f"({IMAGE}, float[3, H] z) => (y) "
                 "{ p = Exp(x) y = Pow<broadcast = 1, axis = -3>(p, z) }",
                 f"({IMAGE}, float[3, H] z) => (y) <int64[1] a = {{2}}> "
                 "{ p = Exp(x) c = Unsqueeze(z, a) y = Pow(p, c) }"),
    "and_axis": ([1], "(bool[N, 3] x, bool[N] z) => (y) { y = And<broadcast = 1, axis = 0>(x, z) }",
                 "(bool[N, 3] x, bool[N] z) => (y) <int64[1] a = {1}> "
                 "{ c = Unsqueeze(z, a) y = And(x, c) }"),
    "prelu_channels": ([1, 6], f"({IMAGE}, float[3] z) => (y) {{ y = PRelu(x, z) }}",
                       f"({IMAGE}, float[3] z) => (y) <int64[2] a = {{1, 2}}> "
                       "{ c = Unsqueeze(z, a) y = PRelu(x, c) }"),
    "prelu_one": ([6], f"({IMAGE}, float[1] z) => (y) {{ y = PRelu(x, z) }}",
                  f"({IMAGE}, float[1] z) => (y) {{ y = PRelu(x, z) }}"),
    "gemm": ([1, 6], "(float[N, 3] x, float[3, M] z, float[M] c) => (y) "
             "{ y = Gemm<broadcast = 1, beta = 0.5>(x, z, c) }",
             "(float[N, 3] x, float[3, M] z, float[M] c) => (y) { y = Gemm<beta = 0.5>(x, z, c) }"),
    # attributes that became operands
    "clip": ([1, 6, 10], "(float[N] x) => (y) { y = Clip<min = -0.5, max = 0.5>(x) }",
             "(float[N] x) => (y) <float a = {-0.5}, float b = {0.5}> { y = Clip(x, a, b) }"),
    "clip_above": ([1, 6], "(float[N] x) => (y) { y = Clip<max = 0.5>(x) }",
                   "(float[N] x) => (y) <float b = {0.5}> { y = Clip(x, , b) }"),
    "clip_nothing": ([6], "(float[N] x) => (y) { y = Clip(x) }",
                     "(float[N] x) => (y) { y = Identity(x) }"),
    "paddings": ([1], '(float[N, 4] x) => (y) '
                 '{ y = Pad<paddings = [0, 1, 0, 2], mode = "reflect">(x) }',
                 '(float[N, 4] x) => (y) <int64[4] p = {0, 1, 0, 2}> '
                 '{ y = Pad<mode = "reflect">(x, p) }'),
    "pads": ([2, 10], "(float[N, 2] x) => (y) { y = Pad<pads = [1, 0, 2, 1], value = 7.0>(x) }",
             "(float[N, 2] x) => (y) <int64[4] p = {1, 0, 2, 1}, float v = {7}> "
             "{ y = Pad(x, p, v) }"),
    "reduce_sum": ([1, 11], f"({IMAGE}) => (y, z) "
                   "{ y = ReduceSum<axes = [1, 3], keepdims = 0>(x) z = ReduceSum(x) }",
                   f"({IMAGE}) => (y, z) <int64[2] a = {{1, 3}}> "
                   "{ y = ReduceSum<keepdims = 0>(x, a) z = ReduceSum(x) }"),
    "reduce_max": ([1, 11, 13], f"({IMAGE}) => (y) {{ y = ReduceMax<axes = [2]>(x) }}",
                   f"({IMAGE}) => (y) {{ y = ReduceMax<axes = [2]>(x) }}"),
    "reduce_log_sum_exp": ([1, 17, 18], f"({IMAGE}) => (y) {{ y = ReduceLogSumExp(x) }}",
                           f"({IMAGE}) => (y) {{ y = ReduceLogSumExp(x) }}"),
    "reshape": ([1], "(float[N, 2, 6] x) => (y) { y = Reshape<shape = [0, -1, 3]>(x) }",
                "(float[N, 2, 6] x) => (y) <int64[3] s = {0, -1, 3}> { y = Reshape(x, s) }"),
    "slice": ([1, 9], f"({IMAGE}) => (y) "
              "{ y = Slice<axes = [3, 1], starts = [-3, 0], ends = [9, -1]>(x) }",
              f"({IMAGE}) => (y) <int64[2] b = {{-3, 0}}, int64[2] e = {{9, -1}}, "
              "int64[2] a = {3, 1}> { y = Slice(x, b, e, a) }"),
    "slice_front": ([1, 9], f"({IMAGE}) => (y) {{ y = Slice<starts = [1], ends = [9]>(x) }}",
                    f"({IMAGE}) => (y) <int64[1] b = {{1}}, int64[1] e = {{9}}> "
                    "{ y = Slice(x, b, e) }"),
    "split": ([1, 2, 11], "(float[N, 6] x) => (a, b) { a, b = Split<axis = 1, split = [2, 4]>(x) }",
              "(float[N, 6] x) => (a, b) <int64[2] s = {2, 4}> { a, b = Split<axis = 1>(x, s) }"),
    "split_even": ([1, 11], "(float[N, 6] x) => (a, b) { a, b = Split<axis = 1>(x) }",
                   "(float[N, 6] x) => (a, b) { a, b = Split<axis = 1>(x) }"),
    "squeeze": ([1, 11], "(float[N, 1, 4, 1] x) => (y) { y = Squeeze<axes = [1, 3]>(x) }",
                "(float[N, 1, 4, 1] x) => (y) <int64[2] a = {1, -1}> { y = Squeeze(x, a) }"),
    "squeeze_all": ([1, 11], "(float[1, 4, 1] x) => (y) { y = Squeeze(x) }",
                    "(float[1, 4, 1] x) => (y) { y = Squeeze(x) }"),
    "unsqueeze": ([1, 11], "(float[N, 4] x) => (y) { y = Unsqueeze<axes = [2, 0]>(x) }",
                  "(float[N, 4] x) => (y) <int64[2] a = {2, 0}> { y = Unsqueeze(x, a) }"),
    "topk": ([1], "(float[N, 5] x) => (v, i) { v, i = TopK<axis = 1, k = 2>(x) }",
             "(float[N, 5] x) => (v, i) <int64[1] k = {2}> { v, i = TopK<axis = 1>(x, k) }"),
    "topk_10": ([10], "(float[N, 5] x) => (v, i) <int64[1] k = {2}> { v, i = TopK(x, k) }",
                "(float[N, 5] x) => (v, i) <int64[1] k = {2}> { v, i = TopK<axis = 1>(x, k) }"),
    "tile": ([1], "(float[N, 2] x) => (y) <float t = {3}, float a = {1}> { y = Tile(x, t, a) }",
             "(float[N, 2] x) => (y) <int64[2] r = {1, 3}> { y = Tile(x, r) }"),
    # other meanings
    "softmax": ([1, 11], f"({IMAGE}) => (y, z) {{ y = Softmax(x) z = LogSoftmax<axis = 2>(x) }}",
                f"({IMAGE}) => (y, z) <int64[4] s = {{0, 0, 0, -1}}, int64[3] t = {{0, 0, -1}}> "
                "{ f = Flatten(x) g = Softmax(f) s4 = Shape(x) y = Reshape(g, s4) "
                "h = Reshape(x, t) l = LogSoftmax(h) z = Reshape(l, s4) }"),
    "hardmax": ([1, 11], f"({IMAGE}) => (y) {{ y = Hardmax(x) }}",
                f"({IMAGE}) => (y) {{ f = Flatten(x) g = Hardmax(f) s = Shape(x) "
                "y = Reshape(g, s) }"),
    "softmax_last": ([1, 11], f"({IMAGE}) => (y) {{ y = Softmax<axis = 3>(x) }}",
                     f"({IMAGE}) => (y) {{ y = Softmax(x) }}"),
    "cast": ([1], '(float[N] x) => (y) { y = Cast<to = "INT64">(x) }',
             "(float[N] x) => (y) { y = Cast<to = 7>(x) }"),
    "concat": ([1], "(float[N, 2] x, float[N, 3] z) => (y) { y = Concat(x, z) }",
               "(float[N, 2] x, float[N, 3] z) => (y) { y = Concat<axis = 1>(x, z) }"),
    "selu": ([1], "(float[N] x) => (y) { y = Selu(x) }",
             "(float[N] x) => (y) { y = Selu<alpha = 1.6732, gamma = 1.0507>(x) }"),
    "consumed": ([1], "(float[N] x) => (y) { y = Relu<consumed_inputs = [0]>(x) }",
                 "(float[N] x) => (y) { y = Relu(x) }"),
    "dropout_tested": ([1, 6], "(float[N] x) => (y) { y = Dropout<is_test = 1, ratio = 0.3>(x) }",
                       "(float[N] x) => (y) { y = Identity(x) }"),
    "dropout_mask": ([7], "(float[N] x) => (y, m) { y, m = Dropout<ratio = 0.3>(x) }",
                     "(float[N] x) => (y, m) { y = Identity(x) s = Shape(x) "
                     "m = ConstantOfShape<value = float[1] {1}>(s) }"),
    "dropout_truths": ([10], "(float[N] x) => (y, m) { y, m = Dropout<ratio = 0.3>(x) }",
                       "(float[N] x) => (y, m) { y = Identity(x) s = Shape(x) "
                       "m = ConstantOfShape<value = bool[1] {1}>(s) }"),
    "norm_tested": ([6], f"({RUNNING}) => (y) {{ v = Exp(s) "
                    "y = BatchNormalization<is_test = 1, spatial = 1>(x, w, b, m, v) }",
                    f"({RUNNING}) => (y) {{ v = Exp(s) y = {NORM} }}"),
    "norm_consumed": ([1], f"({RUNNING}) => (y) {{ v = Exp(s) y = BatchNormalization"
                      "<is_test = 1, consumed_inputs = [0, 0, 0, 1, 1]>(x, w, b, m, v) }",
                    f"({RUNNING}) => (y) {{ v = Exp(s) y = {NORM} }}"),
    "norm": ([7, 9, 14], f"({RUNNING}) => (y) {{ v = Exp(s) y = {NORM} }}",
             f"({RUNNING}) => (y) {{ v = Exp(s) y = {NORM} }}"),
    "norm_elements": ([7], "(float[N, 3, 2] x, float[3, 2] w, float[3, 2] b, float[3, 2] m, "
                      "float[3, 2] s) => (y) { v = Exp(s) "
                      "y = BatchNormalization<spatial = 0>(x, w, b, m, v) }",
                      "(float[N, 3, 2] x, float[3, 2] w, float[3, 2] b, float[3, 2] m, "
                      "float[3, 2] s) => (y) <float e = {1e-5}> { v = Exp(s) t = Add(v, e) "
                      "r = Sqrt(t) c = Sub(x, m) d = Div(c, r) f = Mul(d, w) y = Add(f, b) }"),
    "norm_trained": ([7, 9, 13], f"({RUNNING}) => (y) {{ v = Exp(s) "
                     "y, a, c, d, e = BatchNormalization(x, w, b, m, v) }",
                     f"({RUNNING}) => (y) {{ v = Exp(s) "
                     "y, a, c = BatchNormalization<training_mode = 1>(x, w, b, m, v) }"),
    "norm_tested_all": ([6], f"({RUNNING}) => (y) {{ v = Exp(s) "
                        "y, a, c, d, e = BatchNormalization<is_test = 1>(x, w, b, m, v) }",
                        f"({RUNNING}) => (y) {{ v = Exp(s) y = {NORM} }}"),
    "lstm": ([1, 6], "(float[T, N, 3] x, float[1, 8, 3] w, float[1, 8, 2] r) => (y, h) "
             "{ y, h = LSTM<hidden_size = 2, output_sequence = 1>(x, w, r) }",
             "(float[T, N, 3] x, float[1, 8, 3] w, float[1, 8, 2] r) => (y, h) "
             "{ y, h = LSTM<hidden_size = 2>(x, w, r) }"),
    "reshape_cast": ([6], "(float[N, 6] x) => (y) <float[3] f = {0, 2, -1}> "
                     "{ s = Cast<to = 7>(f) y = Reshape(x, s) }",
                     "(float[N, 6] x) => (y) <int64[3] s = {0, 2, -1}> { y = Reshape(x, s) }"),
    "scatter": ([9], "(float[N, 4] x, float[N, 1] u, int64[N, 1] i) => (y) "
                "{ y = Scatter<axis = 1>(x, i, u) }",
                "(float[N, 4] x, float[N, 1] u, int64[N, 1] i) => (y) "
                "{ y = ScatterElements<axis = 1>(x, i, u) }"),
    "upsample_1": ([1], "(float[N, 2, H, 3] x) => (y) "
                   "{ y = Upsample<height_scale = 2.0, width_scale = 3.0>(x) }",
                   "(float[N, 2, H, 3] x) => (y) <float[4] s = {1, 1, 2, 3}> "
                   '{ y = Resize<coordinate_transformation_mode = "asymmetric", '
                   'nearest_mode = "floor">(x, , s) }'),
    "upsample_7": ([7, 8], "(float[N, 2, H, 3] x) => (y) "
                   "{ y = Upsample<scales = [1.0, 1.0, 2.0, 1.5]>(x) }",
                   "(float[N, 2, H, 3] x) => (y) <float[4] s = {1, 1, 2, 1.5}> "
                   '{ y = Resize<coordinate_transformation_mode = "asymmetric", '
                   'nearest_mode = "floor">(x, , s) }'),
    "upsample_9": ([9], "(float[N, 2, H, 3] x) => (y) <float[4] s = {1, 1, 3, 1}> "
                   "{ y = Upsample(x, s) }",
                   "(float[N, 2, H, 3] x) => (y) <float[4] s = {1, 1, 3, 1}> "
                   '{ y = Resize<coordinate_transformation_mode = "asymmetric", '
                   'nearest_mode = "floor">(x, , s) }'),
    "upsample_linear": ([9], "(float[N, 2, H, 3] x) => (y) <float[4] s = {1, 1, 1.5, 2}> "
                        '{ y = Upsample<mode = "linear">(x, s) }',
                        "(float[N, 2, H, 3] x) => (y) <float[4] s = {1, 1, 1.5, 2}> "
                        '{ y = Resize<coordinate_transformation_mode = "asymmetric", '
                        'mode = "linear">(x, , s) }'),
    "resize_10": ([10], "(float[N, 2, H, 3] x) => (y) <float[4] s = {1, 1, 0.7, 0.6}> "
                  "{ y = Resize(x, s) }",
                  "(float[N, 2, H, 3] x) => (y) <float[4] s = {1, 1, 0.7, 0.6}> "
                  '{ y = Resize<coordinate_transformation_mode = "asymmetric", '
                  'nearest_mode = "ceil">(x, , s) }'),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_old_forms(name):
    opsets, old, today = CASES[name]
    for opset in opsets:
        module = from_onnx(parse(old, opset))
        verify(module)
        sizes = {s: 2 + i for i, s in enumerate(module.main.symbols())}
        rng = np.random.default_rng(opset)
        inputs = {p.name: draw(rng, p, sizes) for p in module.main.params}
        wanted = run_ort(parse(today), inputs)
        for want, got in zip(wanted, evaluate_module(module, **inputs), strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_a_model_without_operator_sets_is_of_the_first():
    model = parse("(float[N] x) => (y) { y = Clip<max = 0.5>(x) }", 1)
    del model.opset_import[:]
    with pytest.raises(UnsupportedModelError, match="the model holds no ONNX graph"):
        from_onnx(model)
    model.ir_version = 2
    np.testing.assert_array_equal(evaluate_module(from_onnx(model), np.float32([0, 1])), [[0, 0.5]])


REFUSED = {
    "dropout": (6, "(float[N] x) => (y) { y = Dropout(x) }",
                "Dropout: is_test is 0: training is not supported"),
    "norm": (6, f"({RUNNING}) => (y) {{ v = Exp(s) y = {NORM} }}",
             "BatchNormalization: is_test is 0: training is not supported"),
    "statistics": (9, f"({RUNNING}) => (y, a) {{ v = Exp(s) y, a, c, d, e = {NORM} }}",
                   "BatchNormalization: output 1 is used"),
    "axis": (6, "(float[N, 3] x, float[2, 3] z) => (y) { y = Add<broadcast = 1, axis = 1>(x, z) }",
             r"Add: axis 1 leaves too little of float32\[N, 3\] for float32\[2, 3\]"),
    "cast": (1, '(float[N] x) => (y) { y = Cast<to = "int9">(x) }',
             "Cast: no data type is named 'int9'"),
    "later": (10, "(float[N, 2, H, 3] x, float[4] s) => (y) { y = Upsample(x, s) }",
              "Upsample: not valid: Op registered for Upsample is deprecated"),
    "tried": (7, "(float[N] x) => (y) { y = ImageScaler<scale = 2.0>(x) }",
              "ai.onnx 7 ImageScaler: no converter for this operator"),
    "filled": (8, "(int64[2] x) => (y) { y = ConstantFill<input_as_shape = 1>(x) }",
               "ai.onnx 8 ConstantFill: no converter for this operator"),
    "sooner": (8, "(float[N] x) => (y) { y = IsNaN(x) }",
               "ai.onnx 8 IsNaN: new in opset 9, but the model has 8"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_old_forms_that_are_not_supported(name):
    opset, graph, reason = REFUSED[name]
    with pytest.raises(UnsupportedModelError, match=reason):
        from_onnx(parse(graph, opset))
