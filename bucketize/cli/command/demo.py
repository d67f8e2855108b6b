"""`bucketize demo`: a net at any image size, an encoder on real lengths, what to take."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bucketize.cli import parameter
from bucketize.cli.advice import LIMIT, advice, judged, listed
from bucketize.cli.compare import shown_ratio
from bucketize.cli.echo import echo
from bucketize.cli.encoder import Texts, encoded
from bucketize.cli.model import NamedModel, dispatched, load_model
from bucketize.cli.parameter import ORACLE
from bucketize.cli.table import records, table
from bucketize.errors import BucketizeError
from bucketize.progress import estimated, progress_bar
from bucketize.table import Format, pairs

if TYPE_CHECKING:
    import pandas as pd

    from bucketize.cli.encoder import Frames
    from bucketize.ir import Module
AUTO, TUNED, LOG = "auto", "tuned auto", "log buckets"
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Scene:
    """A model of the zoo, the sizes that it is made for, and those at which it is measured."""

    model: str
    bounds: Mapping[str, tuple[int, int]]
    points: Sequence[parameter.Sizes]
    """No bucket of `log` begins or ends there, and nothing is tuned there."""
    tuned_at: Sequence[parameter.Sizes]

    def __str__(self) -> str:
        """`resnet18, H=64..511,W=64..511`."""
        ranges = {name: f"{lo}..{hi}" for name, (lo, hi) in self.bounds.items() if lo < hi}
        return f"{self.model} at any size, {pairs(ranges)}"

    def command(self, name: str, points: Sequence[parameter.Sizes], threads: int) -> list[str]:
        """A command on the model behind `auto`, at some sizes."""
        bounds = [f"--dim={symbol}={lo}..{hi}" for symbol, (lo, hi) in self.bounds.items()]
        sizes = [f"--at={pairs(point)}" for point in points]
        words = [name, f"zoo:{self.model}", *bounds, "-d", spec_of_auto(threads), *sizes]
        return [*words, f"--threads={threads}"]

    def loaded(self) -> NamedModel:
        """The model, imported."""
        return load_model(f"zoo:{self.model}", self.bounds.items())


NET = Scene(
    "resnet18",
    {"N": (1, 1), "H": (64, 511), "W": (64, 511)},
    ({"H": 80, "W": 80}, {"H": 150, "W": 200}, {"H": 300, "W": 400}),
    tuned_at=({"H": 110, "W": 100}, {"H": 220, "W": 180}, {"H": 330, "W": 450}),
)
TEXTS = Texts("bert-mini", "queries", 256)
YOURS = """Yours, at sizes of the symbols that the first command names:
  bucketize partition net.onnx             how many clones it needs, in seconds
  bucketize bench net.onnx --at N=1        beside other engines, on this machine
  bucketize run net.onnx --many texts.npz  requests of unequal lengths in shared calls"""


@click.command()
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    default=Path("demo-output"),
    show_default=True,
    help="Where the files go; a log found there is carried on.",
)
@click.option(
    "--seconds",
    type=parameter.FiniteRange(min=0),
    default=20.0,
    show_default=True,
    help="Of tuning; 0: none.",
)
@parameter.threads_option
def demo(output: Path, seconds: float, threads: int) -> None:
    """Show one program at any size: a residual net over images, an encoder over real lengths.

    The net is dispatched by `auto`, tuned a little, and timed beside log buckets and a program for
    each size. Texts as long as real queries go through the encoder by `run_many`, one by one, and
    in batches of 32. All is checked, and timed in turns. Ends with what was gained, what it cost,
    and what to take. Writes trials.csv, tradeoff.csv, ways.csv, tradeoff.png and report.html, a
    page about the net. Takes two minutes at most on two quiet cores.

    \b
    Examples:
      bucketize demo
      bucketize demo --seconds 600 --output long-demo
    """
    output.mkdir(parents=True, exist_ok=True)
    log = output / "trials.csv"
    say(f"1. {NET}: one program, or many?")
    is_tuned = seconds > 0 and tune(NET, log, seconds, threads)
    net = compared(NET, log if is_tuned else None, threads)
    say(f"2. {TEXTS}: in shared calls, one by one, or in batches?")
    latency, trade = beside_first([net, encoded(TEXTS, threads)])
    worst = checked(latency)
    files = [log.name] if log.exists() else []
    files += write_frames(latency, trade, output)
    files += write_report(NET, log if is_tuned else None, output / "report.html", threads)
    say(f"All results are within {worst:.1e} of the ops' own.")
    say(f"Written to {output}/: {listed(files)}, the picture of this:\n")
    echo(shown(trade))
    echo(f"\n{advice(trade, {NET.model: seconds})}\n\n{YOURS}")


def tune(scene: Scene, log: Path, seconds: float, threads: int) -> bool:
    """Search and confirm schedules by the command that does so; whether any gains.

    In a process of its own: where it was done memory lies as tuning left it, and a clone takes up
    to 5 % more or less than where it will be used.
    """
    command = scene.command("tune", scene.tuned_at, threads)
    command += ["--log", str(log), f"--seconds={seconds:g}"]
    say(f"Tuning for {seconds:g} s; every trial is a row of {log.name}:")
    done = by_itself(command, "--json")
    if done.returncode:  # it has said why
        raise click.exceptions.Exit(done.returncode)
    is_tuned = any(clone["ratio"] < 1 for clone in json.loads(done.stdout)["confirmed"])
    say(f"  {'a clone is' if is_tuned else 'no clone is shown to be'} faster than on defaults")
    return is_tuned


def by_itself(command: Sequence[str], *others: str) -> subprocess.CompletedProcess[str]:
    """Say a command and run it, as `bucketize` of this tree; `others` are not said."""
    say(f"  bucketize {' '.join(command)}")
    return subprocess.run(
        [sys.executable, "-P", "-m", "bucketize.cli", *command, *others],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )


def spec_of_auto(threads: int) -> str:
    """`auto` for so many threads, as -d takes it."""
    return AUTO if threads == 1 else f"{AUTO}:threads={threads}"


def compared(scene: Scene, log: Path | None, threads: int) -> Frames:
    """Latency of a model behind every dispatcher, by round, and what each costs.

    `log` is that of its tuning, if that gains.
    """
    from bucketize.analysis.tradeoff import Case, Survey

    model = scene.loaded()
    with progress_bar("choosing buckets"):
        split = modules(scene, model, threads)
    logs = {} if log is None else {TUNED: log}
    if log is None:
        del split[TUNED]
    cases = [Case.of(model.module, **model.inputs(sizes)) for sizes in scene.points]
    say("Compiling from an empty cache, then running everything in turns ...")
    with estimated(True, "comparing") as tell:
        survey = Survey(split, cases, logs, threads, scene.model, math.inf, tell)
        survey.work()
    survey.machine.warn()
    return survey.latency, survey.cost


def modules(scene: Scene, model: NamedModel, threads: int) -> dict[str, Module]:
    """The model behind each dispatcher, the cheapest first."""
    auto = behind(model, spec_of_auto(threads))
    return {
        AUTO: auto,
        TUNED: auto,
        LOG: behind(model, "log"),
        LIMIT: behind(model, ORACLE, scene.points),
    }


def behind(model: NamedModel, dispatcher: str, points: Sequence[parameter.Sizes] = ()) -> Module:
    """The module as a dispatcher clones it."""
    return dispatched(model, {"dispatcher": dispatcher, "points": points})


def beside_first(every: Sequence[Frames]) -> Frames:
    """All latencies, and what each way costs and takes beside the first of its model."""
    import pandas as pd

    from bucketize.analysis import trade_off

    trades = [trade_off(latency, cost, first(cost)) for latency, cost in every]
    latencies = [latency for latency, _ in every]
    return pd.concat(latencies, ignore_index=True), pd.concat(trades, ignore_index=True)


def first(of: pd.DataFrame) -> str:
    """The way that a frame begins with."""
    return str(of["dispatcher"].iloc[0])


def checked(latency: pd.DataFrame) -> float:
    """The largest relative error; a BucketizeError if a result is not what the ops mean."""
    worst = latency.iloc[int(latency["max_rel_err"].argmax())]
    if worst["max_rel_err"] > TOLERANCE:
        where = f"{worst['clone']} of {worst['model']}, {worst['dispatcher']}, at {worst['shape']}"
        error = f"{worst['max_rel_err']:.1e}"
        raise BucketizeError(f"{where} is off by {error}, more than {TOLERANCE:g}")
    return float(worst["max_rel_err"])


def write_frames(latency: pd.DataFrame, trade: pd.DataFrame, output: Path) -> list[str]:
    """Write the frame by size, and the picture; the names of the files."""
    import pandas as pd

    from bucketize.analysis import plot_gain, versus_oracle

    by_model = [versus_oracle(of, first(of)) for _, of in latency.groupby("model", sort=False)]
    costs = trade[["model", "dispatcher", *COSTS]]
    frame = pd.concat(by_model).merge(costs, how="left", on=["model", "dispatcher"])
    frame.to_csv(output / "tradeoff.csv", index=False)
    trade.to_csv(output / "ways.csv", index=False)
    plot_gain(trade).savefig(output / "tradeoff.png", dpi=100)
    return ["tradeoff.csv", "ways.csv", "tradeoff.png"]


def write_report(scene: Scene, log: Path | None, page: Path, threads: int) -> list[str]:
    """Write the page about a model, by the command that does so; its name, if it can be written."""
    command = [*scene.command("report", scene.points, threads), "-o", str(page)]
    command += [] if log is None else ["--log", str(log)]
    say(f"All that is known of {scene.model}, on a page:")
    return [] if by_itself(command).returncode else [page.name]  # it has said why


COSTS: Mapping[str, Format] = {
    "clones": "{:.0f}".format,
    "compile_s": "{:.1f} s".format,
    "weight_mib": "{:.0f} MiB".format,
    "calls": "{:.0f}".format,
}
"""What ways cost, by column of a trade-off; those of a model have some of them."""


def shown(trade: pd.DataFrame) -> str:
    """What each way costs, and its time by that of the first of its model, a table for each."""
    models = [of.dropna(axis="columns", how="all") for _, of in trade.groupby("model", sort=False)]
    return "\n\n".join(map(shown_model, models))


def shown_model(of: pd.DataFrame) -> str:
    """The ways of a model."""
    beside = f"time by that of {first(of)}"
    rows = [
        {
            str(row["model"]): row["dispatcher"],
            **{name: form(row[name]) for name, form in COSTS.items() if name in row},
            beside: f"{shown_ratio(row)} {judged(row)}" if i else "1",
        }
        for i, row in enumerate(records(of))
    ]
    return table(rows)


def say(text: str) -> None:
    """A line on stderr: results alone go to stdout."""
    echo(text, err=True)
