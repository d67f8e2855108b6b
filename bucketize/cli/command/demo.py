"""`bucketize demo`: what buckets buy, on a model where they pay and on one where they do not."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click

from bucketize.busy import busiest
from bucketize.cli import parameter
from bucketize.cli.advice import PLAIN, advice, judged
from bucketize.cli.compare import shown_ratio
from bucketize.cli.echo import echo
from bucketize.cli.model import NamedModel, dispatched, load_model
from bucketize.cli.table import records, table
from bucketize.errors import BucketizeError
from bucketize.progress import Tell, TellMore, progress_bar
from bucketize.table import pairs

if TYPE_CHECKING:
    import pandas as pd

    from bucketize.analysis.tradeoff import Survey
    from bucketize.cli.compare import Modules

    Frames: TypeAlias = tuple[pd.DataFrame, pd.DataFrame]
DISPATCHER = "log"
BUCKETS, TUNED = "log buckets", "tuned log buckets"
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Scene:
    """A model of the zoo, the sizes that it is made for, and those at which it is measured."""

    model: str
    bounds: Mapping[str, tuple[int, int]]
    points: Sequence[parameter.Sizes]
    """No bucket begins, ends or is tuned there."""
    tuned_at: Sequence[parameter.Sizes] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """What is compared."""
        return (PLAIN, BUCKETS, TUNED) if self.tuned_at else (PLAIN, BUCKETS)

    def loaded(self) -> NamedModel:
        """The model, imported."""
        return load_model(f"zoo:{self.model}", self.bounds.items())


SCENES = (
    Scene(
        "resnet18",
        {"N": (1, 1), "H": (64, 511), "W": (64, 511)},
        ({"H": 80, "W": 80}, {"H": 150, "W": 200}, {"H": 300, "W": 400}),
        tuned_at=({"H": 110, "W": 100}, {"H": 220, "W": 180}, {"H": 330, "W": 450}),
    ),
    Scene("bert-mini", {"B": (1, 1), "S": (16, 255)}, ({"S": 23}, {"S": 75}, {"S": 200})),
)


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
    type=click.FloatRange(min=0, min_open=True),
    default=25.0,
    show_default=True,
    help="Of tuning.",
)
@parameter.threads_option
def demo(output: Path, seconds: float, threads: int) -> None:
    """Show what buckets buy and cost: on a residual net, and on a transformer, where they buy none.

    The residual net, whose images have any size, is tuned a little. Then each model is compiled
    with and without buckets, checked, and timed, all in turns. Ends with what was gained, what it
    cost, and what to take. Writes trials.csv, tradeoff.csv and tradeoff.png. Takes two minutes at
    most on two quiet cores.

    \b
    Examples:
      bucketize demo
      bucketize demo --seconds 600 --output long-demo
    """
    output.mkdir(parents=True, exist_ok=True)
    log = output / "trials.csv"
    for scene in SCENES:
        if scene.tuned_at:
            tune(scene, log, seconds, threads)
    latency, trade = compared(log, threads)
    worst = checked(latency)
    written(latency, trade, output)
    say(f"All results are within {worst:.1e} of the ops' own. Written to {output}/: trials.csv,")
    say("tradeoff.csv and tradeoff.png, the picture of this:\n")
    echo(shown(trade))
    echo(f"\n{advice(trade, {s.model: seconds for s in SCENES if s.tuned_at})}")


def tune(scene: Scene, log: Path, seconds: float, threads: int) -> None:
    """Search and confirm schedules by the command that does so, and say what came of it.

    In a process of its own: where it was done memory lies as tuning left it, and a clone takes up
    to 5 % more or less than where it will be used.
    """
    bounds = [f"--dim={symbol}={lo}..{hi}" for symbol, (lo, hi) in scene.bounds.items()]
    sizes = [f"--at={pairs(point)}" for point in scene.tuned_at]
    command = ["tune", f"zoo:{scene.model}", *bounds, "-d", DISPATCHER, *sizes]
    command += ["--log", str(log), f"--seconds={seconds:g}", f"--threads={threads}"]
    say(f"Tuning for {seconds:g} s; every trial is a row of {log.name}:")
    say(f"  bucketize {' '.join(command)}")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "bucketize.cli", *command, "--json"],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    if done.returncode:  # it has said why
        raise click.exceptions.Exit(done.returncode)
    clones = json.loads(done.stdout)["confirmed"]
    faster = sum(clone["ratio"] < 1 for clone in clones)
    say(f"  {faster} of {len(clones)} clones timed are faster than on defaults")


def compared(log: Path, threads: int) -> Frames:
    """Latency of every model and module by round, and what each module costs and buys."""
    import pandas as pd

    from bucketize.analysis import trade_off

    say("Compiling from an empty cache, then running everything in turns ...")
    models = [scene.loaded() for scene in SCENES]  # beside a bar of its own
    surveys: list[Survey] = []
    with progress_bar("comparing") as tell:
        for scene, model in zip(SCENES, models, strict=True):
            tell_model = within(tell, scene.model, surveys)
            surveys.append(survey(scene, model, log, threads, tell_model))
        for each in surveys:
            each.work()
    busiest(machine for each in surveys for machine in each.machines).warn()
    trades = [trade_off(each.latency, each.cost, PLAIN) for each in surveys]
    latencies = [each.latency for each in surveys]
    return pd.concat(latencies, ignore_index=True), pd.concat(trades, ignore_index=True)


def within(tell: Tell, model: str, surveys: Sequence[Survey]) -> TellMore:
    """What tells of a model's survey as of a part of all, so that one bar fills."""

    def tell_of_all(what: str, done: int, total: int, /, **_: float | None) -> None:
        del done, total  # of one survey
        every = [each.pieces for each in surveys]
        tell(f"{model}, {what}", sum(p.done for p in every), sum(len(p.pieces) for p in every))

    return tell_of_all


