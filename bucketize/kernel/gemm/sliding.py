"""Vector code that slides a window over the lines of an image, each channel by itself.

A tile is some neighbouring pixels of a line times some vectors of channels. Every pixel that its
windows see is loaded once a line and joins all sums that want it. The parallel axis is the lines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

from llvmlite import ir

from bucketize.kernel.emit.vector import FLOAT_BYTES, POINTER, WORD_BYTES, Size, Values, Writer
from bucketize.kernel.gemm.epilogue import Epilogue
from bucketize.kernel.gemm.macrokernel import kernel_source
from bucketize.kernel.gemm.microkernel import Words

Pair: TypeAlias = tuple[int, int]

DIMS = ("height", "pixel", "line", "image", "tiles", "low", "tall", "channels")
ORDERS = ("channels", "columns", "lines")
UNROLLED = 9  # taps of a window that are written out; a greater one is looped over by lines


@dataclass(frozen=True)
class Form:
    """What the code of a kernel depends on; everything else is left to run time."""

    lanes: int
    columns: int
    """Pixels of the widest tile."""
    least: int
    """Pixels of the narrowest one that the balanced cut of a line can ask for."""
    vectors: int
    """Vectors of channels of a tile."""
    order: str
    """The inner loop: "channels", "columns" of a line, or "lines" with all their columns."""
    cut: bool
    """Whether the last block of channels may be cut."""
    kernel: Pair
    strides: Pair
    dilations: Pair
    inputs: int
    x: int
    w: int
    """The places of image and weights among the inputs."""
    epilogue: Epilogue

    @property
    def width(self) -> int:
        """Channels of a tile."""
        return self.lanes * self.vectors

    @property
    def taps(self) -> int:
        """Places of the window."""
        return self.kernel[0] * self.kernel[1]

    @property
    def block_names(self) -> tuple[str, ...]:
        """The words of the kernel's argument block."""
        inputs = (f"in{i}" for i in range(self.inputs))
        operands = (f"e{i}_pixel" for i in range(len(self.epilogue.operands)))
        return ("out", *inputs, "workspace", "begin", "end", *DIMS, *operands)

    @property
    def arrays(self) -> tuple[str, ...]:
        """What a tile reads and writes."""
        return ("x", "w", "c", *(f"e{i}" for i in range(len(self.epilogue.operands))))

    @property
    def frame_names(self) -> tuple[str, ...]:
        """The words that tell a run of tiles its place."""
        return (*self.arrays, *(f"{a}_turn" for a in self.arrays), "count", "left")


def source(form: Form) -> str:
    """The text of the kernel of this form."""
    values = {f.name: getattr(form, f.name) for f in fields(form)}
    return kernel_source("sliding", values | {"epilogue": form.epilogue.plain})


def emit(w: Writer, block: ir.Value, /, *, epilogue: tuple[Any, Any], **form: Any) -> None:
    """Write the body of a kernel of this form."""
    _Lines(w, block, Form(lanes=w.lanes, epilogue=Epilogue.of_plain(*epilogue), **form)).write()


