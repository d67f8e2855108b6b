"""The sections of a page, each from the frames of a report."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
from altair.utils.schemapi import debug_mode

from bucketize.report import charts
from bucketize.report.clones import LEAVES, LISTED
from bucketize.report.graph import drawing
from bucketize.report.measured import (
    against,
    environment,
    failures,
    layers,
    memory,
    search,
    warm_up,
)
from bucketize.report.report import ModelReport
from bucketize.report.section import Head, PageSection, Picture, Sheet, by

COLD = (
    "Weights are taken to come from beyond the near caches, as where defaults are chosen; those of "
    "a small model lie nearer, and a call is expected to take less."
)


def sections(of: ModelReport) -> list[PageSection]:
    """All of them, in the order of reading.

    Altair checks a chart where it becomes a specification, and need not check each of its parts.
    """
    with debug_mode(False):
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
        alone = "Sizes decide nothing: there is one clone. Buckets come by -d."
        large = f"The tree of decisions has more than {LEAVES} leaves, too many to be read."
        why = alone if len(of.frames["clones"]) == 1 else large
        return PageSection("decisions", "How sizes choose a clone", wanted=why)
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
        for symbol, rows in by(frame, "symbol")
        if len(rows) > 1
    ]
    return PageSection("traffic", title, "The requests that were given.", parts)


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
        for symbol, rows in by(of.frames["costs"], "symbol")
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
        f"cross, another way is better. {COLD}"
    )
    return PageSection("implementations", title, text, parts)


def _frontier(of: ModelReport) -> PageSection:
    title, frame = "What more clones would save", of.frames["frontier"]
    if frame.empty:
        how = "Give --partition, which asks the models what 1, 2, ... clones would come to."
        return PageSection("frontier", title, wanted=how)
    heads = [
        Head("clones", "clones", "count"),
        Head("seconds", "kernels take", "seconds"),
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
    if frame["seconds"].max() > (1 + TRADED) * frame["seconds"].min():
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
    parts += _lost(of)
    text = (
        f"By the models of the kernels {of.verdict}. Times are of kernels, without what a call "
        f"takes beyond them. {COLD}"
    )
    return PageSection("frontier", title, text, parts)


TRADED, LOST = 1e-3, 1e-2
"""Shares of time: what partitions differ by at least where they are drawn, and where the axis of
what is lost ends at least. Pictures of less make much of nothing."""
TAKEN = {"one_clone_s": "one clone", "chosen_s": "the chosen ones", "oracle_s": "the best kernels"}


def _lost(of: ModelReport) -> Iterator[Picture]:
    """What is lost at each size, symbol by symbol."""
    frame, frontier = of.frames["by_size"], of.frames["frontier"]
    clones = int(frontier.loc[frontier["which"] == "chosen", "clones"].iloc[0])
    columns = ["one_clone_s", "chosen_s"] if clones > 1 else ["one_clone_s"]
    most = max(float((frame[name] / frame["oracle_s"]).max()) - 1 for name in columns)
    symbols = [str(name) for name in frame if name not in ("share", *TAKEN)]
    heads = [
        *(Head(name, name, "count") for name in symbols),
        *(Head(name, title, "seconds") for name, title in TAKEN.items()),
    ]
    for symbol in symbols:
        yield Picture(
            f"What is lost over {symbol}",
            "A dot is a size: what kernels are expected to take more than the best ones for it.",
            charts.lost(symbol, columns, max(most, LOST)),
            Sheet(f"Times of kernels, in the order of {symbol}.", frame.sort_values(symbol), heads),
        )


ORDER = (
    *(_kernels, _decisions, _traffic, _costs, _implementations, _frontier),
    *(layers, against, search, failures, warm_up, memory, environment),
)
