"""The frames of a report, and the page made of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest

import bucketize
from bucketize import zoo
from bucketize.errors import ArgumentError
from bucketize.inspect.predict import predictions
from bucketize.report.clones import sizes_of
from bucketize.report.report import ModelReport
from dispatchers import log_dispatcher


@pytest.fixture(scope="module")
def mlp() -> bucketize.Module:
    return bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, 64)})


@pytest.fixture(scope="module")
def exe(mlp: bucketize.Module) -> bucketize.Executable:
    return bucketize.compile(bucketize.dispatch(mlp, log_dispatcher))


@pytest.fixture(scope="module")
def its(mlp: bucketize.Module, exe: bucketize.Executable) -> ModelReport:
    return bucketize.report(exe, name="mlp", partition=bucketize.partition(mlp))


def test_what_clones_take_is_what_the_models_say(
    exe: bucketize.Executable, its: ModelReport
) -> None:
    told = its.frames["clones"]
    assert list(told["clone"]) == [n for n in exe.program.routines if n != "main"]
    for row in told.to_dict("records"):
        (taken,) = predictions(exe.program, [sizes_of(row["sizes"])])
        assert (taken.clone, taken.seconds) == (row["clone"], row["predicted_s"])


def test_kernels_are_those_of_explain(exe: bucketize.Executable, its: ModelReport) -> None:
    kernels, clones = its.frames["kernels"], its.frames["clones"]
    for listing, rows in kernels.groupby("listing"):
        sizes = clones.loc[clones["listing"] == listing, "sizes"].iloc[0]
        explained = exe.explain(**sizes_of(sizes))
        for name in ("name", "op", "kernel", "why", "strip"):
            assert list(rows[name]) == [step[name] for step in explained.steps]
        assert list(rows["predicted_s"]) == list(explained.seconds)


def test_the_frontier_is_that_of_the_partition(mlp: bucketize.Module, its: ModelReport) -> None:
    frontier = bucketize.partition(mlp).frontier
    frame = its.frames["frontier"]
    assert list(frame["seconds"]) == [f.seconds for f in frontier]
    assert list(frame["weight_bytes"]) == [f.weight_bytes for f in frontier]


def data_of(page: str) -> dict[str, pd.DataFrame]:
    """The frames that a page holds."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return {name: pd.DataFrame(f) for name, f in json.loads(found[1])["frames"].items()}


def test_numbers_of_the_page_are_those_of_the_frames(its: ModelReport) -> None:
    held = data_of(its.html())
    for name in ("costs", "layers", "memory", "frontier", "warm_up"):
        frame = its.frames[name]
        numbers = frame.select_dtypes("number").astype(float)
        assert numbers.equals(held[name][list(numbers)].astype(float)), name


def test_what_is_no_executable_is_refused(mlp: bucketize.Module) -> None:
    with pytest.raises(ArgumentError, match="report takes an executable"):
        bucketize.report(mlp)  # type: ignore[arg-type]


def test_the_page_is_written(its: ModelReport, tmp_path: Path) -> None:
    its.write(tmp_path / "mlp.html")
    assert "<title>mlp: bucketize report</title>" in (tmp_path / "mlp.html").read_text()
