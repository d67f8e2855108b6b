"""RNN, GRU and LSTM beside onnxruntime: interpreted, compiled, dispatched."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx
import pytest
from agreement import agree
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx_model import run_ort

import bucketize
from bucketize.dispatch.tree import dispatch
from bucketize.errors import BucketizeError, ShapeError, UnsupportedModelError
from bucketize.inspect.predict import CALL_S, predicted
from bucketize.interpret import evaluate_module
from bucketize.onnx import from_onnx
from bucketize.verify import verify

pytestmark = pytest.mark.usefixtures("few_registers")

TOLERANCE = 2e-5
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
STATES = {"RNN": 1, "GRU": 1, "LSTM": 2}
INPUTS, HIDDEN = 5, 6


def random(*shape: int) -> np.ndarray:
    return (0.5 * np.random.default_rng(sum(shape)).standard_normal(shape)).astype(np.float32)


def layer(
    kind: str, *, bias=True, lengths=False, initial=False, peephole=False, constant=True, **attrs
) -> onnx.ModelProto:
    """A recurrent layer over x, [T, B, 5], or [B, T, 5] with layout=1; weights are constant."""
    d = 2 if attrs.get("direction") == "bidirectional" else 1
    gates, swapped = GATES[kind] * HIDDEN, attrs.get("layout", 0)
    named = {"w": random(d, gates, INPUTS), "r": random(d, gates, HIDDEN)}
    named |= {"b": random(d, 2 * gates)} if bias else {}
    named |= {"p": random(d, 3 * HIDDEN)} if peephole else {}
    state = ["B", d, HIDDEN] if swapped else [d, "B", HIDDEN]
    x = ["B", "T", INPUTS] if swapped else ["T", "B", INPUTS]
    states = [f"s{i}" for i in range(STATES[kind])]
    inputs = [("x", TensorProto.FLOAT, x)]
    inputs += [("lens", TensorProto.INT32, ["B"])] if lengths else []
    inputs += [(s, TensorProto.FLOAT, state) for s in states] if initial else []
    if not constant:
        inputs += [(k, TensorProto.FLOAT, v.shape) for k, v in named.items()]
    outs = ["y", *(f"last{i}" for i in range(STATES[kind]))]
    read = ["x", "w", "r", "b" if bias else "", "lens" if lengths else ""]
    read += states if initial else [""] * len(states)
    read += ["p"] if peephole else []
    node = helper.make_node(kind, read, outs, "layer", hidden_size=HIDDEN, **attrs)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(*i) for i in inputs],
        [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outs],
        [numpy_helper.from_array(v, k) for k, v in named.items()] if constant else [],
    )
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=10)


def inputs_of(model: onnx.ModelProto, steps: int, batch: int) -> dict[str, np.ndarray]:
    sizes, made = {"T": steps, "B": batch}, {}
    for i in model.graph.input:
        dims = i.type.tensor_type.shape.dim
        shape = [sizes.get(d.dim_param, d.dim_value) for d in dims]
        if i.name == "lens":
            made[i.name] = np.random.default_rng(batch).integers(0, steps + 1, shape, np.int32)
        else:
            made[i.name] = random(*shape)
    return made


def reference(model, inputs):
    return ReferenceEvaluator(model).run(None, inputs)


def check(model: onnx.ModelProto, *sizes: tuple[int, int], oracle=run_ort, compiled=True) -> None:
    module = verify(from_onnx(model))
    exe = bucketize.compile(module) if compiled else None
    for steps, batch in sizes or ((4, 3), (1, 1), (7, 2)):
        inputs = inputs_of(model, steps, batch)
        want = oracle(model, inputs)
        agree(evaluate_module(module, **inputs), want, TOLERANCE)
        if exe is not None:
            agree(exe.run(**inputs), want, TOLERANCE)


@pytest.mark.sweep
@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_directions_lengths_and_states(kind, direction):
    for lengths in (False, True):
        for initial in (False, True):
            model = layer(kind, direction=direction, lengths=lengths, initial=initial)
            check(model, compiled=lengths and initial)


@pytest.mark.parametrize("length", [-1, 6, 1 << 20])
@pytest.mark.parametrize("kind", GATES)
def test_lengths_that_no_sequence_has_are_refused(kind, length):
    module = from_onnx(layer(kind, lengths=True))
    symbols = {"T": 5, "B": 2}
    inputs = {
        p.name: np.zeros([symbols.get(str(d), d) for d in p.type.shape], p.type.dtype)
        for p in module.main.params
    } | {"lens": np.array([5, length], np.int32)}
    for run in (partial(evaluate_module, module), bucketize.compile(module).run):
        with pytest.raises(ShapeError, match=r"index \d+ is out of"):
            run(**inputs)


@pytest.mark.parametrize("kind", GATES)
def test_without_bias(kind):
    check(layer(kind, bias=False), compiled=False)


@pytest.mark.parametrize("kind", GATES)
def test_weights_that_are_inputs(kind):
    check(layer(kind, constant=False))


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_gru_with_the_reset_behind_the_product(direction):
    for bias in (False, True):
        check(layer("GRU", direction=direction, bias=bias, linear_before_reset=1))


def test_lstm_with_peepholes():
    check(layer("LSTM", peephole=True, initial=True, lengths=True))
    check(layer("LSTM", peephole=True, direction="bidirectional"), compiled=False)


def test_lstm_that_couples_input_and_forget():
    check(layer("LSTM", input_forget=1), compiled=False)


@pytest.mark.parametrize("kind", GATES)
def test_clipped_gates(kind):
    check(layer(kind, clip=0.2), (4, 3), compiled=False)


PARAMETERS = {
    "Affine": ([0.5], [0.1]),
    "Elu": ([0.7], []),
    "HardSigmoid": ([0.3], [0.4]),
    "LeakyRelu": ([0.2], []),
    "Relu": ([], []),
    "ScaledTanh": ([0.8], [0.6]),
    "Sigmoid": ([], []),
    "Softplus": ([], []),
    "Softsign": ([], []),
    "Tanh": ([], []),
    "ThresholdedRelu": ([0.3], []),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_activations(name):
    alpha, beta = PARAMETERS[name]
    given = {"activation_alpha": alpha} if alpha else {}
    given |= {"activation_beta": beta} if beta else {}
    check(layer("RNN", activations=[name], **given), (3, 2), compiled=False)


@pytest.mark.parametrize(
    ("name", "alpha", "beta"),
    [("Affine", 1, 0), ("ThresholdedRelu", 1, None), ("ScaledTanh", 1, 1), ("Elu", 1, None)],
)
def test_parameters_that_are_not_given_are_those_of_the_operators(name, alpha, beta):
    """Onnxruntime, which takes 0 for most of them, is told."""
    told = {"activation_alpha": [alpha]} | ({} if beta is None else {"activation_beta": [beta]})
    whole = layer("RNN", activations=[name], **{k: list(map(float, v)) for k, v in told.items()})
    check(layer("RNN", activations=[name]), oracle=lambda _, x: run_ort(whole, x), compiled=False)


def test_activations_take_their_parameters_in_order():
    names = ["HardSigmoid", "Tanh", "LeakyRelu"]
    check(
        layer("LSTM", activations=names, activation_alpha=[0.3, 0.4], activation_beta=[0.5]),
        (3, 2),
        compiled=False,
    )
    twice = ["Sigmoid", "Affine", "Tanh", "Relu"]
    check(
        layer(
            "GRU",
            direction="bidirectional",
            activations=twice,
            activation_alpha=[0.5],
            activation_beta=[0.25],
        ),
        (3, 2),
        compiled=False,
    )


@pytest.mark.parametrize("kind", GATES)
def test_the_batch_in_front(kind):
    check(layer(kind, layout=1), oracle=reference)


def test_the_batch_in_front_is_another_order_only():
    plain = layer("LSTM", direction="bidirectional", initial=True)
    swapped = layer("LSTM", direction="bidirectional", initial=True, layout=1)
    inputs = inputs_of(plain, 4, 3)
    turned = {k: np.swapaxes(v, 0, 1) for k, v in inputs.items()}
    y, h, c = evaluate_module(from_onnx(swapped), **turned)
    want = run_ort(plain, inputs)
    agree([y.transpose(1, 2, 0, 3), h.swapaxes(0, 1), c.swapaxes(0, 1)], want, TOLERANCE)


@pytest.mark.parametrize("kind", GATES)
def test_inside_a_dispatched_module(kind):
    model = layer(kind, direction="bidirectional", lengths=True)
    cuts = {0: [(1, 2), (2, 16), (16, None)], 1: [(1, 2), (2, None)]}
    exe = bucketize.compile(dispatch(from_onnx(model), lambda _: {"x": cuts}))
    for steps, batch in ((1, 1), (2, 3), (9, 2), (17, 5), (33, 1)):
        inputs = inputs_of(model, steps, batch)
        agree(exe.run(**inputs), run_ort(model, inputs), TOLERANCE)


def test_a_step_is_native():
    exe = bucketize.compile(from_onnx(layer("LSTM")))
    exe.run(**inputs_of(layer("LSTM"), 3, 2))
    assert not exe.counts.host
    told = str(exe.explain(T=3, B=2))
    assert told.count("matmul+add") == 2


def test_a_step_is_expected_once_for_each_round(tmp_path):
    exe = bucketize.compile(from_onnx(layer("LSTM")))
    exe.save(tmp_path / "lstm.bkt")
    for each in (exe, bucketize.load(tmp_path / "lstm.bkt")):
        found = predicted(each.program, {"T": 7, "B": 2})
        assert {k.times for k in found.kernels} == {1, 7}
        short, long = (predicted(each.program, {"T": t, "B": 2}).seconds for t in (10, 1000))
        assert long > 20 * (short - CALL_S)


@pytest.mark.parametrize(
    ("attrs", "told"),
    [
        ({"activations": ["Swish"]}, "the activation Swish; known: affine, elu"),
        ({"activations": ["Tanh", "Tanh"]}, "2 activations, expected 1"),
        ({"direction": "up"}, "direction is 'up', known: forward, reverse, bidirectional"),
    ],
)
def test_what_is_not_supported(attrs, told):
    with pytest.raises(UnsupportedModelError, match=told):
        from_onnx(layer("RNN", **attrs))


def test_a_run_may_tell_the_number_of_hidden_units():
    model = layer("RNN", constant=False)
    named = {i.name: i for i in model.graph.input}
    named["r"].type.tensor_type.shape.dim[2].dim_param = "H"
    del model.graph.node[0].attribute[:]
    exe = bucketize.compile(from_onnx(model))
    dims = {n: i.type.tensor_type.shape.dim for n, i in named.items()}
    given = {n: random(*(d.dim_value or HIDDEN for d in s)) for n, s in dims.items()}
    model.graph.node[0].attribute.append(helper.make_attribute("hidden_size", HIDDEN))
    for got, want in zip(exe.run(**given), run_ort(model, given), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_weights_of_another_size_are_refused():
    model = layer("RNN")
    model.graph.node[0].attribute[0].i = HIDDEN + 1
    with pytest.raises(BucketizeError, match="RNN"):
        from_onnx(model)
