"""The pictures of a report, by Vega-Altair: each is a chart of frames that the page has by name."""

from __future__ import annotations

from typing import Any, TypeAlias

import altair as alt

Chart: TypeAlias = Any
"""Of Altair, whose methods say that they return anything."""
COLOURS = [f"var(--c{i})" for i in range(1, 9)]
"""Those of the page, which has others in the dark and in print."""
HEIGHT = 260

CONFIG: dict[str, Any] = {
    "aria": False,  # the page says in words what is seen, and has the numbers
    "background": "transparent",
    "font": "inherit",
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
    "legend": {
        **dict.fromkeys(("labelColor", "titleColor"), "var(--ink)"),
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "orient": "top",
        "columns": 2,
        "labelLimit": 420,
        "symbolStrokeWidth": 3,
    },
    "range": {"category": COLOURS},
    "mark": {"color": COLOURS[0]},
    "rule": {"color": "var(--faint)"},
    "text": {"color": "var(--ink)", "fontSize": 12},
}


def chart(frame: str, symbol: str = "") -> Chart:
    """A chart of a frame, or of its rows of one symbol."""
    its = alt.Chart(alt.NamedData(frame))
    return its.transform_filter(alt.datum.symbol == symbol) if symbol else its


def specification(of: Chart) -> dict[str, Any]:
    """The chart in the words of Vega-Lite, as wide as there is room."""
    whole: dict[str, Any] = of.properties(width="container").to_dict()
    return {**whole, "config": CONFIG, "autosize": {"type": "fit-x", "contains": "padding"}}


def milliseconds(column: str, title: str = "time [ms]", log: bool = True) -> alt.Y:
    """A column of seconds on the left axis."""
    return alt.Y(f"{column}:Q", title=title, scale=_scale(log), axis=alt.Axis(tickCount=5))


def _scale(log: bool) -> alt.Scale:
    return alt.Scale(type="log") if log else alt.Scale(zero=True)


def _size(symbol: str, log: bool = True) -> alt.X:
    """A column of sizes on the lower axis."""
    axis = alt.Axis(format="~d", tickCount=6)
    return alt.X(
        "size:Q",
        title=symbol,
        scale=alt.Scale(type="log", nice=False) if log else alt.Scale(),
        axis=axis,
    )


def _begins(symbol: str) -> Chart:
    """A line where each bucket begins."""
    marks = chart("cuts", symbol).mark_rule(strokeDash=[4, 3])
    return marks.encode(x="size:Q", tooltip=[alt.Tooltip("size:Q", title="a bucket begins at")])


def over_size(symbol: str) -> Chart:
    """What calls are expected to take over a symbol, and where buckets begin."""
    line = chart("costs", symbol).transform_calculate(ms="1000 * datum.predicted_s")
    line = line.mark_line(point={"size": 28, "filled": True})
    line = line.encode(
        x=_size(symbol),
        y=milliseconds("ms"),
        tooltip=["sizes:N", "clone:N", alt.Tooltip("ms:Q", format=".4g", title="expected [ms]")],
    )
    return (_begins(symbol) + line).properties(height=HEIGHT)


def requests(symbol: str) -> Chart:
    """Requests by size, and where buckets begin."""
    bars = chart("traffic", symbol).transform_calculate(end="datum.last + 1")
    bars = bars.mark_bar(opacity=0.85).encode(
        x=alt.X("size:Q", title=symbol, axis=alt.Axis(format="~d")),
        x2="end:Q",
        y=alt.Y("requests:Q", title="requests"),
        tooltip=["size:Q", "last:Q", "requests:Q"],
    )
    return (bars + _begins(symbol)).properties(height=HEIGHT)


def implementations(source: str, symbol: str) -> Chart:
    """What implementations of a kernel are expected to take; dots are on those that run."""
    base = chart("implementations").transform_filter(alt.datum.source == source)
    base = base.transform_calculate(ms="1000 * datum.predicted_s")
    tip = ["implementation:N", "size:Q", alt.Tooltip("ms:Q", format=".4g", title="expected [ms]")]
    lines = base.mark_line().encode(
        x=_size(symbol),
        y=milliseconds("ms"),
        color=alt.Color("implementation:N", title="", legend=alt.Legend(columns=1)),
        tooltip=tip,
    )
    dots = base.transform_filter(alt.datum.runs).mark_point(filled=True, size=55, opacity=1)
    dots = dots.encode(x="size:Q", y="ms:Q", color="implementation:N", tooltip=tip)
    return (lines + dots).properties(height=HEIGHT)


