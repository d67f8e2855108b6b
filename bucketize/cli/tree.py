"""The decision tree of a dispatched function, as nested conditions."""

from __future__ import annotations

from collections.abc import Iterator

from bucketize.dispatch.decision import Gap, Leaf, Side, Step, decisions
from bucketize.ir import NO_BUCKET, Binding, Function
from bucketize.ops.dim import dim_less
from bucketize.types import Dim, Interval


def tree_lines(fn: Function, *, abridged: bool = False) -> Iterator[str]:
    """The tree of a function: `if N < 2:`, and the clones at its leaves."""
    for step in decisions(fn, abridged=abridged):
        yield from ("  " * step.depth + line for line in step_lines(step))


def step_lines(step: Step) -> Iterator[str]:
    """One step of the tree, at most one line but for a leaf of several calls."""
    match step:
        case Side(_, test, holds):
            yield f"if {condition(test)}:" if holds else "else:"
        case Gap(_, leaves):
            yield f"... (leaves left out: {leaves:,})"
        case Leaf(_, block):
            yield from step.callees
            if any(b.op is NO_BUCKET for b in block.body):
                yield "error: no bucket"


def condition(test: Binding) -> str:
    """What a test asks of the sizes."""
    if test.op is dim_less:
        return f"{test.attrs['dim']} < {test.attrs['than']}"
    pairs = zip(test.attrs["dims"], test.attrs["box"], strict=True)
    return " and ".join(between(dim, interval) for dim, interval in pairs)


def between(dim: Dim, interval: Interval) -> str:
    """The condition of one interval."""
    lo, hi = interval
    return f"{lo} <= {dim}" if hi is None else f"{lo} <= {dim} < {hi}"
