"""The ONNX front end: symbols and bounds, what stays dynamic, the zoo, and every message."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from onnx_model import agree, parse, run_ort

from bucketize import compile, dispatch, zoo
from bucketize.errors import (
    ArgumentError,
    BucketizeError,
    TypeRelError,
    UnknownNameError,
    UnsupportedModelError,
)
from bucketize.interpret import evaluate_module
from bucketize.ir import Const
from bucketize.onnx import from_onnx
from bucketize.onnx.load import OPSETS
from bucketize.onnx.node import CONVERTERS
from bucketize.onnx.standard import first_version
from bucketize.transform.simplify import simplify
from bucketize.types import Symbol, evaluate
from dispatchers import log_dispatcher


def ops_of(module):
    return [b.op.name for b in module.main.body]


# --- types ---------------------------------------------------------------------------------------


def test_dim_names_become_symbols_with_bounds():
    model = parse("(float[N, ?, 3] x, float[N, K] z) => (y) { y = Shape(x) }")
    main = from_onnx(model, bounds={"N": (2, 8), "x_1": (4, 4)}).main
    n = Symbol("N", 2, 8)
    assert [p.type.shape for p in main.params] == [(n, 4, 3), (n, Symbol("K", 0))]
    assert main.body[0].out.type.value == (n, 4, 3)


def test_a_dim_without_a_name_gets_one_of_its_own():
    model = parse("(float[x_1, ?] x, float[?] z) => (y) { y = Identity(x) }")
    assert list(from_onnx(model).main.symbols()) == ["x_1", "x_1_", "z_0"]
    (_, first), (second,) = (i.type.tensor_type.shape.dim for i in model.graph.input)
    second.dim_value = -1
    assert list(from_onnx(model).main.symbols()) == ["x_1", "x_1_", "z_0"]
    first.dim_param = second.dim_param = "?"  # as paddle2onnx writes it
    assert list(from_onnx(model).main.symbols()) == ["x_1", "x_1_", "z_0"]


def test_convolutions_are_as_precise_as_was_asked():
    graph = "(float[N, 2, 9, 9] x) => (y) <float[3, 2, 3, 3] w = {%s}> { y = Conv(x, w) }"
    model = parse(graph % ", ".join(map(str, range(54))))
    for precision in ("default", "exact"):
        assert from_onnx(model, precision=precision).main.body[0].attrs["precision"] == precision
    with pytest.raises(UnknownNameError, match="no precision named 'high'; known: default, exact"):
        from_onnx(model, precision="high")


def test_odd_names_become_names_that_can_be_written():
    model = parse("(float[a_b, A, B, C, D, D] x) => (y) { y = Identity(x) }")
    dims = model.graph.input[0].type.tensor_type.shape.dim
    for dim, name in zip(dims[1:], ["2*H // 3", "max", "a b", "a b", "7"], strict=True):
        dim.dim_param = name
    sizes = dict(zip(["a_b", "_2_H_3", "max_", "a_b_", "_7"], [2, 3, 4, 5, 6], strict=True))
    assert list(agree(model, sizes).main.symbols()) == list(sizes)


CHAIN = """
    (float[N, 2, 6] x) => (y) <int64[1] i = {0}, int64[1] t = {12}>
    { s = Shape(x) n = Gather(s, i) t2 = Concat<axis = 0>(n, t) y = Reshape(x, t2) }
