"""`bucketize analyze`: what logs and dispatchers come to."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bucketize.cli import parameter
from bucketize.cli.echo import echo

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

COURSE, TRADE, LATENCY = "progress", "trade-off", "latency"
SHOWN = (
    *("function", "layer", "latency_s", "gflops", "relative"),
    *("schedule", "tried", "failed", "op", "workload"),
)


def picture(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
    """The path of a picture to write, in a format that its suffix names."""
    if path is not None:
        from matplotlib.backend_bases import FigureCanvasBase

        known = sorted(FigureCanvasBase.get_supported_filetypes())
        if path.suffix.removeprefix(".").lower() not in known:
            suffixes = ", ".join(f".{name}" for name in known)
            raise click.BadParameter(f"{path} does not end in a picture's suffix: {suffixes}")
    return parameter.writable(ctx, param, path)


@click.command()
@click.argument("log", type=click.Path(path_type=Path))
@click.option(
    "--frame",
    type=click.Choice(["best", "confirmed", "failures", "progress"]),
    default="best",
    show_default=True,
    help="The best schedule per task, what they bought each clone, what failed, or the course of "
    "the search.",
)
@click.option("--model", metavar="MODEL", help="Measure the trade-off of dispatchers on this.")
@parameter.reading_options
@parameter.specs_option
@parameter.policy_option
@parameter.at_option
@parameter.threads_option
@parameter.written_option("--csv", help="Write the frame here.")
@parameter.written_option("--plot", callback=picture, help="Draw a figure here: .png, .svg, .pdf.")
@click.option(
    "--figure",
    "drawn",
    type=click.Choice([COURSE, TRADE, LATENCY]),
    help="Which: the course of the search; with --model, the trade-off or latency by shape.",
)
@parameter.json_option
def analyze(
    log: Path,
    model: str | None,
    csv: Path | None,
    plot: Path | None,
    drawn: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Print the best schedules of LOG, or, for --model, what dispatchers buy and cost with it.

    The trade-off sets the latency at each --at against the oracle's: a static clone for exactly
    these sizes. Tune the oracle, too (-d oracle), or it runs on default schedules.

    \b
    Examples:
      bucketize analyze trials.csv
      bucketize analyze trials.csv --frame progress --csv progress.csv --plot progress.png
      bucketize analyze trials.csv --model zoo:mlp -d none -d log -d uniform --at N=3 --at N=100
      bucketize analyze trials.csv --model zoo:mlp --at N=3 --plot latency.png --figure latency
    """
    check_options(model, plot)
    figure_name = checked_figure(drawn, model)
    if model is None:
        frame, text, figure = of_log(log, options["frame"])
    else:
        frame, text, figure = of_dispatchers(log, model, figure_name, options)
    if csv:
        from bucketize.cli.table import write_csv

        write_csv(frame, csv)
    if plot:
        figure().savefig(plot, dpi=120)
    echo(as_records(frame) if as_json else text)


MEASURING = dict.fromkeys(
    ("specs", "points", "policy", "threads", "bounds"), "wants a model to measure: --model"
)
"""Why options make no sense where a log alone is read, by name."""


def check_options(model: str | None, plot: Path | None) -> None:
    """Raise a `UsageError` for an option that would have no effect."""
    if model is None:
        parameter.refuse("nothing is measured", MEASURING)
    else:
        parameter.refuse("dispatchers are measured", {"frame": "is for a log without --model"})
    if plot is None:
        parameter.refuse("nothing is drawn", {"drawn": "wants a file to draw into: --plot"})


def checked_figure(drawn: str | None, model: str | None) -> str:
    """The figure that is meant; a usage error if it is one of the other way."""
    known = [COURSE] if model is None else [TRADE, LATENCY]
    if drawn is not None and drawn not in known:
        way = "without" if model is None else "with"
        raise click.UsageError(f"--figure {drawn}: {way} --model it is {' or '.join(known)}")
    return drawn or known[0]


Analysis = tuple["pd.DataFrame", str, Callable[[], "Figure"]]


def of_log(log: Path, name: str) -> Analysis:
    """A frame of the log, its text, and the course of the search."""
    from bucketize.analysis import (
        best_schedules,
        confirmed,
        failures,
        load,
        plot_progress,
        progress,
    )
    from bucketize.cli.table import frame_table

    trials = load(log)
    made = {
        "best": best_schedules,
        "confirmed": confirmed,
        "failures": failures,
        "progress": progress,
    }
    frame = made[name](trials)
    texts = {"best": shown_best, "confirmed": shown_confirmed}
    text = texts.get(name, frame_table)(frame)
    return frame, text, lambda: plot_progress(progress(trials))


def of_dispatchers(log: Path, name: str, figure: str, options: dict[str, Any]) -> Analysis:
    """The trade-off of dispatchers, measured now."""
    from bucketize.analysis import plot_latency, plot_trade_off, trade_off, versus_oracle
    from bucketize.cli.compare import (
        UNTUNED,
        dispatchers_of,
        measured,
        shown_latency,
        shown_trade,
    )
    from bucketize.cli.model import load_model, sizes_at

    model = load_model(name, options["bounds"])
    points = sizes_at(model, options["points"])
    specs = options["specs"] or ("none", "log", "uniform")
    modules = dispatchers_of(model, specs, points, options["policy"])
    logs = {spec: log for spec in modules if spec != UNTUNED}
    latency, cost = measured(model, modules, points, logs=logs, threads=options["threads"])
    text = f"{shown_latency(latency)}\n\n{shown_trade(latency, cost)}"
    beside = versus_oracle(latency).merge(cost, how="left", on="dispatcher")
    if figure == LATENCY:
        return beside, text, lambda: plot_latency(latency)
    return beside, text, lambda: plot_trade_off(trade_off(latency, cost))


def as_records(frame: pd.DataFrame) -> str:
    """A frame as a JSON list of its rows."""
    from bucketize.cli.table import records

    return json.dumps(records(frame), indent=2)


def shown_best(best: pd.DataFrame) -> str:
    """The best schedules, without the columns that tell little, or nothing in an older log."""
    from bucketize.cli.table import frame_table, milliseconds

    formats = {
        "latency_s": milliseconds,
        "gflops": "{:.1f}".format,
        "relative": "{:.2f}".format,
        "workload": lambda workload: workload[:8],
        "schedule": knobs,
    }
    told = [name for name in SHOWN if name not in ("layer", "gflops") or best[name].any()]
    return frame_table(best[told], formats)


def shown_confirmed(confirmed: pd.DataFrame) -> str:
    """What each clone's implementations bought, and whether that is anything."""
    from bucketize.cli.table import table

    pays = (confirmed["ratio"] < 1).tolist()
    rows = [
        {
            "function": row["function"],
            "not on default": row["chosen"],
            "arrangement": row["arrangement"],
            "by default": f"{row['ratio']:.3f}",
            "95 %": f"{row['ratio_low']:.3f} to {row['ratio_high']:.3f}" if paid else "",
        }
        for row, paid in zip(confirmed.to_dict("records"), pays, strict=True)
    ]
    if not rows:
        return "Nothing is confirmed in any clone yet: all of them run on defaults."
    return f"{table(rows)}\n{sum(pays)} of {len(rows)} clones are faster than on defaults."


def knobs(schedule: str) -> str:
    """A schedule's JSON, written short."""
    return " ".join(f"{name}={value}" for name, value in json.loads(schedule).items())
