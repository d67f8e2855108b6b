"""Operands whose extents the standard wants equal: others are refused, and not broadcast."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from onnx_model import parse, run_ort

import bucketize
from bucketize.errors import ShapeError, TypeRelError, UnsupportedModelError
from bucketize.interpret import evaluate_module
from bucketize.onnx import from_onnx
from bucketize.op import Array


def ones(*shape: int, dtype: Any = np.float32) -> Array:
    return np.ones(shape, dtype)


OTHER = "(float[N, C, H] x, float[D] s, float[D] b) => (y) "
CONSTANT = "(float[N, C, H] x) => (y) <float[2] c = {1, 2}> "
SCANNED = "(float[N] a, float[M] b) => (y) { y = Scan<num_scan_inputs = 2, body = "
COUNTED = "(float[N] x, float[M] z) => (y) { i = NonZero(x) j = NonZero(z) "
ROWS = "<num_scan_inputs = 2, body = g (int64[1] p, int64[1] q) => (int64[1] r) { r = Add(p, q) }>"
SUM = "g (float p, float q) => (float r) { r = Add(p, q) }>(a, b) }"
LAYER = "(float[T, B, 3] x, float[1, 2, 3] w, float[1, 2, 2] r, int32[L] n) => (y) "
CASES: dict[str, tuple[str, list[Array], list[Array]]] = {
    "bias": (
        "(float[N, 2, H] x, float[O, 2, 2] w, float[D] b) => (y) { y = Conv(x, w, b) }",
        [ones(1, 2, 4), ones(1, 2, 2), ones(1)],
        [ones(1, 2, 4), ones(1, 2, 2), ones(7)],
    ),
    "bias of one channel": (
        "(float[N, 2, H] x, float[1, 2, 2] w, float[D] b) => (y) { y = Conv(x, w, b) }",
        [ones(1, 2, 4), ones(1, 2, 2), ones(1)],
        [ones(1, 2, 4), ones(1, 2, 2), ones(7)],
    ),
    "instances": (
        OTHER + "{ y = InstanceNormalization(x, s, b) }",
        [ones(2, 1, 4), ones(1), ones(1)],
        [ones(2, 1, 4), ones(5), ones(5)],
    ),
    "instances by constants": (
        CONSTANT + "{ y = InstanceNormalization(x, c, c) }",
        [ones(2, 2, 4)],
        [ones(2, 1, 4)],
    ),
    "batch by constants": (
        CONSTANT + "{ y = BatchNormalization(x, c, c, c, c) }",
        [ones(2, 2, 4)],
        [ones(2, 1, 4)],
    ),
    "lengths": (
        LAYER + "{ y, z = RNN<hidden_size = 2>(x, w, r, , n) }",
        [ones(2, 1, 3), ones(1, 2, 3), ones(1, 2, 2), ones(1, dtype="i4")],
        [ones(2, 1, 3), ones(1, 2, 3), ones(1, 2, 2), ones(3, dtype="i4")],
    ),
    "diagonal": (
        '(float[N, M] x) => (y) { y = Einsum<equation = "ii->i">(x) }',
        [np.arange(9, dtype=np.float32).reshape(3, 3)],
        [ones(2, 3)],
    ),
    "scale of more rows": (
        "(float[N, 4] x, float[K, 4] s) => (y) { y = LayerNormalization(x, s) }",
        [ones(1, 4), ones(1, 4)],
        [ones(1, 4), ones(3, 4)],
    ),
    "scan, the first shorter": (SCANNED + SUM, [ones(3), ones(3)], [ones(2), ones(4)]),
    "scan, the first longer": (SCANNED + SUM, [ones(3), ones(3)], [ones(4), ones(2)]),
    "scan of as many as values say": (
        COUNTED + "p = Transpose(i) q = Transpose(j) y = Scan" + ROWS + "(p, q) }",
        [ones(3), ones(3)],
        [ones(2), ones(4)],
    ),
    "scan of as many as values say, the first longer": (
        COUNTED + "p = Transpose(i) q = Transpose(j) y = Scan" + ROWS + "(p, q) }",
        [ones(3), ones(3)],
        [ones(4), ones(1)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_extents_that_differ_are_refused(name: str) -> None:
    graph, right, wrong = CASES[name]
    model = parse(graph)
    names = [i.name for i in model.graph.input]
    (want, *_), mod = (
        run_ort(model, dict(zip(names, right, strict=True))),
        bucketize.from_onnx(model),
    )
    exe = bucketize.compile(mod)
    for run in (lambda *x: evaluate_module(mod, *x), exe.run):
        np.testing.assert_allclose(run(*right)[0], want, rtol=1e-6)
        with pytest.raises(
            (TypeRelError, ShapeError), match=r"has \d+ elements?, not \d|expected \d, got \d"
        ):
            run(*wrong)
    with pytest.raises(Exception, match=r"(?i)shape|size|length|dimension"):
        run_ort(model, dict(zip(names, wrong, strict=True)))


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (
            "(float[N, 2, H] x, float[O, 2, 2] w, float b) => (y) { y = Conv(x, w, b) }",
            r"float32\[\] for the channels of .*, expected a vector",
        ),
        (
            "(float[T, B, 3] x, float[1, 2, 3] w, float[1, 2, 2] r, int32 n) => (y) "
            "{ y, z = RNN<hidden_size = 2>(x, w, r, , n) }",
            r"int32\[\] has no axis 0",
        ),
    ],
)
def test_numbers_that_are_no_vector(graph: str, reason: str) -> None:
    with pytest.raises(UnsupportedModelError, match=reason):
        bucketize.from_onnx(parse(graph))


def test_what_has_one_axis_has_one_channel() -> None:
    norm = "BatchNormalization(x, s, b, m, v)"
    operands = ", ".join(f"float[1] {name}" for name in "sbmv")
    mod = bucketize.from_onnx(parse(f"(float[N] x, {operands}) => (y) {{ y = {norm} }}"))
    x, one = np.arange(3, dtype=np.float32), ones(1)
    (y,) = bucketize.compile(mod).run(x, one, one, one, one)
    np.testing.assert_allclose(y, (x - 1) / np.sqrt(1 + 1e-5) + 1, atol=1e-6)


@pytest.mark.parametrize("scale", ["3, 4", "2, 1, 4", "1, 1, 4", "1", "K, 1", "K"])
@pytest.mark.parametrize("given", ["x, s", "x, s, b"])
def test_layers_are_scaled_by_what_broadcasts(scale: str, given: str) -> None:
    rng = np.random.default_rng(0)
    operands = f"float[N, M, H] x, float[{scale}] s" + f", float[{scale}] b" * ("b" in given)
    model = parse(f"({operands}) => (y) {{ y = LayerNormalization({given}) }}")
    mod = bucketize.from_onnx(model)
    exe = bucketize.compile(mod)
    for k in (1, 4) if scale == "K" else (3,):
        shape = [k if d == "K" else int(d) for d in scale.split(", ")]
        drawn = [rng.standard_normal(s).astype("f4") for s in ((2, 3, 4), shape, shape)]
        feed = dict(zip(given.split(", "), drawn, strict=False))
        for want in (ReferenceEvaluator(model).run(None, feed), run_ort(model, feed)):
            np.testing.assert_allclose(evaluate_module(mod, **feed), want, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(exe.run(**feed), want, rtol=1e-4, atol=1e-5)


def test_an_open_extent_is_one_of_int32() -> None:
    """As keras computes shapes; one that is not goes on as it is, and does not wrap around."""
    cast = "s = Shape(x) c = Cast<to = 6>(s) d = Cast<to = 7>(c) y = Reshape(x, d)"
    module = from_onnx(parse(f"(float[N, 0] x) => (y) {{ {cast} }}"))
    assert str(module.main.results[0].type) == "float32[N, 0]"
    exe = bucketize.compile(module)
    for n in (7, (1 << 31) + 5):
        (y,) = exe.run(ones(n, 0))
        assert y.shape == (n, 0)
    wide = from_onnx(parse(f"(float[N, 0] x) => (y) {{ {cast} }}"), bounds={"N": (0, 1 << 40)})
    assert str(wide.main.results[0].type) == "float32[?, 0]"


def test_a_symbol_that_has_to_be_one_number_is_that_number() -> None:
    """So no clone is made for others; whoever gives it bounds keeps it."""
    model = parse("(float[N, F] x, float[7, 2] w) => (y) { y = MatMul(x, w) }")
    assert str(bucketize.from_onnx(model).main.params[0].type) == "float32[N, 7]"
    kept = bucketize.from_onnx(model, bounds={"F": (1, 8)})
    assert str(kept.main.params[0].type) == "float32[N, F]"
    exe = bucketize.compile(bucketize.from_onnx(model))
    with pytest.raises(ShapeError, match="input 'x', axis 1: expected 7, got 3"):
        exe.run(ones(2, 3), ones(7, 2))


@pytest.mark.parametrize("rows", [1, 5])
def test_a_squeeze_of_fewer_axes_than_declared(rows: int) -> None:
    """A rank that only a batch of one would have is not believed."""
    model = parse("(float[N, 12] x) => (float[M] y) { y = Squeeze(x) }")
    (got,) = bucketize.compile(bucketize.from_onnx(model)).run(ones(rows, 12))
    assert got.shape == ones(rows, 12).squeeze().shape
