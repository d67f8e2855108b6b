"""Axes that are as good as one: what walks them has fewer loops, and longer ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def joined(axes: Iterable[T], belong: Callable[[T, T], bool]) -> list[list[T]]:
    """Axes in runs of those of which each two neighbours belong together."""
    runs: list[list[T]] = []
    for axis in axes:
        if runs and belong(runs[-1][-1], axis):
            runs[-1].append(axis)
        else:
            runs.append([axis])
    return runs
