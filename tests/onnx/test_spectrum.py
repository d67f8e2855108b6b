"""Fourier transforms and mel filters, beside onnxruntime; and what of them is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from onnx_model import agree, parse, run_ort

import bucketize
from bucketize import ops
from bucketize.errors import ShapeError, TypeRelError, UnsupportedModelError
from bucketize.interpret import evaluate_module
from bucketize.op import Op
from bucketize.types import tensor

PLAIN = {
    "the last but one": "(float[B, N, 1] x) => (y) { y = DFT(x) }",
    "complex": "(float[N, M, 2] x) => (y) <int64 a = {0}> { y = DFT(x, , a) }",
    "inverse": "(float[N, M, 2] x) => (y) <int64 a = {0}> { y = DFT<inverse = 1>(x, , a) }",
    "one side": "(float[B, N, 1] x) => (y) { y = DFT<onesided = 1>(x) }",
    "longer": "(float[B, N, 1] x) => (y) <int64 l = {11}> { y = DFT(x, l) }",
    "shorter": "(float[B, N, 2] x) => (y) <int64 l = {2}> { y = DFT(x, l) }",
    "run time": "(float[B, N, 1] x, int64 l, int64 a) => (y) { y = DFT(x, l, a) }",
}


@pytest.mark.parametrize("name", PLAIN)
def test_transforms(name: str) -> None:
    given = {"l": np.array(6), "a": np.array(-2)} if name == "run time" else {}
    mod = agree(parse(PLAIN[name], opset=20), **given)
    dynamic = {b.op for b in mod.main.body} & {ops.dyn_dft}
    assert bool(dynamic) == (name == "run time")


@pytest.mark.parametrize("attributes", ["", "<axis = 2>", "<axis = 1, inverse = 1>"])
def test_an_axis_that_is_an_attribute(attributes: str) -> None:
    agree(parse(f"(float[B, N, M, 2] x) => (y) {{ y = DFT{attributes}(x) }}", opset=17))


@pytest.mark.parametrize("length", ["", ", l"])
def test_real_results_of_halves(length: str) -> None:
    graph = f"(float[B, N, 2] x) => (y) <int64 l = {{7}}> {{ y = DFT<{BACK}>(x{length}) }}"
    model = parse(graph, opset=20)
    mod = bucketize.from_onnx(model)
    x = np.random.default_rng(0).standard_normal((2, 5, 2)).astype("f4")
    (want,) = ReferenceEvaluator(model).run(None, {"x": x})
    (got,) = bucketize.compile(mod).run(x)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    assert got.shape == (2, 7 if length else 8, 1)


BACK = "onesided = 1, inverse = 1"
FRAMES = {
    "window": "(float[B, L, 1] x) => (y) <int64 s = {3}, float[4] w = {0.5, 1.0, 1.0, 0.5}> "
    "{ y = STFT(x, s, w) }",
    "length": "(float[B, L, 1] x) => (y) <int64 s = {2}, int64 l = {5}> { y = STFT(x, s, , l) }",
    "both sides": "(float[B, L, 2] x) => (y) <int64 s = {2}, int64 l = {4}> "
    "{ y = STFT<onesided = 0>(x, s, , l) }",
    "run time": "(float[B, L, 1] x, int64 s, int64 l) => (y) { y = STFT(x, s, , l) }",
}


@pytest.mark.parametrize("name", FRAMES)
def test_transforms_of_frames(name: str) -> None:
    model = parse(FRAMES[name], opset=17)
    given = {"s": np.array(2), "l": np.array(4)} if name == "run time" else {}
    mod = agree(model, {"B": 2, "L": 9}, {"B": 1, "L": 20}, **given)
    x = np.random.default_rng(0).standard_normal((2, 30, 2 if "both" in name else 1)).astype("f4")
    inputs = {"x": x, **given}
    (got,) = bucketize.compile(mod).run(**inputs)
    np.testing.assert_allclose(got, run_ort(model, inputs)[0], rtol=1e-4, atol=1e-5)


def test_mel_filters() -> None:
    graph = "(int64 b, int64 l, int64 r, float lo, float hi) => (y) "
    model = parse(f"{graph}{{ y = MelWeightMatrix(b, l, r, lo, hi) }}", opset=17)
    for b, length, rate, low, high in ((8, 16, 8192, 0, 4096 / 2), (80, 400, 16000, 20, 7000)):
        hertz = {"lo": np.float32(low), "hi": np.float32(high)}
        agree(
            model, **{k: np.array(v) for k, v in {"b": b, "l": length, "r": rate, **hertz}.items()}
        )
    known = graph.replace("(int64 b, int64 l, int64 r, float lo, float hi)", "()")
    given = "<int64 b = {8}, int64 l = {16}, int64 r = {8192}, float lo = {0}, float hi = {2048}>"
    mod = bucketize.from_onnx(parse(f"{known}{given} {{ y = MelWeightMatrix(b, l, r, lo, hi) }}"))
    assert evaluate_module(mod)[0].shape == (9, 8)
    wide = [np.array(v) for v in (8, 16, 1000)] + [np.float32(v) for v in (0, 9000)]
    with pytest.raises(ShapeError, match="frequencies beyond those of a transform of 16"):
        evaluate_module(bucketize.from_onnx(model), *map(np.asarray, wide))


X = tensor("float32", 2, 5, 1)


@pytest.mark.parametrize(
    ("reason", "op", "types", "attrs"),
    [
        (r"axis 2 of \[2, 5, 1\] holds the parts", ops.dft, (X,), {"axis": 2, "length": 5}),
        ("1 or 2 parts", ops.dft, (tensor("float32", 2, 3),), {"axis": 0, "length": 5}),
        ("a transform of 0 numbers", ops.dft, (X,), {"axis": 1, "length": 0}),
        ("expected floats, got int64", ops.dft, (tensor("int64", 2, 1),), {"axis": 0, "length": 2}),
        (
            r"dft_length is a vector of one number, got \[\?, \?\]",
            ops.dyn_dft,
            (X, tensor("int64", 2), tensor("int64")),
            {},
        ),
        (
            r"expected scalars, got \[\], \[\], \[1\]",
            ops.mel_weight_matrix,
            (tensor("int64"), tensor("int64"), tensor("int64", 1), *[tensor("float32")] * 2),
            {"dtype": "float32"},
        ),
    ],
)
def test_what_does_not_fit_is_refused(reason: str, op: Op, types: Any, attrs: Any) -> None:
    with pytest.raises(TypeRelError, match=reason):
        op.infer(*types, **op.complete(attrs))


def test_a_signal_without_an_axis_of_parts_is_refused() -> None:
    graph = "(float[B, L] x) => (y) <int64 s = {3}, int64 l = {4}> { y = STFT(x, s, , l) }"
    with pytest.raises(UnsupportedModelError, match=r"expected \[batch, length, 1 or 2\]"):
        bucketize.from_onnx(parse(graph))
