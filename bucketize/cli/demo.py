"""`bucketize demo`: every stage on one model of the zoo."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bucketize.cli import parameter

if TYPE_CHECKING:
    import pandas as pd

    from bucketize.cli.compare import Modules
    from bucketize.ir import Module

MODEL = "zoo:bert-mini"
BOUNDS = {"B": (1, 1), "S": (1, 128)}
LENGTHS = (4, 15, 33, 70, 128)
DISPATCHERS = ("none", "log", "uniform:count=4")
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
    """Dispatch a small BERT on its sequence length, tune, run, check, and show the trade-off.

    Writes trials.csv, tradeoff.csv and tradeoff.png. Takes a few minutes.
    """
    from bucketize.analysis import plot_trade_off, trade_off
    from bucketize.cli.compare import cases_of, compare, shown_trade
    from bucketize.cli.model import load_model

    output.mkdir(parents=True, exist_ok=True)
    log = output / "trials.csv"
    points = [{"B": 1, "S": length} for length in LENGTHS]
    mod = load_model(MODEL, BOUNDS.items())
    modules = dispatch_all(mod, points)
    tune_all(modules, log, seconds, threads)
    say(f"Compiling from an empty cache, then running S = {', '.join(map(str, LENGTHS))} ...")
    cost, latency = compare(modules, cases_of(MODEL, mod, points), log=log, threads=threads)
    check(latency)
    trade = trade_off(latency, cost)
    click.echo(shown_latency(latency) + "\n\n" + shown_trade(trade))
    trade.to_csv(output / "tradeoff.csv", index=False)
    plot_trade_off(trade).savefig(output / "tradeoff.png", dpi=120)
    say(f"Wrote trials.csv, tradeoff.csv and tradeoff.png to {output}/.")


def say(text: str) -> None:
    """A heading on stderr: results alone go to stdout."""
    click.secho(f"\n{text}", err=True, bold=True)
