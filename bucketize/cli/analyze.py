"""`bucketize analyze`: what logs and dispatchers come to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bucketize.cli import parameter

if TYPE_CHECKING:
    import pandas as pd

FRAMES = ("best", "failures", "progress")


@click.command()
@click.argument("logs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--frame", type=click.Choice(FRAMES), help="Print only this one.")
@click.option(
    "--csv", type=click.Path(path_type=Path), help="Write the frame (default: best) here."
)
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the course of the search here.")
@parameter.json_option
def analyze(
    logs: tuple[Path, ...], frame: str | None, csv: Path | None, plot: Path | None, as_json: bool
) -> None:
    r"""Print the best schedule of each task in LOGS, and what failed.

    \b
    Examples:
      bucketize analyze trials.csv
      bucketize analyze trials.csv --frame progress --csv progress.csv --plot progress.png
    """
    from bucketize.analysis import load, plot_progress, progress

    trials = load(logs)
    frames = {name: of(name, trials) for name in ([frame] if frame else FRAMES[:2])}
    if csv:
        next(iter(frames.values())).to_csv(csv, index=False)
    if plot:
        plot_progress(progress(trials)).savefig(plot)
    click.echo(as_text(frames, as_json))


def of(name: str, trials: pd.DataFrame) -> pd.DataFrame:
    """A frame by its name."""
    from bucketize import analysis

    made = {
        "best": analysis.best_schedules,
        "failures": analysis.failures,
        "progress": analysis.progress,
    }
    return made[name](trials)


def as_text(frames: dict[str, pd.DataFrame], as_json: bool) -> str:
    """The frames as JSON, or as tables."""
    from bucketize.cli.table import frame_table, records

    if as_json:
        return json.dumps({name: records(frame) for name, frame in frames.items()}, indent=2)
    shown = {"best": shown_best}
    parts = (f"{name}:\n{shown.get(name, frame_table)(frame)}" for name, frame in frames.items())
    return "\n\n".join(parts)


def shown_best(best: pd.DataFrame) -> str:
    """The best schedules, without the columns that tell little."""
    from bucketize.cli.table import frame_table, milliseconds

    columns = ["function", "op", "workload", "latency_s", "relative", "tried", "failed", "schedule"]
    formats = {
        "latency_s": milliseconds,
        "relative": "{:.2f}".format,
        "workload": lambda workload: workload[:8],
        "schedule": knobs,
    }
    return frame_table(best[columns], formats)


def knobs(schedule: str) -> str:
    """A schedule's JSON, written short."""
    return " ".join(f"{name}={value}" for name, value in json.loads(schedule).items())
