"""What other engines take layer by layer, as far as they tell."""

from __future__ import annotations

import importlib
import json
import tempfile
from bisect import bisect_right
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
import pandas as pd

from bucketize.analysis.engines import engine_of, ort_options
from bucketize.errors import EngineError, unknown_name
from bucketize.inspect.profile import iqr
from bucketize.op import Array

TELLING = ("onnxruntime",)
"""Engines that tell."""
KERNEL = "_kernel_time"
"""How the names of events end that are kernels."""
WEIGHTS_APART = "session.optimized_model_external_initializers_file_name"
"""The option for a file of weights beside the optimised model: one file holds 2 GB at most."""
BLOCKED, FUSED = "_nchwc", "fused "
"""What onnxruntime makes of names: of tensors that convolutions write in blocks of channels, and of
nodes that an activation went into."""


def engine_layers(
    engine: str,
    model: str | Path,
    inputs: Mapping[str, Array],
    threads: int = 1,
    *,
    repetitions: int = 20,
) -> pd.DataFrame:
    """What each layer of an engine takes, by its own profiler.

    Args:
        engine: its name: "onnxruntime".
        model: the path of an ONNX file.
        inputs: arrays by the name of the input.
        threads: that it may use.
        repetitions: calls that are timed, after one that is not.

    Returns:
        A row for each node that is left after the engine's fusions, in order, with name (of the
        model's node, where the engine has kept it), op, time_s (the median; a node in a loop counts
        as often as it runs), iqr_s (the distance between the quartiles).

    Raises:
        EngineError: the engine is not installed, or does not run the model.
        UnknownNameError: it tells no times of layers.

    """
    if engine not in TELLING:
        raise unknown_name("engine that tells times of layers", engine, TELLING)
    engine_of(engine)
    path = Path(model)
    try:
        events, written = _events(path, inputs, threads, repetitions + 1)
    except Exception as e:  # whatever the engine raises
        raise EngineError(f"{engine} does not run {path.name}: {e}") from e
    frame = _frame(events, _writers(path), written)
    timed = frame[frame["call"] > 1]  # the first is colder than those that follow
    each = timed.groupby(["call", "name", "op"], sort=False)["time_s"].sum()
    by_layer = each.groupby(["name", "op"], sort=False)
    return by_layer.agg(time_s="median", iqr_s=iqr).reset_index()


def _events(
    model: Path, inputs: Mapping[str, Array], threads: int, calls: int
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """What onnxruntime's profiler writes of some calls; and by node, what each one left writes."""
    ort: Any = importlib.import_module("onnxruntime")
    with tempfile.TemporaryDirectory() as folder:
        options = ort_options(threads)
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "profile")
        options.optimized_model_filepath = str(Path(folder) / "left.onnx")
        options.add_session_config_entry(WEIGHTS_APART, "weights")
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        for _ in range(calls):
            session.run(None, dict(inputs))
        events: list[dict[str, Any]] = json.loads(Path(session.end_profiling()).read_text())
        graph = onnx.load(options.optimized_model_filepath, load_external_data=False).graph
        return events, {node.name: node.output[0] for node in graph.node}


def _writers(model: Path) -> dict[str, str]:
    """By the name of a tensor the node that writes it."""
    graph = onnx.load(model, load_external_data=False).graph
    return {out: node.name for node in graph.node for out in node.output if node.name}


def _frame(
    events: list[dict[str, Any]], writers: Mapping[str, str], written: Mapping[str, str]
) -> pd.DataFrame:
    """The kernels in the order in which they ran, with the number of their call."""
    begun = sorted(e["ts"] for e in events if e["name"] == "model_run")
    kernels = [e for e in events if e["cat"] == "Node" and e["name"].endswith(KERNEL)]
    rows = [
        {
            "call": bisect_right(begun, e["ts"]),
            "name": _name(e["name"].removesuffix(KERNEL), writers, written),
            "op": e["args"]["op_name"],
            "time_s": e["dur"] / 1e6,
        }
        for e in sorted(kernels, key=lambda e: e["ts"])
    ]
    return pd.DataFrame(rows, columns=["call", "name", "op", "time_s"])


def _name(name: str, writers: Mapping[str, str], written: Mapping[str, str]) -> str:
    """The node's name, without what the engine put to it, or that of what it writes as well."""
    plain = name.removeprefix(FUSED)
    if plain in writers.values():
        return plain
    return writers.get(plain.removesuffix(BLOCKED), writers.get(written.get(name, ""), plain))
