"""Figures of the frames; they belong to no window and no file."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pandas as pd

from bucketize.analysis.frame import ORACLE, tasks, versus_oracle

if TYPE_CHECKING:  # matplotlib takes a third of a second to import: only who draws pays
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE = (8.0, 5.0)  # inches
MARKERS = "osD^vP*X"
LEGEND_ROOM = 12  # lines that a legend can still name


def plot_latency(latency: pd.DataFrame, oracle: str = ORACLE) -> Figure:
    """Latency over shape, one line per dispatcher, and below it the slowdown against the oracle."""
    figure = _empty(1.4 * SIZE[1])
    above, below = figure.subplots(2, 1, sharex=True)
    frame = versus_oracle(latency, oracle)
    shapes = list(frame["shape"].unique())
    for marker, (name, line) in zip(itertools.cycle(MARKERS), _lines(frame), strict=False):
        at = line["shape"].map(shapes.index)
        dashes = "--" if name == oracle else "-"
        above.plot(at, 1e3 * line["latency_s"], dashes, marker=marker, label=name)
        below.plot(at, line["slowdown"], dashes, marker=marker, label=name)
    above.set_yscale("log")
    above.set_ylabel("latency [ms]")
    above.legend()
    below.set_ylabel(f"latency by that of {oracle}")
    below.set_xticks(range(len(shapes)), shapes, rotation=30, ha="right")
    return figure


def _lines(frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    return [(str(name), line) for name, line in frame.groupby("dispatcher", sort=False)]


def plot_trade_off(trade: pd.DataFrame) -> Figure:
    """Slowdown against the oracle over the number of clones: the mean, a bar up to the worst."""
    figure, axes = _figure("clones", "slowdown against the oracle: mean, worst")
    measured = trade.dropna(subset=["mean_slowdown"])
    points = measured[["clones", "mean_slowdown", "worst_slowdown"]].to_numpy(float)
    for name, (clones, mean, worst) in zip(measured["dispatcher"], points, strict=True):
        axes.errorbar([clones], [mean], [[0.0], [worst - mean]], fmt="o", capsize=5)
        axes.annotate(name, (clones, mean), xytext=(8, -4), textcoords="offset points")
    axes.margins(x=0.15)  # room for the names
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.axhline(1.0, color="grey", linewidth=0.8)
    return figure


def plot_progress(progress: pd.DataFrame) -> Figure:
    """The best schedule so far, relative to the default, over the schedules tried of each task."""
    figure, axes = _figure("schedules tried", "best latency by that of the default")
    for task, line in tasks(progress):
        label = f"{task['op']} {task['workload'][:6]} {task['bucket']}"
        axes.step(line["step"], line["best"], where="post", label=label)
    if 0 < len(axes.lines) <= LEGEND_ROOM:
        axes.legend(fontsize="small")
    return figure


def _empty(height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(SIZE[0], height), layout="constrained")


def _figure(x: str, y: str) -> tuple[Figure, Axes]:
    figure = _empty(SIZE[1])
    axes = figure.subplots()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.3)
    return figure, axes
