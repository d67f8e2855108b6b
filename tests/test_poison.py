"""Poisoned padding: what is proved passes, and a rule that lies is reported."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx_model import parse

import bucketize
from bucketize import zoo
from bucketize.cli.group import main
from bucketize.errors import DispatchError
from bucketize.op import FREE
from bucketize.ops.reduce import reduce_max
from bucketize.poison import check_padding
from dispatchers import log_dispatcher

MLP = bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, 9)})


def test_what_is_proved_lets_nothing_through() -> None:
    padded = bucketize.dispatch(MLP, log_dispatcher, policy="pad")
    assert check_padding(MLP, padded, lambda at: zoo.inputs("mlp", at)) == []


def test_no_padded_clone_is_an_error() -> None:
    exact = bucketize.dispatch(MLP, log_dispatcher)
    with pytest.raises(
        DispatchError, match='no clone is padded: dispatch the module with policy="pad"'
    ):
        check_padding(MLP, exact, lambda at: zoo.inputs("mlp", at))


def test_the_command_says_that_nothing_leaks() -> None:
    done = CliRunner().invoke(main, ["check-padding", "zoo:mlp", "--dim", "N=1..9", "-d", "log"])
    assert (done.exit_code, done.output.splitlines()[-1]) == (0, "no padding leaks")


def test_a_rule_that_lies_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = parse("(float[N, 4] x) => (y) <int64[1] a = {0}> { y = ReduceMax(x, a) }", 18)
    mod = bucketize.from_onnx(model, bounds={"N": (1, 9)})
    monkeypatch.setitem(vars(reduce_max), "padding", lambda *_, **__: FREE)
    padded = bucketize.dispatch(mod, log_dispatcher, policy="pad")
    leaks = check_padding(mod, padded, lambda at: {"x": np.full((at["N"], 4), -1, np.float32)})
    assert {leak.poison for leak in leaks} >= {"zero", "inf", "huge"}
    assert {leak.output for leak in leaks} == {"y"}
    onnx.save(model, str(tmp_path / "greatest.onnx"))
    line = ["check-padding", str(tmp_path / "greatest.onnx"), "--dim", "N=1..9", "-d", "log"]
    done = CliRunner().invoke(main, line)
    assert done.exit_code == 1
    assert "main[N=2..3] at N=2: y differs by inf with inf behind it" in done.output
