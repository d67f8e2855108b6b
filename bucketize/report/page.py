"""The page: sections in a template, frames and charts as data, Vega's libraries inside."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
import vl_convert
from altair import SCHEMA_VERSION

from bucketize.machine.directory import kept
from bucketize.report import charts
from bucketize.report.report import ModelReport
from bucketize.report.section import FORMATS, MISSING, Picture
from bucketize.report.sections import graph_of, sections, two_symbols
from bucketize.report.words import summary
from bucketize.table import json_text

HERE = Path(__file__).parent
SNIPPET = "window.vegaEmbed = vegaEmbed;"
DRAWN = (
    *("cuts", "costs", "traffic", "implementations", "frontier", "by_size", "layers", "against"),
    *("progress", "warm_up", "memory"),
)
"""The frames that charts are made of as they are."""


def html(of: ModelReport) -> str:
    """The page of a report."""
    every = sections(of)
    pictures = [part for s in every for part in s.parts if isinstance(part, Picture)]
    its = {
        "charts": [charts.specification(picture.chart) for picture in pictures],
        "frames": {name: columns(frame) for name, frame in drawn(of).items()},
    }
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies |= {"json.dumps_function": json_text, "json.dumps_kwargs": {}}
    environment.filters |= {kind: _shown(kind) for kind in FORMATS}
    return environment.get_template("page.html").render(
        of=of,
        sections=every,
        summary=summary(of),
        pictures=pictures,
        data=its,
        library=library(),
        listings=listings(of),
        decisions=of.frames["decisions"].to_dict("records"),
    )


@dataclass(frozen=True)
class Listing:
    """The kernels that some clones call, by the segments that they are in."""

    number: int
    clones: list[str]
    sizes: str
    """At which the first clone was looked at."""
    segments: list[tuple[str, list[dict[Any, Any]]]]
    """What each is called, and its kernels."""

    @property
    def count(self) -> int:
        """How many kernels there are."""
        return sum(len(rows) for _, rows in self.segments)


def listings(of: ModelReport) -> list[Listing]:
    """The kernels of all clones, each way once."""
    clones, every = of.frames["clones"], []
    for number, kernels in of.frames["kernels"].groupby("listing", sort=True):
        mine = clones[clones["listing"] == number]
        names, sizes = mine["clone"].tolist(), mine["sizes"].iloc[0]
        every.append(Listing(int(str(number)), names, sizes, _segments(kernels)))
    return every


def _segments(kernels: pd.DataFrame) -> list[tuple[str, list[dict[Any, Any]]]]:
    rows = kernels.assign(place=range(1, len(kernels) + 1)).astype(object).to_dict("records")
    groups = [(key, list(mine)) for key, mine in groupby(rows, key=_segment)]
    return [("", groups[0][1])] if len(groups) == 1 else groups


def _segment(row: dict[Any, Any]) -> str:
    """What a kernel lies in."""
    return "numpy" if pd.isna(row["segment"]) else f"segment {row['segment']}"


def _shown(kind: str) -> Any:
    from_value = FORMATS[kind]
    return lambda value: MISSING if pd.isna(value) else from_value(value)


def drawn(of: ModelReport) -> dict[str, pd.DataFrame]:
    """The frames that charts are made of."""
    frames = {name: of.frames[name] for name in DRAWN if name in of.frames}
    nodes, lines = graph_of(of)
    frames |= {
        "nodes": nodes,
        "lines": lines,
        "roof": roof(of.frames["layers"], of.frames["calls"]),
    }
    if symbols := two_symbols(of):
        frames["boxes"] = boxes(of.frames["buckets"], *symbols)
        frames["requests"] = of.frames["sizes"].rename(
            columns=dict(zip(symbols, "xy", strict=True))
        )
    return frames


def boxes(buckets: pd.DataFrame, first: str, second: str) -> pd.DataFrame:
    """Buckets as rectangles over two symbols, up to where others begin: clone, x, x2, y, y2."""
    sides = []
    for symbol, name in ((first, "x"), (second, "y")):
        mine = buckets[buckets["symbol"] == symbol].set_index("clone")
        sides.append(pd.DataFrame({name: mine["first"], f"{name}2": mine["last"] + 1}))
    return sides[0].join(sides[1], how="inner").reset_index()


def roof(layers: pd.DataFrame, calls: pd.DataFrame) -> pd.DataFrame:
    """The roofline as points: at the least and the greatest intensity, and where it bends."""
    rows = []
    for call in calls.to_dict("records"):
        its = layers.loc[layers["sizes"] == call["sizes"], "intensity"].dropna()
        ends = [its[its > 0].min(), call["ridge"], its.max()]
        for intensity in sorted({float(e) for e in ends if not pd.isna(e)}):
            most = min(call["gflops"], intensity * call["gbytes_s"])
            rows.append({"sizes": call["sizes"], "intensity": intensity, "gflops": most})
    return pd.DataFrame(rows, columns=["sizes", "intensity", "gflops"])


def columns(frame: pd.DataFrame) -> dict[str, list[Any]]:
    """A frame as JSON takes it, a list for each column."""
    return {str(n): [None if v is pd.NA else v for v in frame[n].tolist()] for n in frame}


@cache
def library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, of the version that charts are written in.

    To bundle it takes seconds: it is kept beside the kernels, for the next process.
    """
    language = ".".join(SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    named_by = f"{SNIPPET} {language} {version('vl-convert-python')}"
    name = f"vega_{sha256(named_by.encode()).hexdigest()[:16]}.js"
    return kept(name, lambda: vl_convert.javascript_bundle(SNIPPET, language).encode()).decode()
