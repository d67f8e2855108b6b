"""resnet50 from one file: from the start of a process to the first answer, nothing else at hand."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import bucketize
from bucketize import zoo

ROOT = Path(__file__).parent.parent
SCRIPT = """
import sys
import numpy as np
import bucketize
exe = bucketize.load(sys.argv[1])
(y,) = exe.run(data=np.load(sys.argv[2]))
np.save(sys.argv[3], y)
print([m for m in ("numba", "onnx", "pandas", "skopt") if m in sys.modules], exe.counts.built)
"""
STARTS = 7


def main() -> None:
    """Print the median, and what was loaded."""
    with tempfile.TemporaryDirectory() as folder:
        home, out = Path(folder) / "read-only", Path(folder) / "out"
        home.mkdir()
        out.mkdir()
        model = zoo.build("resnet50")
        exe = bucketize.compile(bucketize.from_onnx(model, bounds=zoo.BOUNDS["resnet50"]))
        x = zoo.inputs("resnet50", {"N": 1, "H": 224, "W": 224})["data"]
        start = time.perf_counter()
        exe.save(home / "resnet50.bkt")
        taken = time.perf_counter() - start
        np.save(home / "x.npy", x)
        home.chmod(0o555)
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
        environment |= {"HOME": str(home), "BUCKETIZE_CACHE": str(home / "none")}
        paths = [str(home / "resnet50.bkt"), str(home / "x.npy"), str(out / "y.npy")]
        times = []
        for _ in range(STARTS):
            start = time.perf_counter()
            command = [sys.executable, "-c", SCRIPT, *paths]
            said = subprocess.check_output(command, text=True, env=environment)
            times.append(time.perf_counter() - start)
        same = np.array_equal(np.load(out / "y.npy"), exe.run(data=x)[0])
        size = (home / "resnet50.bkt").stat().st_size / 2**20
        print(f"saved in {taken:.2f} s: {size:.0f} MiB")
        print(f"imported, and built after loading: {said.strip()}")
        print(
            f"whole process with its first answer: {statistics.median(times):.2f} s "
            f"({min(times):.2f} .. {max(times):.2f}); equal bit for bit: {same}"
        )


if __name__ == "__main__":
    main()
