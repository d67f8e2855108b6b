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

MODEL = "zoo:resnet18"
BOUNDS = {"N": (1, 1), "H": (32, 128), "W": (32, 128)}
POINTS = tuple({"H": size, "W": size} for size in (32, 56, 96, 128))
DISPATCHERS = ("none", "uniform:count=2", "log")
TRIALS = 12  # schedules of a workload at most; the time limit comes first
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
@click.option("--seconds", default=120.0, show_default=True, help="For the search in all.")
@parameter.threads_option
def demo(output: Path, seconds: float, threads: int) -> None:
    """Dispatch a ResNet-18 on the image size, tune, run, check the results, and show the trade-off.

    Writes trials.csv, tradeoff.csv and tradeoff.png. Takes a few minutes.

    \b
    Examples:
      bucketize demo
      bucketize demo --seconds 600 --output long-demo
    """
    from bucketize.analysis import plot_trade_off, trade_off
    from bucketize.cli.compare import measured, shown_latency, shown_trade
    from bucketize.cli.model import load_model

    output.mkdir(parents=True, exist_ok=True)
    log = output / "trials.csv"
    model = load_model(MODEL, BOUNDS.items())
    modules = dispatch_all(model)
    tune_all(modules, log, seconds, threads)
    points = ", ".join(map(parameter.shown_sizes, POINTS))
    say(f"Compiling from an empty cache, then running {points} ...")
    latency, cost = measured(model, modules, POINTS, log=log, threads=threads)
    check(latency)
    trade = trade_off(latency, cost)
    click.echo(shown_latency(latency) + "\n\n" + shown_trade(trade))
    trade.to_csv(output / "tradeoff.csv", index=False)
    plot_trade_off(trade).savefig(output / "tradeoff.png", dpi=120)
    say(f"Wrote trials.csv, tradeoff.csv and tradeoff.png to {output}/.")


def dispatch_all(model: Model) -> Modules:
    """The module behind every dispatcher, and behind the oracle: a static clone per point."""
    from bucketize.cli.model import ORACLE, dispatched

    ranges = (f"{s.name} in [{s.lo}, {s.hi}]" for s in model.main.symbols().values())
    say(f"Dispatching {MODEL}, {model.main.params[0].type}, {', '.join(ranges)}:")
    options = {"policy": "exact", "fallback": True, "points": POINTS}
    specs = (*DISPATCHERS, ORACLE)
    modules = {spec: dispatched(model, {**options, "dispatcher": spec}) for spec in specs}
    for spec, module in modules.items():
        names = [name for name in module.functions if name != "main"] or ["main"]
        more = f", ... {len(names) - 4} more" if len(names) > 4 else ""
        click.echo(f"  {spec:16} {', '.join(names[:4])}{more}", err=True)
    return modules


def tune_all(modules: Modules, log: Path, seconds: float, threads: int) -> None:
    """Search schedules for all modules into one log; more clones get more of the time."""
    from bucketize.cli.progress import tuning_bar
    from bucketize.tune.session import tune

    say(f"Tuning for {seconds:.0f} s; every trial is a row of {log} ...")
    clones = {name: len(mod.functions) for name, mod in modules.items()}
    for name, mod in modules.items():
        share = seconds * (clones[name] + 1) / sum(n + 1 for n in clones.values())
        with tuning_bar(f"tuning {name}") as progress:
            trials = tune(
                mod,
                log=log,
                trials=TRIALS,
                seconds=share,
                threads=threads,
                model=MODEL.removeprefix("zoo:"),
                progress=progress,
            )
        failed = int((trials["error_kind"] != "none").sum())
        click.echo(f"  {name:16} {len(trials)} trials, {failed} failed", err=True)


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
