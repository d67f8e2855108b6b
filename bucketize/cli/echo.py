"""Printing: names of nodes, files and symbols are others' text, and a terminal obeys what it reads.

All that commands print goes through here.
"""

from __future__ import annotations

import click

from bucketize.table import legible


def echo(text: object, *, err: bool = False) -> None:
    """Print text, control characters escaped, to stdout or stderr."""
    click.echo(legible(str(text)), err=err)
