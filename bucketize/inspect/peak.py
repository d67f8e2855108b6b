"""What a machine does at most: kernels that do nothing but one thing, over and over.

`inspect.roofline` and `inspect.calibrate` run them.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from bucketize.kernel.emit import math
from bucketize.kernel.emit.vector import FLOAT, Writer, vector_type
from bucketize.kernel.emit.writer import FLOAT_BYTES, INT, Size, Values
from bucketize.kernel.gemm.microkernel import FIRST, STREAM
from bucketize.machine.target import LINE

UNROLLED = 4  # vectors of a step, so that counting costs nothing
READ = 16  # those that are read in one
TURNS = 32  # of two sums that wait for each other
ROWS, VECTORS, DEPTH = 5, 2, 512
"""The tile of a product of few rows, and how deep a piece of A lies near."""


def multiply(w: Writer, block: ir.Value, /, *, chains: int) -> None:
    """Fused multiply-adds in registers: block[0] steps of `chains`, from two floats at block[1].

    Each sum is written to a place of its own from there on: one that is not is not computed.
    """
    floats = w.load_pointer(block, 1)
    x, y = (w.load_splat(w.item(floats, i)) for i in range(2))

    def step(_: ir.Value, sums: Values) -> Values:
        return [w.fma(s, x, y) for s in sums]

    start = [w.fma(x, w.number(float(i)), y) for i in range(chains)]
    sums = w.loop(0, w.load_word(block, 0), step, start)
    for i, s in enumerate(sums):
        w.store(s, w.item(floats, i * w.lanes))


def triad(w: Writer, block: ir.Value, /) -> None:
    """The sum a * 0.5 + b into c: block[0] floats of a, b, c at block[1], block[2], block[3]."""
    a, b, c = (w.load_pointer(block, i) for i in (1, 2, 3))
    half = w.number(0.5)

    def step(index: ir.Value, _: Values) -> None:
        for i in range(UNROLLED):
            at: Size = w.mul(w.add(index, i * w.lanes), FLOAT_BYTES)
            w.store(w.fma(w.load(w.at(a, at)), half, w.load(w.at(b, at))), w.at(c, at))

    w.loop(0, w.load_word(block, 0), step, step=UNROLLED * w.lanes)


def wait(w: Writer, block: ir.Value, /) -> None:
    """Integer sums of a cycle each, every one waiting for the last: block[0] steps of 2 `TURNS`.

    From block[1], with block[2]; the result goes to block[3], or they would not be computed.
    """
    y, z = (w.load_word(block, i) for i in (1, 2))

    def step(_: ir.Value, sums: Values) -> Values:
        (x,) = sums
        for _ in range(TURNS):
            x = w.builder.xor(w.builder.add(x, y), z)
        return [x]

    (x,) = w.loop(0, w.load_word(block, 0), step, [y])
    w.store_pointer(x, block, 3)


def read(w: Writer, block: ir.Value, /) -> None:
    """Vectors in order, and nothing but that: block[0] floats at block[1], block[2] times.

    What they come to goes to block[3] on, or they would not be read.
    """
    start, out = (w.load_pointer(block, i) for i in (1, 3))
    bits = vector_type(INT, w.lanes)

    def step(index: ir.Value, seen: Values) -> Values:
        places = [w.item(start, w.add(index, i * w.lanes)) for i in range(READ)]
        loaded = [w.builder.bitcast(w.load(place), bits) for place in places]
        return [w.builder.or_(s, x) for s, x in zip(seen, loaded, strict=True)]

    def again(_: ir.Value, seen: Values) -> Values:
        return w.loop(0, w.load_word(block, 0), step, seen, step=READ * w.lanes)

    nothing = [ir.Constant(bits, None)] * READ
    for i, x in enumerate(w.loop(0, w.load_word(block, 2), again, nothing)):
        w.store(w.builder.bitcast(x, vector_type(FLOAT, w.lanes)), w.item(out, i * w.lanes))


def tile(w: Writer, block: ir.Value, /, *, prefetches: int) -> None:
    """Read B in order as a tile of a product over it does; its A lies before what it comes to.

    Where it prefetches, it asks for each line of B a page ahead, as a tile that is alone may.
    """
    start, out = (w.load_pointer(block, i) for i in (1, 3))
    wide = VECTORS * w.lanes

    def step(index: ir.Value, sums: Values) -> Values:
        new: Values = []
        for u in range(UNROLLED):
            at = w.item(start, w.add(index, u * wide))
            if prefetches:
                for line in range(0, wide * FLOAT_BYTES, LINE):
                    w.prefetch(w.beyond(at, STREAM + line), FIRST)
            depth = w.builder.and_(w.word(w.add(w.div(index, wide), u)), w.word(DEPTH - 1))
            b = [w.load(w.item(at, v * w.lanes)) for v in range(VECTORS)]
            for row in range(ROWS):
                a = w.load_splat(w.item(w.beyond(out, -FLOAT_BYTES * DEPTH * (row + 1)), depth))
                mine = sums[row * VECTORS : (row + 1) * VECTORS]
                new += [w.fma(a, x, s) for x, s in zip(b, mine, strict=True)]
            sums, new = new, []
        return sums

    def again(_: ir.Value, sums: Values) -> Values:
        return w.loop(0, w.load_word(block, 0), step, sums, step=UNROLLED * wide)

    sums = w.loop(0, w.load_word(block, 2), again, [w.number(0.0)] * (ROWS * VECTORS))
    for i, s in enumerate(sums):
        w.store(s, w.item(out, i * w.lanes))


def exp(w: Writer, block: ir.Value, /) -> None:
    """Exponentials of block[0] floats at block[1], block[2] times, to block[3] on."""
    _over(w, block, lambda x: math.exp(w, x))


def root(w: Writer, block: ir.Value, /) -> None:
    """Square roots, the same."""
    _over(w, block, lambda x: w.intrinsic("sqrt", x))


def _over(w: Writer, block: ir.Value, of: Callable[[ir.Value], ir.Value]) -> None:
    start, out = (w.load_pointer(block, i) for i in (1, 3))

    def step(index: ir.Value, _: Values) -> None:
        for place in (w.add(index, i * w.lanes) for i in range(UNROLLED)):
            w.store(of(w.load(w.item(start, place))), w.item(out, place))

    def again(_: ir.Value, __: Values) -> None:
        w.loop(0, w.load_word(block, 0), step, step=UNROLLED * w.lanes)

    w.loop(0, w.load_word(block, 2), again)
