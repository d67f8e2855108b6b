"""Many clones: what compiling all of them takes, and what a hundred thousand buckets cost."""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks.figure import EXACT, Figure, needs

EAGER = """
import sys, time
import psutil, bucketize
from bucketize import zoo
from dispatchers import log_dispatcher
bounds = {"N": (1, 256), "H": (1, 256), "W": (1, 256)}
mod = bucketize.from_onnx(zoo.build("resnet18"), bounds=bounds)
if sys.argv[1] == "log":
    mod = bucketize.dispatch(mod, log_dispatcher)
start = time.perf_counter()
exe = bucketize.compile(mod)
taken = time.perf_counter() - start
rss = psutil.Process().memory_info().rss / 2**20
print(len(mod.clones) or 1, taken, rss, exe.counts.kernels, exe.constant_bytes() / 2**20)
"""
LAZY = """
import sys, time
import numpy as np
import psutil, bucketize
from bucketize import ops
from bucketize.ir import Builder, Module, Var
from bucketize.types import Symbol, tensor
count = int(sys.argv[1])
x = Var("x", tensor("float32", 1, 3, Symbol("H", 1, count), Symbol("W", 1, count)))
b = Builder()
fn = b.function("main", [x], [b.emit(ops.relu, x)])
module = Module({"main": fn})
bucketize.compile(module).run(np.zeros((1, 3, 2, 2), np.float32))
ones = [(i, i + 1) for i in range(1, count + 1)]
start = time.perf_counter()
mod = bucketize.dispatch(module, lambda _: {"x": {2: ones, 3: ones}}, limit=count**2)
middle = time.perf_counter()
exe = bucketize.compile(mod, lazy=True)
end = time.perf_counter()
exe.run(np.zeros((1, 3, 5, 7), np.float32))
rss = psutil.Process().memory_info().rss / 2**20
print(len(mod.clones), middle - start, end - middle, rss)
"""


def run(script: str, *arguments: str) -> list[float]:
    """The numbers that a process prints."""
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ))
    return [float(word) for word in done.stdout.split()]


def main() -> None:
    """Print both."""
    run(EAGER, "log")  # kernels into the cache
    one, many = run(EAGER, "none"), run(EAGER, "log")
    for clones, seconds, rss, kernels, constants in (one, many):
        print(
            f"resnet18, {clones:.0f} clones compiled, kernels cached: {seconds:.2f} s, "
            f"{rss:.0f} MiB, {kernels:.0f} kernels, {constants:.0f} MiB of constants"
        )
    print(f"memory of all beside one: {many[2] / one[2]:.2f}x")
    for count in (100, 316):
        buckets, dispatch, compiled, rss = run(LAZY, str(count))
        print(
            f"{buckets:.0f} buckets: dispatched in {dispatch:.2f} s, compiled lazily in "
            f"{compiled:.2f} s, {rss:.0f} MiB resident"
        )


def quick() -> list[Figure]:
    """All clones of resnet18 compiled, in several processes."""
    needs("psutil")
    run(EAGER, "log")  # kernels into the cache
    clones, taken, rss, kernels, _ = zip(*(run(EAGER, "log") for _ in range(2)), strict=True)
    what = f"resnet18, {clones[0]:.0f} clones"
    return [
        Figure.of(f"{what}, compiled with kernels cached", "s", taken),
        Figure.of(f"{what}, resident", "MiB", rss),
        Figure.of(f"{what}, kernels", EXACT, kernels),
    ]


if __name__ == "__main__":
    main()
