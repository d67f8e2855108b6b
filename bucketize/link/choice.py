"""Calls that have several kernels: dims whose values hang on which one runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any

from bucketize.kernel.template import Lines
from bucketize.program.instruction import KernelCall
from bucketize.types import Dim, maximum, minimum


def chosen(call: KernelCall, values: Sequence[Dim]) -> Dim:
    """The one of `values` that is of the kernel which runs: there is one for each, in order."""
    total, *_ = values
    for (least, _), (before, value) in zip(call.larger, pairwise(values), strict=True):
        total = total + _reaches(call.workload.size, least) * (value - before)
    return total


def runs(call: KernelCall) -> list[Dim]:
    """For each kernel of a call 1 where it runs, else 0."""
    reached = [1, *(_reaches(call.workload.size, least) for least, _ in call.larger), 0]
    return [here - above for here, above in pairwise(reached)]


def chosen_lines(call: KernelCall, each: Sequence[Lines | None]) -> Lines | None:
    """How the kernel that runs goes down the lines; None if one of them does not."""
    lines = [one for one in each if one is not None]
    if len(lines) < len(each):
        return None
    first, *others = lines
    if not others:
        return first
    names = (f.name for f in fields(Lines) if f.name != "windows")
    counts: dict[str, Any] = {n: chosen(call, [getattr(one, n) for one in lines]) for n in names}
    return replace(first, **counts)


def _reaches(size: Dim, least: int) -> Dim:
    """1 from a size on, else 0."""
    return minimum(maximum(size - (least - 1), 0), 1)
