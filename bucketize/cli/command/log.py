"""`bucketize log`: what logs hold, several made one, one made smaller."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bucketize.cli import parameter
from bucketize.cli.echo import echo
from bucketize.cli.parameter import json_option, written_option
from bucketize.cli.table import table
from bucketize.table import json_text, several

if TYPE_CHECKING:
    from bucketize.log.maintain import Pruning

LOGS = click.argument(
    "logs", metavar="LOG...", type=click.Path(path_type=Path), nargs=-1, required=True
)


@click.group(short_help="Merge, prune or count the rows of tuning logs.")
def log() -> None:
    """Merge, prune or count the rows of tuning logs, from this machine or others.

    \b
    Examples:
      bucketize log merge mine.csv theirs.csv -o all.csv
      bucketize log prune all.csv --dry-run
      bucketize log stats all.csv
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
    from bucketize.log.maintain import merge

    merged = merge(logs, output, force=force)
    if as_json:
        echo(json_text({"log": str(output), **asdict(merged)}))
        return
    repeated = f"; {several(merged.repeated, 'repeated row')} left out" if merged.repeated else ""
    rows = f"{several(merged.rows, 'row')} of {several(len(logs), 'log')}"
    echo(f"{output}: {rows}{repeated}")


@log.command(short_help="Drop the rows that can no longer count.")
@click.argument("log", type=click.Path(path_type=Path))
@click.option(
    "--older",
    "older_days",
    type=parameter.FiniteRange(min=0),
    metavar="DAYS",
    help="Drop only rows older than that.",
)
@click.option("--host", metavar="NAME", help="Drop only rows of this processor, as `stats` tells.")
@click.option("--model", metavar="NAME", help="Drop only rows of this model.")
@click.option(
    "--keep-failed/--drop-failed",
    default=True,
    help="Keep trials that failed, so that they are not tried again (default), or drop them.",
)
@click.option("-n", "--dry-run", is_flag=True, help="Say what would be dropped, and stop.")
@click.option("--backup/--no-backup", default=True, help="Keep the old log as LOG.bak (default).")
@json_option
def prune(
    log: Path, keep_failed: bool, dry_run: bool, backup: bool, as_json: bool, **scope: Any
) -> None:
    """Drop the rows of LOG that can no longer count, and say how many for which reason.

    These are rows of other versions of what writes machine code, all but the last of repeated
    measurements, and lines that are torn or make no sense. With --older, --host or --model, only
    those of them to which all that is given applies.

    \b
    Examples:
      bucketize log prune trials.csv --dry-run
      bucketize log prune trials.csv --host znver3 --older 90
    """
    from bucketize.log.maintain import Prunable, prune

    pruned = prune(
        log, Prunable(**scope), drop_failed=not keep_failed, dry_run=dry_run, backup=backup
    )
    if as_json:
        beside = pruned.backup and str(pruned.backup)
        echo(json_text({"log": str(log), **asdict(pruned), "backup": beside}))
    else:
        echo(shown_pruning(log, pruned, dry_run))


def shown_pruning(log: Path, pruned: Pruning, dry_run: bool) -> str:
    """What was dropped, or would be, as a person reads it."""
    dropped = sum(pruned.dropped.values())
    rows = several(pruned.kept + dropped, "row")
    if not dropped:
        return f"{log}: {rows}, nothing to drop"
    backup = f"; the old log is {pruned.backup}" if pruned.backup else ""
    what = f"{'would drop' if dry_run else 'dropped'} {dropped} of {rows}{backup}"
    reasons = [{"rows": n, "because": reason} for reason, n in pruned.dropped.items()]
    return f"{log}: {what}\n{table(reasons)}"


@log.command(short_help="Count the rows of logs.")
@LOGS
@json_option
def stats(logs: tuple[Path, ...], as_json: bool) -> None:
    """Count the rows of every LOG by source, status, model, function, bucket, host and versions.

    Those left out do not count for readers on this machine with these versions. Compiling is the
    sum of `compile_s`, timing that of repeats by median latency. Schedules are distinct pairs of
    template and knobs.

    \b
    Examples:
      bucketize log stats trials.csv
      bucketize log stats mine.csv theirs.csv --json
    """
    from bucketize.log.maintain import stock

    counts = stock(logs)
    if as_json:
        echo(json_text({"logs": list(map(str, logs)), **counts}, indent=2))
    else:
        echo(shown_stock(len(logs), counts))


def shown_stock(logs: int, stock: dict[str, Any]) -> str:
    """What logs hold, as a person reads it."""
    when = f", {stock['first']} to {stock['last']}" if stock["rows"] else ""
    distinct = ", ".join(several(stock[f"{noun}s"], noun) for noun in ("workload", "schedule"))
    lines = [
        f"{several(stock['rows'], 'row')} of {several(logs, 'log')}{when}",
        f"{distinct}; {stock['compile_s']:.1f} s of compiling, {stock['timing_s']:.1f} s of timing",
    ]
    rows = [
        {"column": way.replace("_", " "), "value": value or None, "rows": n}
        for way, of in stock.items()
        if isinstance(of, dict)
        for value, n in of.items()
    ]
    return "\n".join([*lines, *(["", table(rows)] if rows else [])])
