"""The sections of a page that tell what was measured: here, and by the log."""

from __future__ import annotations

from bucketize.report import charts
from bucketize.report.report import ModelReport
from bucketize.report.section import Head, PageSection, Picture, Sheet, by, megabytes
from bucketize.table import several


def layers(of: ModelReport) -> PageSection:
    """Where the time goes: profiles."""
    heads = [
        Head("name", "nodes", "name"),
        Head("op", "operators", "name"),
        Head("kernel", "kernel", "code"),
        Head("shape", "result", "code"),
        Head("time_s", "time", "seconds"),
        Head("share", "share", "percent"),
        Head("predicted_s", "expected", "seconds"),
        Head("gflops", "GFLOP/s", "number"),
        Head("gbytes_s", "GB/s", "number"),
        Head("roofline", "of the roof", "percent"),
        Head("schedule", "schedule", "code"),
    ]
    parts: list[Picture | Sheet] = []
    for sizes, rows in by(of.frames["layers"], "sizes"):
        at = f" at {sizes}" if sizes else ""
        parts += [
            Picture(f"Time by kernel{at}", "In the order of running.", charts.shares(sizes)),
            Picture(
                f"Beside the roofline{at}",
                "A dot is a kernel, as large as its share of the time. The line is what the "
                "machine allows; what lies in a cache may be above it.",
                charts.roofline(sizes),
            ),
            Sheet(f"Kernels{at}, in order.", rows, heads),
        ]
    return PageSection(
        "layers", "Where the time goes", "Measured kernel by kernel, here and now.", parts
    )


def against(of: ModelReport) -> PageSection:
    """The executable beside another one."""
    title = "Beside another program or engine"
    if "versus" not in of.frames:
        how = "Give another program, --against other.bkt, or an engine, --engine onnxruntime."
        return PageSection("against", title, wanted=how)
    whole = [
        Head("sizes", "sizes", "code"),
        Head("engine", "engine"),
        Head("time_s", "median", "seconds"),
        Head("time_q1_s", "quartiles from", "seconds"),
        Head("time_q3_s", "to", "seconds"),
        Head("ratio", "of its time", "ratio"),
        Head("ratio_q1", "quartiles from", "ratio"),
        Head("ratio_q3", "to", "ratio"),
        Head("error", "error", "number"),
    ]
    heads = [
        Head("name", "nodes", "name"),
        Head("which", "here", "text"),
        Head("ratio", "of its time", "ratio"),
        Head("here_s", "here", "seconds"),
        Head("there_s", "there", "seconds"),
        Head("gained_s", "gained", "seconds"),
        Head("here", "runs here", "code"),
        Head("there", "runs there", "code"),
        Head("why", "why", "prose"),
    ]
    title = f"Beside {of.frames['versus']['engine'].iloc[1]}"
    parts: list[Picture | Sheet] = [Sheet("Whole calls, in turns.", of.frames["versus"], whole)]
    for sizes, rows in by(of.frames["against"], "sizes"):
        at = f" at {sizes}" if sizes else ""
        ordered = rows.sort_values("gained_s", ascending=False, kind="stable")
        caption = "A dot is a layer; below the line it is faster here. Both axes are logarithmic."
        parts += [
            Picture(f"Layer by layer{at}", caption, charts.against(sizes)),
            Sheet(f"Layers{at}, what gains most first.", ordered, heads),
        ]
    text = "Kernels that compute the same nodes of the model are beside each other, fused or not."
    return PageSection("against", title, text, parts)


BEST = [
    Head("function", "clone", "code"),
    Head("layer", "layer", "name"),
    Head("template", "kernel", "code"),
    Head("schedule", "schedule", "schedule"),
    Head("relative", "of the default", "ratio"),
    Head("latency_s", "time", "seconds"),
    Head("tried", "tried", "count"),
    Head("failed", "failed", "count"),
]
VERDICTS = [
    Head("function", "clone", "code"),
    Head("chosen", "tuned kernels", "count"),
    Head("arrangement", "arrangement", "prose"),
    Head("ratio", "of the default", "ratio"),
    Head("ratio_low", "95 % from", "ratio"),
    Head("ratio_high", "to", "ratio"),
]
COURSE = [
    Head("function", "clone", "code"),
    Head("op", "operators", "code"),
    Head("step", "step", "count"),
    Head("source", "proposed by"),
    Head("relative", "of the default", "ratio"),
    Head("best", "best so far", "ratio"),
]
"""The columns of what a search came to."""


