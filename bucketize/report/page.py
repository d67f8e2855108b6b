"""The page: sections in a template, frames and charts as data, Vega's libraries inside."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd
import vl_convert
from altair import SCHEMA_VERSION

from bucketize.report import charts
from bucketize.report.report import ModelReport
from bucketize.report.section import FORMATS, MISSING, Picture, Section
from bucketize.report.sections import sections

HERE = Path(__file__).parent
DRAWN = ("cuts", "costs", "traffic", "implementations", "frontier", "by_size", "layers", "roof",
         "progress", "warm_up", "memory")  # fmt: skip


def html(of: ModelReport) -> str:
    """The page of a report."""
    every = sections(of)
    pictures = _pictures(every)
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
    environment.filters |= {kind: _shown(kind) for kind in FORMATS}
    environment.filters["identity"] = id
    return environment.get_template("page.html").render(
        of=of,
        sections=every,
        summary=[],
        numbers={id(picture): k for k, picture in enumerate(pictures)},
        data=its,
        library=library(),
        kernels=of.frames["kernels"].astype(object).to_dict("records"),
        clones=of.frames["clones"].to_dict("records"),
        decisions=of.frames["decisions"].to_dict("records"),
    )


def _shown(kind: str) -> Any:
    from_value = FORMATS[kind]
    return lambda value: MISSING if pd.isna(value) else from_value(value)


def _pictures(every: list[Section]) -> list[Picture]:
    return [part for s in every for part in s.parts if isinstance(part, Picture)]


def drawn(of: ModelReport) -> dict[str, pd.DataFrame]:
    """The frames that charts are made of."""
    frames = {name: of.frames[name] for name in DRAWN if name in of.frames}
    return {**frames, "roof": roof(of.frames["layers"], of.frames["calls"])}


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
    return {str(name): [_plain(v) for v in frame[name].tolist()] for name in frame}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [*map(_plain, value)]
    if value is None or value is pd.NA or (isinstance(value, float) and not np.isfinite(value)):
        return None
    return value


@cache
def library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, of the version that the charts are written in."""
    version = ".".join(SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    script: str = vl_convert.javascript_bundle(None, version)
    return script
