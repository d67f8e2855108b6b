"""Figures of the frames; they belong to no window and no file."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from bucketize.analysis.column import require
from bucketize.analysis.frame import ORACLE, TASK, WHERE, tasks, versus_oracle
from bucketize.log.confidence import verdict

if TYPE_CHECKING:  # matplotlib takes a third of a second to import: only who draws pays
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bucketize.partition.value import Partition

SLOWDOWN = ["mean_slowdown", "mean_slowdown_q1", "mean_slowdown_q3", "worst_slowdown"]
INTERVAL = ["mean_slowdown_low", "mean_slowdown_high"]
SIZE = (8.0, 5.0)  # inches
MARKERS = "osD^vP*X"
LEGEND_ROWS = 24  # that stand beside a figure of this size
LISTED = 6  # values in a title; more are counted
NAMED = 10  # lines that a reader can still tell from one another
TICKS = 16  # shapes that an axis can name
TAKEN = {"one_clone_s": "one clone", "chosen_s": "chosen", "oracle_s": "best kernels"}
COSTS = {"clones": "clones: {:.0f}", "compile_s": "compiled in {:.1f} s", "calls": "calls: {:.0f}"}
FIRST, SAME, COLOURS = "seagreen", "silver", {"slower": "darkorange", "faster": "steelblue"}
LINE = 84  # characters of a title, so that it ends before the axes do


def plot_latency(latency: pd.DataFrame, oracle: str = ORACLE) -> Figure:
    """Latency over shape, one line per dispatcher, and below it the slowdown against the oracle.

    Args:
        latency: as for `versus_oracle`; medians are drawn with a bar between their quartiles where
            shapes were measured in rounds.
        oracle: the oracle's name; its line is dashed.

    Returns:
        The figure, which is not shown yet.

    Raises:
        BucketizeError: the frame is another, or a shape was not measured on the oracle.

    """
    frame = versus_oracle(latency, oracle)
    figure = _empty(1.4 * SIZE[1], _title(frame))
    above, below = figure.subplots(2, 1, sharex=True)
    shapes = list(frame["shape"].unique())
    lines = frame.groupby("dispatcher", sort=False)
    for style, (name, line) in zip(_styles(), lines, strict=False):
        style |= {"label": str(name), "linestyle": "--" if name == oracle else "-"}
        at = line["shape"].map(shapes.index)
        _spread(above, at, 1e3 * line[["latency_s", "latency_q1_s", "latency_q3_s"]], style)
        _spread(below, at, line[["slowdown", "slowdown_q1", "slowdown_q3"]], style)
    above.set_yscale("log", subs=[])
    above.yaxis.get_major_locator().set_params(subs=(1, 2, 3, 5))
    above.yaxis.set_major_formatter("{x:g}")
    above.set_ylabel("latency [ms]")
    below.set_ylabel(f"latency by that of {oracle}")
    named = range(0, len(shapes), math.ceil(len(shapes) / TICKS) or 1)
    below.set_xticks(named, [shapes[i] for i in named], rotation=30, ha="right")
    _legend(figure, above)
    return figure


def plot_trade_off(trade: pd.DataFrame) -> Figure:
    """Slowdown against the oracle over the number of clones, and over the seconds of compiling.

    A full point is the mean over the shapes, with a bar between the quartiles where shapes were
    measured in rounds; a hollow one is the worst shape.

    Args:
        trade: of `trade_off`; dispatchers that were not measured are left out.

    Returns:
        The figure, which is not shown yet.

    Raises:
        BucketizeError: the frame is another.

    """
    require(trade, ["dispatcher", "clones", "compile_s", *SLOWDOWN], "trade_off")
    measured = trade.dropna(subset=["mean_slowdown"])
    figure = _empty(SIZE[1], _title(measured))
    clones, seconds = figure.subplots(1, 2, sharey=True)
    for style, row in zip(_styles(), measured.to_dict("records"), strict=False):
        _point(clones, row["clones"], row, style)
        _point(seconds, row["compile_s"], row, style)
    clones.set_xscale("log", base=2)
    clones.xaxis.set_major_formatter("{x:g}")
    clones.set_xlabel("clones")
    seconds.set_xlabel("compile time from an empty cache [s]")
    clones.set_ylabel("slowdown against the oracle: mean; hollow: worst")
    for axes in (clones, seconds):
        _mark_better(axes)
        axes.margins(0.1)
        axes.grid(alpha=0.3)
        axes.axhline(1.0, color="grey", linewidth=0.8)
    seconds.set_xlim(left=0)
    _legend(figure, clones)
    return figure


def plot_gain(trade: pd.DataFrame) -> Figure:
    """The time of every way by that of the first of its model, beside the first: bars from 0.

    A bar is the mean over the shapes, with a line between the quartiles. What takes longer is
    orange, what takes less blue, where the 95 % interval of the median shows it; else it is grey.

    Args:
        trade: of `trade_off` beside the first dispatcher of each model, of one model or of several;
            `clones`, `compile_s` and `calls` are told where they are known.

    Returns:
        The figure, which is not shown yet.

    Raises:
        BucketizeError: the frame is another.

    """
    require(trade, ["model", "dispatcher", *SLOWDOWN, *INTERVAL], "trade_off")
    models = list(trade.groupby("model", sort=False))
    where = trade.drop(columns=["model", "shapes"], errors="ignore")
    figure = _empty(1.6 + 0.4 * len(trade) + 0.5 * len(models), _title(where))
    heights = [len(of) for _, of in models]
    every = figure.subplots(len(models), 1, height_ratios=heights, squeeze=False, sharex=True)
    for axes, (model, of) in zip(every[:, 0], models, strict=True):
        shapes = f": {_listed(_shapes(of))}" if "shapes" in of else ""
        axes.set_title(f"{model}{shapes}", loc="left", fontsize="medium")
        _bars(axes, of)
    every[-1, 0].set_xlabel("time by that of the green bar: shorter is faster, grey not told apart")
    return figure


def _bars(axes: Axes, of: pd.DataFrame) -> None:
    """The ways of a model, the first on top."""
    names = [_with_cost(row) for row in of.to_dict("records")]
    middle, low, high, _ = of[SLOWDOWN].to_numpy(float).T
    words = map(verdict, *of[INTERVAL].to_numpy(float).T)
    colours = [FIRST, *(COLOURS.get(word, SAME) for word in [*words][1:])]
    bars = [middle - low, high - middle]
    axes.barh(names, middle, color=colours, xerr=bars, error_kw={"capsize": 4, "linewidth": 1})
    for i, (ratio, end) in enumerate(zip(middle, high, strict=True)):
        axes.annotate(f"{ratio:.2f}", (end, i), (6, 0), textcoords="offset points", va="center")
    axes.axvline(1.0, color=FIRST, linewidth=0.8)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.spines[["top", "right"]].set_visible(False)


def _with_cost(row: Mapping[Any, Any]) -> str:
    """What a way is called, and what it costs as far as that is known."""
    costs = [form.format(row[name]) for name, form in COSTS.items() if row.get(name, math.nan) > 0]
    lines = (row["dispatcher"], ", ".join(costs))
    return "\n".join(filter(None, lines))


def plot_progress(progress: pd.DataFrame) -> Figure:
    """The best schedule so far, relative to the default, over the schedules tried of each task.

    The tasks that gained most have a colour and a name, the others are grey.

    Args:
        progress: of `progress`.

    Returns:
        The figure, which is not shown yet.

    Raises:
        BucketizeError: the frame is another.

    """
    require(progress, [*TASK, "step", "best"], "progress")
    figure = _empty(SIZE[1], _title(progress))
    axes = figure.subplots()
    axes.set_xlabel("schedules tried")
    axes.locator_params(axis="x", integer=True)
    axes.set_ylabel("best latency by that of the default")
    axes.grid(alpha=0.3)
    gained = sorted(tasks(progress), key=lambda task: task[1]["best"].min())
    named, others = gained[:NAMED], gained[NAMED:]
    varying = [name for name in ("model", "host_cpu", "threads") if progress[name].nunique() > 1]
    for task, line in named:
        axes.step(line["step"], line["best"], where="post", label=_task_name(task, varying))
    for i, (_, line) in enumerate(others):
        label = None if i else f"{len(others)} more"
        axes.step(line["step"], line["best"], "lightgrey", where="post", zorder=1, label=label)
    _legend(figure, axes)
    return figure


def _task_name(task: Mapping[str, Any], varying: Iterable[str]) -> str:
    """The op, workload and bucket of a task, and what else tells it from the others."""
    parts = [task["op"], task["workload"][:6], task["bucket"]]
    parts += [f"{task[name]} threads" if name == "threads" else task[name] for name in varying]
    return " ".join(filter(None, parts))


def plot_partition(partition: Partition) -> Figure:
    """What calls are expected to take over sizes, and where buckets begin.

    Of one symbol that is cut, or none: time by size of one clone, of the chosen ones and of the
    best kernels, the requests below. Of several, of the two that are cut most: what is lost by the
    best kernels as a colour, buckets as frames.

    Args:
        partition: of `bucketize.partition`.

    Returns:
        The figure, which is not shown yet.

    """
    buckets = partition.chosen.buckets
    cuts = {name: len({b[name] for b in buckets}) for name in buckets[0]}
    names = sorted(cuts, key=lambda name: -cuts[name])
    figure = _empty(SIZE[1], textwrap.fill(str(partition), LINE))
    if len(names) == 1 or cuts[names[1]] == 1:
        _over_size(figure, partition, names[0])
    else:
        _over_sizes(figure, partition, names[0], names[1])
    return figure


def _over_size(figure: Figure, partition: Partition, name: str) -> None:
    """Lines over a symbol, the mean where others differ, and the requests."""
    frame = pd.DataFrame(partition.by_size)
    weighted = frame[list(TAKEN)].mul(frame["share"], axis=0)
    lines = weighted.groupby(frame[name]).sum().div(frame.groupby(name)["share"].sum(), axis=0)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    for column, label in TAKEN.items():
        above.plot(lines.index, 1e3 * lines[column], label=label, drawstyle="default")
    for begin in sorted({b[name][0] for b in partition.chosen.buckets})[1:]:
        for axes in (above, below):
            axes.axvline(begin - 0.5, color="grey", linewidth=0.8, linestyle=":")
    shares = frame.groupby(name)["share"].sum()
    below.fill_between(shares.index, 100 * shares, step="mid", alpha=0.5)
    above.set_ylabel("expected time [ms]")
    above.legend()
    below.set_ylabel("requests [%]")
    below.set_xlabel(name)


def _over_sizes(figure: Figure, partition: Partition, first: str, second: str) -> None:
    """A point for each size, coloured by what is lost there, and the buckets."""
    from matplotlib.patches import Rectangle

    frame = pd.DataFrame(partition.by_size)
    loss = 100 * (frame["chosen_s"] / frame["oracle_s"] - 1)
    axes = figure.subplots()
    points = axes.scatter(frame[first], frame[second], s=12, c=loss, cmap="viridis")
    figure.colorbar(points, label="above the best kernels [%]")
    tops = {name: frame[name].max() + 1 for name in (first, second)}
    for bucket in partition.chosen.buckets:
        (left, right), (low, high) = (
            (bucket[n][0], bucket[n][1] or top) for n, top in tops.items()
        )
        corner, size = (left - 0.5, low - 0.5), (right - left, high - low)
        axes.add_patch(Rectangle(corner, *size, fill=False, edgecolor="grey"))
    axes.set_xlabel(first)
    axes.set_ylabel(second)


# --- parts of figures ----------------------------------------------------------------------------


def _styles() -> Iterator[dict[str, Any]]:
    """Markers and colours for any number of lines."""
    markers = itertools.cycle(MARKERS)
    return ({"marker": m, "color": f"C{i % 10}"} for i, m in enumerate(markers))


def _spread(axes: Axes, at: pd.Series[int], line: pd.DataFrame, style: dict[str, Any]) -> None:
    """A line of medians, with bars between their quartiles."""
    middle, low, high = line.to_numpy(float).T
    axes.errorbar(at, middle, [middle - low, high - middle], capsize=3, **style)


def _point(axes: Axes, at: float, row: Mapping[Any, Any], style: dict[str, Any]) -> None:
    """A mean, its quartiles and the worst."""
    mean, low, high, worst = (row[name] for name in SLOWDOWN)
    quartiles = [[mean - low], [high - mean]]
    style = style | {"linestyle": "", "alpha": 0.8}
    axes.plot([at], [worst], fillstyle="none", **style)
    axes.errorbar([at], [mean], quartiles, capsize=4, label=row["dispatcher"], **style)


def _mark_better(axes: Axes) -> None:
    """An arrow to the corner at which a module would cost nothing and take no time."""
    arrow = {"arrowstyle": "->", "color": "seagreen", "linewidth": 2}
    axes.annotate(
        "better",
        xy=(0.01, 0.02),
        xytext=(0.11, 0.13),
        xycoords="axes fraction",
        color="seagreen",
        weight="bold",
        ha="center",
        arrowprops=arrow,
    )


def _title(frame: pd.DataFrame) -> str:
    """The model, the machine, the threads, the day and the sizes, as far as the frame tells."""
    values_of = {name: [str(v) for v in frame[name].unique()] for name in WHERE if name in frame}
    cells = {name: _listed(values) for name, values in values_of.items() if any(values)}
    if "threads" in cells:
        cells["threads"] += " thread" if cells["threads"] == "1" else " threads"
    if "date" in cells:
        cells["date"] = cells["date"][: len("2026-01-31")]
    sizes = f"at {_listed(_shapes(frame))}" if "shape" in frame or "shapes" in frame else ""
    return "\n".join(textwrap.fill(t, LINE) for t in (", ".join(cells.values()), sizes) if t)


def _shapes(frame: pd.DataFrame) -> list[str]:
    every = frame["shape"] if "shape" in frame else frame["shapes"].str.split("; ").explode()
    return [str(shape) for shape in every.unique()]


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return "; ".join(names[:LISTED]) + more


def _legend(figure: Figure, axes: Axes) -> None:
    """The names of all lines, beside the axes."""
    handles, labels = axes.get_legend_handles_labels()
    if labels:
        columns = math.ceil(len(labels) / LEGEND_ROWS)
        figure.set_figwidth(figure.get_figwidth() + 2.0 * columns)
        figure.legend(handles, labels, loc="outside right upper", fontsize="small", ncols=columns)


def _empty(height: float, title: str) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(SIZE[0], height), layout="constrained")
    # from the left: the middle of the figure moves with the legend, which stands beside
    figure.suptitle(title, x=0.01, ha="left", fontsize="medium")
    return figure
