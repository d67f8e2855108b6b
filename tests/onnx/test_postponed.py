"""Nodes that only a run can convert: by how many axes their operands have, or what they hold."""

from __future__ import annotations

import functools

import numpy as np
import onnx
import pytest
from onnx import defs
from onnx_model import ort_session, parse, without_pools
from onnxruntime.capi.onnxruntime_pybind11_state import Fail

import bucketize
from benchmarks.conformance import apart, as_shipped, cases, unknown, without_ranks
from bucketize.errors import ExportError, ShapeError, TypeRelError, UnsupportedModelError
from bucketize.interpret import evaluate_module
from bucketize.onnx import from_onnx, function, to_onnx
from bucketize.text import constants, show
from bucketize.text import parse as parse_text
from bucketize.transform.stayed import stayed_dynamic
from dispatchers import log_dispatcher

# --- every operator of the standard --------------------------------------------------------------

PARTS = 8


@functools.cache
def standard():
    with without_pools():
        return cases()


@pytest.mark.sweep
@pytest.mark.parametrize("part", range(PARTS))
def test_what_is_computed_with_ranks_is_computed_without(part):
    """Whatever is read where ranks are known is read where none is, and gives the same."""
    compared = 0
    for i, case in enumerate(standard()[part::PARTS]):
        try:
            wanted = evaluate_module(as_shipped(case.model), *case.inputs)
        except UnsupportedModelError:  # text, mostly
            continue
        tolerance = 2e-2 if any(map(_is_short, wanted)) else 1e-5
        for module in (without_ranks(case.model), _without_one(case.model, i)):
            got = evaluate_module(module, *case.inputs)
            assert apart(got, wanted, tolerance, tolerance) is None, case.name
        compared += 1
    assert compared > 200


def _without_one(model, i):
    """Without the rank of one input, another one for each `i`."""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    if copy.graph.input:
        unknown(copy.graph.input[i % len(copy.graph.input)].type)
    for known in (*copy.graph.output, *copy.graph.value_info):
        unknown(known.type)
    return from_onnx(copy)


def _is_short(result):
    return isinstance(result, np.ndarray) and result.dtype.itemsize < 4


# --- as parts of a module ------------------------------------------------------------------------

IMAGE = np.arange(72, dtype=np.float32).reshape(1, 8, 3, 3)
MODELS = {
    "any rank": (
        "(float[] x) => (y) { y = Softmax(x) }",
        [[IMAGE], [IMAGE[0, 0]], [IMAGE.ravel()]],
    ),
    "two of any": (
        "(float[] x, float[] z) => (y) { y = Concat<axis = -1>(x, z) }",
        [[IMAGE, IMAGE], [IMAGE[0, 0], IMAGE[0, 1]]],
    ),
    "several results": (
        "(float[] x) => (y, z) <int64[2] s = {1, 2}> { y, z = Split<axis = -1>(x, s) }",
        [[IMAGE], [IMAGE[0, 0]]],
    ),
    "one left out": (
        "(float[] x) => (z) <int64[1] k = {2}> { _, z = TopK(x, k) }",
        [[IMAGE], [IMAGE[0, 0]]],
    ),
    "only one rank": (
        "(float[] x) => (y) <float[1, 8, 2, 2] w = {1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0, 1.0, "
        "2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0, 1.0, 2.0, "
        "3.0, 4.0, 1.0, 2.0, 3.0, 4.0}> { y = Conv(x, w) }",
        [[IMAGE]],
    ),
    "a rank that is declared": (
        "(float[] x, int64[] s) => (float[M, N] y) { z = Reshape(x, s) y = Softmax(z) }",
        [[IMAGE, np.array([8, 9])], [IMAGE, np.array([2, -1])]],
    ),
    "in a branch": (
        "(float[] x, bool c) => (y) { y = If (c) <then_branch = t () => (a) { a = Softmax(x) }, "
        "else_branch = e () => (b) { b = Relu(x) }> }",
        [[IMAGE, np.array(True)], [IMAGE[0, 0], np.array(False)]],
    ),
    "by values": (
        "(float[N, 2, H, 4] x, bool[H] c) => (y) { z = Compress<axis = 2>(x, c) "
        "y = AveragePool<kernel_shape = [2, 2], strides = [2, 2], auto_pad = \"SAME_UPPER\">(z) }",
        [[IMAGE.reshape(3, 2, 3, 4), np.array([True, False, True])]],
    ),
    "places": (
        "(bool[M, N, 4] c) => (y, z) { i = NonZero(c) j = Cast<to = 1>(i) "
        "a = Constant<value_ints = [1]>() u = Unsqueeze(j, a) "
        "y, z = MaxPool<kernel_shape = [1]>(u) }",
        [[IMAGE.reshape(3, 6, 4) % 3 > 1]],
    ),
    "blocks": (
        "(bool[N] c, float[N, 2, 4, 4] x) => (y) { z = Compress<axis = 0>(x, c) "
        "k = NonZero(c) y = SpaceToDepth<blocksize = 2>(z) }",
        [[np.array([True, False]), IMAGE.ravel()[:64].reshape(2, 2, 4, 4)]],
    ),
    "a volume that a run cuts": (
        "(float[2, 1, 4, 3, 3] x, bool[4] c) => (y) { z = Compress<axis = 2>(x, c) "
        "y = MaxPool<kernel_shape = [2, 2, 2]>(z) }",
        [[IMAGE.reshape(2, 1, 4, 3, 3), np.array([True, False, True, True])]],
    ),
    "windows apart that a run cuts": (
        "(float[1, 1, 8, 9] x, bool[8] c, float[1, 1, 2, 2] w) => (y) "
        "{ z = Compress<axis = 2>(x, c) y = ConvTranspose<strides = [2, 2]>(z, w) }",
        [[IMAGE.reshape(1, 1, 8, 9), np.arange(8) % 3 > 0, IMAGE.ravel()[:4].reshape(1, 1, 2, 2)]],
    ),
    "windows": (
        "(float[N, 8, 9] x, int64[K] s, int64[K] k) => (y) { y = Col2Im(x, s, k) }",
        [[IMAGE.reshape(1, 8, 9), np.array([4, 4]), np.array([2, 2])]],
    ),
}  # fmt: skip


