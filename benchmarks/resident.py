"""Memory of a process whose calls have mixed shapes, beside what is predicted, and other engines.

A process of its own for each: four threads call a model at random sizes, small ones far more often
than large, and then at small ones alone. Told are MiB beyond what the process had once its model
was compiled and its smallest call was run: the most that it ever had, and what it had in the end.
What is predicted is the largest call of each thread.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx

import bucketize
from benchmarks.figure import Figure
from bucketize import zoo
from bucketize.analysis.engines import ENGINES, session

THREADS = 4
MOST = {"bert-mini": {"B": 4, "S": 512}, "mobilenetv2": {"N": 4, "H": 512, "W": 512}}
STEPS = {"H": 32, "W": 32}
LEAST = {"H": 32, "W": 32}
QUIET_S = 25.0  # of small calls, at the end: memory is kept for up to twenty
OURS, WITHOUT = "bucketize", "onnxruntime without arena"
SIDES = (OURS, "onnxruntime", WITHOUT, "openvino")


def drawn(model: str, dice: np.random.Generator, most: float = 1.0) -> dict[str, int]:
    """Sizes, small ones far more often than large: up to a share of the largest."""
    sizes = {}
    for symbol, largest in MOST[model].items():
        step, least = STEPS.get(symbol, 1), LEAST.get(symbol, 1)
        size = least * (most * largest / least) ** (dice.random() ** 2)
        sizes[symbol] = max(least, int(size) // step * step)
    return sizes


def resident() -> float:
    """MiB of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def started(side: str, model: str) -> tuple[Callable[[Mapping[str, Any]], Any], float]:
    """What runs a model, and MiB that its calls are predicted to take; 0 by others."""
    if side == OURS:
        bounds = {s: (LEAST.get(s, 1), most) for s, most in MOST[model].items()}
        exe = bucketize.compile(bucketize.from_onnx(zoo.build(model), bounds=bounds))
        return lambda feed: exe.run(**feed), THREADS * exe.memory(**MOST[model]).of_call / 2**20
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(zoo.build(model), path)
        if side == WITHOUT:
            return _without_arena(path), 0.0
        return session(side, path).run, 0.0


def _without_arena(path: Path) -> Callable[[Mapping[str, Any]], Any]:
    onnxruntime: Any = importlib.import_module("onnxruntime")

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.enable_cpu_mem_arena = 1, False
    its = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda feed: its.run(None, dict(feed))


def observed(side: str, model: str, calls: int) -> dict[str, float]:
    """MiB at most and in the end, and MiB that were predicted."""
    run, predicted = started(side, model)
    run(zoo.inputs(model, {s: LEAST.get(s, 1) for s in MOST[model]}))
    before, most = resident(), 0.0
    counts = [0] * THREADS

    def serve(k: int) -> None:
        dice = np.random.default_rng(k)
        while counts[k] < calls // THREADS:
            run(zoo.inputs(model, drawn(model, dice)))
            counts[k] += 1
        end = time.monotonic() + QUIET_S
        while time.monotonic() < end:
            run(zoo.inputs(model, drawn(model, dice, 0.1)))

    threads = [threading.Thread(target=serve, args=(k,)) for k in range(THREADS)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        most = max(most, resident())
        time.sleep(0.01)
    return {"most": most - before, "end": resident() - before, "predicted": predicted}


def sides(names: tuple[str, ...], model: str, calls: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Each of those that are installed, in a process of its own."""
    for side in names:
        engine = ENGINES.get(side.split()[0])
        if engine is not None and not engine.is_installed:
            continue
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.resident", side, model]
        done = subprocess.run([*command, str(calls)], capture_output=True, text=True, check=True)
        yield side, json.loads(done.stdout.splitlines()[-1])


@click.command()
@click.option("-m", "--model", "models", multiple=True, type=click.Choice(list(MOST)))
@click.option("-s", "--side", "names", multiple=True, type=click.Choice(SIDES))
@click.option("--calls", type=click.IntRange(THREADS), default=100_000, show_default=True)
def main(models: tuple[str, ...], names: tuple[str, ...], calls: int) -> None:
    """Print what each side has at most, and in the end."""
    for model in models or MOST:
        for side, mib in sides(names or SIDES, model, calls):
            told = f", {mib['predicted']:.0f} predicted" if side == OURS else ""
            click.echo(f"{model}, {side}: {mib['most']:.0f} MiB{told}; {mib['end']:.0f} in the end")


def quick() -> list[Figure]:
    """Some calls of bert-mini: the most by what was predicted."""
    ((_, mib),) = sides((OURS,), "bert-mini", 400)
    return [Figure.of("bert-mini, memory by prediction", "", [mib["most"] / mib["predicted"]])]


if __name__ == "__main__":
    print(json.dumps(observed(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
