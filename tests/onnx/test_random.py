"""Operators that draw numbers: the same in each call, of the law that is asked for."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from onnx_model import parse

import bucketize
from bucketize import ops
from bucketize.errors import PaddingError, UnsupportedModelError
from bucketize.interpret import evaluate_module

GIVEN = {  # what the reference evaluator draws, too, from the same seed
    "normal_like": "(float[N, 3] x) => (y) { y = RandomNormalLike<seed = 3., mean = 1.>(x) }",
    "normal_of_doubles": "(float[N, 3] x) => (y) "
    "{ y = RandomNormalLike<seed = 3., scale = 0.5, dtype = 11>(x) }",
    "normal": "() => (y) { y = RandomNormal<shape = [2, 3], seed = 3.>() }",
    "uniform_like": "(float[N, 3] x) => (y) { y = RandomUniformLike<seed = 7., low = -1.>(x) }",
    "uniform_of_halves": "(float[N, 3] x) => (y) "
    "{ y = RandomUniformLike<seed = 7., high = 3., dtype = 10>(x) }",
    "uniform": "() => (y) { y = RandomUniform<shape = [5], seed = 7.>() }",
    "dropout": "(float[N, 3] x) => (y, m) <float r = {0.3}, bool t = {1}> "
    "{ y, m = Dropout<seed = 5>(x, r, t) }",
    "dropout_of_a_run": "(float[N, 3] x, float r, bool t) => (y, m) "
    "{ y, m = Dropout<seed = 5>(x, r, t) }",
}


def inputs(mod, rows: int = 40):
    given = {"x": np.ones((rows, 3), "f4"), "r": np.array(0.3, "f4"), "t": np.array(True)}
    return {p.name: given[p.name] for p in mod.main.params}


@pytest.mark.parametrize("name", GIVEN)
def test_numbers_of_a_seed_are_those_of_the_reference(name: str) -> None:
    model = parse(GIVEN[name])
    mod = bucketize.from_onnx(model)
    given = inputs(mod)
    want = ReferenceEvaluator(model).run(None, given)
    for run in (bucketize.compile(mod).run, lambda **g: evaluate_module(mod, **g)):
        for _ in range(2):
            for got, wanted in zip(run(**given), want, strict=True):
                assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
                # the evaluator rounds what it draws, and then scales it
                tolerance = 4 * np.finfo(got.dtype if got.dtype.kind == "f" else "f4").eps
                np.testing.assert_allclose(got, wanted, atol=tolerance)


def test_a_dropout_drops_nothing_unless_a_run_says_that_it_trains() -> None:
    mod = bucketize.from_onnx(parse(GIVEN["dropout_of_a_run"]))
    x = np.ones((4, 3), "f4")
    y, kept = bucketize.compile(mod).run(x, np.array(0.3, "f4"), np.array(False))
    np.testing.assert_array_equal(y, x)
    assert kept.all()
    y, kept = bucketize.compile(mod).run(x, np.array(1, "f4"), np.array(True))
    assert not y.any()
    assert not kept.any()


def test_nodes_without_a_seed_have_one_of_their_own() -> None:
    text = "(float[N, 3] x) => (y, z) { [a] y = RandomNormalLike(x) [b] z = RandomNormalLike(x) }"
    mod = bucketize.from_onnx(parse(text))
    y, z = bucketize.compile(mod).run(np.ones((200, 3), "f4"))
    assert not np.allclose(y, z)
    again, _ = bucketize.compile(bucketize.from_onnx(parse(text))).run(np.ones((200, 3), "f4"))
    np.testing.assert_array_equal(y, again)
    assert abs(y.mean()) < 0.2
    assert 0.8 < y.std() < 1.2


@pytest.mark.parametrize("factor", ["scale = 0.", "mean = 0."])
def test_numbers_times_nothing_are_nothing(factor: str) -> None:
    """As exporters leave noise that inference does without."""
    nodes = f"r = RandomNormalLike<{factor}>(x) s = Mul(r, z) y = Add(x, s)"
    model = parse(f"(float[N, 3] x) => (y) <float z = {{0}}> {{ {nodes} }}")
    x = np.arange(6, dtype="f4").reshape(2, 3)
    (got,) = bucketize.compile(bucketize.from_onnx(model)).run(x)
    np.testing.assert_array_equal(got, x)


def test_ones_come_as_often_as_is_asked_for() -> None:
    mod = bucketize.from_onnx(
        parse("(float[N] x) => (y) { y = Bernoulli<seed = 2., dtype = 6>(x) }")
    )
    x = np.repeat(np.float32([0, 0.25, 1]), 2000)
    (got,) = bucketize.compile(mod).run(x)
    assert got.dtype == np.int32
    shares = got.reshape(3, -1).mean(axis=1)
    np.testing.assert_allclose(shares, [0, 0.25, 1], atol=0.05)
    assert set(np.unique(got)) == {0, 1}


def test_classes_come_as_often_as_their_shares_say() -> None:
    text = "(float[N, 4] x) => (y) { y = Multinomial<sample_size = 4000, seed = 2.>(x) }"
    mod = bucketize.from_onnx(parse(text))
    shares = np.float32([[0.1, 0.2, 0, 0.7], [0.5, 0.5, 0, 0]])
    with np.errstate(divide="ignore"):
        (got,) = bucketize.compile(mod).run(np.log(shares))
    assert (got.shape, got.dtype) == ((2, 4000), np.int32)
    counted = [np.bincount(row, minlength=4) / 4000 for row in got]
    np.testing.assert_allclose(counted, shares, atol=0.04)
    assert (counted[0][2], counted[1][2]) == (0, 0)


def test_no_number_is_rounded_up_to_the_end_that_is_left_out() -> None:
    """Of 100,000 numbers that float16 holds to 11 bits."""
    (drawn,) = ops.uniform_like.run(np.zeros(100_000), seed=0, dtype="float16")
    assert drawn.max() < 1
    (same,) = ops.uniform_like.run(np.zeros(3), low=2.0, high=2.0, seed=0, dtype="float32")
    np.testing.assert_array_equal(same, [2, 2, 2])


REFUSED = {
    "a loop": (
        "(float[N] x, int64 n) => (y) { c = Constant<value = bool {1}>() y = Loop(n, c, x) <body ="
        " b (int64 i, bool p, float[N] s) => (q, t) { q = Identity(p) r = RandomNormalLike(s)"
        " t = Add(s, r) }> }",
        r"Loop: its body draws numbers, and each round would draw the same \(y\)",
    ),
    "integers": (
        "(int64[N] x) => (y) { y = RandomNormalLike(x) }",
        "RandomNormalLike: numbers of int64 are not drawn",
    ),
    "no seed": (
        "(float[N] x) => (y) { y = RandomNormalLike<seed = nan>(x) }",
        "RandomNormalLike: seed is nan",
    ),
    "no rows": (
        "(float[N] x) => (y) { y = Multinomial(x) }",
        r"Multinomial: input 0 is float32\[N\], expected rank 2",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_drawn(name: str) -> None:
    text, message = REFUSED[name]
    model = parse(text.replace("seed = nan", "seed = 0."))
    if name == "no seed":
        model.graph.node[0].attribute[0].f = float("nan")
    with pytest.raises(UnsupportedModelError, match=message):
        bucketize.from_onnx(model)


def two_buckets(_):
    return {"x": {0: [(1, 4), (4, 9)]}}


def test_numbers_are_not_drawn_for_padding() -> None:
    """Of a larger tensor they would be others."""
    mod = bucketize.from_onnx(parse(GIVEN["normal_like"]), bounds={"N": (1, 8)})
    with pytest.raises(PaddingError, match="normal_like leaks padding"):
        bucketize.compile(bucketize.dispatch(mod, two_buckets, policy="pad"))


@pytest.mark.parametrize("op", [ops.normal_like, ops.uniform_like], ids=lambda op: op.name)
def test_an_export_draws_by_the_same_law_and_seed(op) -> None:
    name = op.name
    model = bucketize.to_onnx(bucketize.from_onnx(parse(GIVEN[name])))
    x = np.ones((40, 3), "f4")
    want = evaluate_module(bucketize.from_onnx(parse(GIVEN[name])), x)
    np.testing.assert_allclose(ReferenceEvaluator(model).run(None, {"x": x}), want, atol=1e-6)
