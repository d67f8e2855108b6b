"""`bucketize partition`: where buckets should be, and what they are expected to buy."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bucketize.cli import parameter
from bucketize.cli.bucket.traffic import read_traffic
from bucketize.cli.command.analyze import picture
from bucketize.cli.echo import echo
from bucketize.cli.model import load_model
from bucketize.cli.table import fitting, table
from bucketize.table import json_text

if TYPE_CHECKING:
    from bucketize.partition.value import Frontier, Partition


judged_options = parameter.all_of(
    click.option(
        "--traffic",
        metavar="FILE",
        help="Sizes of requests, as `bucketize traffic` reads them; zoo:traffic/NAME. A symbol "
        "that it lacks has sizes between its bounds.",
    ),
    click.option(
        "--objective",
        type=click.Choice(["mean", "p99", "worst"]),
        default="mean",
        show_default=True,
        help="What is to be small: seconds in the mean or of 99 % of calls, or loss at the worst "
        "size.",
    ),
    click.option(
        "--log", metavar="CSV", help="Trials of kernels on the target, as `tune` wrote them."
    ),
    click.option("--target", metavar="NAME", help="Another processor: neoverse-v1, ..."),
    parameter.threads_option,
)


@click.command(short_help="Find the fewest buckets that lose nothing.")
@parameter.model_options
@judged_options
@click.option(
    "--budget", type=click.IntRange(1), default=8, show_default=True, help="The most clones."
)
@parameter.written_option("--output", "-o", help="A .yaml file for -d.")
@parameter.written_option(
    "--plot", callback=picture, help="Draw time over size, and the cuts, here: .png, .svg, .pdf."
)
@parameter.json_option
def partition(
    model: str,
    bounds: list[parameter.Bound],
    traffic: str | None,
    output: Path | None,
    plot: Path | None,
    as_json: bool,
    **how: Any,
) -> None:
    """Find the fewest buckets of MODEL that lose nothing, by the models of its kernels.

    Nothing is compiled or timed; with --log what was timed counts. One clone chooses among kernels
    by size already: what more clones save stands beside what they cost, for each number of them.

    \b
    Examples:
      bucketize partition zoo:resnet18 --dim N=1..1 --dim H=64..512 --dim W=64..512
      bucketize partition zoo:bert-base --dim B=1..1 --traffic zoo:traffic/chunks
      bucketize partition net.onnx --traffic requests.csv --log t.csv --plot cuts.png
      bucketize partition net.onnx --traffic requests.csv --budget 4 -o buckets.yaml
      bucketize compile net.onnx -d buckets.yaml -o net.bkt
    """
    from bucketize.partition.partition import partition as planned

    loaded = load_model(model, bounds)
    requests = None if traffic is None else read_traffic(traffic)
    its = planned(loaded.module, requests, **how)
    if output is not None:
        its.write(output)
    if plot is not None:
        from bucketize.analysis.plot import plot_partition

        plot_partition(its).savefig(plot, dpi=120)
    echo(json_text(facts(its), indent=2) if as_json else shown(its))


def facts(its: Partition) -> dict[str, Any]:
    """A partition, for scripts."""
    return {
        **row(its.chosen),
        "oracle": its.oracle,
        "objective": its.objective,
        "frontier": [row(f) for f in its.frontier],
    }


def row(of: Frontier) -> dict[str, Any]:
    """A number of clones, for scripts."""
    names = [field.name for field in dataclasses.fields(of)]
    return {"clones": of.clones, **{name: getattr(of, name) for name in names}}


def shown(its: Partition) -> str:
    """A line for each number of clones, then what to take."""
    from bucketize.partition.value import show_buckets

    single = its.frontier[0].value(its.objective) or 1.0
    rows = [
        {
            "clones": f.clones,
            "time": f.value(its.objective) / single,
            "above the oracle": its.above(f),
            "worst": f.worst - 1,
            "kernels": f.kernels,
            "compile": f"{f.compile_s:.0f} s",
            "weights": f"{f.weight_bytes / 2**20:.0f} MiB",
            "buckets": show_buckets(f.buckets),
        }
        for f in its.frontier
    ]
    formats = {
        "time": "{:.3f}".format,
        "above the oracle": "{:.1%}".format,
        "worst": "{:.1%}".format,
    }
    return f"{table(rows, formats)}\n\n{fitting(f'Take: {its}.')}"
