"""The pictures of a report, by Vega-Altair: each is a chart of frames that the page has by name."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, TypeAlias

import altair as alt

Chart: TypeAlias = Any
"""A chart of Altair, whose methods say that they return anything."""
COLOURS = [f"var(--c{i})" for i in range(1, 13)]
"""Colours of the page, which has others in the dark and in print."""
HEIGHT = 260

FONT = "system-ui, -apple-system, Segoe UI, Roboto, Noto Sans, DejaVu Sans, sans-serif"
"""Named, not inherited: Vega measures texts by it."""

CONFIG: dict[str, Any] = {
    "aria": False,  # the page says in words what is seen, and has the numbers
    "background": "transparent",
    "font": FONT,
    "view": {"stroke": None},
    "axis": {
        **dict.fromkeys(("labelColor", "titleColor"), "var(--ink)"),
        **dict.fromkeys(("domainColor", "tickColor"), "var(--faint)"),
        "gridColor": "var(--line)",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelOverlap": "greedy",
    },
    "axisQuantitative": {"tickCount": 8},
    "legend": {
        **dict.fromkeys(("labelColor", "titleColor"), "var(--ink)"),
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "orient": "top",
        "labelLimit": 420,
        "symbolStrokeWidth": 3,
    },
    "range": {"category": COLOURS},
    "mark": {"color": COLOURS[0]},
    "rule": {"color": "var(--faint)"},
    "text": {"color": "var(--ink)", "fontSize": 12},
}


def chart(frame: str, symbol: str = "") -> Chart:
    """A chart of a frame, or of its rows of one symbol, as high as most are."""
    its = alt.Chart(alt.NamedData(frame), height=HEIGHT)
    return its.transform_filter(alt.datum.symbol == symbol) if symbol else its


def specification(of: Chart) -> dict[str, Any]:
    """The chart in the words of Vega-Lite, as wide as there is room."""
    whole: dict[str, Any] = of.properties(width="container").to_dict()
    return {**whole, "config": CONFIG, "autosize": {"type": "fit-x", "contains": "padding"}}


LOG = alt.Scale(type="log", nice=False, padding=8)
ROUND = "round(1e6 * datum.value / pow(10, floor(log(datum.value) / LN10 + 1e-9))) / 1e6"
DECADES = {"test": f"indexof([1, 2, 5], {ROUND}) >= 0", "value": "var(--line)"}


@cache
def _log_axis(**more: Any) -> alt.Axis:
    """A logarithmic axis, with lines at 1, 2 and 5 of each power of ten."""
    lines = {"gridColor": {"condition": DECADES, "value": "transparent"}}
    return alt.Axis.from_dict({"tickCount": 6, **lines, **more})


def milliseconds(title: str = "expected time [ms]") -> alt.Y:
    """Milliseconds on the left axis."""
    return alt.Y("ms:Q", title=title, scale=LOG, axis=_log_axis())


def _size(symbol: str) -> alt.X:
    """Sizes of a symbol on the lower axis."""
    scale = alt.Scale(type="log", nice=False)
    return alt.X("size:Q", title=symbol, scale=scale, axis=_log_axis(format="~d"))


def _begins(symbol: str) -> Chart:
    """A line where each bucket begins."""
    marks = chart("cuts", symbol).mark_rule(strokeDash=[4, 3], clip=True)
    return marks.encode(x="size:Q", tooltip=[alt.Tooltip("size:Q", title="a bucket begins at")])


def over_size(symbol: str, is_cut: bool) -> Chart:
    """What calls are expected to take over a symbol, and where buckets begin."""
    line = chart("costs", symbol).transform_calculate(ms="1000 * datum.predicted_s")
    line = line.mark_line(point={"size": 28, "filled": True})
    line = line.encode(
        x=_size(symbol),
        y=milliseconds(),
        tooltip=["sizes:N", "clone:N", alt.Tooltip("ms:Q", format=".4g", title="expected [ms]")],
    )
    return _cut(line, symbol, is_cut)


def _cut(of: Chart, symbol: str, is_cut: bool) -> Chart:
    """The chart with lines where buckets begin, if any does."""
    return of + _begins(symbol) if is_cut else alt.layer(of)


def requests(symbol: str, is_cut: bool, ends: tuple[int, int]) -> Chart:
    """Requests by size, from the least to the greatest, and where buckets begin."""
    bars = chart("traffic", symbol).transform_calculate(end="datum.last + 1")
    bars = bars.mark_bar(opacity=0.85).encode(
        x=alt.X(
            "size:Q",
            title=symbol,
            scale=alt.Scale(domain=[int(ends[0]), int(ends[1]) + 1], nice=False),
            axis=alt.Axis(format="~d", tickCount=8),
        ),
        x2="end:Q",
        y=alt.Y("requests:Q", title="requests"),
        y2=alt.datum(0),
        tooltip=["size:Q", "last:Q", "requests:Q"],
    )
    return _cut(bars, symbol, is_cut)


def implementations(workload: str, symbol: str) -> Chart:
    """What implementations of a kernel are expected to take; dots are on those that run."""
    base = chart("implementations").transform_filter(alt.datum.workload == workload)
    base = base.transform_calculate(ms="1000 * datum.predicted_s")
    tip = ["implementation:N", "size:Q", alt.Tooltip("ms:Q", format=".4g", title="expected [ms]")]
    lines = base.mark_line().encode(
        x=_size(symbol),
        y=milliseconds(),
        color=alt.Color("implementation:N", title="", legend=alt.Legend(columns=1)),
        tooltip=tip,
    )
    dots = base.transform_filter(alt.datum.runs).mark_point(filled=True, size=55, opacity=1)
    dots = dots.encode(x="size:Q", y="ms:Q", color="implementation:N", tooltip=tip)
    return lines + dots


def frontier(column: str, title: str, scale: float) -> Chart:
    """The best partition of each number of clones: its time over what it costs."""
    base = chart("frontier").transform_calculate(
        ms="1000 * datum.seconds",
        cost=f"datum.{column} * {scale}",
        kind="datum.which || 'the best of so many clones'",
    )
    tip = ["clones:Q", alt.Tooltip("ms:Q", format=".4g"), alt.Tooltip("cost:Q", format=".3g")]
    x = alt.X("cost:Q", title=title, scale=alt.Scale(zero=False, padding=24))
    y = alt.Y("ms:Q", title="time of kernels [ms]", scale=alt.Scale(zero=False, padding=18))
    line = base.transform_filter("datum.which != 'here'").mark_line(strokeOpacity=0.5)
    dots = base.mark_point(filled=True, size=90, opacity=1).encode(
        x=x,
        y=y,
        color=alt.Color("kind:N", title=""),
        shape=alt.Shape("kind:N", title=""),
        tooltip=tip,
    )
    names = base.mark_text(dx=8, dy=-9, align="left").encode(x=x, y=y, text="clones:Q")
    return line.encode(x=x, y=y, order="clones:Q") + dots + names


def lost(symbol: str, of: list[str], most: float) -> Chart:
    """What columns, of one clone and of the chosen ones, lose by the best kernels for a size."""
    base = chart("by_size").transform_calculate(size=f"datum[{json.dumps(symbol)}]")
    base = base.transform_fold(list(of), as_=["which", "seconds"])
    base = base.transform_calculate(loss="datum.seconds / datum.oracle_s - 1")
    return base.mark_point(filled=True, size=26, opacity=0.7).encode(
        x=_size(symbol),
        y=alt.Y(
            "loss:Q",
            title="above the best kernels",
            scale=alt.Scale(domain=[0, most]),
            axis=alt.Axis(format=".1%", tickCount=5),
        ),
        color=alt.Color("which:N", title="", legend=alt.Legend(labelExpr=WHICH)),
        shape=alt.Shape("which:N", title="", legend=alt.Legend(labelExpr=WHICH)),
        tooltip=["which:N", "size:Q", alt.Tooltip("loss:Q", format=".2%")],
    )


WHICH = "{one_clone_s: 'one clone', chosen_s: 'the chosen ones'}[datum.label]"


def roofline(sizes: str) -> Chart:
    """Kernels by their intensity and what they attain, below what the machine allows."""
    base = chart("layers").transform_filter(alt.datum.sizes == sizes)
    points = base.transform_filter("datum.gflops > 0").mark_point(
        filled=True, opacity=0.75, size=60
    )
    x = alt.X("intensity:Q", title="FLOP per byte", scale=LOG, axis=_log_axis())
    y = alt.Y("gflops:Q", title="GFLOP/s", scale=LOG, axis=_log_axis())
    points = points.encode(
        x=x,
        y=y,
        size=alt.Size(
            "share:Q", title="share of time", legend=None, scale=alt.Scale(range=[25, 600])
        ),
        color=alt.Color("kernel:N", title=""),
        tooltip=[
            "name:N",
            "kernel:N",
            alt.Tooltip("gflops:Q", format=".3g"),
            alt.Tooltip("roofline:Q", format=".0%"),
            alt.Tooltip("share:Q", format=".1%"),
        ],
    )
    roof = (
        chart("roof")
        .transform_filter(alt.datum.sizes == sizes)
        .mark_line(color="var(--faint)", strokeWidth=2)
        .encode(x="intensity:Q", y="gflops:Q", order="intensity:Q")
    )
    return (roof + points).properties(height=320)


def shares(sizes: str) -> Chart:
    """What each kernel takes, in order."""
    base = chart("layers").transform_filter(alt.datum.sizes == sizes)
    base = base.transform_window(number="row_number()").transform_calculate(
        runs="datum.kernel || 'between kernels'"
    )
    return base.mark_bar().encode(
        x=alt.X(
            "number:O",
            title="kernels, in the order in which they run",
            axis=alt.Axis(labels=False, ticks=False),
        ),
        y=alt.Y("share:Q", title="share of time", axis=alt.Axis(format=".0%")),
        color=alt.Color("runs:N", title="", sort=None),
        tooltip=["name:N", "op:N", "kernel:N", alt.Tooltip("share:Q", format=".1%")],
    )


def memory(symbol: str) -> Chart:
    """What a call takes of memory over a symbol, beside weights."""
    parts = ["arena", "between", "results"]
    base = chart("memory", symbol).transform_fold(parts, as_=["what", "bytes"])
    base = base.transform_calculate(
        mib="datum.bytes / 1048576", order=f"indexof({parts}, datum.what)"
    )
    return base.mark_area(opacity=0.85).encode(
        x=_size(symbol),
        y=alt.Y("mib:Q", title="MiB", stack=True),
        color=alt.Color("what:N", title="", sort=parts),
        order="order:Q",
        tooltip=["what:N", "size:Q", alt.Tooltip("mib:Q", format=".1f")],
    )


def boxes(first: str, second: str, has_requests: bool) -> Chart:
    """Buckets over two symbols, and the requests that come."""
    ends = {"x": (first, "x"), "y": (second, "y")}
    x, y = (
        cls(f"{name}:Q", title=title, scale=alt.Scale(zero=False, nice=False))
        for cls, (title, name) in zip((alt.X, alt.Y), ends.values(), strict=True)
    )
    areas = chart("boxes").mark_rect(
        fill="var(--wash)", fillOpacity=0.5, stroke="var(--faint)", strokeWidth=1
    )
    whole = areas.encode(x=x, x2="x2:Q", y=y, y2="y2:Q", tooltip="clone:N")
    if has_requests:
        dots = (
            chart("requests")
            .mark_circle(opacity=0.7)
            .encode(
                x="x:Q",
                y="y:Q",
                size=alt.Size("requests:Q", legend=None, scale=alt.Scale(range=[12, 500])),
                tooltip=["x:Q", "y:Q", "requests:Q"],
            )
        )
        whole += dots
    return whole.properties(height=380)


def graph(rows: int) -> Chart:
    """The kernels of a call, as large as their share of the time, from above to below."""
    lines = chart("lines").mark_rule(color="var(--faint)", strokeWidth=1)
    x = alt.X("x:Q", axis=None, scale=alt.Scale(zero=False, nice=False, padding=128))
    y = alt.Y("y:Q", axis=None, scale=alt.Scale(reverse=True, zero=False, nice=False, padding=14))
    lines = lines.encode(x=x, x2="x2:Q", y=y, y2="y2:Q")
    tip = ["name:N", "op:N", "kernel:N", "schedule:N", alt.Tooltip("share:Q", format=".1%")]
    nodes = chart("nodes").transform_calculate(part="datum.share || 0")
    nodes = nodes.mark_point(filled=True, opacity=1, cursor="pointer")
    nodes = nodes.encode(
        x=x,
        y=y,
        color=alt.Color("kernel:N", title=""),
        size=alt.Size("part:Q", legend=None, scale=alt.Scale(range=[40, 600], zero=True)),
        tooltip=tip,
    )
    sides = {"right": ("left", 15), "left": ("right", -15)}
    names = [
        chart("nodes")
        .mark_text(
            align=align, dx=dx, limit=122, cursor="pointer", stroke="var(--paper)", strokeWidth=4
        )
        .encode(x=x, y=y, text=f"{side}:N", tooltip=tip)
        for side, (align, dx) in sides.items()
    ]
    return alt.layer(lines, nodes, *names).properties(height=max(rows * 26, 120))


WHICHES = ["faster", "same", "slower"]


def against(sizes: str) -> Chart:
    """What each layer takes here and there: below the line it is faster here."""
    base = chart("against").transform_filter(alt.datum.sizes == sizes)
    base = base.transform_filter("datum.here_s > 0 && datum.there_s > 0")
    base = base.transform_calculate(ms="1000 * datum.here_s", other="1000 * datum.there_s")
    which = alt.Color(
        "which:N",
        title="here",
        scale=alt.Scale(domain=WHICHES, range=[COLOURS[2], COLOURS[7], COLOURS[1]]),
    )
    x = alt.X("other:Q", title="there [ms]", scale=LOG, axis=_log_axis())
    dots = base.mark_point(filled=True, size=70, opacity=0.8).encode(
        x=x,
        y=milliseconds("here [ms]"),
        color=which,
        shape=alt.Shape("which:N", title="here", scale=alt.Scale(domain=WHICHES)),
        tooltip=["name:N", "here:N", "there:N", alt.Tooltip("ratio:Q", format=".2f"), "why:N"],
    )
    line = base.transform_calculate(ms="1000 * datum.there_s").mark_line(color="var(--faint)")
    return (line.encode(x=x, y=milliseconds("here [ms]"), order="other:Q") + dots).properties(
        height=340
    )


def search() -> Chart:
    """The course of each task's search: the best latency so far, by that of the default."""
    base = (
        chart("progress")
        .transform_calculate(
            task="datum.function + ' ' + datum.op + ' ' + slice(datum.workload, 0, 6)"
        )
        .transform_filter("isValid(datum.best)")
    )
    return (
        base.mark_line(interpolate="step-after", opacity=0.8)
        .encode(
            x=alt.X("step:Q", title="schedules tried", axis=alt.Axis(format="d", tickMinStep=1)),
            y=alt.Y("best:Q", title="best, of the default's time", scale=alt.Scale(zero=False)),
            detail="task:N",
            color=alt.Color("op:N", title="", legend=alt.Legend(columns=1, symbolLimit=8)),
            tooltip=["task:N", "step:Q", alt.Tooltip("best:Q", format=".3f"), "source:N"],
        )
        .properties(height=320)
    )


WIDE = alt.ExprRef("windowSize()[0] < 640 ? 150 : 360")
"""Pixels of names beside bars: on a phone the bars need most of them."""


def warm_up(clones: int) -> Chart:
    """What the first call of each clone took."""
    base = chart("warm_up").transform_calculate(ms="1000 * datum.first_s")
    return (
        base.mark_bar()
        .encode(
            x=alt.X("ms:Q", title="first call [ms]"),
            y=alt.Y("clone:N", title="", sort=None, axis=alt.Axis(labelLimit=WIDE)),
            tooltip=["clone:N", alt.Tooltip("ms:Q", format=".3g")],
        )
        .properties(height=20 * clones)
    )
