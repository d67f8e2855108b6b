"""The sections of a page, each from the frames of a report."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from bucketize.report import charts
from bucketize.report.clones import LISTED
from bucketize.report.graph import drawing
from bucketize.report.report import ModelReport
from bucketize.report.section import Head, PageSection, Picture, Sheet, megabytes
from bucketize.table import several


def sections(of: ModelReport) -> list[PageSection]:
    """All of them, in the order of reading."""
    return [make(of) for make in ORDER]


def _kernels(of: ModelReport) -> PageSection:
    heads = [
        Head("clone", "clone", "code"),
        Head("listing", "runs", "listing"),
        Head("sizes", "looked at", "code"),
        Head("predicted_s", "expected", "seconds"),
        Head("requests", "requests", "count"),
        Head("share", "of all", "percent"),
        Head("kernels", "calls", "count"),
        Head("tuned", "tuned", "count"),
        Head("on_host", "on numpy", "count"),
        Head("executor", "executor"),
        Head("arrangement", "arrangement", "prose"),
    ]
    frame = of.frames["clones"]
    parts: list[Picture | Sheet] = []
    if len(frame) > 1:
        every = int(of.frames["compiling"]["clones"].iloc[0])
        caption = f"{len(frame)} of {every:,} clones" if len(frame) < every else "Clones"
        if len(of.frames["traffic"]):
            caption += ", those first that are asked for most"
        parts.append(Sheet(f"{caption}.", frame, heads))
    nodes, _ = graph_of(of)
    if len(nodes):
        picture = charts.graph(int(nodes["y"].max()) + 1)
        text = (
            "A dot is a kernel, as large as its share of the time that is expected; lines are "
            "tensors, from above to below. A click opens a kernel; the list below has the same."
        )
        title = f"The kernels of {frame['clone'].iloc[0]}"
        parts.append(Picture(title, text, picture, is_narrow=True))
    each = "Each clone is the model for a range of sizes. " if len(frame) > 1 else ""
    text = (
        f"{each}Kernels stand in the order in which they run; a bar is the share of a call that "
        "their models expect, and the rest is the call itself. Open one for its schedule, its "
        "operators and its text."
    )
    if frame["listing"].nunique() > LISTED:
        text += (
            f" Of {frame['listing'].nunique()} ways through kernels the first {LISTED} are here."
        )
    return PageSection("kernels", "What runs", text, parts, special="kernels")


def graph_of(of: ModelReport) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The drawing of the kernels of the first listing."""
    kernels = of.frames["kernels"]
    first = kernels[kernels["listing"] == kernels["listing"].min()]
    nodes, lines = drawing(first, of.frames["edges"])
    anchors = [f"kernel-{n}-{k}" for n, k in zip(nodes["listing"], nodes["place"], strict=True)]
    return nodes.assign(anchor=anchors), lines


def _decisions(of: ModelReport) -> PageSection:
    frame = of.frames["decisions"]
    if frame.empty:
        clones = len(of.frames["clones"])
        why = "sizes decide nothing: there is one clone" if clones == 1 else "the tree is too large"
        return PageSection(
            "decisions", "How sizes choose a clone", wanted=f"{why}; buckets come by -d."
        )
    text = "A call goes down this tree by the sizes of its inputs, to the clone that serves them."
    parts = []
    if symbols := two_symbols(of):
        has_requests = bool(len(of.frames["sizes"]))
        picture = charts.boxes(*symbols, has_requests)
        caption = "A box is a bucket."
        if has_requests:
            caption += " A dot is a size that comes, as large as its requests."
        parts.append(Picture(f"Buckets over {' and '.join(symbols)}", caption, picture))
    return PageSection("decisions", "How sizes choose a clone", text, parts, special="decisions")


def two_symbols(of: ModelReport) -> tuple[str, str] | None:
    """The two symbols that are cut most, if two are."""
    counts = of.frames["cuts"]["symbol"].value_counts()
    return (str(counts.index[0]), str(counts.index[1])) if len(counts) > 1 else None


