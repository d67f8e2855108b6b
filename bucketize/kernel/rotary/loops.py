"""The loops of a rotary embedding: both halves of a row at once."""

from __future__ import annotations

from llvmlite import ir

from bucketize.kernel.emit.vector import Writer
from bucketize.kernel.emit.writer import WORD_BYTES, Size, Values
from bucketize.kernel.gemm.level import offsets
from bucketize.kernel.gemm.store import Words, block_names

ARRAYS = ("x", "cos", "sin", "out")
DIMS = ("half", "rows", "levels", *(f"{name}_step" for name in ARRAYS))
"""A table of batch levels follows them."""


def emit(w: Writer, block: ir.Value, /, *, x: int, cos: int, sin: int) -> None:
    """Write the body of a kernel whose arguments have these places."""
    names = block_names(3, DIMS)
    words = Words(w, block, names)
    d = {name: words.word(name) for name in DIMS}
    places = [words.pointer(n) for n in (f"in{x}", f"in{cos}", f"in{sin}", "out")]
    begin, end = words.word("begin"), words.word("end")
    levels = w.item(block, len(names), WORD_BYTES)

    def entry(e: ir.Value, _: Values) -> None:
        moved = offsets(w, levels, d["levels"], len(ARRAYS), e)
        bases = [w.at(place, o) for place, o in zip(places, moved, strict=True)]
        first = w.mul(e, d["rows"])
        low, high = w.greatest(w.sub(begin, first), 0), w.least(w.sub(end, first), d["rows"])

        def row(i: ir.Value, _: Values) -> None:
            pairs = zip(bases, ARRAYS, strict=True)
            _row(w, [w.at(base, w.mul(i, d[f"{n}_step"])) for base, n in pairs], d["half"])

        w.loop(low, high, row)

    most = w.greatest(d["rows"], 1)  # where there are no rows, there is no part of them
    w.loop(w.div(begin, most), w.ceildiv(end, most), entry)


def _row(w: Writer, places: Values, half: ir.Value) -> None:
    """A row: low cos - high sin, then high cos + low sin, each product rounded."""
    b, whole = w.builder, w.mul(w.div(half, w.lanes), w.lanes)
    *read, out = places

    def vectors(i: Size, mask: ir.Value | None) -> None:
        low, high = ([w.load(w.item(p, at), mask) for p in read] for at in (i, w.add(half, i)))
        (x, cos, sin), (y, cos_, sin_) = low, high
        first = b.fadd(b.fmul(x, cos), b.fmul(b.fneg(y), sin))
        second = b.fadd(b.fmul(y, cos_), b.fmul(x, sin_))
        w.store(first, w.item(out, i), mask)
        w.store(second, w.item(out, w.add(half, i)), mask)

    w.loop(0, whole, lambda i, _: vectors(i, None), step=w.lanes)
    rest = w.compare(whole, "<", half)
    w.when(rest, lambda: vectors(whole, w.mask(w.sub(half, whole))))
