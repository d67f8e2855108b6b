"""Writing architectures as ONNX files, with random weights, by the exporters of torch.

An exporter runs in a process of its own, so that what it imports, prints and breaks is nobody
else's.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.catalog import ARCHITECTURES, Architecture
from bucketize.errors import EngineError

EXPORTERS = ("dynamo", "torchscript")
LIMIT_S = 300  # for one file
FILES = Path("bench-output/architectures")
"""Where files are kept: an export takes longer than what is measured."""
OPSET = 20
NOISE = 0.02  # added to what a weight begins with
RAISED = "raised "  # before what an export says of its end


def file_name(name: str, exporter: str) -> str:
    """How the file of an architecture is called, without a suffix."""
    return f"{name}-{exporter}"


def exported(name: str, exporter: str, folder: Path) -> Path:
    """The file of an architecture, exported unless it is there.

    Raises:
        EngineError: the exporter does not take it; with the last that it said.

    """
    path = folder / f"{file_name(name, exporter)}.onnx"
    if path.exists():
        return path
    unfinished = path.with_suffix(".part")
    command = [sys.executable, "-P", "-m", "benchmarks.export", name, exporter, str(unfinished)]
    paths = os.pathsep.join(p or os.getcwd() for p in sys.path)
    env = {**os.environ, "PYTHONPATH": paths}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=LIMIT_S, env=env
        )
    except subprocess.TimeoutExpired as e:
        raise EngineError(f"{exporter} takes longer than {LIMIT_S} s to export {name}") from e
    if done.returncode:
        raise EngineError(f"{exporter} does not export {name}: {reason(done.stderr)}")
    os.replace(unfinished, path)
    return path


def reason(said: str) -> str:
    """What an export raised, or else the last that it said."""
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["nothing"]
    raised = [line.removeprefix(RAISED) for line in lines if line.startswith(RAISED)]
    return (raised or lines)[-1]


def export(made: Architecture, exporter: str, path: Path) -> None:
    """Write the file of an architecture, its weights inside."""
    torch: Any = importlib.import_module("torch")
    torch.manual_seed(0)
    names = list(made.inputs)
    model = bare(torch, made, names).eval()
    with torch.no_grad():
        for weights in model.parameters():  # some begin as zeros, and hide what is before them
            weights.add_(torch.randn_like(weights), alpha=NOISE)
    # 1 would be a constant to the exporter: an extent that it may not call dynamic
    sizes = {symbol: max(2, size) for symbol, size in made.points[0].items()}
    given = tuple(torch.from_numpy(array) for array in made.arrays(sizes).values())
    axes = {name: each.axes for name, each in made.inputs.items()}
    dynamic: dict[str, Any] = {"dynamic_axes": axes}
    if exporter == "dynamo":
        dynamic = {"dynamic_shapes": (tuple(axes.values()),), "external_data": False}
    torch.onnx.export(
        model,
        given,
        path,
        **dynamic,
        input_names=names,
        output_names=list(made.outputs),
        dynamo=exporter == "dynamo",
        opset_version=OPSET,
    )


def bare(torch: Any, made: Architecture, names: Sequence[str]) -> Any:
    """A module from tensors, in this order, to what is exported."""

    class Bare(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = made.make()

        def forward(self, *given: Any) -> Any:
            return made.take(self.model(**dict(zip(names, given, strict=True))))

    return Bare()


def main() -> None:
    """Export in this process what the arguments name: architecture, exporter, path."""
    name, exporter, path = sys.argv[1:]
    try:
        export(ARCHITECTURES[name], exporter, Path(path))
    except Exception as e:  # whatever an exporter raises
        first: BaseException = e
        while first.__cause__ is not None:
            first = first.__cause__
        told = next(line for line in [*str(first).splitlines(), "nothing"] if line.strip())
        sys.exit(f"{RAISED}{type(first).__name__}: {told}")


if __name__ == "__main__":
    main()
