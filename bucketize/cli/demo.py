"""`bucketize demo`: every stage on one model of the zoo."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bucketize.cli import parameter

if TYPE_CHECKING:
    import pandas as pd

    from bucketize.cli.compare import Modules
    from bucketize.cli.model import Model
    from bucketize.ir import Module

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
@click.option("--trials", default=10, show_default=True, help="Schedules to try per task.")
@parameter.threads_option
def demo(output: Path, trials: int, threads: int) -> None:
    """Dispatch an MLP on the batch size, tune, run, check the results, and show the trade-off.

    Every dispatcher has a log of its own, and as many schedules are tried for each of its tasks, at
    the ends and in the middle of the bucket. Writes the logs, tradeoff.csv and tradeoff.png. Takes
    a few minutes.

    \b
    Examples:
      bucketize demo
      bucketize demo --trials 64 --output long-demo
    """
    from bucketize.analysis import plot_trade_off, trade_off, versus_oracle
    from bucketize.cli.compare import dispatchers_of, measured, shown_latency, shown_trade
    from bucketize.cli.model import load_model

    output.mkdir(parents=True, exist_ok=True)
    model = load_model(MODEL, BOUNDS.items())
    modules = dispatchers_of(model, DISPATCHERS, POINTS)
    show_clones(model, modules)
    logs = tune_all(modules, output, trials, threads)
    points = ", ".join(map(parameter.shown_sizes, POINTS))
    say(f"Compiling from an empty cache, then running {points} ...")
    latency, cost = measured(model, modules, POINTS, logs=logs, threads=threads)
    check(latency)
    click.echo(shown_latency(latency) + "\n\n" + shown_trade(latency, cost))
    beside = versus_oracle(latency).merge(cost, how="left", on="dispatcher")
    beside.to_csv(output / "tradeoff.csv", index=False)
    plot_trade_off(trade_off(latency, cost)).savefig(output / "tradeoff.png", dpi=120)
    say(f"Wrote the logs, tradeoff.csv and tradeoff.png to {output}/.")


def show_clones(model: Model, modules: Modules) -> None:
    """What each dispatcher makes of the module."""
    ranges = (f"{s.name} in [{s.lo}, {s.hi}]" for s in model.main.symbols().values())
    say(f"Dispatching {MODEL}, {model.main.params[0].type}, {', '.join(ranges)}:")
    for spec, module in modules.items():
        names = [name for name in module.functions if name != "main"] or ["main"]
        more = f", ... {len(names) - 3} more" if len(names) > 3 else ""
        click.echo(f"  {spec:16} {', '.join(names[:3])}{more}", err=True)


def tune_all(modules: Modules, output: Path, trials: int, threads: int) -> dict[str, Path]:
    """Search schedules for every module but the untuned, each in its own log; the logs."""
    from bucketize.cli.compare import UNTUNED

    say(f"Tuning, {trials} schedules for each task; every trial is a row of a log ...")
    logs = {s: output / f"trials-{s.replace(':', '-')}.csv" for s in modules if s != UNTUNED}
    for spec, log in logs.items():
        tune_one(spec, modules[spec], log, trials, threads)
    return logs


def tune_one(spec: str, module: Module, log: Path, trials: int, threads: int) -> None:
    """Search schedules for one module."""
    from bucketize.analysis import tasks
    from bucketize.tune.progress import tuning_bar
    from bucketize.tune.session import tune

    with tuning_bar(f"tuning {spec}") as progress:
        tried = tune(
            module,
            log=log,
            trials=trials,
            sizes="bounds",  # what serves all of a bucket is less a matter of luck
            threads=threads,
            model=MODEL.removeprefix("zoo:"),
            progress=progress,
        )
    failed = int((tried["error_kind"] != "none").sum())
    searched = len(list(tasks(tried)))
    told = f"{len(tried)} trials of {searched} tasks, {failed} failed; {log.name}"
    click.echo(f"  {spec:16} {told}", err=True)


def check(latency: pd.DataFrame) -> None:
    """Raise an error if a result is not what the ops mean."""
    from bucketize.errors import BucketizeError

    worst = latency.iloc[int(latency["max_rel_err"].argmax())]
    if worst["max_rel_err"] > TOLERANCE:
        where = f"{worst['clone']} of {worst['dispatcher']} at {worst['shape']}"
        error = f"{worst['max_rel_err']:.1e}"
        raise BucketizeError(f"{where} is off by {error}, more than {TOLERANCE:g}")
    click.echo(f"  all results within {worst['max_rel_err']:.1e} of the reference", err=True)


def say(text: str) -> None:
    """A heading on stderr: results alone go to stdout."""
    click.secho(f"\n{text}", err=True, bold=True)
