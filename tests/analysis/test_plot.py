"""Figures say what they show, of what, and where it was measured; nothing sticks out of them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from matplotlib.colors import to_hex
from test_analysis import COST, LATENCIES, LATENCY, measured

from bucketize.analysis import (
    plot_gain,
    plot_latency,
    plot_progress,
    plot_trade_off,
    progress,
    trade_off,
)
from bucketize.errors import BucketizeError
from bucketize.log.frame import trial_frame

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WHERE = {"model": "mlp", "host_cpu": "znver4", "threads": 2, "date": "2026-01-31T12:00:00+00:00"}
ROUNDS = pd.concat([LATENCY.assign(round=i) for i in range(3)], ignore_index=True)
ROUNDS["latency_s"] *= 1 + ROUNDS["round"] * (ROUNDS["dispatcher"] == "none")


def many(count: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Latency and cost of that many dispatchers at as many shapes."""
    names = ["oracle", *(f"uniform:count={i}" for i in range(count))]
    shapes = [f"N={i},H=224,W=224" for i in range(count)]
    rows = [{"dispatcher": d, "shape": s, "latency_s": 1e-3} for s in shapes for d in names]
    cost = {"dispatcher": names[1:], "clones": range(1, count + 1), "compile_s": 1.0}
    return pd.DataFrame(rows), pd.DataFrame(cost)


def course(tasks: int = 1) -> pd.DataFrame:
    trials = [
        measured(mr, seconds and seconds / (1 + i), workload=f"{i:016x}", threads=1 + i % 2)
        for i in range(tasks)
        for mr, seconds in LATENCIES
    ]
    return progress(trial_frame(trials))


def names(figure: Figure) -> list[str]:
    """Of the legend."""
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def title(figure: Figure) -> str:
    return figure.get_suptitle()


def gains() -> pd.DataFrame:
    """Of two models beside "none"."""
    two = [ROUNDS.assign(**(WHERE | {"model": model})) for model in ("mlp", "bert-mini")]
    return pd.concat(trade_off(latency, COST, "none") for latency in two)


CPU = {"model": "resnet50-with-a-head", "host_cpu": "Intel(R) Xeon(R) Platinum 8573C @ 2.60GHz"}

FIGURES = {
    "three symbols": lambda: plot_latency(many(8)[0].assign(**(WHERE | CPU))),
    "latency": lambda: plot_latency(LATENCY),
    "latency in rounds": lambda: plot_latency(ROUNDS.assign(**WHERE)),
    "latency of many": lambda: plot_latency(many(60)[0]),
    "trade-off": lambda: plot_trade_off(trade_off(LATENCY, COST)),
    "trade-off of many": lambda: plot_trade_off(trade_off(*many(60))),
    "gain": lambda: plot_gain(gains()),
    "progress": lambda: plot_progress(course()),
    "progress of many": lambda: plot_progress(course(40)),
    "no progress": lambda: plot_progress(course(0)),
}


@cache
def figure_of(name: str) -> Figure:
    return FIGURES[name]()


@pytest.mark.sweep
@pytest.mark.parametrize("name", FIGURES)
def test_everything_is_inside_the_frame(name: str) -> None:
    figure = figure_of(name)
    figure.draw_without_rendering()
    width, height = figure.bbox.size
    for artist in (*figure.axes, *figure.legends, *figure.texts):
        box = artist.get_tightbbox()
        assert box is not None
        assert min(box.x0, box.y0) >= -1
        assert box.x1 <= width + 1
        assert box.y1 <= height + 1


@pytest.mark.parametrize("name", FIGURES)
def test_the_title_stays_over_the_axes(name: str) -> None:
    figure = figure_of(name)
    figure.draw_without_rendering()
    (text,) = figure.texts  # the title
    assert text.get_tightbbox().x1 <= max(axes.bbox.x1 for axes in figure.axes)


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("latency", ["oracle", "log", "none"]),
        ("latency of many", ["oracle", *(f"uniform:count={i}" for i in range(60))]),
        ("trade-off", ["none", "log", "oracle"]),
        ("trade-off of many", [f"uniform:count={i}" for i in range(60)]),
        ("progress", ["matmul 000000 N=1;H=32..63"]),
        ("no progress", []),
    ],
)
def test_every_line_has_its_name(name: str, named: list[str]) -> None:
    assert names(figure_of(name)) == named


def test_of_many_tasks_those_that_gained_most_are_named() -> None:
    *first, last = names(figure_of("progress of many"))
    assert len(first) == 10
    assert all(name.startswith("matmul 000000 N=1;H=32..63 ") for name in first)
    assert {name.rsplit(" ", 2)[1] for name in first} == {"1", "2"}  # threads
    assert last == "30 more"


