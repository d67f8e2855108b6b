"""`bucketize partition`: where buckets should be, and what they are expected to buy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bucketize.cli import parameter
from bucketize.cli.command.traffic import read_traffic
from bucketize.cli.echo import echo
from bucketize.cli.model import load_model
from bucketize.cli.table import fitting
from bucketize.types import show_interval

if TYPE_CHECKING:
    from bucketize.partition.partition import Partition


@click.command(short_help="Find the fewest buckets that lose nothing.")
@parameter.model_options
@click.option(
    "--traffic",
    metavar="FILE",
    help="Sizes of requests, as `bucketize traffic` reads them; zoo:traffic/NAME.",
)
@click.option(
    "--budget", type=click.IntRange(1), default=8, show_default=True, help="The most clones."
)
@parameter.written_option("--output", "-o", help="A .yaml file for -d.")
@click.option("--target", metavar="NAME", help="Another processor: neoverse-v1, ...")
@parameter.threads_option
@parameter.json_option
def partition(
    model: str,
    bounds: list[parameter.Bound],
    traffic: str | None,
    output: Path | None,
    as_json: bool,
    **how: Any,
) -> None:
    """Find the fewest buckets of MODEL that lose nothing, by the models of its kernels.

    Nothing is compiled or timed. One clone chooses among kernels by size already: what more clones
    save stands beside what they cost, for each number of them.

    \b
    Examples:
      bucketize partition zoo:resnet18 --dim N=1..1 --dim H=64..512 --dim W=64..512
      bucketize partition zoo:bert-base --dim B=1..1 --traffic zoo:traffic/chunks
      bucketize partition net.onnx --traffic requests.csv --budget 4 -o buckets.yaml
      bucketize compile net.onnx -d buckets.yaml -o net.bkt
    """
    from bucketize.partition.partition import partition as planned

    loaded = load_model(model, bounds)
    requests = None if traffic is None else read_traffic(traffic)
    its = planned(loaded.module, requests, **how)
    if output is not None:
        its.write(output)
    echo(json.dumps(facts(its), indent=2) if as_json else shown(its))


def facts(its: Partition) -> dict[str, Any]:
    """A partition, for scripts."""
    return {
        "intervals": its.chosen.intervals,
        "clones": its.chosen.clones,
        "seconds": its.chosen.seconds,
        "oracle": its.oracle,
        "frontier": [
            {n: getattr(f, n) for n in ("clones", "seconds", "kernels", "intervals")}
            for f in its.frontier
        ],
    }


def shown(its: Partition) -> str:
    """A line for each number of clones, then what to take."""
    lines = [f"{'clones':>6}  {'time':>6}  {'above the oracle':>16}  {'kernels':>7}  buckets"]
    single = its.frontier[0].seconds or 1.0
    for f in its.frontier:
        loss = f.seconds / its.oracle - 1 if its.oracle else 0.0
        buckets = "; ".join(
            f"{name}={' '.join(map(show_interval, each))}" for name, each in f.intervals.items()
        )
        lines.append(
            f"{f.clones:>6}  {f.seconds / single:>6.3f}  {loss:>16.1%}  {f.kernels:>7}  {buckets}"
        )
    return "\n".join([*lines, "", fitting(f"Take: {its}.")])
