"""The decisions of a dispatched function, one after the other, and the leaves below them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from bucketize.ir.core import Binding, Function
from bucketize.ir.structure import CALL, IF, ILLEGAL, NO_BUCKET
from bucketize.ops.dim import dim_less, dims_within
from bucketize.types import Dim, Interval

TESTS = frozenset((dim_less, dims_within))  # what decides by sizes alone
MOST = 10_000  # leaves that are shown in full: a text of some 100,000 lines
ENDS = 3  # leaves that are shown at either end of more


@dataclass(frozen=True, slots=True)
class Side:
    """What follows, deeper by one, is for sizes where the test holds, or where it does not."""

    depth: int
    test: Binding
    holds: bool


@dataclass(frozen=True, slots=True)
class Leaf:
    """A block that decides nothing by sizes: it calls a clone, or refuses."""

    depth: int
    block: Function

    @property
    def callees(self) -> list[str]:
        """The functions that the leaf calls: one, if dispatch made it."""
        return [b.attrs["callee"] for b in self.block.body if b.op is CALL]


@dataclass(frozen=True, slots=True)
class Gap:
    """Leaves in the middle of a great tree that are left out."""

    depth: int
    leaves: int


Step: TypeAlias = Side | Leaf | Gap


def decisions(fn: Function, *, abridged: bool = False) -> Iterator[Step]:
    """The tree in the order of its text: each test's side where it holds, then the other.

    Abridged, a tree of more than 10,000 leaves shows the first and last of them.
    """
    return _walk(fn, 0, left_out(fn) if abridged else {})


def _walk(block: Function, depth: int, gaps: Mapping[Function, int]) -> Iterator[Step]:
    if block in gaps:
        yield Gap(depth, gaps[block])
        return
    tests = {b.out: b for b in block.body if b.op in TESTS}
    forks = [b for b in block.body if b.op is IF and b.args[0] in tests]
    for fork in forks:
        for holds, inner in ((True, fork.attrs["then"]), (False, fork.attrs["orelse"])):
            yield Side(depth, tests[fork.args[0]], holds)  # type: ignore[index]
            yield from _walk(inner, depth + 1, gaps)
    if not forks:
        yield Leaf(depth, block)


# --- what is left out ----------------------------------------------------------------------------


def left_out(fn: Function) -> dict[Function, int]:
    """The blocks that an abridged text of `fn` leaves out, and how many leaves each has.

    A leaf is a block without an `if`. Nothing is left out of a tree of up to `MOST` leaves.
    """
    counts: dict[Function, int] = {}
    total = _count(fn, counts)
    if total <= MOST:
        return {}
    return {block: counts[block] for block in _middle(fn, 0, total, counts)}


def _count(block: Function, counts: dict[Function, int]) -> int:
    counts[block] = sum(_count(inner, counts) for inner in _blocks(block)) or 1
    return counts[block]


def _middle(
    block: Function, at: int, total: int, counts: dict[Function, int]
) -> Iterator[Function]:
    """The greatest blocks between the ends; `at` leaves are before `block`."""
    for inner in _blocks(block):
        end = at + counts[inner]
        if at >= ENDS and end <= total - ENDS:
            yield inner
        else:
            yield from _middle(inner, at, total, counts)
        at = end


def _blocks(block: Function) -> Iterator[Function]:
    for b in block.body:
        if b.op is IF:
            yield b.attrs["then"]
            yield b.attrs["orelse"]


# --- as text -------------------------------------------------------------------------------------


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
            yield from ("error: " + b.attrs["reason"] for b in block.body if b.op is ILLEGAL)


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
