"""Transposed convolutions of what is not finite, and of nothing: as onnxruntime computes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx_model import ort_session, parse

import bucketize
from bucketize.interpret import evaluate_module
from bucketize.lower.pipeline import flatten_windows, lower
from bucketize.onnx import from_onnx
from bucketize.transform.simplify import simplify

pytestmark = pytest.mark.usefixtures("few_registers")

NONE = dict.fromkeys("DHW", (0, None))
INF, NAN = np.inf, np.nan


@dataclass(frozen=True)
class Layer:
    """One transposed convolution, its bias and an activation."""

    weights: tuple[int, ...]
    attrs: str
    group: int = 1

    def model(self, *, known: bool, weights: np.ndarray) -> onnx.ModelProto:
        """The weights are constants, or an input."""
        inner, each, *kernel = self.weights
        shape = ", ".join(map(str, self.weights))
        given, held = (f", float[{shape}] w", "") if not known else ("", f"float[{shape}] w, ")
        bias = f"float[{each * self.group}] b"
        axes = ", ".join("DHW"[: len(kernel)])
        model = parse(
            f"(float[N, {inner}, {axes}] x{given}) => (y) <{held}{bias}> {{ "
            f"z = ConvTranspose<{self.attrs}, group = {self.group}>(x, w, b) y = Tanh(z) }}"
        )
        some = {"w": weights, "b": np.linspace(-1, 1, each * self.group, dtype=np.float32)}
        for name in ("w", "b")[1 - known :]:
            model.graph.initializer.append(numpy_helper.from_array(some[name], name))
        return model


LAYERS = {
    "upsampling": Layer(
        (3, 4, 3, 3), "strides = [2, 2], pads = [1, 1, 1, 1], output_padding = [1, 1]"
    ),
    "even": Layer((3, 4, 4, 2), "strides = [2, 2], pads = [1, 0, 1, 0]"),
    "one axis even": Layer((3, 4, 4, 3), "strides = [2, 2]"),
    "thirds": Layer((2, 3, 4, 5), "strides = [3, 3], pads = [2, 1, 0, 2], output_padding = [2, 0]"),
    "gaps": Layer((2, 3, 2, 1), "strides = [3, 2], pads = [1, 0, 0, 0]"),
    "dilated": Layer((2, 3, 3, 3), "strides = [2, 3], dilations = [2, 2], pads = [1, 2, 1, 0]"),
    "dilated alone": Layer((2, 3, 3, 2), "strides = [1, 1], dilations = [2, 3]"),
    "groups": Layer((4, 3, 3, 2), "strides = [2, 2], pads = [1, 1, 1, 0]", group=2),
    "even groups": Layer((4, 3, 2, 4), "strides = [2, 2]", group=2),
    "depthwise": Layer((5, 1, 3, 3), "strides = [2, 2], pads = [1, 1, 1, 1]", group=5),
    "many phases": Layer((2, 3, 6, 7), "strides = [5, 5], pads = [1, 0, 2, 3]"),
    "lines": Layer((3, 2, 5), "strides = [2], pads = [2, 1], output_padding = [1]"),
    "long lines": Layer((3, 2, 7), "strides = [4]"),
    "volumes": Layer((2, 3, 3, 2, 3), "strides = [2, 2, 1], pads = [1, 0, 0, 0, 1, 1]"),
}


def wild(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Small numbers, some of which are not finite."""
    x = rng.standard_normal(shape).astype(np.float32)
    rest = rng.choice([INF, -INF, NAN], shape).astype(np.float32)
    return np.where(rng.random(shape) < 0.06, rest, x)


def agree(layer: Layer, *sizes: tuple[int, ...], known: bool, weights: np.ndarray) -> None:
    model, rng = layer.model(known=known, weights=weights), np.random.default_rng(1)
    module = from_onnx(model, bounds={n: NONE[n] for n in "DHW"[: weights.ndim - 2]})
    session, exe = ort_session(model), bucketize.compile(module)
    for size in sizes:
        inputs = {"x": wild(rng, 2, weights.shape[0], *size)} | ({} if known else {"w": weights})
        (want,) = session.run(None, inputs)
        for (got,) in (evaluate_module(module, **inputs), exe.run(**inputs)):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def sizes_of(layer: Layer) -> list[tuple[int, ...]]:
    n = len(layer.weights) - 2
    return [tuple((5, 4, 6)[:n]), tuple((1, 3, 2)[:n]), tuple((2, 1, 1)[:n])]


@pytest.mark.sweep
@pytest.mark.parametrize("name", LAYERS)
def test_what_is_not_finite_spreads_as_far_as_the_weights(name: str) -> None:
    layer = LAYERS[name]
    weights = np.random.default_rng(0).standard_normal(layer.weights).astype(np.float32)
    agree(layer, *sizes_of(layer), known=True, weights=weights)


@pytest.mark.sweep
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_weights_that_are_not_finite_meet_the_image_alone(name: str, known: bool) -> None:
    layer = LAYERS[name]
    weights = wild(np.random.default_rng(3), *layer.weights)
    weights.reshape(-1)[-1] = INF
    agree(layer, *sizes_of(layer), known=known, weights=weights)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("name", ["lines", "upsampling", "dilated"])
def test_an_axis_of_nothing(name: str, known: bool) -> None:
    """What is left of it is the bias; onnxruntime refuses where nothing is left, others do not."""
    layer, rng = LAYERS[name], np.random.default_rng(2)
    weights = rng.standard_normal(layer.weights).astype(np.float32)
    model = layer.model(known=known, weights=weights)
    n = len(layer.weights) - 2
    module = from_onnx(model, bounds={a: NONE[a] for a in "DHW"[:n]})
    exe, more = bucketize.compile(module), {} if known else {"w": weights}
    for size in ((0, 3)[:n], (4, 0)[:n], (0, 0)[:n]):
        inputs = {"x": np.ones((2, layer.weights[0], *size), np.float32)} | more
        (want,), (got,) = evaluate_module(module, **inputs), exe.run(**inputs)
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_an_axis_of_nothing_is_the_bias_of_onnxruntime() -> None:
    weights = np.ones((3, 2, 5), np.float32)
    agree(Layer((3, 2, 5), "strides = [2], pads = [1, 0]"), (0,), known=True, weights=weights)


def test_a_layer_that_doubles_an_image_multiplies_by_no_zeros() -> None:
    """Phases are convolutions of as many weights as they have, which write into one image."""
    layer = LAYERS["upsampling"]
    weights = np.ones(layer.weights, np.float32)
    body = flatten_windows(simplify(from_onnx(layer.model(known=True, weights=weights)).main)).body
    shapes = [b.args[1].type.shape for b in body if b.op.name == "conv2d"]
    assert sorted(shapes) == [(4, 3, a, b) for a in (1, 2) for b in (1, 2)]


@pytest.mark.parametrize(
    ("name", "convolutions", "columns"), [("even", 1, 0), ("thirds", 9, 0), ("many phases", 0, 1)]
)
def test_how_many_kernels_there_are(name: str, convolutions: int, columns: int) -> None:
    layer = LAYERS[name]
    weights = np.ones(layer.weights, np.float32)
    body = lower(from_onnx(layer.model(known=True, weights=weights)).main).body
    ops: list[Any] = [m.op.name for b in body for m in getattr(b.attrs.get("body"), "body", (b,))]
    assert ops.count("conv2d") == convolutions
    assert ops.count("concat") == (convolutions > 1)
    assert ops.count("col2im") == columns
