"""A patch computed once more, directly, where minimal filtering loses what the direct sums have.

Its transforms spread what is not finite over all results of a patch, overflow where the sums do
not, and round what is tiny to more than its own denormal places. All of that shows in one sum of
the results, the witness; what is then computed is what the direct template has, bit for bit.
"""

from __future__ import annotations

from llvmlite import ir

from bucketize.kernel.emit.vector import Writer
from bucketize.kernel.emit.writer import FLOAT_BYTES, POINTER, WORD, Size, Values
from bucketize.kernel.gemm.store import Words
from bucketize.kernel.winograd.input import WinogradForm

LARGE = 2.0**64
"""No result of a network is that large. Beside such, what is left of terms that ought to cancel is
as wrong as infinity would be."""
TINY = 2.0**-116
"""Denormal results are 2^-126 at most; their terms, in the transforms, 2^10 times as much."""


def witness(w: Writer, results: Values) -> ir.Value:
    """A sum of results, each times `LARGE`: not finite if one of them is that large.

    Witnesses are added; each begins anew, so that one addition hangs on those before.
    """
    large = w.number(LARGE)
    total = w.builder.fmul(results[0], large)
    for value in results[1:]:
        total = w.fma(value, large, total)
    return total


def must_be_direct(w: Writer, witness: ir.Value) -> ir.Value:
    """Whether a lane has something large, or all of them are tiny, and not all 0.

    One that is tiny by itself is nothing beside the others: weights that training gave up are.
    """
    b, limit = w.builder, w.number(TINY * LARGE)
    rest = b.fsub(witness, witness)  # 0, or NaN
    large = w.any_lane(b.fcmp_unordered("uno", rest, rest))
    usual = b.fcmp_ordered(">=", w.intrinsic("fabs", witness), limit)
    some = w.any_lane(b.fcmp_unordered("!=", witness, w.number(0)))
    return b.or_(large, b.and_(some, b.not_(w.any_lane(usual))))


class Direct:
    """Computes a patch in one panel directly, in the order of the direct template's sums."""

    def __init__(self, w: Writer, form: WinogradForm, finish: ir.Function) -> None:
        self.form, self.finish = form, finish
        self.function = w.define("direct", [POINTER, POINTER], self._patch)
        self.function.attributes.add("optsize")  # it is seldom run

    def _patch(self, w: Writer, memory: ir.Value, place: ir.Value) -> None:
        form, block = self.form, Words(w, memory, self.form.block_names)
        frame = Words(w, place, form.frame_names)
        line, pixel, across = (block.word(name) for name in ("line", "pixel", "width"))
        lines, pixels = frame.word("lines"), frame.word("pixels")
        source, sums = frame.pointer("source"), w.scratch(form.wide * form.width * FLOAT_BYTES)

        def row(i: ir.Value, _: Values) -> None:
            def one(j: ir.Value, _: Values) -> None:
                y, x = (w.mul(n, step) for n, step in zip((i, j), form.strides, strict=True))
                here = w.beyond(source, w.add(w.mul(y, line), w.mul(x, pixel)))
                first = w.add(frame.word("y"), y), w.add(frame.word("x"), x)
                for v, total in enumerate(self.window(w, block, frame, here, first)):
                    w.store(total, w.item(sums, w.add(w.mul(j, form.width), v * w.lanes)))

            w.loop(0, pixels, one)
            w.call(self.finish, [memory, place, sums, form.width, w.mul(i, across), pixels])

        w.loop(0, lines, row)

    def window(
        self, w: Writer, block: Words, frame: Words, here: ir.Value, first: tuple[Size, Size]
    ) -> Values:
        """The sums of the window that begins at a pixel, for a panel of channels out.

        The pixel is at `first`, its line and column; what the window sees of pads is a zero.
        """
        taps, width, (high, wide) = frame.pointer("taps"), self.form.width, self.form.taps
        line, pixel, depth = (block.word(name) for name in ("line", "pixel", "depth"))
        ends, zero = [block.word(name) for name in ("down_to", "right_to")], w.scratch(FLOAT_BYTES)
        w.store(w.number(0, 1), zero)

        def tap(t: ir.Value, sums: Values) -> Values:
            y = w.div(t, wide)
            x = w.sub(t, w.mul(y, wide))
            places = (w.word(w.add(n, k)) for n, k in zip(first, (y, x), strict=True))
            pairs = zip(places, ends, strict=True)
            has = w.builder.and_(*(w.builder.icmp_unsigned("<", n, end) for n, end in pairs))
            at = w.beyond(here, w.add(w.mul(y, line), w.mul(x, pixel)))
            at, step = w.builder.select(has, at, zero), w.builder.zext(has, WORD)
            row = w.item(taps, w.mul(w.mul(t, depth), width))

            def channel(k: ir.Value, sums: Values) -> Values:
                splat = w.load_splat(w.item(at, w.mul(k, step)))
                weights = w.item(row, w.mul(k, width))
                loaded = [w.load(w.item(weights, v * w.lanes)) for v in range(len(sums))]
                return [w.fma(splat, b, s) for b, s in zip(loaded, sums, strict=True)]

            return w.loop(0, depth, channel, sums)

        return w.loop(0, high * wide, tap, [w.number(0)] * self.form.vectors)
