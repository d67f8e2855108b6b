"""`bucketize export`: what it writes, and how errors end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner, Result

from bucketize import zoo
from bucketize.cli.command import export
from bucketize.cli.group import main

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `bucketize export` in an empty directory; unexpected exceptions fail the test."""
    monkeypatch.chdir(tmp_path)

    def run(*args: str) -> Result:
        result = CliRunner().invoke(main, ["export", *args])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


def agrees(path: str) -> None:
    """Whether a file computes what the MLP of the zoo does."""
    inputs = zoo.inputs("mlp", {"N": 5})
    session = onnxruntime.InferenceSession(path)
    want = onnxruntime.InferenceSession(zoo.build("mlp").SerializeToString()).run(None, inputs)
    np.testing.assert_allclose(session.run(None, inputs)[0], want[0], 1e-5, 1e-5)


def test_it_writes_a_file_that_other_engines_run(run: Run) -> None:
    told = run("zoo:mlp", "--dim", "N=1..7", "-d", "log", "-o", "mlp.onnx").stdout
    assert told.splitlines() == [
        "mlp.onnx: opset 24, 3 functions, 7.1 MiB",
        "  input data: float32[N, 784]",
        "  output output: float32[N, 10]",
    ]
    agrees("mlp.onnx")


def test_what_it_wrote_as_json(run: Run) -> None:
    args = ("zoo:mlp", "--dim", "N=1..7", "-d", "exact:sizes=1,7", "-o", "mlp.onnx", "--json")
    told = json.loads(run(*args).stdout)
    assert told.pop("bytes") == Path("mlp.onnx").stat().st_size
    assert told == {
        "path": "mlp.onnx",
        "opset": 24,
        "functions": {
            "main[N=1]": "main_N_1",
            "main[N=2..6]": "main_N_2_6",
            "main[N=7]": "main_N_7",
        },
        "inputs": {"data": "float32[N, 784]"},
        "outputs": {"output": "float32[N, 10]"},
        "symbols": {"N": [1, 7]},
    }


def test_without_a_dispatcher_the_model_is_as_it_is(run: Run) -> None:
    run("zoo:mlp", "-o", "mlp.onnx")
    model = onnx.load("mlp.onnx")
    assert not model.functions
    assert {n.op_type for n in model.graph.node} == {*("MatMul", "Add", "Relu", "Identity")}
    agrees("mlp.onnx")


def test_weights_that_one_file_cannot_hold_lie_beside_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "LIMIT", 1_000_000)
    for _ in range(2):  # the second time in their place, not behind them
        run("zoo:mlp", "-d", "log", "-o", "mlp.onnx")
    assert (tmp_path / "mlp.onnx").stat().st_size < 100_000
    assert 7_000_000 < (tmp_path / "mlp.onnx.data").stat().st_size < 8_000_000
    agrees("mlp.onnx")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["zoo:mlp"], "error: Missing option '--output' / '-o'."),
        (["zoo:mlp", "-o", "no/where.onnx"], "there is no directory no"),
        (["zoo:mlp", "-d", "lag", "-o", "a.onnx"], "error: no dispatcher named 'lag'; known:"),
        (["zoo:mlp", "-d", "log", "--at", "N=1", "-o", "a.onnx"], "--at is for -d oracle"),
        (["none.onnx", "-o", "a.onnx"], "error: cannot read none.onnx: No such file"),
    ],
)
def test_errors_exit_with_2(run: Run, args: list[str], message: str) -> None:
    result = run(*args)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not Path("a.onnx").exists()
