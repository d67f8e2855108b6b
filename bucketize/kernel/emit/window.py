"""The tile that a sliding window is made of: pixels of a line times vectors of channels.

Every pixel that the windows of a tile see is loaded once a line and joins all sums that want it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from llvmlite import ir

from bucketize.kernel.emit.vector import Writer
from bucketize.kernel.emit.writer import FLOAT_BYTES, Size, Values
from bucketize.kernel.gemm.epilogue import Epilogue
from bucketize.kernel.gemm.store import Words, block_names

Pair: TypeAlias = tuple[int, int]

DIMS = ("height", "pixel", "line", "image", "tiles", "low", "tall", "channels")
RIM = ("down", "right", "top", "left")  # lines and columns of the image, and pads before them
ORDERS = ("channels", "columns", "lines")
UNROLLED = 9  # taps of a window that are written out; a greater one is looped over by lines


@dataclass(frozen=True)
class WindowForm:
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
    padded: bool
    """Whether the image is padded."""
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
    def dims(self) -> tuple[str, ...]:
        """The names of the kernel's dims; the steps of operands follow them."""
        return (*DIMS, *RIM) if self.padded else DIMS

    @property
    def block_names(self) -> tuple[str, ...]:
        """The words of the kernel's argument block."""
        operands = (f"e{i}_pixel" for i in range(len(self.epilogue.operands)))
        return block_names(self.inputs, (*self.dims, *operands))

    @property
    def arrays(self) -> tuple[str, ...]:
        """What a tile reads and writes."""
        return ("x", "w", "c", *(f"e{i}" for i in range(len(self.epilogue.operands))))

    @property
    def frame_names(self) -> tuple[str, ...]:
        """The words that tell a run of tiles its place."""
        turns = (f"{a}_turn" for a in self.arrays)
        return (*self.arrays, *turns, "count", "left", "row", "column", "zeros")


class WindowFunction:
    """The body of a function that computes `count` tiles of one size, one after the other.

    At the rim of a padded image it is told the first line and column that its windows see.
    """

    def __init__(
        self, w: Writer, form: WindowForm, block: ir.Value, frame: ir.Value, size: int, *, rim: bool
    ) -> None:
        self.w, self.form, self.size, self.rim = w, form, size, rim
        self.block = Words(w, block, form.block_names)
        self.frame = Words(w, frame, form.frame_names)
        self.pixel = self.block.word("pixel")
        self.masks: list[ir.Value | None] = [None] * form.vectors
        self.move = w.beyond if rim else w.at

    def write(self, *, masked: bool) -> None:
        w, form = self.w, self.form
        if masked:
            left = self.frame.word("left")
            self.masks = [w.mask(w.sub(left, v * w.lanes)) for v in range(form.vectors)]
        turns = [self.frame.word(f"{a}_turn") for a in form.arrays]

        def tile(_: ir.Value, at: Values) -> Values:
            self.tile(dict(zip(form.arrays, at, strict=True)))
            return [self.move(p, t) for p, t in zip(at, turns, strict=True)]

        w.loop(0, self.frame.word("count"), tile, [self.frame.pointer(a) for a in form.arrays])

    def tile(self, at: dict[str, ir.Value]) -> None:
        form, w = self.form, self.w
        sums: Values = [w.number(0)] * (self.size * form.vectors)
        down = w.mul(self.block.word("line"), form.dilations[0])
        row_bytes = form.kernel[1] * form.width * FLOAT_BYTES

        def line(i: Size, sums: Values) -> Values:
            x = self.move(at["x"], w.mul(i, down))
            return self.line(i, x, w.at(at["w"], w.mul(i, row_bytes)), sums)

        if form.taps <= UNROLLED:
            for i in range(form.kernel[0]):
                sums = line(i, sums)
        else:
            sums = w.loop(0, form.kernel[0], line, sums)
        for t in range(self.size):
            for v in range(form.vectors):
                self.store(at, t, v, sums[t * form.vectors + v])

    def line(self, i: Size, x: ir.Value, weights: ir.Value, sums: Values) -> Values:
        """The sums with line i of the window added, pixel by pixel."""
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
        seen = self.seen(i) if self.rim else None
        here = 0
        for place in sorted(wanted):
            x, here = self.move(x, w.mul(self.pixel, place - here)), place
            there = seen(place, x) if seen else x
            for v in parts:
                value = w.load(w.item(there, v * w.lanes), self.masks[v])
                for t, j in wanted[place]:
                    cell = t * form.vectors + v
                    new[cell] = w.fma(value, taps[j][v], new[cell])
        return new

    def seen(self, i: Size) -> Callable[[int, ir.Value], ir.Value]:
        """Where a pixel that line i of the window sees is read from: a pad, from zeros.

        A number before the first is a great one to an unsigned comparison.
        """
        w, dims = self.w, self.block
        row = w.add(self.frame.word("row"), w.mul(i, self.form.dilations[0]))
        has_row = w.builder.icmp_unsigned("<", w.word(row), dims.word("down"))
        column, right = self.frame.word("column"), dims.word("right")
        zeros = self.frame.pointer("zeros")

        def pixel(place: int, x: ir.Value) -> ir.Value:
            has_column = w.builder.icmp_unsigned("<", w.word(w.add(column, place)), right)
            return w.builder.select(w.builder.and_(has_row, has_column), x, zeros)

        return pixel

    def store(self, at: dict[str, ir.Value], t: int, v: int, value: ir.Value) -> None:
        w, mask = self.w, self.masks[v]

        def operand(i: int) -> ir.Value:
            kind = self.form.epilogue.operands[i]
            step = self.block.word(f"e{i}_pixel") if kind.rows else 0
            there = w.at(at[f"e{i}"], w.mul(step, t))
            return kind.load(w, there, v * w.lanes, mask)

        done = self.form.epilogue.write(w, value, operand)
        w.store(done, w.item(w.at(at["c"], w.mul(self.pixel, t)), v * w.lanes), mask)