class _Run:
    """The body of a function that computes `count` tiles of one size, one after the other."""

    def __init__(self, w: Writer, form: Form, block: ir.Value, frame: ir.Value, size: int) -> None:
        self.w, self.form, self.size = w, form, size
        self.block = Words(w, block, form.block_names)
        self.frame = Words(w, frame, form.frame_names)
        self.pixel = self.block.word("pixel")
        self.masks: list[ir.Value | None] = [None] * form.vectors

    def write(self, *, masked: bool) -> None:
        w, form = self.w, self.form
        if masked:
            left = self.frame.word("left")
            self.masks = [w.mask(w.sub(left, v * w.lanes)) for v in range(form.vectors)]
        turns = [self.frame.word(f"{a}_turn") for a in form.arrays]

        def tile(_: ir.Value, at: Values) -> Values:
            self.tile(dict(zip(form.arrays, at, strict=True)))
            return [w.at(p, t) for p, t in zip(at, turns, strict=True)]

        w.loop(0, self.frame.word("count"), tile, [self.frame.pointer(a) for a in form.arrays])

    def tile(self, at: dict[str, ir.Value]) -> None:
        form, w = self.form, self.w
        sums: Values = [w.number(0)] * (self.size * form.vectors)
        down = w.mul(self.block.word("line"), form.dilations[0])
        row_bytes = form.kernel[1] * form.width * FLOAT_BYTES

        def line(i: Size, sums: Values) -> Values:
            return self.line(
                w.at(at["x"], w.mul(i, down)), w.at(at["w"], w.mul(i, row_bytes)), sums
            )

        if form.taps <= UNROLLED:
            for i in range(form.kernel[0]):
                sums = line(i, sums)
        else:
            sums = w.loop(0, form.kernel[0], line, sums)
        for t in range(self.size):
            for v in range(form.vectors):
                self.store(at, t, v, sums[t * form.vectors + v])

    def line(self, x: ir.Value, weights: ir.Value, sums: Values) -> Values:
        """The sums with one line of the window added, pixel by pixel."""
        w, form, new = self.w, self.form, list(sums)
        parts = range(form.vectors)
        taps = [
            [w.load(w.item(weights, j * form.width + v * w.lanes)) for v in parts]
            for j in range(form.kernel[1])
        ]
        wanted: dict[int, list[Pair]] = {}
        for t in range(self.size):
            for j in range(form.kernel[1]):
                wanted.setdefault(t * form.strides[1] + j * form.dilations[1], []).append((t, j))
        here = 0
        for place in sorted(wanted):
            x, here = w.at(x, w.mul(self.pixel, place - here)), place
            for v in parts:
                value = w.load(w.item(x, v * w.lanes), self.masks[v])
                for t, j in wanted[place]:
                    cell = t * form.vectors + v
                    new[cell] = w.fma(value, taps[j][v], new[cell])
        return new

    def store(self, at: dict[str, ir.Value], t: int, v: int, value: ir.Value) -> None:
        w, mask = self.w, self.masks[v]

        def operand(i: int) -> ir.Value:
            kind = self.form.epilogue.operands[i]
            step = self.block.word(f"e{i}_pixel") if kind.rows else 0
            there = w.at(at[f"e{i}"], w.mul(step, t))
            return w.load(w.item(there, v * w.lanes), mask) if kind.columns else w.load_splat(there)

        done = self.form.epilogue.write(w, value, operand)
        w.store(done, w.item(w.at(at["c"], w.mul(self.pixel, t)), v * w.lanes), mask)


