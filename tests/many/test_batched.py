"""Requests of equal shapes as one batch: where rows keep apart, and where it pays."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from onnx_model import parse

import bucketize
from bucketize import zoo
from bucketize.errors import RaggedError, RequestsError
from bucketize.interpret import evaluate_module
from bucketize.ragged.rows import batch_of
from dispatchers import log_dispatcher

pytestmark = pytest.mark.usefixtures("few_registers")

NETS = ("mlp", "resnet18", "mobilenetv2", "bert-mini")
APART = {
    "attention": "(float[B, S, 4] x) => (y) { t = Transpose<perm = [0, 2, 1]>(x) "
    "s = MatMul(x, t) p = Softmax<axis = 2>(s) y = MatMul(p, x) }",
    "joined": "(float[B, 4] x, float[B, 2] z) => (y) { j = Concat<axis = 1>(x, z) "
    "y = Slice(j, a, b, a) }".replace("(y) {", "(y) <int64[1] a = {1}, int64[1] b = {3}> {"),
    "flattened": "(float[B, 2, 3] x, float[6, 2] w) => (y) { f = Flatten(x) y = MatMul(f, w) }",
    "a table": "(int64[B] i, float[5, 3] t) => (y) { y = Gather(t, i) }",
    "repeated": "(float[B, 4] x) => (y) <int64[2] s = {1, 4}> { y = Expand(x, s) }",
    "resized": "(float[B, 1, H, W] x) => (y) <float[4] s = {1, 1, 2, 2}> "
    '{ y = Resize<mode = "nearest">(x, , s) }',
}
MIXED = {
    "the mean of all": (
        "(float[B, 4] x) => (y) { m = ReduceMean<axes = [0]>(x) y = Sub(x, m) }",
        "reduce_mean: it brings",
    ),
    "sums up to each": (
        "(float[B, 4] x) => (y) <int64 a = {0}> { y = CumSum(x, a) }",
        "cumsum: it brings rows",
    ),
    "one behind the other": (
        "(float[B, 4] x) => (y, j) { j = Concat<axis = 0>(x, x) y = Neg(x) }",
        "results have no symbol in common that counts rows",
    ),
    "turned around": (
        "(float[B, 4] x) => (y) <int64[1] a = {0}, int64[1] m = {-1}, "
        "int64[1] l = {-9223372036854775807}> { z = Slice(x, m, l, a, m) y = Add(x, z) }",
        "strided_slice: ",
    ),
    "each with each": ("(float[B, 4] x) => (y) { t = Transpose(x) y = MatMul(x, t) }", "float32"),
    "sums of rows": (
        "(float[B, 4] x) => (y) { t = Transpose(x) m = MatMul(t, x) y = MatMul(x, m) }",
        "matmul: it brings",
    ),
    "the first of all": (
        "(float[B, 4] x) => (y) <int64[1] i = {0}> { g = Gather<axis = 0>(x, i) y = Sub(x, g) }",
        "gather: it brings",
    ),
    "how many there are": (
        "(float[B, 4] x) => (y) { s = Shape(x) f = Cast<to = 1>(s) r = ReduceSum<keepdims = 0>(f) "
        "y = Div(x, r) }",
        "from_dims: it computes with the number of rows",
    ),
    "a table of rows": (
        "(float[B, 4] x, int64[B] i) => (y) { y = Gather(x, i) }",
        "gather: it brings",
    ),
    "a result of another": (
        "(float[B, 4] x) => (y) { y = ReduceMean<keepdims = 0>(x) }",
        "results have no symbol in common",
    ),
    "rows elsewhere": (
        "(float[4, B] x) => (y) { y = Transpose(x) }",
        "float32[4, B] has B elsewhere than at first",
    ),
    "rows moved by pads": (
        "(float[B, 4] x) => (y) <int64[4] p = {1, 0, -1, 0}> { y = Pad(x, p) }",
        "pad: it brings rows together, or may",
    ),
    "what nobody has proved": (
        "(float[B, 4] x) => (y, i) <int64[1] k = {2}> { y, i = TopK(x, k) }",
        "topk: it brings rows together, or may",
    ),
}


def imported(model):
    return bucketize.from_onnx(parse(model) if isinstance(model, str) else model)


@pytest.mark.parametrize("name", [*NETS, *APART])
def test_rows_that_keep_apart(name: str) -> None:
    mod = imported(APART[name] if name in APART else zoo.build(name))
    assert batch_of(mod.main).name in "BN"


@pytest.mark.parametrize("name", MIXED)
def test_rows_that_may_not(name: str) -> None:
    graph, fault = MIXED[name]
    with pytest.raises(RaggedError) as e:
        batch_of(imported(graph).main)
    assert str(e.value).startswith(fault)


def test_equal_shapes_are_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As cheap as the price says: what a machine would predict is not asked."""
    price = lambda _, sizes: SimpleNamespace(seconds=1e-4 + 1e-5 * sizes["N"])  # noqa: E731
    monkeypatch.setattr("bucketize.inspect.predict.predicted", price)
    mod = bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, 8)})
    rng = np.random.default_rng(0)
    requests = [
        {"data": rng.standard_normal((n, 784)).astype(np.float32)} for n in (1,) * 9 + (2, 3)
    ]
    for module in (mod, bucketize.dispatch(mod, log_dispatcher)):
        exe = bucketize.compile(module, lazy=True)
        plan = exe.plan_many(requests)
        assert sum(len(call.rows) for call in plan.calls) == 14
        assert {len(call.rows) for call in plan.calls} <= {8, 6}
        assert str(plan.calls[0]) == "8 rows of 8 requests, as a batch of 8"
        for request, (got,) in zip(requests, exe.run_many(requests), strict=True):
            (want,) = evaluate_module(mod, **request)
            np.testing.assert_allclose(got, want, atol=1e-5)


