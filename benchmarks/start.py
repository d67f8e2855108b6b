"""From a model's file to the first answer, in a process of its own: seconds, and memory at most.

Twice, with an empty cache of kernels and with the one that the first process left; other engines
keep nothing, so they start once. What imports an engine does not count, nor does the memory of the
processes that compile kernels.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import bucketize
from benchmarks import side
from bucketize import zoo
from bucketize.errors import EngineError

NOTHING = "(nothing)"
"""A process that reads the inputs and no model: what all of them have in memory."""
LIMIT_S = 600
COLUMNS = (
    *("model", "sizes", "threads", "engine", "cold_s", "warm_s", "peak_mib", "why", "cpu", "date"),
)
"""Of the rows: seconds to the first answer, memory at most where nothing is compiled."""


def started(
    name: str, model: str, path: Path, sizes: Mapping[str, int], threads: int, ways: side.Ways
) -> dict[str, Any]:
    """Cold and warm seconds and MiB of one side, or why it does not start."""
    job: dict[str, Any] = {"name": name, "model": model, "path": str(path), "sizes": dict(sizes)}
    job |= {"threads": threads, "dispatcher": ways.dispatcher, "log": ways.log and str(ways.log)}
    with tempfile.TemporaryDirectory() as folder:
        cold = _process(job, folder)
        warm = cold if name in side.PEERS else _process(job, folder)
    if why := cold.get("why") or warm.get("why"):
        return {"why": why}
    if name == NOTHING:
        return {"peak_mib": warm["peak_mib"]}
    return {"cold_s": cold["seconds"], "warm_s": warm["seconds"], "peak_mib": warm["peak_mib"]}


def _process(job: Mapping[str, Any], cache: str) -> dict[str, Any]:
    """What a process that does a job says at its end."""
    paths = os.pathsep.join(p or os.getcwd() for p in sys.path)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "benchmarks.start", json.dumps(job)],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
        env={**os.environ, "BUCKETIZE_CACHE": cache, "PYTHONPATH": paths},
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        last = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        return {"why": f"its process ended with {done.returncode} and said {last}"}
    told: dict[str, Any] = json.loads(lines[-1])
    return told


def peak_mib() -> float:
    """Memory of this process at most, so far; what its parent had does not count."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def answered(job: Mapping[str, Any]) -> None:
    """Read the model and run it once."""
    path, threads, name = Path(job["path"]), job["threads"], job["name"]
    inputs = zoo.inputs(job["model"], job["sizes"])
    if name == NOTHING:
        return
    if name in side.PEERS:
        run = side.theirs(name, path, threads).run
    else:
        log = job["log"] and Path(job["log"])
        mod = bucketize.from_onnx(path, bounds=zoo.BOUNDS[job["model"]])
        run = side.ours(name, mod, threads, side.Ways(log, job["dispatcher"])).run
    run(inputs)


def main() -> None:
    """Do a job in this process, and print what came of it as JSON."""
    job = json.loads(sys.argv[1])
    engine = side.PEERS.get(job["name"])
    if engine is not None and engine.is_installed:
        importlib.import_module(engine.module)
    start = time.perf_counter()
    try:
        answered(job)
    except EngineError as e:
        print(json.dumps({"why": str(e)}))
        return
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "peak_mib": peak_mib()}))


if __name__ == "__main__":
    main()