def session(graph, opset=18):
    return ort_session(parse(graph, opset))


@pytest.mark.parametrize("name", MODELS)
def test_a_module_computes_what_onnxruntime_does(name, tmp_path):
    graph, runs = MODELS[name]
    module = from_onnx(parse(graph, 18))
    assert show(parse_text(show(module), constants(module))) == show(module)
    exe = bucketize.compile(module)
    exe.save(tmp_path / "saved")
    loaded = bucketize.load(tmp_path / "saved")
    everywhere = exe.run, loaded.run, functools.partial(evaluate_module, module)
    names = [p.name for p in module.main.params]
    for inputs in runs:
        wanted = session(graph).run(None, dict(zip(names, inputs, strict=True)))
        for run in everywhere:
            for got, want in zip(run(*inputs), wanted, strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_a_module_goes_back_to_onnx(name):
    graph, runs = MODELS[name]
    module = from_onnx(parse(graph, 18))
    back = ort_session(to_onnx(module))
    names = [p.name for p in module.main.params]
    for inputs in runs:
        given = dict(zip(names, inputs, strict=True))
        for got, want in zip(back.run(None, given), session(graph).run(None, given), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_numbers_go_back_to_onnx():
    graph = "(float[N] x) => (float y) { s = ReduceSum<keepdims = 0>(x) y = Transpose(s) }"
    assert ort_session(to_onnx(from_onnx(parse(graph)))).run(None, {"x": IMAGE[0, 0, 0]}) == [3]


def test_a_rank_of_none_is_checked_in_onnx_too():
    graph = "(float[] x) => (float y) { y = Transpose(x) }"
    back = ort_session(to_onnx(from_onnx(parse(graph))))
    assert back.run(None, {"x": np.array(2, np.float32)}) == [2]
    with pytest.raises(Fail, match="Reshape"):
        back.run(None, {"x": IMAGE})


def test_a_dispatched_module_may_hold_such_nodes():
    graph = "(float[N, 4] x, int64[] s) => (y, z) { y = Relu(x) r = Reshape(x, s) z = Softmax(r) }"
    module = bucketize.dispatch(from_onnx(parse(graph)), log_dispatcher)
    exe = bucketize.compile(module)
    for shape in ((6, 2), (12,), (1, 3, 4)):
        x = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
        given = {"x": x, "s": np.array(shape)}
        for got, want in zip(exe.run(**given), session(graph).run(None, given), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6)


def test_a_rank_that_is_settled_is_native_from_there_on():
    module = from_onnx(parse(MODELS["only one rank"][0]))
    assert [b.op.name for b in module.main.body] == ["dyn.with_rank", "conv2d"]
    exe = bucketize.compile(module)
    explained = exe.explain(x=IMAGE.shape)
    assert "numpy" not in [r["kernel"] for r in explained.rows[1:]]
    assert "conv2d" in str(explained)


@pytest.mark.parametrize("node", ["Flatten", "Flatten<axis = 0>", "Transpose", "Identity"])
def test_results_are_the_callers_own(node):
    """Views of an operand, most of them, as numpy makes them."""
    graph = f"(float[] x) => (y, z) {{ y = {node}(x) z = {node}(x) }}"
    exe = bucketize.compile(from_onnx(parse(graph)))
    x = IMAGE.copy()
    for run in (exe.run, exe.context()):
        y, z = run(x)
        assert y.flags.c_contiguous
        y[...] = 0
        assert z.sum() == IMAGE.sum()
        np.testing.assert_array_equal(x, IMAGE)


def test_what_a_run_converts_is_told():
    x, told = stayed_dynamic(from_onnx(parse("(float[] x) => (y) { y = Softmax(x) }")).main)
    assert str(x) == "input: x: no shape is declared; unknown: the rank of float32[...]"
    assert str(told) == (
        "onnx_node (node y): all: their ranks, or what they hold, decide how it is converted; "
        "unknown: the rank of float32[...]"
    )


# --- what goes wrong -----------------------------------------------------------------------------


def test_a_run_refuses_what_no_node_takes():
    exe = bucketize.compile(from_onnx(parse("(float[] x) => (y) { y = LRN<size = 3>(x) }")))
    message = r"LRN: .*channels of float32\[72\], which must have rank 2 or more \(y\)"
    with pytest.raises(ShapeError, match=message):
        exe.run(IMAGE.ravel())


def test_a_run_checks_a_rank_that_was_settled():
    exe = bucketize.compile(from_onnx(parse(MODELS["only one rank"][0])))
    with pytest.raises(TypeRelError, match=r"expected 4 axes, got \[8, 3, 3\]"):
        exe.run(IMAGE[0])


@pytest.mark.parametrize(
    "graph",
    [
        MODELS["only one rank"][0],
        "(float[] x) => (y) { z = Relu(x) y = Transpose<perm = [1, 0, 2, 3]>(z) }",
    ],
)
def test_a_run_names_the_node_whose_operand_has_a_wrong_rank(graph):
    module = from_onnx(parse(graph))
    for run in (bucketize.compile(module).run, functools.partial(evaluate_module, module)):
        with pytest.raises(TypeRelError) as e:
            run(IMAGE[0])
        assert e.value.notes[0].endswith("(float32[...]) (node y)")


SCAN = "(float[] x) => (y) {{ y = Scan<num_scan_inputs = 1, body = b {}>(x) }}"
WRONG = {
    "(float[] x) => (y) { y = MaxPool<kernel_shape = [2, 2], auto_pad = \"A\">(x) }": (
        r"MaxPool: a window over 2 axes of float32\[...\], expected rank 4; auto_pad is 'A'"
    ),
    "(float[] x) => (y) { y = Resize(x) }": "Resize: scales or sizes must be given",
    "(float[] x) => (y) { y = Softmax<axis = -99>(x) }": "Softmax: axis -99 is out of range",
    "(float[] x, int64[] z) => (y) { y = MatMul(x, z) }": (
        r"MatMul: dtypes differ: float32 and int64 \(y\)"
    ),
    SCAN.format("(float[] v) => (float[] w) { w = Nothing(v) }"): (
        r"Scan: axis 0 .*; ai.onnx 17 Nothing: no converter for this operator \(w\) \(y\)"
    ),
    SCAN.format("(float[] v, float[] u) => (float[] w) { w = Softmax(v) }"): (
        r"Scan: axis 0 .*; 1 inputs for a graph of 2 \(y\)"
    ),
    SCAN.format("(float[] v) => (float[] w) { w = Softmax<axis = -99>(v) }"): (
        r"Scan: axis 0 .*; ai.onnx 17 Softmax: axis -99 .* \(w\)"
    ),
    "(float[M, 1, 8] x, float[] w, float[1, 8, 2] r) => (y) "
    "{ y, h, c = LSTM<hidden_size = 2, activations = [\"A\", \"Tanh\", \"Tanh\"]>(x, w, r) }": (
        r"LSTM: W is float32\[...\], expected rank 3; the activation A"
    ),
}  # fmt: skip


@pytest.mark.parametrize("graph", WRONG)
def test_what_is_wrong_whatever_a_run_tells_is_refused_at_once(graph):
    with pytest.raises(UnsupportedModelError, match=WRONG[graph]):
        from_onnx(parse(graph))


def test_ranks_beyond_those_that_are_tried_are_not_refused():
    x = IMAGE.reshape(1, 1, 2, 1, 4, 1, 3, 1, 3)
    for node, op in (("LogSoftmax<axis = -8>", "onnx_node"), ("Softmax<axis = -9>", "onnx_node")):
        module = from_onnx(parse(f"(float[] x) => (y) {{ y = {node}(x) }}"))
        assert [b.op.name for b in module.main.body] == [op]
        (got,) = evaluate_module(module, x)
        (want,) = session(f"(float[] x) => (y) {{ y = {node}(x) }}").run(None, {"x": x})
        np.testing.assert_allclose(got, want, rtol=1e-6)


NO_AXES = {
    "(float[1, 3, 4] x, float[1, 8, 4] w, float r) => (y) { y = LSTM<hidden_size = 2>(x, w, r) }": (
        r"R is float32\[\], expected rank 3"
    ),
    "(float t, int64[4] s) => (y) { y = AffineGrid(t, s) }": (
        r"theta is float32\[\], expected rank 3"
    ),
    "(float[1, 2, 3, 4] x, float m) => (y) { y = Attention(x, x, x, m) }": (
        r"a mask of float32\[\], which must have rank 1 or more"
    ),
    "(uint8[1, 1, 3, 3] x) => (y) <uint8 w = {1}> { y = ConvInteger(x, w) }": (
        "a window over 0 axes, expected 1, 2 or 3"
    ),
}


def test_a_batch_of_rows_has_two_axes():
    body = "b (float v) => (float w) { w = Relu(v) }"
    graph = f"(float[3] x) => (y) {{ y = Scan<num_scan_inputs = 1, body = {body}>(, x) }}"
    with pytest.raises(
        UnsupportedModelError, match=r"rows of float32\[3\], which must have rank 2"
    ):
        from_onnx(parse(graph, 8))


@pytest.mark.parametrize("graph", NO_AXES)
def test_operands_without_axes_are_refused(graph):
    with pytest.raises(UnsupportedModelError, match=NO_AXES[graph]):
        from_onnx(parse(graph, 24))


def test_trials_do_not_count_as_calls_of_functions(monkeypatch):
    nodes = " ".join(f"x{i + 1} = RMSNormalization(x{i}, s)" for i in range(20))
    graph = f"(float[] x0) => (x20) <float[1] s = {{1.0}}> {{ {nodes} }}"
    monkeypatch.setattr(function, "MAX_CALLS", 40)
    assert len(from_onnx(parse(graph, 23)).main.body) >= 20


# --- what does not leave -------------------------------------------------------------------------

KEPT = {
    ("(float[] x) => (y) { y = Hardmax(x) }", 12): (
        "onnx_node: a Hardmax that a run converts: ONNX has changed it since opset 12"
    ),
    ("(float[] x, float[] s) => (y) { y = Resize<mode = \"linear\">(x, s) }", 10): (
        "onnx_node: a Resize that a run converts: ONNX has changed it since opset 10"
    ),
    ("(float[] x, float[] s) => (y) { y = Upsample<mode = \"linear\">(x, s) }", 9): (
        "onnx_node: a Upsample that a run converts: ONNX has changed it since opset 9"
    ),
    ("(float[] x, float[] z) => (y) { y = PRelu(x, z) }", 6): (
        "onnx_node: a PRelu that a run converts: ONNX has changed it since opset 6"
    ),
    ("(float[] q, float[] k) => (y) { y = Attention<left_window_size = 2>(q, k, k) }", 25): (
        "onnx_node: a Attention that a run converts: Attention 25->24 downgrade"
    ),
    ("(float[] x, int64[] a) => (y) { y = CumSum(x, a) }", 17): (
        r"dyn.cumsum: the rank of int64\[...\] is unknown: only a run can tell \(y\)"
    ),
    (SCAN.format("(float[] v) => (float[] w) { w = Softmax(v) }"), 17): (
        "onnx_node: a Scan that a run converts, with graphs inside"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("graph", "opset"), KEPT)
def test_what_opset_24_does_not_have_is_named(graph, opset):
    if opset > defs.onnx_opset_version():
        pytest.skip("an opset that this onnx does not have")
    with pytest.raises(ExportError, match=KEPT[graph, opset]):
        to_onnx(from_onnx(parse(graph, opset)))


def test_short_weights_need_ranks():
    """What is rounded follows from what is known: a run, where all is, would round more."""
    graph = "(float[] x) => (y) <float[2, 2] w = {1.0, 2.0, 3.0, 4.0}> { y = MatMul(x, w) }"
    told = r"only a run can tell; a run could convert it, if weights were float32"
    with pytest.raises(UnsupportedModelError, match=told):
        from_onnx(parse(graph), weights="int8")
    assert from_onnx(parse(graph)).main.body[0].op.name == "onnx_node"
