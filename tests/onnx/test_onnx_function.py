"""Functions: those of a model, and those that the standard gives for operators."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator
from onnx_model import agree, draw, parse

import bucketize
from bucketize.errors import TypeRelError, UnsupportedModelError
from bucketize.interpret import evaluate_module
from bucketize.onnx import from_onnx
from bucketize.onnx.function import MAX_DEPTH
from bucketize.onnx.node import CONVERTERS
from bucketize.verify import verify

HEAD = '<ir_version: 10, opset_import: ["" : 17, "my" : 1]> g '
MINE = '<domain: "my", opset_import: ["" : 17, "my" : 1]> '


def model_of(graph, *functions):
    return parser.parse_model(" ".join([HEAD + graph, *(MINE + f for f in functions)]))


def fails(model, match, error=UnsupportedModelError):
    with pytest.raises(error, match=match) as e:
        from_onnx(model)
    return e.value


# --- of a model ----------------------------------------------------------------------------------

CALL = "(float[N, 4] x) => (y) { [outer] y = my.f(x) }"
FUNCTIONS = {
    "twice": (CALL, "f (a) => (b) { b = Add(a, a) }"),
    "nested": (CALL, "f (a) => (b) { c = my.g(a) b = my.g(c) }", "g (a) => (b) { b = Exp(a) }"),
    "attribute": ("(float[N, 4] x) => (y) { y = my.f<slope = 0.5>(x) }",
                  "f <slope> (a) => (b) { b = LeakyRelu<alpha: float = @slope>(a) }"),
    "default": (CALL, "f <slope: float = 0.25> (a) => (b) "
                "{ b = LeakyRelu<alpha: float = @slope>(a) }"),
    "attribute_left_out": (CALL, "f <slope> (a) => (b) "
                           "{ b = LeakyRelu<alpha: float = @slope>(a) }"),
    "operand_left_out": (CALL, "f (a, lo, hi) => (b) { b = Clip(a, lo, hi) }"),
    "result_left_out": ("(float[N, 4] x) => (y) { y = my.f(x) }",
                        "f (a) => (b, c) { b = Exp(a) c = my.nowhere(a) }"),
    "branches": ("(float[N, 4] x, bool c) => (y) { y = my.f<slope = 0.5>(x, c) }",
                 "f <slope> (a, c, lo) => (b) { b = If(c) <then_branch = t () => (u) "
                 "{ d = my.g(a) u = LeakyRelu<alpha: float = @slope>(d) }, "
                 "else_branch = e () => (v) { v = Clip(a, lo) }> }",
                 "g (a) => (b) { b = Neg(a) }"),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_the_model(name):
    graph, *functions = FUNCTIONS[name]
    model = model_of(graph, *functions)
    module = from_onnx(model)
    verify(module)
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    for cond in (True, False)[: len(module.main.params)]:
        inputs = {"x": x, "c": np.array(cond)}
        given = {p.name: inputs[p.name] for p in module.main.params}
        (got,) = evaluate_module(module, **given)
        np.testing.assert_allclose(got, EXPECTED[name](x, cond), rtol=1e-6)


def leaky(x, slope):
    return np.where(x < 0, np.float32(slope) * x, x)


EXPECTED = {
    "twice": lambda x, _: x + x,
    "nested": lambda x, _: np.exp(np.exp(x)),
    "attribute": lambda x, _: leaky(x, 0.5),
    "default": lambda x, _: leaky(x, 0.25),
    "attribute_left_out": lambda x, _: leaky(x, 0.01),
    "operand_left_out": lambda x, _: x,
    "result_left_out": lambda x, _: np.exp(x),
    "branches": lambda x, cond: leaky(-x, 0.5) if cond else x,
}


def test_a_function_is_of_the_opset_that_it_imports():
    text = HEAD + "(float[N, 4] x) => (y) { y = my.f(x) } "
    old = '<domain: "my", opset_import: ["" : 11]> f (a) => (b) { b = Unsqueeze<axes = [0]>(a) }'
    module = from_onnx(parser.parse_model(text + old))
    assert str(module.main.results[0].type) == "float32[1, N, 4]"
    fails(parser.parse_model(text + old.replace("11", "99")), "the function my.f has opset 99")


def test_functions_of_one_name_differ_by_their_overload():
    model = model_of("(float[N] x) => (y) { a = my.f(x) y = my.f(a) }",
                     "f (a) => (b) { b = Exp(a) }", "f (a) => (b) { b = Neg(a) }")  # fmt: skip
    model.functions[1].overload = model.graph.node[1].overload = "other"
    x = np.float32([0, 1])
    np.testing.assert_allclose(evaluate_module(from_onnx(model), x), [-np.exp(x)], rtol=1e-6)


def test_what_is_in_a_function_leads_back_to_the_node_that_calls_it():
    inner = "f (a) => (b) { [in] b = my.g(a) }"
    model = model_of(CALL, inner, "g (a) => (b) { [deep] b = Exp(a) }")
    module = from_onnx(model)
    assert [b.origin for b in module.main.body] == [("outer/in/deep",)]
    steps = bucketize.compile(module).explain(N=2).steps
    assert [step["name"] for step in steps] == ["outer/in/deep"]
    model = model_of(CALL, inner, "g (a) => (b) { [deep] b = TfIdfVectorizer(a) }")
    fails(model, r"1 x ai.onnx 17 TfIdfVectorizer: no converter .* \(outer/in/deep\)")
    bad = "g (a) => (b) { i = Constant<value_ints = [3]>() [deep] b = Reshape(a, i) }"
    error = fails(model_of("(float[2, 4] x) => (y) { [outer] y = my.f(x) }", inner, bad),
                  r"\[2, 4\] has 8 elements, not 3", TypeRelError)  # fmt: skip
    assert [n for n in error.notes if n.startswith("from")] == [
        "from ONNX node 'outer/in/deep' (Reshape)",
        "from ONNX node 'outer/in' (my.g)",
        "from ONNX node 'outer' (my.f)",
    ]


def test_all_of_a_function_that_is_not_supported_is_listed():
    model = model_of(CALL, "f (a) => (b) { [one] c = TfIdfVectorizer(a) [two] b = my.nowhere(c) }")
    error = fails(model, "^2 nodes of the model cannot be converted:")
    assert str(error).splitlines()[1:] == [
        "  1 x ai.onnx 17 TfIdfVectorizer: no converter for this operator (outer/one)",
        "  1 x my 1 nowhere: no converter for this operator (outer/two)",
    ]


CIRCLES = {
    "my.f > my.f": ["f (a) => (b) { b = my.f(a) }"],
    "my.g > my.h > my.g": [
        "f (a) => (b) { b = my.g(a) }",
        "g (a) => (b) { b = my.h(a) }",
        "h (a) => (b) { b = my.g(a) }",
    ],
}


@pytest.mark.parametrize("circle", CIRCLES)
def test_functions_that_call_themselves_are_refused(circle):
    model = model_of(CALL, *CIRCLES[circle])
    fails(model, f"functions of the model call themselves: {circle}")


def test_functions_that_are_too_deep_or_too_many_are_refused(monkeypatch):
    def chain(count, calls):
        inner = [f"f{i} (a) => (b) {{ {calls % (i + 1)} }}" for i in range(count)]
        last = f"f{count} (a) => (b) {{ b = Exp(a) }}"
        return model_of("(float[N] x) => (y) { y = my.f0(x) }", *inner, last)

    from_onnx(chain(MAX_DEPTH - 1, "b = my.f%d(a)"))
    fails(chain(MAX_DEPTH, "b = my.f%d(a)"), "functions of the model are more than 64 deep: my.f64")
    monkeypatch.setattr("bucketize.onnx.function.MAX_CALLS", 100)
    doubling = chain(30, "c = my.f%d(a) b = Exp(c)").SerializeToString()
    model = onnx.load_model_from_string(doubling)
    for f in model.functions[:-1]:
        f.node[1].domain, f.node[1].op_type = f.node[0].domain, f.node[0].op_type
    fails(model, "functions of the model unfold to more than 100 calls")


def test_calls_that_give_or_want_too_much_are_refused():
    fails(model_of(CALL, "f () => (b) { b = Constant<value_int = 1>() }"),
          "my.f is called with 1 inputs, expected 0 at most")  # fmt: skip
    fails(model_of("(float[N] x) => (y) { y, z = my.f(x) }", "f (a) => (b) { b = Exp(a) }"),
          "my.f is called with 2 outputs, expected 1 at most")  # fmt: skip
    fails(model_of(CALL, "f (a) => (b) { c = Exp(a) }"), "the output of my.f reads 'b'")


# --- of the standard -----------------------------------------------------------------------------

IMAGE = "float[N, 3, H] x"
STANDARD = {
    "loss": (17, "(float[N, C] x, int64[N] t) => (y) { y = SoftmaxCrossEntropyLoss(x, t) }"),
    "loss_of_images": (
        17,
        "(float[N, 3, H] x, int64[N, H] t, float[3] w) => (y, p) { y, p = "
        'SoftmaxCrossEntropyLoss<reduction = "sum", ignore_index = 1>(x, t, w) }',
    ),
    "likelihood": (
        13,
        "(float[N, 3] x, int64[N] t, float[3] w) => (y) "
        '{ y = NegativeLogLikelihoodLoss<reduction = "none">(x, t, w) }',
    ),
    "mvn": (13, f"({IMAGE}) => (y) {{ y = MeanVarianceNormalization<axes = [0, 2]>(x) }}"),
    "windows": (17, "(float[N] x) => (a, b, c) { n = Size(x) a = HannWindow(n) "
                "b = HammingWindow<periodic = 0>(n) c = BlackmanWindow(n) }"),
    "crop": (18, "(float[N, 5, 7] x) => (y) <int64[2] s = {3, 8}> "
             "{ y = CenterCropPad<axes = [1, 2]>(x, s) }"),
    "attention_of_a_length_that_values_tell": (
        23,
        "(float[M, 3] c) => (y) { i = NonZero(c) j = Cast<to = 1>(i) t = Transpose(j) "
        "at = Constant<value_ints = [0, 1]>() q = Unsqueeze(t, at) "
        "y = Attention<is_causal = 1, scale = 1.0>(q, q, q) }",
    ),
    "attention_windows": (
        25,
        "(float[N, 2, M, 8] q, float[N, 2, M, 8] k, float[N, 2, M, 8] v) => (y) "
        "{ y = Attention<is_causal = 1, left_window_size = 2>(q, k, v) }",
    ),
    "attention_scores": (
        23,
        "(float[N, 2, M, 8] q, float[N, 2, K, 8] k, float[N, 2, K, 8] v) => (y, a, b, c) "
        "{ y, a, b, c = Attention<qk_matmul_output_mode = 3>(q, k, v) }",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STANDARD)
def test_functions_of_the_standard(name):
    opset, graph = STANDARD[name]
    model = parse(graph, opset)
    module = from_onnx(model)
    verify(module)
    for size in (3, 5):
        sizes = dict.fromkeys(module.main.symbols(), size)
        rng = np.random.default_rng(0)
        inputs = {p.name: draw(rng, p, sizes) for p in module.main.params}
        wanted = ReferenceEvaluator(model).run(None, inputs)
        for want, got in zip(wanted, evaluate_module(module, **inputs), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_an_operator_whose_function_is_of_a_later_opset():
    model = parse("(float[N] x) => (y) { y = MeanVarianceNormalization(x) }", 9)
    model.graph.node[0].op_type = "DynamicQuantizeLinear"
    fails(model, "ai.onnx 9 DynamicQuantizeLinear: new in opset 11, but the model has 9")


def test_what_a_function_of_the_standard_lacks_leads_back_to_the_node(monkeypatch):
    monkeypatch.delitem(CONVERTERS, ("", "QuantizeLinear"))
    graph = "(float[N] x) => (a, b, c) { [q] a, b, c = DynamicQuantizeLinear(x) }"
    fails(parse(graph, 17), r"1 x ai.onnx \d+ QuantizeLinear: no converter .* \(q/.*\)")


def test_a_function_is_compiled_as_its_nodes_are():
    graph = "(float[N, 4] x, int64[N] t) => (y) { y = SoftmaxCrossEntropyLoss(x, t) }"
    module = agree(parse(graph))
    rng = np.random.default_rng(0)
    inputs = (rng.standard_normal((5, 4)).astype(np.float32), rng.integers(0, 4, 5))
    want = evaluate_module(module, *inputs)
    np.testing.assert_allclose(bucketize.compile(module).run(*inputs), want, rtol=1e-5)
