"""Loop, Scan and If of ONNX beside onnxruntime: interpreted, compiled, saved, dispatched."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from agreement import agree
from onnx import TensorProto, helper
from onnx_model import parse, run_ort

import bucketize
from bucketize.dispatch.tree import dispatch
from bucketize.errors import BucketizeError, UnsupportedModelError
from bucketize.interpret import evaluate_module
from bucketize.ir import LOOP, all_bindings
from bucketize.onnx import from_onnx
from bucketize.text import constants, show
from bucketize.text import parse as parse_text
from bucketize.verify import verify
from dispatchers import log_dispatcher

pytestmark = pytest.mark.usefixtures("few_registers")

TOLERANCE = 1e-5


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def whole(n: int) -> np.ndarray:
    return np.array(n, np.int64)


def yes(truth: bool = True) -> np.ndarray:
    return np.array(truth)


def check(model, *runs, tmp_path=None, want=None):
    """The module of a model that computes what onnxruntime does, in every way to run it."""
    module = verify(from_onnx(model))
    text = show(module)
    assert show(parse_text(text, constants(module))) == text
    ways = [bucketize.compile(module), bucketize.compile(dispatch(module, log_dispatcher))]
    if tmp_path is not None:
        ways[0].save(tmp_path / "m.bkt")
        ways.append(bucketize.load(tmp_path / "m.bkt"))
    for inputs in runs:
        expected = (want or run_ort)(model, inputs)
        meant = evaluate_module(module, **inputs)
        agree(meant, [_of_no_round(*pair) for pair in zip(expected, meant, strict=True)], TOLERANCE)
        for exe in ways:
            agree(exe.run(**inputs), meant, TOLERANCE)
    return module


def _of_no_round(want, got):
    """Of no rows onnxruntime forgets all extents; here those that types tell are kept."""
    assert want.ndim == got.ndim
    return got[:0] if want.size == 0 and len(want) == 0 else want


def loops(module):
    return [b for b in all_bindings(module.main) if b.op is LOOP]


GROWS = """(int64 n, float[N, 2] x) => (float[M, 2] y, float[K] sums) {
  go = Constant <value = bool {1}> ()
  y, sums = Loop (n, go, x) <body = body (int64 i, bool c, float[P, 2] h)
    => (bool c2, float[Q, 2] h2, float s) {
    c2 = Identity (c)
    h2 = Concat <axis = 0> (h, x)
    s = ReduceSum <keepdims = 0> (h2)
  }>
}"""


def test_what_grows(tmp_path):
    runs = [{"n": whole(n), "x": random(rows, 2)} for n, rows in ((3, 2), (1, 5), (0, 3), (4, 9))]
    module = check(parse(GROWS), *runs, tmp_path=tmp_path)
    (loop,) = loops(module)
    assert [str(v.type) for v in loop.outs] == ["float32[?, 2]", "float32[?]"]


STOPS = """(float[N] x, float top, bool go) => (float[N] y, int64[K] rounds, float[K, N] rows) {
  most = Constant <value = int64 {50}> ()
  two = Constant <value = float {2.0}> ()
  y, rounds, rows = Loop (most, go, x) <body = body (int64 i, bool c, float[N] h)
    => (bool c2, float[N] h2, int64 at, float[N] row) {
    h2 = Mul (h, two)
    largest = ReduceMax <keepdims = 0> (h2)
    c2 = Less (largest, top)
    at = Identity (i)
    row = Neg (h)
  }>
}"""


def test_a_condition_ends_it(tmp_path):
    runs = [
        {"x": np.abs(random(n)) + 1, "top": np.array(top, np.float32), "go": yes(go)}
        for n, top, go in ((3, 40.0, True), (1, 1.0, True), (5, 40.0, False), (9, 1e9, True))
    ]
    check(parse(STOPS), *runs, tmp_path=tmp_path)


def test_without_a_count_or_a_condition():
    model = parse(STOPS)
    (node,) = [n for n in model.graph.node if n.op_type == "Loop"]
    node.input[0] = ""
    inputs = {"x": np.abs(random(3)) + 1, "top": np.array(99, np.float32), "go": yes()}
    check(model, inputs)
    node.input[0], node.input[1] = "most", ""
    check(model, inputs)


NESTED = """(int64 n, float[N, 3] x, float[3, 3] w) => (float[N, 3] y, float[K, J, N] rows) {
  go = Constant <value = bool {1}> ()
  two = Constant <value = int64 {2}> ()
  zero = Constant <value = int64 {0}> ()
  y, rows = Loop (n, go, x) <body = outer (int64 i, bool c, float[N, 3] h)
    => (bool c2, float[N, 3] h2, float[J, N] sums) {
    c2 = Identity (c)
    wx = MatMul (x, w)
    h2, sums = Loop (two, c, h) <body = inner (int64 j, bool d, float[N, 3] g)
      => (bool d2, float[N, 3] g2, float[N] s) {
      d2 = Identity (d)
      both = Add (i, j)
      even = Mod (both, two)
      is_even = Equal (even, zero)
      g2 = If (is_even) <
        then_branch = t () => (float[N, 3] a) { p = MatMul (g, w) a = Tanh (p) },
        else_branch = e () => (float[N, 3] b) { b = Add (h, wx) }
      >
      s = ReduceSum <keepdims = 0> (g2, one)
    }>
  }>
}"""
NESTED = NESTED.replace("  go =", "  one = Constant <value = int64[1] {1}> ()\n  go =", 1)


def test_nested_graphs_see_what_is_around_them(tmp_path):
    runs = [
        {"n": whole(n), "x": random(rows, 3), "w": random(3, 3)}
        for n, rows in ((3, 2), (1, 5), (0, 3), (2, 17))
    ]
    check(parse(NESTED), *runs, tmp_path=tmp_path)


SLICES = """(float[N, 4] x) => (float[M, 4] y) {
  one = Constant <value = int64[1] {1}> ()
  zero = Constant <value = int64[1] {0}> ()
  go = Constant <value = bool {1}> ()
  shape = Shape (x)
  n1 = Slice (shape, zero, one, zero)
  n = Squeeze (n1)
  none = Slice (x, zero, zero, zero)
  y = Loop (n, go, none) <body = body (int64 i, bool c, float[P, 4] h)
    => (bool c2, float[Q, 4] h2) {
    c2 = Identity (c)
    begin = Unsqueeze (i, zero)
    end = Add (begin, one)
    row = Slice (x, begin, end, zero)
    twice = Add (row, row)
    h2 = Concat <axis = 0> (h, twice)
  }>
}"""


def test_slices_in_a_loop(tmp_path):
    check(parse(SLICES), *({"x": random(n, 4)} for n in (1, 3, 8)), tmp_path=tmp_path)


def test_a_known_count_is_the_extent_of_rows():
    text = SLICES.replace("=> (float[M, 4] y)", "=> (float[M, 1, 4] y)")
    text = text.replace("y = Loop (n, go, none)", "y = Loop (n, go)")
    text = text.replace("bool c, float[P, 4] h)", "bool c)").replace(
        "float[Q, 4] h2", "float[1, 4] twice"
    )
    model = parse(text.replace("    h2 = Concat <axis = 0> (h, twice)\n", ""))
    module = check(model, {"x": random(3, 4)}, {"x": random(7, 4)})
    (loop,) = loops(module)
    assert str(loop.outs[0].type) == "float32[N, ?, 4]"


def scan(inputs, outputs, *, directions=(0, 0), axes=(0, 0), opset=17):
    """Running sums of x, [N, T] or [T, N], and y, [T, N], from h, [N]."""
    f = TensorProto.FLOAT

    def value(name, *shape):
        return helper.make_tensor_value_info(name, f, shape)

    body = helper.make_graph(
        [
            helper.make_node("Add", ["h", "a"], ["sum"]),
            helper.make_node("Mul", ["sum", "b"], ["h2"]),
            helper.make_node("Tanh", ["h2"], ["row"]),
            helper.make_node("Sub", ["a", "outside"], ["other"]),
        ],
        "step",
        [value("h", None), value("a", None), value("b", None)],
        [value("h2", None), value("row", None), value("other", None)],
    )
    attrs = {
        "num_scan_inputs": 2,
        "scan_input_axes": list(inputs),
        "scan_input_directions": list(directions),
        "scan_output_axes": list(outputs),
        "scan_output_directions": list(axes),
    }
    node = helper.make_node("Scan", ["h0", "x", "y"], ["h1", "rows", "others"], body=body, **attrs)
    x = ["T", "N"] if inputs[0] == 0 else ["N", "T"]
    y = ["T", "N"] if inputs[1] == 0 else ["N", "T"]
    graph = helper.make_graph(
        [node],
        "g",
        [value("h0", "N"), value("x", *x), value("y", *y), value("outside", "N")],
        [value("h1", None), value("rows", None, None), value("others", None, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def scanned(model, steps, n):
    sizes = {"T": steps, "N": n}
    shapes = {
        i.name: [sizes[d.dim_param] for d in i.type.tensor_type.shape.dim]
        for i in model.graph.input
    }
    return {name: random(*shape) + len(name) for name, shape in shapes.items()}


@pytest.mark.parametrize(
    ("inputs", "outputs", "directions", "turned"),
    [
        ((0, 0), (0, 0), (0, 0), (0, 0)),
        ((1, 0), (0, 1), (0, 1), (0, 0)),
        ((-1, -2), (-1, 0), (1, 1), (1, 0)),
        ((0, 1), (1, 1), (1, 0), (1, 1)),
    ],
)
def test_scans_along_axes_in_directions(inputs, outputs, directions, turned, tmp_path):
    model = scan([i % 2 for i in inputs], outputs, directions=directions, axes=turned)
    (node,) = model.graph.node
    (axes,) = [a for a in node.attribute if a.name == "scan_input_axes"]
    axes.ints[:] = inputs
    runs = [scanned(model, *sizes) for sizes in ((3, 2), (1, 1), (6, 9))]
    module = check(model, *runs, tmp_path=tmp_path)
    (loop,) = loops(module)
    assert {str(v.type) for v in loop.outs} == {"float32[N]", "float32[T, N]"}


def test_scans_of_one_length_only():
    model = scan((0, 0), (0, 0))
    for i, extent in ((1, 3), (2, 4)):
        model.graph.input[i].type.tensor_type.shape.dim[0].dim_value = extent
    with pytest.raises(BucketizeError, match="extents differ: 3 and 4"):
        from_onnx(model)


def changed(model: onnx.ModelProto, name: str, value: object) -> onnx.ModelProto:
    (node,) = [n for n in model.graph.node if n.op_type in ("Scan", "Loop")]
    kept = [a for a in node.attribute if a.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, value)])
    return model


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("num_scan_inputs", 4, "num_scan_inputs is 4 of 3 inputs"),
        (
            "num_scan_inputs",
            1,
            "2 inputs for a graph of 3|3 inputs for a graph of 3|scan_input_axes",
        ),
        ("scan_input_axes", [0], "scan_input_axes has 1 elements, expected 2"),
        ("scan_output_axes", [5, 0], "axis 5 is out of range for rank 2"),
    ],
)
def test_scans_that_are_not_right(name, value, told):
    with pytest.raises(UnsupportedModelError, match=told):
        from_onnx(changed(scan((0, 0), (0, 0)), name, value))


def test_a_graph_of_other_inputs():
    model = parse(GROWS)
    (node,) = [n for n in model.graph.node if n.op_type == "Loop"]
    node.input.append("x")
    with pytest.raises(UnsupportedModelError, match="4 inputs for a graph of 3"):
        from_onnx(model)


def test_what_cannot_be_converted_inside_is_listed_once():
    nodes = "z = TfIdfVectorizer (h2)\n    s = Hardmax (z)"
    text = GROWS.replace("s = ReduceSum <keepdims = 0> (h2)", nodes)
    with pytest.raises(UnsupportedModelError) as caught:
        from_onnx(parse(text))
    assert "1 x ai.onnx 17 TfIdfVectorizer: no converter for this operator (z)" in str(caught.value)
    assert str(caught.value).count("TfIdfVectorizer") == 1


def test_a_loop_carries_one_dtype():
    text = GROWS.replace("h2 = Concat <axis = 0> (h, x)", "h2 = Cast <to = 11> (h)")
    with pytest.raises(BucketizeError, match="dtypes differ") as caught:
        from_onnx(parse(text))
    assert "what a loop carries keeps its dtype, and whether" in "".join(caught.value.notes)


DECODER = """(int64 n, float[B, 1, 8] x, float[B, P, 8] past, float[8, 8] w)
  => (float[B, 1, 8] y, float[B, Q, 8] cache, float[K, B, 1, 8] rows) {
  go = Constant <value = bool {1}> ()
  y, cache, rows = Loop (n, go, x, past) <
    body = body (int64 i, bool c, float[B, 1, 8] h, float[B, R, 8] kv)
    => (bool c2, float[B, 1, 8] h2, float[B, S, 8] kv2, float[B, 1, 8] row) {
    c2 = Identity (c)
    kv2 = Concat <axis = 1> (kv, h)
    q = MatMul (h, w)
    keys = Transpose <perm = [0, 2, 1]> (kv2)
    scores = MatMul (q, keys)
    weights = Softmax <axis = -1> (scores)
    a = MatMul (weights, kv2)
    h2 = Tanh (a)
    row = Mul (h2, h)
  }>
}"""


def test_a_decoder_with_a_cache_that_grows_is_native(tmp_path):
    runs = [
        {"n": whole(n), "x": random(b, 1, 8), "past": random(b, p, 8), "w": random(8, 8)}
        for n, b, p in ((3, 2, 4), (5, 1, 1), (2, 3, 17))
    ]
    module = check(parse(DECODER), *runs, tmp_path=tmp_path)
    exe = bucketize.compile(module)
    exe.run(**runs[0])
    assert not exe.counts.host
    assert "attention" in str(exe.explain(B=2, P=4))
