"""Invariant: a row's bits depend on its own inputs alone."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper
from onnx_model import parse

import bucketize
from bucketize import zoo
from bucketize.errors import ArgumentError
from bucketize.executable import Executable
from bucketize.ir import Module
from bucketize.op import Array
from bucketize.zoo import bert
from dispatchers import exact_dispatcher, log_dispatcher, uniform_dispatcher

pytestmark = pytest.mark.usefixtures("few_registers")

LENGTHS = (1, 2, 3, 5, 8, 13, 17, 31, 40)
TINY = {"B": (1, 64), "S": (1, 64)}


@pytest.fixture(scope="module")
def encoder() -> Module:
    model = bert.encoder("tiny", 0, layers=2, hidden=48, heads=3)
    return bucketize.from_onnx(model, bounds=TINY)


@pytest.fixture(scope="module")
def alone(encoder: Module) -> dict[int, tuple[Array, Array]]:
    """Of each length a row, and what it comes to."""
    exe = bucketize.compile(encoder, invariant=True)
    rng = np.random.default_rng(0)
    rows = {n: rng.integers(0, 30_000, (1, n)) for n in LENGTHS}
    return {n: (ids, exe.run(ids, np.ones_like(ids))[0][0]) for n, ids in rows.items()}


def check(exe: Executable, alone: dict[int, tuple[Array, Array]], rows: int) -> None:
    """Each row in the middle of others, and beside a longer one."""
    rng = np.random.default_rng(1)
    for n, (ids, want) in alone.items():
        batch = rng.integers(0, 30_000, (rows, n))
        batch[rows // 2] = ids
        (got,) = exe.run(batch, np.ones_like(batch))
        np.testing.assert_array_equal(got[rows // 2], want)
        width = min(64, n + 3 + n % 20)
        wide, mask = rng.integers(0, 30_000, (2, width)), np.ones((2, width), np.int64)
        wide[1, :n], mask[1, n:] = ids, 0
        (got,) = exe.run(wide, mask)
        np.testing.assert_array_equal(got[1, :n], want)


@pytest.mark.sweep
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 64])
def test_of_others_and_of_padding(
    encoder: Module, alone: dict[int, tuple[Array, Array]], rows: int
) -> None:
    check(bucketize.compile(encoder, invariant=True), alone, rows)


@pytest.mark.parametrize(
    "dispatcher",
    [
        log_dispatcher,
        uniform_dispatcher.with_options(count=2),
        exact_dispatcher.with_options(sizes=[1, 2, 8]),
    ],
    ids=["log", "uniform", "exact"],
)
def test_of_buckets(encoder: Module, alone: dict[int, tuple[Array, Array]], dispatcher) -> None:
    mod = bucketize.dispatch(encoder, dispatcher)
    check(bucketize.compile(mod, invariant=True, lazy=True), alone, 2)


def test_of_threads(encoder: Module, alone: dict[int, tuple[Array, Array]]) -> None:
    check(bucketize.compile(encoder, invariant=True, threads=2), alone, 4)


def test_of_being_packed(
    encoder: Module, alone: dict[int, tuple[Array, Array]], tmp_path: Path
) -> None:
    exe = bucketize.compile(bucketize.ragged(encoder), invariant=True)
    check(exe, alone, 5)
    exe.save(tmp_path / "net.bkt")
    requests = [
        {"input_ids": ids, "attention_mask": np.ones_like(ids)} for ids, _ in alone.values()
    ]
    for each, tokens in itertools.product(
        (exe, bucketize.load(tmp_path / "net.bkt")), (1, 20, 512)
    ):
        for (got,), (_, want) in zip(
            each.run_many(requests, tokens=tokens), alone.values(), strict=True
        ):
            np.testing.assert_array_equal(got[0], want)


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["mlp", "mobilenetv2", "resnet18"])
def test_of_other_models(name: str) -> None:
    sizes = {"H": 40, "W": 52} if name != "mlp" else {}
    mod = bucketize.from_onnx(zoo.build(name), bounds={"N": (1, 64)})
    exe = bucketize.compile(mod, invariant=True, lazy=True)
    inputs = zoo.inputs(name, {"N": 9, **sizes})
    (want,) = exe.run(**inputs)
    for first, last in ((0, 1), (3, 5), (2, 9), (8, 9)):
        (got,) = exe.run(**{n: a[first:last] for n, a in inputs.items()})
        np.testing.assert_array_equal(got, want[first:last])


POOLED = {
    "mean": "y = ReduceMean <axes = [1], keepdims = 0> (h)",
    "masked": """
        f = Cast <to = 1> (mask)
        u = Unsqueeze (f, last)
        shown = Mul (h, u)
        total = ReduceSum <keepdims = 0> (shown, one)
        count = ReduceSum (f, one)
        y = Div (total, count)""",
    "norm": """
        f = Cast <to = 1> (mask)
        u = Unsqueeze (f, last)
        shown = Mul (h, u)
        y = ReduceL2 <axes = [1], keepdims = 0> (shown)""",
    "weights": """
        each = Gather <axis = 2> (h, zero)
        f = Cast <to = 1> (mask)
        shown = Mul (each, f)
        y = ReduceSum <keepdims = 1> (shown, one)""",
    "dropped": """
        each = Gather <axis = 2> (h, zero)
        f = Cast <to = 1> (mask)
        shown = Mul (each, f)
        y = ReduceSum <keepdims = 0> (shown, one)""",
}
"""Tails of encoders: sums over the tokens of a row, among other axes and as the last one."""


@pytest.mark.parametrize("name", POOLED)
def test_of_pooling_what_is_packed(name: str) -> None:
    mask = ", int64[B, S] mask" if "mask" in POOLED[name] else ""
    graph = f"(float[B, S, 20] x{mask}) => (y) {{ h = MatMul(x, w) {POOLED[name]} }}"
    rng = np.random.default_rng(0)
    model = parse(graph)
    weights = rng.standard_normal((20, 20)).astype(np.float32)
    values = {"w": weights, "one": np.array([1]), "last": np.array([-1]), "zero": np.array(0)}
    for given, value in values.items():
        model.graph.initializer.append(numpy_helper.from_array(value, given))
    exe = bucketize.compile(bucketize.from_onnx(model), invariant=True)
    requests = [{"x": rng.standard_normal((1, n, 20)).astype(np.float32)} for n in LENGTHS * 3]
    if mask:
        requests = [r | {"mask": np.ones(r["x"].shape[:2], np.int64)} for r in requests]
    assert "packed" in str(exe.plan_many(requests))
    for request, (got,) in zip(requests, exe.run_many(requests), strict=True):
        np.testing.assert_array_equal(got, exe.run(**request)[0])


PADDED = {
    "instance norm": "y = InstanceNormalization (x, scale, scale)",
    "layer norm": "y = LayerNormalization <axis = 1> (x, high, high)",
    "sum": "y = ReduceSum (x, last)",
    "sum of a short axis": "y = ReduceSum <keepdims = 0> (x, last)",
    "sum of two axes": "y = ReduceSum (x, both)",
    "mean": "y = ReduceMean <axes = [2]> (x)",
    "mean of two axes": "y = ReduceMean <axes = [1, 2]> (x)",
    "product": "p = Exp(x) y = ReduceProd <axes = [2]> (p)",
    "softmax": "y = Softmax <axis = 2> (x)",
    "log softmax": "y = LogSoftmax <axis = 2> (x)",
    "softmax of columns": "t = Transpose <perm = [0, 2, 1]> (x) y = Softmax <axis = 1> (t)",
    "gram": "t = Transpose <perm = [0, 2, 1]> (x) y = MatMul (x, t)",
    "convolution": "y = Conv <strides = [2]> (x, filter)",
    "strided convolution": "y = Conv <strides = [2], pads = [1, 1]> (x, filter)",
}
"""What sums along an axis that is padded."""


@pytest.mark.parametrize("kind", ["float", pytest.param("double", marks=pytest.mark.sweep)])
@pytest.mark.parametrize("name", PADDED)
def test_of_being_padded(name: str, kind: str) -> None:
    rng, dtype = np.random.default_rng(0), {"float": np.float32, "double": np.float64}[kind]
    model = parse(f"({kind}[N, 16, S] x) => (y) {{ {PADDED[name]} }}")
    values = {
        "scale": rng.standard_normal(16).astype(dtype),
        "high": rng.standard_normal((16, 1)).astype(dtype),
        "last": np.array([2]),
        "both": np.array([1, 2]),
        "filter": rng.standard_normal((8, 16, 3)).astype(dtype),
    }
    for given, value in values.items():
        model.graph.initializer.append(numpy_helper.from_array(value, given))
    mod = bucketize.from_onnx(model, bounds={"N": (1, 4), "S": (4, 160)})
    exe = bucketize.compile(mod, invariant=True)
    clones = bucketize.dispatch(mod, log_dispatcher, policy="pad")
    padded = bucketize.compile(clones, invariant=True, lazy=True)
    for size in (5, 19, 33, 90, 129):
        x = rng.standard_normal((3, 16, size)).astype(dtype)
        np.testing.assert_array_equal(padded.run(x)[0], exe.run(x)[0])


CHANNELS = [pytest.param(n, marks=() if n == 16 else pytest.mark.sweep) for n in (8, 16, 24, 32)]


@pytest.mark.parametrize("stride", [pytest.param(1, marks=pytest.mark.sweep), 2])
@pytest.mark.parametrize("channels", CHANNELS)
def test_of_strips(channels: int, stride: int) -> None:
    """Images so large that convolutions are run in strips: where they end is up to the batch."""
    rng = np.random.default_rng(0)
    graph = f"(float[N, {channels}, 64, 64] x) => (y) {{"
    graph += f" y = Conv <pads = [1, 1, 1, 1], strides = [{stride}, {stride}]> (x, w) }}"
    model = parse(graph)
    weights = rng.standard_normal((32, channels, 3, 3)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    exe, two = (
        bucketize.compile(bucketize.from_onnx(model), invariant=True, threads=n) for n in (1, 2)
    )
    images = rng.standard_normal((3, channels, 64, 64)).astype(np.float32)
    (want,) = exe.run(images)
    np.testing.assert_array_equal(two.run(images)[0], want)
    for k in range(3):
        np.testing.assert_array_equal(exe.run(images[k : k + 1])[0], want[k : k + 1])


def test_without_it_a_lone_row_is_summed_otherwise() -> None:
    """So the tests above can fail."""
    graph = "(float[N, 512] x) => (y) { y = MatMul(x, w) }"
    model = parse(graph)
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((512, 16)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    x = rng.standard_normal((32, 512)).astype(np.float32)
    differ = []
    for invariant in (False, True):
        exe = bucketize.compile(bucketize.from_onnx(model), invariant=invariant)
        differ.append(bool((exe.run(x)[0][:1] != exe.run(x[:1])[0]).any()))
    assert differ == [True, False]


def test_a_log_is_a_path() -> None:
    with pytest.raises(ArgumentError, match="expected the path of a log, got list"):
        bucketize.compile(bucketize.from_onnx(zoo.build("mlp")), log=[1])  # type: ignore[arg-type]


def test_a_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="invariant sums in one order, of which a log"):
        bucketize.compile(
            bucketize.from_onnx(zoo.build("mlp")), invariant=True, log=tmp_path / "t.csv"
        )


@pytest.mark.parametrize(
    ("node", "axes"),
    [
        ("y = ReduceMean <axes = [1, 2, 3]> (x)", (1, 2, 3)),
        ("m = ReduceMean <axes = [2, 3]> (x) y = Sub (x, m)", (2, 3)),
        ("y = InstanceNormalization (x, one, zero)", (2, 3)),
        ("y = LayerNormalization <axis = 1> (x, ones)", (1, 2, 3)),
    ],
)
def test_sums_of_hundreds_of_thousands_keep_their_digits(node: str, axes: tuple[int, ...]) -> None:
    """In one order they are long chains, which of float32 lost all but two or three."""
    shape = 3, 512, 512
    model = parse(f"(float[N, 3, 512, 512] x) => (y) {{ {node} }}")
    given = {"one": np.ones(3), "zero": np.zeros(3), "ones": np.ones(shape)}
    for name, value in given.items():
        tensor = numpy_helper.from_array(value.astype(np.float32), name)
        model.graph.initializer.append(tensor)
    images = np.random.default_rng(0).standard_normal((1, *shape), dtype=np.float32) / 100 + 0.4
    wide = images.astype(np.float64)
    mean = wide.mean(axes, keepdims=True)
    want = {
        "ReduceMean": mean,
        "Sub": wide - mean,
        "InstanceNormalization": (wide - mean) / np.sqrt(wide.var(axes, keepdims=True) + 1e-5),
    }
    want["LayerNormalization"] = want["InstanceNormalization"]
    (got,) = bucketize.compile(bucketize.from_onnx(model), invariant=True).run(images)
    np.testing.assert_allclose(got, want[model.graph.node[-1].op_type], atol=2e-6)
