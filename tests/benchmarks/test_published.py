"""Models that packages carry, but for fetching them: from a wheel to a row, or to a reason."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from onnx_model import parse

from benchmarks import published
from benchmarks.published import MODELS, Published, fetched, main
from bucketize.errors import EngineError

Patch = pytest.MonkeyPatch
MODEL = parse("(float[N, 3] x) => (y) { y = Relu(x) }")


def wheel(folder: Path, package: str, **files: bytes) -> None:
    (folder / "wheels" / package).mkdir(parents=True)
    with zipfile.ZipFile(folder / "wheels" / package / "p-1-py3-none-any.whl", "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: Patch) -> Path:
    """A folder with wheels of three models, of which one is not there and one cannot be read."""

    def model(file: str) -> Published:
        sizes = [{"N": 2}, {"N": 5}]
        return Published("p==1", file, published.pixels("x", "N", 3), sizes)

    names = {"a, b": model("good"), "gone": model("nowhere"), "odd": model("bad")}
    monkeypatch.setattr(published, "MODELS", names)
    wheel(tmp_path, "p==1", good=MODEL.SerializeToString(), bad=b"no model")
    return tmp_path


def test_rows_and_reasons(packages: Path) -> None:
    for _ in range(2):  # the second one reads them again
        one = CliRunner().invoke(main, ["--seconds", "0", "--out", str(packages)])
        assert one.exit_code == 0, one.output
        assert "a, b, 1 thread" in one.output
        assert "p-1-py3-none-any.whl has no nowhere" in one.output
        assert "odd.onnx" in one.output
    assert (packages / "a-b.onnx").exists()
    lines = (packages / "cells.csv").read_text().splitlines()
    assert sum(line.startswith('"a, b",N=5,') for line in lines) > 1


def test_what_pip_does_not_fetch(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(published, "MODELS", {"a": Published("../p", "m", lambda *_: {}, [])})
    with pytest.raises(EngineError, match=r"pip does not fetch \.\./p: "):
        fetched("a", tmp_path)
    monkeypatch.setattr(published, "FETCH_S", 0.001)
    with pytest.raises(EngineError, match=r"\.\./p takes longer than 0.001 s to fetch"):
        fetched("a", tmp_path)


@pytest.mark.parametrize("name", MODELS)
def test_inputs_are_the_same_whenever_they_are_made(name: str) -> None:
    its = MODELS[name]
    for sizes in its.points:
        for one, other in zip(its.arrays(sizes).values(), its.arrays(sizes).values(), strict=True):
            np.testing.assert_array_equal(one, other)
    assert "==" in its.package
