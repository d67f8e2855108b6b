"""resnet50 from one file: from the start of a process to the first answer, nothing else at hand."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import bucketize
from benchmarks.figure import Figure
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


@dataclass(frozen=True)
class Loaded:
    """What came of saving a model, and of starting with its file."""

    saved_s: float
    mib: float
    said: str
    times: list[float]
    same: bool


def loaded(name: str, starts: int) -> Loaded:
    """Save a model, and start so many processes that have nothing but its file."""
    with tempfile.TemporaryDirectory() as folder:
        home, out = Path(folder) / "read-only", Path(folder) / "out"
        home.mkdir()
        out.mkdir()
        exe = bucketize.compile(bucketize.from_onnx(zoo.build(name), bounds=zoo.BOUNDS[name]))
        x = zoo.inputs(name, {"N": 1, "H": 224, "W": 224})["data"]
        start = time.perf_counter()
        exe.save(home / f"{name}.bkt")
        saved_s = time.perf_counter() - start
        np.save(home / "x.npy", x)
        home.chmod(0o555)
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
        environment |= {"HOME": str(home), "BUCKETIZE_CACHE": str(home / "none")}
        paths = [str(home / f"{name}.bkt"), str(home / "x.npy"), str(out / "y.npy")]
        times, said = [], ""
        for _ in range(starts):
            start = time.perf_counter()
            command = [sys.executable, "-c", SCRIPT, *paths]
            said = subprocess.check_output(command, text=True, env=environment)
            times.append(time.perf_counter() - start)
        same = np.array_equal(np.load(out / "y.npy"), exe.run(data=x)[0])
        size = (home / f"{name}.bkt").stat().st_size / 2**20
        return Loaded(saved_s, size, said.strip(), times, same)


def main() -> None:
    """Print the median, and what was loaded."""
    found = loaded("resnet50", STARTS)
    times = found.times
    print(f"saved in {found.saved_s:.2f} s: {found.mib:.0f} MiB")
    print(f"imported, and built after loading: {found.said}")
    print(
        f"whole process with its first answer: {statistics.median(times):.2f} s "
        f"({min(times):.2f} .. {max(times):.2f}); equal bit for bit: {found.same}"
    )


def quick() -> list[Figure]:
    """resnet18, a few starts."""
    found = loaded("resnet18", 5)
    return [
        Figure.of("resnet18, process with its first answer", "s", found.times),
        Figure.of("resnet18, file", "MiB", [found.mib]),
    ]


if __name__ == "__main__":
    main()
