"""A second process: what it compiles (nothing) and when it has answered its first request."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

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


def main() -> None:
    """Print cold and warm starts of resnet50 from a file."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["BUCKETIZE_CACHE"] = folder
        path = Path(folder) / "resnet50.onnx"
        zoo = [sys.executable, "-m", "bucketize.cli", "zoo", "resnet50", "-o", str(path)]
        subprocess.run(zoo, check=True, capture_output=True, timeout=300)
        for kind in ("undispatched", "dispatched"):
            for place in ("first", "second"):
                built, kernels, inside, whole = started(path, kind)
                print(
                    f"{kind}, {place} process: {built} of {kernels} kernels compiled; "
                    f"first answer after {inside:.2f} s, whole process {whole:.2f} s"
                )


if __name__ == "__main__":
    main()
