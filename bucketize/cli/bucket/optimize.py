"""`bucketize optimize`: from a model and its traffic to a program, in one command."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from bucketize.cli import parameter
from bucketize.cli.bucket.traffic import read_traffic
from bucketize.cli.command.bench import model_file
from bucketize.cli.echo import echo
from bucketize.cli.model import load_model, name_of
from bucketize.progress import progress_bar
from bucketize.table import json_text


@click.command(short_help="Choose buckets for a traffic, tune them, and say what it bought.")
@parameter.model_options
@click.option("--traffic", metavar="FILE", required=True, help="Sizes of requests.")
@click.option(
    "--seconds",
    type=parameter.FiniteRange(min=1),
    default=600,
    show_default=True,
    help="For all of it; reading MODEL is not counted.",
)
@parameter.trials_option
@click.option(
    "--budget", type=click.IntRange(1), default=8, show_default=True, help="The most clones."
)
@parameter.written_option(
    "--output", "-o", callback=parameter.replaceable, help="Default: NAME.bkt."
)
@parameter.written_option("--log", help="The CSV to add to. Default: that of OUTPUT's name.")
@parameter.threads_option
@parameter.json_option
def optimize(
    model: str,
    bounds: list[parameter.Bound],
    traffic: str,
    output: Path | None,
    log: Path | None,
    as_json: bool,
    **how: Any,
) -> None:
    """Choose buckets of MODEL for a traffic, tune them by its requests, and time the whole on it.

    Buckets are chosen by models of kernels and by the trials of the log, if there are any. The
    program is written, and beside it the log: the same command goes on from there, also after
    Ctrl-C.

    \b
    Examples:
      bucketize optimize net.onnx --traffic requests.csv --seconds 600 -o net.bkt
      bucketize optimize zoo:mlp --traffic zoo:traffic/recommender --seconds 60
    """
    requests = read_traffic(traffic)
    loaded = load_model(model, bounds)
    with progress_bar("loading the search"):
        from bucketize.optimize.optimize import optimize as optimized
    path = output or Path(f"{name_of(model)}.bkt")
    trials = log or path.with_suffix(".csv")
    if path.absolute() == trials.absolute():
        raise click.UsageError(f"the program and the log of its trials cannot both be {path}")
    try:
        with model_file(model) as file:
            its = optimized(loaded.module, requests, log=trials, model=file, progress=True, **how)
    except KeyboardInterrupt:
        echo(f"interrupted: {trials} keeps what was timed; the same command goes on", err=True)
        click.get_current_context().exit(parameter.INTERRUPTED)
    its.executable.save(path)
    if as_json:
        facts = {
            "latencies": [dataclasses.asdict(each) for each in its.latencies],
            "buckets": its.partition and its.partition.chosen.buckets,
            "promise": its.promise,
            "written": str(path),
            "log": str(trials),
        }
        echo(json_text(facts, indent=2))
        return
    echo(f"{its}\nwrote {path}, trials in {trials}; the same command goes on from there")
