"""A report: everything that is known of an executable, as frames and as one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bucketize.errors import ArgumentError, BucketizeError
from bucketize.executable import Executable
from bucketize.measure.case import random_array
from bucketize.op import Array
from bucketize.partition.value import Partition
from bucketize.progress import Tell, progress_bar, shown
from bucketize.report import clones, costs, running, searching
from bucketize.report.running import Inputs
from bucketize.report.subject import Subject
from bucketize.traffic.value import Traffic
from bucketize.types import Sizes

Tables = dict[str, pd.DataFrame]


@dataclass(frozen=True, eq=False)
class ModelReport:
    """What is known of an executable: frames by name, and a page made of them."""

    name: str
    """Of the model."""
    frames: Mapping[str, pd.DataFrame]
    """docs/report.md says which there are."""
    interface: Mapping[str, Sequence[str]]
    """The inputs, the outputs and the bounds of symbols, as texts."""
    sources: Mapping[str, str]
    """What kernels were compiled from, by their names; none of a program that was loaded."""
    functions: Mapping[str, str]
    """By the names of the kernels what they compute."""
    doubts: Sequence[str]
    """What makes the times doubtful."""

    def __repr__(self) -> str:
        return f"<report of {self.name}: {', '.join(self.frames)}>"

    def html(self) -> str:
        """The page: one text that needs no network."""
        text: str = _page().html(self)
        return text

    def write(self, path: str | Path) -> None:
        """Write the page.

        Args:
            path: of the file.

        Raises:
            BucketizeError: it cannot be written.

        """
        text = self.html()
        try:
            Path(path).write_text(text, encoding="utf-8")
        except OSError as e:
            raise BucketizeError(f"cannot write {path}: {e.strerror}") from e


def _page() -> Any:
    """What makes pages; only who makes one needs the packages for it."""
    try:
        return import_module("bucketize.report.page")
    except ModuleNotFoundError as e:
        if str(e.name).startswith("bucketize"):
            raise
        raise BucketizeError(f"the report needs {e.name}: pip install 'bucketize[report]'") from e


def report(
    exe: Executable,
    *,
    name: str = "model",
    sizes: Sequence[Mapping[str, int]] = (),
    inputs: Inputs | None = None,
    log: str | Path | None = None,
    traffic: Traffic | None = None,
    partition: Partition | None = None,
    progress: Tell | bool | None = None,
) -> ModelReport:
    """All that is known of an executable.

    It is run: each clone once, then at `sizes`, kernel by kernel. All else is asked of models and
    of what is given.

    Args:
        exe: what was compiled or loaded.
        name: of the model: that of its trials in the log.
        sizes: by symbol, at which it is profiled; none: where most requests come, or in the middle.
        inputs: arrays by the name of each input, for sizes by symbol; None: random ones.
        log: the tuning log, for the course of the search.
        traffic: what sizes come, and how often.
        partition: of `bucketize.partition`: what other numbers of clones would come to.
        progress: told what goes on; True shows a bar on stderr.

    Returns:
        The frames, and the page: `write` it.

    Raises:
        ArgumentError: no executable.
        BucketizeError: packages for the page are missing: pip install bucketize[report].
        LogError: the log cannot be read.
        ShapeError: the size of a symbol is missing, or out of its bounds.

    """
    if not isinstance(exe, Executable):
        raise ArgumentError(f"report takes an executable, of compile or load, got {exe!r}")
    _page()
    checked = [exe.explain(**each).sizes for each in sizes]
    subject = Subject(exe, name, traffic, partition, checked)
    arrays = inputs or partial(_random, exe)
    with shown(progress, progress_bar("reporting")) as tell:
        return _told(subject, arrays, log, tell)


def _random(exe: Executable, sizes: Sizes) -> dict[str, Array]:
    """Random arrays for all inputs."""
    dice = np.random.default_rng(0)
    params = exe.program.routines.params("main")
    return {p.name: random_array(dice, p.type, sizes) for p in params}


def _told(
    subject: Subject, inputs: Inputs, log: str | Path | None, tell: Tell | None
) -> ModelReport:
    warmed = running.warmed(subject, tell)
    profiles = running.profiles(subject, inputs, tell)
    told = clones.clones(subject)
    calls = clones.kernels(subject, told)
    frames = {
        "clones": told,
        "kernels": calls,
        "decisions": clones.decisions(subject),
        "cuts": clones.cuts(subject),
        "traffic": costs.traffic(subject),
        "costs": costs.costs(subject),
        "implementations": costs.implementations(subject),
        "frontier": costs.frontier(subject),
        "by_size": costs.by_size(subject),
        "layers": running.layers(profiles),
        "calls": running.wholes(profiles),
        **searching.frames(log, subject.name),
        "warm_up": warmed,
        "compiling": running.counts(subject),
        "memory": running.memory(subject),
        "environment": running.environment(subject),
    }
    return ModelReport(
        subject.name,
        frames,
        _interface(subject),
        {n: s for n, s in subject.program.sources.items() if n in set(calls["source"])},
        clones.functions(subject, set(calls["source"])),
        running.doubts(profiles),
    )


def _interface(subject: Subject) -> dict[str, list[str]]:
    routine = subject.program.routines["main"]
    pairs = zip(subject.program.outputs, routine.fn.results, strict=True)
    return {
        "inputs": [f"{p.name}: {p.type}" for p in routine.params],
        "outputs": [f"{name}: {atom.type}" for name, atom in pairs],
        "symbols": [repr(s) for s in subject.symbols.values()],
    }
