"""Frames of what runs: profiles, warming up, memory, the machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import pandas as pd

from bucketize.busy import machine_load
from bucketize.inspect.roofline import Roofline
from bucketize.log.environment import here
from bucketize.op import Array
from bucketize.progress import Tell
from bucketize.report.subject import REFUSALS, ReportSubject
from bucketize.table import pairs
from bucketize.types import Sizes

Inputs = Callable[[Sizes], Mapping[str, Array]]
REPETITIONS = 20
WARMING_S = 120.0
"""Seconds after which no clone is warmed up any more."""
POINTS = 9
"""Sizes of each symbol that memory is told at."""


def warmed(subject: ReportSubject, tell: Tell | None) -> pd.DataFrame:
    """Run each clone once, those first that are asked for most, as `Executable.warm_up` does.

    Returns:
        A row for each clone: clone, first_s, what linking it and its first call took, at its least
        legal sizes; missing of those that no time was left for.

    """
    begun: list[tuple[str, float]] = []

    def noted(name: str, done: int, total: int) -> None:
        begun.append((name, time.perf_counter()))
        if tell is not None:
            tell(name, done, total)

    cold = subject.executable.warm_up(noted, traffic=subject.requests, seconds=WARMING_S)
    ends = [*begun, ("", time.perf_counter())]
    rows: list[dict[str, Any]] = [
        {"clone": name, "first_s": end - begin} for (name, begin), (_, end) in pairwise(ends)
    ]
    rows += [{"clone": name, "first_s": None} for name in cold]
    return pd.DataFrame(rows, columns=["clone", "first_s"])


def profiles(subject: ReportSubject, inputs: Inputs, tell: Tell | None) -> dict[str, pd.DataFrame]:
    """By sizes, the frame of `Executable.profile`."""
    exe = subject.executable
    frames: dict[str, pd.DataFrame] = {}
    roof: Roofline | None = None
    for sizes in subject.points:
        arrays = inputs(sizes)
        in_order = [arrays[name] for name in exe.inputs]
        with _explained(subject):
            frame = exe.profile(*in_order, repetitions=REPETITIONS, roofline=roof, progress=tell)
        roof = frame.attrs["roofline"]
        frames[pairs(sizes)] = frame
    return frames


@contextmanager
def _explained(subject: ReportSubject) -> Iterator[None]:
    """Say of sizes that were not given how to give others."""
    try:
        yield
    except REFUSALS as e:
        if not subject.given:
            e.add_note("the report chose these sizes: give others, by sizes=[{...}] or --at")
        raise


def layers(of: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The profiles as one frame, with the sizes of each in a column."""
    return pd.concat([f.assign(sizes=s) for s, f in of.items()], ignore_index=True)


def wholes(of: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """What calls take as a whole: sizes, whole_s, whole_iqr_s, predicted_s, and the roof there."""
    rows = []
    for sizes, frame in of.items():
        roof = frame.attrs["roofline"]
        facts = {n: frame.attrs[n] for n in ("whole_s", "whole_iqr_s", "predicted_s")}
        rows.append({"sizes": sizes, **facts, **asdict(roof), "ridge": roof.ridge})
    return pd.DataFrame(rows)


def doubts(of: Mapping[str, pd.DataFrame]) -> list[str]:
    """What makes the times of profiles doubtful."""
    return list(dict.fromkeys(d for frame in of.values() for d in frame.attrs["machine"].doubts))


def memory(subject: ReportSubject) -> pd.DataFrame:
    """What calls take of memory, as `Executable.memory` tells it.

    Returns:
        A row for each of some sizes of each symbol: symbol, size, sizes (of all), and in bytes
        weights, arena, between, results.

    """
    rows = [
        {"symbol": name, "size": sizes[name], "sizes": pairs(sizes), **facts}
        for name in subject.symbols
        for sizes, facts in _memories(subject, subject.grid(name, subject.points[0], POINTS))
    ]
    if not subject.symbols:
        rows = [{"symbol": "", "size": 0, "sizes": "", **m} for _, m in _memories(subject, [{}])]
    names = ["symbol", "size", "sizes", "weights", "arena", "between", "results"]
    return pd.DataFrame(rows, columns=names)


def _memories(
    subject: ReportSubject, points: Sequence[Sizes]
) -> list[tuple[Sizes, dict[str, Any]]]:
    facts = []
    for sizes in points:
        with suppress(*REFUSALS):
            its = subject.executable.memory(**sizes)
            facts.append((sizes, {n: v for n, v in asdict(its).items() if n != "unknown"}))
    return facts


def environment(subject: ReportSubject) -> pd.DataFrame:
    """Where this was made: name, value."""
    rows = {
        **asdict(here()),
        "compiled for": subject.program.target.name,
        "threads": subject.program.threads,
        "load average": round(machine_load(), 2),
    }
    pairs_ = [{"name": name.replace("_", " "), "value": str(value)} for name, value in rows.items()]
    return pd.DataFrame(pairs_)


def counts(subject: ReportSubject) -> pd.DataFrame:
    """What compiling came to: clones, and the fields of `Executable.counts`, in one row."""
    its = asdict(subject.executable.counts)
    host = ", ".join(f"{n} x {op}" for op, n in its.pop("host").items())
    clones = max(len(subject.program.routines) - 1, 1)
    return pd.DataFrame([{"clones": clones, **its, "host": host}])
