"""What a machine does at most: kernels that do nothing but multiply, or nothing but move memory.

`inspect.roofline` runs them.
"""

from __future__ import annotations

from llvmlite import ir

from bucketize.kernel.emit.vector import FLOAT_BYTES, Size, Values, Writer

UNROLLED = 4  # vectors of a step, so that counting costs nothing


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
