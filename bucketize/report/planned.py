"""What the models say of other numbers of clones, and of those that there are."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from bucketize.dispatch.tree import original_of
from bucketize.errors import ArgumentError
from bucketize.ir import Module
from bucketize.partition.merge import choice_of
from bucketize.partition.partition import BUDGET, WORTH, Question
from bucketize.partition.value import Frontier, Partition, show_buckets
from bucketize.traffic.value import Traffic

NAMES = [f.name for f in dataclasses.fields(Frontier) if f.name != "buckets"]
COLUMNS = ["clones", *NAMES, "compile_s", "buckets", "which"]


@dataclass(frozen=True)
class ClonePlan:
    """A partition, and what stands beside it."""

    partition: Partition
    frontier: tuple[Frontier, ...]
    """The best of each number of clones, however little more of them save."""
    here: Frontier | None
    """The clones that there are; None if there is one, or they are padded."""


def plan(
    mod: Module | None, traffic: Traffic | None, log: str | Path | None, threads: int
) -> ClonePlan:
    """Ask the models; errors are those of `partition`, and ArgumentError without a module."""
    if mod is None:
        raise ArgumentError("partition: a program that was loaded has no module to ask about")
    whole = Module({"main": original_of(mod)})
    how = {"log": log, "target": None, "threads": threads}
    question = Question.of(whole, "main", traffic, "mean", **how)  # type: ignore[arg-type]
    its = question.answer(BUDGET, WORTH)
    every = its.frontier if len(its.frontier) > 1 else question.answer(BUDGET, 0.0).frontier
    is_exact = all(clone.policy == "exact" for clone in mod.clones.values())
    buckets = [clone.bucket for clone in mod.clones.values()] if is_exact else []
    here = question.frontier(choice_of(question, buckets)) if buckets else None
    return ClonePlan(its, every, here)


def frontier(of: ClonePlan | None) -> pd.DataFrame:
    """What more clones are expected to save, and what they cost.

    Returns:
        A row for each number of clones, and one for those that there are: the fields of
        `Frontier`, clones, compile_s, buckets, which ("chosen" by `partition`, "here", or empty).

    """
    rows = [] if of is None else [_row(f, _which(f, of)) for f in of.frontier]
    if of is not None and of.here is not None:
        rows.append(_row(of.here, "here"))
    return pd.DataFrame(rows, columns=COLUMNS)


def _which(one: Frontier, of: ClonePlan) -> str:
    return "chosen" if one.clones == of.partition.chosen.clones else ""


def _row(of: Frontier, which: str) -> dict[str, Any]:
    its = {name: getattr(of, name) for name in NAMES}
    more = {"clones": of.clones, "compile_s": of.compile_s, "buckets": show_buckets(of.buckets)}
    return {**its, **more, "which": which}


def by_size(of: ClonePlan | None) -> pd.DataFrame:
    """What calls take over sizes by one clone, by the chosen ones, and by the best kernels.

    Returns:
        The columns of `Partition.by_size`.

    """
    return pd.DataFrame({} if of is None else dict(of.partition.by_size))
