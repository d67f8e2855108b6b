"""`bucketize merge`: the clones of a dispatcher, as few as lose nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bucketize.cli import parameter
from bucketize.cli.bucket.partition import facts, judged_options, row, shown
from bucketize.cli.bucket.traffic import read_traffic
from bucketize.cli.echo import echo
from bucketize.cli.model import dispatched, load_model
from bucketize.cli.table import fitting
from bucketize.table import json_text

JUDGED = ("objective", "log", "target", "threads")


@click.command(short_help="Join the clones of MODEL that are as good as one.")
@parameter.model_options
@parameter.dispatch_options
@judged_options
@parameter.written_option("--output", "-o", help="A .yaml file for -d.")
@parameter.json_option
def merge(
    model: str,
    bounds: list[parameter.Bound],
    traffic: str | None,
    output: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Join the clones of MODEL behind a dispatcher, where their kernels are the same or as good.

    Nothing is compiled or timed. New buckets begin and end where old ones do.

    \b
    Examples:
      bucketize merge zoo:resnet18 -d log --dim N=1..1 --dim H=64..512 --dim W=64..512
      bucketize merge net.onnx -d buckets.yaml --traffic requests.csv -o fewer.yaml
    """
    from bucketize.partition.merge import merge as merged

    if options["dispatcher"] is None:
        raise click.UsageError("there is nothing to merge without clones: give -d, such as -d log")
    loaded = load_model(model, bounds)
    module = dispatched(loaded, options)
    requests = None if traffic is None else read_traffic(traffic)
    its = merged(module, requests, **{name: options[name] for name in JUDGED})
    if output is not None:
        its.partition.write(output)
    if as_json:
        facts_of = {**facts(its.partition), "before": row(its.before), "loss": its.loss}
        echo(json_text(facts_of, indent=2))
        return
    echo(f"{shown(its.partition)}\n\n{fitting(f'{its}.')}")
