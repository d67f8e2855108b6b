"""`bucketize cache`: what the kernels on the disk take, and fewer of them."""

from __future__ import annotations

import click

from bucketize.cli import parameter
from bucketize.cli.echo import echo
from bucketize.cli.parameter import json_option
from bucketize.table import json_text


@click.command(short_help="Show what compiled kernels take on the disk; remove some.")
@click.option(
    "--prune",
    type=parameter.FiniteRange(min=0),
    metavar="DAYS",
    help="Remove the kernels that were not used for so long; 0 removes all.",
)
@json_option
def cache(prune: float | None, as_json: bool) -> None:
    """Show where compiled kernels are kept and what they take; remove old ones.

    What is removed is compiled anew when a model needs it. The environment's BUCKETIZE_CACHE names
    another directory.

    \b
    Examples:
      bucketize cache
      bucketize cache --prune 30
    """
    from bucketize.kernel import cache as files
    from bucketize.machine.directory import cache_directory

    removed = [] if prune is None else files.prune(prune)
    kernels = files.kernels()
    facts: dict[str, str | int] = {
        "directory": str(cache_directory()),
        "kernels": len(kernels),
        "bytes": sum(k.size for k in kernels),
        "other_bytes": files.other_bytes(),
        "removed": len(removed),
    }
    echo(json_text(facts) if as_json else shown(facts))


def shown(facts: dict[str, str | int]) -> str:
    """The facts as a person reads them."""
    size, others = (int(facts[name]) / 2**20 for name in ("bytes", "other_bytes"))
    also = f", {others:.1f} MiB of other things" if others else ""
    more = f", {facts['removed']} removed" if facts["removed"] else ""
    return f"{facts['directory']}: {facts['kernels']} kernels, {size:.1f} MiB{also}{more}"
