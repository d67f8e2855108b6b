"""A replica without Ray, which `test_ray` puts it into."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bucketize
from bucketize import zoo
from bucketize.errors import ArgumentError, CompileError, EngineError, ShapeError, UnknownNameError
from bucketize.integrations.ray import Replica, Terms, deployment

X = np.linspace(-1, 1, 3 * 784, dtype=np.float32).reshape(3, 784)


def mlp() -> bucketize.Executable:
    return bucketize.compile(bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, 64)}))


def replica(model: Any = mlp, **terms: Any) -> Replica:
    usual = {"name": "mlp", "trusted": False, "limit_bytes": None, "latency_s": None}
    return Replica(model, Terms(**{**usual, "body_bytes": 1000, "most": 8, "cores": 1.0, **terms}))


def test_it_answers_by_name_and_counts() -> None:
    its = replica()
    (want,) = mlp().run(X)
    got = asyncio.run(its.infer({"data": X}))
    assert list(got) == ["output"]
    np.testing.assert_array_equal(got["output"], want, strict=True)
    traffic = asyncio.run(its.traffic())
    assert traffic is not None
    assert traffic.histogram("N") == {3: 1}
    with pytest.raises(ShapeError, match="axis 1: expected 784, got 3") as e:
        asyncio.run(its.infer({"data": X[:, :3]}))
    assert e.value.notes == ()


@pytest.mark.parametrize(
    ("feed", "error", "message"),
    [
        (X, ArgumentError, "expected a mapping of arrays by input, got ndarray"),
        ({"data": X.tolist()}, ShapeError, "input 'data': expected float32, got float64"),
        ({"data": None}, ShapeError, "input 'data': expected float32, got object"),
        ({"data": [[1], [1, 2]]}, ArgumentError, "expected arrays by input: "),
        ({1: X}, UnknownNameError, "no input named '1'"),
    ],
)
def test_what_is_no_feed_is_told(feed: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        asyncio.run(replica().infer(feed))


def test_its_application_is_that_of_the_server() -> None:
    its = replica()
    paths = {route.path for route in its.__serve_build_asgi_app__().routes}
    assert {"/v2/models/{model}/infer", "/v2/health/ready", "/metrics"} <= paths
    assert (list(its._server.versions), its._server.most_bytes) == (["mlp"], 1000)


def test_memory_is_limited() -> None:
    weights = mlp().constant_bytes()
    with pytest.raises(CompileError, match=f"weights take {weights:,} bytes"):
        replica(limit_bytes=1000)
    its = replica(limit_bytes=weights + 1000)
    with pytest.raises(ShapeError, match=r"the call takes .* bytes, and 1,000 are left by a limit"):
        asyncio.run(its.infer({"data": np.zeros((64, 784), np.float32)}))


def test_it_opens_a_file(tmp_path: Path) -> None:
    mlp().save(tmp_path / "m.bkt")
    got = asyncio.run(replica(tmp_path / "m.bkt").infer({"data": X}))
    np.testing.assert_array_equal(got["output"], mlp().run(X)[0], strict=True)


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"latency_s": "50ms"}, "latency_s: expected seconds above 0, got '50ms'"),
        ({"latency_s": 0}, "latency_s: expected seconds above 0, got 0"),
        ({"body_bytes": 0}, "body_bytes: expected a number from 1, got 0"),
        ({"limit_bytes": -1}, "limit_bytes: expected a number from 1, got -1"),
    ],
)
def test_terms_are_checked_before_there_are_replicas(terms: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{message}$"):
        deployment("model.bkt", **terms)


def test_without_ray_it_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ray", "ray.serve"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(EngineError, match=r"Ray Serve is not installed: pip install 'bucketize\["):
        deployment("model.bkt")
