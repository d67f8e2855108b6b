"""Two threads beside one: the same model compiled for each, calls taking turns.

Then the same while another process keeps one of the cores busy.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import bucketize
from benchmarks.figure import Figure, needs_cores, ratios
from bucketize import zoo
from bucketize.timing import interleaved

CASES = (
    ("resnet50", {"N": 1, "H": 224, "W": 224}),
    ("resnet18", {"N": 1, "H": 224, "W": 224}),
    ("mobilenetv2", {"N": 1, "H": 224, "W": 224}),
    ("bert-base", {"B": 1, "S": 128}),
    ("bert-mini", {"B": 1, "S": 128}),
    ("bert-mini", {"B": 1, "S": 8}),
    ("mlp", {"N": 256}),
    ("mlp", {"N": 1}),
)
ROUNDS = 25
BEGUN_S = 0.5  # until a process is busy


def main() -> None:
    """Print the medians and the speed-up, with both cores free and with one of them busy."""
    for name, sizes in CASES:
        module = bucketize.from_onnx(zoo.build(name), bounds=zoo.BOUNDS[name])
        inputs = zoo.inputs(name, sizes)
        executables = {str(n): bucketize.compile(module, threads=n) for n in (1, 2)}
        calls = {n: partial(exe.run, **inputs) for n, exe in executables.items()}
        free, taken = (compared(calls, beside) for beside in (nullcontext, busy))
        shown = ", ".join(f"{symbol}={size}" for symbol, size in sizes.items())
        print(f"{name}, {shown}: {free}; with a busy core {taken}", flush=True)


def compared(calls: Mapping[str, Callable[[], Any]], beside: Callable[[], Any]) -> str:
    """The medians of both, and their ratio, beside what goes on."""
    with beside():
        times = interleaved(calls, least=ROUNDS, before=calls)
    one, two = (statistics.median(t) * 1e3 for t in times.values())
    return f"1 thread {one:.2f} ms, 2 threads {two:.2f} ms, {one / two:.2f}x"


@contextmanager
def busy() -> Iterator[None]:
    """A process that does nothing but keep a core busy."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(BEGUN_S)
        yield
    finally:
        process.kill()
        process.wait()


def quick() -> list[Figure]:
    """One model, both cores free."""
    needs_cores(2)
    name, sizes = CASES[1]
    module, inputs = bucketize.from_onnx(zoo.build(name)), zoo.inputs(name, sizes)
    exes = {n: bucketize.compile(module, threads=n) for n in (1, 2)}
    calls = {str(n): partial(exe.run, **inputs) for n, exe in exes.items()}
    one, two = interleaved(calls, least=ROUNDS, before=calls).values()
    return [Figure.of(f"{name}, 2 threads by 1", "", ratios(two, one))]


if __name__ == "__main__":
    main()