def survey(scene: Scene, model: NamedModel, log: Path, threads: int, tell: TellMore) -> Survey:
    """The modules of a scene, to be measured at its sizes."""
    from bucketize.analysis.tradeoff import Case, Survey

    cases = [Case.of(model.module, **model.inputs(sizes)) for sizes in scene.points]
    return Survey(modules(scene, model), cases, {TUNED: log}, threads, scene.model, math.inf, tell)


def modules(scene: Scene, model: NamedModel) -> Modules:
    """The module without buckets, and behind them."""
    options = {"dispatcher": DISPATCHER}
    split = dispatched(model, options)
    return {name: model.module if name == PLAIN else split for name in scene.names}


def checked(latency: pd.DataFrame) -> float:
    """The largest relative error; a BucketizeError if a result is not what the ops mean."""
    worst = latency.iloc[int(latency["max_rel_err"].argmax())]
    if worst["max_rel_err"] > TOLERANCE:
        where = f"{worst['clone']} of {worst['model']}, {worst['dispatcher']}, at {worst['shape']}"
        error = f"{worst['max_rel_err']:.1e}"
        raise BucketizeError(f"{where} is off by {error}, more than {TOLERANCE:g}")
    return float(worst["max_rel_err"])


def written(latency: pd.DataFrame, trade: pd.DataFrame, output: Path) -> None:
    """Write the frame by size, and the picture."""
    import pandas as pd

    from bucketize.analysis import plot_gain, versus_oracle
    from bucketize.analysis.cost import COSTS

    by_model = [versus_oracle(of, PLAIN) for _, of in latency.groupby("model", sort=False)]
    costs = trade[["model", "dispatcher", "clones", *COSTS]]
    frame = pd.concat(by_model).merge(costs, how="left", on=["model", "dispatcher"])
    frame.to_csv(output / "tradeoff.csv", index=False)
    plot_gain(trade, PLAIN).savefig(output / "tradeoff.png", dpi=100)


def shown(trade: pd.DataFrame) -> str:
    """What each module costs, and its time by that of the one without buckets."""
    rows = [
        {
            "model": row["model"],
            "module": row["dispatcher"],
            "clones": row["clones"],
            "compile": f"{row['compile_s']:.1f} s",
            "weights": f"{row['weight_mib']:.0f} MiB",
            f"vs {PLAIN}": f"{shown_ratio(row)} {judged(row)}",
        }
        for row in records(trade)
    ]
    for row in rows:
        if row["module"] == PLAIN:  # it is told by itself
            row[f"vs {PLAIN}"] = ""
    return table(rows)


def say(text: str) -> None:
    """A line on stderr: results alone go to stdout."""
    echo(text, err=True)