def _traffic(of: ModelReport) -> PageSection:
    title, frame = "Which sizes come", of.frames["traffic"]
    cut = set(of.frames["cuts"]["symbol"])
    if frame.empty:
        how = "Give the sizes of requests: --traffic requests.csv, as exe.traffic.write() makes it."
        return PageSection("traffic", title, wanted=how)
    heads = [
        Head("symbol", "symbol", "code"),
        Head("size", "from", "count"),
        Head("last", "to", "count"),
        Head("requests", "requests", "count"),
    ]
    parts = [
        Picture(
            f"Requests by {symbol}",
            "A bar is a size, or neighbours that were joined; dashed lines begin buckets.",
            charts.requests(symbol, symbol in cut, (rows["size"].min(), rows["last"].max())),
            Sheet(f"Requests by {symbol}.", rows, heads),
        )
        for symbol, rows in _by(frame, "symbol")
        if len(rows) > 1
    ]
    return PageSection("traffic", title, "The requests that were given.", parts)


def _by(frame: pd.DataFrame, name: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """The rows of each text in a column, in order of appearance."""
    texts = frame[name].unique().tolist()
    return ((text, frame[frame[name] == text]) for text in texts)


def _costs(of: ModelReport) -> PageSection:
    cut = set(of.frames["cuts"]["symbol"])
    heads = [
        Head("sizes", "sizes", "code"),
        Head("clone", "clone", "code"),
        Head("predicted_s", "expected", "seconds"),
    ]
    parts = [
        Picture(
            f"Expected time over {symbol}",
            "Both axes are logarithmic; the other symbols are held; dashed lines begin buckets.",
            charts.over_size(symbol, symbol in cut),
            Sheet(f"Expected time over {symbol}.", rows, heads),
        )
        for symbol, rows in _by(of.frames["costs"], "symbol")
    ]
    if not parts:
        how = "The model has no dynamic dimension: --dim N=1..32 makes one of an exported batch."
        return PageSection("costs", "What a size costs", wanted=how)
    text = "What a call takes over its sizes, by the models of its kernels: nothing is timed here."
    return PageSection("costs", "What a size costs", text, parts)


def _implementations(of: ModelReport) -> PageSection:
    title, frame = "Which kernel for which size", of.frames["implementations"]
    if frame.empty:
        return PageSection(
            "implementations", title, wanted="No costly kernel has a choice that depends on sizes."
        )
    heads = [
        Head("size", "size", "count"),
        Head("implementation", "implementation", "code"),
        Head("predicted_s", "expected", "seconds"),
        Head("runs", "runs", "yes"),
    ]
    parts = [
        Picture(
            str(name),
            "A line is an implementation; dots are on the one that runs at a size.",
            charts.implementations(str(workload), str(symbol)),
            Sheet("Implementations over sizes.", rows, heads),
        )
        for (name, workload, symbol), rows in frame.groupby(
            ["name", "workload", "symbol"], sort=False
        )
    ]
    text = (
        "The costliest kernels that can be computed in several ways, by the models; where lines "
        "cross, another way is better."
    )
    return PageSection("implementations", title, text, parts)


def _frontier(of: ModelReport) -> PageSection:
    title, frame = "What more clones would save", of.frames["frontier"]
    if frame.empty:
        how = "Give --partition, which asks the models what 1, 2, ... clones would come to."
        return PageSection("frontier", title, wanted=how)
    heads = [
        Head("clones", "clones", "count"),
        Head("seconds", "expected", "seconds"),
        Head("p99_s", "99 % below", "seconds"),
        Head("worst", "worst, of the best kernels", "ratio"),
        Head("compile_s", "compile", "seconds"),
        Head("weight_bytes", "weights", "bytes"),
        Head("kernels", "kernels", "count"),
        Head("which", "which"),
        Head("buckets", "buckets", "prose"),
    ]
    parts: list[Picture | Sheet] = []
    views = {"compile_s": ("compiling [s]", 1.0), "weight_bytes": ("weights [MiB]", 2.0**-20)}
    if frame["seconds"].nunique() > 1:  # else nothing is traded
        parts += [
            Picture(
                f"Time over {label}",
                "A dot is the best partition of so many clones; 'here' are those of this program.",
                charts.frontier(column, label, scale),
            )
            for column, (label, scale) in views.items()
            if frame[column].nunique() > 1
        ]
    parts.append(
        Sheet("The best partition of each number of clones, and those here.", frame, heads)
    )
    parts += [
        Picture(
            f"What is lost over {symbol}",
            "A dot is a size: what a call is expected to take more than by its best kernels.",
            charts.lost(symbol),
        )
        for symbol in map(str, of.frames["by_size"])
        if symbol not in ("share", *TAKEN)
    ]
    return PageSection("frontier", title, f"By the models of the kernels {of.verdict}.", parts)


TAKEN = ("one_clone_s", "chosen_s", "oracle_s")


def _layers(of: ModelReport) -> PageSection:
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
    for sizes, rows in _by(of.frames["layers"], "sizes"):
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


def _against(of: ModelReport) -> PageSection:
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
    for sizes, rows in _by(of.frames["against"], "sizes"):
        at = f" at {sizes}" if sizes else ""
        ordered = rows.sort_values("gained_s", ascending=False, kind="stable")
        caption = "A dot is a layer; below the line it is faster here. Both axes are logarithmic."
        parts += [
            Picture(f"Layer by layer{at}", caption, charts.against(sizes)),
            Sheet(f"Layers{at}, what gains most first.", ordered, heads),
        ]
    text = "Kernels that compute the same nodes of the model are beside each other, fused or not."
    return PageSection("against", title, text, parts)


def _search(of: ModelReport) -> PageSection:
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
    best = [
        Head("function", "clone", "code"),
        Head("layer", "layer", "name"),
        Head("template", "kernel", "code"),
        Head("schedule", "schedule", "schedule"),
        Head("relative", "of the default", "ratio"),
        Head("latency_s", "time", "seconds"),
        Head("tried", "tried", "count"),
        Head("failed", "failed", "count"),
    ]
    verdicts = [
        Head("function", "clone", "code"),
        Head("chosen", "tuned kernels", "count"),
        Head("arrangement", "arrangement", "prose"),
        Head("ratio", "of the default", "ratio"),
        Head("ratio_low", "95 % from", "ratio"),
        Head("ratio_high", "to", "ratio"),
    ]
    parts: list[Picture | Sheet] = [
        Picture(
            "The best so far",
            "A line is a kernel of a clone; below 1 it beats the default.",
            charts.search(),
        ),
        Sheet("What they bought each clone, timed in it.", of.frames["confirmed"], verdicts),
        Sheet("The best schedule of each task.", of.frames["best"], best),
    ]
    tasks = several(len(of.frames["best"]), "task")
    text = (
        f"The log has {tasks} of this model, of which {several(len(frame), 'schedule')} were timed."
    )
    return PageSection("search", title, text, parts)


def _failures(of: ModelReport) -> PageSection:
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


def _warm_up(of: ModelReport) -> PageSection:
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


def _memory(of: ModelReport) -> PageSection:
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
        for symbol, rows in _by(frame, "symbol")
        if symbol
    ] or [Sheet("Memory of a call.", frame, heads)]
    return PageSection("memory", "Memory", "What a call takes, told before it runs.", parts)


def _environment(of: ModelReport) -> PageSection:
    heads = [Head("name", "what"), Head("value", "value", "prose")]
    sheet = Sheet("Versions and machine.", of.frames["environment"], heads)
    return PageSection("environment", "Where this was made", parts=[sheet])


ORDER = (
    *(_kernels, _decisions, _traffic, _costs, _implementations, _frontier, _layers),
    *(_against, _search, _failures, _warm_up, _memory, _environment),
)
