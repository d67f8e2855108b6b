"""`bucketize tune`: a search for schedules, logged."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bucketize.cli import parameter
from bucketize.cli.model import dispatched, load_model
from bucketize.cli.parameter import INTERRUPTED

if TYPE_CHECKING:
    import pandas as pd

    from bucketize.tune.session import Session


@click.command(short_help="Search schedules for the clones of MODEL, into a log.")
@parameter.model_options
@parameter.dispatch_options
@parameter.at_option
@click.option("--log", required=True, type=click.Path(path_type=Path), help="The CSV to add to.")
@click.option("--trials", default=64, show_default=True, help="Schedules to try per workload.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    help="Stop after this time, shared among the workloads.",
)
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
      bucketize tune net.onnx -d log --log t.csv --at N=1 --at N=8 --seconds 600
    """
    from bucketize.progress import progress_bar

    loaded = load_model(model, bounds)
    with progress_bar("loading the search"):
        from bucketize.tune.session import opened

    with opened(
        dispatched(loaded, options),
        sizes=list(options["points"]) or options["judged"],
        model=loaded.name,
        measurer=None,
        progress=True,
        **{name: options[name] for name in PASSED},
    ) as session:
        came = worked(session)
    click.echo(came.json() if as_json else came.table())
    click.echo(came.summary(), err=True)
    if came.interrupted:
        click.get_current_context().exit(INTERRUPTED)


PASSED = ("log", "trials", "search", "seed", "threads", "seconds")


def worked(session: Session) -> Report:
    """What a session comes to that works until it is through, or interrupted."""
    start, interrupted = time.monotonic(), False
    try:
        session.work()
    except KeyboardInterrupt:
        interrupted = True
    return Report(session, time.monotonic() - start, interrupted)


@dataclass(frozen=True)
class Report:
    """What tuning came to: the trials of this run, and all that are known of its tasks."""

    session: Session
    seconds: float
    interrupted: bool

    @cached_property
    def best(self) -> pd.DataFrame:
        """The best schedule of each task in the whole log."""
        from bucketize.analysis import best_schedules

        return best_schedules(self.session.known_by_task())

    @cached_property
    def known(self) -> int:
        """How many trials serve the tasks; one that serves several counts once."""
        session = self.session
        return len({id(trial) for task in session.tasks for trial in session.trials_of(task)})

    @property
    def failed(self) -> int:
        """How many trials of this run failed."""
        return sum(trial.error_kind != "none" for trial in self.session.written)

    def json(self) -> str:
        """For scripts."""
        from bucketize.cli.table import records

        told = {
            "log": str(self.session.log),
            "trials": len(self.session.written),
            "failed": self.failed,
            "trials_in_log": self.known,
            "seconds": self.seconds,
            "interrupted": self.interrupted,
            "best": records(self.best),
        }
        return json.dumps(told, indent=2)

    def table(self) -> str:
        """The best schedules as text."""
        from bucketize.cli.analyze import shown_best

        return shown_best(self.best)

    def summary(self) -> str:
        """How much was done, and how to go on if that is not all."""
        done = f"{len(self.session.written)} trials in {self.seconds:.0f} s, {self.failed} failed"
        kept = f"{self.session.log} has {self.known} of this model"
        if self.interrupted:
            return f"interrupted: {done}; {kept}\nthe same command goes on from there"
        return f"{done}; {kept}"
