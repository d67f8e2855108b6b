"""`bucketize bench`: a model beside other engines."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bucketize.cli import parameter
from bucketize.cli.echo import echo
from bucketize.cli.model import ZOO, compiled, dispatched, load_model, sizes_at
from bucketize.cli.table import fitting, records, table
from bucketize.progress import progress_bar
from bucketize.table import pairs

if TYPE_CHECKING:
    import pandas as pd

    from bucketize.analysis import Session
    from bucketize.analysis.engines import Engine
    from bucketize.executable import Executable

    Benched = list[tuple[parameter.Sizes, pd.DataFrame]]


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
@click.option("--rounds", type=click.IntRange(1), default=30, show_default=True, help="Timed.")
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
    with their quartiles.

    \b
    Examples:
      bucketize bench zoo:mlp --at N=1 --at N=17
      bucketize bench net.onnx -d log --log trials.csv --at N=4 --threads 2
      bucketize bench zoo:bert-mini --against onnxruntime,openvino --at B=1,S=64
    """
    from bucketize.analysis import bench, session
    from bucketize.analysis.benchmark import pause
    from bucketize.analysis.engines import engine_of

    for name in against:
        engine_of(name)  # what is not there is said before anything is compiled
    loaded = load_model(model, bounds)
    points = sizes_at(loaded, options["points"])
    behind, threads = dispatched(loaded, {**options, "points": points}), options["threads"]
    exe = compiled(behind, log=options["log"], threads=threads, lazy=True)
    benched: Benched = []
    with model_file(model) as path:
        others = [session(name, path, threads, progress=True) for name in against]
        sessions = [ours(exe, options), *others]
        runs = {s.engine: s.run for s in sessions}
        for sizes in points:
            with progress_bar(f"timing {pairs(sizes)}".strip()) as tell:
                inputs, wait = loaded.inputs(sizes), pause(threads)
                frame = bench(runs, inputs, rounds, pause_s=wait, progress=tell)
            benched.append((sizes, frame))
    report(benched, sessions, as_json)


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
    from bucketize.program.program import threads_text
    from bucketize.release import release

    log, dispatcher = options["log"], options["dispatcher"]
    schedules = f"schedules of {log}" if log else "default schedules"
    settings = f"{threads_text(options['threads'])}, {schedules}, dispatcher {dispatcher or 'none'}"
    return Session(OURS, release(), settings, lambda inputs: exe.run(**inputs))


def report(benched: Benched, sessions: list[Session], as_json: bool) -> None:
    """Print what was measured, and of whom."""
    from bucketize.analysis import ENGINES

    if as_json:
        echo(json.dumps(facts(benched, sessions), indent=2))
        return
    for sizes, frame in benched:
        echo(shown(sizes, frame))
    for s in sessions:
        echo(f"{s.engine} {s.version}: {s.settings}")
    if others := missing(ENGINES):
        echo(fitting(f"not installed, and not compared with: {others}"), err=True)


def facts(benched: Benched, sessions: list[Session]) -> dict[str, Any]:
    """The same for scripts."""
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


def ratio(row: dict[Any, Any]) -> dict[str, str | None]:
    """How the first engine's time is to that of another."""
    if row["ratio"] != row["ratio"]:  # the first engine itself
        return {"ratio": None, "its quartiles": None}
    quartiles = f"{row['ratio_q1']:.2f}..{row['ratio_q3']:.2f}"
    return {"ratio": f"{row['ratio']:.2f}", "its quartiles": quartiles}