def test_titles_say_what_was_measured_where() -> None:
    assert (
        title(figure_of("latency in rounds")) == "mlp, znver4, 2 threads, 2026-01-31\nat N=1; N=7"
    )
    trade = plot_trade_off(trade_off(ROUNDS.assign(**WHERE), COST))
    assert title(trade) == "mlp, znver4, 2 threads, 2026-01-31\nat N=1; N=7"
    assert title(figure_of("latency")) == "at N=1; N=7"  # the frame tells no more
    assert title(figure_of("latency of many")).endswith("and 54 more")
    assert title(figure_of("progress")).endswith(", 1 thread")


def test_quartiles_are_drawn() -> None:
    axes = figure_of("latency in rounds").axes[1]
    none = axes.containers[-1]
    assert none.get_label() == "none"
    (bars,) = none.lines[2]
    ends = [[y for _, y in segment] for segment in bars.get_segments()]
    assert ends == [pytest.approx([4.5, 7.5]), pytest.approx([1.5, 2.5])]  # of 3, 6, 9; 1, 2, 3


def test_compile_seconds_stand_beside_clones() -> None:
    clones, seconds = figure_of("trade-off").axes
    assert (clones.get_xlabel(), seconds.get_xlabel()[-3:]) == ("clones", "[s]")
    at = [[c.lines[0].get_xdata()[0] for c in axes.containers] for axes in (clones, seconds)]
    assert at == [COST["clones"].tolist(), COST["compile_s"].tolist()]


def texts(figure: Figure) -> list[list[str]]:
    """What is written into each of the axes."""
    return [[text.get_text() for text in axes.texts] for axes in figure.axes]


def test_the_better_corner_is_marked() -> None:
    figure = figure_of("trade-off")
    assert texts(figure) == [["better"], ["better"]]
    figure.draw_without_rendering()
    for axes in figure.axes:
        arrow = axes.texts[-1]
        (x, y), (from_x, from_y) = arrow.xy, arrow.get_position()
        assert 0 <= x < from_x < 0.2
        assert 0 <= y < from_y < 0.2


def test_gains_are_bars_beside_the_first_of_each_model() -> None:
    figure = figure_of("gain")
    trade = gains()
    for axes, (model, of) in zip(figure.axes, trade.groupby("model", sort=False), strict=True):
        assert axes.get_title(loc="left") == f"{model}: N=1; N=7"
        bars = axes.patches
        assert [bar.get_width() for bar in bars] == of["mean_slowdown"].tolist()
        assert bars[0].get_width() == 1
        names = [label.get_text() for label in axes.get_yticklabels()]
        assert names[1] == "log\nclones: 2, compiled in 2.0 s"
        assert len({bar.get_facecolor() for bar in bars[:2]}) == 2


def test_a_gain_has_the_colour_of_its_verdict() -> None:
    ratios = {"first": (1.0, 1.0), "same": (0.9, 1.1), "more": (1.1, 1.3), "less": (0.7, 0.9)}
    rows = [
        {"model": "m", "dispatcher": n, "worst_slowdown": 1.5, "mean_slowdown": (low + high) / 2}
        | {f"mean_slowdown_{end}": low for end in ("q1", "low")}
        | {f"mean_slowdown_{end}": high for end in ("q3", "high")}
        | {"calls": 3}
        for n, (low, high) in ratios.items()
    ]
    (axes,) = plot_gain(pd.DataFrame(rows)).axes
    colours = [to_hex(bar.get_facecolor()) for bar in axes.patches]
    wanted = ("seagreen", "silver", "darkorange", "steelblue")
    assert colours == [to_hex(name) for name in wanted]
    assert axes.get_yticklabels()[0].get_text() == "first\ncalls: 3"


@pytest.mark.parametrize(
    ("draw", "reason"),
    [
        (lambda: plot_latency(COST), "lacks shape, latency_s; expected one of `measure_trade_off`"),
        (lambda: trade_off(LATENCY, LATENCY[["shape"]]), "lacks dispatcher; expected one of `mea"),
        (lambda: plot_trade_off(LATENCY), "lacks clones, compile_s, .*expected one of `trade_off`"),
        (lambda: plot_gain(LATENCY), "lacks model, mean_slowdown, .*one of `trade_off`"),
        (lambda: plot_progress(trial_frame([])), "lacks step, best; expected one of `progress`"),
        (lambda: progress(LATENCY), "lacks schema_version, .*; expected one of `load`"),
    ],
)
def test_another_frame_is_an_error(draw: object, reason: str) -> None:
    assert callable(draw)
    with pytest.raises(BucketizeError, match=reason):
        draw()
