"""A report: everything that is known of an executable, as frames and as one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd

from bucketize.errors import ArgumentError, BucketizeError
from bucketize.executable import Executable
from bucketize.measure.case import random_inputs
from bucketize.progress import Tell, progress_bar, shown, steps
from bucketize.report import clones, costs, running, searching
from bucketize.report.against import Rival, compared
from bucketize.report.planned import Frames, plan, unasked
from bucketize.report.running import Inputs
from bucketize.report.subject import ReportSubject
from bucketize.traffic.value import Traffic
from bucketize.types import Symbol


@dataclass(frozen=True, eq=False)
class ModelReport:
    """What is known of an executable: frames by name, and a page made of them."""

    name: str
    """The name of the model."""
    frames: Mapping[str, pd.DataFrame]
    """docs/report.md says which there are."""
    interface: Mapping[str, Sequence[str]]
    """The inputs, the outputs and the bounds of symbols, as texts."""
    sources: Mapping[str, str]
    """What kernels were compiled from, by their names; none of a program that was loaded."""
    functions: Mapping[str, str]
    """By the names of the kernels what they compute."""
    verdict: str = ""
    """What the partition says of itself."""
    doubts: Sequence[str] = ()
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


def report(  # noqa: PLR0913  options by name
    exe: Executable,
    *,
    name: str = "model",
    sizes: Sequence[Mapping[str, int]] = (),
    inputs: Inputs | None = None,
    log: str | Path | None = None,
    traffic: Traffic | None = None,
    partition: bool = False,
    against: Executable | str | None = None,
    model: str | Path | None = None,
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
        partition: whether to ask the models what other numbers of clones would come to, as
            `bucketize.partition` does: seconds, or a minute.
        against: another executable, or the name of an engine that tells times of layers,
            "onnxruntime": calls of both are timed in turns; layers by a profile of each.
        model: the path of the ONNX file, for an engine.
        progress: told what goes on; True shows a bar on stderr.

    Returns:
        The frames, and the page, for `write`.

    Raises:
        ArgumentError: no executable; an engine without the path of the model; another executable
            that takes other inputs; `partition` of an executable that was loaded.
        BucketizeError: packages for the page are missing: pip install bucketize[report].
        DispatchError: `partition` of a module whose sizes are all fixed.
        EngineError: the engine is not installed, or does not take the model.
        LogError: the log cannot be read.
        ShapeError: the size of a symbol is missing, or out of its bounds.

    """
    if not isinstance(exe, Executable):
        raise ArgumentError(f"report takes an executable, of compile or load, got {exe!r}")
    _page()
    checked = [exe.explain(**each).sizes for each in sizes]
    subject = ReportSubject(exe, name, traffic, checked)
    rival = _rival(exe, against, model)
    with shown(progress, progress_bar("reporting")) as tell:
        planned = unasked()
        if partition:
            steps(tell, 1)("what other numbers of clones would come to")
            planned = plan(exe.module, subject.requests, log, exe.program.threads)
        usual = partial(random_inputs, exe.program.routines.params("main"))
        return _report(subject, inputs or usual, planned, rival, log, tell)


def _rival(
    exe: Executable, against: Executable | str | None, model: str | Path | None
) -> Rival | None:
    """What is compared with, if anything is."""
    if against is None:
        return None
    if isinstance(against, Executable):
        if set(against.inputs) != set(exe.inputs):
            mine, its = (", ".join(each.inputs) for each in (exe, against))
            raise ArgumentError(f"against: the inputs differ: {mine}, and {its}")
        return Rival.of_executable("the other", against)
    if not isinstance(against, str):
        raise ArgumentError(f"against: expected an executable or an engine, got {against!r}")
    if model is None:
        raise ArgumentError(f"{against} reads the model from a file: give its path, model=...")
    return Rival.of_engine(against, model, exe.program.threads)


def _report(
    subject: ReportSubject,
    inputs: Inputs,
    planned: tuple[str, Frames],
    rival: Rival | None,
    log: str | Path | None,
    tell: Tell | None,
) -> ModelReport:
    verdict, asked = planned
    warm_up = running.warmed(subject, tell)
    profiles = running.profiles(subject, inputs, tell)
    frames = {"warm_up": warm_up, **_of_runs(subject, profiles)}
    if rival:
        frames |= compared(subject, profiles, rival, inputs, tell)
    step = steps(tell, 4)
    step("clones and their kernels")
    frames |= _of_clones(subject)
    step("costs over sizes")
    frames |= _of_sizes(subject) | asked
    step("memory")
    frames["memory"] = running.memory(subject)
    step("the log")
    frames |= searching.frames(log, subject.name)
    names = set(frames["kernels"]["source"])
    sources = subject.program.sources
    return ModelReport(
        name=subject.name,
        frames=frames,
        interface=_interface(subject),
        sources={name: sources[name] for name in sorted(names) if name in sources},
        functions=clones.functions(subject, names),
        verdict=verdict,
        doubts=running.doubts(profiles),
    )


def _of_runs(subject: ReportSubject, profiles: Mapping[str, pd.DataFrame]) -> Frames:
    return {
        "layers": running.layers(profiles),
        "calls": running.wholes(profiles),
        "compiling": running.counts(subject),
        "environment": running.environment(subject),
    }


def _of_clones(subject: ReportSubject) -> Frames:
    every, buckets = clones.clones(subject), clones.buckets(subject)
    return {
        "clones": every,
        "kernels": clones.kernels(subject, every),
        "edges": clones.edges(subject, every),
        "decisions": clones.decisions(subject),
        "buckets": buckets,
        "cuts": clones.cuts(buckets),
    }


def _of_sizes(subject: ReportSubject) -> Frames:
    return {
        "traffic": costs.traffic(subject),
        "sizes": costs.sizes(subject),
        "costs": costs.costs(subject),
        "implementations": costs.implementations(subject),
    }


def _interface(subject: ReportSubject) -> dict[str, list[str]]:
    routine = subject.program.routines["main"]
    pairs = zip(subject.program.outputs, routine.fn.results, strict=True)
    return {
        "inputs": [f"{p.name}: {p.type}" for p in routine.params],
        "outputs": [f"{name}: {atom.type}" for name, atom in pairs],
        "symbols": [_bounds(s) for s in subject.symbols.values()],
    }


def _bounds(symbol: Symbol) -> str:
    """`N from 1 to 32`, `S from 8 to 512 in steps of 8`."""
    ends = f"{symbol.name} from {symbol.lo} {'on' if symbol.hi is None else f'to {symbol.hi}'}"
    return f"{ends} in steps of {symbol.step}" if symbol.step > 1 else ends
