"""Memory of a process whose calls have mixed shapes, beside what is predicted, and other engines.

A process of its own for each: four threads call a model at random sizes, small ones far more often
than large, and then at small ones alone. Told are MiB beyond what the process had once its model
was compiled and its smallest call was run: the most that it ever had, and what it had in the end.
Inputs are there before that, and no part of it: each thread has the largest, and calls with parts
of it. What is predicted is the largest call of each thread. `--frame` keeps curves, `--draw` draws
them.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import math
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import click
import numpy as np
import onnx
import pandas as pd

import bucketize
from benchmarks.figure import Figure
from bucketize import zoo
from bucketize.analysis.engines import ENGINES, session
from bucketize.types import evaluate

THREADS = 4
MOST = {"bert-mini": {"B": 4, "S": 512}, "mobilenetv2": {"N": 4, "H": 512, "W": 512}}
STEPS = {"H": 32, "W": 32}
LEAST = {"H": 32, "W": 32}
QUIET_S = 25.0  # of small calls, at the end: memory is kept for up to twenty
OURS, WITHOUT, OPENVINO = "bucketize", "onnxruntime without arena", "openvino"
PATH = click.Path(path_type=Path, dir_okay=False)
POINTS = 400  # of a curve
Point: TypeAlias = tuple[int, float, float]
"""Calls that were done, seconds of small ones, and MiB."""
SIDES = (OURS, "onnxruntime", WITHOUT, OPENVINO)


def drawn(model: str, dice: np.random.Generator, most: float = 1.0) -> dict[str, int]:
    """Sizes, small ones far more often than large: up to a share of the largest."""
    sizes = {}
    for symbol, largest in MOST[model].items():
        step, least = STEPS.get(symbol, 1), LEAST.get(symbol, 1)
        size = least * (most * largest / least) ** (dice.random() ** 2)
        sizes[symbol] = max(least, int(size) // step * step)
    return sizes


class Requests:
    """The inputs of a thread's calls: parts of the largest, whose memory they share."""

    def __init__(self, model: str, seed: int) -> None:
        self.model, self._dice = model, np.random.default_rng(seed)
        self._largest = zoo.inputs(model, MOST[model], seed)
        self._params = bucketize.from_onnx(zoo.build(model)).main.params

    def drawn(self, most: float = 1.0) -> dict[str, Any]:
        """Inputs of sizes up to a share of the largest."""
        return self.at(drawn(self.model, self._dice, most))

    def at(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        """Inputs of these sizes."""
        feed = {}
        for p in self._params:
            shape = tuple(int(evaluate(dim, sizes)) for dim in p.type.shape)
            feed[p.name] = self._largest[p.name].reshape(-1)[: math.prod(shape)].reshape(shape)
        return feed


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
        return _openvino(path) if side == OPENVINO else session(side, path).run, 0.0


def _without_arena(path: Path) -> Callable[[Mapping[str, Any]], Any]:
    onnxruntime: Any = importlib.import_module("onnxruntime")

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.enable_cpu_mem_arena = 1, False
    its = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda feed: its.run(None, dict(feed))


def _openvino(path: Path) -> Callable[[Mapping[str, Any]], Any]:
    """As of `session`, with a request for each thread: one is not for several at once."""
    ov: Any = importlib.import_module("openvino")
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": 1,
        "INFERENCE_PRECISION_HINT": "f32",
    }
    compiled = ov.Core().compile_model(path, "CPU", settings)
    own = threading.local()

    def run(feed: Mapping[str, Any]) -> Any:
        if not hasattr(own, "request"):
            own.request = compiled.create_infer_request()
        return own.request.infer(dict(feed), share_inputs=True)

    return run


def observed(side: str, model: str, calls: int) -> dict[str, Any]:
    """MiB at most, in the end, that were predicted, and as they went."""
    run, predicted = started(side, model)
    each = [Requests(model, k) for k in range(THREADS)]
    run(each[0].at({s: LEAST.get(s, 1) for s in MOST[model]}))
    ctypes.CDLL(None).malloc_trim(0)  # what is free already is nobody's gain later
    before = resident()
    counts, small = [0] * THREADS, [0.0] * THREADS

    def serve(k: int) -> None:
        while counts[k] < calls // THREADS:
            run(each[k].drawn())
            counts[k] += 1
        small[k] = time.monotonic()
        while time.monotonic() < small[k] + QUIET_S:
            run(each[k].drawn(0.1))

    threads = [threading.Thread(target=serve, args=(k,)) for k in range(THREADS)]
    for thread in threads:
        thread.start()
    curve = []
    while any(thread.is_alive() for thread in threads):
        quiet_s = time.monotonic() - max(small) if all(small) else 0.0
        curve.append((sum(counts), quiet_s, resident() - before))
        time.sleep(0.01)
    most = max(mib for _, _, mib in curve)
    told = {"most": most, "end": resident() - before, "predicted": predicted}
    return {**told, "curve": thinned(curve)}


