"""Square tiles of a matrix, transposed in registers."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from bucketize.kernel.emit.row import NEAR
from bucketize.kernel.emit.vector import Writer
from bucketize.kernel.emit.writer import BYTE, WORD, Values

INSIDE = 16  # bytes within which the cheaper shuffles of x86 move elements


@intrinsic(prefer_literal=True)
def transposed(
    _typing: Any, x: Any, _p: Any, _apart: Any, y: Any, _q: Any, _step: Any, edge: Any, ahead: Any
) -> Any:
    """`y[q + u * step + t] = x[p + u + t * apart]` for all u and t below `edge`, a power of two.

    Of each row of x the line `ahead` elements further on is asked for, none if that is 0.
    """

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        w, size = Writer(builder, edge.literal_value), x.dtype.bitwidth // 8
        kind = ir.VectorType(ir.IntType(size * BYTE.width), w.lanes)

        def rows(base: ir.Value, first: ir.Value, apart: ir.Value) -> Values:
            start = w.item(w.pointer(builder.ptrtoint(base, WORD)), first, size)
            return [w.item(start, w.mul(apart, i), size) for i in range(w.lanes)]

        read, written = rows(*args[:3]), rows(*args[3:6])
        if ahead.literal_value:
            for place in read:
                w.prefetch(w.beyond(place, ahead.literal_value * size), NEAR)
        turned = columns(w, [builder.load(place, typ=kind, align=size) for place in read], size)
        for value, place in zip(turned, written, strict=True):
            builder.store(value, place, align=size)
        return context.get_dummy_value()

    word = types.int64
    return types.void(x, word, word, y, word, word, edge, ahead), codegen


def columns(w: Writer, rows: Values, size: int) -> Values:
    """The columns of a square matrix from its rows, vectors of elements of `size` bytes.

    First those of each block that is `INSIDE` bytes wide, as many rows at a time, then the blocks.
    """
    n, vectors = len(rows), list(rows)
    width = min(INSIDE // size, n)
    for i in range(0, n, width):
        vectors[i : i + width] = _zipped(w, vectors[i : i + width])
    for i in range(width):
        vectors[i::width] = _unzipped(w, vectors[i::width], width)
    return vectors


def _zipped(w: Writer, rows: Values) -> Values:
    """The columns within each block as wide as there are rows; the blocks stay where they are."""
    half, n = len(rows) // 2, w.lanes
    both = [[b + i + of for i in range(half) for of in (0, n)] for b in range(0, n, 2 * half)]
    low = [i for block in both for i in block]
    high = [i + half for i in low]
    for _ in range(half.bit_length()):
        pairs = zip(rows[:half], rows[half:], strict=True)
        rows = [w.shuffle(x, y, order) for x, y in pairs for order in (low, high)]
    return rows


def _unzipped(w: Writer, rows: Values, width: int) -> Values:
    """The columns of a matrix of blocks, each `width` elements."""
    n = w.lanes
    even = [b + i for b in range(0, 2 * n, 2 * width) for i in range(width)]
    odd = [i + width for i in even]
    for _ in range(len(rows).bit_length() - 1):
        pairs = list(zip(rows[::2], rows[1::2], strict=True))
        rows = [w.shuffle(x, y, order) for order in (even, odd) for x, y in pairs]
    return rows
