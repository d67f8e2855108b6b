"""`bucketize tune`: a search for schedules, logged."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bucketize.cli import parameter
from bucketize.cli.model import dispatched, load_model

if TYPE_CHECKING:
    import pandas as pd


@click.command()
@parameter.model_options
@parameter.dispatch_options
@parameter.at_option
@click.option("--log", required=True, type=click.Path(path_type=Path), help="The CSV to add to.")
@click.option("--trials", default=64, show_default=True, help="Schedules to try per workload.")
@click.option("--seconds", type=float, help="Stop after this time, shared among the workloads.")
@click.option(
    "--search",
    type=click.Choice(["skopt", "random", "grid"]),
    default="skopt",
    show_default=True,
    help="How schedules are chosen after the default and the neighbours' best.",
)
@click.option("--seed", default=0, show_default=True, help="Of the search.")
@click.option(
    "--sizes",
    "judged",
    type=click.Choice(["middle", "bounds"]),
    default="middle",
    show_default=True,
    help="Where in its bucket a schedule is judged, if --at does not say.",
)
@parameter.threads_option
@parameter.json_option
def tune(model: str, bounds: list[parameter.Bound], as_json: bool, **options: Any) -> None:
    """Search schedules for every workload of every clone of MODEL; each trial is a row of --log.

    Trials that the log already has are not repeated, so a session that was interrupted goes on.

    \b
    Examples:
      bucketize tune zoo:mlp -d log --log trials.csv --trials 16
      bucketize tune net.onnx --dim N=1..32 -d log --log trials.csv --seconds 600 --at N=1 --at N=8
    """
    from bucketize.cli.progress import tuning_bar
    from bucketize.tune.session import tune as session

    loaded = load_model(model, bounds)
    behind = dispatched(loaded, options)
    start = time.monotonic()
    with tuning_bar("tuning") as progress:
        trials = session(
            behind,
            log=options["log"],
            sizes=list(options["points"]) or options["judged"],
            model=loaded.name,
            progress=progress,
            **{name: options[name] for name in ("trials", "search", "seed", "threads", "seconds")},
        )
    report(options["log"], trials, time.monotonic() - start, as_json)


def report(log: Path, trials: pd.DataFrame, seconds: float, as_json: bool) -> None:
    """Print what the session did, and the best schedule of each task that it worked on."""
    from bucketize.analysis import best_schedules
    from bucketize.cli.analyze import shown_best
    from bucketize.cli.table import records

    failed = int((trials["error_kind"] != "none").sum())
    best = best_schedules(trials)
    if as_json:
        summary = {"log": str(log), "trials": len(trials), "failed": failed, "seconds": seconds}
        click.echo(json.dumps({**summary, "best": records(best)}, indent=2))
        return
    if len(best):
        click.echo(shown_best(best))
    click.echo(f"{len(trials)} trials in {seconds:.0f} s, {failed} failed; log: {log}", err=True)
