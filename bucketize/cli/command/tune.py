"""`bucketize tune`: a search for schedules, logged."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click

from bucketize.cli import parameter
from bucketize.cli.bucket.traffic import read_traffic
from bucketize.cli.command.analyze import shown_best, shown_confirmed
from bucketize.cli.echo import echo
from bucketize.cli.model import dispatched, load_model
from bucketize.cli.parameter import INTERRUPTED
from bucketize.cli.table import records
from bucketize.progress import progress_bar
from bucketize.table import json_text, several
from bucketize.tune.options import Options

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from bucketize.log.trial import Trial
    from bucketize.measure.cluster import Cluster
    from bucketize.tune.session import TuningSession


@click.command(short_help="Search schedules for the clones of MODEL, into a log.")
@parameter.model_options
@parameter.dispatchers_options
@parameter.at_option
@parameter.written_option(
    "--log", required=True, callback=parameter.appendable, help="The CSV to add to."
)
@parameter.trials_option
@click.option(
    "--seconds",
    type=parameter.FiniteRange(min=0, min_open=True),
    help="Stop after this time, which goes where it should bring most. Searching, confirming and "
    "waiting for other sessions on the log count; reading MODEL and starting up do not, and what "
    "is being confirmed then may take a fifth more.",
)
@click.option(
    "--until",
    type=parameter.FiniteRange(min=0, max=1, max_open=True),
    default=Options.until,
    show_default=True,
    help="Stop when further trials are expected to save less than this share of the latency.",
)
@click.option(
    "--search",
    type=click.Choice(["skopt", "random", "grid"]),
    default=Options.search,
    show_default=True,
    help="How schedules are chosen after the default, by what is known elsewhere, too.",
)
@click.option("--seed", default=Options.seed, show_default=True, help="Of the search.")
@click.option(
    "--sizes",
    "judged",
    type=click.Choice(["middle", "bounds"]),
    default=Options.sizes,
    show_default=True,
    help="Where in its bucket a schedule is judged, if neither --at nor --traffic say.",
)
@click.option(
    "--traffic",
    metavar="FILE",
    help="Requests, as `bucketize traffic` reads them: time goes where they gain most.",
)
@parameter.threads_option
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Measure on the workers of the Dask cluster of this scheduler (tcp://host:port).",
)
@click.option(
    "--host",
    metavar="NAME",
    help="With --scheduler: the workers of this kind, a part of its name, if there are several.",
)
@parameter.json_option
def tune(model: str, bounds: list[parameter.Bound], as_json: bool, **options: Any) -> None:
    """Search schedules for every workload of every clone of MODEL; each trial is a row of --log.

    What is found is timed again in the running clone, and kept only if it is faster there beyond
    the noise. With several dispatchers what their clones share is measured once. Trials that the
    log already has are not repeated, so a session that was interrupted goes on.

    \b
    Examples:
      bucketize tune zoo:mlp -d log --log trials.csv --seconds 60
      bucketize tune zoo:mlp -d none -d log -d uniform:count=4 --log trials.csv
      bucketize tune net.onnx -d log --log t.csv --at N=1 --at N=8 --seconds 600
      bucketize tune net.onnx -d auto --log t.csv --traffic requests.csv --seconds 600
      bucketize tune net.onnx -d log --log t.csv --scheduler tcp://10.0.0.1:8786
    """
    if options["host"] and not options["scheduler"]:
        raise click.UsageError("--host is for --scheduler, but it is not used")
    loaded = load_model(model, bounds)
    traffic = read_traffic(options["traffic"]) if options["traffic"] else None
    with progress_bar("loading the search"):
        from bucketize.tune.api import opened

    specs = options["specs"] or (None,)
    with (
        on_cluster(options["scheduler"], options["host"]) as cluster,
        opened(
            [dispatched(loaded, {**options, "dispatcher": spec}) for spec in specs],
            Options(
                sizes=list(options["points"]) or options["judged"],
                traffic=traffic,
                model=loaded.name,
                measurer=cluster,
                progress=True,
                **{name: options[name] for name in PASSED},
            ),
        ) as session,
    ):
        came = worked(session)
    echo(came.json() if as_json else came.table())
    echo(came.summary(), err=True)
    if came.interrupted:
        click.get_current_context().exit(INTERRUPTED)


PASSED = ("log", "trials", "search", "seed", "threads", "seconds", "until")


@contextmanager
def on_cluster(scheduler: str | None, host: str | None) -> Iterator[Cluster | None]:
    """What measures on the workers of a scheduler; None without one."""
    if scheduler is None:
        yield None
        return
    from bucketize.measure.cluster import Cluster, connected

    with connected(scheduler) as client:
        yield Cluster(client, host=host or "")


def worked(session: TuningSession) -> Report:
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

    session: TuningSession
    seconds: float
    interrupted: bool

    @cached_property
    def best(self) -> pd.DataFrame:
        """The best schedule of each task in the whole log."""
        from bucketize.analysis import best_schedules

        session = self.session
        return best_schedules(session.database.frame(session.tasks, session.recorder.origin.model))

    @cached_property
    def confirmed(self) -> pd.DataFrame:
        """What the clones' implementations bought when they were timed in them."""
        from bucketize.analysis import confirmed
        from bucketize.log.frame import trial_frame

        session = self.session
        standing = session.database.verdicts
        verdicts = [v for s in session.subjects if (v := standing.get(s.clone)) is not None]
        return confirmed(trial_frame(row for verdict in verdicts for row in verdict.rows))

    @cached_property
    def searched(self) -> Sequence[Trial]:
        """The trials of this run; what confirms them is counted apart."""
        return [trial for trial in self.session.written if trial.source != "confirm"]

    @property
    def counts(self) -> dict[str, int]:
        """The trials of this run, and of the log all that serve the tasks, each once."""
        database, tasks = self.session.database, self.session.tasks
        return {
            "trials": len(self.searched),
            "failed": sum(trial.error_kind != "none" for trial in self.searched),
            "confirmations": len(self.session.written) - len(self.searched),
            "trials_in_log": len({id(t) for task in tasks for t in database.at_points(task)}),
        }

    def json(self) -> str:
        """For scripts."""
        facts = {
            "log": str(self.session.recorder.log),
            **self.counts,
            "seconds": self.seconds,
            "interrupted": self.interrupted,
            "unreached": [subject.function for subject in self.session.unreached],
            "best": records(self.best),
            "confirmed": records(self.confirmed),
        }
        return json_text(facts, indent=2)

    def table(self) -> str:
        """The best schedules, and what came of them in their clones, as text."""
        return f"{shown_best(self.best)}\n\n{shown_confirmed(self.confirmed)}"

    def summary(self) -> str:
        """How much was done, and how to go on if that is not all."""
        counts = self.counts
        trials = several(counts["trials"], "trial")
        confirming = several(counts["confirmations"], "measurement")
        failed = f"{counts['failed']} failed"
        done = f"{trials} in {self.seconds:.0f} s, {failed}, {confirming} to confirm"
        kept = f"{self.session.recorder.log} has {counts['trials_in_log']} of this model"
        short = self.session.shortfall()
        lines = [f"interrupted: {done}; {kept}" if self.interrupted else f"{done}; {kept}", short]
        if short or self.interrupted:
            lines.append("the same command goes on from there")
        return "\n".join(filter(None, lines))
