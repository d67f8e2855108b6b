"""`bucketize bench`: a model beside other engines."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bucketize.cli import parameter
from bucketize.cli.echo import echo
from bucketize.cli.model import ZOO, compiled, dispatched, load_model, sizes_at
from bucketize.cli.table import fitting, records, table
from bucketize.errors import EnergyError
from bucketize.op import Array
from bucketize.progress import progress_bar
from bucketize.release import release
from bucketize.table import Format, json_text, pairs

if TYPE_CHECKING:
    import pandas as pd

    from bucketize.analysis import Session
    from bucketize.analysis.engines import Engine
    from bucketize.executable import Executable
    from bucketize.machine.energy import Energy

    Benched = list[tuple[parameter.Sizes, pd.DataFrame]]


MODES: Mapping[str, Callable[[int], dict[str, int]]] = {
    "latency": lambda cores: {"streams": 1, "threads": cores},
    "throughput": lambda cores: {"streams": cores, "threads": 1},
}
"""The streams and the threads of each, by the cores of the machine."""
LATENCIES = {"min": "min_s", "mean": "mean_s", "p50": "time_s"} | {
    f"p{p}": f"p{p}_s" for p in (90, 95, 99)
}
RATES = {"calls/s": "calls_s", "rows/s": "rows_s", "J/call": "joules"}
"""Columns of the frame by their heads."""


def names(text: str) -> list[str]:
    """The engines of `onnxruntime,openvino`."""
    return list(dict.fromkeys(part.strip() for part in text.split(",")))


@click.command()
@parameter.model_options
@parameter.dispatch_options
@parameter.at_option
@click.option(
    "--against",
    type=names,
    default="onnxruntime",
    show_default=True,
    metavar="ENGINE,...",
    help="Of onnxruntime, openvino and mnn, those to compare with.",
)
@parameter.log_option
@parameter.threads_option
@click.option(
    "--streams",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Callers of each engine at the same time, each with its --threads.",
)
@click.option(
    "--mode",
    type=click.Choice([*MODES]),
    help="In the place of --streams and --threads. latency: one stream, with all cores; "
    "throughput: a stream for each core, of one thread.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=30,
    show_default=True,
    help="Timed calls of each caller, at least.",
)
@click.option(
    "--duration",
    type=parameter.FiniteRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="Go on for so long at least, all engines together.",
)
@click.option(
    "--warmup", type=click.IntRange(0), default=2, show_default=True, help="Calls before, untimed."
)
@parameter.json_option
def bench(
    model: str,
    bounds: list[parameter.Bound],
    against: list[str],
    rounds: int,
    as_json: bool,
    **options: Any,
) -> None:
    """Time MODEL beside other engines, on the same arrays.

    All have the same number of threads, all graph optimisations, float32 and dynamic shapes. Their
    outputs are checked against each other ("error": the worst relative difference), then they take
    turns, each timed call behind another one of the same engine. "ratio" is the time of bucketize
    by the engine's in the same round: below 1 bucketize is faster. Times and ratios are medians
    with their quartiles. With several streams a turn is a window of time, and ratios are of the
    time for a call, all streams together.

    Rows are the extent of the first axis of the first input. A percentile that no call is beyond is
    left out. "J/call" is the energy of the machine's packages and of its memory, where it tells.

    \b
    Examples:
      bucketize bench zoo:mlp --at N=1 --at N=17
      bucketize bench net.onnx -d log --log trials.csv --at N=4 --threads 2
      bucketize bench zoo:bert-mini --against onnxruntime,openvino --at B=1,S=64
      bucketize bench net.onnx --at N=1 --mode throughput --duration 20
    """
    from bucketize.analysis import bench, session
    from bucketize.analysis.benchmark import Effort, pause
    from bucketize.analysis.engines import engine_of

    options |= streams_of(options["mode"])

    for name in against:
        engine_of(name)  # what is not there is said before anything is compiled
    loaded = load_model(model, bounds)
    points = sizes_at(loaded, options["points"])
    behind, threads = dispatched(loaded, {**options, "points": points}), options["threads"]
    exe = compiled(behind, log=options["log"], threads=threads, lazy=True)
    counters, why = energy_counters()
    effort = Effort(options["warmup"], options["duration"], counters)
    streams = options["streams"]
    benched: Benched = []
    with model_file(model) as path:
        others = [session(n, path, threads, streams=streams, progress=True) for n in against]
        sessions = [ours(exe, options), *others]
        runs = {s.engine: s.callers for s in sessions}
        for sizes in points:
            with progress_bar(f"timing {pairs(sizes)}".strip()) as tell:
                inputs, wait = loaded.inputs(sizes), pause(threads * streams)
                frame = bench(runs, inputs, rounds, effort=effort, pause_s=wait, progress=tell)
            benched.append((sizes, frame))
    if as_json:
        how = {name: options[name] for name in ("streams", "threads", "mode")}
        energy = {"energy": counters and counters.names, "no_energy": why or None}
        echo(json_text({**how, **energy, **facts(benched, sessions)}, indent=2))
        return
    report(benched, sessions)
    if why:
        echo(fitting(f"no J/call: {why}"), err=True)


def streams_of(mode: str | None) -> dict[str, int]:
    """The streams and threads of a mode; nothing without one."""
    if mode is None:
        return {}
    parameter.refuse(f"--mode {mode} decides", dict.fromkeys(("streams", "threads"), "is left out"))
    from bucketize.machine.target import cores

    return MODES[mode](cores())


def energy_counters() -> tuple[Energy | None, str]:
    """The counters of this machine, or why there are none."""
    from bucketize.machine.energy import energy

    try:
        return energy(), ""
    except EnergyError as e:
        return None, str(e)


@contextmanager
def model_file(model: str) -> Iterator[Path]:
    """MODEL as a file, that of the zoo for as long as the context lasts."""
    if not model.startswith(ZOO):
        yield Path(model)
        return
    import onnx

    from bucketize.zoo import build

    name = model.removeprefix(ZOO)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.onnx"
        with progress_bar(f"writing {model} for other engines"):
            onnx.save(build(name), path)
        yield path


def ours(exe: Executable, options: dict[str, Any]) -> Session:
    """What the engines are held against."""
    from bucketize.analysis import Session
    from bucketize.analysis.benchmark import OURS
    from bucketize.analysis.engines import streams_text

    log, dispatcher = options["log"], options["dispatcher"]
    schedules = f"schedules of {log}" if log else "default schedules"
    streams = options.get("streams", 1)
    threads = streams_text(streams, options["threads"])
    settings = f"{threads}, {schedules}, dispatcher {dispatcher or 'none'}"

    def run(inputs: Mapping[str, Array]) -> list[Array]:
        return exe.run(**inputs)

    return Session(OURS, release(), settings, run, [run] * (streams - 1))


def report(benched: Benched, sessions: list[Session]) -> None:
    """Print what was measured, and of whom."""
    from bucketize.analysis import ENGINES

    for sizes, frame in benched:
        echo(f"{shown(sizes, frame)}\n{shown_calls(frame)}")
    for s in sessions:
        echo(f"{s.engine} {s.version}: {s.settings}")
    if others := missing(ENGINES):
        echo(fitting(f"not installed, and not compared with: {others}"), err=True)


def facts(benched: Benched, sessions: list[Session]) -> dict[str, Any]:
    """What was measured, and of whom, for scripts: processor, engines, and frames by sizes."""
    from bucketize.machine.host import host

    engines = {s.engine: {"version": s.version, "settings": s.settings} for s in sessions}
    points = [
        {"sizes": s, "engines": records(f), "machine": asdict(f.attrs["machine"])}
        for s, f in benched
    ]
    return {"cpu": host().name, "engines": engines, "points": points}


def missing(engines: Mapping[str, Engine]) -> str:
    """Engines that could be compared with, and how to install them."""
    return ", ".join(f"{n} ({e.how})" for n, e in engines.items() if not e.is_installed)


def shown(sizes: parameter.Sizes, frame: pd.DataFrame) -> str:
    """The engines at some sizes in 80 columns."""
    first = pairs(sizes) or "engine"
    rows = [
        {
            first: row["engine"],
            "median [ms]": f"{1e3 * row['time_s']:.3f}",
            "quartiles": f"{1e3 * row['time_q1_s']:.3f}..{1e3 * row['time_q3_s']:.3f}",
            **ratio(row),
            "error": f"{row['error']:.1e}",
        }
        for row in frame.to_dict("records")
    ]
    return table(rows)


def shown_calls(frame: pd.DataFrame) -> str:
    """How calls are distributed, in milliseconds, and how many there were a second."""
    milliseconds: dict[str, Format] = dict.fromkeys(LATENCIES, lambda s: digits(1e3 * s))
    heads = {"latency [ms]": "engine", **LATENCIES, "calls": "calls", **RATES}
    present = {head: column for head, column in heads.items() if column in frame}
    rows = [{head: row[column] for head, column in present.items()} for row in records(frame)]
    return table(rows, milliseconds | dict.fromkeys(RATES, digits))


def digits(value: float) -> str:
    """A number with three digits, and all before the point."""
    return f"{value:.{max(2 - math.floor(math.log10(value)), 0)}f}" if value > 0 else f"{value:g}"


def ratio(row: dict[Any, Any]) -> dict[str, str | None]:
    """How the first engine's time is to that of another."""
    if row["ratio"] != row["ratio"]:  # the first engine itself
        return {"ratio": None, "its quartiles": None}
    quartiles = f"{row['ratio_q1']:.2f}..{row['ratio_q3']:.2f}"
    return {"ratio": f"{row['ratio']:.2f}", "its quartiles": quartiles}
