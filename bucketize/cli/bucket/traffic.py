"""`bucketize traffic`: what sizes requests have; several files made one, one split."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from bucketize.cli import parameter
from bucketize.cli.echo import echo
from bucketize.cli.model import ZOO
from bucketize.cli.parameter import json_option, written_option
from bucketize.cli.table import table
from bucketize.table import json_text, several

if TYPE_CHECKING:
    from bucketize.traffic.value import Traffic

SHARES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
FREQUENT = 8  # sizes that are shown
BARS, WIDEST = 12, 40  # rows and columns of a drawn histogram
IN_ZOO = f"{ZOO}traffic/"


def column(text: str) -> tuple[str, str]:
    """The symbol and the column of `S=ContextTokens`."""
    symbol, equals, name = text.partition("=")
    if not (symbol and equals and name):
        raise click.BadParameter(f"{text!r} names no column; write S=ContextTokens")
    return symbol, name


def scale(text: str) -> tuple[str, Fraction]:
    """The symbol and the factor of `S=1/8`."""
    symbol, _, factor = text.partition("=")
    try:
        return symbol, Fraction(factor)
    except (ValueError, ZeroDivisionError) as e:
        raise click.BadParameter(f"{text!r} is no scale; write S=1/8 or H=0.8") from e


@click.command(short_help="Show, merge or split the sizes of requests.")
@click.argument("traffics", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--column",
    "columns",
    type=column,
    multiple=True,
    metavar="SYMBOL=COLUMN",
    help="Read this column of FILE, and no other but such; also time=COLUMN, requests=COLUMN.",
)
@click.option(
    "--scale",
    "scales",
    type=scale,
    multiple=True,
    metavar="SYMBOL=FACTOR",
    help="Sizes times a factor, rounded up: S=1/8.",
)
@written_option("-o", "--output", help="Write the traffic to a file, .csv or .parquet.")
@click.option(
    "--split",
    type=parameter.FiniteRange(min=0, min_open=True),
    metavar="TIME|SHARE",
    help="Write two files: before a time in seconds and from it on, or below 1 a share and the "
    "rest.",
)
@click.option(
    "--halves",
    type=click.IntRange(min=0),
    metavar="SEED",
    help="Write two files: halves drawn without replacement.",
)
@json_option
def traffic(
    traffics: tuple[str, ...],
    columns: tuple[tuple[str, str], ...],
    scales: tuple[tuple[str, Fraction], ...],
    output: Path | None,
    split: float | None,
    halves: int | None,
    as_json: bool,
) -> None:
    """Show the sizes of requests; of several FILEs, all their requests.

    FILE is CSV or parquet with a row for each request, or for each size with its requests in a
    column `requests` or `count`; `time` holds seconds or ISO 8601, each other column a symbol's
    sizes. zoo:traffic/NAME is one that comes with the package: prompts, prompts-first,
    prompts-second, images, queries, chunks, recommender; uniform, zipf, log-normal, bimodal, queue.

    With -o and --split or --halves, OUT.csv is written as OUT-first.csv and OUT-second.csv.

    \b
    Examples:
      bucketize traffic zoo:traffic/prompts
      bucketize traffic monday.csv tuesday.csv -o week.csv
      bucketize traffic trace.csv --column S=ContextTokens --column time=TIMESTAMP
      bucketize traffic zoo:traffic/prompts --scale S=1/8 --split 1800 -o prompts.csv
    """
    if (split is not None or halves is not None) and output is None:
        raise click.UsageError("--split and --halves write files: give -o OUT.csv")
    if split is not None and halves is not None:
        raise click.UsageError("--split and --halves are two ways to split: give one")
    first, *others = [read_traffic(spec, dict(columns)) for spec in traffics]
    whole = first.merged(*others).scaled(**dict(scales))
    written = dict(parts(whole, output, split, halves))
    for path, part in written.items():
        part.write(path)
    facts = {str(path): part.total for path, part in written.items()}
    if as_json:
        echo(json_text({**described(whole), "written": facts}))
        return
    lines = [f"wrote {path}: {several(total, 'request')}" for path, total in facts.items()]
    echo("\n".join([shown(whole), *lines]))


def read_traffic(spec: str, columns: dict[str, str] | None = None) -> Traffic:
    """The traffic of a file, or of zoo:traffic/NAME."""
    if spec.startswith(IN_ZOO):
        from bucketize.zoo import traffic as of_zoo

        return of_zoo(spec.removeprefix(IN_ZOO))
    from bucketize.traffic.value import Traffic

    return Traffic.read(spec, columns or None)


def parts(
    whole: Traffic, output: Path | None, split: float | None, halves: int | None
) -> Iterator[tuple[Path, Traffic]]:
    """The files to write."""
    if output is None:
        return
    if split is None and halves is None:
        yield output, whole
        return
    if halves is not None:
        two = whole.halves(halves)
    elif split is not None and split < 1:
        two = whole.split(share=split)
    else:
        two = whole.split(time=split)
    for name, part in zip(("first", "second"), two, strict=True):
        yield output.with_stem(f"{output.stem}-{name}"), part


def described(traffic: Traffic) -> dict[str, Any]:
    """The facts of a traffic, for scripts."""
    times = traffic.times
    return {
        "requests": traffic.total,
        "distinct": len(traffic.without_times().sizes),
        "time": None if times is None else [float(times[0]), float(times[-1])],
        "quantiles": quantiles(traffic),
        "frequent": frequent(traffic),
    }


def quantiles(traffic: Traffic) -> list[dict[str, Any]]:
    """A row for each symbol."""
    names = [f"p{round(100 * share)}" for share in SHARES]
    return [
        {
            "symbol": symbol,
            "least": least,
            **dict(zip(names, traffic.quantiles(symbol, SHARES), strict=True)),
            "most": most,
        }
        for symbol, (least, most) in traffic.bounds.items()
    ]


def frequent(traffic: Traffic) -> list[dict[str, Any]]:
    """The sizes of most requests, a row each."""
    sizes = traffic.without_times()
    rows = np.argsort(-sizes.requests, kind="stable")[:FREQUENT]
    return [
        {
            **dict(zip(sizes.symbols, sizes.sizes[row].tolist(), strict=True)),
            "requests": int(sizes.requests[row]),
            "share": float(sizes.requests[row] / sizes.total),
        }
        for row in rows
    ]


def shown(traffic: Traffic) -> str:
    """A traffic as text."""
    facts = described(traffic)
    head = f"{several(facts['requests'], 'request')} of {several(facts['distinct'], 'size')}"
    if facts["time"]:
        head += ", from {:.15g} to {:.15g} s".format(*facts["time"])
    share = {"share": lambda x: f"{x:.1%}"}
    drawings = [f"{s}\n{drawn(traffic, s)}" for s in traffic.symbols]
    return "\n\n".join(
        [head, table(facts["quantiles"]), table(facts["frequent"], share), *drawings]
    )


def drawn(traffic: Traffic, symbol: str) -> str:
    """The requests of a symbol in intervals of one width, a bar each."""
    histogram = traffic.histogram(symbol)
    least, most = traffic.bounds[symbol]
    width = -(-(most - least + 1) // BARS)
    bars = [0] * ((most - least) // width + 1)
    for size, requests in histogram.items():
        bars[(size - least) // width] += requests
    rows = [
        {
            "sizes": f"{least + i * width}..{min(least + (i + 1) * width - 1, most)}",
            "requests": requests,
            "": "#" * -(-WIDEST * requests // max(bars)),
        }
        for i, requests in enumerate(bars)
    ]
    return table(rows)
