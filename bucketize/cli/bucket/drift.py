"""`bucketize drift`: whether buckets still fit the requests that come."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from bucketize.cli import parameter
from bucketize.cli.bucket.merge import JUDGED
from bucketize.cli.bucket.partition import facts, judged_options, row
from bucketize.cli.bucket.traffic import read_traffic
from bucketize.cli.echo import echo
from bucketize.cli.model import dispatched, load_model
from bucketize.cli.table import fitting
from bucketize.table import json_text

COSTLY = 1  # exit code


@click.command(short_help="Compare requests with those that buckets were chosen by.")
@parameter.model_options
@parameter.dispatch_options
@click.option("--planned", metavar="FILE", required=True, help="What buckets were chosen by.")
@judged_options
@click.option(
    "--loss",
    type=parameter.FiniteRange(0),
    default=0.03,
    show_default=True,
    help="What is borne: the share that clones may take more than those chosen now.",
)
@parameter.json_option
def drift(
    model: str, bounds: list[parameter.Bound], planned: str, as_json: bool, **options: Any
) -> None:
    """Compare the requests of --traffic with those that the buckets of MODEL were chosen by.

    Says whether sizes differ beyond chance, and what that costs by the models of kernels. The exit
    code is 1 if it costs more than --loss: then buckets should be chosen again.

    \b
    Examples:
      bucketize drift net.onnx -d buckets.yaml --planned may.csv --traffic june.csv
      bucketize drift net.onnx -d buckets.yaml --planned may.csv --traffic june.csv || replan
    """
    from bucketize.partition.drift import drift as compared

    if options["dispatcher"] is None or options["traffic"] is None:
        raise click.UsageError("give the buckets, -d buckets.yaml, and what comes now, --traffic")
    requests, now = (read_traffic(spec) for spec in (planned, options["traffic"]))
    module = dispatched(load_model(model, bounds), options)
    how = {name: options[name] for name in (*JUDGED, "loss")}
    its = compared(module, requests, now, **how)
    if as_json:
        said = {"changes": [asdict(c) for c in its.changes], "is_other": its.is_other}
        costs = {"loss": its.loss, "now": row(its.now), "best": facts(its.best)}
        echo(json_text({**said, **costs}, indent=2))
    else:
        echo(fitting(f"{its}."))
    if its.is_costly:
        click.get_current_context().exit(COSTLY)
