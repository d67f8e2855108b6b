"""`bucketize log`: what logs hold, several made one, one made smaller."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from bucketize.cli.parameter import json_option, written_option

LOGS = click.argument(
    "logs", metavar="LOG...", type=click.Path(path_type=Path), nargs=-1, required=True
)


@click.group(short_help="Merge, prune or count the rows of tuning logs.")
def log() -> None:
    """Merge, prune or count the rows of tuning logs, from this machine or others.

    \b
    Examples:
      bucketize log merge mine.csv theirs.csv -o all.csv
    """


@log.command(short_help="Make one log of several.")
@LOGS
@written_option("-o", "--output", required=True, help="The log to write; it may be one of LOG.")
@click.option("--force", is_flag=True, help="Replace an output that exists and is none of LOG.")
@json_option
def merge(logs: tuple[Path, ...], output: Path, force: bool, as_json: bool) -> None:
    """Write one log with the rows of every LOG, in order of time, identical rows once.

    Columns that this version does not know are kept, and rows of older schemas become rows of this
    one. Rows that no reader would take are told and left out.

    \b
    Examples:
      bucketize log merge mine.csv theirs.csv -o all.csv
      bucketize log merge all.csv more.csv -o all.csv
    """
    from bucketize.tune.ledger import merge

    merged = merge(logs, output, force=force)
    if as_json:
        click.echo(json.dumps({"log": str(output), **asdict(merged)}))
        return
    repeated = f"; {counted(merged.repeated, 'repeated row')} left out" if merged.repeated else ""
    held = f"{counted(merged.rows, 'row')} of {counted(len(logs), 'log')}"
    click.echo(f"{output}: {held}{repeated}")


def counted(number: int, noun: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
