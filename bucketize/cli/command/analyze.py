"""`bucketize analyze`: what logs and dispatchers come to."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bucketize.cli import parameter
from bucketize.cli.compare import (
    UNTUNED,
    dispatchers_of,
    distinct,
    measured,
    shown_latency,
    shown_trade,
    spread,
    tuning_command,
    untuned_shapes,
)
from bucketize.cli.echo import echo
from bucketize.cli.model import load_model, sizes_at
from bucketize.cli.table import frame_table, milliseconds, records, table, write_csv
from bucketize.errors import BucketizeError, warn
from bucketize.table import Format, json_text, pairs, shortened

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from bucketize.analysis.tradeoff import Survey

PROGRESS, TRADE, LATENCY = "progress", "trade-off", "latency"
IMPORTANCE = """share: of the variance of time between schedules of one workload at one shape, with
other knobs and the extents. explained: what a forest tells of trials that it has not seen."""
SHOWN = (
    *("function", "layer", "latency_s", "gflops", "relative"),
    *("schedule", "tried", "failed", "op", "workload"),
)


def picture(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
    """The path of a picture to write, in a format that its suffix names."""
    if path is not None:
        from matplotlib.backend_bases import FigureCanvasBase

        formats = sorted(FigureCanvasBase.get_supported_filetypes())
        if path.suffix.removeprefix(".").lower() not in formats:
            suffixes = ", ".join(f".{name}" for name in formats)
            raise click.BadParameter(f"{path} does not end in a picture's suffix: {suffixes}")
    return parameter.writable(ctx, param, path)


@click.command()
@click.argument("log", type=click.Path(path_type=Path))
@click.option(
    "--frame",
    type=click.Choice(["best", "confirmed", "failures", "progress", "importance"]),
    default="best",
    show_default=True,
    help="The best schedule per task, what they bought each clone, what failed, the course of the "
    "search, or which knobs matter.",
)
@click.option("--model", metavar="MODEL", help="Measure the trade-off of dispatchers on this.")
@parameter.reading_options
@parameter.specs_option
@parameter.policy_option
@parameter.weighted_at_option
@click.option(
    "--seconds",
    type=parameter.FiniteRange(min=0, min_open=True),
    help="Stop measuring after this time, reading MODEL not counted; latencies come before costs.",
)
@parameter.threads_option
@parameter.written_option("--csv", help="Write the frame here.")
@parameter.written_option("--plot", callback=picture, help="Draw a figure here: .png, .svg, .pdf.")
@click.option(
    "--figure",
    "drawn",
    type=click.Choice([PROGRESS, TRADE, LATENCY]),
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
    these sizes. Tune the oracle, too (tune -d oracle --at ...): where the log knows nothing of it,
    it runs on default schedules, and the command that tunes it is told. What is measured when time
    is up, or at Ctrl-C, is printed, written and drawn.

    \b
    Examples:
      bucketize analyze trials.csv
      bucketize analyze trials.csv --frame progress --csv progress.csv --plot progress.png
      bucketize analyze trials.csv --frame importance
      bucketize analyze trials.csv --model zoo:mlp -d none -d log -d uniform --at N=3 --at N=100
      bucketize analyze trials.csv --model zoo:mlp --at N=3*0.9 --at N=100*0.1 --seconds 60
      bucketize analyze trials.csv --model zoo:mlp --at N=3 --plot latency.png --figure latency
    """
    check_options(model, plot)
    if csv is not None and csv.absolute() == log.absolute():
        raise click.UsageError(f"the frame would take the place of the log: --csv {csv}")
    figure_name = checked_figure(drawn, model)
    interrupted = False
    if model is None:
        frame, text, figure = of_log(log, options["frame"])
    else:
        survey, interrupted = surveyed(log, model, options)
        frame, text, figure = of_dispatchers(survey, figure_name)
    if csv:
        write_csv(frame, csv)
    if plot:
        figure().savefig(plot, dpi=120)
    echo(json_text(records(frame), indent=2) if as_json else text)
    if interrupted:
        click.get_current_context().exit(parameter.INTERRUPTED)


