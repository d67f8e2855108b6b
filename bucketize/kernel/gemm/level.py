"""Levels of a batch: where the arrays of one of its entries begin.

Behind a kernel's dims lies a table, a row for each axis of the batch, the innermost first: its
size, and the bytes that each array moves by along it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from llvmlite import ir

from bucketize.kernel.emit.vector import Writer
from bucketize.kernel.emit.writer import FLOAT_BYTES, WORD, WORD_BYTES, Size, Values
from bucketize.kernel.loops.loop import joined, strides_of
from bucketize.types import Dim, Shape, product

Level: TypeAlias = tuple[Dim, list[Dim]]  # a batch axis: its size, and the bytes of each array


def merged(levels: Sequence[Level]) -> list[Level]:
    """Axes of size 1 left out, and neighbours that every array passes evenly made one."""
    kept = [level for level in levels if level[0] != 1]
    runs = joined(kept, lambda a, b: a[1] == [b[0] * step for step in b[1]])
    return [(product(size for size, _ in run), run[-1][1]) for run in runs]


def table(levels: Sequence[Level]) -> list[Dim]:
    """The words of the table; levels are given from the outermost."""
    return [n for size, steps in reversed(levels) for n in (size, *steps)]


def byte_strides(shape: Shape, rank: int, size: int = FLOAT_BYTES) -> list[Dim]:
    """Bytes between neighbours along each of the last `rank` axes of a dense array.

    Its elements are of `size` bytes.
    """
    return [0] * (rank - len(shape)) + [s * size for s in strides_of(shape)]


def offsets(w: Writer, rows: ir.Value, levels: Size, arrays: int, entry: Size) -> Values:
    """How many bytes each of so many arrays moves by to get to an entry of the batch."""
    row = (1 + arrays) * WORD_BYTES

    def moved(level: Size, index: ir.Value, before: Values) -> Values:
        at = w.item(rows, level, row)
        steps = [w.mul(index, w.load_word(at, 1 + n)) for n in range(arrays)]
        return [w.word(w.add(o, s)) for o, s in zip(before, steps, strict=True)]

    def level(i: ir.Value, carried: Values) -> Values:
        rest, *before = carried
        size = w.load_word(w.item(rows, i, row), 0)
        quotient = w.div(rest, size)
        index = w.sub(rest, w.mul(quotient, size))
        return [w.word(quotient), *moved(i, w.word(index), before)]

    zeros = [ir.Constant(WORD, 0)] * arrays
    outermost = w.sub(levels, 1)
    rest, *before = w.loop(0, outermost, level, [w.word(entry), *zeros])
    return moved(outermost, rest, before)