class _Lines:
    """The loops around the runs of tiles."""

    def __init__(self, w: Writer, block: ir.Value, form: Form) -> None:
        self.w, self.form, self.memory = w, form, block
        self.block = Words(w, block, form.block_names)
        self.frame = Words(w, w.scratch(len(form.frame_names) * WORD_BYTES), form.frame_names)
        self.d = {name: self.block.word(name) for name in DIMS}
        operands = form.epilogue.operands
        words = {"x": f"in{form.x}", "w": f"in{form.w}", "c": "out"}
        words |= {f"e{i}": f"in{o.place}" for i, o in enumerate(operands)}
        self.bases = {array: self.block.pointer(word) for array, word in words.items()}
        rows = (f"e{i}" for i, o in enumerate(operands) if o.rows)
        self.pixels = {array: self.block.word(f"{array}_pixel") for array in rows}
        sizes = range(form.least, form.columns + 1)
        self.whole = {n: self.function(n, masked=False) for n in sizes}
        self.masked = {n: self.function(n, masked=True) for n in sizes} if form.cut else {}

    def function(self, size: int, *, masked: bool) -> ir.Function:
        def body(w: Writer, block: ir.Value, frame: ir.Value) -> None:
            _Run(w, self.form, block, frame, size).write(masked=masked)

        return self.w.define(f"{'cut' if masked else 'run'}{size}", [POINTER, POINTER], body)

    def write(self) -> None:
        w, begin, end = self.w, self.block.word("begin"), self.block.word("end")

        def line(i: ir.Value, _: Values) -> None:
            at = self.place(i)
            if self.form.order == "channels":
                self.tiles_through_channels(at)
            else:
                self.each_block(lambda b, functions: self.block_along_line(at, b, functions))

        def block(b: Size, functions: dict[int, ir.Function]) -> None:
            w.loop(begin, end, lambda i, _: self.block_along_line(self.place(i), b, functions))

        if self.form.order == "lines":
            self.each_block(block)
        else:
            w.loop(begin, end, line)

    def place(self, line: ir.Value) -> dict[str, ir.Value]:
        """Where a line of the output, and what it is made from, begins."""
        w, d = self.w, self.d
        image = w.div(line, d["height"])
        y = w.sub(line, w.mul(image, d["height"]))
        down = w.mul(w.mul(y, d["line"]), self.form.strides[0])
        first = w.mul(line, w.add(w.mul(d["low"], d["tiles"]), d["tall"]))
        offsets = {"x": w.add(w.mul(image, d["image"]), down), "c": w.mul(first, d["pixel"])}
        offsets |= {name: w.mul(first, pixel) for name, pixel in self.pixels.items()}
        return {a: w.at(p, offsets.get(a, 0)) for a, p in self.bases.items()}

    def moved(self, at: dict[str, ir.Value], column: Size, channel: Size) -> dict[str, ir.Value]:
        """The places a number of columns and whole blocks of channels further."""
        w = self.w
        return {a: w.at(p, self.step(a, column, channel)) for a, p in at.items()}

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

    def run(
        self,
        functions: dict[int, ir.Function],
        size: ir.Value,
        at: dict[str, ir.Value],
        count: Size,
    ) -> None:
        w = self.w
        by_channels = self.form.order == "channels"
        for array, pointer in at.items():
            self.frame.put(array, pointer)
            turn = self.step(array, *((0, 1) if by_channels else (size, 0)))
            self.frame.put(f"{array}_turn", turn)
        self.frame.put("count", count)
        with w.cases(size) as case:
            for n, function in functions.items():
                with case(n):
                    w.call(function, [self.memory, self.frame.memory])

    def tiles_through_channels(self, at: dict[str, ir.Value]) -> None:
        """Tile after tile of the line, each through all its channels."""
        w, d = self.w, self.d
        blocks = w.div(d["channels"], self.form.width)

        def tile(i: ir.Value, _: Values) -> None:
            first = w.add(w.mul(i, d["low"]), w.least(i, d["tall"]))
            taller = w.builder.zext(w.compare(i, "<", d["tall"]), i.type)
            size = w.word(w.add(d["low"], taller))
            self.run(self.whole, size, self.moved(at, first, 0), blocks)
            self.rest(lambda: self.run(self.masked, size, self.moved(at, first, blocks), 1), blocks)

        w.loop(0, d["tiles"], tile)

    def each_block(self, body: Callable[[Size, dict[int, ir.Function]], None]) -> None:
        """Block after block of channels."""
        w = self.w
        blocks = w.div(self.d["channels"], self.form.width)
        w.loop(0, blocks, lambda b, _: body(b, self.whole))
        self.rest(lambda: body(blocks, self.masked), blocks)

    def block_along_line(
        self, at: dict[str, ir.Value], block: Size, functions: dict[int, ir.Function]
    ) -> None:
        """The tiles of a line in one block of channels."""
        w, d = self.w, self.d
        taller, wide = d["tall"], w.word(w.add(d["low"], 1))
        lower = w.sub(d["tiles"], taller)
        self.run(functions, wide, self.moved(at, 0, block), taller)
        self.run(functions, d["low"], self.moved(at, w.mul(taller, wide), block), lower)

    def rest(self, body: Callable[[], None], blocks: Size) -> None:
        """The channels behind the whole blocks."""
        if not self.form.cut:
            return
        w = self.w
        left = w.sub(self.d["channels"], w.mul(blocks, self.form.width))
        self.frame.put("left", left)
        w.when(w.compare(left, ">", 0), body)
