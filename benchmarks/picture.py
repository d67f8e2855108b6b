"""The picture of a sweep: ratios to the best peer, and shares of the peak, over the sizes."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from benchmarks.report import WAYS, summary
from benchmarks.side import PEERS
from bucketize.analysis.benchmark import OURS
from bucketize.program.program import threads_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 4.4, 5.4  # inches of a model
LETTERS = 12  # of the title in an inch
COLUMNS = 3  # models beside each other
STYLES = ("-", "--", ":", "-.")  # by threads
MARKERS = "osD"  # by way


def drawn(frame: pd.DataFrame, path: Path) -> None:
    """Write the picture of all cells; format by the suffix."""
    figure(frame).savefig(path, dpi=110)


def figure(frame: pd.DataFrame) -> Figure:
    """The picture of all cells; it belongs to no window and no file."""
    from matplotlib.figure import Figure

    models = list(frame["model"].unique())
    columns = min(COLUMNS, len(models))
    rows = -(-len(models) // columns)
    made = Figure(figsize=(WIDTH * columns, HEIGHT * rows), layout="constrained")
    wide = textwrap.fill(title(frame), int(LETTERS * WIDTH * columns))
    made.suptitle(wide, x=0.01, ha="left", fontsize="medium")
    grids = made.subfigures(rows, columns, squeeze=False).flat
    for model, grid in zip(models, grids, strict=False):
        above, below = grid.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        of = frame[frame["model"] == model]
        sizes = list(of["sizes"].unique())
        above.set_title(model, fontsize="medium")
        ratios(above, of, sizes)
        shares(below, of, sizes)
        handles, labels = above.get_legend_handles_labels()
        if labels:
            told = {"title": "geometric mean", "fontsize": "x-small", "title_fontsize": "x-small"}
            grid.legend(handles, labels, loc="outside lower center", ncols=2, **told)
        below.set_xticks(range(len(sizes)), map(short, sizes), rotation=60, ha="right", size=7)
    return made


def title(frame: pd.DataFrame) -> str:
    """The machine, the day and the peers."""
    ran = frame[frame["time_s"].notna()]
    peers = ran[ran["engine"].isin(list(PEERS))][["engine", "version"]].drop_duplicates()
    named = ", ".join(" ".join(map(str, pair)) for pair in peers.itertuples(index=False))
    days = sorted({str(date)[: len("2026-01-31")] for date in frame["date"]})
    where = ", ".join(sorted({str(cpu) for cpu in frame["cpu"]}))
    return f"time by that of the best of {named or 'no peer'} ({where}, {', '.join(days)})"


def ratios(axes: Axes, of: pd.DataFrame, sizes: list[str]) -> None:
    """A line for each way and number of threads, with bars between the quartiles."""
    for i, threads in enumerate(of["threads"].unique()):
        for k, (way, name) in enumerate(WAYS.items()):
            line = of[(of["threads"] == threads) & (of["engine"] == way) & of["ratio"].notna()]
            found = summary(line, way)
            if found is None:
                continue
            values = line[["ratio", "ratio_q1", "ratio_q3"]].to_numpy(float).T
            middle, low, high = values
            axes.errorbar(
                line["sizes"].map(sizes.index),
                middle,
                [middle - low, high - middle],
                capsize=2,
                marker=MARKERS[k],
                color=f"C{k}",
                markersize=4,
                linestyle=STYLES[i % len(STYLES)],
                label=f"{name}, {threads_text(int(threads))}: {found.mean:.2f}",
            )
    axes.axhline(1.0, color="grey", linewidth=0.8)
    axes.grid(alpha=0.3)
    axes.set_ylabel("by the best peer")


def shares(axes: Axes, of: pd.DataFrame, sizes: list[str]) -> None:
    """The share of the peak that bucketize attains on defaults, and the best peer in grey."""
    for i, threads in enumerate(of["threads"].unique()):
        style = STYLES[i % len(STYLES)]
        here = of[(of["threads"] == threads) & of["time_s"].notna()]
        ours = here[here["engine"] == OURS]
        theirs = here[here["engine"].isin(list(PEERS))]
        best = theirs.groupby("sizes", sort=False)["of_peak"].max()
        axes.plot(best.index.map(sizes.index), 100 * best.astype(float), style, color="grey")
        at = ours["sizes"].map(sizes.index)
        axes.plot(at, 100 * ours["of_peak"].astype(float), style, color="C0", marker="o", ms=4)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.set_ylabel("% of peak (grey: peer)")


def short(sizes: str) -> str:
    """`1x224x224` of `N=1,H=224,W=224`; of one symbol as it is."""
    parts = sizes.split(",")
    return sizes if len(parts) == 1 else "x".join(part.partition("=")[2] for part in parts)
