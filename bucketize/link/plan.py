"""Plans: a segment as tables that native code fills for any sizes and then walks.

A launch rule is read over dims, so every word of the table of argument blocks is an expression
over the segment's symbols; the distinct ones are evaluated once and gathered. Kernels do the rest:
`link.native.fill` and `link.native.walk`, `link.native.strip`, which runs a group of kernels, and
`link.native.rounds`, which walks again. The words of their blocks are named in `link.block`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from functools import cache, cached_property
from pathlib import Path

from bucketize.ir import Const
from bucketize.link import block
from bucketize.link import native as core
from bucketize.link.block import BASE, POINTER
from bucketize.op import Array
from bucketize.program import aliasing as placement

PASSES = "a value computed from sizes, or the bytes of a tensor, comes near 2^63"
FAILURES = ("", "a relation does not hold", PASSES, "a division by what is not positive")
"""What the status of a fill says; with the first, `index` is the check, or -1 for a dim."""


@cache
def agreed() -> str:
    """A digest of what native code, tables and segments must agree on.

    It is of the words, of `core`'s kernels, and of what says which kernels a segment needs.
    """
    text = hashlib.sha256()
    native = sorted(Path(core.__file__).parent.glob("*.py"))
    for path in (*native, Path(block.__file__), Path(placement.__file__)):
        text.update(path.read_bytes())
    return text.hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class Result:
    """A result of a segment: the registers of its shape, and where it is found after a run."""

    shape: tuple[int, ...]
    source: str
    """"own" (kernels write it), or a copy of an "input", a "result", a "constant", of "dims"."""
    index: int
    """The number of the input, result or constant; of dims the table's word where they begin."""


@dataclass(frozen=True, eq=False)
class Plan:
    """The tables of a segment, for any sizes; the words of their rows are named in `link.block`."""

    symbols: tuple[str, ...]
    initial: Array
    """The registers before the code runs; the first are the symbols' sizes."""
    code: Array
    checks: Array
    words: Array
    parts: Array
    tensors: Array
    pointers: Array
    """Rows of pointers, relative to arena and table first: there are `fixed` of them."""
    reports: Array
    groups: Array
    """What may be run in strips: each has a step behind those of the calls."""
    links: Array
    """Addresses in table or kernels, put in once; they never move."""
    constants: tuple[tuple[int, int, int], ...]
    """(word, row, argument): where the addresses of constants go; they never move."""
    held: tuple[Const, ...]
    """Constants that are results."""
    results: tuple[Result, ...]
    kernels: tuple[str, ...]
    """The kernels of the rows of calls: those that are run at some sizes are behind the others."""
    steps: int
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
        return int((self.pointers[:, POINTER.base] < len(BASE)).sum())


TABLES = tuple(f.name for f in fields(Plan) if f.type == "Array")
"""The fields of a plan that are arrays of words."""
