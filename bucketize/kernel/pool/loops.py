"""Vector code that pools the windows of NHWC images, each channel by itself.

A tile is one pixel of the result times some vectors of channels, which stay in registers over the
whole window. A window is cut to the image before it is run over, so that no pad is ever read. The
parallel axis is the pixels of the result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from bucketize.kernel.emit.vector import FLOAT, Writer
from bucketize.kernel.emit.writer import FLOAT_BYTES, Size, Values
from bucketize.kernel.gemm.store import Words
from bucketize.kernel.loops.pool import PLANE, WINDOW

VECTORS = 4  # of the widest tile: chains enough to hide the latency of one
PIXELS = ("pixel", "out_pixel")  # bytes from one to the next, of the image and of the result
BLOCK_NAMES = ("out", "x", "workspace", "begin", "end", *PLANE, *WINDOW, *PIXELS)
DOWN = ("h", "kh", "sh", "dh", "top", "bottom")
ACROSS = ("w", "kw", "sw", "dw", "left", "right")


@dataclass(frozen=True)
class PoolForm:
    """What the code of a kernel depends on; everything else is left to run time."""

    lanes: int
    mean: bool
    """Whether the mean of a window is wanted; else its greatest element."""
    counts_pads: bool
    """Whether a mean is over the pads, too."""
    dilated: bool
    """Whether the elements of a window lie apart."""
    cut: bool
    """Whether the last vector of channels may be cut."""


@dataclass(frozen=True)
class Reach:
    """How far a window reaches along one axis."""

    first: Size
    """The first element that it meets in the image."""
    count: Size
    """Elements that it meets there."""
    counted: Size
    """Elements that a mean is over."""


def emit(w: Writer, block: ir.Value, /, **form: bool) -> None:
    """Write the body of a kernel of this form."""
    _PooledWindows(w, block, PoolForm(lanes=w.lanes, **form)).write()


class _PooledWindows:
    """The loops over the pixels of the result, their channels, and their windows."""

    def __init__(self, w: Writer, block: ir.Value, form: PoolForm) -> None:
        self.w, self.form = w, form
        self.block = Words(w, block, BLOCK_NAMES)
        self.d: dict[str, Size] = {name: self.block.word(name) for name in (*PLANE, *WINDOW)}
        if not form.dilated:
            self.d |= {"dh": 1, "dw": 1}
        self.pixel, self.out_pixel = map(self.block.word, PIXELS)
        self.line = w.mul(self.pixel, self.d["w"])

    def write(self) -> None:
        """Line after line of the result, each as far as it belongs to this part."""
        w, across = self.w, self.d["ow"]
        begin, end = self.block.word("begin"), self.block.word("end")

        def line(i: ir.Value, _: Values) -> None:
            first = w.mul(i, across)
            low = w.greatest(w.sub(begin, first), 0)
            self.along_line(i, low, w.least(w.sub(end, first), across))

        w.loop(w.div(begin, across), w.ceildiv(end, across), line)

    def along_line(self, line: ir.Value, low: Size, high: Size) -> None:
        """The pixels low..high of a line of the result."""
        w, d = self.w, self.d
        image = w.div(line, d["oh"])
        rows = self.reach(w.sub(line, w.mul(image, d["oh"])), DOWN)
        above = w.add(w.mul(image, d["h"]), rows.first)
        x = w.at(self.block.pointer("x"), w.mul(above, self.line))
        out = w.at(self.block.pointer("out"), w.mul(w.mul(line, d["ow"]), self.out_pixel))

        def pixel(j: ir.Value, _: Values) -> None:
            columns = self.reach(j, ACROSS)
            there = w.at(x, w.mul(columns.first, self.pixel))
            self.through_channels(there, w.at(out, w.mul(j, self.out_pixel)), rows, columns)

        w.loop(low, high, pixel)

    def reach(self, i: Size, axis: Sequence[str]) -> Reach:
        """Where the i-th window along an axis meets the image; what lies outside is skipped."""
        w = self.w
        extent, taps, stride, step, before, after = (self.d[name] for name in axis)
        start = w.sub(w.mul(i, stride), before)

        def below(end: Size) -> Size:
            """Elements of the window that lie before `end`."""
            return w.least(w.ceildiv(w.greatest(w.sub(end, start), 0), step), taps)

        skipped = below(0)
        count = w.sub(below(extent), skipped)
        counted = below(w.add(extent, after)) if self.form.counts_pads else count
        return Reach(w.add(start, w.mul(skipped, step)), count, counted)

    def through_channels(self, x: ir.Value, out: ir.Value, rows: Reach, columns: Reach) -> None:
        """The tiles of a pixel: whole ones, then one of what is left."""
        w, form = self.w, self.form
        width = VECTORS * w.lanes
        blocks = w.div(self.d["c"], width)
        over = self.divisor(rows, columns) if form.mean else None

        def tile(b: Size, masks: Sequence[ir.Value | None]) -> None:
            there = w.mul(b, width * FLOAT_BYTES)
            values = self.pooled(w.at(x, there), rows.count, columns.count, masks)
            self.store(values, w.at(out, there), over, masks)

        w.loop(0, blocks, lambda b, _: tile(b, [None] * VECTORS))
        left = w.sub(self.d["c"], w.mul(blocks, width))
        with w.cases(w.word(w.ceildiv(left, w.lanes))) as case:
            for n in range(1, VECTORS + form.cut):
                with case(n):
                    last = w.mask(w.sub(left, (n - 1) * w.lanes)) if form.cut else None
                    tile(blocks, [*[None] * (n - 1), last])

    def pooled(
        self, x: ir.Value, rows: Size, columns: Size, masks: Sequence[ir.Value | None]
    ) -> Values:
        """The sum, or the greatest, of a window that begins at `x`: a vector for each mask."""
        w, d = self.w, self.d
        down, right = w.mul(self.line, d["dh"]), w.mul(self.pixel, d["dw"])
        join = w.builder.fadd if self.form.mean else w.maximum

        def row(u: ir.Value, values: Values) -> Values:
            line = w.at(x, w.mul(u, down))

            def tap(v: ir.Value, values: Values) -> Values:
                here = w.at(line, w.mul(v, right))
                loaded = [w.load(w.item(here, k * w.lanes), mask) for k, mask in enumerate(masks)]
                return [join(new, value) for new, value in zip(loaded, values, strict=True)]

            return w.loop(0, columns, tap, values)

        start = w.number(0.0 if self.form.mean else -math.inf)
        return w.loop(0, rows, row, [start] * len(masks))

    def divisor(self, rows: Reach, columns: Reach) -> ir.Value:
        """What a sum is divided by, in all lanes."""
        w = self.w
        count = w.word(w.mul(rows.counted, columns.counted))
        return w.splat(w.builder.sitofp(count, FLOAT), w.lanes)

    def store(
        self, values: Values, out: ir.Value, over: ir.Value | None, masks: Sequence[ir.Value | None]
    ) -> None:
        """The vectors of a tile, a sum as a mean `over` so many."""
        w = self.w
        for k, (value, mask) in enumerate(zip(values, masks, strict=True)):
            done = value if over is None else w.builder.fdiv(value, over)
            w.store(done, w.item(out, k * w.lanes), mask)