def search(of: ModelReport) -> PageSection:
    """The course of the search."""
    title = "How schedules were found"
    if "progress" not in of.frames:
        how = "Give a tuning log: bucketize tune MODEL --log trials.csv, then --log trials.csv."
        return PageSection("search", title, wanted=how)
    frame = of.frames["progress"]
    if frame.empty:
        others = ", ".join(of.frames["trials"]["model"]) or "nothing"
        return PageSection(
            "search", title, wanted=f"The log has no trial of {of.name}, but of {others}."
        )
    parts: list[Picture | Sheet] = [
        Picture(
            "The best so far",
            "A line is a kernel of a clone; below 1 it beats the default.",
            charts.search(),
            Sheet("Schedules, in the order tried.", frame, COURSE),
        ),
        Sheet("What they bought each clone, timed in it.", of.frames["confirmed"], VERDICTS),
        Sheet("The best schedule of each task.", of.frames["best"], BEST),
    ]
    tasks = several(len(of.frames["best"]), "task")
    text = (
        f"The log has {tasks} of this model, of which {several(len(frame), 'schedule')} were timed."
    )
    return PageSection("search", title, text, parts)


def failures(of: ModelReport) -> PageSection:
    """The trials that failed."""
    title = "What failed"
    if "failures" not in of.frames:
        return PageSection("failures", title, wanted="A tuning log tells it: --log trials.csv.")
    if of.frames["failures"].empty:
        return PageSection("failures", title, "No trial of this model failed.")
    heads = [
        Head("op", "operators", "code"),
        Head("error_kind", "kind"),
        Head("trials", "trials", "count"),
        Head("example", "example", "prose"),
    ]
    return PageSection(
        "failures", title, parts=[Sheet("Trials that failed.", of.frames["failures"], heads)]
    )


def warm_up(of: ModelReport) -> PageSection:
    """Compiling, and the first calls."""
    compiling = [
        Head("clones", "clones", "count"),
        Head("kernels", "kernels", "count"),
        Head("built", "compiled now", "count"),
        Head("seconds", "compiling", "seconds"),
        Head("found", "calls with a verdict", "count"),
        Head("kept", "that kept the default", "count"),
        Head("defaults", "on defaults", "count"),
        Head("host", "on numpy"),
    ]
    first = [Head("clone", "clone", "code"), Head("first_s", "first call", "seconds")]
    sheet = Sheet("First calls.", of.frames["warm_up"], first)
    parts: list[Picture | Sheet] = [
        Sheet("Compiling.", of.frames["compiling"], compiling),
        Picture(
            "First calls", "A bar is a clone.", charts.warm_up(len(of.frames["warm_up"])), sheet
        ),
    ]
    text = "What it takes before requests are served: compiling, and the first call of each clone."
    return PageSection("warm_up", "Getting ready", text, parts)


def memory(of: ModelReport) -> PageSection:
    """Memory over sizes."""
    heads = [
        Head("sizes", "sizes", "code"),
        Head("weights", "weights", "bytes"),
        Head("arena", "arena", "bytes"),
        Head("between", "between segments", "bytes"),
        Head("results", "results", "bytes"),
    ]
    frame = of.frames["memory"]
    weights = megabytes(frame["weights"].max()) if len(frame) else "none"
    parts: list[Picture | Sheet] = [
        Picture(
            f"Memory over {symbol}",
            f"What a call takes beside weights, of which there are {weights}, once for all calls. "
            "The arena is what lies between kernels.",
            charts.memory(symbol),
            Sheet(f"Memory over {symbol}.", rows, heads),
        )
        for symbol, rows in by(frame, "symbol")
        if symbol
    ] or [Sheet("Memory of a call.", frame, heads)]
    return PageSection("memory", "Memory", "What a call takes, told before it runs.", parts)


def environment(of: ModelReport) -> PageSection:
    """Versions and machine."""
    heads = [Head("name", "what"), Head("value", "value", "prose")]
    sheet = Sheet("Versions and machine.", of.frames["environment"], heads)
    return PageSection("environment", "Where this was made", parts=[sheet])