MEASURING = dict.fromkeys(
    ("specs", "points", "policy", "threads", "bounds", "seconds"),
    "wants a model to measure: --model",
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
    figures = [PROGRESS] if model is None else [TRADE, LATENCY]
    if drawn is not None and drawn not in figures:
        way = "without" if model is None else "with"
        raise click.UsageError(f"--figure {drawn}: {way} --model it is {' or '.join(figures)}")
    return drawn or figures[0]


Analysis = tuple["pd.DataFrame", str, Callable[[], "Figure"]]


def of_log(log: Path, name: str) -> Analysis:
    """A frame of the log, its text, and the course of the search."""
    from bucketize.analysis import frame as frames
    from bucketize.analysis import importance, plot_progress

    trials = frames.load(log)
    of = {
        "best": frames.best_schedules,
        "confirmed": frames.confirmed,
        "failures": frames.failures,
        "progress": frames.progress,
        "importance": importance,
    }
    frame = of[name](trials)
    texts = {"best": shown_best, "confirmed": shown_confirmed, "importance": shown_importance}
    text = texts.get(name, frame_table)(frame) if len(trials) else f"{log} holds no trials"
    return frame, text, lambda: plot_progress(frames.progress(trials))


def shown_importance(frame: pd.DataFrame) -> str:
    """Which knobs matter, shares with their spread."""
    rows = [
        {
            "template": row["template"],
            "knob": row["knob"],
            "share": "-" if row["values"] < 2 else spread(row["share"], row["spread"]),
            "values": row["values"],
            "trials": row["trials"],
            "explained": f"{row['explained']:.2f}",
        }
        for row in frame.to_dict("records")
    ]
    return f"{table(rows)}\n{IMPORTANCE}"


def surveyed(log: Path, name: str, options: dict[str, Any]) -> tuple[Survey, bool]:
    """The dispatchers measured now, as far as there is time; and whether that was interrupted."""
    from bucketize.log.log import content, read

    model = load_model(name, options["bounds"])
    given = options["points"] or [({}, 1.0)]
    points = distinct(sizes_at(model, [s for s, _ in given]), [weight for _, weight in given])
    read(content(log), log)  # what is no log is said before anything is compiled
    specs = options["specs"] or ("none", "log", "uniform")
    modules = dispatchers_of(model, specs, [sizes for sizes, _ in points], options["policy"])
    survey, interrupted = measured(
        model,
        modules,
        points,
        logs={spec: log for spec in modules if spec != UNTUNED},
        threads=options["threads"],
        seconds=options["seconds"],
    )
    tell_of(survey, interrupted, partial(tuning_command, log=log, model=name, options=options))
    return survey, interrupted


def tell_of(survey: Survey, interrupted: bool, tuning: Callable[[Sequence[str]], str]) -> None:
    """Say on stderr what makes the figures less than they seem; an error if there are none."""
    if survey.latency.empty:
        if interrupted:
            raise click.Abort
        raise BucketizeError(f"{survey.shortfall} in {survey.seconds:g} s; give more --seconds")
    if survey.shortfall:
        stopped = "interrupted" if interrupted else f"stopped after {survey.seconds:g} s"
        echo(f"{stopped}; {survey.shortfall}", err=True)
    survey.machine.warn()
    if lacking := untuned_shapes(survey.latency):
        gap = f"the log knows nothing of the oracle at {'; '.join(lacking)}, so it runs on default"
        warn(
            f"{gap} schedules there, and a tuned one may be faster. To tune it:\n"
            f"  {tuning(lacking)}"
        )


def of_dispatchers(survey: Survey, figure: str) -> Analysis:
    """The trade-off of dispatchers, as far as it was measured."""
    from bucketize.analysis import plot_latency, plot_trade_off, trade_off, versus_oracle

    latency, cost = survey.latency, survey.cost
    text = f"{shown_latency(latency)}\n\n{shown_trade(latency, cost)}"
    beside = versus_oracle(latency).merge(cost, how="left", on="dispatcher")
    if figure == LATENCY:
        return beside, text, lambda: plot_latency(latency)
    return beside, text, lambda: plot_trade_off(trade_off(latency, cost))


def shown_best(best: pd.DataFrame) -> str:
    """The best schedules, without the columns that tell little, or nothing in an older log."""
    formats: dict[str, Format] = {
        "layer": shortened,
        "latency": milliseconds,
        "gflops": "{:.1f}".format,
        "relative": "{:.2f}".format,
        "workload": lambda workload: workload[:8],
        "schedule": lambda schedule: pairs(json.loads(schedule), " "),
    }
    names = [name for name in SHOWN if name not in ("layer", "gflops") or best[name].any()]
    # the cells have a unit of their own
    return frame_table(best[names].rename(columns={"latency_s": "latency"}), formats)


def shown_confirmed(confirmed: pd.DataFrame) -> str:
    """What each clone's implementations bought, and whether that is anything."""
    pays = (confirmed["ratio"] < 1).tolist()
    rows = [
        {
            "function": row["function"],
            "tuned kernels": row["chosen"],
            "arrangement": row["arrangement"],
            "vs default": f"{row['ratio']:.3f}",
            "95 %": f"{row['ratio_low']:.3f} to {row['ratio_high']:.3f}" if paid else "",
        }
        for row, paid in zip(confirmed.to_dict("records"), pays, strict=True)
    ]
    if not rows:
        return "Nothing is confirmed in any clone yet: all of them run on defaults."
    return f"{table(rows)}\n{sum(pays)} of {len(rows)} clones are faster than on defaults."
