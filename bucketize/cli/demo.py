"""`bucketize demo`: every stage on one model of the zoo."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bucketize.cli import parameter
from bucketize.cli.echo import echo

if TYPE_CHECKING:
    from bucketize.cli.compare import Modules
    from bucketize.cli.model import Model
MODEL = "zoo:mlp"
BOUNDS = {"N": (1, 256)}
POINTS = tuple({"N": size} for size in (3, 13, 50, 200))  # no bucket begins, ends or is tuned there
DISPATCHERS = ("none", "uniform:count=4", "log")
TOLERANCE = 1e-4


@click.command()
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    default=Path("demo-output"),
    show_default=True,
    help="Where the files go; a log found there is carried on.",
)
@click.option("--seconds", default=100.0, show_default=True, help="Of tuning, in one sweep.")
@parameter.threads_option
def demo(output: Path, seconds: float, threads: int) -> None:
    """Dispatch an MLP on the batch size, tune, run, check the results, and show the trade-off.

    All dispatchers are tuned in one sweep: what their clones share is measured once, and time goes
    where it is expected to bring most. Writes the log, tradeoff.csv and tradeoff.png. Takes a few
    minutes.

    \b
    Examples:
      bucketize demo
      bucketize demo --seconds 600 --output long-demo
    """
    output.mkdir(parents=True, exist_ok=True)
    log = output / "trials.csv"
    tune_all(dispatch_all(), log, seconds, threads)
    points = ", ".join(map(parameter.shown_sizes, POINTS))
    say(f"Compiling from an empty cache, then running {points} ...")
    text = analyzed(log, output, threads)
    check(output / "tradeoff.csv")
    echo(text)
    say(f"Wrote the log, tradeoff.csv and tradeoff.png to {output}/.")


def dispatch_all() -> Modules:
    """The module behind every dispatcher."""
    from bucketize.cli.compare import dispatchers_of
    from bucketize.cli.model import load_model

    model = load_model(MODEL, BOUNDS.items())
    modules = dispatchers_of(model, DISPATCHERS, POINTS)
    show_clones(model, modules)
    return modules


def analyzed(log: Path, output: Path, threads: int) -> str:
    """The trade-off as `bucketize analyze` prints it.

    It is measured in a new process: in the one that tuned, memory lies as tuning left it, and a
    clone takes up to 5 % more or less than where it will be used.
    """
    options = [f"--dim={symbol}={lo}..{hi}" for symbol, (lo, hi) in BOUNDS.items()]
    options += [f"--dispatcher={spec}" for spec in DISPATCHERS]
    options += [f"--at={parameter.shown_sizes(point)}" for point in POINTS]
    options += [f"--csv={output / 'tradeoff.csv'}", f"--plot={output / 'tradeoff.png'}"]
    command = ["analyze", str(log), f"--model={MODEL}", f"--threads={threads}", *options]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "bucketize.cli", *command],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    if done.returncode:  # it has said why
        raise click.exceptions.Exit(done.returncode)
    return done.stdout.rstrip()


def show_clones(model: Model, modules: Modules) -> None:
    """What each dispatcher makes of the module."""
    ranges = (f"{s.name} in [{s.lo}, {s.hi}]" for s in model.main.symbols().values())
    say(f"Dispatching {MODEL}, {model.main.params[0].type}, {', '.join(ranges)}:")
    for spec, module in modules.items():
        names = [name for name in module.functions if name != "main"] or ["main"]
        more = f", ... {len(names) - 3} more" if len(names) > 3 else ""
        echo(f"  {spec:16} {', '.join(names[:3])}{more}", err=True)


def tune_all(modules: Modules, log: Path, seconds: float, threads: int) -> None:
    """Search and confirm schedules for every module but the untuned, in one sweep."""
    from bucketize.analysis import confirmed
    from bucketize.cli.analyze import shown_confirmed
    from bucketize.cli.compare import UNTUNED
    from bucketize.tune.entry import tune
    from bucketize.tune.progress import tuning_bar

    say(f"Tuning for {seconds:g} s; what clones share is measured once, every trial is a row ...")
    with tuning_bar("tuning") as progress:
        tried = tune(
            [module for spec, module in modules.items() if spec != UNTUNED],
            log=log,
            seconds=seconds,
            threads=threads,
            model=MODEL.removeprefix("zoo:"),
            progress=progress,
        )
    searched = tried[tried["source"] != "confirm"]
    failed = int((searched["error_kind"] != "none").sum())
    echo(f"  {len(searched)} trials, {failed} failed; {log.name}", err=True)
    echo(shown_confirmed(confirmed(tried)), err=True)


def check(trade_off: Path) -> None:
    """Raise an error if a result is not what the ops mean."""
    import pandas as pd

    from bucketize.errors import BucketizeError

    latency = pd.read_csv(trade_off)
    worst = latency.iloc[int(latency["max_rel_err"].argmax())]
    if worst["max_rel_err"] > TOLERANCE:
        where = f"{worst['clone']} of {worst['dispatcher']} at {worst['shape']}"
        error = f"{worst['max_rel_err']:.1e}"
        raise BucketizeError(f"{where} is off by {error}, more than {TOLERANCE:g}")
    echo(f"  all results within {worst['max_rel_err']:.1e} of the reference", err=True)


def say(text: str) -> None:
    """A heading on stderr: results alone go to stdout."""
    echo(f"\n{text}", err=True, bold=True)
