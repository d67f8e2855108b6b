"""Which parts of a great tree of `if`s a text leaves out: all but its first and last leaves."""

from __future__ import annotations

from collections.abc import Iterator

from bucketize.ir.core import Function
from bucketize.ir.structure import IF

MOST = 10_000  # leaves that are shown in full: a text of some 100,000 lines
ENDS = 3  # leaves that are shown at either end of more


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
