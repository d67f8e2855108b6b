"""The runtime in an empty environment, and a library called from C: what they weigh and take.

An environment of its own gets `bucketize-runtime` and numpy; each figure is of new processes in it.
The library is compiled into a program of C, where there is a compiler, and timed beside Python.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

import bucketize
from benchmarks.figure import Figure
from bucketize import zoo

ROOT = Path(__file__).parents[1]
FIRST = {"bert-mini": {"B": 1, "S": 8}, "resnet50": {"N": 1, "H": 224, "W": 224}}
MANY = 240
ANSWER = """
import sys
import numpy as np
import bucketize
exe = bucketize.load(sys.argv[1])
exe.run(*np.load(sys.argv[2]).values())
"""
MEMORY = """
import json
def mib():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024
import numpy
before = mib()
import time
start = time.perf_counter()
import bucketize
imported = time.perf_counter() - start
bucketize.load
print(json.dumps([imported, mib() - before]))
"""
OPENED = """
import sys, time
import bucketize
start = time.perf_counter()
programs = [bucketize.load(sys.argv[1]) for _ in range(int(sys.argv[2]))]
print(time.perf_counter() - start)
"""
CALLER = """
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "model.h"
int main(int argc, char **argv) {
    (void)argc;
    int64_t rows = atoll(argv[1]), other = atoll(argv[2]);
    bucketize_model *model;
    float *data = calloc(1024, 784 * 4), *output = calloc(1024, 40);
    double best = 1e9;
    if (bucketize_model_open(&model)) return 1;
    for (int i = 0; i < 3000; i++) {
        const void *inputs[] = {data};
        const int64_t shape[] = {i % 2 ? rows : other, 784}, *shapes[] = {shape}, bytes[] = {40960};
        void *outputs[] = {output};
        struct timespec a, b;
        clock_gettime(CLOCK_MONOTONIC, &a);
        if (bucketize_model_run(model, inputs, shapes, outputs, bytes)) return 1;
        clock_gettime(CLOCK_MONOTONIC, &b);
        double took = (b.tv_sec - a.tv_sec) + 1e-9 * (b.tv_nsec - a.tv_nsec);
        if (i % 2 && took < best) best = took;
    }
    printf("%.9f", best);
    return 0;
}
"""


def environment(folder: Path) -> Path:
    """A Python with numpy and the runtime."""
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder)]
    subprocess.run([*pip, str(ROOT / "runtime")], check=True, capture_output=True)
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    (wheel,) = folder.glob("*.whl")
    subprocess.run([python, "-m", "pip", "install", "-q", wheel], check=True, capture_output=True)
    return python


def installed(python: Path) -> float:
    """MiB of the runtime, its compiled files among them."""
    (package,) = python.parents[1].glob("lib/python*/site-packages/bucketize")
    return sum(f.stat().st_size for f in package.rglob("*") if f.is_file()) / 2**20


def seconds(command: Sequence[object]) -> float:
    """Of a process, from its start to its end."""
    start = time.perf_counter()
    subprocess.run(list(map(str, command)), check=True)
    return time.perf_counter() - start


def answer_s(python: Path, model: str, sizes: Mapping[str, int], folder: Path) -> list[float]:
    """Seconds of processes that answer once."""
    path, inputs = folder / f"{model}.bkt", folder / f"{model}.npz"
    mod = bucketize.from_onnx(zoo.build(model), bounds=zoo.BOUNDS[model])
    bucketize.compile(mod).save(path)
    np.savez(inputs, *zoo.inputs(model, dict(sizes)).values())
    return [seconds([python, "-c", ANSWER, path, inputs]) for _ in range(7)]


def told(python: Path, script: str, *arguments: object) -> str:
    """What a script says."""
    command = [python, "-c", script, *arguments]
    return subprocess.run(
        list(map(str, command)), check=True, capture_output=True, text=True
    ).stdout


def call_s(folder: Path, rows: int, other: int) -> tuple[float, float]:
    """Seconds of a call of the MLP from C, and from Python, every other one of other rows."""
    mod = bucketize.from_onnx(zoo.build("mlp"), bounds=zoo.BOUNDS["mlp"])
    exe = bucketize.compile(mod)
    exe.save_library(folder / "model.so")
    (folder / "main.c").write_text(CALLER)
    build = ["cc", "-O2", "main.c", "-L.", "-l:model.so", "-Wl,-rpath,.", "-o", "main"]
    subprocess.run(build, check=True, cwd=folder)
    command = ["./main", str(rows), str(other)]
    done = subprocess.run(command, check=True, cwd=folder, capture_output=True, text=True)
    x, y = (np.zeros((n, 784), np.float32) for n in (rows, other))
    best = 1.0
    for _ in range(1500):
        exe.run(y)
        start = time.perf_counter()
        exe.run(x)
        best = min(best, time.perf_counter() - start)
    return float(done.stdout), best


def main() -> None:
    """Print all of it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        python = environment(folder)
        imported, mib = json.loads(told(python, MEMORY))
        print(f"installed: {installed(python):.1f} MiB; import {imported * 1e3:.0f} ms")
        print(f"what loads programs: {mib:.1f} MiB beyond numpy's")
        alone = sorted(seconds([python, "-c", "import numpy"]) for _ in range(7))
        for model, sizes in FIRST.items():
            took = sorted(answer_s(python, model, sizes, folder))
            print(
                f"{model}, from the start of the process to the end of its first answer: "
                f"{took[3]:.3f} s ({took[0]:.3f} to {took[-1]:.3f}); numpy alone {alone[3]:.3f} s"
            )
        opened = float(told(python, OPENED, folder / "bert-mini.bkt", MANY))
        print(f"{MANY} programs opened in {opened:.2f} s")
        if shutil.which("cc"):
            for rows, other in ((1, 1), (1, 2), (8, 8)):
                ours, ctypes = call_s(folder, rows, other)
                print(
                    f"mlp of {rows} rows, every other call of {other}: {ours * 1e6:.1f} us from C, "
                    f"{ctypes * 1e6:.1f} from Python"
                )


def quick() -> list[Figure]:
    """bert-mini in an empty environment: the first answer of three processes."""
    with tempfile.TemporaryDirectory() as name:
        python = environment(Path(name))
        took = answer_s(python, "bert-mini", FIRST["bert-mini"], Path(name))[:3]
    return [Figure.of("bert-mini, runtime alone, first answer", "s", took)]


if __name__ == "__main__":
    main()
