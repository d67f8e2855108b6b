"""A Sphinx extension: draws the pictures of the pages from the frames that are committed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks import resident
from bucketize.analysis import plot_gain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HERE = Path(__file__).parent
OUT = HERE / "pictures"
WIDE = 6.2  # inches: a phone shows it at half the size
MARKERS = "osD^"
EXPECTED = "expected for x86-64-v4 by the models, not measured"


def engines(frame: pd.DataFrame) -> Figure:
    """Time by that of the best other engine: a row for each model, a mark for each machine."""
    figure, axes = empty(4.2)
    models = list(frame["model"].unique())[::-1]
    machines = list(frame["machine"].unique())
    for i, machine in enumerate(machines):
        of = frame[frame["machine"] == machine]
        at = of["model"].map(models.index) + 0.27 - 0.18 * i
        style: dict[str, Any] = {"marker": MARKERS[i], "color": f"C{i}", "linestyle": ""}
        axes.hlines(at, of["mean"], of["worst"], color=f"C{i}", alpha=0.4)
        axes.plot(of["mean"], at, label=machine, **style)
        axes.plot(of["worst"], at, fillstyle="none", alpha=0.6, **style)
    axes.axvline(1.0, color="grey", linewidth=0.8)
    axes.set_yticks(range(len(models)), models)
    axes.set_xlabel("time by that of the best engine; hollow: at the worst size")
    figure.legend(loc="outside upper left", ncols=2, fontsize="small")
    axes.grid(alpha=0.3, axis="x")
    return figure


def sizes(frame: pd.DataFrame) -> Figure:
    """Time over size: of one clone, of the best kernels, and padded to powers of two."""
    figure, axes = empty(3.8)
    tokens = np.arange(frame["S"].min(), frame["S"].max() + 1)
    best = np.interp(tokens, frame["S"], frame["oracle_s"])
    tops = 2 ** np.ceil(np.log2(np.maximum(tokens, 8))).astype(int)
    axes.plot(tokens, 1e3 * best[tops - 1], color="C1", label="padded to 8, 16, ..., 512 tokens")
    axes.plot(frame["S"], 1e3 * frame["one_clone_s"], color="C0", label="bucketize, one clone")
    axes.plot(tokens, 1e3 * best, "--", color="C2", label="the best kernels for each size")
    for cut in np.unique(tops)[:-1]:
        axes.axvline(cut + 0.5, color="grey", linewidth=0.8, linestyle=":")
    axes.set_title(f"bert-base, one text: {EXPECTED}", loc="left", fontsize="small")
    axes.set_xlabel("tokens; dotted: where padding jumps")
    axes.set_ylabel("time of a call [ms]")
    axes.margins(x=0)
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper left", fontsize="small")
    return figure


def clones(frame: pd.DataFrame) -> Figure:
    """What more clones are expected to save, and what they cost."""
    figure = Figure(figsize=(WIDE, 3.0), layout="constrained")
    told = f"resnet18, batches of 1 to 32: {EXPECTED}"
    figure.suptitle(told, x=0.01, ha="left", fontsize="small")
    left, right = figure.subplots(1, 2)
    left.plot(frame["clones"], 100 * frame["above_best"], "o-")
    left.set_ylabel("time above the best kernels [%]")
    right.plot(frame["clones"], frame["weight_mib"], "s-", color="C1")
    right.set_ylabel("packed weights [MiB]")
    for axes in (left, right):
        axes.set_xlabel("clones")
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    return figure


def demo(frame: pd.DataFrame) -> Figure:
    """As `make demo` draws it."""
    return plot_gain(frame)


PICTURES = {
    "engines": engines,
    "sizes": sizes,
    "clones": clones,
    "demo": demo,
    "memory": resident.figure,
}


def empty(height: float) -> tuple[Figure, Axes]:
    """A figure as wide as a page, and its axes."""
    figure = Figure(figsize=(WIDE, height), layout="constrained")
    return figure, figure.subplots()


def draw(out: Path = OUT) -> None:
    """Write every picture."""
    out.mkdir(exist_ok=True)
    for name, figure in PICTURES.items():
        frame = pd.read_csv(HERE / "frames" / f"{name}.csv")
        figure(frame).savefig(out / f"{name}.svg", metadata={"Date": None})


def setup(app: Any) -> dict[str, bool]:
    """Have Sphinx draw before it reads."""
    app.connect("builder-inited", lambda _: draw())
    return {"parallel_read_safe": True}
