"""Latency beside the engines that are installed: one run, calls taking turns, one thread.

Medians and paired ratios; outputs are cross-checked. `BUCKETIZE_LOG` names a tuning log to use.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import onnx

import bucketize
from bucketize import zoo
from bucketize.analysis import ENGINES, bench, session
from bucketize.analysis.benchmark import OURS
from bucketize.analysis.engines import Run
from bucketize.runtime.executable import Executable

ROUNDS = 40

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


@contextmanager
def peers(model: onnx.ModelProto, names: list[str]) -> Iterator[dict[str, Run]]:
    """What runs the model in other engines, for as long as the context lasts."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        yield {name: session(name, path).run for name in names}


def called(exe: Executable, inputs: Mapping[str, Any]) -> Any:
    """One call of ours."""
    return exe.run(**inputs)


def main() -> None:
    """Print a row for each case."""
    names = [name for name, engine in ENGINES.items() if engine.is_installed]
    columns = "".join(f"{n:>14}" for n in (OURS, *names))
    print(f"{'case':<34}{columns}{'ratio':>10}{'error':>10}")
    for name in dict.fromkeys(name for name, _ in CASES):
        model = zoo.build(name)
        module = bucketize.from_onnx(model, bounds=zoo.BOUNDS[name])
        exe = bucketize.compile(module, log=os.environ.get("BUCKETIZE_LOG"))
        with peers(model, names) as others:
            runs: dict[str, Run] = {OURS: partial(called, exe), **others}
            for sizes in (sizes for case, sizes in CASES if case == name):
                frame = bench(runs, zoo.inputs(name, sizes), ROUNDS).set_index("engine")
                shown = f"{name} " + " ".join(f"{k}={v}" for k, v in sizes.items())
                cells = "".join(f"{s * 1e3:>11.2f} ms" for s in frame["time_s"])
                ratio, error = frame["ratio"].get("onnxruntime", float("nan")), frame["error"].max()
                print(f"{shown:<34}{cells}{ratio:>9.2f}x{error:>10.1e}", flush=True)


if __name__ == "__main__":
    main()
