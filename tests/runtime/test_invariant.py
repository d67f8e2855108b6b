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


def test_a_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="invariant sums in one order, of which a log"):
        bucketize.compile(
            bucketize.from_onnx(zoo.build("mlp")), invariant=True, log=tmp_path / "t.csv"
        )
