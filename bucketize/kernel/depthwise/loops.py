"""Vector code that slides a window over the lines of an image, each channel by itself.

The tiles of a line are balanced, and run over one after the other; the parallel axis is the lines.
Where an image is padded, tiles at its rim have functions of their own: what they see of the pads is
loaded from zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from llvmlite import ir

from bucketize.kernel.emit.vector import Writer
from bucketize.kernel.emit.window import WindowForm, WindowFunction
from bucketize.kernel.emit.writer import FLOAT_BYTES, POINTER, Size, Values
from bucketize.kernel.gemm.epilogue import Epilogue
from bucketize.kernel.gemm.store import Words

Functions: TypeAlias = dict[int, ir.Function]


def emit(w: Writer, block: ir.Value, /, *, epilogue: tuple[Any, Any], **form: Any) -> None:
    """Write the body of a kernel of this form."""
    _Lines(
        w, block, WindowForm(lanes=w.lanes, epilogue=Epilogue.of_plain(*epilogue), **form)
    ).write()


@dataclass(frozen=True)
class _Runs:
    """The functions that compute runs of tiles, by their size."""

    inner: Functions
    rim: Functions
    """The functions of tiles that see pads."""


@dataclass(frozen=True)
class _Line:
    """A line of the output."""

    at: dict[str, ir.Value]
    """Where it begins, and where what it is made from does."""
    low: Size
    """The first tile that sees no pads."""
    high: Size
    """The first one behind these."""


class _Lines:
    """The loops around the runs of tiles."""

    def __init__(self, w: Writer, block: ir.Value, form: WindowForm) -> None:
        self.w, self.form, self.memory = w, form, block
        self.block = Words(w, block, form.block_names)
        self.frame = Words.new(w, form.frame_names)
        self.d = {name: self.block.word(name) for name in form.dims}
        operands = form.epilogue.operands
        words = {"x": f"in{form.x}", "w": f"in{form.w}", "c": "out"}
        words |= {f"e{i}": f"in{o.place}" for i, o in enumerate(operands)}
        self.bases = {array: self.block.pointer(word) for array, word in words.items()}
        rows = (f"e{i}" for i, o in enumerate(operands) if o.rows)
        self.pixels = {array: self.block.word(f"{array}_pixel") for array in rows}
        self.whole = self.runs(masked=False)
        self.masked = self.runs(masked=True) if form.cut else _Runs({}, {})
        self.inner = self.inner_tiles() if form.padded else (0, self.d["tiles"])
        if form.padded:
            self.frame.put("zeros", self.zeros())

    def runs(self, *, masked: bool) -> _Runs:
        sizes, padded = range(self.form.least, self.form.columns + 1), self.form.padded
        inner, rim = (
            {n: self.function(n, masked=masked, rim=rim) for n in sizes if padded or not rim}
            for rim in (False, True)
        )
        return _Runs(inner, rim)

    def function(self, size: int, *, masked: bool, rim: bool) -> ir.Function:
        def body(w: Writer, block: ir.Value, frame: ir.Value) -> None:
            WindowFunction(w, self.form, block, frame, size, rim=rim).write(masked=masked)

        name = f"{'rim_' if rim else ''}{'cut' if masked else 'run'}{size}"
        return self.w.define(name, [POINTER, POINTER], body)

    def zeros(self) -> ir.Value:
        """A pixel of a pad."""
        w, memory = self.w, self.w.scratch(self.form.width * FLOAT_BYTES)
        for v in range(self.form.vectors):
            w.store(w.number(0), w.item(memory, v * w.lanes))
        return memory

    def write(self) -> None:
        w, begin, end = self.w, self.block.word("begin"), self.block.word("end")

        def line(i: ir.Value, _: Values) -> None:
            at = self.place(i)
            if self.form.order == "channels":
                self.tiles_through_channels(at)
            else:
                self.each_block(lambda b, runs: self.block_along_line(at, b, runs))

        def block(b: Size, runs: _Runs) -> None:
            w.loop(begin, end, lambda i, _: self.block_along_line(self.place(i), b, runs))

        if self.form.order == "lines":
            self.each_block(block)
        else:
            w.loop(begin, end, line)

    def place(self, line: ir.Value) -> _Line:
        """Where a line of the output is, and which of its tiles see no pads."""
        w, d = self.w, self.d
        image = w.div(line, d["height"])
        row = w.mul(w.sub(line, w.mul(image, d["height"])), self.form.strides[0])
        low, high = self.inner
        across: Size = 0
        if self.form.padded:
            row, across = w.sub(row, d["top"]), w.mul(d["left"], d["pixel"])
            low, high = self.inner_of_line(row)
            self.frame.put("row", row)
        seen = w.sub(w.mul(row, d["line"]), across)
        first = w.mul(line, w.add(w.mul(d["low"], d["tiles"]), d["tall"]))
        offsets = {"x": w.add(w.mul(image, d["image"]), seen), "c": w.mul(first, d["pixel"])}
        offsets |= {name: w.mul(first, pixel) for name, pixel in self.pixels.items()}
        at = {a: self.move(a, p, offsets.get(a, 0)) for a, p in self.bases.items()}
        return _Line(at, low, high)

    def move(self, array: str, pointer: ir.Value, offset: Size) -> ir.Value:
        """The pointer moved; where there are pads, that to the image may leave it for a while."""
        outside = array == "x" and self.form.padded
        return (self.w.beyond if outside else self.w.at)(pointer, offset)

    def moved(self, at: dict[str, ir.Value], column: Size, channel: Size) -> dict[str, ir.Value]:
        """The places a number of columns and whole blocks of channels further."""
        return {a: self.move(a, p, self.step(a, column, channel)) for a, p in at.items()}

    def step(self, array: str, columns: Size, blocks: Size) -> Size:
        """Bytes from one place to another, so many columns and blocks of channels away."""
        w, form = self.w, self.form
        across = w.mul(blocks, form.width * FLOAT_BYTES)
        if array == "x":
            return w.add(w.mul(w.mul(columns, form.strides[1]), self.d["pixel"]), across)
        if array == "w":
            return w.mul(across, form.taps)
        if array == "c":
            return w.add(w.mul(columns, self.d["pixel"]), across)
        operand = form.epilogue.operands[int(array[1:])]
        down = w.mul(columns, self.pixels[array]) if operand.rows else 0
        return w.add(down, across if operand.columns else 0)

    # --- which tiles see pads ---------------------------------------------------------------------

    def inner_tiles(self) -> tuple[Size, Size]:
        """The first tile whose windows all begin inside of a line, and the first that leaves it."""
        w, d, form = self.w, self.d, self.form
        stride, wide = form.strides[1], w.add(d["low"], 1)
        reach = (form.kernel[1] - 1) * form.dilations[1] + 1
        before = w.ceildiv(d["left"], stride)  # windows that begin before the line
        room = w.add(w.sub(w.add(d["right"], d["left"]), reach), stride)
        inside = w.div(w.greatest(room, 0), stride)  # windows up to the last that ends in it
        taller = w.mul(d["tall"], wide)

        def lower(windows: Size) -> Size:
            return w.greatest(w.sub(windows, taller), 0)

        low = w.least(w.ceildiv(before, wide), d["tall"])
        low = w.least(w.add(low, w.ceildiv(lower(before), d["low"])), d["tiles"])
        high = w.least(w.div(inside, wide), d["tall"])
        high = w.add(high, w.div(lower(inside), d["low"]))
        return low, w.greatest(w.least(high, d["tiles"]), low)

    def inner_of_line(self, row: Size) -> tuple[Size, Size]:
        """Inner pixels of the line whose windows begin at a row of the image; none if it pads."""
        w, d, form = self.w, self.d, self.form
        last = w.add(row, (form.kernel[0] - 1) * form.dilations[0])
        inside = w.builder.and_(w.compare(row, ">=", 0), w.compare(last, "<", d["down"]))
        low, high = (w.builder.select(inside, w.word(n), d["tiles"]) for n in self.inner)
        return low, high

    def at_rim(self, line: _Line, body: Callable[[Size], None]) -> None:
        """The tiles of a line that see pads, one by one."""
        w = self.w
        if not self.form.padded:
            return

        def tile(k: ir.Value, _: Values) -> None:
            behind = w.add(k, w.sub(line.high, line.low))
            body(w.builder.select(w.compare(k, "<", line.low), k, w.word(behind)))

        w.loop(0, w.add(line.low, w.sub(self.d["tiles"], line.high)), tile)

    # --- runs -------------------------------------------------------------------------------------

    def run(self, functions: Functions, size: Size, at: dict[str, ir.Value], count: Size) -> None:
        w = self.w
        by_channels = self.form.order == "channels"
        for array, pointer in at.items():
            self.frame.put(array, pointer)
            turn = self.step(array, *((0, 1) if by_channels else (size, 0)))
            self.frame.put(f"{array}_turn", turn)
        self.frame.put("count", count)
        with w.cases(w.word(size)) as case:
            for n, function in functions.items():
                with case(n):
                    w.call(function, [self.memory, self.frame.memory])

    def tile(self, i: Size) -> tuple[Size, Size]:
        """The first column of a tile, and how many it has; the frame is told what it sees first."""
        w, d = self.w, self.d
        first = w.add(w.mul(i, d["low"]), w.least(i, d["tall"]))
        taller = w.builder.zext(w.compare(i, "<", d["tall"]), d["tall"].type)
        if self.form.padded:
            self.frame.put("column", w.sub(w.mul(first, self.form.strides[1]), d["left"]))
        return first, w.add(d["low"], taller)

    def tiles_through_channels(self, line: _Line) -> None:
        """Tile after tile of the line, each through all its channels."""
        w = self.w
        blocks = w.div(self.d["channels"], self.form.width)

        def tile(i: Size, whole: Functions, masked: Functions) -> None:
            first, size = self.tile(i)
            self.run(whole, size, self.moved(line.at, first, 0), blocks)
            self.rest(lambda: self.run(masked, size, self.moved(line.at, first, blocks), 1), blocks)

        self.at_rim(line, lambda i: tile(i, self.whole.rim, self.masked.rim))
        whole, masked = self.whole.inner, self.masked.inner
        w.loop(line.low, line.high, lambda i, _: tile(i, whole, masked))

    def each_block(self, body: Callable[[Size, _Runs], None]) -> None:
        """Block after block of channels."""
        w = self.w
        blocks = w.div(self.d["channels"], self.form.width)
        w.loop(0, blocks, lambda b, _: body(b, self.whole))
        self.rest(lambda: body(blocks, self.masked), blocks)

    def block_along_line(self, line: _Line, block: Size, runs: _Runs) -> None:
        """The tiles of a line in one block of channels."""
        w, d = self.w, self.d
        wide = w.add(d["low"], 1)

        def tile(i: Size) -> None:
            first, size = self.tile(i)
            self.run(runs.rim, size, self.moved(line.at, first, block), 1)

        self.at_rim(line, tile)
        low, high = w.least(line.low, d["tall"]), w.least(line.high, d["tall"])
        at = self.moved(line.at, w.mul(low, wide), block)
        self.run(runs.inner, wide, at, w.sub(high, low))
        low, high = w.greatest(line.low, d["tall"]), w.greatest(line.high, d["tall"])
        at = self.moved(line.at, w.add(w.mul(low, d["low"]), d["tall"]), block)
        self.run(runs.inner, d["low"], at, w.sub(high, low))

    def rest(self, body: Callable[[], None], blocks: Size) -> None:
        """The channels behind the whole blocks."""
        if not self.form.cut:
            return
        w = self.w
        left = w.sub(self.d["channels"], w.mul(blocks, self.form.width))
        self.frame.put("left", left)
        w.when(w.compare(left, ">", 0), body)
