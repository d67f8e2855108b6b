"""Decoding token by token, with a decoder of one layer in place of those that torch exports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import helper, numpy_helper

from benchmarks import decode
from benchmarks.__main__ import main
from benchmarks.catalog import Architecture, Input
from bucketize.errors import EngineError

Patch = pytest.MonkeyPatch

WORDS, WIDTH = 1000, 4
PAST = Input(("B", 1, "P", WIDTH))
TINY = Architecture(
    lambda: pytest.fail("made"),
    {"input_ids": Input(("B", "S"), "words"), "past_key_0": PAST, "past_value_0": PAST},
    [{"B": 1, "S": 1, "P": 4}],
)


def tiny(path: Path) -> None:
    """The last words' rows of a table, and the past grown by them; logits are of its sum."""
    dice = np.random.default_rng(0)
    table, back = dice.standard_normal((2, WORDS, WIDTH), np.float32)
    made = {"table": table, "back": back.T.copy(), "one": np.array([1]), "rows": np.array([2])}
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["read"]),
        helper.make_node("Unsqueeze", ["read", "one"], ["new"]),
        helper.make_node("Concat", ["past_key_0", "new"], ["key_0"], axis=2),
        helper.make_node("Concat", ["past_value_0", "new"], ["value_0"], axis=2),
        helper.make_node("ReduceMean", ["key_0", "rows"], ["seen"], keepdims=0),
        helper.make_node("Add", ["read", "seen"], ["state"]),
        helper.make_node("MatMul", ["state", "back"], ["logits"]),
    ]
    past = ["B", 1, "P", WIDTH]
    inputs = [
        helper.make_tensor_value_info("input_ids", 7, ["B", "S"]),
        *(helper.make_tensor_value_info(f"past_{part}_0", 1, past) for part in ("key", "value")),
    ]
    outputs = [
        helper.make_tensor_value_info("logits", 1, ["B", "S", WORDS]),
        *(helper.make_tensor_value_info(f"{part}_0", 1, None) for part in ("key", "value")),
    ]
    weights = [numpy_helper.from_array(array, name) for name, array in made.items()]
    graph = helper.make_graph(nodes, "tiny", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)


def test_a_decoder_goes_on_with_its_own_results(tmp_path: Path, monkeypatch: Patch) -> None:
    def stands_in(name: str, exporter: str, folder: Path) -> Path:
        if name == "llama-cache":
            raise EngineError(f"{exporter} does not export llama-cache: TypeError")
        tiny(folder / "tiny.onnx")
        return folder / "tiny.onnx"

    monkeypatch.setattr(decode, "exported", stands_in)
    for name in decode.DECODERS:
        monkeypatch.setitem(decode.ARCHITECTURES, name, TINY)  # type: ignore[arg-type]
    asked = ["decode", "-e", "dynamo", "--tokens", "5", "-d", "log:base=4", "--out", str(tmp_path)]
    result = CliRunner().invoke(main, asked)
    assert result.exit_code == 0, result.output
    assert "llama-cache-dynamo: dynamo does not export llama-cache: TypeError" in result.stderr
    rows: list[Any] = [line.split() for line in result.stdout.splitlines()[1:]]
    names = ["bucketize", "bucketize dispatched", "onnxruntime"]
    assert [" ".join(row[1:-5]) for row in rows] == names
    assert all(float(row[-1]) < 1e-5 for row in rows)