def thinned(curve: list[Point]) -> list[Point]:
    """Some of the points: of neighbours the one of most memory, so that no peak is lost."""
    each = -(-len(curve) // POINTS)
    groups = (curve[i : i + each] for i in range(0, len(curve), each))
    return [max(group, key=lambda point: point[2]) for group in groups]


def sides(names: tuple[str, ...], model: str, calls: int) -> Iterator[tuple[str, dict[str, Any]]]:
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
@click.option("--frame", type=PATH, help="CSV: curves are written there, in place of older ones.")
@click.option("--draw", type=PATH, help="Draw the curves of --frame there, and measure nothing.")
def main(
    models: tuple[str, ...],
    names: tuple[str, ...],
    calls: int,
    frame: Path | None,
    draw: Path | None,
) -> None:
    """Print what each side has at most, and in the end."""
    if draw is not None:
        if frame is None:
            raise click.UsageError("--draw wants the curves: --frame PATH")
        figure(pd.read_csv(frame)).savefig(draw, dpi=110)
        return
    for model in models or MOST:
        for side, mib in sides(names or SIDES, model, calls):
            told = f", {mib['predicted']:.0f} predicted" if side == OURS else ""
            click.echo(f"{model}, {side}: {mib['most']:.0f} MiB{told}; {mib['end']:.0f} in the end")
            if frame is not None:
                keep(frame, model, side, mib)


def keep(path: Path, model: str, side: str, mib: Mapping[str, Any]) -> None:
    """Write the curve of a side, in place of the one that is there."""
    curve = pd.DataFrame(mib["curve"], columns=["calls", "small_s", "mib"]).round(2)
    curve.insert(0, "predicted_mib", round(mib["predicted"], 2) if side == OURS else math.nan)
    curve.insert(0, "side", side)
    curve.insert(0, "model", model)
    if path.exists():
        before = pd.read_csv(path)
        others = (before["model"] != model) | (before["side"] != side)
        curve = pd.concat([before[others], curve])
    curve.to_csv(path, index=False)


def figure(frame: pd.DataFrame) -> Any:
    """A row for each model: memory over calls of mixed sizes, and then of small ones."""
    from matplotlib.figure import Figure as Drawing

    models = list(frame["model"].unique())
    drawing = Drawing(figsize=(9, 3.2 * len(models)), layout="constrained")
    rows = drawing.subplots(len(models), 2, sharey="row", squeeze=False, width_ratios=(3, 1))
    for model, (mixed, small) in zip(models, rows, strict=True):
        of = frame[frame["model"] == model]
        for side, curve in of.groupby("side", sort=False):
            color = f"C{SIDES.index(str(side))}"
            first, then = curve[curve["small_s"] == 0], curve[curve["small_s"] > 0]
            mixed.plot(first["calls"], first["mib"], color=color, label=side, linewidth=1)
            small.plot(then["small_s"], then["mib"], color=color, linewidth=1)
        for axes in (mixed, small):
            axes.axhline(of["predicted_mib"].max(), color="C0", linestyle=":", linewidth=1)
            axes.set_ylim(bottom=0)
            axes.grid(alpha=0.3)
        mixed.set_title(f"{model}, four threads", loc="left", fontsize="medium")
        mixed.set_ylabel("MiB beyond the first call")
    mixed.set_xlabel("calls of mixed sizes; dotted: predicted by bucketize")
    small.set_xlabel("seconds of small ones")
    drawing.legend(*rows[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return drawing


def quick() -> list[Figure]:
    """Some calls of bert-mini: the most by what was predicted."""
    ((_, mib),) = sides((OURS,), "bert-mini", 400)
    return [Figure.of("bert-mini, memory by prediction", "", [mib["most"] / mib["predicted"]])]


if __name__ == "__main__":
    print(json.dumps(observed(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
