"""Inputs of unknown rank beside all that wants shapes: commands, tuning, saved programs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner, Result
from onnx_model import parse

import bucketize
from bucketize.cli.group import main
from bucketize.errors import TuneError

GRAPH = "(float[] x, float[4, 4] w) => (y) { m = Relu(x) t = MatMul(m, w) y = Softmax(t) }"
X, W = np.ones((2, 4), np.float32), np.eye(4, dtype=np.float32)
NOTHING_TOLD = (
    "input 'x' is float32[...], of which no random array can be made: `run` and `profile`"
)

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command beside a model and an input for it; unexpected exceptions fail the test."""
    monkeypatch.chdir(tmp_path)
    onnx.save(parse(GRAPH), "net.onnx")
    np.save("x.npy", X)

    def run(*args: str) -> Result:
        result = CliRunner().invoke(main, args)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


def test_a_saved_program_runs_in_a_process_that_never_read_onnx(tmp_path: Path) -> None:
    exe = bucketize.compile(bucketize.from_onnx(parse(GRAPH)))
    exe.save(tmp_path / "net.bkt")
    code = (
        "import bucketize, numpy as np, sys; exe = bucketize.load(sys.argv[1]); "
        "print(exe.run(np.ones((2, 4), 'f4'), np.eye(4, dtype='f4'))[0].tolist())"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "net.bkt")]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == str(np.full((2, 4), 0.25).tolist())


def test_it_runs_on_arrays_that_are_given(run: Run) -> None:
    for command in ("run", "profile"):
        done = run(command, "net.onnx", "--input", "x=x.npy")
        assert done.exit_code == 0, done.output


@pytest.mark.parametrize("command", ["run", "profile", "bench"])
def test_no_array_is_made_up(run: Run, command: str) -> None:
    done = run(command, "net.onnx")
    assert done.exit_code == 2
    assert NOTHING_TOLD in done.stderr


def test_it_is_shown(run: Run) -> None:
    done = run("show", "net.onnx")
    assert done.exit_code == 0
    assert "+0.0 %  default" in done.stdout


def test_it_is_exported(run: Run) -> None:
    done = run("export", "net.onnx", "-o", "out.onnx")
    assert done.exit_code == 0
    (y,) = onnxruntime.InferenceSession("out.onnx").run(None, {"x": X, "w": W})
    np.testing.assert_allclose(y, np.full((2, 4), 0.25), rtol=1e-6)


def test_it_is_not_tuned(tmp_path: Path) -> None:
    with pytest.raises(TuneError, match=r"input 'x' is float32\[\.\.\.\], of which only a run"):
        bucketize.tune(bucketize.from_onnx(parse(GRAPH)), log=tmp_path / "log.csv")


def test_the_command_line_is_a_module() -> None:
    command = [sys.executable, "-m", "bucketize", "--version"]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert told.stdout.startswith("python -m bucketize, version ")