def frontier(column: str, title: str, scale: float) -> Chart:
    """The best partition of each number of clones: its time over what it costs."""
    base = chart("frontier").transform_calculate(
        ms="1000 * datum.seconds", cost=f"datum.{column} * {scale}"
    )
    tip = ["clones:Q", "ms:Q", "cost:Q", "text:N"]
    x = alt.X("cost:Q", title=title, scale=alt.Scale(zero=False, padding=20))
    y = alt.Y("ms:Q", title="expected time [ms]", scale=alt.Scale(zero=False, padding=16))
    line = base.mark_line(strokeOpacity=0.5).encode(x=x, y=y, order="clones:Q")
    dots = base.mark_point(filled=True, size=90, opacity=1).encode(
        x=x,
        y=y,
        color=alt.condition(alt.datum.chosen, alt.value(COLOURS[1]), alt.value(COLOURS[0])),
        tooltip=tip,
    )
    names = base.mark_text(dx=9, dy=-9, align="left").encode(x=x, y=y, text="clones:Q")
    return (line + dots + names).properties(height=HEIGHT)


def by_size(symbol: str) -> Chart:
    """What one clone, the chosen ones and the best kernels take over a symbol."""
    lines = chart("by_size").transform_fold(
        ["one_clone_s", "chosen_s", "oracle_s"], as_=["which", "seconds"]
    )
    lines = lines.transform_calculate(ms="1000 * datum.seconds", size=f"datum['{symbol}']")
    lines = lines.transform_aggregate(ms="mean(ms)", groupby=["which", "size"])
    which = alt.Color("which:N", title="", legend=alt.Legend(labelExpr=WHICH))
    return (
        lines.mark_line()
        .encode(
            x=_size(symbol),
            y=milliseconds("ms"),
            color=which,
            strokeDash=alt.StrokeDash("which:N", legend=None),
            tooltip=["which:N", "size:Q", alt.Tooltip("ms:Q", format=".4g")],
        )
        .properties(height=HEIGHT)
    )


WHICH = (
    "{one_clone_s: 'one clone', chosen_s: 'the chosen ones', oracle_s: 'the best kernels'}"
    "[datum.label]"
)


def roofline(sizes: str) -> Chart:
    """Kernels by their intensity and what they attain, below what the machine allows."""
    base = chart("layers").transform_filter(alt.datum.sizes == sizes)
    points = base.transform_filter("datum.gflops > 0").mark_point(
        filled=True, opacity=0.75, size=60
    )
    x = alt.X("intensity:Q", title="FLOP per byte", scale=alt.Scale(type="log"))
    y = alt.Y("gflops:Q", title="GFLOP/s", scale=alt.Scale(type="log"))
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
    base = base.transform_window(number="row_number()")
    return (
        base.mark_bar()
        .encode(
            x=alt.X(
                "number:O",
                title="kernels, in the order in which they run",
                axis=alt.Axis(labels=False, ticks=False),
            ),
            y=alt.Y("share:Q", title="share of time", axis=alt.Axis(format=".0%")),
            color=alt.Color("kernel:N", title=""),
            tooltip=["name:N", "op:N", "kernel:N", alt.Tooltip("share:Q", format=".1%")],
        )
        .properties(height=HEIGHT)
    )


def memory(symbol: str) -> Chart:
    """What a call takes of memory over a symbol."""
    parts = ["weights", "arena", "between", "results"]
    base = chart("memory", symbol).transform_fold(parts, as_=["what", "bytes"])
    base = base.transform_calculate(
        mib="datum.bytes / 1048576", order=f"indexof({parts}, datum.what)"
    )
    return (
        base.mark_area(opacity=0.85)
        .encode(
            x=_size(symbol),
            y=alt.Y("mib:Q", title="MiB", stack=True),
            color=alt.Color("what:N", title="", sort=parts),
            order="order:Q",
            tooltip=["what:N", "size:Q", alt.Tooltip("mib:Q", format=".1f")],
        )
        .properties(height=HEIGHT)
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
            color=alt.Color("op:N", title=""),
            tooltip=["task:N", "step:Q", alt.Tooltip("best:Q", format=".3f"), "source:N"],
        )
        .properties(height=320)
    )


def warm_up() -> Chart:
    """What the first call of each clone took."""
    base = chart("warm_up").transform_calculate(ms="1000 * datum.first_s")
    return (
        base.mark_bar()
        .encode(
            x=alt.X("ms:Q", title="first call [ms]"),
            y=alt.Y("clone:N", title="", sort=None, axis=alt.Axis(labelLimit=180)),
            tooltip=["clone:N", alt.Tooltip("ms:Q", format=".3g")],
        )
        .properties(height=alt.Step(20))
    )