def test_batches_are_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    price = lambda _, sizes: SimpleNamespace(seconds=1e-4 + 1e-5 * sizes["N"])  # noqa: E731
    monkeypatch.setattr("bucketize.inspect.predict.predicted", price)
    mod = bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (2, 5)})
    exe = bucketize.compile(mod, lazy=True)
    requests = [{"data": np.ones((n, 784), np.float32)} for n in (2, 3, 2, 2)]
    sizes = [len(call.rows) for call in exe.plan_many(requests).calls]
    assert sum(sizes) == 9
    assert all(2 <= size <= 5 for size in sizes)
    assert len(exe.run_many(requests)) == 4


def test_what_does_not_pay_is_run_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    price = lambda _, sizes: SimpleNamespace(seconds=1e-5 * sizes["N"])  # noqa: E731
    monkeypatch.setattr("bucketize.inspect.predict.predicted", price)
    exe = bucketize.compile(bucketize.from_onnx(zoo.build("mlp")))
    rng = np.random.default_rng(0)
    one = {"data": rng.standard_normal((64, 784)).astype(np.float32)}
    none = {"data": np.zeros((0, 784), np.float32)}
    plan = exe.plan_many([one, {"data": 2 * one["data"]}, none])
    assert str(plan.calls[0]) == "request 2 as it is: it has no rows"
    assert exe.run_many([none])[0][0].shape == (0, 10)
    assert exe.plan_many([one]).calls[0].why == "a batch of 64, the cheapest"


def test_inputs_in_common_and_shapes_that_differ() -> None:
    mod = imported("(float[B, S, 4] x, float[4] w) => (y) { y = Mul(x, w) }")
    exe = bucketize.compile(mod)
    rng = np.random.default_rng(0)
    w = [np.ones(4, np.float32), np.arange(4, dtype=np.float32)]
    requests = [
        {"x": rng.standard_normal((1, n, 4)).astype(np.float32), "w": w[k]}
        for n, k in ((3, 0), (3, 0), (5, 0), (3, 1), (3, 0))
    ]
    requests[1]["x"] = requests[1]["x"][:, :, :3]
    with pytest.raises(RequestsError) as e:
        exe.run_many(requests)
    for i in (0, 2, 3, 4):
        np.testing.assert_allclose(e.value.results[i][0], requests[i]["x"] * requests[i]["w"])


def test_why_nothing_is_shared(tmp_path) -> None:
    mod = imported(MIXED["sums up to each"][0])
    exe = bucketize.compile(mod)
    request = {"x": np.ones((2, 4), np.float32)}
    assert "its rows are not known to keep apart: cumsum" in str(exe.plan_many([request]))
    exe.save(tmp_path / "net.bkt")
    loaded = bucketize.load(tmp_path / "net.bkt")
    assert "it was loaded, and is not ragged" in str(loaded.plan_many([request]))
    np.testing.assert_array_equal(loaded.run_many([request])[0][0], exe.run(**request)[0])
