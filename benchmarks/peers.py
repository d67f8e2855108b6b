"""Latency beside onnxruntime (and OpenVINO where installed): one run, interleaved, one thread.

Medians and their ratios; outputs are cross-checked. `BUCKETIZE_LOG` names a tuning log to use.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import bucketize
from bucketize import zoo
from bucketize.compare import relative_error
from bucketize.timing import interleaved

Run = Callable[[Mapping[str, Any]], list[Any]]

CASES: list[tuple[str, dict[str, int]]] = [
    ("mlp", {"N": 1}),
    ("mlp", {"N": 17}),
    ("mlp", {"N": 256}),
    ("bert-mini", {"B": 1, "S": 64}),
    ("bert-base", {"B": 1, "S": 128}),
    ("mobilenetv2", {"N": 1, "H": 224, "W": 224}),
    ("resnet18", {"N": 1, "H": 224, "W": 224}),
    ("resnet50", {"N": 1, "H": 224, "W": 224}),
]


def ours(model: Any, name: str) -> Run:
    """Our executable of the undispatched model."""
    module = bucketize.from_onnx(model, bounds=zoo.BOUNDS[name])
    executable = bucketize.compile(module, log=os.environ.get("BUCKETIZE_LOG"))
    return lambda inputs: executable.run(**inputs)


def onnxruntime(model: Any, _name: str) -> Run:
    """The peer that everybody has."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda inputs: session.run(None, dict(inputs))


def openvino(model: Any, _name: str) -> Run:
    """OpenVINO in float32: its default on some machines is bfloat16, which is no peer."""
    import openvino as ov

    core = ov.Core()
    read = core.read_model(model.SerializeToString())
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    request = core.compile_model(read, "CPU", settings).create_infer_request()
    return lambda inputs: list(request.infer(dict(inputs)).values())


def engines() -> dict[str, Callable[[Any, str], Run]]:
    """Those that are installed; ours first."""
    peers = {"onnxruntime": onnxruntime, "openvino": openvino}
    installed = {n: e for n, e in peers.items() if importlib.util.find_spec(n)}
    return {"bucketize": ours, **installed}


def medians_of(
    runs: Mapping[str, Run], inputs: Mapping[str, Any], seconds: float = 6
) -> dict[str, float]:
    """The median seconds of each engine, their calls taking turns."""
    calls = {name: partial(run, inputs) for name, run in runs.items()}
    for call in calls.values():
        call()
    times = interleaved(calls, least=5, enough_s=seconds)
    return {name: statistics.median(t) for name, t in times.items()}


def main() -> None:
    """Print a row for each case."""
    names = engines()
    print(f"{'case':<34}" + "".join(f"{n:>14}" for n in names) + f"{'ratio':>10}{'error':>10}")
    built: dict[str, dict[str, Run]] = {}
    for name, sizes in CASES:
        if name not in built:
            model = zoo.build(name)
            built = {name: {n: make(model, name) for n, make in names.items()}}
        runs, inputs = built[name], zoo.inputs(name, sizes)
        medians = medians_of(runs, inputs)
        outputs = {n: run(inputs)[0] for n, run in runs.items()}
        error = max(relative_error(outputs["bucketize"], o) for o in outputs.values())
        shown = f"{name} " + " ".join(f"{k}={v}" for k, v in sizes.items())
        cells = "".join(f"{medians[n] * 1e3:>11.2f} ms" for n in names)
        ratio = medians["bucketize"] / medians.get("onnxruntime", float("nan"))
        print(f"{shown:<34}{cells}{ratio:>9.2f}x{error:>10.1e}", flush=True)


if __name__ == "__main__":
    main()
