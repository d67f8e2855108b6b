"""Rows of elements copied in vectors, and asked for ahead."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from bucketize.kernel.emit.vector import Writer, vector_type
from bucketize.kernel.emit.writer import BYTE, WORD, Size
from bucketize.machine.target import LINE

LONG = 4 * LINE
"""Bytes of the vectors of long rows, which LLVM splits: four loads that each go on by the same step
from row to row are seen by what fetches ahead, one in a loop is not."""
NEAR = 3  # where a line is fetched to: the first cache


@intrinsic
def fetch(_typing: Any, x: Any, _p: Any) -> Any:
    """Ask for the line of `x[p]`, which need not be there."""

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        w = Writer(builder)
        start = w.pointer(builder.ptrtoint(args[0], WORD))
        w.prefetch(w.beyond(start, w.mul(args[1], _size(x))), NEAR)
        return context.get_dummy_value()

    return types.void(x, types.int64), codegen


@intrinsic
def copied(_typing: Any, y: Any, _q: Any, x: Any, _p: Any, _m: Any) -> Any:
    """`y[q + t] = x[p + t]` for all t in range(m); m may be negative, and none of x lies in y."""
    word = types.int64

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        w, (target, q, source, p, m) = Writer(builder), args
        to, of = (w.pointer(builder.ptrtoint(base, WORD)) for base in (target, source))
        size = _size(x)
        _repeat(w, w.item(to, q, size), w.item(of, p, size), m, size, LONG // size, 1)
        return context.get_dummy_value()

    return types.void(y, word, x, word, word), codegen


@intrinsic(prefer_literal=True)
def repeated(_typing: Any, y: Any, _q: Any, x: Any, _p: Any, _m: Any, times: Any) -> Any:
    """`y[q + t * times + k] = x[p + t]` for all t in range(m) and k in range(times)."""
    word = types.int64

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        w, (target, q, source, p, m, _) = Writer(builder), args
        to, of = (w.pointer(builder.ptrtoint(base, WORD)) for base in (target, source))
        size = _size(x)
        to, of = w.item(to, q, size), w.item(of, p, size)
        _repeat(w, to, of, m, size, LINE // size, times.literal_value)
        return context.get_dummy_value()

    return types.void(y, word, x, word, word, times), codegen


def _size(pointer: Any) -> int:
    size: int = pointer.dtype.bitwidth // BYTE.width
    return size


def _repeat(
    w: Writer, to: ir.Value, of: ir.Value, m: ir.Value, size: int, width: int, times: int
) -> None:
    """In vectors of `width` elements, the last of which ends with the row; or in shorter ones.

    Each element is written so many `times`.
    """
    kind = vector_type(ir.IntType(size * BYTE.width), width)

    def vector(i: Size) -> None:
        value = w.builder.load(w.item(of, i, size), typ=kind, align=size)
        if times > 1:
            order = [t // times for t in range(width * times)]
            value = w.shuffle(value, value, order) if width > 1 else w.splat(value, times)
        w.builder.store(value, w.item(to, w.mul(i, times), size), align=size)

    def all_of_it() -> None:
        last = w.sub(m, width)
        w.loop(0, last, lambda i, _: vector(i), step=width)
        vector(last)

    shorter = (lambda: _repeat(w, to, of, m, size, width // 2, times)) if width > 1 else None
    w.when(w.compare(m, ">=", width), all_of_it, shorter)
