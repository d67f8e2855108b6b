"""`bucketize dispatchers`: what is installed."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import click

from bucketize.cli import parameter
from bucketize.cli.echo import echo
from bucketize.cli.table import fitting
from bucketize.errors import BucketizeError
from bucketize.table import json_text
from bucketize.types import Symbol, show_interval


@click.command(short_help="List the installed dispatchers, and an example of each.")
@click.option(
    "--dim",
    "bound",
    type=parameter.bound,
    default="N=1..64",
    show_default=True,
    help="The axis shown.",
)
@parameter.json_option
def dispatchers(bound: parameter.Bound, as_json: bool) -> None:
    """List the installed dispatchers, with the buckets that each makes of one axis.

    A package of yours adds its own under the entry point group "bucketize.dispatchers"; without
    one, --dispatcher takes module:name and path.py:name.

    \b
    Examples:
      bucketize dispatchers
      bucketize dispatchers --dim N=1..1024
    """
    from bucketize.cli.dispatcher import installed
    from bucketize.onnx.front import bounded

    dim = bounded(*bound)
    symbol = Symbol(bound[0], dim, dim) if isinstance(dim, int) else dim
    rows = [describe(name, entry.load(), symbol) for name, entry in installed().items()]
    if as_json:
        echo(json_text(rows, indent=2))
        return
    echo("\n\n".join([*(described(row, symbol) for row in rows), *of_files()]))


def described(row: Mapping[str, Any], symbol: Symbol) -> str:
    """A dispatcher as text."""
    axis = f"{symbol} in {symbol.range}"
    return "\n".join(
        [
            fitting(f"{row['name']}  {row['help']}"),
            f"    options: {', '.join(row['options']) or 'none'}",
            fitting(f"    {axis}: {shown(row['buckets'])}"),
        ]
    )


def of_files() -> Iterator[str]:
    """What dispatchers are read from, and what stands in such a file."""
    from bucketize.cli.dispatcher import file_readers

    suffixes: dict[str, list[str]] = {}
    for suffix, entry in file_readers().items():
        text = (inspect.getdoc(entry.load()) or "").partition("\n\nArgs:")[0]
        suffixes.setdefault(text, []).append(f"FILE.{suffix}")
    for text, names in suffixes.items():
        head, *lines = text.splitlines()
        yield "\n".join(
            [fitting(f"{', '.join(names)}  {head}"), *(fitting(f"    {x}") for x in lines if x)]
        )


def describe(name: str, dispatcher: Any, symbol: Symbol) -> dict[str, Any]:
    """A dispatcher as the list shows it."""
    parameters = inspect.signature(dispatcher).parameters.values()
    return {
        "name": name,
        "help": (inspect.getdoc(dispatcher) or "").partition("\n")[0],
        "options": {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY},
        "buckets": example(dispatcher, symbol),
    }


def example(dispatcher: Any, symbol: Symbol) -> Any:
    """The buckets of one axis, or why there are none."""
    from bucketize.dispatch.bucket import clip

    try:
        answer = dispatcher({"data": (symbol,)})
    except BucketizeError as e:
        return str(e)
    if not isinstance(answer, Mapping):
        return [str(box) for box in answer]
    return [kept for each in answer["data"][0] if (kept := clip(each, symbol)) is not None]


def shown(buckets: Any) -> str:
    """The first of the buckets on one line."""
    if isinstance(buckets, str):
        return buckets
    first = [b if isinstance(b, str) else show_interval(b) for b in buckets[:12]]
    more = [f"... {len(buckets) - 12} more"] if len(buckets) > 12 else []
    return " ".join(first + more)
