"""The first words of a page: what the model is, what was chosen, what it costs, what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from bucketize.inspect.profile import BETWEEN
from bucketize.report.report import ModelReport
from bucketize.report.section import megabytes, milliseconds
from bucketize.table import several

LISTED = 4  # names in a sentence; more are counted


@dataclass(frozen=True)
class NextStep:
    """Something to do, and the command for it."""

    text: str
    command: str = ""


@dataclass(frozen=True)
class Summary:
    """What to read first."""

    paragraphs: list[str]
    """In full sentences."""
    steps: list[NextStep]
    """What to do next, the most useful first."""


def summary(of: ModelReport) -> Summary:
    """The first words."""
    paragraphs = [what(of), chosen(of), *costs(of), *compared(of), *planned(of)]
    return Summary(paragraphs, list(steps(of)))


def what(of: ModelReport) -> str:
    """The model: its inputs, its results, its symbols."""
    its = of.interface
    change = f"Its sizes change from call to call: {_listed(its['symbols'])}."
    sizes = change if its["symbols"] else "All of its sizes are fixed."
    return f"{of.name} takes {_listed(its['inputs'])} and gives {_listed(its['outputs'])}. {sizes}"


def _listed(texts: Any) -> str:
    more = f" and {len(texts) - LISTED} more" if len(texts) > LISTED else ""
    return ", ".join(texts[:LISTED]) + more


def chosen(of: ModelReport) -> str:
    """How many clones, of what."""
    clones, compiling = of.frames["clones"], of.frames["compiling"].iloc[0]
    calls = clones.dropna(subset=["kernels"])
    count, ways = int(compiling["clones"]), clones["listing"].nunique()
    what_for = (
        f"{count:,} clones, each for a range of sizes" if count > 1 else "one program for all sizes"
    )
    same = (
        "all of which call the same kernels" if ways == 1 else f"which call kernels in {ways} ways"
    )
    alike = f", {same}" if 1 <= ways < count else ""
    tuned, every = int(calls["tuned"].sum()), int(calls["kernels"].sum())
    by = f"{tuned} of {every} kernel calls run on schedules that tuning found"
    kernels = several(int(compiling["kernels"]), "distinct kernel")
    schedules = by if tuned else "all schedules are defaults, which a model of costs chooses"
    return f"It was compiled as {what_for}{alike}, of {kernels}; {schedules}."


def costs(of: ModelReport) -> Iterator[str]:
    """Sentences on the costs: of a call, of memory, of getting ready."""
    call, memory = of.frames["calls"].iloc[0], of.frames["memory"]
    layers = of.frames["layers"]
    mine = layers[(layers["sizes"] == call["sizes"]) & (layers["name"] != BETWEEN)]
    at = f"At {call['sizes']} a call" if call["sizes"] else "A call"
    by = mine.groupby("kernel")["share"].sum().sort_values(ascending=False)
    most = f", {100 * by.iloc[0]:.0f} % of it in {by.index[0]} kernels" if len(by) else ""
    taken, expected = milliseconds(call["whole_s"]), milliseconds(call["predicted_s"])
    yield f"{at} took {taken} here, where {expected} were expected{most}."
    yield f"{_keeps(memory)}{_ready(of)}"


def _keeps(memory: pd.DataFrame) -> str:
    if memory.empty:
        return ""
    taken = memory[["arena", "between", "results"]].sum(axis=1)
    least, most = (megabytes(n) for n in (taken.min(), taken.max()))
    more = most if least == most else f"{least} to {most}"
    return (
        f"It keeps {megabytes(memory['weights'].max())} of weights, and a call takes {more} more. "
    )


def _ready(of: ModelReport) -> str:
    compiling, first = of.frames["compiling"].iloc[0], of.frames["warm_up"]["first_s"]
    if not compiling["seconds"]:
        getting = "It was loaded, not compiled"
    else:
        cached = int(compiling["kernels"] - compiling["built"])
        kept = f" ({several(cached, 'kernel')} came from the cache)" if cached else ""
        getting = f"Compiling took {milliseconds(compiling['seconds'])}{kept}"
    return f"{getting}; the first calls of all clones took {milliseconds(first.sum())}."


def compared(of: ModelReport) -> Iterator[str]:
    """How it is beside another one."""
    if "versus" not in of.frames:
        return
    layers = of.frames["against"]
    versus = of.frames["versus"]
    for sizes in versus["sizes"].unique().tolist():
        rows = versus[versus["sizes"] == sizes]
        other = rows.iloc[1]
        counts = layers.loc[layers["sizes"] == sizes, "which"].value_counts()
        each = ", ".join(f"{counts[w]} {w}" for w in ("faster", "same", "slower") if w in counts)
        at = f"At {sizes} it" if sizes else "It"
        yield (
            f"{at} takes {other['ratio']:.2f} of the time of {other['engine']} "
            f"({other['ratio_q1']:.2f} to {other['ratio_q3']:.2f} in half of the rounds): layer by "
            f"layer {each}."
        )


def planned(of: ModelReport) -> Iterator[str]:
    """What the models say of other numbers of clones."""
    if of.verdict:
        yield f"By the models of its kernels {of.verdict}."


# --- what to do next -----------------------------------------------------------------------------


def steps(of: ModelReport) -> Iterator[NextStep]:
    """What to do next."""
    frames = of.frames
    if of.doubts:
        yield NextStep(f"Measure again on a quiet machine: {'; '.join(of.doubts)}.")
    if host := frames["compiling"].iloc[0]["host"]:
        yield NextStep(
            f"numpy computes {host}, for want of a kernel: slow. What stays dynamic, and which "
            "bounds would help:",
            "bucketize show MODEL --explain-dynamic",
        )
    yield from _about_clones(of)
    if "progress" not in frames:
        tuning = "bucketize tune MODEL --log trials.csv --seconds 120"
        yield NextStep("Tune it, then give the log to this report by --log:", tuning)
    elif not frames["compiling"].iloc[0]["found"]:
        yield NextStep("Go on tuning with the same log: no clone runs by a verdict of it yet.")
    elif len(frames["failures"]):
        yield NextStep("Read what failed in the search, below.")
    yield from _about_sizes(of)
    yield NextStep(
        "Ship it: a program that runs without model, log or compiler.",
        "bucketize compile MODEL -o model.bkt",
    )


def _about_clones(of: ModelReport) -> Iterator[NextStep]:
    frontier, clones = of.frames["frontier"], int(of.frames["compiling"]["clones"].iloc[0])
    if frontier.empty:
        return
    best = int(frontier.loc[frontier["which"] == "chosen", "clones"].iloc[0])
    if best < clones and best == 1:
        yield NextStep(f"Leave out -d: one clone is expected to be as good as these {clones}.")
    elif best != clones:
        yield NextStep(
            f"Take {several(best, 'clone')} instead of {clones}, by -d buckets.yaml:",
            "bucketize partition MODEL -o buckets.yaml",
        )


def _about_sizes(of: ModelReport) -> Iterator[NextStep]:
    if not of.interface["symbols"]:
        return
    if of.frames["traffic"].empty:
        counting = "exe.traffic.write('requests.csv')"
        yield NextStep(
            "Have the service write which sizes come, and give them by --traffic:", counting
        )
    if of.frames["frontier"].empty:
        yield NextStep("Ask by --partition whether more clones, or fewer, would pay.")
