"""`bucketize check-padding`: whether padded clones let through what is behind the true extent."""

from __future__ import annotations

from typing import Any

import click

from bucketize.cli import parameter
from bucketize.cli.echo import echo
from bucketize.cli.model import dispatched, load_model
from bucketize.table import pairs


@click.command("check-padding", short_help="Run padded clones of MODEL with poisoned padding.")
@parameter.model_options
@click.option(
    "--dispatcher",
    "-d",
    metavar="SPEC",
    callback=parameter.dispatcher,
    help=parameter.SPEC,
    required=True,
)
def check_padding(model: str, bounds: list[parameter.Bound], **options: Any) -> None:
    """Compare the padded clones of MODEL, their padding poisoned, with MODEL undispatched.

    Behind the true extent are zero, NaN, both infinities and a huge number. Exit code 1 where an
    output differs.

    \b
    Examples:
      bucketize check-padding zoo:mlp --dim N=1..64 -d log
    """
    from bucketize.poison import check_padding as check

    loaded = load_model(model, bounds)
    padded = dispatched(loaded, {**options, "policy": "pad"})
    leaks = check(loaded.module, padded, lambda sizes: loaded.inputs(dict(sizes), {}))
    for leak in leaks:
        where = f"{leak.clone} at {pairs(leak.sizes)}"
        echo(f"{where}: {leak.output} differs by {leak.error:.2g} with {leak.poison} behind it")
    if leaks:
        click.get_current_context().exit(1)
    echo("no padding leaks")
