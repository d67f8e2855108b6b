"""A second process: what it compiles (nothing) and when it has answered its first request."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.figure import EXACT, Figure

SCRIPT = """
import sys, time
start = time.perf_counter()
import numpy as np
import bucketize
from dispatchers import log_dispatcher
module = bucketize.from_onnx(sys.argv[1], bounds={"N": (1, 32), "H": (32, 512), "W": (32, 512)})
if sys.argv[2] == "dispatched":
    module = bucketize.dispatch(module, log_dispatcher)
executable = bucketize.compile(module, lazy=True)
x = np.zeros((1, 3, 224, 224), np.float32)
executable.run(data=x)
print(executable.counts.built, executable.counts.kernels, time.perf_counter() - start)
"""


def started(path: Path, kind: str) -> tuple[int, int, float, float]:
    """Kernels compiled, kernels in all, seconds inside and of the whole process."""
    start = time.perf_counter()
    command = [sys.executable, "-c", SCRIPT, str(path), kind]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    built, kernels, inside = done.stdout.split()
    return int(built), int(kernels), float(inside), time.perf_counter() - start


def written(model: str, folder: str) -> Path:
    """The file of a model, beside an empty cache."""
    os.environ["BUCKETIZE_CACHE"] = folder
    path = Path(folder) / f"{model}.onnx"
    zoo = [sys.executable, "-m", "bucketize.cli", "zoo", model, "-o", str(path)]
    subprocess.run(zoo, check=True, capture_output=True, timeout=300)
    return path


def main() -> None:
    """Print cold and warm starts of resnet50 from a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = written("resnet50", folder)
        for kind in ("undispatched", "dispatched"):
            for place in ("first", "second"):
                built, kernels, inside, whole = started(path, kind)
                print(
                    f"{kind}, {place} process: {built} of {kernels} kernels compiled; "
                    f"first answer after {inside:.2f} s, whole process {whole:.2f} s"
                )


def quick() -> list[Figure]:
    """resnet18 from a file: one cold start, three warm ones."""
    with tempfile.TemporaryDirectory() as folder:
        path = written("resnet18", folder)
        (built, _, cold, _), *warm = (started(path, "undispatched") for _ in range(4))
    return [
        Figure.of("resnet18, kernels compiled", EXACT, [built]),
        Figure.of("resnet18, first answer, cold", "s", [cold]),
        Figure.of("resnet18, first answer, warm", "s", [inside for _, _, inside, _ in warm]),
        Figure.of("resnet18, compiled when warm", EXACT, [one for one, *_ in warm]),
    ]


if __name__ == "__main__":
    main()
