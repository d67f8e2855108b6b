"""The loops of a convolution of bytes: a product whose rows are the windows of an image.

A row is laid out line by line of its window: what lies in the image as it lies there, pads as the
number that stands for zero. Windows that are single pixels are read where they lie.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from bucketize.kernel.emit.dot import DOT
from bucketize.kernel.emit.vector import Writer
from bucketize.kernel.emit.writer import BYTE, SHORT, Size, Values
from bucketize.kernel.int8.loops import GROUP, PanelLoops

WINDOW = (
    *("zero", "height", "width", "down", "right", "channels"),
    *("taps", "pieces", "pixels", "stride_y", "stride_x", "dilation_y", "dilation_x"),
    *("top", "left"),
)


def emit(w: Writer, block: ir.Value, /, **form: Any) -> None:
    """Write the body of a kernel: see `int8.loops.emit`."""
    _ByteWindows(w, block, **form).write()


class _ByteWindows(PanelLoops):
    sizes = WINDOW

    def lay_out(self, a: ir.Value, row: Size, to: ir.Value) -> None:
        """A window, line by line."""
        w, d = self.w, self.d
        line = w.div(row, d["width"])
        image = w.div(line, d["height"])
        y = self._first(w.sub(line, w.mul(image, d["height"])), "stride_y", "top")
        x = self._first(w.sub(row, w.mul(line, d["width"])), "stride_x", "left")
        lines = w.mul(image, d["down"])
        size = w.mul(d["channels"], GROUP // self.unit)
        across = w.mul(d["pieces"], d["pixels"])

        def tap(t: ir.Value, _: Values) -> None:
            at = w.add(y, w.mul(t, d["dilation_y"]))
            here = w.at(to, w.mul(w.mul(t, across), size))
            above, below = w.compare(at, ">=", 0), w.compare(at, "<", d["down"])
            read = w.beyond(a, w.mul(w.mul(w.add(lines, at), d["right"]), d["channels"]))

            def piece(p: ir.Value, _: Values) -> None:
                first = w.add(x, w.mul(p, d["dilation_x"]))
                self._piece(read, first, w.at(here, w.mul(w.mul(p, d["pixels"]), size)), size)

            def inside() -> None:
                w.loop(0, d["pieces"], piece)

            w.when(w.builder.and_(above, below), inside, lambda: self._pads(here, across))

        w.loop(0, d["taps"], tap)

    def _first(self, place: Size, stride: str, before: str) -> Size:
        """The first line or column of a window, which may be a pad's."""
        return self.w.sub(self.w.mul(place, self.d[stride]), self.d[before])

    def _piece(self, read: ir.Value, first: Size, to: ir.Value, size: Size) -> None:
        """Neighbours of a line of the image from column `first` on, some of which may be pads."""
        w, pixels, channels = self.w, self.d["pixels"], self.d["channels"]
        low = w.least(w.greatest(w.sub(0, first), 0), pixels)
        high = w.greatest(w.least(w.sub(self.d["right"], first), pixels), low)
        w.when(w.compare(low, ">", 0), lambda: self._pads(to, low))
        there = w.beyond(read, w.mul(w.add(first, low), channels))
        self.copy(there, w.at(to, w.mul(low, size)), w.mul(w.sub(high, low), channels))
        rest, behind = w.sub(pixels, high), w.at(to, w.mul(high, size))
        w.when(w.compare(rest, ">", 0), lambda: self._pads(behind, rest))

    def _pads(self, to: ir.Value, pixels: Size) -> None:
        """Write the pads of so many pixels."""
        w = self.w
        zero = w.builder.trunc(w.word(self.d["zero"]), BYTE if self.unit == DOT else SHORT)
        self.put(to, w.mul(pixels, self.d["channels"]), lambda _, width: w.splat(zero, width))
