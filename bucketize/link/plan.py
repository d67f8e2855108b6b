"""Plans: a segment as tables that native code fills for any sizes and then walks.

A launch rule is read over dims, so every word of the table of argument blocks is an expression
over the segment's symbols; the distinct ones are evaluated once and gathered. Kernels do the rest:
`link.native.fill` and `link.native.walk`, whose blocks have the words named here,
`link.native.strip`, which runs a group of kernels, and `link.native.rounds`, which walks again.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bucketize.ir import Const
from bucketize.link import native as core
from bucketize.op import Array
from bucketize.program import aliasing as placement

# The words of the blocks, in order. "x" is the address of an array, "n_x" its rows.
FILL = (
    *("registers", "status", "index", "code", "n_code", "checks", "n_checks"),
    *("table", "words", "n_words", "parts", "n_parts", "threads", "width", "chunks", "fork"),
    *("tensors", "n_tensors", "offsets", "strides", "live", "arena_bytes"),
    *("pointers", "n_pointers", "behind"),
    *("groups", "n_groups", "strip", "in_strips", "order", "sizes"),
)
WALK = (
    *("what", "first", "wrong", "table", "bases", "pointers", "n_pointers", "behind"),
    *("kernels", "order", "stride", "chunks", "reports", "n_reports", "wrong_index", "extent"),
)
ROUNDS = (*("rounds", "places", "n_places", "walking", "walk", "number", "bases", "fixed"),)
PLACE = ("place", "lag", "first", "begin", "stride", "period")
"""Of a base that changes: `begin + (round - lag) % period * stride`, or `first` before."""
GROUP = ("members", "stride", "lines", "links", "measuring")
MEMBER = (
    *("tiles", "low", "tall", "across", "down", "high", "height"),
    *("step", "spans", "begin", "line_bytes", "capacity", "bytes"),
)
LINK = ("reader", "word", "maker", "stride", "reach", "before", "image", "result")
STATE = ("done", "next", "wanted", "first", "buffer")
"""The words of a group that is run in strips: GROUP, MEMBER for each, LINK for each; and, for each
thread, STATE for each member. `link.native.strip` reads them."""
ROW = ("group", "states", "rows", "kernels", "begin", "end")
"""The words of such a group's row."""
FAILURES = ("", "a relation does not hold", "a tensor is too large", "a division by zero")
"""What the status of a fill says; with the first, `index` is the check, or -1 for a dim."""

WORD = 8  # bytes of an entry of a block
LINKED = ("table", "kernels")
"""What a plan's links are relative to."""
BASES = ("arena", "table")
"""What pointers are relative to; the inputs follow, then the results."""


def agreed() -> str:
    """A digest of what native code, tables and segments must agree on.

    It is of the words, of `core`'s kernels, and of what says which kernels a segment needs.
    """
    words = (FILL, WALK, ROUNDS, PLACE, BASES, LINKED, GROUP, MEMBER, LINK, STATE, ROW)
    text = hashlib.sha256(repr(words).encode())
    native = sorted(Path(core.__file__).parent.glob("*.py"))
    for path in (*native, Path(placement.__file__)):
        text.update(path.read_bytes())
    return text.hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class Result:
    """A result of a segment: the registers of its shape, and where it is found after a run."""

    shape: tuple[int, ...]
    source: str
    """"own" (kernels write it), or a copy of an "input", a "result", a "constant", of "dims"."""
    index: int
    """Of the input, result or constant; of dims the word of the table where they begin."""


@dataclass(frozen=True, eq=False)
class Plan:
    """The tables of a segment, for any sizes; rows are explained in `link.native`."""

    symbols: tuple[str, ...]
    initial: Array
    """The registers before the code runs; the first are the symbols' sizes."""
    code: Array
    checks: Array
    words: Array
    parts: Array
    tensors: Array
    pointers: Array
    """Those relative to arena and table first: there are `fixed` of them."""
    reports: Array
    groups: Array
    """What may be run in strips: each has a step behind those of the calls."""
    links: Array
    """(word, base, words): addresses in table or kernels, put in once; they never move."""
    constants: tuple[tuple[int, int, int], ...]
    """(word, call, argument): where the addresses of constants go; they never move."""
    held: tuple[Const, ...]
    """Constants that are results."""
    results: tuple[Result, ...]
    kernels: tuple[str, ...]
    width: int
    """Words of a row; a kernel has one for each thread."""
    size: int
    """Words of the table, the dims that it holds included."""
    threads: int

    def __repr__(self) -> str:
        return f"<plan of {len(self.kernels)} kernels, {len(self.tensors)} tensors>"

    @cached_property
    def fixed(self) -> int:
        """How many pointers are relative to arena and table: they move with sizes only."""
        return int((self.pointers[:, 1] < len(BASES)).sum())