"""


def test_shape_chains_end_as_dims_and_keep_their_dyn_ops():
    module = from_onnx(parse(CHAIN))
    assert ops_of(module) == ["shape_of", "gather", "concat", "dyn.reshape"]
    assert str(module.main.results[0].type) == "float32[N, 12]"


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


# --- the zoo -------------------------------------------------------------------------------------

SIZES = {
    "mlp": ({"N": 1}, {"N": 17}),
    "resnet18": ({"N": 1, "H": 32, "W": 40}, {"N": 2, "H": 65, "W": 33}),
    "resnet34": ({"N": 1, "H": 32, "W": 40},),
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


# --- messages ------------------------------------------------------------------------------------


def fails(model, match, error=UnsupportedModelError, **options):
    with pytest.raises(error, match=match) as e:
        from_onnx(model, **options)
    return e.value


def test_all_unsupported_nodes_in_one_error():
    model = parse(
        "(float[N, 3, 8, 8] x, float[4, 3, 3, 3] w, float[N] v, seq(float[N]) q)"
        " => (y, d, b, e, k) {"
        " [first] a = TfIdfVectorizer(x) [second] b = TfIdfVectorizer(a)"
        " [pool] c = StringNormalizer(x)"
        " [act] e = acme.Gate(c) [at] y, m, o = BatchNormalization(x, v, v, v, v) k = Neg(m)"
        " [s] d = Softmax<axis = 9>(x) }"
    )
    del model.graph.input[3]
    model.opset_import.append(helper.make_opsetid("acme", 1))
    error = fails(model, "^6 nodes of the model cannot be converted:")
    assert str(error).splitlines()[1:] == [
        "  2 x ai.onnx 17 TfIdfVectorizer: no converter for this operator (first, second)",
        "  1 x ai.onnx 17 StringNormalizer: no converter for this operator (pool)",
        "  1 x acme 1 Gate: no converter for this operator (act)",
        "  1 x ai.onnx 17 BatchNormalization: output 1 is used (at)",
        "  1 x ai.onnx 17 Softmax: axis 9 is out of range for rank 4 (s)",
    ]


UNUSED = {
    "a node": "u = TfIdfVectorizer(x)",
    "a node of another domain": "u = acme.Gate(x)",
    "a node that is not valid": "u = Add(x)",
    "what another unused one reads": "u = acme.Gate(x) v = Relu(u)",
    "a call of a function": "u = my.old(x)",
    "a node that reads what nobody makes": "u = Relu(nothing)",
}


@pytest.mark.parametrize("name", UNUSED)
def test_what_nothing_uses_keeps_nobody_from_a_model(name: str) -> None:
    """In the model, in a branch, and in a function."""
    functions = (
        '<domain: "my", opset_import: ["" : 17, "acme" : 1]>'
        f" f (x) => (y) {{ y = Relu(x) {UNUSED[name]} }}"
        '<domain: "my", opset_import: ["" : 99]> old (a) => (b) { b = Relu(a) b = Relu(a) }'
    )
    branches = (
        "c = Cast<to = 9>(n) z = If(c) <then_branch = t () => (a) {"
        f" a = Neg(x) {UNUSED[name]} }}, else_branch = e () => (b) {{ b = Exp(x) }}>"
    )
    head = '<ir_version: 10, opset_import: ["" : 17, "my" : 1, "acme" : 1]>'
    graph = f"g (float[N] x, int64 n) => (y, z) {{ {branches} {UNUSED[name]} y = my.f(x) }}"
    model = parser.parse_model(f"{head} {graph} {functions}")
    x = np.float32([-1, 2])
    for n, z in ((1, -x), (0, np.exp(x))):
        got = evaluate_module(from_onnx(model), x, np.array(n))
        np.testing.assert_allclose(got, [np.maximum(x, 0), z], rtol=1e-6)


def test_what_no_node_reads_keeps_nobody_from_a_model() -> None:
    model = parse("(float[N] x) => (y) { y = Relu(x) }")
    held = model.graph.initializer
    held.append(helper.make_tensor("words", TensorProto.STRING, [1], [b"a"]))
    held.append(
        helper.make_tensor("cut", TensorProto.FLOAT, [1], np.float32([1]).tobytes(), raw=True)
    )
    held[1].dims[0] = 3
    model.graph.sparse_initializer.add().values.name = "sparse"
    assert len(from_onnx(model).main.body) == 1
    model.graph.node[0].input[:] = ["words"]
    fails(model, "initializer 'words': the data type STRING is not supported")


def test_unsupported_nodes_inside_branches_are_listed_too():
    model = parse(
        "(float[N] x) => (y) { c = TfIdfVectorizer(x) y = If(c)"
        " <then_branch = t () => (a) { a = TfIdfVectorizer(x) },"
        " else_branch = e () => (b) { b = Relu(x) }> }"
    )
    fails(model, r"2 x ai.onnx 17 TfIdfVectorizer: no converter for this operator \(c, a\)")
    model.graph.node[0].op_type = "IsNaN"
    fails(
        model,
        r"^1 node of the model cannot be converted:\n  1 x ai.onnx 17 TfIdfVectorizer: .* \(a\)$",
    )


REASONS = {
    "attribute": ("(float[N, 2] x, bool c) => (y) { y = If <then_branch = 1, else_branch = "
                  "g () => (z) { z = Neg(x) }> (c) }",
                  "If: the attribute then_branch has another type than GRAPH"),
    "dtype": ("(int64[N] x) => (y) { y = IsInf(x) }",
              r"IsInf: input 0 is int64\[N\], which ONNX does not allow there"),
    "no_vector": ("(float[N] x) => (y) <int64[1, 1] b = {0}, int64 e = {1}> "
                  "{ y = Slice(x, b, e) }",
                  r"Slice: input 1 is int64\[1, 1\], expected a vector"),
    "values": ("(float[N] x) => (y) <int64[1] s = {2}> "
               "{ y = ConstantOfShape<value = float[2] {1, 2}>(s) }",
               "ConstantOfShape: value has 2 elements, expected one"),
    "pool_4d": ("(float[N, 2, 4, 4, 4, 4] x) => (y) "
                "{ y = MaxPool<kernel_shape = [2, 2, 2, 2]>(x) }",
                "MaxPool: a window over 4 axes, expected 1, 2 or 3"),
    "value": ("(float[N] x, float[2] v) => (y) <int64[2] p = {1, 1}> { y = Pad(x, p, v) }",
              r"Pad: input 2 is float32\[2\], expected one element"),
    "pad_mode": ('(float[N] x, int64[2] p) => (y) { y = Pad<mode = "empty">(x, p) }',
                 "Pad: mode is 'empty', known: constant, edge, reflect"),
    "pad_wrap": ('(float[N] x, int64[2] p) => (y) { y = Pad<mode = "wrap">(x, p) }',
                 "Pad: mode is 'wrap', known: constant, edge, reflect"),
    "auto_pad": ('(float[N, 2, W] x) => (y) { y = MaxPool<auto_pad = "F", kernel_shape = [1]>(x) }',
                 "MaxPool: auto_pad is 'F', known: NOTSET, VALID, SAME_UPPER, SAME_LOWER"),
    "depth": ('(float[N, 4, H, W] x) => (y) { y = DepthToSpace<blocksize = 2, mode = "RCD">(x) }',
              "DepthToSpace: mode is 'RCD', known: DCR, CRD"),
    "shift": ('(uint8[N] x) => (y) { y = BitShift<direction = "UP">(x, x) }',
              "BitShift: direction is 'UP', known: LEFT, RIGHT"),
    "response": ("(float[N, 2, H, W] x) => (y) { y = LRN<size = 0>(x) }", "LRN: size is 0"),
    "norm": ("(float[N] x) => (y) { y = LpNormalization<p = 3>(x) }",
             "LpNormalization: p is 3, expected 1 or 2"),
    "celu": ("(float[N] x) => (y) { y = Celu<alpha = 0.0>(x) }", "Celu: alpha is 0"),
    "blocks": ("(float[N, 4, H, W] x) => (y) { y = DepthToSpace<blocksize = 0>(x) }",
               "DepthToSpace: blocksize is 0, expected 1 or more"),
    "negative": ("(float[N, 4, H, W] x) => (y) { y = SpaceToDepth<blocksize = -1>(x) }",
                 "SpaceToDepth: blocksize is -1, expected 1 or more"),
    "rank": ("(float[N, 4, H] x) => (y) { y = SpaceToDepth<blocksize = 2>(x) }",
             r"SpaceToDepth: blocks of float32\[N, 4, H\], which must have rank 4"),
    "branch": ("(float[N] x, bool c) => (y) "
               "{ y = If(c)<then_branch = t () => (a) { a = Neg(x) }> }",
               "If: not valid: the attribute else_branch is left out"),
    "ends": ("(float[N] x, float[2] a) => (y) { y = Range(a, a, a) }",
             r"Range: input 0 is float32\[2\], expected one element"),
    "lone_row": ("(float[N] x) => (y) { y = Trilu(x) }",
                 r"Trilu: a triangle of float32\[N\], which must have rank 2 or more"),
    "image": ('(float[N, C, H] x) => (y) { y = MaxPool<kernel_shape = [1, 1]>(x) }',
              "MaxPool: a window over 2 axes of .*, expected rank 4"),
    "complex": ("(float[N] x) => (y) { y = Cast<to = 14>(x) }",
                "Cast: the data type COMPLEX64 is not supported"),
    "no_type": ("(float[N] x) => (y) { y = Cast<to = 99>(x) }",
                "Cast: the data type 99 is not supported"),
    "inf": ("(float[N] x) => (y) { y = IsInf<detect_negative = 0, detect_positive = 0>(x) }",
            "IsInf: detect_negative and detect_positive are both 0"),
    "strings": ('(float[N] x) => (y) { y = Constant<value_string = "a">() }',
                "Constant: the attribute value_string is not supported"),
    "constant": ("(float[N] x) => (y) { y = Constant<value = complex64 {1, 2}>() }",
                 "Constant: the data type COMPLEX64 is not supported"),
    "new": ("(float[N] x) => (y) { y = Gelu(x) }", "Gelu: new in opset 20, but the model has 17"),
    "not_valid": ("(float[N] x) => (y) { y = Relu<slope = 1.0>(x) }",
                  "Relu: not valid: Unrecognized attribute: slope for operator Relu"),
}  # fmt: skip


@pytest.mark.parametrize("name", REASONS)
def test_why_a_node_is_not_supported(name):
    graph, reason = REASONS[name]
    fails(parse(graph), reason)


WINDOWS = {
    "Conv<kernel_shape = [5, 5]>(x, w)": r"kernel_shape is \(5, 5\), the weights are float32\[",
    "Conv<strides = [0, 1]>(x, w)": r"strides must be 2 numbers from 1 up, got \(0, 1\)",
    "Conv<dilations = [1]>(x, w)": r"dilations must be 2 numbers from 1 up, got \(1,\)",
    "Conv<pads = [1, 1]>(x, w)": r"pads must be 4 numbers from 0 up, got \(1, 1\)",
    "MaxPool<kernel_shape = [0, 1]>(x)": "kernel_shape must be 2 numbers from 1 up",
    "MaxPool<kernel_shape = [1, 1], pads = [0, 0, 0, -1]>(x)": "pads must be 4 numbers from 0 up",
    "AveragePool<kernel_shape = [1, 1], strides = [1]>(x)": "strides must be 2 numbers from 1 up",
}


@pytest.mark.parametrize("node", WINDOWS)
def test_windows_that_cannot_slide_are_refused(node):
    graph = f"(float[N, 4, H, W] x, float[6, 4, 3, 2] w) => (y) {{ y = {node} }}"
    fails(parse(graph), f"{node.partition('<')[0]}: {WINDOWS[node]}")


def test_groups_that_do_not_share_the_channels_are_refused():
    graph = "(float[N, 4, H, W] x, float[6, 4, 3, 2] w) => (y) { y = Conv<group = %d>(x, w) }"
    for group in (0, -1, 3):
        error = fails(parse(graph % group), "groups|extents differ", TypeRelError)
        assert error.notes[-1] == "from ONNX node 'y' (Conv)"


RANGE = "(float[N] x) => (y) <%s a = {%s}, %s b = {%s}, %s c = {%s}> { y = Range(a, b, c) }"


def a_range(dtype, *ends):
    return parse(RANGE % tuple(part for end in ends for part in (dtype, end)))


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        ("(float[N, 3] x, float[3] lo) => (y) { y = Clip(x, lo) }", "min is one number, got float"),
        ("(float[N] x, float[1, 1] hi) => (y) { y = Clip(x, , hi) }", "max is one number, got fl"),
        (
            "(float[N, 2, 3] x, float[3, 4] w) => (y) { y = Gemm(x, w) }",
            "A is float32[N, 2, 3], ex",
        ),
        ("(float[2, 3] x, float[3] w) => (y) { y = Gemm(x, w) }", "B is float32[3], expected a ma"),
        (
            "(float[N, 3] x, int64[N] t) => (y) "
            '{ y = NegativeLogLikelihoodLoss<reduction = "men">(x, t) }',
            "reduction is 'men', known: mean, sum, none",
        ),
        (
            "(float[N, 3] x, int64[N] t) => (y) "
            '{ y = SoftmaxCrossEntropyLoss<reduction = "">(x, t) }',
            "reduction is '', known: mean, sum, none",
        ),
    ],
)
def test_operands_and_words_that_the_standard_does_not_allow_are_refused(graph, reason):
    with pytest.raises(UnsupportedModelError, match=re.escape(reason)):
        from_onnx(parse(graph))


@pytest.mark.parametrize("given", ["float[1] lo", "float[M] lo", "float lo"])
def test_a_bound_of_clip_may_stand_in_a_vector(given):
    for shape in ("[N]", ""):
        mod = from_onnx(parse(f"(float{shape} x, {given}) => (y) {{ y = Clip(x, lo) }}"))
        x = np.array([-1, 2], "f4") if shape else np.array(-1, "f4")
        lo = np.array(0, "f4") if given == "float lo" else np.array([0], "f4")
        for (y,) in (evaluate_module(mod, x=x, lo=lo), compile(mod).run(x=x, lo=lo)):
            np.testing.assert_array_equal(y, np.maximum(x, 0))


def test_ranges_without_end_are_refused():
    model = a_range("int64", -(2**63), 2**63 - 1, 1)
    fails(model, "elements from .*: no axis is that long", TypeRelError)
    error = fails(a_range("float", 0, 1, 0), "no number of steps of 0.0", TypeRelError)
    assert error.notes[-1] == "from ONNX node 'y' (Range)"


def test_a_range_too_large_to_be_held_is_left_to_run_time():
    for model in (a_range("float", 0, "1e12", 1), a_range("int64", 0, 10**12, 1)):
        assert simplify(from_onnx(model).main).body


def test_split_makes_as_many_parts_as_there_are_outputs():
    for count in (0, -1, 2**40):
        model = parse(f"(float[N] x) => (y) {{ y = Split<num_outputs = {count}>(x) }}", 18)
        fails(model, f"Split: num_outputs is {count}, there are 1")


def test_an_attribute_that_is_no_text():
    model = parse('(float[N] x, int64[2] p) => (y) { y = Pad<mode = "edge">(x, p) }')
    model.graph.node[0].attribute[0].s = b"\xff"
    fails(model, r"Pad: the attribute value b'\\xff' is no UTF-8 \(y\)")


def test_an_operand_that_is_left_out():
    model = parse("(float[N] x) => (y) { y = Max(x, x) }")
    model.graph.node[0].input[1] = ""
    fails(model, r"Max: input 1 is left out \(y\)")


def test_a_type_error_names_the_node():
    model = parse("(float[N, 2] x, float[3] z) => (y) { [sum] y = Add(x, z) }")
    error = fails(model, "extents differ: 2 and 3", TypeRelError)
    assert error.notes[-1] == "from ONNX node 'sum' (Add)"
    model.graph.node[0].name = ""
    error = fails(model, "extents differ", TypeRelError)
    assert error.notes[-1] == "from ONNX node 'y' (Add)"


NEGATIVE = {
    "Reshape(x, long)": r"int64\[65\] tells of 65 axes; the most is 64",
    "TopK(x, none)": r"k is a vector of one number, got \[\]",
    "Reshape(x, s)": "an extent of -3: only -1 stands for what is left",
    "Expand(x, s)": r"a negative extent in \[-3, 1\]",
    "ConstantOfShape(s)": r"a negative extent in \[-3, 1\]",
    "Tile(x, s)": r"a negative extent in \[-3, 1\]",
    "GatherND(x, i)": "indices are rows: of rank 1 at least, got rank 0",
}


@pytest.mark.parametrize("node", NEGATIVE)
def test_constants_that_no_shape_can_be_made_of(node):
    constants = "<int64[2] s = {-3, 1}, int64 i = {0}, int64[0] none = {}>"
    outputs = "y, z" if "TopK" in node else "y"
    model = parse(f"(float[N, 2] x, int64[65] long) => (y) {constants} {{ {outputs} = {node} }}")
    fails(model, NEGATIVE[node], TypeRelError)


def test_a_value_that_nothing_makes():
    model = parse("(float[N] x) => (y) { [late] y = Relu(z) }")
    fails(model, "node 'late' reads 'z', which nothing before it makes")
    model = parse("(float[N] x) => (w) { y = Relu(x) }")
    fails(model, "the output of main reads 'w', which nothing before it makes")


def test_names_that_are_given_twice():
    model = parse("(float[N] x) => (y) { y = Relu(x) }")
    model.graph.output.append(model.graph.output[0])
    fails(model, "2 outputs are named 'y'")
    fails(parse("(float[N] x, float[N] x) => (y) { y = Relu(x) }"), "2 inputs are named 'x'")
    fails(parse("(float[N] x) => (y) { y = Relu(x) y = Neg(x) }"), "2 values are named 'y'")


@pytest.mark.parametrize("name", [b"name", b"size", b"Relu"])
def test_names_that_are_no_text(name, tmp_path):
    data = parse("(float[size] name) => (y) { y = Relu(name) }").SerializeToString()
    data, path = data.replace(name, b"\xff\xfe\xff\xff"), tmp_path / "odd.onnx"
    path.write_bytes(data)
    for source in (data, path):
        fails(source, "is no ONNX model: the name .* is no UTF-8")


def test_opsets():
    graph = "(float[N] x) => (y) { y = Relu(x) }"
    fails(parse(graph, 99), f"the model has opset 99, but bucketize reads 1 to {OPSETS[-1]}")


def test_inputs_of_a_dtype_that_is_not_read():
    graph = "(float[N] x) => (y) { y = Identity(x) }"
    model = parse(graph.replace("float", "complex64"))
    fails(model, "input 'x': the data type COMPLEX64 is not supported")


def test_bounds():
    model = parse("(float[N, M] x) => (y) { y = Relu(x) }")
    known = "no symbol named 'K'; known: M, N"
    fails(model, known, UnknownNameError, bounds={"K": (1, 2)})
    for bad in (
        (-1, 3),
        (4, 3),
        (1,),
        7,
        (1.5, 2),
        ("1", "2"),
        (1, 7, 8),
        (0, 8, 0),
        (0, 8, 4, 2),
        (0, 2**62),
    ):
        wanted = r"the bounds of N must be a pair \(lo, hi\) with 0 <= lo <= hi < 2\*\*62, or .*"
        fails(model, wanted, BucketizeError, bounds={"N": bad})
    fails(model, 'expected bounds by symbol, as in .*"N": .*, got 4', ArgumentError, bounds=4)


@pytest.mark.parametrize(
    ("graph", "empty"),
    [
        ("(float[N, 3] x) => (y) { y = Relu(x) }", "N"),
        ("(float[1, P, 4] p, float[1, S, 4] x) => (y) { y = Concat <axis = 1> (p, x) }", "P"),
        ("(float[N, 1, 4, 4] x, float[2, 1, 3, 3] w) => (y) { y = Conv (x, w) }", "N"),
        ("(float[N, 3] x, float[3, M] w) => (y) { y = MatMul (x, w) }", "NM"),
    ],
    ids=["batch", "past", "convolution", "product"],
)
def test_extents_may_be_0_where_bounds_allow_it(graph, empty):
    model = parse(graph)
    module = agree(model, bounds=dict.fromkeys(empty, (0, 9)))
    plain, cut = compile(module), compile(dispatch(module, log_dispatcher, fallback=True))
    symbols = dict.fromkeys(module.main.symbols(), 3)
    for sizes in (symbols, {s: 0 if s in empty else n for s, n in symbols.items()}):
        shapes = [[evaluate(d, sizes) for d in p.type.shape] for p in module.main.params]
        inputs = [np.ones(s, np.float32) for s in shapes]
        want = run_ort(model, dict(zip((p.name for p in module.main.params), inputs, strict=True)))
        for exe in (plain, cut):
            np.testing.assert_allclose(exe.run(*inputs)[0], want[0], rtol=1e-6)


def test_initializers_that_cannot_be_read():
    model = parse("(float[N] x) => (y) { y = Add(x, w) }")
    short = helper.make_tensor("w", TensorProto.FLOAT, [1], np.float32([1]).tobytes(), raw=True)
    short.dims[0] = 3
    model.graph.initializer.append(short)
    fails(model, "initializer 'w': corrupt: cannot reshape array of size 1")
    model.graph.initializer[0].data_type = TensorProto.COMPLEX64
    fails(model, "initializer 'w': the data type COMPLEX64 is not supported")
    model.graph.initializer[0].data_location = TensorProto.EXTERNAL
    fails(model, "initializer 'w': stored outside of the model, which must be loaded from a path")
    del model.graph.initializer[:]
    model.graph.sparse_initializer.add().values.name = "w"
    fails(model, "sparse initializers are not supported")


# --- sources -------------------------------------------------------------------------------------


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
    fails(path.read_bytes(), "stored outside of the model, which must be loaded from a path")
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


# --- the table -----------------------------------------------------------------------------------


# Operators whose inputs, outputs or attributes changed after the opset that brought them, where no
# converter begins: each change was read, and the converter handles or refuses it.
REVIEWED = {
    ("ArgMax", 12),
    ("ArgMin", 12),
    ("Attention", 24),
    ("Attention", 25),  # windows: attributes that are not read, but by the standard's function
    ("AveragePool", 7),
    ("AveragePool", 10),
    ("AveragePool", 19),
    ("Cast", 19),
    ("Cast", 24),
    ("CastLike", 19),
    ("CastLike", 24),
    ("Clip", 6),
    ("Constant", 11),  # sparse ones are refused
    ("Constant", 12),
    ("DepthToSpace", 11),
    ("DequantizeLinear", 13),
    ("DequantizeLinear", 21),
    ("DequantizeLinear", 23),
    ("GRU", 14),
    ("GRU", 3),
    ("GatherND", 12),
    ("GlobalLpPool", 2),
    ("LSTM", 14),
    ("LpPool", 2),
    ("LpPool", 18),
    ("MaxPool", 8),
    ("MaxPool", 10),
    ("Pad", 18),
    ("QuantizeLinear", 13),
    ("QuantizeLinear", 19),
    ("QuantizeLinear", 21),
    ("QuantizeLinear", 23),
    ("RNN", 14),
    ("Range", 27),
    ("Reshape", 14),
    ("Resize", 18),
    ("ScatterElements", 16),
    ("ScatterND", 16),
    ("Shape", 15),
    ("SpaceToDepth", 28),
    ("Split", 2),
    ("Split", 18),
    ("TopK", 11),
}


def signature(schema):
    inputs, outputs = ([v.name for v in side] for side in (schema.inputs, schema.outputs))
    attributes = {k: str(a.default_value) for k, a in schema.attributes.items()}
    attributes.pop("consumed_inputs", None)  # which is not read
    return inputs, outputs, attributes


def test_what_later_opsets_changed_was_read():
    changed = set()
    for (domain, op_type), versions in CONVERTERS.items():
        if not onnx.defs.has(op_type, domain=domain):
            continue
        first = max(min(versions), first_version(domain, op_type))
        schemas = [onnx.defs.get_schema(op_type, v, domain) for v in OPSETS if v >= first]
        for before, after in pairwise(schemas):
            if signature(before) != signature(after) and after.since_version not in versions:
                changed.add((op_type, after.since_version))
    assert changed == REVIEWED
