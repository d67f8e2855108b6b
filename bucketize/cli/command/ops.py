"""`bucketize ops`: what is supported of each ONNX operator."""

from __future__ import annotations

from dataclasses import asdict
from fnmatch import fnmatch

import click

from bucketize.cli.echo import echo
from bucketize.cli.parameter import json_option
from bucketize.cli.table import table
from bucketize.errors import unknown_name
from bucketize.table import json_text


@click.command(short_help="List the ONNX operators that are read, and what is supported of each.")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@json_option
def ops(names: tuple[str, ...], as_json: bool) -> None:
    """List the ONNX operators that are read: all, or those of NAME, in which * stands for any text.

    "since" is the first opset; "dtypes" are those of the first operand in the newest, where ONNX
    may allow more than in others (floats: of 16 to 64 bits, ints and uints: of 8 to 64); "runs"
    says whether kernels compute it or numpy does, "operands of a run" where shapes, axes or bounds
    come at run time; "extents" whether sizes tell those of the results, so that a clone knows them,
    or values do; "pads" on which axes the policy "pad" may take it.

    \b
    Examples:
      bucketize ops
      bucketize ops "Reduce*" TopK
      bucketize ops --json
    """
    from bucketize.cli.operator import operators

    every = operators()
    for name in names:
        if not any(matches(o.operator, name) for o in every):
            raise unknown_name("operator", name, [o.operator for o in every])
    rows = [
        asdict(o) for o in every if not names or any(matches(o.operator, name) for name in names)
    ]
    echo(json_text(rows, indent=2) if as_json else table(rows))


def matches(operator: str, name: str) -> bool:
    """Whether a pattern names an operator; upper and lower case are one."""
    return fnmatch(operator.lower(), name.lower())
