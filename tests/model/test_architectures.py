"""Exported architectures beside onnxruntime, but for torch, whose place the zoo's mlp takes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas as pd
import pytest
from click.testing import CliRunner, Result

import bucketize
from benchmarks import architectures, export
from benchmarks.__main__ import main as benchmarks_main
from benchmarks.architectures import PEER
from benchmarks.catalog import ARCHITECTURES, BOUNDS, Architecture, Input
from benchmarks.cell import Cell
from benchmarks.export import exported, reason
from benchmarks.side import PEERS
from bucketize import zoo
from bucketize.analysis.benchmark import OURS
from bucketize.analysis.engines import Engine
from bucketize.errors import EngineError

pytestmark = pytest.mark.usefixtures("few_registers")

Patch = pytest.MonkeyPatch
MLP = Architecture(lambda: pytest.fail("made"), {"data": Input(("N", 784))}, [{"N": 2}, {"N": 3}])


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_points_are_within_bounds(name: str) -> None:
    made = ARCHITECTURES[name]
    assert made.bounds.keys() <= BOUNDS.keys()
    for sizes in made.points:
        assert sizes.keys() == made.bounds.keys()
        assert all(lo <= sizes[s] <= hi for s, (lo, hi) in made.bounds.items())


def test_inputs_are_the_same_every_time() -> None:
    for kind, dtype in (("floats", np.float32), ("words", np.int64), ("ones", np.int64)):
        each = Input(("B", 3), kind)
        array = each.array({"B": 2})
        assert (array.shape, array.dtype) == ((2, 3), dtype)
        np.testing.assert_array_equal(array, each.array({"B": 2}))
        assert each.axes == {0: "B"}


# --- exporting ---


def said(code: int, text: str) -> Any:
    return lambda command, **_: subprocess.CompletedProcess(command, code, "", text)


def test_a_file_is_exported_once(tmp_path: Path, monkeypatch: Patch) -> None:
    def write(command: Sequence[str], **_: Any) -> Any:
        Path(command[-1]).write_text("a model")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", write)
    path = exported("gpt2", "dynamo", tmp_path)
    assert path == tmp_path / "gpt2-dynamo.onnx"
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("exported again"))
    assert exported("gpt2", "dynamo", tmp_path).read_text() == "a model"


def test_an_export_that_fails_says_why(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(subprocess, "run", said(1, "raised TypeError: no such op\nbye\n"))
    with pytest.raises(EngineError, match=r"^dynamo does not export gpt2: TypeError: no such op$"):
        exported("gpt2", "dynamo", tmp_path)

    def late(command: Sequence[str], **_: Any) -> Any:
        raise subprocess.TimeoutExpired(command, 1)

    monkeypatch.setattr(subprocess, "run", late)
    with pytest.raises(EngineError, match=r"^dynamo takes longer than 300 s to export gpt2$"):
        exported("gpt2", "dynamo", tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "told"),
    [("", "nothing"), ("a\n b \n\n", "b"), ("raised E: what\n at exit", "E: what")],
)
def test_the_reason_is_what_was_raised_or_said_last(text: str, told: str) -> None:
    assert reason(text) == told


def test_what_an_exporter_raises_first_is_told(monkeypatch: Patch) -> None:
    def broken(*_: Any) -> None:
        try:
            raise TypeError("\nno such op\nsee below")
        except TypeError as e:
            raise RuntimeError("step 2 of 3") from e

    monkeypatch.setattr(export, "export", broken)
    monkeypatch.setattr("sys.argv", ["export", "gpt2", "dynamo", "out"])
    with pytest.raises(SystemExit, match=r"^raised TypeError: no such op$"):
        export.main()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the older exporter
@pytest.mark.parametrize("exporter", export.EXPORTERS)
def test_an_export_has_dynamic_axes(exporter: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")

    class Twice(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, data: Any) -> Any:
            return (data + data,)

    made = Architecture(Twice, MLP.inputs, MLP.points)
    export.export(made, exporter, tmp_path / "model.onnx")
    mod = bucketize.from_onnx(tmp_path / "model.onnx", bounds={"N": (1, 8)})
    x = np.ones((5, 784), np.float32)
    (got,) = bucketize.compile(mod).run(data=x)
    np.testing.assert_array_equal(got, x + x)


# --- the command ---


@pytest.fixture
def small(monkeypatch: Patch) -> None:
    """The mlp in place of all, but llama, which nobody exports, and bert, which is no model."""

    def stands_in(name: str, exporter: str, folder: Path) -> Path:
        if name == "llama":
            raise EngineError(f"{exporter} does not export llama: TypeError")
        path = folder / f"{name}-{exporter}.onnx"
        if name == "bert":
            path.write_bytes(b"?")
        else:
            onnx.save(zoo.build("mlp"), path)
        return path

    monkeypatch.setattr(architectures, "exported", stands_in)
    monkeypatch.setattr(architectures, "LEAST", 2)
    for name in ("gpt2", "llama", "bert"):
        monkeypatch.setitem(ARCHITECTURES, name, MLP)  # type: ignore[arg-type]


@pytest.fixture
def warm(small: None, monkeypatch: Patch) -> None:
    """The same, for what is not about compiling: kernels are those of other tests."""
    monkeypatch.setattr(architectures, "kernels", lambda *_, **__: nullcontext())


def studied(out: Path, *names: str) -> Result:
    asked = [part for name in names for part in ("-m", name)]
    given = ["architectures", *asked, "-e", "dynamo", "--seconds", "0", "--out", str(out)]
    return CliRunner().invoke(benchmarks_main, given)


def test_a_study_has_a_row_for_each_size_and_reasons_for_the_rest(
    warm: None, tmp_path: Path
) -> None:
    result = studied(tmp_path, "gpt2", "llama", "bert")
    assert result.exit_code == 0, result.output
    head, *lines = result.stdout.splitlines()
    assert head.split()[:3] == ["model", "sizes", "ms"]
    assert [line.split()[:2] for line in lines[:2]] == [["gpt2-dynamo", f"N={n}"] for n in (2, 3)]
    assert lines[2].startswith(f"by {PEER}: geometric mean ")
    assert "llama-dynamo: dynamo does not export llama: TypeError" in lines
    assert any(line.startswith("bert-dynamo: ") and "no ONNX model" in line for line in lines)
    files, cells = (pd.read_csv(tmp_path / f"{name}.csv") for name in ("files", "cells"))
    assert list(files["why"].isna()) == [True, False, False]
    assert (files["cold_s"][0] > 0, files["kernels"][0] > 0) == (True, True)
    assert list(cells["engine"]) == 2 * [OURS, PEER]
    assert (cells["error"] < 1e-4).all()
    assert (cells["flops"] > 0).all()


def test_a_study_goes_on(small: None, tmp_path: Path, monkeypatch: Patch) -> None:
    real = Cell.rows

    def interrupted(self: Cell, *given: Any) -> Any:
        if self.sizes["N"] == 3:
            raise KeyboardInterrupt
        return real(self, *given)

    monkeypatch.setattr(Cell, "rows", interrupted)
    result = studied(tmp_path, "llama", "gpt2")
    assert (result.exit_code, "goes on" in result.stderr) == (130, True)
    monkeypatch.setattr(Cell, "rows", real)
    first = pd.read_csv(tmp_path / "files.csv")
    assert studied(tmp_path, "llama", "gpt2").exit_code == 0
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "files.csv"), first)
    assert list(pd.read_csv(tmp_path / "cells.csv")["sizes"]) == ["N=2", "N=2", "N=3", "N=3"]
    monkeypatch.setattr(architectures, "exported", lambda *_: pytest.fail("begun again"))
    assert studied(tmp_path, "llama", "gpt2").exit_code == 0


def test_a_study_compiles_without_kernels(small: None, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("BUCKETIZE_CACHE", str(tmp_path / "mine"))
    stale = tmp_path / "gpt2-dynamo.kernels" / "stale"
    stale.parent.mkdir()
    stale.touch()
    assert studied(tmp_path, "gpt2").exit_code == 0
    assert not stale.exists()
    assert not (tmp_path / "mine").exists()
    assert list(stale.parent.iterdir())
    monkeypatch.delenv("BUCKETIZE_CACHE")
    with architectures.kernels(tmp_path / "other", kept=True):
        pass
    assert "BUCKETIZE_CACHE" not in os.environ


def test_a_wrong_output_is_no_time(warm: None, tmp_path: Path, monkeypatch: Patch) -> None:
    odd = Engine("json", "numpy", lambda *_: (lambda x: [np.full((len(x["data"]), 10), 9.0)], ""))
    monkeypatch.setitem(PEERS, PEER, odd)  # type: ignore[arg-type]
    told = studied(tmp_path, "gpt2").stdout
    assert "gpt2-dynamo at N=2: bucketize: its outputs are apart" in told
    assert "geometric mean" not in told


def test_a_file_that_the_other_does_not_take(
    warm: None, tmp_path: Path, monkeypatch: Patch
) -> None:
    absent = Engine("no_such_module", "the-package", lambda *_: pytest.fail("started"))
    monkeypatch.setitem(PEERS, PEER, absent)  # type: ignore[arg-type]
    told = studied(tmp_path, "gpt2").stdout
    assert f"gpt2-dynamo at N=2: {PEER} is not installed" in told
    row = told.splitlines()[1].split()
    assert row[:2] + row[3:5] == ["gpt2-dynamo", "N=2", "-", "-"]
