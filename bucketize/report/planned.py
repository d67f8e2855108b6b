"""What the models say of other numbers of clones, and of those that there are."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd

from bucketize.dispatch.tree import original_of
from bucketize.errors import ArgumentError
from bucketize.ir import Module
from bucketize.partition.merge import choice_of
from bucketize.partition.partition import BUDGET, WORTH, Question
from bucketize.partition.value import Frontier, show_buckets
from bucketize.traffic.value import Traffic

NAMES = [f.name for f in fields(Frontier) if f.name != "buckets"]
COLUMNS = ["clones", *NAMES, "compile_s", "buckets", "which"]
"""Columns of the frontier; `which` is "chosen" by `partition`, "here", or empty."""
Frames = dict[str, pd.DataFrame]


def unasked() -> tuple[str, Frames]:
    """Where nobody asks what other numbers of clones would come to."""
    return "", {"frontier": pd.DataFrame(columns=COLUMNS), "by_size": pd.DataFrame()}


def plan(
    mod: Module | None, traffic: Traffic | None, log: str | Path | None, threads: int
) -> tuple[str, Frames]:
    """Ask the models; errors are those of `partition`, and ArgumentError without a module.

    Returns:
        What the partition says of itself, and frames: `frontier`, a row for each number of clones,
        and one for those that there are; `by_size`, the columns of `Partition.by_size`.

    """
    if mod is None:
        raise ArgumentError("partition: a program that was loaded has no module to ask about")
    whole = Module({"main": original_of(mod)})
    how = {"log": log, "target": None, "threads": threads}
    question = Question.of(whole, "main", traffic, "mean", **how)  # type: ignore[arg-type]
    its = question.answer(BUDGET, WORTH)
    # the best of each number of clones, however little more of them save
    every = its.frontier if len(its.frontier) > 1 else question.answer(BUDGET, 0.0).frontier
    rows = [_row(f, "chosen" if f.clones == its.chosen.clones else "") for f in every]
    is_exact = all(clone.policy == "exact" for clone in mod.clones.values())
    if is_exact and mod.clones:
        buckets = [clone.bucket for clone in mod.clones.values()]
        rows.append(_row(question.frontier(choice_of(question, buckets)), "here"))
    frontier = pd.DataFrame(rows, columns=COLUMNS)
    return str(its), {"frontier": frontier, "by_size": pd.DataFrame(dict(its.by_size))}


def _row(of: Frontier, which: str) -> dict[str, Any]:
    its = {name: getattr(of, name) for name in NAMES}
    more = {"clones": of.clones, "compile_s": of.compile_s, "buckets": show_buckets(of.buckets)}
    return {**its, **more, "which": which}
